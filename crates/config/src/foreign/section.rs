//! A table of a foreign file that is taken apart key by key, and a table of ours that is built.
//!
//! What is taken is understood. Whatever is left when a section is finished was not, and each such
//! key is a warning with its line.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::diagnostic::Findings;
use crate::source::Span;
use crate::suggest::{listed, nearest, quoted};
use crate::tree::{Entry, Node, Value};

use super::duration_text;

/// A longer list of keys is no help.
const MOST_LISTED: usize = 16;

/// A table of a foreign file.
#[derive(Debug)]
pub(super) struct Section {
    /// What it is called in messages: `[daemon]`.
    name: &'static str,
    entries: Vec<Entry>,
    /// The keys that were asked for, for suggestions.
    known: Vec<&'static str>,
}

/// A value that was taken, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taken<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

impl Section {
    pub(super) fn new(name: &'static str, entries: Vec<Entry>) -> Section {
        Section { name, entries, known: Vec::new() }
    }

    /// The value of a key, whatever it is.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        let node = self.entries.remove(at).node;
        // A key without a value says nothing.
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// A key with its value and its place.
    pub(super) fn entry(&mut self, key: &'static str) -> Option<Entry> {
        self.known.push(key);
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }

    /// Every key of a sort.
    pub(super) fn take_all(&mut self, is_one: impl Fn(&str) -> bool) -> Vec<Entry> {
        let (taken, left) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| is_one(&entry.key));
        self.entries = left;
        taken
    }

    /// All that nobody took.
    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Puts a key back where nothing has become of it.
    pub(super) fn give_back(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Puts a value there, or back.
    pub(super) fn give(&mut self, key: &str, node: Node) {
        let (key, key_span) = (key.to_owned(), node.span);
        self.entries.push(Entry { key, key_span, node });
    }

    /// The value of a key as `read` reads it; what it cannot read is an error.
    fn read<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
        findings: &mut Findings,
    ) -> Option<Taken<T>> {
        let Node { span, value } = self.take(key)?;
        let Some(value) = read(&value) else {
            findings.error(span, format!("`{key}` must be {wanted}, not {}", value.sort()));
            return None;
        };
        Some(Taken { value, span })
    }

    /// The table of a key.
    pub(super) fn section(
        &mut self,
        key: &'static str,
        name: &'static str,
        findings: &mut Findings,
    ) -> Option<Section> {
        let Node { span, value } = self.take(key)?;
        let Value::Table(entries) = value else {
            findings.error(span, format!("`{key}` must be a table, not {}", value.sort()));
            return None;
        };
        Some(Section::new(name, entries))
    }

    pub(super) fn text(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
    ) -> Option<Taken<String>> {
        self.read(key, "a string", |value| value.as_text().map(str::to_owned), findings)
    }

    pub(super) fn bool(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
    ) -> Option<Taken<bool>> {
        let flag = |value: &Value| if let Value::Bool(flag) = value { Some(*flag) } else { None };
        self.read(key, "`true` or `false`", flag, findings)
    }

    /// A whole number of things.
    pub(super) fn count(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
    ) -> Option<Taken<u32>> {
        let count = |value: &Value| u32::try_from(value.as_integer()?).ok();
        self.read(key, "a whole number from 0 on", count, findings)
    }

    /// A number, whole or not, that is not negative.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
    ) -> Option<Taken<f64>> {
        let fine = |number: &f64| number.is_finite() && *number >= 0.0;
        self.read(key, "a number from 0 on", |value| value.as_number().filter(fine), findings)
    }

    /// A number of seconds, whole or not.
    pub(super) fn seconds(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
    ) -> Option<Taken<Duration>> {
        let Taken { value, span } = self.number(key, findings)?;
        let Ok(value) = Duration::try_from_secs_f64(value) else {
            findings.error(span, format!("`{key}` is longer than anything lives"));
            return None;
        };
        Some(Taken { value, span })
    }

    /// Moves the keys that mean the same in a `defib.toml` over as they are.
    pub(super) fn hand_over(&mut self, keys: &[&'static str], to: &mut Table) {
        for key in keys {
            let key_span = self.entries.iter().find(|entry| entry.key == *key).map(|e| e.key_span);
            if let (Some(key_span), Some(node)) = (key_span, self.take(key)) {
                to.entries.push(Entry { key: (*key).to_owned(), key_span, node });
            }
        }
    }

    /// Where a key stands.
    pub(super) fn place(&self, key: &str) -> Option<Span> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.key_span)
    }

    /// Whether a key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Warns of every key that nobody took.
    pub(super) fn finish(self, findings: &mut Findings) {
        for entry in self.entries {
            if findings.is_full() {
                // It is only counted: no search for what was meant.
                findings.warning(entry.key_span, "not understood");
                continue;
            }
            let message = format!("{} is not understood in {}", quoted(&entry.key), self.name);
            let diagnostic = findings.warning(entry.key_span, message);
            diagnostic.label("passed over");
            diagnostic.help(match nearest(&entry.key, self.known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None if self.known.len() > MOST_LISTED => "it means nothing here".to_owned(),
                None => format!("what is understood: {}", listed(self.known.iter().copied())),
            });
        }
    }
}

/// Says of a value that it is not what its key wants, so that nothing has become of it.
pub(super) fn is_no(span: Span, key: &str, what: &str, findings: &mut Findings) {
    findings.warning(span, format!("`{key}` is no {what}")).label("passed over");
}

/// Says once that something is understood and does nothing here.
pub(super) fn unsupported(span: Span, what: &str, instead: &str, findings: &mut Findings) {
    findings.warning(span, format!("{what} is not supported")).label("passed over").help(instead);
}

/// A plain value as a text, in the words of the file it stands in: `1.10` is not `1.1`.
pub(super) fn scalar_text(node: &Node, file: &str) -> String {
    let written = file.get(node.span.start..node.span.end).map(str::trim);
    match &node.value {
        Value::Text(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Integer(number) => written
            .filter(|text| !text.is_empty())
            .map_or_else(|| number.to_string(), str::to_owned),
        Value::Float(number) => written
            .filter(|text| !text.is_empty())
            .map_or_else(|| number.to_string(), str::to_owned),
        Value::HugeInteger => written.unwrap_or_default().to_owned(),
        Value::Date | Value::Null | Value::List(_) | Value::Table(_) => String::new(),
    }
}

/// Says of each key that is there and known why it does nothing here, and what does instead.
pub(super) fn no_equal(
    section: &mut Section,
    keys: &[(&'static str, &'static str)],
    findings: &mut Findings,
) {
    for (key, instead) in keys {
        if let Some(entry) = section.entry(key) {
            let message = format!("`{key}` has no equal: {instead}");
            findings.warning(entry.key_span, message).label("passed over");
        }
    }
}

/// A table of a `defib.toml` that is built from foreign values.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    /// The names that were given to entries of a table of agents or groups.
    names: RefCell<Names>,
}

/// Names that are taken, and the number to try next where one is wanted again. Without that, a file that
/// repeats one name takes time by the cube of its length.
#[derive(Debug, Default)]
struct Names {
    taken: HashSet<String>,
    next: HashMap<String, usize>,
}

impl Table {
    pub(super) fn of(entries: Vec<Entry>) -> Table {
        Table { entries, ..Table::default() }
    }

    /// Takes a name for an entry: the wanted one, or that with a number behind it.
    pub(super) fn take_name(&self, wanted: &str) -> String {
        let mut names = self.names.borrow_mut();
        if names.taken.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        // Cut where the number would make it too long.
        let kept: String = wanted.chars().take(56).collect();
        let mut number = names.next.get(&kept).copied().unwrap_or(2);
        let name = loop {
            let name = format!("{kept}-{number}");
            number += 1;
            if names.taken.insert(name.clone()) {
                break name;
            }
        };
        names.next.insert(kept, number);
        name
    }

    /// Whether an entry has taken a name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.borrow().taken.contains(name)
    }

    /// Sets a key; what it means comes from `span`.
    pub(super) fn put(&mut self, key: &str, span: Span, value: Value) {
        let node = Node { span, value };
        self.entries.push(Entry { key: key.to_owned(), key_span: span, node });
    }

    pub(super) fn text(&mut self, key: &str, span: Span, text: impl Into<String>) {
        self.put(key, span, Value::Text(text.into()));
    }

    pub(super) fn duration(&mut self, key: &str, span: Span, duration: Duration) {
        self.text(key, span, duration_text(duration));
    }

    pub(super) fn count(&mut self, key: &str, span: Span, count: u32) {
        self.put(key, span, Value::Integer(count.into()));
    }

    pub(super) fn table(&mut self, key: &str, span: Span, table: Table) {
        self.put(key, span, Value::Table(table.entries));
    }

    pub(super) fn list(&mut self, key: &str, span: Span, items: Vec<Node>) {
        self.put(key, span, Value::List(items));
    }

    /// A list of texts that all come from one place.
    pub(super) fn texts(&mut self, key: &str, span: Span, texts: impl IntoIterator<Item = String>) {
        let item = |text| Node { span, value: Value::Text(text) };
        self.list(key, span, texts.into_iter().map(item).collect());
    }

    /// The one limit of an agent.
    pub(super) fn limit(&mut self, span: Span, limit: Table) {
        self.list("limits", span, vec![Node { span, value: Value::Table(limit.entries) }]);
    }

    /// Its entries once more, for another agent of the same make.
    pub(super) fn copied(&self) -> Vec<Entry> {
        self.entries.iter().map(copy).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }
}

/// Of entries with the same key the last, at its own place.
pub(super) fn last_of_each(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = HashSet::new();
    entries.reverse();
    entries.retain(|entry| seen.insert(entry.key.clone()));
    entries.reverse();
    entries
}

fn copy(entry: &Entry) -> Entry {
    let Entry { key, key_span, node } = entry;
    Entry { key: key.clone(), key_span: *key_span, node: copy_node(node) }
}

fn copy_node(node: &Node) -> Node {
    let value = match &node.value {
        Value::Text(text) => Value::Text(text.clone()),
        Value::Bool(flag) => Value::Bool(*flag),
        Value::Integer(integer) => Value::Integer(*integer),
        Value::HugeInteger => Value::HugeInteger,
        Value::Float(float) => Value::Float(*float),
        Value::Date => Value::Date,
        Value::Null => Value::Null,
        Value::List(items) => Value::List(items.iter().map(copy_node).collect()),
        Value::Table(entries) => Value::Table(entries.iter().map(copy).collect()),
    };
    Node { span: node.span, value }
}
