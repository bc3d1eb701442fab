//! A compose file: its services as agents on this machine.
//!
//! What a container is made of (images, volumes, networks) has no equal: an agent is a process here.
//! What is kept is what supervision is about: commands, environments, orders, restarts, health, stops.

use std::collections::HashMap;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Node, Value};

use super::container::{self, Service};
use super::section::{Section, Table, no_equal};
use super::{named_alike, yaml};

const WITHOUT_EQUAL: [(&str, &str); 6] = [
    ("networks", "agents use the machine's own network"),
    ("volumes", "agents use the machine's own files"),
    ("secrets", "`env_pass` and `env_file` hand things over"),
    ("configs", "agents use the machine's own files"),
    ("include", "import the files that it names one by one"),
    ("models", "agents use what is installed"),
];

pub(super) fn translate(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let entries = merged(yaml::read(text, findings)?, findings);
    let mut file = Section::new("a compose file", entries);
    drop(file.take("version"));
    let mut out = Table::default();
    if let Some(name) = file.text("name", findings) {
        let mut project = Table::default();
        project.text(
            "name",
            name.span,
            named_alike(&name.value, name.span, &Table::default(), findings),
        );
        out.table("project", name.span, project);
    }
    let Some(services) = file.section("services", "`services`", findings) else {
        if !findings.has_errors() {
            findings
                .error(Span::START, "this file has no `services`")
                .help("a compose file is `services:` with a name and a `command` each");
        }
        return None;
    };
    no_equal(&mut file, &WITHOUT_EQUAL, findings);
    // What begins so is for people, or for anchors.
    drop(file.take_all(|key| key.starts_with("x-")));
    file.finish(findings);
    let mut made = Vec::new();
    for Entry { key, key_span, node } in services.into_entries() {
        let Value::Table(entries) = node.value else {
            let message =
                format!("the service {} must be a table, not {}", quoted(&key), node.value.sort());
            findings.warning(key_span, message).label("passed over");
            continue;
        };
        made.push(container::translate(&key, key_span, entries, text, findings));
    }
    if made.is_empty() {
        findings.error(Span::START, "this file has no service");
        return None;
    }
    order(&mut made, findings);
    out.table("agent", Span::START, written(made, findings));
    Some(out.entries)
}

/// Who waits for whom. One that others wait for until it is healthy says so by its probe.
fn order(made: &mut [Service], findings: &mut Findings) {
    let mut probed: Vec<(usize, Span)> = Vec::new();
    let known: HashMap<String, (usize, bool, bool)> = made
        .iter()
        .enumerate()
        .map(|(at, s)| (s.name.clone(), (at, s.runs, s.own.has("probe"))))
        .rev()
        .collect();
    for service in made.iter_mut() {
        let mut after = Vec::new();
        for (name, span, condition) in std::mem::take(&mut service.after) {
            let Some((at, runs, has_probe)) = known.get(&name) else {
                let message = format!("there is no service {} to wait for", quoted(&name));
                findings.warning(span, message).label("passed over");
                continue;
            };
            if !runs {
                let message = format!(
                    "`{}` cannot wait for `{name}`, which is not started here",
                    service.name
                );
                findings.warning(span, message).label("passed over");
                continue;
            }
            match condition.as_str() {
                "service_started" => {}
                "service_healthy" if *has_probe => probed.push((*at, span)),
                "service_healthy" => {
                    let message =
                        format!("`{name}` has no healthcheck: it is ready once it is started");
                    findings.warning(span, message);
                }
                other => {
                    let message = format!(
                        "the condition {} has no equal: it waits for the start",
                        quoted(other)
                    );
                    findings.warning(span, message);
                }
            }
            after.push((name, span));
        }
        if let Some((_, span)) = after.first() {
            let names = after.iter().map(|(name, _)| name.clone());
            service.own.texts("after", *span, names);
        }
    }
    for (at, span) in probed {
        let service = made.get_mut(at);
        if let Some(service) = service.filter(|service| !service.own.has("ready")) {
            service.own.text("ready", span, "probe");
        }
    }
}

/// Each service as often as it is asked for.
fn written(made: Vec<Service>, findings: &mut Findings) -> Table {
    let mut agents = Table::default();
    let mut several: HashMap<String, Vec<String>> = HashMap::new();
    for service in made {
        let mut names = Vec::new();
        for index in 1..=service.count {
            let wanted = if service.count > 1 {
                format!("{}-{index}", service.name)
            } else {
                service.name.clone()
            };
            let name = named_alike(&wanted, service.span, &agents, findings);
            agents.table(&name, service.span, Table::of(service.own.copied()));
            names.push(name);
        }
        several.entry(service.name).or_insert(names);
    }
    // Whoever waits for a service waits for all of it, by the names that it has here.
    for agent in &mut agents.entries {
        let Value::Table(own) = &mut agent.node.value else { continue };
        for entry in own.iter_mut().filter(|entry| entry.key == "after") {
            let Value::List(names) = &mut entry.node.value else { continue };
            let old = std::mem::take(names);
            for Node { span, value } in old {
                let found = value.as_text().and_then(|name| several.get(name));
                let texts = found.cloned().unwrap_or_default();
                names.extend(texts.into_iter().map(|text| Node { span, value: Value::Text(text) }));
            }
        }
    }
    agents
}

/// The tree with `<<` put in: what stands in a table itself counts before what is merged into it.
fn merged(entries: Vec<Entry>, findings: &mut Findings) -> Vec<Entry> {
    let mut own = Vec::new();
    let mut others = Vec::new();
    for Entry { key, key_span, node } in entries {
        let Node { span, value } = node;
        let value = match value {
            Value::Table(entries) => Value::Table(merged(entries, findings)),
            Value::List(items) => {
                Value::List(items.into_iter().map(|item| merged_item(item, findings)).collect())
            }
            plain @ (Value::Text(_)
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::HugeInteger
            | Value::Float(_)
            | Value::Date
            | Value::Null) => plain,
        };
        if key != "<<" {
            own.push(Entry { key, key_span, node: Node { span, value } });
            continue;
        }
        let tables =
            if let Value::List(tables) = value { tables } else { vec![Node { span, value }] };
        for table in tables {
            let Value::Table(entries) = table.value else {
                findings.warning(table.span, "only tables are merged by `<<`").label("passed over");
                continue;
            };
            others.extend(entries);
        }
    }
    for entry in others {
        if own.iter().all(|known| known.key != entry.key) {
            own.push(entry);
        }
    }
    own
}

fn merged_item(item: Node, findings: &mut Findings) -> Node {
    let Node { span, value } = item;
    let value = if let Value::Table(entries) = value {
        Value::Table(merged(entries, findings))
    } else {
        value
    };
    Node { span, value }
}
