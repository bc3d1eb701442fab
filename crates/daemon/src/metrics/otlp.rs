//! Figures as an `ExportMetricsServiceRequest` of OpenTelemetry, in protobuf.
//!
//! The few messages that it takes are written here by hand: OpenTelemetry's own crates bring more than
//! a hundred others for them. Protobuf, not JSON, because every receiver of OTLP over HTTP has to know
//! it. `scripts/otlp-check` reads what is sent with OpenTelemetry's own types.
//!
//! A figure is called what its family is called on `/metrics`, with its unit beside it: whoever makes
//! Prometheus' names of it, by its rules, gets those of `/metrics` back.

use super::{Figure, Labels, Number, RECOVERY_S, Series, Spread};

/// Values are totals, not differences.
const CUMULATIVE: u64 = 2;

/// Who sends, and of which time the figures are.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    pub(super) host: String,
    /// Tells several daemons of one machine apart.
    pub(super) instance: String,
    /// When this daemon began to count, in nanoseconds since 1970.
    pub(super) began: u64,
    /// Now, in the same.
    pub(super) now: u64,
}

/// The whole request.
pub(super) fn request(sender: &Sender, figures: &[Figure]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let resource = |resource: &mut Message| {
        for (key, value) in [
            ("service.name", "defib"),
            ("service.version", version),
            ("service.instance.id", &sender.instance),
            ("host.name", &sender.host),
        ] {
            resource.message(1, |attribute| key_value(attribute, key, value));
        }
    };
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, resource);
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"defib");
                scope.bytes(2, version.as_bytes());
            });
            // A figure that nothing can be said of is left out: no receiver wants an empty one.
            for figure in figures.iter().filter(|figure| !figure.is_empty()) {
                of_scope.message(2, |metric| write(metric, figure, sender));
            }
        });
    });
    request.0
}

impl Figure {
    fn is_empty(&self) -> bool {
        match &self.series {
            Series::Counted(all) | Series::Lasting(all) | Series::Seen(all) => all.is_empty(),
            Series::Spread(all) => all.is_empty(),
        }
    }

    /// Its unit, by the names of UCUM.
    fn unit(&self) -> &'static str {
        match self.name.rsplit('_').next() {
            Some("seconds") => "s",
            Some("bytes") => "By",
            Some(_) | None => "",
        }
    }
}

fn write(metric: &mut Message, figure: &Figure, sender: &Sender) {
    metric.bytes(1, format!("defib_{}", figure.name).as_bytes());
    metric.bytes(2, figure.help.as_bytes());
    metric.bytes(3, figure.unit().as_bytes());
    match &figure.series {
        Series::Counted(all) => {
            metric.message(7, |sum| total(sum, all, Some(sender.began), sender));
        }
        // Since when is not known: the receiver takes the first value for where it began.
        Series::Lasting(all) => metric.message(7, |sum| total(sum, all, None, sender)),
        Series::Seen(all) => metric.message(5, |gauge| {
            for (labels, number) in all {
                gauge.message(1, |point| value(point, labels, *number, None, sender));
            }
        }),
        Series::Spread(all) => metric.message(9, |histogram| {
            for (labels, spread) in all {
                histogram.message(1, |point| distribution(point, labels, spread, sender));
            }
            histogram.number(2, CUMULATIVE);
        }),
    }
}

fn total(sum: &mut Message, all: &[(Labels, Number)], began: Option<u64>, sender: &Sender) {
    for (labels, number) in all {
        sum.message(1, |point| value(point, labels, *number, began, sender));
    }
    sum.number(2, CUMULATIVE);
    // It only grows.
    sum.number(3, 1);
}

fn value(
    point: &mut Message,
    labels: &Labels,
    number: Number,
    began: Option<u64>,
    sender: &Sender,
) {
    if let Some(began) = began {
        point.fixed(2, began);
    }
    point.fixed(3, sender.now);
    match number {
        Number::Real(number) => point.fixed(4, number.to_bits()),
        Number::Whole(number) => point.fixed(6, number),
    }
    for (key, value) in labels {
        point.message(7, |attribute| key_value(attribute, key, value));
    }
}

fn distribution(point: &mut Message, labels: &Labels, spread: &Spread, sender: &Sender) {
    point.fixed(2, sender.began);
    point.fixed(3, sender.now);
    point.fixed(4, spread.count());
    point.fixed(5, spread.sum.to_bits());
    point.bytes(6, &spread.counts.map(u64::to_le_bytes).concat());
    point.bytes(7, &RECOVERY_S.map(f64::to_le_bytes).concat());
    for (key, value) in labels {
        point.message(9, |attribute| key_value(attribute, key, value));
    }
}

fn key_value(attribute: &mut Message, key: &str, value: &str) {
    attribute.bytes(1, key.as_bytes());
    attribute.message(2, |any| any.bytes(1, value.as_bytes()));
}

/// A message of protobuf in the making: fields one after the other, each with its number and its form.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        loop {
            let [lowest, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(lowest);
            }
            // The lowest seven bits, and that more follow.
            self.0.push(lowest | 0x80);
        }
    }

    fn key(&mut self, field: u64, form: u64) {
        self.varint(field << 3 | form);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.key(field, 0);
        self.varint(number);
    }

    fn fixed(&mut self, field: u64, bits: u64) {
        self.key(field, 1);
        self.0.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_protobuf_says() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.message(3, |inner| inner.number(1, 150));
        message.fixed(16, 1);
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x81\x01\x01\0\0\0\0\0\0\0";
        assert_eq!(message.0, expected);
    }

    #[test]
    fn a_unit_is_what_a_name_ends_in() {
        for (name, unit) in [
            ("recovery_seconds", "s"),
            ("process_resident_memory_bytes", "By"),
            ("runs", ""),
            ("agent_spent", ""),
        ] {
            let figure = Figure { name, help: "", series: Series::Seen(Vec::new()) };
            assert_eq!(figure.unit(), unit, "{name}");
        }
    }
}
