//! YAML as a tree with places.
//!
//! The first document of a file counts. Anchors are resolved by the library; a tag that would make a
//! value something else than it looks like is passed over. Text that is nested deeper than any file
//! of people's is refused before it is parsed, because the parser would run out of stack.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::tree::{Entry, Node, Value};

/// No file of people's is nested deeper.
const DEEPEST: usize = 100;

/// Reads a text whose outermost value is a mapping. An empty one has no keys.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    if is_too_deep(text) {
        findings
            .error(Span::START, format!("this is nested deeper than {DEEPEST} levels"))
            .help("no config needs that; is it the right file?");
        return None;
    }
    let bytes = Bytes::new(text);
    let documents = match MarkedYaml::load_from_str(text) {
        Ok(documents) => documents,
        Err(error) => {
            let at = bytes.of(error.marker().index());
            findings.error(
                Span { start: at, end: at + 1 },
                format!("this is no YAML: {}", error.info()),
            );
            return None;
        }
    };
    let Some(first) = documents.first() else { return Some(Vec::new()) };
    let node = bytes.node(first, findings);
    if let Value::Null = node.value {
        return Some(Vec::new());
    }
    let Value::Table(entries) = node.value else {
        findings.error(node.span, format!("keys are expected here, not {}", node.value.sort()));
        return None;
    };
    Some(entries)
}

/// Whether brackets, indentation or dashes nest deeper than a stack should go.
fn is_too_deep(text: &str) -> bool {
    let mut open = 0usize;
    for line in text.lines() {
        let body = line.trim_start_matches([' ', '\t']);
        let dashes = body.len() - body.trim_start_matches(['-', '?', ' ']).len();
        if line.len() - body.len() > DEEPEST * 8 || dashes > DEEPEST * 2 {
            return true;
        }
        for byte in body.bytes() {
            match byte {
                b'[' | b'{' => open += 1,
                b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            }
            if open > DEEPEST {
                return true;
            }
        }
    }
    false
}

/// Where each character of a text begins, as the library counts characters.
struct Bytes {
    starts: Vec<usize>,
    len: usize,
}

impl Bytes {
    fn new(text: &str) -> Bytes {
        Bytes { starts: text.char_indices().map(|(at, _)| at).collect(), len: text.len() }
    }

    fn of(&self, index: usize) -> usize {
        self.starts.get(index).copied().unwrap_or(self.len)
    }

    fn span(&self, yaml: &MarkedYaml<'_>) -> Span {
        Span { start: self.of(yaml.span.start.index()), end: self.of(yaml.span.end.index()) }
    }

    fn node(&self, yaml: &MarkedYaml<'_>, findings: &mut Findings) -> Node {
        let span = self.span(yaml);
        let value = match &yaml.data {
            YamlData::Value(Scalar::Null) => Value::Null,
            YamlData::Value(Scalar::Boolean(flag)) => Value::Bool(*flag),
            YamlData::Value(Scalar::Integer(integer)) => Value::Integer(*integer),
            YamlData::Value(Scalar::FloatingPoint(float)) => Value::Float(float.into_inner()),
            YamlData::Value(Scalar::String(text)) => Value::Text(text.to_string()),
            YamlData::Sequence(items) => {
                Value::List(items.iter().map(|item| self.node(item, findings)).collect())
            }
            YamlData::Mapping(map) => Value::Table(
                map.iter().filter_map(|(key, value)| self.entry(key, value, findings)).collect(),
            ),
            YamlData::Tagged(_, inner) => return self.node(inner, findings),
            YamlData::Representation(text, ..) => Value::Text(text.to_string()),
            YamlData::Alias(_) | YamlData::BadValue => {
                findings.error(span, "this value cannot be read");
                Value::Null
            }
        };
        Node { span, value }
    }

    fn entry(
        &self,
        key: &MarkedYaml<'_>,
        value: &MarkedYaml<'_>,
        findings: &mut Findings,
    ) -> Option<Entry> {
        let key_span = self.span(key);
        let text = match &key.data {
            YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
            YamlData::Value(Scalar::Integer(integer)) => Some(integer.to_string()),
            YamlData::Value(Scalar::Boolean(flag)) => Some(flag.to_string()),
            YamlData::Value(Scalar::Null | Scalar::FloatingPoint(_))
            | YamlData::Representation(..)
            | YamlData::Sequence(_)
            | YamlData::Mapping(_)
            | YamlData::Tagged(..)
            | YamlData::Alias(_)
            | YamlData::BadValue => None,
        };
        let Some(text) = text else {
            findings.error(key_span, "a key must be a word");
            return None;
        };
        Some(Entry { key: text, key_span, node: self.node(value, findings) })
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
    fn values_and_their_places_are_those_of_the_text() {
        let text = "# é\na:\n  b: [1, 2.5, yes, true]\n  c: 'x'\n";
        let told = serde_json::json!({ "a": { "b": [1, 2.5, "yes", true], "c": "x" } });
        assert_eq!(tree(text), Some(told));
        let entries = read(text, &mut Findings::default()).unwrap_or_default();
        let span = entries[0].key_span;
        assert_eq!(&text[span.start..span.end], "a");
    }

    #[test]
    fn what_is_too_deep_or_no_yaml_is_told_and_not_parsed() {
        for text in ["[".repeat(100_000), "- ".repeat(100_000), "a: [".to_owned()] {
            let mut findings = Findings::default();
            assert!(read(&text, &mut findings).is_none());
            assert!(findings.has_errors());
        }
        assert_eq!(tree(""), Some(serde_json::json!({})));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in r#"[{}\[\]",:0-9a-zé\\ \n&*|>!-]{0,80}"#) {
            let _ = tree(&text);
        }
    }
}
