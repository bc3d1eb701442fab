//! Every form of a stated time, at known moments in known zones.

use super::*;

fn zone(name: &str) -> TimeZone {
    zone_named(name).unwrap()
}

fn at(now: &str, zone: &TimeZone, text: &str) -> Option<String> {
    let now: Timestamp = now.parse().unwrap();
    let clock = Clock::new(Wall::from_millis(now.as_millisecond()), zone);
    let moment = clock.stated(text)?;
    Some(Timestamp::from_millisecond(moment.as_millis()).unwrap().to_string())
}

#[test]
fn every_form_is_read() {
    let berlin = zone("Europe/Berlin");
    // A Wednesday, 14:00 in Berlin.
    let now = "2026-10-07T12:00:00Z";
    let table = [
        ("limit reached|1749924000", "2025-06-14T18:00:00Z"),
        ("limit reached | 1749924000000", "2025-06-14T18:00:00Z"),
        ("\"resetsAt\":1788625200", "2026-09-05T16:20:00Z"),
        ("resets_at: 1788625200", "2026-09-05T16:20:00Z"),
        ("resets 3:45pm", "2026-10-07T13:45:00Z"),
        ("resets 3:45 PM", "2026-10-07T13:45:00Z"),
        ("resets at 1pm", "2026-10-07T11:00:00Z"),
        ("resets 2pm", "2026-10-07T12:00:00Z"),
        ("resets 5 a.m.", "2026-10-08T03:00:00Z"),
        ("resets 12am", "2026-10-07T22:00:00Z"),
        ("resets 12pm (UTC)", "2026-10-07T12:00:00Z"),
        ("resets at 5:30pm (Europe/Berlin)", "2026-10-07T15:30:00Z"),
        ("Your limit will reset at 9am (America/Chicago).", "2026-10-07T14:00:00Z"),
        ("resets 11:30am (Asia/Colombo)", "2026-10-08T06:00:00Z"),
        ("resets 9am America/Argentina/Buenos_Aires", "2026-10-07T12:00:00Z"),
        ("resets 9am PT", "2026-10-07T16:00:00Z"),
        ("resets at 18:30", "2026-10-07T16:30:00Z"),
        ("resets at 18:30 UTC", "2026-10-07T18:30:00Z"),
        ("resets at 18:30 UTC+2", "2026-10-07T16:30:00Z"),
        ("resets at midnight", "2026-10-07T22:00:00Z"),
        ("resets at midnight UTC", "2026-10-08T00:00:00Z"),
        ("resets Mon 12:00am", "2026-10-11T22:00:00Z"),
        ("resets Monday at 9am", "2026-10-12T07:00:00Z"),
        ("resets Wed 3pm", "2026-10-07T13:00:00Z"),
        ("resets Wednesday, 1pm", "2026-10-14T11:00:00Z"),
        ("resets Thursday", "2026-10-07T22:00:00Z"),
        ("resets Oct 7 at 3pm", "2026-10-07T13:00:00Z"),
        ("resets Oct 7 at 1pm", "2026-10-07T11:00:00Z"),
        ("resets October 9, 3pm", "2026-10-09T13:00:00Z"),
        ("resets Sep 15 at 7pm", "2026-09-15T17:00:00Z"),
        ("resets Jan 12, 10:59am (America/New_York)", "2027-01-12T15:59:00Z"),
        ("try again at 12:16 PM.", "2026-10-08T10:16:00Z"),
        ("try again at Feb 3rd, 2026 3:14 PM.", "2026-02-03T14:14:00Z"),
        ("try again on 9 October 2026 at 15:00", "2026-10-09T13:00:00Z"),
        ("resets Oct 9", "2026-10-08T22:00:00Z"),
        ("try again tomorrow at 9am", "2026-10-08T07:00:00Z"),
        ("resets at 9am tomorrow", "2026-10-08T07:00:00Z"),
        ("try again in 3h 20m", "2026-10-07T15:20:00Z"),
        ("reset after 19h14m47s.", "2026-10-08T07:14:47Z"),
        ("try again in 2 days 17 hours 14 minutes.", "2026-10-10T05:14:00Z"),
        ("Try again in 2 days", "2026-10-09T12:00:00Z"),
        ("try again in 1 hour, 5 minutes and 3 seconds", "2026-10-07T13:05:03Z"),
        ("Please try again in 9.816s. Visit", "2026-10-07T12:00:09.816Z"),
        ("Please retry in 34.5s.", "2026-10-07T12:00:34.5Z"),
        ("try again in 250ms", "2026-10-07T12:00:00.25Z"),
        ("wait 20 minutes", "2026-10-07T12:20:00Z"),
        ("resets 2026-08-09 00:00 UTC)", "2026-08-09T00:00:00Z"),
        ("resets at 2026-10-09T08:00:00Z", "2026-10-09T08:00:00Z"),
        ("resets at 2026-10-09T08:00:00.123+02:00", "2026-10-09T06:00:00Z"),
        ("resets 2026-10-09 08:00", "2026-10-09T06:00:00Z"),
        ("reset_time: \"2026-10-09\"", "2026-10-08T22:00:00Z"),
        ("retry-after: 120", "2026-10-07T12:02:00Z"),
        ("{'retry-after': '120'}", "2026-10-07T12:02:00Z"),
        ("retry-after-ms: 1500", "2026-10-07T12:00:01.5Z"),
        ("Retry-After: Thu, 08 Oct 2026 07:28:00 GMT", "2026-10-08T07:28:00Z"),
        ("\"retryDelay\": \"34s\"", "2026-10-07T12:00:34Z"),
        ("retry after 30 seconds", "2026-10-07T12:00:30Z"),
        ("available again at 7pm", "2026-10-07T17:00:00Z"),
    ];
    for (text, expected) in table {
        assert_eq!(at(now, &berlin, text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn what_states_no_time_gives_none() {
    let texts = [
        "",
        "Try again later.",
        "Try again in a moment",
        "resets soon",
        "resets 99pm",
        "resets 13pm",
        "resets Feb 31 at 3pm",
        "resets 3pm (Nowhere/Land)",
        "at 3pm we had tea",
        "resets 2026-99-99 00:00 UTC",
        "try again in 99999999999999999999 days",
        "try again in 999999999 days",
    ];
    for text in texts {
        assert_eq!(at("2026-10-07T12:00:00Z", &TimeZone::UTC, text), None, "{text}");
    }
}

#[test]
fn days_on_which_the_clocks_change_are_counted_right() {
    let berlin = zone("Europe/Berlin");
    // The clocks go forward at 2:00 on 29 March 2026: there is no 2:30.
    let gap = at("2026-03-28T20:00:00Z", &berlin, "resets 2:30am");
    assert_eq!(gap.as_deref(), Some("2026-03-29T01:30:00Z"));
    let after = at("2026-03-28T20:00:00Z", &berlin, "resets 9am");
    assert_eq!(after.as_deref(), Some("2026-03-29T07:00:00Z"));
    // They go back at 3:00 on 25 October 2026: there are two 2:30.
    let first = at("2026-10-24T20:00:00Z", &berlin, "resets 2:30am");
    assert_eq!(first.as_deref(), Some("2026-10-25T00:30:00Z"));
    let second = at("2026-10-25T00:45:00Z", &berlin, "resets 2:30am");
    assert_eq!(second.as_deref(), Some("2026-10-25T01:30:00Z"));
}

#[test]
fn fields_are_epochs_seconds_or_texts() {
    let utc = TimeZone::UTC;
    let clock = Clock::new(Wall::from_millis(1_000_000), &utc);
    let table = [
        (serde_json::json!(1_788_625_200), Some(1_788_625_200_000)),
        (serde_json::json!(1_788_625_200_000_i64), Some(1_788_625_200_000)),
        (serde_json::json!("1788625200"), Some(1_788_625_200_000)),
        (serde_json::json!(60), Some(1_060_000)),
        (serde_json::json!("60"), Some(1_060_000)),
        (serde_json::json!("2026-09-05T16:20:00Z"), Some(1_788_625_200_000)),
        (serde_json::json!("34s"), Some(1_034_000)),
        (serde_json::json!(-5), None),
        (serde_json::json!(1e300), None),
        (serde_json::json!(null), None),
    ];
    for (value, expected) in table {
        assert_eq!(clock.field(&value).map(Wall::as_millis), expected, "{value}");
    }
}

#[test]
fn a_time_of_day_that_has_just_passed_is_over() {
    let utc = TimeZone::UTC;
    let table = [
        // A session limit lasts five hours at most.
        ("2026-10-07T05:36:00Z", "session limit, resets 5:30am", "2026-10-07T05:30:00Z"),
        ("2026-10-07T05:36:00Z", "5-hour limit reached, resets 10:36am", "2026-10-07T10:36:00Z"),
        ("2026-10-07T05:36:00Z", "5-hour limit reached, resets 10:37am", "2026-10-06T10:37:00Z"),
        ("2026-10-07T00:10:00Z", "session limit, resets 11:50pm", "2026-10-06T23:50:00Z"),
        ("2026-10-07T23:50:00Z", "session limit, resets 12:10am", "2026-10-08T00:10:00Z"),
        // With an unknown window, only the last hour has passed.
        ("2026-10-07T05:36:00Z", "limit reached, resets 5:30am", "2026-10-07T05:30:00Z"),
        ("2026-10-07T05:36:00Z", "limit reached, resets 4:36am", "2026-10-07T04:36:00Z"),
        ("2026-10-07T05:36:00Z", "limit reached, resets 4:35am", "2026-10-08T04:35:00Z"),
        ("2026-10-07T00:10:00Z", "limit reached, resets 11:50pm", "2026-10-06T23:50:00Z"),
        // A stated day is taken as it is.
        ("2026-10-07T05:36:00Z", "session limit, resets 5:30am tomorrow", "2026-10-08T05:30:00Z"),
    ];
    for (now, text, expected) in table {
        assert_eq!(at(now, &utc, text).as_deref(), Some(expected), "{now}: {text}");
    }
}
