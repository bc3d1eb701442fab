//! The YAML of the ecology: `supervisor:` with its restart policy, and `agents:`.
//!
//! The policy holds for every agent of the file. The document writes it twice with different names;
//! both are understood: `max_restarts_per_hour` of its config and `max_restarts` of its dataclass.

use defib_core::CrashReason;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::tree::{Entry, Node, Value};

use super::section::{Section, Table, Taken};
use super::{AGENT_KEYS, named};

pub(super) fn translate(entries: Vec<Entry>, findings: &mut Findings) -> Vec<Entry> {
    let mut file = Section::new("this file", entries);
    let mut out = Table::default();
    file.hand_over(&["project", "notify", "server", "history"], &mut out);
    let mut defaults = Table::default();
    defaults.text("preset", Span::START, "ecology");
    if let Some(mut supervisor) = file.section("supervisor", "`supervisor`", findings) {
        let enabled = supervisor.bool("enabled", findings);
        if let Some(total) = supervisor.count("max_total_restarts", findings) {
            let mut bounds = Table::default();
            bounds.count("max_total_restarts", total.span, total.value);
            out.table("supervisor", total.span, bounds);
        }
        let policy = supervisor.section("restart_policy", "`restart_policy`", findings);
        let inner = policy.and_then(|section| restart_policy(section, &mut defaults, findings));
        if let Some(off) = [enabled, inner].into_iter().flatten().find(|enabled| !enabled.value) {
            defaults.text("restart", off.span, "never");
        }
        supervisor.finish(findings);
    }
    out.table("defaults", Span::START, defaults);
    let mut agents = Table::default();
    for (span, name, mut section) in declared(&mut file, findings) {
        let name = match name {
            Some(name) => Some(name),
            None => named(&mut section, span, "`agents`", findings),
        };
        let Some(name) = name else { continue };
        agents.table(&name.value, name.span, agent(section, findings));
    }
    file.finish(findings);
    out.table("agent", Span::START, agents);
    out.entries
}

/// Lowers the policy's fields; gives its own `enabled`.
fn restart_policy(
    mut policy: Section,
    defaults: &mut Table,
    findings: &mut Findings,
) -> Option<Taken<bool>> {
    let enabled = policy.bool("enabled", findings);
    let hourly = policy.count("max_restarts_per_hour", findings);
    let plain = policy.count("max_restarts", findings);
    if let Some(max) = hourly.or(plain) {
        let mut limit = Table::default();
        limit.count("restarts", max.span, max.value);
        limit.text("within", max.span, "1h");
        defaults.limit(max.span, limit);
    }
    let mut backoff = Table::default();
    if let Some(base) = policy.seconds("initial_backoff_seconds", findings) {
        backoff.duration("base", base.span, base.value);
    }
    if let Some(cap) = policy.seconds("max_backoff_seconds", findings) {
        backoff.duration("cap", cap.span, cap.value);
    }
    if let Some(factor) = policy.number("backoff_multiplier", findings) {
        backoff.put("factor", factor.span, Value::Float(factor.value));
    }
    if let Some(first) = backoff.entries.first() {
        let span = first.key_span;
        defaults.table("backoff", span, backoff);
    }
    let mut on = Table::default();
    // The rule set restarts errors and timeouts and waits for resources, unless it is told otherwise.
    for (key, reason, usual, otherwise) in [
        ("restart_on_error", CrashReason::Runtime, true, "halt"),
        ("restart_on_timeout", CrashReason::Timeout, true, "halt"),
        ("restart_on_resource_exhaustion", CrashReason::Resource, false, "restart"),
    ] {
        if let Some(said) = policy.bool(key, findings).filter(|said| said.value != usual) {
            for class in reason.classes() {
                on.text(class.word(), said.span, otherwise);
            }
        }
    }
    if let Some(first) = on.entries.first() {
        let span = first.key_span;
        defaults.table("on", span, on);
    }
    policy.finish(findings);
    enabled
}

/// The agents: a mapping by name, or a list whose items say their names.
fn declared(
    file: &mut Section,
    findings: &mut Findings,
) -> Vec<(Span, Option<Taken<String>>, Section)> {
    let Some(Node { span, value }) = file.take("agents") else { return Vec::new() };
    let section = |node: Node| {
        if let Value::Table(entries) = node.value {
            return Section::new("an agent", entries);
        }
        // A command alone: the shortest way to write an agent.
        let (key, key_span) = ("command".to_owned(), node.span);
        Section::new("an agent", vec![Entry { key, key_span, node }])
    };
    match value {
        Value::Table(entries) => entries
            .into_iter()
            .map(|Entry { key, key_span, node }| {
                (key_span, Some(Taken { value: key, span: key_span }), section(node))
            })
            .collect(),
        Value::List(nodes) => {
            nodes.into_iter().map(|node| (node.span, None, section(node))).collect()
        }
        Value::Text(_)
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::HugeInteger
        | Value::Float(_)
        | Value::Date
        | Value::Null => {
            findings.error(span, format!("`agents` must be a mapping, not {}", value.sort()));
            Vec::new()
        }
    }
}

fn agent(mut section: Section, findings: &mut Findings) -> Table {
    let mut own = Table::default();
    if let Some(scrip) = section.number("scrip", findings) {
        let mut balance = Table::default();
        balance.put("scrip", scrip.span, Value::Float(scrip.value));
        let mut budget = Table::default();
        budget.table("balance", scrip.span, balance);
        own.table("budget", scrip.span, budget);
    }
    if let Some(timeout) = section.seconds("timeout_seconds", findings) {
        own.duration("max_runtime", timeout.span, timeout.value);
    }
    section.hand_over(&AGENT_KEYS, &mut own);
    section.finish(findings);
    own
}
