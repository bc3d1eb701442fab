//! INI files as Python's parser reads them, with places.
//!
//! Keys are small letters; `=` or `:` ends them; an indented line goes on with the value before it; a
//! comment is a line of its own, or stands behind white space. What is no part of a section, or no
//! key, is a warning: nothing is passed over in silence.

use std::collections::{HashMap, HashSet};

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;
use crate::tree::{Entry, Node, Value};

use super::section::last_of_each;

/// A section: `[program:web]`.
#[derive(Debug)]
pub(super) struct Part {
    /// What stands in the brackets.
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) entries: Vec<Entry>,
    keys: HashSet<String>,
}

/// Reads a text. Sections of one name are one section, and of two keys the later one counts.
pub(super) fn read(text: &str, findings: &mut Findings) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut current: Option<usize> = None;
    // Whether an indented line goes on with something.
    let mut open = false;
    let mut next = 0;
    for whole in text.split_inclusive('\n') {
        let at = next;
        next += whole.len();
        let line = whole.trim_end().trim_start_matches('\u{feff}');
        let body = line.trim_start();
        if body.is_empty() {
            continue;
        }
        if body.starts_with([';', '#']) {
            continue;
        }
        let start = at + whole.trim_end().len() - body.len();
        let body = without_comment(body);
        let span = Span { start, end: start + body.len() };
        let indented = line.len() > line.trim_start().len();
        if indented && open {
            go_on(current.and_then(|at| parts.get_mut(at)), body);
        } else if let Some(name) = body.strip_prefix('[').and_then(|rest| rest.split(']').next())
            && body.contains(']')
        {
            open = false;
            let name = name.trim().to_owned();
            let place = *places.entry(name.clone()).or_insert(parts.len());
            current = Some(place);
            if place == parts.len() {
                parts.push(Part { name, span, entries: Vec::new(), keys: HashSet::new() });
            }
        } else {
            let part = current.and_then(|at| parts.get_mut(at));
            open = entry(body, span, part, findings);
        }
    }
    for part in &mut parts {
        part.entries = last_of_each(std::mem::take(&mut part.entries));
    }
    parts
}

/// A value without the comment behind it.
fn without_comment(body: &str) -> &str {
    let mut before = ' ';
    for (at, c) in body.char_indices() {
        if matches!(c, ';' | '#') && before.is_whitespace() {
            return body[..at].trim_end();
        }
        before = c;
    }
    body
}

fn go_on(part: Option<&mut Part>, body: &str) {
    let last = part.and_then(|part| part.entries.last_mut());
    if let Some(Entry { node: Node { value: Value::Text(text), .. }, .. }) = last {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(body);
    }
}

/// Says whether it was one.
fn entry(body: &str, span: Span, part: Option<&mut Part>, findings: &mut Findings) -> bool {
    let Some(part) = part else {
        findings
            .warning(span, format!("{} stands before the first section", quoted(body)))
            .label("passed over");
        return false;
    };
    let Some(end) = body.find(['=', ':']) else {
        findings
            .warning(span, format!("{} is no key with a value", quoted(body)))
            .label("passed over");
        return false;
    };
    let key = body[..end].trim().to_lowercase();
    let rest = &body[end + 1..];
    let value = rest.trim();
    let start = span.end - rest.trim_start().len();
    let key_span = Span { start: span.start, end: span.start + end };
    if !part.keys.insert(key.clone()) {
        findings
            .warning(key_span, format!("{} is set a second time; this one counts", quoted(&key)))
            .help("remove one of the two");
    }
    let span = Span { start, end: start + value.len() };
    let node = Node { span, value: Value::Text(value.to_owned()) };
    part.entries.push(Entry { key, key_span, node });
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_continuations_and_places_are_as_pythons_parser_has_them() {
        let text =
            "; c\n[A:b] ; c\nKey = v;w ; c\n# c\nenv: a=1,\n   b=2 # c\n[x]\nlost\n[A:b]\nkey=2\n";
        let mut findings = Findings::default();
        let parts = read(text, &mut findings);
        let told: Vec<_> = parts
            .iter()
            .flat_map(|part| {
                part.entries.iter().map(|e| (&*part.name, &*e.key, e.node.value.as_text()))
            })
            .collect();
        assert_eq!(told, [("A:b", "env", Some("a=1,\nb=2")), ("A:b", "key", Some("2"))]);
        let span = parts[0].entries[0].node.span;
        assert_eq!(&text[span.start..span.end], "a=1,");
        assert_eq!(findings.into_diagnostics(text).len(), 2, "`lost`, and the second `key`");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in r"[\[\]=:;# \ta-zé\n\r\u{feff}]{0,60}") {
            for part in read(&text, &mut Findings::default()) {
                for Entry { node, .. } in part.entries {
                    prop_assert!(text.get(node.span.start..node.span.end).is_some());
                }
            }
        }
    }
}
