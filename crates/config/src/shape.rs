//! What a file may look like, as data.
//!
//! One description, in [`mod@file`] and [`agent`], is read by two: [`check`](crate::check) holds a
//! tree against it, and [`schema`](mod@crate::schema) writes it down as JSON Schema. What one accepts
//! the other describes, because there is nothing else they could go by. Rules that join several
//! keys, or several tables, are no shape; they are in [`lower`](crate::lower).

pub(crate) mod agent;
pub(crate) mod file;
pub(crate) mod format;

use crate::fields::Datum;
use crate::suggest::quoted;

/// What a value may look like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// A table with certain keys.
    Table(&'static Table),
    /// A table whose keys are the user's.
    Map(&'static Map),
    /// A list.
    List(&'static List),
    /// Either of two, told apart by what sort of value it is.
    Either(&'static Shape, &'static Shape),
    /// A string in a format.
    Text(&'static Format),
    /// One of certain words.
    Word(&'static Words),
    /// True or false.
    Bool,
    /// A whole number from `min` to `max`.
    Integer {
        min: i64,
        max: i64,
        /// What to say to somebody who left the range.
        why: &'static str,
    },
    /// A number from `min` to `max`, whole or not.
    Number {
        min: f64,
        max: f64,
        /// What to say to somebody who left the range.
        why: &'static str,
    },
}

/// A table with certain keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// What it is called in the schema, and in messages: "in `limit`".
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) doc: &'static str,
    /// Its keys.
    pub(crate) fields: &'static [Field],
    /// Keys of which exactly one must be there.
    pub(crate) exactly_one: &'static [&'static str],
}

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) key: &'static str,
    pub(crate) shape: Shape,
    /// What it is for, as a sentence.
    pub(crate) doc: &'static str,
    /// A value, as it stands in a file.
    pub(crate) example: &'static str,
    /// What holds where it is absent, as it would stand in a file; empty where nothing does, or
    /// where the rule set decides.
    pub(crate) default: &'static str,
    /// Whether the table is incomplete without it.
    pub(crate) required: bool,
}

/// A table whose keys are the user's.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) keys: Keys,
    pub(crate) values: Shape,
}

/// What the keys of a map may be.
#[derive(Debug)]
pub(crate) enum Keys {
    /// Text in a format.
    Text(&'static Format),
    /// Certain words.
    Word(&'static Words),
}

/// A list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) items: Shape,
    /// What to say where it is empty; nothing where it may be.
    pub(crate) empty: Option<&'static str>,
}

/// A format of strings.
#[derive(Debug)]
pub(crate) struct Format {
    /// What it is, for "expected a duration".
    pub(crate) what: &'static str,
    /// A regular expression that all such strings match, for editors.
    pub(crate) pattern: &'static str,
    /// Makes a value of a string, or says why it cannot.
    pub(crate) read: fn(&str) -> Result<Datum, Complaint>,
}

/// Why a string is not in a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// What is wrong, as the end of a sentence that began with the key.
    pub(crate) message: String,
    /// Whether the sentence is only complete with the string itself.
    pub(crate) about_text: bool,
    /// What to do, where that is more than a look at the example.
    pub(crate) help: Option<String>,
}

impl Complaint {
    /// A complaint that needs no more than its message.
    pub(crate) fn new(message: impl Into<String>) -> Complaint {
        Complaint { message: message.into(), about_text: false, help: None }
    }

    /// A string is not what it should be.
    pub(crate) fn not(what: &str) -> Complaint {
        Complaint { about_text: true, ..Complaint::new(format!("is not {what}")) }
    }

    /// The same complaint, with what to do.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Complaint {
        Complaint { help: Some(help.into()), ..self }
    }

    /// The same complaint about a value, which it then shows.
    pub(crate) fn about(self, text: &str) -> Complaint {
        if !self.about_text {
            return self;
        }
        Complaint { message: format!("is {}, which {}", quoted(text), self.message), ..self }
    }
}

/// A choice of words.
#[derive(Debug)]
pub(crate) struct Words {
    /// What they are, for "expected a class".
    pub(crate) what: &'static str,
    /// Those that there are.
    pub(crate) all: &'static [&'static str],
    /// Those of them that will not do here, each with the reason.
    pub(crate) refused: &'static [(&'static str, &'static str)],
}

impl Words {
    /// Those that will do.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().copied().filter(|word| self.why_refused(word).is_none())
    }

    /// Why a word will not do here, where it is one of those refused.
    pub(crate) fn why_refused(&self, word: &str) -> Option<&'static str> {
        self.refused.iter().find(|(refused, _)| *refused == word).map(|(_, why)| *why)
    }
}

impl Field {
    /// A key that may be absent.
    pub(crate) const fn new(
        key: &'static str,
        shape: Shape,
        doc: &'static str,
        example: &'static str,
    ) -> Field {
        Field { key, shape, doc, example, default: "", required: false }
    }

    /// The same key, with what holds where it is absent.
    pub(crate) const fn or(self, default: &'static str) -> Field {
        Field { default, ..self }
    }

    /// The same key, which must be there.
    pub(crate) const fn required(self) -> Field {
        Field { required: true, ..self }
    }
}

impl Shape {
    /// What it is, for "expected a duration".
    pub(crate) fn what(&self) -> String {
        match self {
            Shape::Table(_) | Shape::Map(_) => "a table".to_owned(),
            Shape::List(list) => match &list.items {
                Shape::Table(_) | Shape::Map(_) => "a list of tables".to_owned(),
                Shape::Text(_) | Shape::Word(_) => "a list of strings".to_owned(),
                Shape::List(_)
                | Shape::Either(..)
                | Shape::Bool
                | Shape::Integer { .. }
                | Shape::Number { .. } => "a list".to_owned(),
            },
            Shape::Either(one, other) => format!("{} or {}", one.what(), other.what()),
            Shape::Text(format) => format.what.to_owned(),
            Shape::Word(words) => words.what.to_owned(),
            Shape::Bool => "`true` or `false`".to_owned(),
            Shape::Integer { .. } => "a whole number".to_owned(),
            Shape::Number { .. } => "a number".to_owned(),
        }
    }
}
