//! `weave.toml`: a supervisor and its agents, each with a strategy of its own.
//!
//! The file is one group. What is restarted is decided by the strategy of the member that died, and
//! how often by that member's own budget; once that is used up, the group has failed as a whole. So
//! the group itself has no budget beside those of its members.

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::{listed, nearest, quoted};
use crate::tree::{Entry, Node, Value};

use super::section::{Section, Table, Taken};
use super::{AGENT_KEYS, named};

/// The strategies by their names there: what restarts, and what the group does for it.
const STRATEGIES: [(&str, Option<&str>, &str); 5] = [
    ("OneForOne", None, "one-for-one"),
    ("OneForAll", None, "one-for-all"),
    ("RestForOne", None, "rest-for-one"),
    ("Permanent", Some("never"), "one-for-one"),
    ("Transient", Some("on-failure"), "one-for-one"),
];

/// What holds for members that do not say otherwise.
struct Usual {
    strategy: Option<Taken<Meaning>>,
    max_restarts: Option<Taken<u32>>,
    within: Option<Taken<std::time::Duration>>,
}

pub(super) fn translate(entries: Vec<Entry>, findings: &mut Findings) -> Vec<Entry> {
    let mut file = Section::new("a weave.toml", entries);
    let mut out = Table::default();
    file.hand_over(&["project", "notify", "server", "history"], &mut out);
    let usual = match file.section("supervisor", "[supervisor]", findings) {
        Some(section) => usual(section, findings),
        None => Usual { strategy: None, max_restarts: None, within: None },
    };
    let mut agents = Table::default();
    for (span, mut section) in members(&mut file, findings) {
        let Some(name) = named(&mut section, span, "[[agent]]", findings) else { continue };
        let agent = agent(section, &usual, name.span, findings);
        agents.table(&name.value, name.span, agent);
    }
    file.finish(findings);
    if !agents.is_empty() {
        out.table("group", Span::START, group(&agents));
    }
    out.table("agent", Span::START, agents);
    out.entries
}

fn usual(mut section: Section, findings: &mut Findings) -> Usual {
    let strategy = section.text("default_strategy", findings);
    let strategy = strategy.and_then(|strategy| meaning(&strategy, findings));
    let max_restarts = section.count("max_restarts", findings);
    let window = section.seconds("restart_window_secs", findings);
    let within = section.seconds("within_secs", findings);
    section.finish(findings);
    Usual { strategy, max_restarts, within: window.or(within) }
}

/// The tables of `[[agent]]`, each with its place.
fn members(file: &mut Section, findings: &mut Findings) -> Vec<(Span, Section)> {
    let Some(Node { span, value }) = file.take("agent") else { return Vec::new() };
    let Value::List(items) = value else {
        findings
            .error(span, "`agent` must be a list of tables")
            .help("write each agent under a line `[[agent]]`, with its `name`");
        return Vec::new();
    };
    let table = |Node { span, value }: Node| {
        let Value::Table(entries) = value else {
            let message = format!("an item of `agent` must be a table, not {}", value.sort());
            findings.error(span, message).help("write each agent under a line `[[agent]]`");
            return None;
        };
        Some((span, Section::new("[[agent]]", entries)))
    };
    items.into_iter().filter_map(table).collect()
}

fn agent(mut section: Section, usual: &Usual, span: Span, findings: &mut Findings) -> Table {
    let mut own = Table::default();
    own.text("preset", span, "weft");
    let strategy = match section.text("strategy", findings) {
        Some(strategy) => meaning(&strategy, findings),
        None => usual.strategy,
    };
    if let Some(Taken { value: (mode, reach), span }) = strategy {
        if let Some(mode) = mode {
            own.text("restart", span, mode);
        }
        own.text("strategy", span, reach);
    }
    let max_restarts = section.count("max_restarts", findings).or(usual.max_restarts);
    let within = section.seconds("within_secs", findings).or(usual.within);
    if let Some(place) = max_restarts.map(|max| max.span).or(within.map(|within| within.span)) {
        let mut limit = Table::default();
        limit.count("restarts", place, max_restarts.map_or(5, |max| max.value));
        let within = within.map_or(std::time::Duration::from_secs(60), |within| within.value);
        limit.duration("within", place, within);
        limit.text("window", place, "tumbling");
        limit.text("then", place, "escalate");
        own.limit(place, limit);
    }
    section.hand_over(&AGENT_KEYS, &mut own);
    section.finish(findings);
    own
}

/// A mode, where it is one, and what the group restarts.
type Meaning = (Option<&'static str>, &'static str);

/// What a strategy's name stands for.
fn meaning(
    Taken { value: word, span }: &Taken<String>,
    findings: &mut Findings,
) -> Option<Taken<Meaning>> {
    let span = *span;
    let bare = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let known = STRATEGIES.iter().find(|(name, ..)| bare(name) == bare(word));
    let Some((name, mode, reach)) = known else {
        let names = || STRATEGIES.iter().map(|(name, ..)| *name);
        let diagnostic = findings.error(span, format!("{} is no strategy", quoted(word)));
        diagnostic.help(match nearest(word, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the strategies are {}", listed(names())),
        });
        return None;
    };
    if *name == "Permanent" {
        findings
            .warning(span, "`Permanent` means that it stays dead: it is never restarted")
            .label("elsewhere this word means the opposite")
            .help("in a defib.toml, say `restart = \"never\"`");
    }
    Some(Taken { value: (*mode, reach), span })
}

/// The file as a group: its members in the order they are written.
fn group(agents: &Table) -> Table {
    let names: Vec<&str> = agents.entries.iter().map(|entry| entry.key.as_str()).collect();
    // Agents and groups share their names.
    let name = if names.contains(&"supervisor") { "supervisor-group" } else { "supervisor" };
    let members = agents
        .entries
        .iter()
        .map(|entry| Node { span: entry.key_span, value: Value::Text(entry.key.clone()) });
    let mut group = Table::default();
    group.text("strategy", Span::START, "one-for-one");
    group.list("members", Span::START, members.collect());
    group.text("budget", Span::START, "unlimited");
    let mut groups = Table::default();
    groups.table(name, Span::START, group);
    groups
}
