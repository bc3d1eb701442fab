//! A `Procfile`: lines of a name, a colon and a line for a shell.
//!
//! What runs such files gives each process a port by its place in the file, and the whole
//! environment of its caller. Here a process gets what its line mentions.

use std::collections::HashSet;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Value};

use super::named_alike;
use super::phrase::{variables, write_passed};
use super::section::Table;

/// The port of the first process, and how far the next one's is from it.
const FIRST_PORT: usize = 5000;
const NEXT_PORT: usize = 100;

/// What an agent has anyway, or a shell by itself.
const GIVEN: [&str; 11] =
    ["PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "TZ", "TMPDIR", "PWD", "IFS", "PORT"];

pub(super) fn translate(text: &str, findings: &mut Findings) -> Vec<Entry> {
    let mut agents = Table::default();
    let mut start = 0;
    let mut first = None;
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        let body = line.trim_start_matches('\u{feff}').trim_start();
        let at = at + line.len() - body.len();
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        process(body, at, &mut agents, findings);
        first = first.or(Some(at));
    }
    let place = Span { start: first.unwrap_or(0), end: first.unwrap_or(0) };
    if agents.is_empty() && !findings.has_errors() {
        findings
            .error(place, "this Procfile declares no process")
            .help("a line is a name, a colon and a command: `web: python app.py`");
    }
    let mut out = Table::default();
    out.table("agent", place, agents);
    out.entries
}

fn process(body: &str, at: usize, agents: &mut Table, findings: &mut Findings) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let parts = body.split_once(':').map(|(name, line)| (name.trim_end(), line));
    let Some((name, rest)) = parts.filter(|(name, _)| !name.is_empty() && name.chars().all(fits))
    else {
        let span = Span { start: at, end: at + body.len() };
        findings
            .warning(span, format!("{} is no line of a Procfile", quoted(body)))
            .label("passed over")
            .help("a line is a name of letters and digits, a colon and a command");
        return;
    };
    let span = Span { start: at, end: at + name.len() };
    let line = rest.trim();
    if line.is_empty() {
        findings.warning(span, format!("`{name}` has no command")).label("passed over");
        return;
    }
    let index = agents.entries.len();
    let line_at = at + body.len() - rest.trim_start().len();
    let name = named_alike(name, span, agents, findings);
    let place = Span { start: line_at, end: line_at + line.len() };
    let mut own = Table::default();
    own.text("command", place, line);
    own.put("shell", place, Value::Bool(true));
    if name == "release" {
        findings
            .warning(span, "`release` runs at each release elsewhere, and when it is told to here")
            .help("`defib start release` runs it");
        own.text("trigger", span, "manual");
        own.text("restart", span, "never");
    } else {
        own.text("restart", span, "always");
    }
    let mentioned = variables(line);
    if let Some((offset, _)) = mentioned.iter().find(|(_, name)| name == "PORT") {
        let port = FIRST_PORT + NEXT_PORT * index;
        let place = Span { start: line_at + offset, end: line_at + offset + 1 };
        findings
            .warning(place, format!("`PORT` is given by the runner elsewhere; here it is {port}"))
            .help("set another in `env` if something else listens there");
        let mut env = Table::default();
        env.text("PORT", place, port.to_string());
        own.table("env", place, env);
    }
    let words = line.split([' ', ';', '&']).filter_map(|word| word.split_once('='));
    let assigned: HashSet<&str> = words.map(|(name, _)| name).collect();
    let mut wanted = Vec::new();
    for (offset, name) in mentioned {
        if GIVEN.contains(&name.as_str()) || assigned.contains(name.as_str()) {
            continue;
        }
        let place = Span { start: line_at + offset, end: line_at + offset + 1 };
        findings
            .warning(place, format!("`{name}` is taken from the caller of `up`, and from no .env"))
            .help("`env_file = \".env\"` reads that file as well");
        wanted.push(name);
    }
    write_passed(&[], &wanted, place, &mut own);
    agents.table(&name, span, own);
}
