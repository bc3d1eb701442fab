//! Spans of time as people write them: `250ms`, `5s`, `2m`, `1h30m`, `24h`, `7d`.

use core::fmt;
use core::time::Duration;

/// Why a text is not a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadSpan {
    /// There is nothing in it.
    Empty,
    /// A number is missing where one should be.
    NoNumber,
    /// A number stands without a unit.
    NoUnit,
    /// The unit is none of those we know.
    UnknownUnit,
    /// Units go from the largest to the smallest, each once.
    OutOfOrder,
    /// It does not fit.
    TooLong,
}

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a span: whole or decimal numbers, each with its unit, the largest unit first.
pub fn parse(text: &str) -> Result<Duration, BadSpan> {
    if text.is_empty() {
        return Err(BadSpan::Empty);
    }
    let (mut rest, mut total_ms, mut next_unit) = (text, 0u64, 0usize);
    while !rest.is_empty() {
        let number_len = prefix_len(rest, |c| c.is_ascii_digit() || c == '.');
        let (number, tail) = rest.split_at(number_len);
        let (unit, tail) = tail.split_at(prefix_len(tail, |c| c.is_ascii_alphabetic()));
        if number.is_empty() {
            return Err(BadSpan::NoNumber);
        }
        if unit.is_empty() {
            return Err(BadSpan::NoUnit);
        }
        let at = UNITS.iter().position(|(name, _)| *name == unit).ok_or(BadSpan::UnknownUnit)?;
        if at < next_unit {
            return Err(BadSpan::OutOfOrder);
        }
        next_unit = at + 1;
        let part_ms = in_millis(number, UNITS[at].1)?;
        total_ms = total_ms.checked_add(part_ms).ok_or(BadSpan::TooLong)?;
        rest = tail;
    }
    Ok(Duration::from_millis(total_ms))
}

/// `number` × `unit_ms`, exactly, rounded down to a millisecond.
fn in_millis(number: &str, unit_ms: u64) -> Result<u64, BadSpan> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !fraction.is_none_or(digits) {
        return Err(BadSpan::NoNumber);
    }
    let whole_ms = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit_ms));
    // Digits past the ninth are under a millisecond of any unit.
    let (mut part, mut scale) = (0, unit_ms * 100_000_000);
    for digit in fraction.unwrap_or("").bytes().take(9) {
        part += u64::from(digit - b'0') * scale;
        scale /= 10;
    }
    whole_ms.and_then(|ms| ms.checked_add(part / 1_000_000_000)).ok_or(BadSpan::TooLong)
}

fn prefix_len(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

/// Shows a span the way it is written, with at most two units: `1h30m`, `2m5s`, `1.5s`, `400ms`.
#[derive(Debug, Clone, Copy)]
pub struct Shown(pub Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest_ms = crate::time::millis(self.0);
        if (1_000..60_000).contains(&rest_ms) {
            let (seconds, millis) = (rest_ms / 1000, rest_ms % 1000);
            return match (millis, millis % 10, millis % 100) {
                (0, ..) => write!(f, "{seconds}s"),
                (.., 0) => write!(f, "{seconds}.{}s", millis / 100),
                (_, 0, _) => write!(f, "{seconds}.{:02}s", millis / 10),
                (..) => write!(f, "{seconds}.{millis:03}s"),
            };
        }
        let Some(first) = UNITS.iter().position(|(_, unit_ms)| rest_ms >= *unit_ms) else {
            return f.write_str("0s");
        };
        for (unit, unit_ms) in UNITS.iter().skip(first).take(2) {
            let count = rest_ms / unit_ms;
            rest_ms %= unit_ms;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BadSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadSpan::Empty => "a duration is missing",
            BadSpan::NoNumber => "a duration is a number and a unit, such as 30s or 1h30m",
            BadSpan::NoUnit => "a duration needs a unit: ms, s, m, h or d",
            BadSpan::UnknownUnit => "the units of a duration are ms, s, m, h and d",
            BadSpan::OutOfOrder => "the units of a duration go from large to small, each once",
            BadSpan::TooLong => "the duration is too long",
        })
    }
}

impl core::error::Error for BadSpan {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::{prop_assert_eq, proptest};

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("24h", 86_400_000),
            ("30d", 2_592_000_000),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            ("0s", 0),
            ("1m1s1ms", 61_001),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused_with_its_reason() {
        for (text, why) in [
            ("", BadSpan::Empty),
            ("5", BadSpan::NoUnit),
            ("s", BadSpan::NoNumber),
            ("-5s", BadSpan::NoNumber),
            ("5 s", BadSpan::NoUnit),
            ("5x", BadSpan::UnknownUnit),
            ("30m1h", BadSpan::OutOfOrder),
            ("1s1s", BadSpan::OutOfOrder),
            ("1..5s", BadSpan::NoNumber),
            ("1.s", BadSpan::NoNumber),
            ("99999999999999999999d", BadSpan::TooLong),
            ("18446744073709551615h", BadSpan::TooLong),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn spans_are_shown_as_people_write_them() {
        for (ms, text) in [
            (0, "0s"),
            (400, "400ms"),
            (1_500, "1.5s"),
            (1_250, "1.25s"),
            (1_007, "1.007s"),
            (59_000, "59s"),
            (125_999, "2m5s"),
            (5_400_000, "1h30m"),
            (86_400_000, "1d"),
        ] {
            assert_eq!(Shown(Duration::from_millis(ms)).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_shown_with_two_units_is_read_back(count in 0u64..60, ms in 0u64..1000) {
            let span = Duration::from_millis(count * 1000 + ms);
            prop_assert_eq!(parse(&Shown(span).to_string()), Ok(span));
        }
    }
}
