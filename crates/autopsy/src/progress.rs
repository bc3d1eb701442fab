//! Whether a run has finished its work, by the records that it prints while it lives.
//!
//! Some CLIs print the record that ends their work and then do not exit. [`Follower`] reads a run's
//! lines as they come; [`has_finished`] reads the end of an output backwards. Only records with the
//! fields that the CLI itself writes count, so that a model's answer that quotes one is not taken for it.

use serde_json::Value;

use crate::kind::Kind;
use crate::records::{RECORD_LINES, backwards, parse, text_of, type_of};

/// What a record says about the work of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The run works, or has begun to work again.
    Working,
    /// The run's work is over, whether it went well or not.
    Finished,
}

/// Whether runs of this kind print a record that ends their work.
pub const fn prints_final_record(kind: Kind) -> bool {
    match kind {
        Kind::Claude | Kind::Codex | Kind::Gemini | Kind::Opencode => true,
        Kind::Goose | Kind::Aider | Kind::Python | Kind::Node | Kind::Generic => false,
    }
}

/// Whether the last record of an output that speaks of work is one that ends it.
pub fn has_finished(kind: Kind, tail: &[u8]) -> bool {
    prints_final_record(kind)
        && backwards(tail).find_map(|record| of_record(kind, &record)) == Some(Progress::Finished)
}

/// Reads the lines of a run as they come.
#[derive(Debug, Default)]
pub struct Follower {
    /// The lines so far of a record that is spread over several.
    open: Vec<u8>,
    lines: usize,
}

impl Follower {
    /// What a line says about the work of its run, if anything.
    pub fn take(&mut self, kind: Kind, line: &[u8]) -> Option<Progress> {
        let line = line.trim_ascii_end();
        let begins = line == b"{";
        if begins || !self.open.is_empty() {
            if begins || self.lines > RECORD_LINES {
                self.open.clear();
                self.lines = 0;
            }
            self.open.extend_from_slice(line);
            self.open.push(b'\n');
            self.lines += 1;
            if line != b"}" {
                return None;
            }
            return in_text(kind, &std::mem::take(&mut self.open));
        }
        in_text(kind, line)
    }
}

fn in_text(kind: Kind, text: &[u8]) -> Option<Progress> {
    parse(text).iter().find_map(|record| of_record(kind, record))
}

fn of_record(kind: Kind, record: &Value) -> Option<Progress> {
    use Progress::{Finished, Working};
    let sort = type_of(record);
    let subtype = text_of(record, "/subtype").unwrap_or("");
    match kind {
        Kind::Claude => match (sort, subtype) {
            ("result", _) => {
                let is_whole = !subtype.is_empty() || record.get("is_error").is_some();
                is_whole.then_some(Finished)
            }
            ("assistant" | "user" | "stream_event" | "tool_progress", _)
            | ("system", "init" | "api_retry" | "task_started" | "task_progress") => Some(Working),
            _ => None,
        },
        Kind::Codex => match sort {
            "turn.completed" | "turn.failed" => Some(Finished),
            "thread.started" | "turn.started" => Some(Working),
            item if item.starts_with("item.") => Some(Working),
            _ => None,
        },
        Kind::Gemini => match sort {
            "result" => text_of(record, "/status").map(|_| Finished),
            "init" | "message" | "tool_use" | "tool_result" => Some(Working),
            // The whole answer in one object.
            "" if record.get("response").is_some_and(Value::is_string)
                && record.get("stats").is_some() =>
            {
                Some(Finished)
            }
            _ => None,
        },
        Kind::Opencode => match sort {
            "step_finish" if text_of(record, "/part/reason") == Some("stop") => Some(Finished),
            "step_finish" | "step_start" | "tool_use" => Some(Working),
            _ => None,
        },
        Kind::Goose | Kind::Aider | Kind::Python | Kind::Node | Kind::Generic => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last thing that the lines of a run say, read as they come and read backwards.
    fn both_ways(kind: Kind, output: &str) -> (Option<Progress>, bool) {
        let mut follower = Follower::default();
        let lines = output.lines().filter_map(|line| follower.take(kind, line.as_bytes()));
        (lines.last(), has_finished(kind, output.as_bytes()))
    }

    #[test]
    fn a_final_record_finishes_a_run_until_a_record_of_work_follows() {
        let claude = r#"{"type":"result","subtype":"success","is_error":false}"#;
        let failed = r#"{"type":"result","subtype":"error_during_execution","is_error":true}"#;
        let table: &[(Kind, &str, &str)] = &[
            (Kind::Claude, claude, r#"{"type":"system","subtype":"init","session_id":"s"}"#),
            (Kind::Claude, failed, r#"{"type":"assistant","message":{"id":"m"}}"#),
            (Kind::Claude, claude, r#"{"type":"stream_event","event":{"type":"message_start"}}"#),
            (Kind::Codex, r#"{"type":"turn.completed","usage":{}}"#, r#"{"type":"turn.started"}"#),
            (
                Kind::Codex,
                r#"{"type":"turn.failed","error":{"message":"x"}}"#,
                r#"{"type":"item.started","item":{}}"#,
            ),
            (Kind::Gemini, r#"{"type":"result","status":"success"}"#, r#"{"type":"message"}"#),
            (Kind::Gemini, r#"{"type":"result","status":"error"}"#, r#"{"type":"tool_use"}"#),
            (Kind::Gemini, "{\n  \"response\": \"x\",\n  \"stats\": {}\n}", r#"{"type":"init"}"#),
            (
                Kind::Opencode,
                r#"{"type":"step_finish","part":{"reason":"stop","cost":1}}"#,
                r#"{"type":"step_start","part":{}}"#,
            ),
        ];
        for (kind, last, work) in table {
            let with_words = format!("{last}\nsome words\n");
            assert_eq!(both_ways(*kind, &with_words), (Some(Progress::Finished), true), "{last}");
            let with_work = format!("{last}\n{work}\n");
            assert_eq!(both_ways(*kind, &with_work), (Some(Progress::Working), false), "{work}");
            let again = format!("{with_work}{last}\n");
            assert_eq!(both_ways(*kind, &again), (Some(Progress::Finished), true), "{last}");
        }
        for on_a_terminal in [
            format!("\u{1b}[?25l{claude}\r\n"),
            format!("{claude}\u{1b}[?25h\r\n"),
            format!("\u{1b}[2K\u{1b}[1G{claude}\u{1b}[0m\r\n"),
        ] {
            let seen = both_ways(Kind::Claude, &on_a_terminal);
            assert_eq!(seen, (Some(Progress::Finished), true), "{on_a_terminal:?}");
        }
    }

    #[test]
    fn a_record_that_ends_nothing_does_not_finish_a_run() {
        for (kind, line) in [
            (Kind::Claude, r#"{"type":"result"}"#),
            (Kind::Claude, r#"the answer is {"type":"result","subtype":"success"}"#),
            (Kind::Claude, r#"{"type":"system","subtype":"hook_response"}"#),
            (Kind::Codex, r#"{"type":"error","message":"Reconnecting... 1/5"}"#),
            (Kind::Codex, r#"{"type":"result","subtype":"success"}"#),
            (Kind::Gemini, r#"{"type":"result"}"#),
            (Kind::Opencode, r#"{"type":"text","part":{}}"#),
            (Kind::Generic, r#"{"type":"result","subtype":"success"}"#),
            (Kind::Claude, "{"),
            (Kind::Claude, "}"),
        ] {
            assert_eq!(both_ways(kind, line), (None, false), "{line}");
        }
        let steps = r#"{"type":"step_finish","part":{"reason":"tool-calls"}}"#;
        assert_eq!(both_ways(Kind::Opencode, steps), (Some(Progress::Working), false));
    }
}
