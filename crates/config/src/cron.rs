//! Cron expressions: whether one is well formed, and whether its day ever comes.
//!
//! Only the calendar is asked, never a clock: an expression that fires at all fires within the
//! forty years that are searched, for the calendar's pattern of weekdays and leap years repeats
//! every twenty-eight, and forty outlast the one leap day that a century leaves out.

use croner::Weekday;
use croner::parser::{CronParser, Seconds, Year};

use crate::suggest::quoted;

/// Why an expression will not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadCron {
    /// It has another number of fields than five or six.
    Fields(usize),
    /// A field is wrong.
    Malformed(String),
    /// There is no such day.
    Never(String),
}

impl BadCron {
    /// What is wrong, as the end of a sentence.
    pub(crate) fn message(&self) -> String {
        match self {
            BadCron::Fields(1) => "has 1 cron field instead of five".to_owned(),
            BadCron::Fields(count) => format!("has {count} cron fields instead of five"),
            BadCron::Malformed(why) => format!("is not a cron expression: {why}"),
            BadCron::Never(expression) => format!("never fires: no day is {}", quoted(expression)),
        }
    }

    /// What to do.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            BadCron::Fields(_) | BadCron::Malformed(_) => {
                "minute, hour, day, month and weekday, such as `cron:*/5 * * * *`; a sixth field before them is the second"
            }
            BadCron::Never(_) => "look at the day and the month together",
        }
    }
}

/// No sensible expression is longer, and a longer one is not worth the parser's time.
const LONGEST: usize = 1024;

/// Checks an expression.
pub(crate) fn check(expression: &str) -> Result<(), BadCron> {
    let fields = expression.split_whitespace().count();
    if !(5..=6).contains(&fields) {
        return Err(BadCron::Fields(fields));
    }
    if expression.len() > LONGEST {
        return Err(BadCron::Malformed("it is too long".to_owned()));
    }
    // A nickname such as `@daily` among the fields would make the parser forget the others.
    if expression.contains('@') {
        return Err(BadCron::Malformed("`@` names cannot be used".to_owned()));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron =
        parser.parse(expression).map_err(|bad| BadCron::Malformed(plain(&bad.to_string())))?;
    let pattern = &cron.pattern;
    let fires = calendar().any(|(year, month, day, weekday)| {
        pattern.month_match(month).unwrap_or(false)
            && pattern.day_match(year, month, day, weekday).unwrap_or(false)
    });
    if fires { Ok(()) } else { Err(BadCron::Never(expression.trim().to_owned())) }
}

/// The parser's reason, without its preamble and its full stop.
fn plain(reason: &str) -> String {
    let reason = reason.split_once(": ").map_or(reason, |(_, rest)| rest);
    let mut chars = reason.trim_end_matches('.').chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => "it is malformed".to_owned(),
    }
}

/// Every day of forty years, from 2001 on, which began on a Monday.
fn calendar() -> impl Iterator<Item = (i32, u32, u32, Weekday)> {
    let days = (2001..2041).flat_map(|year| {
        (1..=12).flat_map(move |month| (1..=length(year, month)).map(move |day| (year, month, day)))
    });
    days.zip(WEEK.into_iter().cycle())
        .map(|((year, month, day), weekday)| (year, month, day, weekday))
}

const WEEK: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

const fn length(year: i32, month: u32) -> u32 {
    match month {
        // No century year is among those searched.
        2 if year % 4 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_fire_are_fine() {
        for good in [
            "*/5 * * * *",
            "0 3 * * MON-FRI",
            "0 0 29 2 *",
            "30 0 0 1 1 *",
            "0 0 L * *",
            "0 0 * * 5#5",
            "0 0 31 2 1",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_day_that_never_comes_is_an_error() {
        for never in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 31 2 *"] {
            assert_eq!(check(never), Err(BadCron::Never(never.to_owned())));
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        assert_eq!(check(""), Err(BadCron::Fields(0)));
        assert_eq!(check("* * * *"), Err(BadCron::Fields(4)));
        assert_eq!(check("0 0 0 1 1 * 2030"), Err(BadCron::Fields(7)));
        for bad in ["61 * * * *", "a * * * *", "* * * * @daily", "* * * * 9", "é * * * *"] {
            assert!(matches!(check(bad), Err(BadCron::Malformed(_))), "{bad}");
        }
        let long = format!("{} * * * *", "1,".repeat(5000));
        assert!(matches!(check(&long), Err(BadCron::Malformed(_))));
    }

    #[test]
    fn the_calendar_starts_on_a_monday_and_knows_leap_days() {
        let days: Vec<_> = calendar().collect();
        assert_eq!(days.len(), 40 * 365 + 10);
        // 2024-02-29 was a Thursday.
        assert!(days.contains(&(2024, 2, 29, Weekday::Thursday)));
    }
}
