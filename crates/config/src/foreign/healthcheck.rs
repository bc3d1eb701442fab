//! A healthcheck of a compose file as a probe.

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::tree::{Node, Value};

use super::container::{settled, span_of};
use super::section::{Section, Table, is_no, no_equal};

/// A healthcheck is a probe. Docker only shows what it finds; here it is a death.
pub(super) fn health(section: &mut Section, file: &str, own: &mut Table, findings: &mut Findings) {
    let Some(entry) = section.entry("healthcheck") else { return };
    let Value::Table(entries) = entry.node.value else {
        is_no(entry.node.span, "healthcheck", "table", findings);
        return;
    };
    let mut check = Section::new("a healthcheck", entries);
    let off = check.bool("disable", findings).is_some_and(|off| off.value);
    let test = check.take("test");
    let mut probe = Table::default();
    if let Some(node) = test {
        let words: Vec<String> = if let Value::List(items) = &node.value {
            items.iter().map(|item| settled(item, file, findings)).collect()
        } else {
            let line = settled(&node, file, findings);
            vec!["CMD-SHELL".to_owned(), line]
        };
        match words.split_first() {
            Some((first, rest)) if first == "CMD" => probe.texts("exec", node.span, rest.to_vec()),
            Some((first, rest)) if first == "CMD-SHELL" => {
                let line = rest.join(" ");
                probe.texts("exec", node.span, ["sh".to_owned(), "-c".to_owned(), line]);
            }
            Some((first, _)) if first == "NONE" => {}
            Some(_) | None => {
                findings
                    .warning(node.span, "`test` begins with neither CMD nor CMD-SHELL")
                    .label("passed over");
            }
        }
    }
    let mut start = None;
    let interval = "`probe.every` holds from the first probe on";
    no_equal(&mut check, &[("start_interval", interval)], findings);
    for (key, ours) in [("interval", "every"), ("timeout", "timeout"), ("start_period", "")] {
        let Some(Node { span, value }) = check.take(key) else { continue };
        match value.as_text().and_then(span_of) {
            Some(length) if ours.is_empty() => start = start.or(Some((span, length))),
            Some(length) => probe.duration(ours, span, length),
            None => is_no(span, key, "duration", findings),
        }
    }
    if let Some(retries) = check.count("retries", findings) {
        probe.count("failures", retries.span, retries.value.max(1));
    }
    check.finish(findings);
    if off || !probe.has("exec") {
        return;
    }
    usual_health(&mut probe, entry.key_span);
    if let Some((span, length)) = start.filter(|(_, length)| !length.is_zero()) {
        let message = format!(
            "`start_period` has no equal: give `probe.failures` room for {}",
            super::duration_text(length)
        );
        findings.warning(span, message);
    }
    let message = "a failed `healthcheck` ends the run here, and is only shown there";
    findings.warning(entry.key_span, message);
    own.table("probe", entry.key_span, probe);
}

/// What Docker has where nothing is said.
fn usual_health(probe: &mut Table, span: Span) {
    for (key, usual) in [("every", "30s"), ("timeout", "30s")] {
        if !probe.has(key) {
            probe.text(key, span, usual);
        }
    }
    if !probe.has("failures") {
        probe.count("failures", span, 3);
    }
}
