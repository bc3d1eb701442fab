//! A request to spawn one agent, as JSON.
//!
//! Without `autoRestart` an agent is spawned and no more. With it, a death that counts is counted in
//! a rolling window, and a clean end is the agent's own word that it has finished, unless
//! `respawnOnZero` says that it wants to be reborn.

use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::tree::{Entry, Node, Value};

use super::section::{Section, Table};
use super::{AGENT_KEYS, named};

/// Keys of ours whose names differ there.
const RENAMED: [(&str, &str); 2] = [("workingDirectory", "cwd"), ("environment", "env")];

pub(super) fn translate(entries: Vec<Entry>, findings: &mut Findings) -> Option<Vec<Entry>> {
    let mut request = Section::new("a spawn request", entries);
    if !request.has("name") {
        let program = request_program(&mut request);
        if let Some((span, program)) = program {
            let node = Node { span, value: Value::Text(program) };
            request.give("name", node);
        }
    }
    let name = named(&mut request, Span::START, "a spawn request", findings)?;
    let mut own = Table::default();
    own.text("preset", name.span, "celistra");
    let auto = request.bool("autoRestart", findings);
    let reborn = request.bool("respawnOnZero", findings);
    match (auto.filter(|auto| auto.value), reborn.filter(|reborn| reborn.value)) {
        (None, _) => own.text("restart", auto.map_or(name.span, |auto| auto.span), "never"),
        (Some(_), Some(reborn)) => own.text("restart", reborn.span, "always"),
        (Some(auto), None) => own.text("restart", auto.span, "on-failure"),
    }
    let deaths = request.count("maxDeaths", findings);
    let within = request.seconds("windowSeconds", findings);
    if let Some(place) = deaths.map(|deaths| deaths.span).or(within.map(|within| within.span)) {
        let mut limit = Table::default();
        limit.count("deaths", place, deaths.map_or(5, |deaths| deaths.value));
        let within = within.map_or(Duration::from_secs(60), |within| within.value);
        limit.duration("within", place, within);
        own.limit(place, limit);
    }
    command(&mut request, &mut own, findings);
    for (theirs, ours) in RENAMED {
        if let Some(Node { span, value }) = request.take(theirs) {
            own.put(ours, span, value);
        }
    }
    request.hand_over(&AGENT_KEYS, &mut own);
    request.finish(findings);
    let mut project = Table::default();
    project.text("name", name.span, name.value.clone());
    let mut agents = Table::default();
    agents.table(&name.value, name.span, own);
    let mut out = Table::default();
    out.table("project", name.span, project);
    out.table("agent", name.span, agents);
    Some(out.entries)
}

/// What a request without a name is called: by its program.
fn request_program(request: &mut Section) -> Option<(Span, String)> {
    let node = request.take("command")?;
    let first = if let Value::List(words) = &node.value {
        words.first().and_then(|word| word.value.as_text())
    } else {
        node.value.as_text().and_then(|line| line.split_whitespace().next())
    };
    let (span, first) = (node.span, first.map(str::to_owned));
    request.give("command", node);
    let program = first?;
    Some((span, program.rsplit('/').next().unwrap_or(&program).to_owned()))
}

/// A program with `args` beside it is one command.
fn command(request: &mut Section, own: &mut Table, findings: &mut Findings) {
    let Some(args) = request.take("args") else { return };
    let Value::List(mut words) = args.value else {
        findings.error(args.span, format!("`args` must be a list, not {}", args.value.sort()));
        return;
    };
    let Some(Node { span, value }) = request.take("command") else { return };
    if let Value::List(mut first) = value {
        first.append(&mut words);
        words = first;
    } else {
        words.insert(0, Node { span, value });
    }
    own.list("command", span, words);
}
