//! The few fields of OTLP metrics that are counted, read from protobuf.
//!
//! A message is a row of fields; those that are not known are passed over. Whatever the bytes are, it
//! ends: every step goes forward, and messages are nested only as deep as the code below.

use super::{Point, Temporality};

/// A field's content.
enum Field<'a> {
    /// A number: a varint, or the bits of a fixed one.
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, as far as they can be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// The messages in fields of this number.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |(own, field)| match field {
        Field::Bytes(bytes) if own == number => Some(bytes),
        Field::Bytes(_) | Field::Number(_) => None,
    })
}

/// The data points of an `ExportMetricsServiceRequest`.
pub(super) fn points(request: &[u8]) -> Vec<Point> {
    let resources = messages(request, 1);
    let scopes = resources.flat_map(|resource| messages(resource, 2));
    let metrics = scopes.flat_map(|scope| messages(scope, 2));
    metrics.flat_map(of_metric).collect()
}

fn of_metric(metric: &[u8]) -> Vec<Point> {
    let name = messages(metric, 1).next().map(String::from_utf8_lossy).unwrap_or_default();
    let mut points = Vec::new();
    for (number, field) in Fields(metric) {
        let Field::Bytes(data) = field else { continue };
        // A sum's points have a value; a histogram's have the sum of what was observed.
        let histogram = match number {
            7 => false,
            9 => true,
            _ => continue,
        };
        let temporality = Fields(data).find_map(|(number, field)| match field {
            Field::Number(word) if number == 2 => Some(word),
            Field::Number(_) | Field::Bytes(_) => None,
        });
        let temporality =
            if temporality == Some(1) { Temporality::Delta } else { Temporality::Total };
        for point in messages(data, 1) {
            points.extend(of_point(&name, point, temporality, histogram));
        }
    }
    points
}

fn of_point(name: &str, point: &[u8], temporality: Temporality, histogram: bool) -> Option<Point> {
    let (mut start, mut at, mut value) = (0, 0, None);
    let mut series = Vec::new();
    for (number, field) in Fields(point) {
        match (number, field) {
            (2, Field::Number(nanos)) => start = nanos,
            (3, Field::Number(nanos)) => at = nanos,
            (4, Field::Number(bits)) if !histogram => value = Some(f64::from_bits(bits)),
            (5, Field::Number(bits)) if histogram => value = Some(f64::from_bits(bits)),
            #[expect(clippy::cast_precision_loss, reason = "nobody counts so far")]
            (6, Field::Number(bits)) if !histogram => value = Some(bits.cast_signed() as f64),
            (7, Field::Bytes(attribute)) if !histogram => series.push(attribute.to_vec()),
            (9, Field::Bytes(attribute)) if histogram => series.push(attribute.to_vec()),
            (_, Field::Number(_) | Field::Bytes(_)) => {}
        }
    }
    series.sort();
    let series = series.concat();
    Some(Point { metric: name.to_owned(), series, temporality, start, at, value: value? })
}
