//! Figures that are sent by OpenTelemetry. What is in them, `scripts/otlp-check` reads.

use defib_e2e::{Receiver, await_that, proc};
use serde_json::Value;

use crate::bench;

fn failures(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["type"] == "export-failed").collect()
}

#[test]
fn figures_are_sent_and_a_receiver_that_is_away_is_counted_and_said_once() {
    let mut bench = bench();
    bench.set("SOME_HEADERS", "authorization=Bearer%20of-the-test");
    // It hangs up on everybody until the third.
    let receiver = Receiver::answering(|number| if number < 3 { 0 } else { 200 });
    let events = bench.up(&[
        bench.agent("worker", "forever", ""),
        format!(
            "[metrics]\notlp = \"{}/\"\ninterval = \"1s\"\nheaders_env = \"SOME_HEADERS\"\n",
            receiver.base()
        ),
    ]);
    let all = receiver.find("five that were sent", |all| (all.len() >= 5).then(|| all.to_vec()));
    for one in &all {
        assert_eq!(one.path, "/v1/metrics");
        assert_eq!(one.headers["content-type"], "application/x-protobuf");
        assert_eq!(one.headers["authorization"], "Bearer of-the-test");
    }
    assert!(proc::holds(&all[4].body, "defib_agent_state"), "{all:#?}");
    assert!(proc::holds(&all[4].body, "worker"), "{all:#?}");
    let said = events.find("the failure", |events| {
        let said = failures(events);
        (!said.is_empty()).then(|| (said.len(), said[0].clone()))
    });
    assert_eq!(said.0, 1, "once is enough");
    assert!(said.1["why"].as_str().unwrap().starts_with("127.0.0.1: "), "{}", said.1);
    let shown = bench.look("/metrics").body;
    let failed = "defib_otlp_exports_total{outcome=\"failed\"} 3\n";
    assert!(shown.contains(failed), "{shown}");

    // Nobody is sent anything any more, and nothing is said of it.
    bench.config(&bench.agent("worker", "forever", ""));
    bench.defib(&["up", "--detach"]).good();
    await_that("no more of it", || !bench.look("/metrics").body.contains("defib_otlp_exports"));
}

#[test]
fn an_address_that_a_variable_should_name_is_missed_aloud() {
    let mut bench = bench();
    bench.declare(&[
        bench.agent("a", "forever", ""),
        "[metrics]\notlp = \"env\"\ninterval = \"1s\"\n".to_owned(),
    ]);
    let wanted = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let checked = bench.defib(&["check"]).good();
    assert!(checked.err.contains(&format!("[metrics] needs {wanted}, which is not set")));
    bench.defib(&["up", "--detach"]).good();
    let said = bench.events().find("the failure", |events| {
        failures(events).first().map(|said| said["why"].as_str().unwrap_or_default().to_owned())
    });
    assert!(said.starts_with(&format!("{wanted} is not set; run `defib up`")), "{said}");
    let receiver = Receiver::answering(|_| 200);
    bench.set(wanted, receiver.base());
    bench.defib(&["up", "--detach"]).good();
    let path = receiver.find("one that was sent", |all| Some(all.first()?.path.clone()));
    assert_eq!(path, "/v1/metrics");
}
