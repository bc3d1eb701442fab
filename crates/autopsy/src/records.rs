//! The records that agents write for machines: lines of JSON, read from the last one back.
//!
//! Each kind has a record that ends a run; what it says comes before any other evidence. A stream
//! that has begun and has no such end was cut short, whatever the exit code. Nothing is ever taken
//! from records that repeat what a tool printed or what a model said.

use defib_core::Class;
use serde_json::Value;

use crate::examine::{Examiner, Found};
use crate::kind::Kind;
use crate::rules::Sense;

/// No record is longer than so many lines.
pub(crate) const RECORD_LINES: usize = 400;

/// What the records of a run say about its end.
#[derive(Debug)]
pub(crate) enum Told {
    /// They say what it was.
    Decided(Found),
    /// They say that it failed, in words that no rule knows.
    Failed(String),
    /// They go on, and then there is nothing more.
    Open(String),
    /// The last of them is written by agents that go on.
    Alive,
    /// Nothing.
    Nothing,
}

/// The records of an output, the last one first.
pub(crate) fn backwards(output: &[u8]) -> impl Iterator<Item = Value> {
    let mut lines = output.rsplit(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let values = match line {
                // The end of one that is spread over lines.
                b"}" => {
                    let mut parts = vec![line];
                    for line in lines.by_ref().take(RECORD_LINES) {
                        parts.push(line);
                        if line == b"{" {
                            break;
                        }
                    }
                    parts.reverse();
                    parse(&parts.join(&b'\n'))
                }
                _ => parse(line),
            };
            if !values.is_empty() {
                return Some(values);
            }
        }
    })
    .flatten()
}

/// The objects that a line is made of: one, or those of a list, the last one first.
pub(crate) fn parse(line: &[u8]) -> Vec<Value> {
    let line = uncontrolled(line.trim_ascii());
    let looks_whole = matches!((line.first(), line.last()), (Some(b'{'), Some(b'}')))
        || (line.starts_with(b"[{") && line.ends_with(b"]"));
    if !looks_whole {
        return Vec::new();
    }
    match serde_json::from_slice(line) {
        Ok(object @ Value::Object(_)) => vec![object],
        Ok(Value::Array(mut list)) => {
            list.retain(Value::is_object);
            list.reverse();
            list
        }
        // Half a record says nothing.
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// A line without the control sequences that a program on a terminal writes around its record.
fn uncontrolled(line: &[u8]) -> &[u8] {
    let is_control =
        line.first() == Some(&0x1b) || line.last().is_some_and(u8::is_ascii_alphabetic);
    let ends =
        || Some((line.iter().position(|b| *b == b'{')?, line.iter().rposition(|b| *b == b'}')?));
    let is_escape = |part: &[u8]| part.is_empty() || part.first() == Some(&0x1b);
    match is_control.then(ends).flatten() {
        Some((from, to)) if from < to && is_escape(&line[..from]) && is_escape(&line[to + 1..]) => {
            &line[from..=to]
        }
        Some(_) | None => line,
    }
}

/// The object that a line is.
pub(crate) fn object(line: &[u8]) -> Option<Value> {
    parse(line).into_iter().next()
}

/// The session that a line names, for kinds whose sessions can be taken up again.
///
/// The id ends up in a command, so only what looks like one is taken for one.
pub fn session_in(kind: Kind, line: &[u8]) -> Option<String> {
    let key = match kind {
        Kind::Claude | Kind::Gemini => "session_id",
        Kind::Codex => "thread_id",
        Kind::Opencode => "sessionID",
        Kind::Goose | Kind::Aider | Kind::Python | Kind::Node | Kind::Generic => return None,
    };
    let line = line.trim_ascii();
    let id = if line.starts_with(b"{") {
        let mentioned = line.windows(key.len()).any(|part| part == key.as_bytes());
        let record = if mentioned { object(line)? } else { return None };
        record.get(key)?.as_str()?.to_owned()
    } else {
        // Codex also says it to people.
        let text = (kind == Kind::Codex).then(|| crate::lines::plain(line))?;
        text.strip_prefix("session id: ")?.to_owned()
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let sound = (1..=128).contains(&id.len()) && id.chars().all(fits) && !id.starts_with('-');
    sound.then_some(id)
}

/// What the records of an output say about the end of the run.
pub(crate) fn read(output: &[u8], examiner: &Examiner<'_>) -> Told {
    match examiner.kind {
        Kind::Claude => claude(backwards(output), examiner),
        Kind::Codex => codex(backwards(output), examiner),
        Kind::Gemini => gemini(backwards(output), examiner),
        Kind::Opencode => opencode(backwards(output), examiner),
        // They write none that ends a run; errors among their lines are read with the lines.
        Kind::Goose | Kind::Aider | Kind::Python | Kind::Node | Kind::Generic => Told::Nothing,
    }
}

pub(crate) fn text_of<'v>(record: &'v Value, pointer: &str) -> Option<&'v str> {
    record.pointer(pointer).and_then(Value::as_str)
}

pub(crate) fn type_of(record: &Value) -> &str {
    text_of(record, "/type").unwrap_or("")
}

fn claude(records: impl Iterator<Item = Value>, examiner: &Examiner<'_>) -> Told {
    // A failure that the records before it may explain.
    let mut failure: Option<Told> = None;
    for record in records {
        let subtype = text_of(&record, "/subtype").unwrap_or("");
        match (type_of(&record), subtype) {
            ("result", _) if failure.is_none() => {
                if record.get("is_error") != Some(&Value::Bool(true)) && subtype == "success" {
                    return Told::Decided(Found::new(Class::Done, "result: success"));
                }
                let told = claude_failure(&record, subtype, examiner);
                let limited = |found: &Found| matches!(found.class, Class::Quota | Class::Throttle);
                if matches!(&told, Told::Decided(found) if !limited(found)) {
                    return told;
                }
                // The limit's own record, if there is one, has the exact time.
                failure = Some(told);
            }
            ("rate_limit_event", _) => {
                let info = record.get("rate_limit_info").unwrap_or(&record);
                if text_of(info, "/status") != Some("rejected") {
                    continue;
                }
                let which = text_of(info, "/rateLimitType").unwrap_or("limit");
                let stated = info.get("resetsAt").and_then(|at| examiner.clock.field(at));
                let evidence = match failure {
                    Some(Told::Decided(found)) => found.evidence,
                    Some(_) | None => format!("rate_limit_event: {which} rejected"),
                };
                return Told::Decided(Found { class: Class::Quota, evidence, resets_at: stated });
            }
            ("system", "api_retry") if failure.is_none() => {
                let found = examiner.fault(&record, "api_retry");
                return found
                    .map_or(Told::Open("the records end in a retry".into()), Told::Decided);
            }
            ("assistant", _) => {
                let synthetic = text_of(&record, "/message/model") == Some("<synthetic>");
                let error = text_of(&record, "/error");
                if failure.is_none() && (synthetic || error.is_some()) {
                    let text = text_of(&record, "/message/content/0/text").unwrap_or("");
                    let word = error.and_then(|word| examiner.word(word, "error"));
                    failure = examiner.said(text).or(word).map(Told::Decided);
                    if failure.is_some() {
                        continue;
                    }
                }
                if !synthetic {
                    return failure.unwrap_or_else(|| open("assistant"));
                }
            }
            ("user", _) | ("system", "init") => {
                return failure.unwrap_or_else(|| open(type_of(&record)));
            }
            _ => {}
        }
    }
    failure.unwrap_or(Told::Nothing)
}

fn open(last: &str) -> Told {
    Told::Open(format!("no result: the last record is {last}"))
}

fn claude_failure(record: &Value, subtype: &str, examiner: &Examiner<'_>) -> Told {
    let words = [
        ("subtype", subtype),
        ("terminal_reason", text_of(record, "/terminal_reason").unwrap_or("")),
    ];
    // That it was an answer of the API's is no more than the message says better.
    let mut telling = words.iter().filter(|(_, word)| *word != "api_error");
    let by_word = telling.find_map(|(field, word)| examiner.word(word, field));
    let texts = ["/result", "/errors/0", "/error/message", "/error"];
    let text = texts.iter().filter_map(|at| text_of(record, at)).find(|text| !text.is_empty());
    let by_text = || text.and_then(|text| examiner.said(text));
    let by_status = || examiner.status(record.get("api_error_status")?, "api_error_status");
    match by_word.or_else(by_text).or_else(by_status) {
        Some(found) => Told::Decided(found),
        None => Told::Failed(format!("result: {}", text.unwrap_or(subtype))),
    }
}

fn codex(records: impl Iterator<Item = Value>, examiner: &Examiner<'_>) -> Told {
    let mut alive = false;
    for record in records {
        match type_of(&record) {
            // It ends a turn and not the run, unlike the result of others: Codex exits with 1 for
            // everything that goes wrong after it too. Only both together are an end that is well.
            "turn.completed" if examiner.zero => {
                return Told::Decided(Found::new(Class::Done, "turn.completed"));
            }
            "turn.completed" => return Told::Nothing,
            kind @ ("turn.failed" | "error") => {
                let texts = ["/error/message", "/message", "/error"];
                let text = texts.iter().find_map(|at| text_of(&record, at)).unwrap_or("");
                if examiner.sense(text) == Some(Sense::Alive) {
                    alive = true;
                    continue;
                }
                return match examiner.fault(&record, kind) {
                    Some(found) => Told::Decided(found),
                    None => Told::Failed(format!("{kind}: {text}")),
                };
            }
            "" => {}
            _ if alive => return Told::Alive,
            last => return Told::Open(format!("no end of the turn: the last record is {last}")),
        }
    }
    if alive { Told::Alive } else { Told::Nothing }
}

fn gemini(records: impl Iterator<Item = Value>, examiner: &Examiner<'_>) -> Told {
    let mut success = false;
    for record in records {
        match type_of(&record) {
            "result" if !success => match text_of(&record, "/status") {
                // A run that was stopped for its own good says so before it.
                Some("success") => success = true,
                Some(_) | None => return gemini_failure(&record, "result", examiner),
            },
            "error" => {
                if let Some(found) = examiner.fault(&record, "error") {
                    return Told::Decided(found);
                }
                if !success && text_of(&record, "/severity") != Some("warning") {
                    return gemini_failure(&record, "error", examiner);
                }
            }
            // The whole answer in one object.
            "" if record.get("error").is_some_and(|error| !error.is_null()) => {
                return gemini_failure(&record, "error", examiner);
            }
            "" if record.get("response").is_some() => success = true,
            "result" | "" => {}
            _ if success => break,
            last => return Told::Open(format!("no result: the last record is {last}")),
        }
    }
    if success { Told::Decided(Found::new(Class::Done, "result: success")) } else { Told::Nothing }
}

fn gemini_failure(record: &Value, field: &str, examiner: &Examiner<'_>) -> Told {
    let text = text_of(record, "/error/message").or(text_of(record, "/message")).unwrap_or("");
    let unknown = || Told::Failed(format!("{field}: {text}"));
    examiner.fault(record, field).map_or_else(unknown, Told::Decided)
}

fn opencode(mut records: impl Iterator<Item = Value>, examiner: &Examiner<'_>) -> Told {
    // An error ends the run, so only the last record can be one that counts.
    let last = records.find(|record| record.get("type").is_some());
    let Some(record) = last.filter(|record| type_of(record) == "error") else {
        return Told::Nothing;
    };
    match examiner.fault(&record, "error") {
        Some(found) => Told::Decided(found),
        None => Told::Failed(format!("error: {}", text_of(&record, "/error/name").unwrap_or(""))),
    }
}
