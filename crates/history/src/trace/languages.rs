//! How each language writes a stack trace.
//!
//! Each form has a first line that begins it, lines that go on, and lines that are none of its own.
//! A few of the latter in a row are passed over, because other threads write as well.

/// So many lines of others may stand between two lines of a trace.
const STRANGERS: usize = 4;
/// A message between the first line and the first frame has at most so many lines.
const MESSAGE: usize = 24;

/// A trace that was found.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// Its lines.
    pub(crate) lines: Vec<&'a str>,
    /// The index of the first line after it.
    pub(crate) end: usize,
}

/// The trace that begins at a line, if one does.
pub(crate) fn trace_at<'a>(lines: &[&'a str], at: usize) -> Option<Found<'a>> {
    python(lines, at)
        .or_else(|| rust(lines, at))
        .or_else(|| go(lines, at))
        .or_else(|| java_or_node(lines, at))
}

/// What a line is to the trace before it.
enum Place {
    /// It goes on.
    Part,
    /// It ends with this line.
    End,
    /// It is somebody else's.
    Stranger,
    /// It begins something new.
    Next,
}

/// Takes lines as long as they go on, and up to the last one that did.
fn follow<'a>(
    lines: &[&'a str],
    from: usize,
    kept: &mut Vec<&'a str>,
    mut place: impl FnMut(&str) -> Place,
) -> usize {
    let (mut end, mut strangers) = (from, 0);
    for (index, line) in lines.iter().enumerate().skip(from) {
        match place(line) {
            Place::Part => {
                kept.push(line);
                (end, strangers) = (index + 1, 0);
            }
            Place::End => {
                kept.push(line);
                return index + 1;
            }
            Place::Stranger => {
                strangers += 1;
                if strangers > STRANGERS {
                    break;
                }
            }
            Place::Next => break,
        }
    }
    end
}

const PYTHON: &str = "Traceback (most recent call last):";
const PYTHON_CHAINS: [&str; 2] = [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

fn python<'a>(lines: &[&'a str], at: usize) -> Option<Found<'a>> {
    let mut kept = Vec::new();
    let mut end = one_python(lines, at, &mut kept)?;
    // What the exception was raised from, or while handling what, is the same story.
    loop {
        let next = end + blanks(lines, end);
        let Some(link) = lines.get(next) else { break };
        if !PYTHON_CHAINS.contains(&link.trim()) {
            break;
        }
        let again = next + 1 + blanks(lines, next + 1);
        let mut more = Vec::new();
        let Some(after) = one_python(lines, again, &mut more) else { break };
        kept.extend(["", link, ""]);
        kept.append(&mut more);
        end = after;
    }
    Some(Found { lines: kept, end })
}

fn one_python<'a>(lines: &[&'a str], at: usize, kept: &mut Vec<&'a str>) -> Option<usize> {
    let first = lines.get(at)?;
    if is_python_frame(first) {
        return syntax_error(lines, at, kept);
    }
    if !is_python_start(first) {
        return None;
    }
    let mut ahead = lines[at + 1..].iter().take(MESSAGE);
    if !ahead.any(|line| is_python_frame(line)) {
        return None;
    }
    kept.push(first);
    // In the trace of an exception group, others begin inside it.
    let group = first.contains("Exception Group");
    Some(follow(lines, at + 1, kept, |line| {
        if !group && is_python_start(line) {
            Place::Next
        } else if line.starts_with([' ', '\t']) && !line.trim().is_empty() {
            Place::Part
        } else if is_python_error(line) {
            Place::End
        } else {
            Place::Stranger
        }
    }))
}

/// A syntax error in the program itself has a frame and no first line.
fn syntax_error<'a>(lines: &[&'a str], at: usize, kept: &mut Vec<&'a str>) -> Option<usize> {
    let ahead = lines[at + 1..].iter().take(STRANGERS);
    let length = ahead.clone().position(|line| is_python_error(line))?;
    ahead.take(length).all(|line| line.starts_with(' ')).then_some(())?;
    let end = at + length + 2;
    kept.extend(&lines[at..end]);
    Some(end)
}

fn is_python_start(line: &str) -> bool {
    let said = line.trim_matches([' ', '|', '+', '-', '\t']);
    said.strip_prefix("Exception Group ").unwrap_or(said) == PYTHON
}

fn is_python_frame(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '|', '\t']);
    line.strip_prefix("File \"").is_some_and(|rest| rest.contains("\", line "))
}

/// Whether a line is `package.SomeError: message`, or the name alone.
fn is_python_error(line: &str) -> bool {
    let name = line.split_once(':').map_or(line, |(name, _)| name);
    let named = !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        && !name.starts_with(|c: char| c.is_ascii_digit());
    // `INFO: …` is a line of a log; a class has small letters in it.
    named
        && name.chars().any(char::is_lowercase)
        && (name.contains('.') || name.starts_with(char::is_uppercase))
}

fn rust<'a>(lines: &[&'a str], at: usize) -> Option<Found<'a>> {
    let first = lines.get(at)?;
    if !is_rust_panic(first) {
        return None;
    }
    let mut kept = vec![lines[at]];
    let mut end = at + 1;
    let ahead = lines[end..].iter().take(MESSAGE).take_while(|line| !is_rust_panic(line));
    let turn = ahead.clone().position(|line| is_rust_turn(line));
    // The message stands on lines of its own since Rust 1.73. Where nothing follows it, one line is
    // all that is surely its own.
    let message = match turn {
        Some(lines) => lines,
        None => usize::from(first.ends_with(':')).min(ahead.count()),
    };
    kept.extend(&lines[end..end + message]);
    end += message;
    if lines.get(end).is_some_and(|line| line.trim() == "stack backtrace:") {
        kept.push(lines[end]);
        end = follow(lines, end + 1, &mut kept, |line| {
            let line = line.trim_start();
            let number = line.split_once(": ").map(|(number, _)| number);
            let frame =
                number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            if frame || line.starts_with("at ") { Place::Part } else { Place::Stranger }
        });
    }
    if lines.get(end).is_some_and(|line| line.starts_with("note: ")) {
        kept.push(lines[end]);
        end += 1;
    }
    Some(Found { lines: kept, end })
}

fn is_rust_panic(line: &str) -> bool {
    line.trim_start().starts_with("thread '") && line.contains(" panicked at ")
}

fn is_rust_turn(line: &str) -> bool {
    line.trim() == "stack backtrace:" || line.starts_with("note: run with `RUST_BACKTRACE")
}

fn go<'a>(lines: &[&'a str], at: usize) -> Option<Found<'a>> {
    let first = lines.get(at)?;
    if !is_go_start(first) {
        return None;
    }
    let ahead = lines[at + 1..].iter().take(MESSAGE);
    let message = ahead.clone().position(|line| is_goroutine(line))?;
    let mut kept = vec![*first];
    kept.extend(&lines[at + 1..at + 2 + message]);
    let mut rest = Vec::new();
    let end = follow(lines, at + 2 + message, &mut rest, |line| {
        let part = is_goroutine(line)
            || (line.starts_with('\t') && line.contains(':'))
            || line.starts_with("created by ")
            || line.starts_with("...additional frames elided")
            || is_go_call(line);
        if is_go_start(line) {
            Place::Next
        } else if line.starts_with("exit status ") {
            Place::End
        } else if part {
            Place::Part
        } else {
            Place::Stranger
        }
    });
    // The empty lines between goroutines counted as strangers, lest they hide the end.
    for line in rest {
        if is_goroutine(line) {
            kept.push("");
        }
        kept.push(line);
    }
    Some(Found { lines: kept, end })
}

fn is_go_start(line: &str) -> bool {
    line.starts_with("panic: ") || line.starts_with("fatal error: ")
}

fn is_goroutine(line: &str) -> bool {
    let rest = line.strip_prefix("goroutine ").unwrap_or("");
    let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    number.len() < rest.len() && number.starts_with(' ') && number.ends_with("]:")
}

/// Whether a line is `main.(*Server).run(0xc000010000, ...)`.
fn is_go_call(line: &str) -> bool {
    let name = line.split_once('(').map_or("", |(name, _)| name);
    line.ends_with(')') && name.contains('.') && !name.contains(' ')
}

fn java_or_node<'a>(lines: &[&'a str], at: usize) -> Option<Found<'a>> {
    if !is_thrown(lines.get(at)?) {
        return None;
    }
    // A message may have several lines before the first frame, but no line that begins anew.
    let ahead = lines[at + 1..].iter().take(MESSAGE);
    let message = ahead.clone().position(|line| is_call(line))?;
    if ahead.take(message).any(|line| is_thrown(line)) {
        return None;
    }
    let begin = at - node_source(lines, at);
    let mut kept = lines[begin..=at + message].to_vec();
    let mut fields = false;
    let end = follow(lines, at + 1 + message, &mut kept, |line| {
        let trimmed = line.trim_start();
        let more = trimmed.strip_prefix("... ").is_some_and(|rest| rest.ends_with(" more"));
        let cause = ["Caused by: ", "Suppressed: ", "[cause]: "]
            .iter()
            .any(|word| trimmed.starts_with(word));
        if is_thrown(line) && !cause {
            Place::Next
        } else if is_call(line) || more || cause {
            fields = line.ends_with('{');
            Place::Part
        } else if fields && line == "}" {
            Place::End
        } else if fields && line.starts_with(' ') {
            Place::Part
        } else {
            Place::Stranger
        }
    });
    Some(Found { lines: kept, end })
}

/// Whether a line says what was thrown: `Uncaught TypeError: x`, `java.lang.Exception`.
fn is_thrown(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with("Exception in thread \"") {
        return true;
    }
    let bare = line.strip_prefix("Uncaught ").unwrap_or(line);
    let name = bare.split([':', ' ', '[', '(']).next().unwrap_or("");
    let named = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$'));
    let last = name.rsplit('.').next().unwrap_or(name);
    named && (last.ends_with("Error") || last.ends_with("Exception"))
}

/// Whether a line is an indented `at name (file:1:2)`, `at file:1:2` or `at a.b.C.d(File.java:3)`.
fn is_call(line: &str) -> bool {
    let Some(call) = line.trim_start().strip_prefix("at ") else { return false };
    let call = call.strip_suffix('{').unwrap_or(call).trim_end();
    let call = call.strip_suffix(',').unwrap_or(call);
    let placed = call.ends_with(')') && call.contains('(');
    let numbered =
        call.rsplit(':').take(2).all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    // A Java frame from a jar ends with `~[lib.jar:1.0]`.
    let jar = call.ends_with(']') && call.contains('(');
    line.starts_with([' ', '\t']) && (placed || jar || (numbered && call.contains(':')))
}

/// How many lines before the error show the source where Node threw it.
fn node_source(lines: &[&str], at: usize) -> usize {
    let up = |by: usize| at.checked_sub(by).map(|index| lines[index]);
    let caret =
        |line: &str| line.contains('^') && line.chars().all(|c| matches!(c, ' ' | '\t' | '^'));
    let place = |line: &str| {
        let number = line.rsplit_once(':').map_or("", |(_, number)| number);
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    };
    match (up(4), up(2), up(1)) {
        (Some(first), Some(mark), Some("")) if place(first) && caret(mark) => 4,
        (_, _, _) => 0,
    }
}

fn blanks(lines: &[&str], from: usize) -> usize {
    lines.iter().skip(from).take_while(|line| line.trim().is_empty()).count()
}
