//! Reads the time at which a limit goes away from a message.
//!
//! A stated instant is taken as it is, also if it has passed: the wait then ends at once. A weekday
//! with a time is its next occurrence. A time of day alone is its next occurrence unless it has just
//! passed: a session limit lasts at most five hours, so a next occurrence further away means that
//! the stated one is over; with an unknown window, a time within the last hour has passed. A date without a year is the one nearest to now. If no
//! zone is stated, the local one applies, which the caller passes in with the time. Days on which clocks change are
//! counted right.

use std::sync::LazyLock;

use defib_core::Wall;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use regex::{Captures, Regex};
use serde_json::Value;

use crate::rules::compile_own;

/// The time and the zone by which a message is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock<'z> {
    now: Timestamp,
    zone: &'z TimeZone,
}

/// The longest window of a session limit.
const SESSION: SignedDuration = SignedDuration::from_hours(5);

/// With an unknown window, a time of day has passed if it was within this long before now.
const JUST_PASSED: SignedDuration = SignedDuration::from_hours(1);

/// The words of a session limit.
static SESSION_WORDS: LazyLock<Regex> =
    LazyLock::new(|| built(r"\bsessions?\b|\b(?:5|five)[ -]?(?:hours?|hrs?|h)\b"));

/// The words before a time.
static LEAD: LazyLock<Regex> = LazyLock::new(|| {
    built(
        r#"\b(?:resets?(?:_?(?:at|time|in))?|try(?:ing)? again|retry|available(?: again)?|wait|until|renews?|refresh(?:es)?|come back|resumes?|replenish(?:es|ed)?|unlocks?|back)\b["']?(?:[\s:=~(,"']|\b(?:time|at|on|in|after|for|until|is|will|be|by|again|about|around|approximately|your|the|limit|quota|usage|please|next)\b)*"#,
    )
});

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

const CLOCK: &str = r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::(?P<second>\d\d))? ?(?P<half>[ap])\.?m\b\.?|(?P<hour24>\d{1,2}):(?P<minute24>\d\d)(?::(?P<second24>\d\d)(?:\.\d+)?)?|(?P<named>midnight|noon)\b)";
const ZONE: &str = r"(?:\s*\(?(?P<zone>[A-Za-z]+(?:/[A-Za-z_+-]+\d*){1,2}|UTC[+-]\d{1,2}(?::?\d\d)?|GMT[+-]\d{1,2}(?::?\d\d)?|UTC|GMT|Z\b|[ECMP][SD]?T\b|CES?T\b|BST\b|IST\b|JST\b|Pacific|Eastern|[+-]\d\d:?\d\d)\)?)?";
const MONTH: &str = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:[a-z]{0,6})\.?";
const DAY: &str = r"(?P<weekday>mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?(?:day)?\b\.?";

static ISO: LazyLock<Regex> = LazyLock::new(|| {
    built(&format!(
        r"^(?P<year>\d{{4}})[-/](?P<number>\d\d)[-/](?P<date>\d\d)(?:(?:[T ]|,? at ){CLOCK})?{ZONE}"
    ))
});
static MONTH_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    built(&format!(
        r"^(?:{DAY},? )?{MONTH} (?P<date>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>\d{{4}})\b)?(?:,? (?:at )?{CLOCK})?{ZONE}"
    ))
});
static DATE_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    built(&format!(
        r"^(?:{DAY},? )?(?P<date>\d{{1,2}})(?:st|nd|rd|th)?[ -]{MONTH}(?:,?[ -](?P<year>\d{{4}})\b)?(?:,? (?:at )?{CLOCK})?{ZONE}"
    ))
});
static WEEKDAY: LazyLock<Regex> =
    LazyLock::new(|| built(&format!(r"^{DAY}(?:,? (?:at )?{CLOCK})?{ZONE}")));
static TOMORROW: LazyLock<Regex> =
    LazyLock::new(|| built(&format!(r"^(?P<day>today|tomorrow)\b(?:,? (?:at )?{CLOCK})?{ZONE}")));
static CLOCK_ONLY: LazyLock<Regex> =
    LazyLock::new(|| built(&format!(r"^{CLOCK}{ZONE}(?P<tomorrow> tomorrow)?")));
static EPOCH: LazyLock<Regex> = LazyLock::new(|| built(r"^(\d{10}|\d{13})(?:\.\d+)?\b"));
static BAR_EPOCH: LazyLock<Regex> = LazyLock::new(|| built(r"\|\s*(\d{10}|\d{13})\b"));
static SPAN: LazyLock<Regex> = LazyLock::new(|| {
    built(
        r"^(\d{1,9}(?:\.\d{1,9})?) ?(milliseconds?|msecs?|ms|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)",
    )
});
static RETRY_AFTER: LazyLock<Regex> = LazyLock::new(|| {
    built(
        r#"\b(?:retry[-_ ]?(?:after|delay)|resets?_in_seconds)(?P<ms>[-_ ]?ms)?\\?["']?\s*[:=]?\s*\\?["']?(?:(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit> ?(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b)?|(?P<date>[A-Z][a-z]{2}, \d))"#,
    )
});

/// The window of the limit that a message speaks of.
#[derive(Debug, Clone, Copy)]
enum Window {
    /// At most [`SESSION`].
    Session,
    Unknown,
}

fn window_of(text: &str) -> Window {
    if SESSION_WORDS.is_match(text) { Window::Session } else { Window::Unknown }
}

fn built(pattern: &str) -> Regex {
    // They are part of the program; a test builds them.
    compile_own(pattern).unwrap_or_else(|error| panic!("{error}"))
}

impl<'z> Clock<'z> {
    pub(crate) fn new(now: Wall, zone: &'z TimeZone) -> Clock<'z> {
        let now = Timestamp::from_millisecond(now.as_millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        Clock { now, zone }
    }

    /// The moment that a text states, if it states one.
    pub(crate) fn stated(self, text: &str) -> Option<Wall> {
        let found = self.retry_after(text).or_else(|| {
            let bar = BAR_EPOCH.captures(text).and_then(|found| epoch(found.get(1)?.as_str()));
            bar.or_else(|| {
                let mut leads = LEAD.find_iter(text);
                let window = window_of(text);
                leads.find_map(|lead| self.expression(&text[lead.end()..], window))
            })
        });
        found.map(wall)
    }

    /// The moment that a field of a record states: an epoch, a number of seconds, or a text.
    pub(crate) fn field(self, value: &Value) -> Option<Wall> {
        let found = match value {
            Value::Number(number) => {
                let number = number.as_f64()?;
                // What is far too long for a wait is an instant.
                if number >= 1e8 { epoch(&format!("{number:.0}")) } else { self.after(number) }
            }
            Value::String(text) => self.expression(text.trim(), Window::Unknown).or_else(|| {
                let seconds = text.trim().parse::<f64>().ok()?;
                self.after(seconds)
            }),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        found.map(wall)
    }

    fn retry_after(self, text: &str) -> Option<Timestamp> {
        let found = RETRY_AFTER.captures(text)?;
        if let Some(date) = found.name("date") {
            return self.expression(&text[date.start()..], Window::Unknown);
        }
        let number: f64 = found.name("number")?.as_str().parse().ok()?;
        if number >= 1e8 {
            return epoch(found.name("number")?.as_str());
        }
        let unit = found.name("unit").map(|unit| unit.as_str().trim_start());
        let unit = if found.name("ms").is_some() { "ms" } else { unit.unwrap_or("s") };
        self.after(number * seconds_of(unit))
    }

    /// The moment that a text begins with.
    fn expression(self, text: &str, window: Window) -> Option<Timestamp> {
        if let Some(found) = EPOCH.captures(text) {
            return epoch(found.get(1)?.as_str());
        }
        for form in [&ISO, &MONTH_FIRST, &DATE_FIRST] {
            if let Some(found) = form.captures(text) {
                return self.dated(&found);
            }
        }
        if let Some(found) = WEEKDAY.captures(text) {
            let weekday = weekday(found.name("weekday")?.as_str())?;
            return self.next(&found, |date| date.weekday() == weekday);
        }
        if let Some(found) = TOMORROW.captures(text) {
            let ahead = i64::from(found.name("day")?.as_str().eq_ignore_ascii_case("tomorrow"));
            return self.days_ahead(&found, ahead);
        }
        if let Some(found) = CLOCK_ONLY.captures(text) {
            return match found.name("tomorrow") {
                Some(_) => self.days_ahead(&found, 1),
                None => self.time_of_day(&found, window),
            };
        }
        self.span(text)
    }

    /// A date, perhaps without its year, perhaps without a time.
    fn dated(self, found: &Captures<'_>) -> Option<Timestamp> {
        let zone = self.zone_of(found)?;
        let number = |name: &str| found.name(name)?.as_str().parse::<i8>().ok();
        let month = match found.name("month") {
            Some(word) => {
                let at =
                    MONTHS.iter().position(|month| word.as_str().eq_ignore_ascii_case(month))?;
                i8::try_from(at + 1).ok()?
            }
            None => number("number")?,
        };
        let day = number("date")?;
        let time = if has_clock(found) { time_of(found)? } else { Time::midnight() };
        let at = |year: i16| {
            let date = Date::new(year, month, day).ok()?;
            instants(date.to_datetime(time), &zone).into_iter().next()
        };
        if let Some(year) = found.name("year") {
            return at(year.as_str().parse().ok()?);
        }
        let year = self.now.to_zoned(zone.clone()).year();
        let near = [year.saturating_sub(1), year, year.saturating_add(1)];
        let distance = |moment: &Timestamp| self.now.duration_since(*moment).abs();
        near.into_iter().filter_map(at).min_by_key(distance)
    }

    /// The occurrence of a time of day that a message means: the last one if that has just passed, else the next.
    fn time_of_day(self, found: &Captures<'_>, window: Window) -> Option<Timestamp> {
        let next = self.next(found, |_| true)?;
        let Some(last) = self.last(found) else { return Some(next) };
        let is_far = next.duration_since(self.now) > SESSION;
        let just_passed = self.now.duration_since(last) <= JUST_PASSED;
        // On the night when clocks go back, a time that has just passed comes again soon: that one is meant.
        let passed = is_far && (just_passed || matches!(window, Window::Session));
        Some(if passed { last } else { next })
    }

    /// The last occurrence of a time of day, now included.
    fn last(self, found: &Captures<'_>) -> Option<Timestamp> {
        let (zone, time) = (self.zone_of(found)?, time_of(found)?);
        let today = self.now.to_zoned(zone.clone()).date();
        let days = (-1..=1).filter_map(|ahead: i64| today.checked_add(ahead.days()).ok());
        let moments = days.flat_map(|date| instants(date.to_datetime(time), &zone));
        moments.filter(|moment| *moment <= self.now).max()
    }

    /// The next occurrence of a time of day on a day that `will_do` accepts.
    fn next(self, found: &Captures<'_>, will_do: impl Fn(Date) -> bool) -> Option<Timestamp> {
        let zone = self.zone_of(found)?;
        let time = if has_clock(found) { time_of(found)? } else { Time::midnight() };
        let today = self.now.to_zoned(zone.clone()).date();
        let days = (0..=8).filter_map(|ahead: i64| today.checked_add(ahead.days()).ok());
        let moments = days
            .filter(|date| will_do(*date))
            .flat_map(|date| instants(date.to_datetime(time), &zone));
        moments.into_iter().find(|moment| *moment > self.now)
    }

    fn days_ahead(self, found: &Captures<'_>, ahead: i64) -> Option<Timestamp> {
        let zone = self.zone_of(found)?;
        let time = if has_clock(found) { time_of(found)? } else { Time::midnight() };
        let date = self.now.to_zoned(zone.clone()).date().checked_add(ahead.days()).ok()?;
        instants(date.to_datetime(time), &zone).into_iter().next()
    }

    /// A stretch of time from now on: `3h 20m`, `2 days, 17 hours and 14 minutes`, `9.816s`.
    fn span(self, text: &str) -> Option<Timestamp> {
        let mut rest = text;
        let mut seconds = 0.0;
        let mut seen = false;
        while let Some(found) = SPAN.captures(rest) {
            let after = &rest[found.get(0)?.end()..];
            if after.starts_with(|c: char| c.is_alphabetic()) {
                // It was the beginning of another word.
                break;
            }
            let number: f64 = found.get(1)?.as_str().parse().ok()?;
            seconds += number * seconds_of(found.get(2)?.as_str());
            seen = true;
            rest = after.trim_start_matches([' ', ',']);
            rest = rest.strip_prefix("and ").unwrap_or(rest);
        }
        if seen { self.after(seconds) } else { None }
    }

    fn after(self, seconds: f64) -> Option<Timestamp> {
        if !(0.0..1e9).contains(&seconds) {
            return None;
        }
        let span = SignedDuration::try_from_secs_f64(seconds).ok()?;
        self.now.checked_add(span).ok()
    }

    /// The zone that is stated, or the local one. A zone that nobody knows makes no moment.
    fn zone_of(self, found: &Captures<'_>) -> Option<TimeZone> {
        match found.name("zone") {
            Some(name) => zone_named(name.as_str()),
            None => Some(self.zone.clone()),
        }
    }
}

/// The moments at which a clock of that zone shows a time: two where it is set back.
fn instants(civil: DateTime, zone: &TimeZone) -> Vec<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    let moments = match ambiguous.offset() {
        AmbiguousOffset::Fold { .. } => vec![ambiguous.earlier(), ambiguous.later()],
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => {
            vec![ambiguous.compatible()]
        }
    };
    moments.into_iter().flatten().collect()
}

fn has_clock(found: &Captures<'_>) -> bool {
    ["hour", "hour24", "named"].iter().any(|name| found.name(name).is_some())
}

fn time_of(found: &Captures<'_>) -> Option<Time> {
    let number = |name: &str| match found.name(name) {
        Some(digits) => digits.as_str().parse::<i8>().ok(),
        None => Some(0),
    };
    if let Some(named) = found.name("named") {
        let noon = named.as_str().eq_ignore_ascii_case("noon");
        return Some(if noon { Time::constant(12, 0, 0, 0) } else { Time::midnight() });
    }
    if let Some(half) = found.name("half") {
        let hour = number("hour")?;
        if !(1..=12).contains(&hour) {
            return None;
        }
        let afternoon = half.as_str().eq_ignore_ascii_case("p");
        let hour = hour % 12 + if afternoon { 12 } else { 0 };
        return Time::new(hour, number("minute")?, number("second")?, 0).ok();
    }
    Time::new(number("hour24")?, number("minute24")?, number("second24")?, 0).ok()
}

fn weekday(word: &str) -> Option<Weekday> {
    let at = DAYS.iter().position(|day| word.eq_ignore_ascii_case(day))?;
    Weekday::from_monday_one_offset(i8::try_from(at + 1).ok()?).ok()
}

fn seconds_of(unit: &str) -> f64 {
    let unit = unit.to_ascii_lowercase();
    match unit.as_bytes() {
        [b'm', b's', ..] | [b'm', b'i', b'l', ..] => 0.001,
        [b'w', ..] => 604_800.0,
        [b'd', ..] => 86_400.0,
        [b'h', ..] => 3600.0,
        [b'm', ..] => 60.0,
        _ => 1.0,
    }
}

/// A zone by its name in the database, its usual letters, or its distance from UTC.
fn zone_named(name: &str) -> Option<TimeZone> {
    // The database that is built in: nothing is read from a disk.
    static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    let upper = name.to_ascii_uppercase();
    let known = match upper.as_str() {
        "UTC" | "GMT" | "Z" => return Some(TimeZone::UTC),
        "PST" | "PDT" | "PT" | "PACIFIC" => "America/Los_Angeles",
        "MST" | "MDT" | "MT" => "America/Denver",
        "CST" | "CDT" | "CT" => "America/Chicago",
        "EST" | "EDT" | "ET" | "EASTERN" => "America/New_York",
        "CET" | "CEST" => "Europe/Berlin",
        "BST" => "Europe/London",
        "IST" => "Asia/Kolkata",
        "JST" => "Asia/Tokyo",
        _ => name,
    };
    let distance = upper.trim_start_matches("UTC").trim_start_matches("GMT");
    if let Some(offset) = distance.strip_prefix(['+', '-']) {
        let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
        let (hours, minutes) =
            digits.split_at(if digits.len() > 2 { digits.len() - 2 } else { digits.len() });
        let minutes = if minutes.is_empty() { 0 } else { minutes.parse::<i32>().ok()? };
        let seconds = hours.parse::<i32>().ok()? * 3600 + minutes * 60;
        let seconds = if distance.starts_with('-') { -seconds } else { seconds };
        return Some(jiff::tz::Offset::from_seconds(seconds).ok()?.to_time_zone());
    }
    DATABASE.get(known).ok()
}

/// Seconds since the epoch, or milliseconds where there are too many for seconds.
fn epoch(digits: &str) -> Option<Timestamp> {
    let number: i64 = digits.parse().ok()?;
    if number >= 100_000_000_000 {
        Timestamp::from_millisecond(number).ok()
    } else {
        Timestamp::from_second(number).ok()
    }
}

fn wall(moment: Timestamp) -> Wall {
    Wall::from_millis(moment.as_millisecond())
}

#[cfg(test)]
mod tests;
