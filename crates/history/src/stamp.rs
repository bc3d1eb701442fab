//! Moments as people and JSON read them: RFC 3339, UTC, milliseconds.
//!
//! A moment beyond what a calendar can say is shown as the last one it can; nothing here fails.

use defib_core::Wall;
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// The moment as RFC 3339 in UTC with milliseconds: `2026-11-15T22:51:00.042Z`.
pub fn rfc3339(at: Wall) -> String {
    format!("{:.3}", timestamp(at))
}

/// The moment as it stands in a file's name: `20261115T225100Z`.
pub(crate) fn compact(at: Wall) -> String {
    timestamp(at).strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn timestamp(at: Wall) -> Timestamp {
    let last = if at.as_millis() < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(at.as_millis()).unwrap_or(last)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(crate) fn serialize<S: Serializer>(at: &Wall, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:.3}", timestamp(*at)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Wall, D::Error> {
    let text = String::deserialize(deserializer)?;
    let at: Timestamp = text.parse().map_err(D::Error::custom)?;
    Ok(Wall::from_millis(at.as_millisecond()))
}

/// The same for a moment that may be absent.
pub(crate) mod maybe {
    use defib_core::Wall;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct Moment(#[serde(with = "super")] Wall);

    #[expect(clippy::ref_option, reason = "serde hands a reference")]
    pub(crate) fn serialize<S: Serializer>(
        at: &Option<Wall>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => super::serialize(at, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Wall>, D::Error> {
        Ok(Option::<Moment>::deserialize(deserializer)?.map(|Moment(at)| at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_always_has_milliseconds_and_a_z() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_042, "2023-11-14T22:13:20.042Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Wall::from_millis(millis)), text);
        }
        assert_eq!(compact(Wall::from_millis(1_700_000_000_042)), "20231114T221320Z");
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_its_last_one() {
        assert!(rfc3339(Wall::from_millis(i64::MAX)).starts_with("9999-"));
        assert!(rfc3339(Wall::from_millis(i64::MIN)).starts_with("-009999-"));
    }
}
