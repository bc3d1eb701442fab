//! A file that has been held against its shape: typed values, with the places they came from.
//!
//! Here a duration is a duration and a name a name. What was wrong is [`Datum::Broken`]: it has
//! been complained about once, and whoever meets it must stay silent, so that one mistake makes
//! one diagnostic. [`Layers`] puts an agent's own keys over the file's defaults.

use std::time::Duration;

use defib_core::name::Name;

use crate::source::Span;
use crate::words::{Meanings, meaning};

/// A checked value and where it was written.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) span: Span,
    pub(crate) datum: Datum,
}

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Datum {
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    Duration(Duration),
    Name(Name),
    List(Vec<Item>),
    Table(Fields),
    /// It was wrong, and that has been said.
    Broken,
}

impl Clone for Item {
    fn clone(&self) -> Item {
        Item { span: self.span, datum: self.datum.clone() }
    }
}

impl PartialEq for Item {
    /// Two values are the same wherever they were written.
    fn eq(&self, other: &Item) -> bool {
        self.datum == other.datum
    }
}

/// The keys of a checked table, in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Fields {
    pub(crate) entries: Vec<Entry>,
}

/// A key of a checked table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) item: Item,
}

impl Fields {
    /// The table without keys.
    pub(crate) const NONE: &'static Fields = &Fields { entries: Vec::new() };

    /// A key and its value.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of a key.
    pub(crate) fn item(&self, key: &str) -> Option<&Item> {
        self.entry(key).map(|entry| &entry.item)
    }

    /// The table of a key; the empty one where there is none.
    pub(crate) fn table(&self, key: &str) -> &Fields {
        let Some(Datum::Table(fields)) = self.item(key).map(|item| &item.datum) else {
            return Fields::NONE;
        };
        fields
    }

    /// Whether a key, or what was meant to be it, was wrong anywhere in the table.
    pub(crate) fn has_broken(&self, key: &str) -> bool {
        let broken = |entry: &Entry| entry.key == key && entry.item.datum == Datum::Broken;
        self.entries.iter().any(broken)
    }

    /// This table alone, for its typed values.
    pub(crate) fn alone(&self) -> Layers<'_> {
        Layers { over: self, under: Fields::NONE }
    }
}

/// A table over another: where both have a key, the upper one's value holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layers<'t> {
    pub(crate) over: &'t Fields,
    pub(crate) under: &'t Fields,
}

impl<'t> Layers<'t> {
    fn entry(self, key: &str) -> Option<&'t Entry> {
        self.over.entry(key).or_else(|| self.under.entry(key))
    }

    /// The value of a key.
    pub(crate) fn item(self, key: &str) -> Option<&'t Item> {
        self.entry(key).map(|entry| &entry.item)
    }

    /// Where a key is written.
    pub(crate) fn key_span(self, key: &str) -> Option<Span> {
        self.entry(key).map(|entry| entry.key_span)
    }

    /// Whether a key is there, be it right or wrong.
    pub(crate) fn has(self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Whether a value was wrong, so that nothing may be said of its absence.
    pub(crate) fn is_broken(self, key: &str) -> bool {
        matches!(self.item(key), Some(item) if item.datum == Datum::Broken)
    }

    /// The tables of a key in both layers, one over the other.
    pub(crate) fn merged(self, key: &str) -> Layers<'t> {
        Layers { over: self.over.table(key), under: self.under.table(key) }
    }

    /// The table of a key in the upper layer that has it, alone.
    pub(crate) fn replaced(self, key: &str) -> Option<Layers<'t>> {
        let Datum::Table(fields) = &self.item(key)?.datum else {
            return None;
        };
        Some(fields.alone())
    }

    /// All entries of both layers, the lower ones first: collected into a map, the upper ones hold.
    pub(crate) fn entries(self) -> impl Iterator<Item = &'t Entry> {
        self.under.entries.iter().chain(&self.over.entries)
    }

    pub(crate) fn bool(self, key: &str) -> Option<bool> {
        let Datum::Bool(flag) = self.item(key)?.datum else {
            return None;
        };
        Some(flag)
    }

    pub(crate) fn integer(self, key: &str) -> Option<i64> {
        let Datum::Integer(integer) = self.item(key)?.datum else {
            return None;
        };
        Some(integer)
    }

    /// A whole number that its shape keeps inside `u32`.
    pub(crate) fn count(self, key: &str) -> Option<u32> {
        u32::try_from(self.integer(key)?).ok()
    }

    /// A whole number that its shape keeps from being negative.
    pub(crate) fn size(self, key: &str) -> Option<u64> {
        u64::try_from(self.integer(key)?).ok()
    }

    pub(crate) fn number(self, key: &str) -> Option<f64> {
        let Datum::Number(number) = self.item(key)?.datum else {
            return None;
        };
        Some(number)
    }

    pub(crate) fn duration(self, key: &str) -> Option<Duration> {
        let Datum::Duration(duration) = self.item(key)?.datum else {
            return None;
        };
        Some(duration)
    }

    pub(crate) fn text(self, key: &str) -> Option<&'t str> {
        self.item(key)?.datum.as_text()
    }

    pub(crate) fn word<T: Copy>(self, key: &str, table: &Meanings<T>) -> Option<T> {
        meaning(self.text(key)?, table)
    }

    /// The list of a key.
    pub(crate) fn list(self, key: &str) -> Option<&'t [Item]> {
        let Datum::List(items) = &self.item(key)?.datum else {
            return None;
        };
        Some(items)
    }

    /// The texts of a list.
    pub(crate) fn texts(self, key: &str) -> Option<Vec<String>> {
        let items = self.list(key)?.iter();
        Some(items.filter_map(|item| item.datum.as_text().map(str::to_owned)).collect())
    }
}

impl Datum {
    pub(crate) fn as_text(&self) -> Option<&str> {
        let Datum::Text(text) = self else {
            return None;
        };
        Some(text)
    }
}
