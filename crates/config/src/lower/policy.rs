//! An agent's policy: the rule set first, then what the file says over it.
//!
//! A partial `backoff` merges over the rule set's; `limits` replace its list. What a key leaves
//! out is never guessed: it is the rule set's.

use std::time::Duration;

use defib_core::backoff::{Backoff, Growth};
use defib_core::class::Class;
use defib_core::limit::{Limit, Measure, Span as Stretch, Then};
use defib_core::policy::{Heartbeat, Order, Policy, Reset, Treatment};
use defib_core::preset::Preset;
use defib_core::span::Shown;

use crate::diagnostic::Findings;
use crate::fields::{Datum, Entry, Layers};
use crate::foreign::Watchdog;
use crate::words::{CLASSES, GROWTHS, MODES, ORDERS, THENS, WINDOWS, Window, meaning};

/// The policy of an agent that starts from `preset`.
pub(super) fn policy(
    preset: Preset,
    watchdog: Watchdog,
    own: Layers<'_>,
    findings: &mut Findings,
) -> Policy {
    let mut policy = preset.policy();
    if preset == Preset::Aivex {
        watchdog.apply(&mut policy);
    }
    if let Some(mode) = own.word("restart", &MODES) {
        policy.mode = mode;
    }
    // Beneath a preset that is none, nothing is known that the file could be at odds with.
    let known = !own.is_broken("preset");
    policy.backoff = backoff(policy.backoff, own.merged("backoff"), known, findings);
    if let Some(items) = own.list("limits") {
        policy.limits.clear();
        for item in items {
            if let Datum::Table(fields) = &item.datum {
                policy.limits.extend(limit(fields.alone(), findings));
            }
        }
        if let (true, Growth::None, Some(item)) =
            (items.is_empty(), policy.backoff.growth, own.item("limits"))
        {
            findings
                .warning(
                    item.span,
                    "without limits and without backoff a failing agent loops as fast as it can",
                )
                .label("nothing bounds the restarts")
                .help("give it a limit, or a backoff");
        }
    }
    if let Some(stable_after) = own.duration("stable_after") {
        policy.stable_after = stable_after;
        policy.reset = match policy.reset {
            // Whoever sets the key wants it to have its meaning, also over a rule set without it.
            Reset::Success | Reset::Stable | Reset::Window => Reset::Stable,
            Reset::Beat => Reset::Beat,
        };
    }
    policy.exit_codes.extend(
        own.merged("exit_codes")
            .entries()
            .filter_map(|entry| Some((entry.key.parse().ok()?, word_of(entry, &CLASSES)?))),
    );
    policy.on.extend(
        own.merged("on")
            .entries()
            .filter_map(|entry| Some((meaning(&entry.key, &CLASSES)?, word_of(entry, &ORDERS)?))),
    );
    if preset == Preset::Ecology {
        restart_by_own_backoff(&mut policy);
    }
    if known {
        policy.heartbeat = heartbeat(policy.heartbeat, own, findings);
    }
    policy.silent_for = own.merged("hang").duration("silent_for").or(policy.silent_for);
    policy.max_runtime = own.duration("max_runtime").or(policy.max_runtime);
    policy.stop_timeout = own.duration("stop_timeout").unwrap_or(policy.stop_timeout);
    policy.revive_on_boot = own.bool("revive_on_boot").unwrap_or(policy.revive_on_boot);
    policy
}

/// Its document has one backoff: what it does not wait for it restarts by that, as it does any crash.
fn restart_by_own_backoff(policy: &mut Policy) {
    for class in Class::ALL {
        let is_restarted = policy.on.get(class) == Some(&Order::Restart);
        if is_restarted && policy.treatment(*class).order == Order::Wait {
            policy.treat(*class, Treatment::FAILURE);
        }
    }
}

fn word_of<T: Copy>(entry: &Entry, table: &[(&'static str, T)]) -> Option<T> {
    meaning(entry.item.datum.as_text()?, table)
}

fn backoff(usual: Backoff, own: Layers<'_>, known: bool, findings: &mut Findings) -> Backoff {
    let backoff = Backoff {
        growth: own.word("kind", &GROWTHS).unwrap_or(usual.growth),
        base: own.duration("base").unwrap_or(usual.base),
        factor: own.number("factor").unwrap_or(usual.factor),
        cap: own.duration("cap").unwrap_or(usual.cap),
        jitter: own.number("jitter").unwrap_or(usual.jitter),
        first_exponent: own.count("first_exponent").unwrap_or(usual.first_exponent),
    };
    let whole = known && !["kind", "base", "cap"].into_iter().any(|key| own.is_broken(key));
    let delays = whole && backoff.growth != Growth::None;
    if delays && backoff.cap < backoff.base {
        let message = format!(
            "`cap` is {}, which is less than the first delay of {}",
            Shown(backoff.cap),
            Shown(backoff.base)
        );
        match (own.item("base"), own.item("cap")) {
            (Some(base), Some(cap)) => {
                findings
                    .error(cap.span, message)
                    .label("every delay would be cut to this")
                    .related(base.span, "the first delay")
                    .help("raise `cap`, or lower `base`");
            }
            (Some(item), None) => {
                findings
                    .error(item.span, message)
                    .label("more than the preset's `cap`")
                    .help("set `cap` as well");
            }
            (None, Some(item)) => {
                findings
                    .error(item.span, message)
                    .label("less than the preset's `base`")
                    .help("set `base` as well");
            }
            // No preset is at odds with itself.
            (None, None) => {}
        }
    }
    if let (true, true, Some(item)) = (delays, backoff.base.is_zero(), own.item("kind")) {
        findings
            .warning(item.span, "this backoff starts from a delay of zero, so it never waits")
            .label("zero times anything is zero")
            .help("set `base` as well");
    }
    backoff
}

/// A bound on deaths or restarts; nothing where its keys do not go together.
fn limit(own: Layers<'_>, findings: &mut Findings) -> Option<Limit> {
    if own.entries().any(|entry| entry.item.datum == Datum::Broken) {
        return None;
    }
    let window = own.word("window", &WINDOWS);
    let consecutive = own.bool("consecutive").unwrap_or(false);
    let within = own.duration("within");
    let then = own.word("then", &THENS).unwrap_or(Then::CrashOut);
    if let (Some(first), Some(second), true) =
        (own.key_span("consecutive"), own.key_span("within"), consecutive)
    {
        findings
            .error(first, "`consecutive` and `within` exclude each other")
            .label("counts since the last success")
            .related(second, "counts in a window")
            .help("keep one of them, or write two limits");
        return None;
    }
    if let (Some(Window::Tumbling), false, Some(item)) =
        (window, own.has("within"), own.item("window"))
    {
        findings
            .error(item.span, "a tumbling window needs `within`")
            .label("how long is it?")
            .help("for example: `within = \"60s\"`");
        return None;
    }
    let span = match (within, window) {
        _ if consecutive => Stretch::Consecutive,
        (Some(within), Some(Window::Tumbling)) => Stretch::Tumbling(within),
        (Some(within), Some(Window::Rolling) | None) => Stretch::Rolling(within),
        (None, _) => Stretch::Lifetime,
    };
    let Some(deaths) = own.key_span("deaths") else {
        let max = own.count("restarts")?;
        return Some(Limit { measure: Measure::Restarts, max, span, then });
    };
    if !matches!(span, Stretch::Rolling(_) | Stretch::Consecutive) {
        findings
            .error(deaths, "`deaths` are counted in a rolling window, or since the last success")
            .label("this limit has neither")
            .help("give it `within = \"60s\"` or `consecutive = true` alone, or count `restarts` instead");
        return None;
    }
    Some(Limit { measure: Measure::Deaths, max: own.count("deaths")?, span, then })
}

fn heartbeat(
    usual: Option<Heartbeat>,
    own: Layers<'_>,
    findings: &mut Findings,
) -> Option<Heartbeat> {
    if !own.has("heartbeat") || own.is_broken("heartbeat") {
        return usual;
    }
    let (place, own) = (own.item("heartbeat"), own.merged("heartbeat"));
    let grace = own.duration("grace");
    let ttl = own.duration("ttl").or(usual.map(|usual| usual.ttl));
    if let (None, false, Some(item)) = (ttl, own.has("ttl"), place) {
        findings
            .error(item.span, "`heartbeat` has no `ttl`")
            .label("how long may it be silent?")
            .help("for example: `ttl = \"120s\"`");
    }
    if let (Some(ttl), Some(item)) = (ttl, own.item("ttl"))
        && ttl < Duration::from_secs(1)
    {
        findings
            .warning(item.span, format!("a beat is asked for every {}", Shown(ttl)))
            .label("a busy machine will miss that")
            .help("a second or more leaves room for a slow moment");
    }
    Some(Heartbeat {
        ttl: ttl?,
        grace: grace.or(usual.map(|usual| usual.grace)).unwrap_or(Duration::ZERO),
    })
}
