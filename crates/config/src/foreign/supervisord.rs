//! A `supervisord.conf`: programs, groups of them, and what all have in common.
//!
//! A program that does not stay up for `startsecs` is tried again `startretries` times, each time a
//! second later; one that did stay up is started again for as long as it takes. That is a stable life
//! of `startsecs`, a limit that counts since the last one, and a linear backoff.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::Entry;

use super::ini::{self, Part};
use super::named_alike;
use super::phrase::Launch;
use super::program::{self, Place};
use super::section::{Section, Table, Taken, is_no, no_equal, unsupported};

const SUPERVISORDS: [(&str, &str); 14] = [
    ("logfile", "the daemon logs to its home"),
    ("logfile_maxbytes", "the daemon logs to its home"),
    ("logfile_backups", "the daemon logs to its home"),
    ("loglevel", "the daemon logs to its home"),
    ("pidfile", "`defib version --json` says the daemon's pid"),
    ("nodaemon", "`defib up` stays in front, `defib up --detach` does not"),
    ("silent", "`defib up --detach` is silent"),
    ("minfds", "`limits_os = { files = … }` bounds an agent"),
    ("minprocs", "`limits_os = { processes = … }` bounds an agent"),
    ("nocleanup", "logs are kept by their size"),
    ("childlogdir", "logs are kept in the daemon's home"),
    ("strip_ansi", "logs are kept as they were written"),
    ("user", "defib runs as whoever starts it; an agent may have a `user`"),
    ("identifier", "the project is called by its folder, or by `[project] name`"),
];

/// Sections that are about supervisord itself.
const OTHERS: [(&str, &str); 7] = [
    ("unix_http_server", "the daemon has a socket of its own in its home"),
    ("inet_http_server", "`[server] listen` says where defib listens"),
    ("supervisorctl", "`defib status` and the like need no settings"),
    ("rpcinterface:", "the API is at /api/v1"),
    ("eventlistener:", "`[notify.NAME]` and `defib events -f --json` tell of events"),
    ("fcgi-program:", "no socket is shared between agents"),
    ("include", "import the files that it names one by one"),
];

pub(super) fn translate(text: &str, folder: &Path, findings: &mut Findings) -> Vec<Entry> {
    let mut out = Table::default();
    let mut programs: Vec<Part> = Vec::new();
    let mut groups: Vec<Part> = Vec::new();
    for part in ini::read(text, findings) {
        if part.name == "supervisord" {
            supervisord(part, folder, &mut out, findings);
        } else if part.name.starts_with("program:") {
            programs.push(part);
        } else if part.name.starts_with("group:") {
            groups.push(part);
        } else {
            other(&part, findings);
        }
    }
    let groups: Vec<Wanted> =
        groups.into_iter().filter_map(|part| wanted(part, findings)).collect();
    let membership = Membership::of(&groups);
    programs.sort_by_cached_key(|part| (priority_of(part, &membership), part.span.start));
    let mut agents = Table::default();
    let mut made: Vec<(String, Span, Vec<String>)> = Vec::new();
    for part in programs {
        let name = part.name["program:".len()..].trim().to_owned();
        let group = membership.group_of(&name);
        let span = part.span;
        let group = group.map_or(name.as_str(), |group| group.name.as_str());
        let place = Place { folder, program: &name, group };
        let names = program::translate(part.entries, span, place, &mut agents, findings);
        made.push((name, span, names));
    }
    if agents.is_empty() {
        findings
            .error(Span::START, "this file declares no program")
            .help("a program is a section: `[program:web]` with `command = …`");
    }
    let groups = write_groups(&groups, &membership, &made, &agents, findings);
    out.table("agent", Span::START, agents);
    if !groups.is_empty() {
        out.table("group", Span::START, groups);
    }
    out.entries
}

/// What all programs have in common.
fn supervisord(part: Part, folder: &Path, out: &mut Table, findings: &mut Findings) {
    let mut section = Section::new("[supervisord]", part.entries);
    let mut own = Table::default();
    let place = Place { folder, program: "supervisord", group: "supervisord" };
    if let Some(Taken { value, span }) = section.text("environment", findings) {
        let mut env = Table::default();
        for (name, value) in program::pairs(&value, span, findings) {
            let value = place.phrase(&value, 0, span, &mut Launch::default(), findings);
            if !value.is_plain() {
                unsupported(
                    span,
                    &format!("a value from the environment for all programs (`{name}`)"),
                    "give it to each program instead",
                    findings,
                );
            }
            env.text(&name, span, value.filled());
        }
        own.table("env", span, env);
    }
    if let Some(Taken { value, span }) = section.text("umask", findings) {
        own.text("umask", span, value);
    }
    if let Some(Taken { value, span }) = section.text("directory", findings) {
        let cwd = place.phrase(&value, 0, span, &mut Launch::default(), findings);
        own.text("cwd", span, cwd.filled());
    }
    no_equal(&mut section, &SUPERVISORDS, findings);
    section.finish(findings);
    if !own.is_empty() {
        out.table("defaults", part.span, own);
    }
}

/// A section that is no program's.
fn other(part: &Part, findings: &mut Findings) {
    let known = OTHERS.iter().find(|(name, _)| match name.strip_suffix(':') {
        Some(_) => part.name.starts_with(name),
        None => part.name == *name,
    });
    let shown = quoted(&format!("[{}]", part.name));
    match known {
        Some((_, instead)) => {
            findings
                .warning(part.span, format!("{shown} has no equal: {instead}"))
                .label("passed over");
        }
        None => {
            findings
                .warning(part.span, format!("{shown} is not understood"))
                .label("passed over")
                .help("programs are `[program:NAME]`, groups are `[group:NAME]`");
        }
    }
}

/// A group as it is asked for.
struct Wanted {
    name: String,
    span: Span,
    members: Vec<String>,
    priority: Option<i64>,
}

fn wanted(part: Part, findings: &mut Findings) -> Option<Wanted> {
    let mut section = Section::new("a group", part.entries);
    let members = section.text("programs", findings);
    let priority = priority(&mut section, findings);
    section.finish(findings);
    let name = part.name["group:".len()..].trim().to_owned();
    let Some(members) = members else {
        let message = format!("the group {} names no `programs`", quoted(&name));
        findings.warning(part.span, message).label("passed over");
        return None;
    };
    let members = members.value.split(',').map(|name| name.trim().to_owned()).collect();
    Some(Wanted { name, span: part.span, members, priority })
}

/// When it starts among others; whatever is no number says nothing.
pub(super) fn priority(section: &mut Section, findings: &mut Findings) -> Option<i64> {
    let Taken { value, span } = section.text("priority", findings)?;
    let priority = value.trim().parse().ok();
    if priority.is_none() {
        is_no(span, "priority", "whole number", findings);
    }
    priority
}

/// The first group that names each program.
struct Membership<'g>(HashMap<&'g str, &'g Wanted>);

impl<'g> Membership<'g> {
    fn of(groups: &'g [Wanted]) -> Membership<'g> {
        let members = |group: &'g Wanted| group.members.iter().map(move |it| (it.as_str(), group));
        // The last of two in a map counts.
        Membership(groups.iter().rev().flat_map(members).collect())
    }

    fn group_of(&self, program: &str) -> Option<&'g Wanted> {
        self.0.get(program).copied()
    }
}

/// A program in a group goes by the group's priority first.
fn priority_of(part: &Part, membership: &Membership<'_>) -> (i64, i64) {
    let own = part.entries.iter().find(|entry| entry.key == "priority");
    let own = own.and_then(|entry| entry.node.value.as_text()?.trim().parse().ok()).unwrap_or(999);
    let name = part.name["program:".len()..].trim();
    let group = membership.group_of(name);
    (group.map_or(own, |group| group.priority.unwrap_or(999)), own)
}

/// Groups that were asked for, and those of programs that run several times.
fn write_groups<'m>(
    groups: &[Wanted],
    membership: &Membership<'_>,
    made: &'m [(String, Span, Vec<String>)],
    agents: &Table,
    findings: &mut Findings,
) -> Table {
    let mut written = Table::default();
    let named = |(name, _, names): &'m (String, Span, Vec<String>)| (name.as_str(), names);
    let by_name: HashMap<&str, &Vec<String>> = made.iter().rev().map(named).collect();
    for group in groups {
        let mut members = Vec::new();
        for member in &group.members {
            let Some(names) = by_name.get(member.as_str()) else {
                let message = format!("there is no program {}", quoted(member));
                findings.warning(group.span, message).label("passed over");
                continue;
            };
            members.extend(names.iter().cloned());
        }
        write_group(&group.name, group.span, members, agents, &mut written, findings);
    }
    for (name, span, names) in made {
        if names.len() > 1 && membership.group_of(name).is_none() {
            write_group(name, *span, names.clone(), agents, &mut written, findings);
        }
    }
    written
}

fn write_group(
    name: &str,
    span: Span,
    members: Vec<String>,
    agents: &Table,
    written: &mut Table,
    findings: &mut Findings,
) {
    if members.is_empty() {
        return;
    }
    // Agents and groups share their names.
    let name = if agents.has_name(name) { format!("{name}-group") } else { name.to_owned() };
    let name = named_alike(&name, span, written, findings);
    let mut own = Table::default();
    own.texts("members", span, members);
    own.text("budget", span, "unlimited");
    written.table(&name, span, own);
}

/// Seconds as supervisord has them.
pub(super) fn seconds(
    section: &mut Section,
    key: &'static str,
    findings: &mut Findings,
) -> Option<Taken<Duration>> {
    number(section, key, findings)
        .map(|Taken { value, span }| Taken { value: Duration::from_secs(value.into()), span })
}

/// A whole number as text.
pub(super) fn number(
    section: &mut Section,
    key: &'static str,
    findings: &mut Findings,
) -> Option<Taken<u32>> {
    let Taken { value, span } = section.text(key, findings)?;
    let Ok(value) = value.trim().parse() else {
        let message = format!("`{key}` is {}, which is no whole number", quoted(&value));
        findings.warning(span, message).label("passed over");
        return None;
    };
    Some(Taken { value, span })
}

/// Yes or no as text.
pub(super) fn flag(
    section: &mut Section,
    key: &'static str,
    findings: &mut Findings,
) -> Option<Taken<bool>> {
    let Taken { value, span } = section.text(key, findings)?;
    match value.trim().to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(Taken { value: true, span }),
        "false" | "no" | "off" | "0" => Some(Taken { value: false, span }),
        _ => {
            let message = format!("`{key}` is {}, which is neither true nor false", quoted(&value));
            findings.warning(span, message).label("passed over");
            None
        }
    }
}

/// A size with `KB`, `MB` or `GB`.
pub(super) fn size(text: &str) -> Option<String> {
    let text = text.trim().to_uppercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.trim().parse().ok().filter(|number| *number > 0)?;
    let unit = match &text[digits.len()..] {
        "" | "B" => "",
        "K" | "KB" => "K",
        "M" | "MB" => "M",
        "G" | "GB" => "G",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}
