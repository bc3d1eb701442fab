//! JSON as a tree with places.
//!
//! Whether a text is JSON at all is the library's judgement, with its line and column. A text that
//! passed is then walked once more for the places, which the library does not keep.

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::tree::{Entry, Node, Value};

use super::section::last_of_each;

/// Reads a text whose outermost value is an object.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let node = read_any(text, findings)?;
    let Value::Table(entries) = node.value else {
        let message = format!("an object is expected here, not {}", node.value.sort());
        findings.error(node.span, message);
        return None;
    };
    Some(entries)
}

/// Reads a text, whatever its outermost value is.
pub(super) fn read_any(text: &str, findings: &mut Findings) -> Option<Node> {
    // A number too large for a machine word is still JSON, and nothing here is nested deeply.
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1));
        let at = line_start.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let told = error.to_string();
        let what = told.split(" at line ").next().unwrap_or(&told);
        findings.error(Span { start: at, end: at + 1 }, format!("this is no JSON: {what}"));
        return None;
    }
    Some(Walk { text, at: 0 }.value())
}

/// A walk through text that is known to be JSON.
struct Walk<'t> {
    text: &'t str,
    at: usize,
}

impl Walk<'_> {
    fn peek(&mut self) -> u8 {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// The library has refused more than 128 levels, so this cannot run out of stack.
    fn value(&mut self) -> Node {
        let first = self.peek();
        let start = self.at;
        let value = match first {
            b'{' => Value::Table(self.object()),
            b'[' => Value::List(self.list()),
            b'"' => Value::Text(self.string()),
            _ => self.plain(),
        };
        Node { span: Span { start, end: self.at }, value }
    }

    fn object(&mut self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        self.at += 1;
        while self.peek() == b'"' {
            let start = self.at;
            let key = self.string();
            let key_span = Span { start, end: self.at };
            self.peek();
            self.at += 1;
            let node = self.value();
            entries.push(Entry { key, key_span, node });
            self.peek();
            self.at += 1;
        }
        // Behind the last value its comma or brace has been passed; an empty object has its brace.
        if entries.is_empty() {
            self.at += 1;
        }
        // JSON keeps the last of two; so do we.
        last_of_each(entries)
    }

    fn list(&mut self) -> Vec<Node> {
        let mut items = Vec::new();
        self.at += 1;
        if self.peek() == b']' {
            self.at += 1;
            return items;
        }
        loop {
            items.push(self.value());
            let next = self.peek();
            self.at += 1;
            if next != b',' {
                return items;
            }
        }
    }

    fn string(&mut self) -> String {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        end = (end + 1).min(bytes.len());
        let written = &self.text[self.at..end];
        self.at = end;
        serde_json::from_str(written).unwrap_or_default()
    }

    fn plain(&mut self) -> Value {
        let rest = &self.text[self.at..];
        let end = rest.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        let word = &rest[..end];
        self.at += end.max(1).min(rest.len());
        match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number => match (number.parse::<i64>(), number.parse::<f64>()) {
                (Ok(integer), _) => Value::Integer(integer),
                (Err(_), Ok(float)) if number.contains(['.', 'e', 'E']) => Value::Float(float),
                (Err(_), _) => Value::HugeInteger,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::to_json;

    fn tree(text: &str) -> Option<serde_json::Value> {
        let entries = read(text, &mut Findings::default())?;
        Some(to_json(&Value::Table(entries)))
    }

    #[test]
    fn what_is_read_is_what_the_library_reads() {
        for text in [
            "{}",
            " { \"a\" : [ ] , \"b\": {} }\n",
            r#"{"a":1,"b":[1,-2.5,true,null,"x\"y\\",{"c":"\u00e9\ud83d\ude00"}],"d":"/"}"#,
            "{\n\t\"a\": [[1], [], [[2]]]\r\n}",
        ] {
            assert_eq!(tree(text), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn a_mistake_has_its_place() {
        let text = "{\n  \"a\": 1,\n  oops\n}";
        let mut findings = Findings::default();
        assert!(read(text, &mut findings).is_none());
        let told = findings.into_diagnostics(text);
        assert_eq!(text[..told[0].span.start].matches('\n').count(), 2, "{told:?}");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in r#"[{}\[\]",:0-9a-zé\\ \n.-]{0,60}"#) {
            let _ = tree(&text);
            let _ = tree(&format!("{{\"a\":{text}}}"));
        }
    }
}
