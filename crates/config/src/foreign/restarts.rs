//! When a service of a compose file is started again, and how often it runs.

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Node, Value};

use super::container::{settled, span_of};
use super::section::{Section, Table, is_no, no_equal};

/// More replicas than anybody means are a slip of the pen.
const MOST_REPLICAS: i64 = 1000;

/// When it is started again. Gives how often it runs.
pub(super) fn deploy(
    section: &mut Section,
    place: Span,
    file: &str,
    own: &mut Table,
    findings: &mut Findings,
) -> i64 {
    let scale = section.take("scale");
    let mut count = scale.map(|node| replicas("scale", &node, file, findings));
    let restart = section.take("restart");
    let mut again = restart.map_or(("no".to_owned(), None, place), |node| {
        let text = settled(&node, file, findings);
        let Some((word, most)) = text.split_once(':') else { return (text, None, node.span) };
        let most = most.trim().parse().ok();
        if most.is_none() {
            let message = format!("`restart` is {}, without a number", quoted(&text));
            findings.warning(node.span, message).label("taken for as often as it takes");
        }
        (word.to_owned(), most, node.span)
    });
    if let Some(mut deploy) = section.section("deploy", "`deploy`", findings) {
        if let Some(node) = deploy.take("replicas") {
            count = Some(replicas("replicas", &node, file, findings));
        }
        if let Some(policy) = deploy.section("restart_policy", "`restart_policy`", findings) {
            again = restart_policy(policy, place, own, findings);
        }
        if let Some(mut resources) = deploy.section("resources", "`resources`", findings) {
            if let Some(mut limits) = resources.section("limits", "`limits`", findings) {
                for (theirs, ours) in [("memory", "mem_limit"), ("pids", "pids_limit")] {
                    if let Some(entry) = limits.entry(theirs) {
                        section.give_back(Entry { key: ours.to_owned(), ..entry });
                    }
                }
                let instead = "`limits_os` bounds memory, processes, files and processor time";
                no_equal(&mut limits, &[("cpus", instead)], findings);
                limits.finish(findings);
            }
            no_equal(
                &mut resources,
                &[("reservations", "nothing is set aside for an agent")],
                findings,
            );
            resources.finish(findings);
        }
        let swarm = "there is one machine";
        no_equal(
            &mut deploy,
            &[
                ("mode", swarm),
                ("placement", swarm),
                ("update_config", swarm),
                ("rollback_config", swarm),
                ("labels", swarm),
                ("endpoint_mode", swarm),
            ],
            findings,
        );
        deploy.finish(findings);
    }
    policy(again, own, findings);
    count.unwrap_or(1)
}

/// How often it runs; none at all is possible, and said.
fn replicas(key: &str, node: &Node, file: &str, findings: &mut Findings) -> i64 {
    let text = settled(node, file, findings);
    let told = match text.trim().parse::<i64>() {
        Ok(0) => {
            findings.warning(node.span, format!("`{key}` is 0: it is disabled"));
            return 0;
        }
        Ok(count @ 1..=MOST_REPLICAS) => return count,
        Ok(count) if count > MOST_REPLICAS => (quoted(&text), MOST_REPLICAS),
        Ok(_) | Err(_) => (quoted(&text), 1),
    };
    let (said, count) = told;
    findings.warning(node.span, format!("`{key}` is {said}; here it is {count}"));
    count
}

type Again = (String, Option<u32>, Span);

fn restart_policy(
    mut policy: Section,
    place: Span,
    own: &mut Table,
    findings: &mut Findings,
) -> Again {
    let condition = policy.text("condition", findings);
    let most = policy.count("max_attempts", findings).map(|most| most.value);
    for (key, ours) in [("delay", "base"), ("window", "stable_after")] {
        let Some(text) = policy.text(key, findings) else { continue };
        let Some(span) = span_of(&text.value) else {
            is_no(text.span, key, "duration", findings);
            continue;
        };
        if ours == "stable_after" {
            own.duration("stable_after", text.span, span);
        } else {
            let mut backoff = Table::default();
            backoff.text("kind", text.span, "fixed");
            backoff.duration("base", text.span, span);
            backoff.duration("cap", text.span, span);
            backoff.put("jitter", text.span, Value::Float(0.0));
            own.table("backoff", text.span, backoff);
        }
    }
    policy.finish(findings);
    let span = condition.as_ref().map_or(place, |condition| condition.span);
    let word = match condition.map(|condition| condition.value).as_deref() {
        Some("none") => "no",
        Some("on-failure") => "on-failure",
        Some("any") | None => "always",
        Some(other) => {
            let message = format!("`condition` is {}, which it cannot be", quoted(other));
            findings.warning(span, message).label("taken for `any`");
            "always"
        }
    };
    (word.to_owned(), most, span)
}

fn policy((word, most, span): Again, own: &mut Table, findings: &mut Findings) {
    let restart = match word.as_str() {
        "no" | "false" => "never",
        "always" | "unless-stopped" | "true" => "always",
        "on-failure" => "on-failure",
        other => {
            let message = format!("`restart` is {}, which it cannot be", quoted(other));
            findings.warning(span, message).label("taken for `no`");
            "never"
        }
    };
    own.text("restart", span, restart);
    if restart == "never" {
        own.entries.retain(|entry| entry.key != "backoff" && entry.key != "stable_after");
        return;
    }
    match most {
        Some(most) => {
            let mut limit = Table::default();
            limit.count("restarts", span, most);
            limit.put("consecutive", span, Value::Bool(true));
            own.limit(span, limit);
        }
        // Docker never gives up.
        None => own.list("limits", span, Vec::new()),
    }
    if !own.has("stable_after") {
        own.text("stable_after", span, "10s");
    }
    if !own.has("backoff") {
        let mut backoff = Table::default();
        backoff.text("base", span, "100ms");
        backoff.put("factor", span, Value::Float(2.0));
        backoff.text("cap", span, "60s");
        own.table("backoff", span, backoff);
    }
}
