//! A `[program:NAME]` of a `supervisord.conf`: as many agents as it has processes.

use std::path::Path;
use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Value};

use super::named_alike;
use super::phrase::{Launch, Phrase, identifier};
use super::section::{Section, Table, Taken, no_equal, unsupported};
use super::supervisord::{flag, number, priority, seconds, size};

/// More processes than anybody means are a slip of the pen.
const MOST_PROCESSES: u32 = 1000;

/// What a program that says nothing has.
const START_SECONDS: Duration = Duration::from_secs(1);
const START_RETRIES: u32 = 3;
const STOP_SECONDS: Duration = Duration::from_secs(10);

const WITHOUT_EQUAL: [(&str, &str); 13] = [
    ("stderr_logfile", "both outputs are kept together, in order: `defib logs NAME`"),
    ("stderr_logfile_maxbytes", "both outputs are kept together: `log = { max_size = … }`"),
    ("stderr_logfile_backups", "both outputs are kept together: `log = { keep = … }`"),
    ("stdout_capture_maxbytes", "output is never taken for messages"),
    ("stderr_capture_maxbytes", "output is never taken for messages"),
    ("stdout_events_enabled", "`defib events` tells of decisions, `defib logs -f` of output"),
    ("stderr_events_enabled", "`defib events` tells of decisions, `defib logs -f` of output"),
    ("stdout_syslog", "output is kept in the daemon's home"),
    ("stderr_syslog", "output is kept in the daemon's home"),
    ("serverurl", "an agent finds its daemon by DEFIB_SOCKET"),
    ("killasgroup", "a run is always killed with all its descendants"),
    ("stopasgroup", "the stop signal goes to the program itself; what it leaves behind is killed"),
    ("redirect_stderr", "both outputs are kept together, in order"),
];

/// What a program's values may mention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'p> {
    /// Where the file lies.
    pub(super) folder: &'p Path,
    pub(super) program: &'p str,
    pub(super) group: &'p str,
}

impl Place<'_> {
    /// A value with `%(…)s` in it. What comes from the environment is a hole.
    pub(super) fn phrase(
        &self,
        text: &str,
        process: u32,
        span: Span,
        launch: &mut Launch,
        findings: &mut Findings,
    ) -> Phrase {
        let mut phrase = Phrase::default();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            phrase.push(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                phrase.push("%");
                rest = after;
                continue;
            }
            let Some((name, form, after)) = placeholder(rest) else {
                let message = "a `%` here begins no `%(NAME)s`; `%%` stands for the sign itself";
                findings.warning(span, message).label("kept as it is");
                phrase.push("%");
                continue;
            };
            rest = after;
            if let Some(variable) = name.strip_prefix("ENV_") {
                launch.pass(variable, true);
                phrase.push_hole(format!("${{{variable}}}"), None);
            } else {
                match name {
                    "here" => phrase.push(&self.folder.to_string_lossy()),
                    "program_name" => phrase.push(self.program),
                    "group_name" => phrase.push(self.group),
                    "process_num" => phrase.push(&padded(process, form)),
                    "host_node_name" => phrase.push_hole("$(uname -n)", None),
                    _ => {
                        let message = format!("`%({name}){form}` is not understood");
                        findings.warning(span, message).label("kept as it is");
                        phrase.push(&format!("%({name}){form}"));
                    }
                }
            }
        }
        phrase.push(rest);
        phrase
    }
}

/// What stands between `%` and the end of a placeholder: name, form, and the rest.
fn placeholder(rest: &str) -> Option<(&str, &str, &str)> {
    let (name, after) = rest.strip_prefix('(')?.split_once(')')?;
    let end = after.find(|c: char| !c.is_ascii_digit())?;
    let letter = after[end..].chars().next().filter(|c| matches!(c, 's' | 'd' | 'x'))?;
    let end = end + letter.len_utf8();
    Some((name, &after[..end], &after[end..]))
}

/// A number by a form such as `02d`.
fn padded(number: u32, form: &str) -> String {
    let width = form.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count = width.parse::<usize>().unwrap_or(0).min(20);
    let number = if form.ends_with('x') { format!("{number:x}") } else { number.to_string() };
    let fill = if width.starts_with('0') { "0" } else { " " };
    format!("{}{number}", fill.repeat(count.saturating_sub(number.len())))
}

/// Gives the names of its agents.
pub(super) fn translate(
    entries: Vec<Entry>,
    span: Span,
    place: Place<'_>,
    agents: &mut Table,
    findings: &mut Findings,
) -> Vec<String> {
    let mut section = Section::new("a program", entries);
    let command = section.text("command", findings);
    let name = section.text("process_name", findings);
    let count = number(&mut section, "numprocs", findings);
    let first = number(&mut section, "numprocs_start", findings).map_or(0, |first| first.value);
    let environment = section.text("environment", findings);
    let directory = section.text("directory", findings);
    // The order of the file is the order of the starts.
    let _ = priority(&mut section, findings);
    let Some(command) = command else {
        let message = format!("the program {} has no `command`", quoted(place.program));
        findings.error(span, message).help("for example: `command = python3 app.py`");
        return Vec::new();
    };
    if let Some(count) = count.filter(|count| count.value > MOST_PROCESSES) {
        let message = format!("`numprocs` is {}; here it is {MOST_PROCESSES}", count.value);
        findings.warning(count.span, message);
    }
    let count = count.map_or(1, |count| count.value.min(MOST_PROCESSES));
    let mut common = Table::default();
    policy(&mut section, span, &mut common, findings);
    ending(&mut section, &mut common, findings);
    if let Some(user) = section.text("user", findings) {
        common.text("user", user.span, user.value);
    }
    if let Some(umask) = section.text("umask", findings) {
        common.text("umask", umask.span, umask.value);
    }
    log(&mut section, &mut common, findings);
    drop_usual_flags(&mut section);
    no_equal(&mut section, &WITHOUT_EQUAL, findings);
    section.finish(findings);

    let mut names = Vec::new();
    for process in (0..count).map(|index| first.saturating_add(index)) {
        let mut launch = Launch::default();
        let name = match &name {
            Some(Taken { value, span }) => {
                place.phrase(value, process, *span, &mut launch, findings).filled()
            }
            None if count > 1 => format!("{}_{process:02}", place.program),
            None => place.program.to_owned(),
        };
        let line = place.phrase(&command.value, process, command.span, &mut launch, findings);
        let Some(words) = line.split() else {
            findings
                .error(command.span, "`command` cannot be split into words")
                .help("close the quote");
            return names;
        };
        launch.words = words;
        if let Some(Taken { value, span }) = &environment {
            for (name, value) in pairs(value, *span, findings) {
                let value = place.phrase(&value, process, *span, &mut launch, findings);
                launch.env.push((name, *span, value));
            }
        }
        if let Some(Taken { value, span }) = &directory {
            let folder = place.phrase(value, process, *span, &mut launch, findings);
            launch.cwd = Some((*span, folder));
        }
        let mut own = Table::default();
        launch.write(command.span, &mut own);
        own.entries.extend(common.copied());
        let name = named_alike(&name, span, agents, findings);
        agents.table(&name, span, own);
        names.push(name);
    }
    names
}

/// When it is started, and started again.
fn policy(section: &mut Section, place: Span, own: &mut Table, findings: &mut Findings) {
    if let Some(Taken { value: false, span }) = flag(section, "autostart", findings) {
        own.text("trigger", span, "manual");
    }
    let again = section.text("autorestart", findings);
    let (word, span) = again.map_or(("unexpected".to_owned(), place), |again| {
        (again.value.trim().to_lowercase(), again.span)
    });
    let codes = section.text("exitcodes", findings);
    let restart = match word.as_str() {
        "unexpected" => "on-failure",
        "true" | "yes" | "on" | "1" => "always",
        "false" | "no" | "off" | "0" => "never",
        _ => {
            let message = format!("`autorestart` is {}, which it cannot be", quoted(&word));
            findings.warning(span, message).label("taken for `unexpected`");
            "on-failure"
        }
    };
    own.text("restart", span, restart);
    if let Some(codes) = codes {
        exit_codes(&codes, own, findings);
    }
    starts(section, place, own, findings);
}

/// How often a start is tried, and what counts as one.
fn starts(section: &mut Section, place: Span, own: &mut Table, findings: &mut Findings) {
    let stays = seconds(section, "startsecs", findings);
    let retries = number(section, "startretries", findings);
    let (stays, stays_at) = stays.map_or((START_SECONDS, place), |s| (s.value, s.span));
    let (retries, retries_at) = retries.map_or((START_RETRIES, place), |r| (r.value, r.span));
    own.duration("stable_after", stays_at, stays);
    let mut limit = Table::default();
    limit.count("restarts", retries_at, retries);
    limit.put("consecutive", retries_at, Value::Bool(true));
    own.limit(retries_at, limit);
    let mut backoff = Table::default();
    backoff.text("kind", retries_at, "linear");
    backoff.text("base", retries_at, "1s");
    backoff.duration("cap", retries_at, Duration::from_secs(retries.max(1).into()));
    backoff.put("jitter", retries_at, Value::Float(0.0));
    own.table("backoff", retries_at, backoff);
}

/// The codes that are expected are those of an agent that is done.
fn exit_codes(codes: &Taken<String>, own: &mut Table, findings: &mut Findings) {
    let mut table = Table::default();
    let mut zero = false;
    for code in codes.value.split(',').map(str::trim).filter(|code| !code.is_empty()) {
        match code.parse::<u8>() {
            Ok(0) => zero = true,
            Ok(code) => table.text(&code.to_string(), codes.span, "done"),
            Err(_) => {
                let message = format!("{} is no exit code", quoted(code));
                findings.warning(codes.span, message).label("passed over");
            }
        }
    }
    if !zero {
        table.text("0", codes.span, "error");
    }
    if !table.is_empty() {
        own.table("exit_codes", codes.span, table);
    }
}

/// How it is stopped.
fn ending(section: &mut Section, own: &mut Table, findings: &mut Findings) {
    if let Some(Taken { value, span }) = section.text("stopsignal", findings) {
        let name = value.trim().to_uppercase();
        let name = match name.strip_prefix("SIG").unwrap_or(&name) {
            "1" => "HUP",
            "2" => "INT",
            "3" => "QUIT",
            "9" => "KILL",
            "10" => "USR1",
            "12" => "USR2",
            "15" => "TERM",
            other => other,
        };
        own.text("stop_signal", span, name);
    }
    if let Some(wait) = seconds(section, "stopwaitsecs", findings) {
        own.duration("stop_timeout", wait.span, wait.value);
    } else {
        own.duration("stop_timeout", Span::START, STOP_SECONDS);
    }
}

/// How much of its output is kept.
fn log(section: &mut Section, own: &mut Table, findings: &mut Findings) {
    let mut log = Table::default();
    let file = section.text("stdout_logfile", findings);
    if let Some(Taken { value, span }) = section.text("stdout_logfile_maxbytes", findings) {
        match size(&value) {
            Some(size) => log.text("max_size", span, size),
            None => unsupported(span, "a log without a bound", "logs turn over by size", findings),
        }
    }
    if let Some(keep) = number(section, "stdout_logfile_backups", findings) {
        log.count("keep", keep.span, keep.value);
    }
    if let Some(Taken { value, span }) = file
        && !value.eq_ignore_ascii_case("auto")
    {
        findings
            .warning(
                span,
                format!(
                    "`stdout_logfile` has no equal: `defib logs` shows what was written to {}",
                    quoted(&value)
                ),
            )
            .label("passed over");
    }
    if let Some(place) = log.entries.first().map(|entry| entry.key_span) {
        own.table("log", place, log);
    }
}

/// Flags that say what is so anyway need no comment.
fn drop_usual_flags(section: &mut Section) {
    for (key, usual) in [
        ("redirect_stderr", true),
        ("killasgroup", true),
        ("stopasgroup", false),
        ("stdout_events_enabled", false),
        ("stderr_events_enabled", false),
        ("stdout_syslog", false),
        ("stderr_syslog", false),
    ] {
        if let Some(entry) = section.entry(key) {
            let text = entry.node.value.as_text().unwrap_or_default().trim().to_lowercase();
            let is_set = ["true", "yes", "on", "1"].contains(&text.as_str());
            if is_set != usual {
                section.give_back(entry);
            }
        }
    }
}

/// `KEY="value",OTHER=value`, over as many lines as it takes.
pub(super) fn pairs(text: &str, span: Span, findings: &mut Findings) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            let message = format!("{} is no `KEY=\"value\"`", quoted(rest));
            findings.warning(span, message).label("passed over");
            break;
        };
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, next) = if let Some(quote) = quote {
            let Some((value, next)) = after[1..].split_once(quote) else {
                findings.warning(span, "a quote is not closed").label("passed over");
                break;
            };
            (value.to_owned(), next)
        } else {
            let end = after.find([',', '\n']).unwrap_or(after.len());
            (after[..end].trim().to_owned(), &after[end..])
        };
        let key = key.trim();
        if key.is_empty() || identifier(key) != key {
            let message = format!("{} is no name of a variable", quoted(key));
            findings.warning(span, message).label("passed over");
        } else {
            pairs.push((key.to_owned(), value));
        }
        rest = next.trim_start_matches([',', ' ', '\t', '\n']);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_quoted_in_either_way_or_not_at_all() {
        let text = "A=\"1,2\",B='x=\"y\"', C=plain ,\nD=/a/b:%(ENV_PATH)s,";
        let told = pairs(text, Span::START, &mut Findings::default());
        let wanted = [("A", "1,2"), ("B", "x=\"y\""), ("C", "plain"), ("D", "/a/b:%(ENV_PATH)s")];
        assert_eq!(told, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
        for bad in ["novalue", "A=\"open", "="] {
            let _ = pairs(bad, Span::START, &mut Findings::default());
        }
    }

    #[test]
    fn numbers_are_padded_as_asked() {
        for (form, told) in [("d", "7"), ("02d", "07"), ("3d", "  7"), ("s", "7"), ("x", "7")] {
            assert_eq!(padded(7, form), told, "{form}");
        }
    }
}
