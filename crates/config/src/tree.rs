//! The file as a tree: values with the place each was written at, in the order they were written.
//!
//! The tree is all the rest of the crate sees of TOML. It holds what was written, not what it
//! means: whether a key is known or a number in range is the shape's affair. Syntax errors go to
//! the findings; after one the tree is a guess and must not be judged.

use toml::de::{DeTable, DeValue};

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::quoted;

/// A value and where it was written. A table under a header is written at its header.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// What was written.
#[derive(Debug)]
pub(crate) enum Value {
    Text(String),
    Bool(bool),
    Integer(i64),
    /// An integer that no machine word holds.
    HugeInteger,
    Float(f64),
    Date,
    /// A key without a value, as other formats have it.
    Null,
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key, where it was written, and its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Value {
    /// The text, where it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        let Value::Text(text) = self else { return None };
        Some(text)
    }

    /// The whole number, where it is one that fits.
    pub(crate) const fn as_integer(&self) -> Option<i64> {
        let Value::Integer(integer) = self else { return None };
        Some(*integer)
    }

    /// The number, whole or not, where it is one.
    pub(crate) const fn as_number(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "no number of a config has 53 bits")]
            Value::Integer(integer) => Some(*integer as f64),
            Value::Float(float) => Some(*float),
            Value::Text(_)
            | Value::Bool(_)
            | Value::HugeInteger
            | Value::Date
            | Value::Null
            | Value::List(_)
            | Value::Table(_) => None,
        }
    }

    /// What sort of value it is, for a sentence such as "not a list".
    pub(crate) const fn sort(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) | Value::HugeInteger => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::Date => "a date",
            Value::Null => "nothing",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// Reads TOML; gives nothing where it had to guess.
pub(crate) fn read(text: &str, findings: &mut Findings) -> Option<Vec<Entry>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().map_or(Span::START, Span::from);
        if findings.is_full() {
            findings.error(span, "syntax error");
        } else {
            syntax_error(error.message(), span.fitted_to(text), text, findings);
        }
    }
    errors.is_empty().then(|| entries(table.into_inner()))
}

/// Puts the parser's words into ours: what is wrong first, what was expected as the help.
fn syntax_error(message: &str, span: Span, text: &str, findings: &mut Findings) {
    let (what, expected) = match message.split_once(", expected ") {
        Some((what, expected)) => (what, Some(expected)),
        None => (message, None),
    };
    let told = match what {
        "duplicate key" => format!("{what} {}", quoted(&text[span.start..span.end])),
        _ => what.to_owned(),
    };
    let diagnostic = findings.error(span, told);
    if let Some(expected) = expected.filter(|expected| *expected != "nothing") {
        diagnostic.label(format!("expected {expected}"));
    }
    if what == "duplicate key" {
        diagnostic.help("each key may stand once; remove one of the two");
    } else if what == "string values must be quoted" {
        diagnostic.help("put quotes around it: \"…\"");
    }
}

fn entries(table: DeTable<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| Entry {
            key_span: key.span().into(),
            key: key.into_inner().into_owned(),
            node: node(value.span().into(), value.into_inner()),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    entries
}

/// The parser refuses more than eighty levels, so this cannot run out of stack.
fn node(span: Span, value: DeValue<'_>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::HugeInteger,
        },
        // What the parser took for a float is one; a wrong guess would only be refused later.
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Bool(flag),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(array) => Value::List(
            array.into_iter().map(|item| node(item.span().into(), item.into_inner())).collect(),
        ),
        DeValue::Table(table) => Value::Table(entries(table)),
    };
    Node { span, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_the_order_they_were_written() {
        let mut findings = Findings::default();
        let tree = read("b = 1\na = 2\n[c]\n", &mut findings);
        let keys: Vec<_> = tree.iter().flatten().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "c"]);
    }

    #[test]
    fn every_syntax_error_is_told_and_no_tree_is_given() {
        let mut findings = Findings::default();
        assert!(read("a = \nb = 1\n[x\n", &mut findings).is_none());
        assert!(findings.into_diagnostics("a = \nb = 1\n[x\n").len() >= 2);
    }
}
