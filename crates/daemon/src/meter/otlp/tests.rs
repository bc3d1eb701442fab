//! Both forms, both temporalities, and bytes that are neither.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn request(metric: &str, temporality: u64, value: f64, at: u64) -> serde_json::Value {
    json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [{
        "name": metric,
        "sum": { "aggregationTemporality": temporality, "dataPoints": [{
            "attributes": [{ "key": "type", "value": { "stringValue": "input" } }],
            "startTimeUnixNano": "5", "timeUnixNano": at.to_string(), "asDouble": value,
        }] },
    }] }] }] })
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn fixed(number: u64, bits: u64) -> Vec<u8> {
    [varint(number << 3 | 1), bits.to_le_bytes().to_vec()].concat()
}

/// The same request as protobuf, as a sum or as a histogram.
fn encoded(metric: &str, temporality: u64, value: f64, at: u64, histogram: bool) -> Vec<u8> {
    let (value_field, attributes, data) = if histogram { (5, 9, 9) } else { (4, 7, 7) };
    let point = [
        field(attributes, b"type=input"),
        fixed(2, 5),
        fixed(3, at),
        fixed(value_field, value.to_bits()),
    ]
    .concat();
    let body = [field(1, &point), varint(2 << 3), varint(temporality)].concat();
    let metric = [field(1, metric.as_bytes()), field(3, b"1"), field(data, &body)].concat();
    field(1, &[field(1, b"resource"), field(2, &field(2, &metric))].concat())
}

fn totals(points: impl IntoIterator<Item = Point>) -> Amounts {
    let mut sent = Sent::default();
    points.into_iter().for_each(|point| sent.take(point, |_| 0.0));
    sent.totals()
}

#[test]
fn json_and_protobuf_say_the_same() {
    for (metric, unit) in [
        ("claude_code.token.usage", "tokens"),
        ("claude_code.cost.usage", "usd"),
        ("gen_ai.client.token.usage", "tokens"),
    ] {
        let expected = Amounts::from([(unit.to_owned(), 1_500_000)]);
        assert_eq!(totals(json::points(&request(metric, 1, 1.5, 9))), expected, "{metric}");
        for histogram in [false, true] {
            let bytes = encoded(metric, 1, 1.5, 9, histogram);
            assert_eq!(totals(protobuf::points(&bytes)), expected, "{metric} {histogram}");
        }
    }
    assert!(totals(json::points(&request("some.other.metric", 1, 1.5, 9))).is_empty());
}

#[test]
fn differences_are_added_once_each_and_totals_replace_each_other() {
    let metric = "claude_code.token.usage";
    let points = |temporality, values: &[(f64, u64)]| -> Vec<Point> {
        let of =
            |(value, at): &(f64, u64)| json::points(&request(metric, temporality, *value, *at));
        values.iter().flat_map(of).collect()
    };
    let tokens = |points| totals(points)["tokens"] / 1_000_000;
    assert_eq!(tokens(points(1, &[(10.0, 1), (5.0, 2), (5.0, 2)])), 15, "one was sent again");
    assert_eq!(tokens(points(2, &[(10.0, 1), (15.0, 2), (15.0, 3)])), 15);
    assert_eq!(tokens(points(2, &[(10.0, 1), (4.0, 2)])), 14, "it began anew");
    assert_eq!(tokens(points(1, &[(10.0, 1), (-4.0, 2), (f64::NAN, 3)])), 10);
}

#[test]
fn what_an_earlier_daemon_counted_of_differences_is_not_lost_and_of_totals_not_doubled() {
    let metric = "claude_code.token.usage";
    for (temporality, expected) in [(1, 107_000_000), (2, 7_000_000)] {
        let mut sent = Sent::default();
        for point in json::points(&request(metric, temporality, 7.0, 9)) {
            sent.take(point, |_| 100.0);
        }
        assert_eq!(sent.totals()["tokens"], expected);
    }
}

#[test]
fn an_own_exporter_is_left_alone() {
    let (history, _) = defib_history::History::open(
        &tempfile::tempdir().unwrap().path().join("history.db"),
        defib_history::Options::default(),
    )
    .unwrap();
    let (ledger, _clerk) = Ledger::open(Arc::new(history), &defib_history::Intents::default());
    let inner = Arc::new(Mutex::new(Inner::default()));
    let receiver = Receiver { inner, ledger };
    let key = RunKey { agent: Name::parse("a").unwrap(), run: RunId(1) };
    let mut env = vec![("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), "http://own".to_owned())];
    assert!(receiver.admit(&key, &mut env).is_none());
    assert_eq!(env.len(), 1);
    let mut env = Vec::new();
    assert!(receiver.admit(&key, &mut env).is_some());
    let header = env[1].1.strip_prefix("authorization=").unwrap().replace("%20", " ");
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, header.parse().unwrap());
    assert_eq!(receiver.sender(&headers), Some(key));
    headers.insert(AUTHORIZATION, "Bearer 0".parse().unwrap());
    assert_eq!(receiver.sender(&headers), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        totals(protobuf::points(&bytes));
        if let Ok(value) = serde_json::from_slice(&bytes) {
            totals(json::points(&value));
        }
    }

    #[test]
    fn a_request_that_is_cut_or_changed_does_not_make_it_panic(
        cut in 0usize..200, at in 0usize..200, byte: u8,
    ) {
        let mut bytes = encoded("claude_code.token.usage", 1, 1.5, 9, false);
        bytes.truncate(cut.min(bytes.len()));
        if let Some(own) = bytes.get_mut(at) {
            *own = byte;
        }
        totals(protobuf::points(&bytes));
    }
}
