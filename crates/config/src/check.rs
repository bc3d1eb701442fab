//! Holding a tree against its shape.
//!
//! All mistakes are found, each is told once, and what was wrong comes out as
//! [`Datum::Broken`]. A key that is nearly right counts as the key that was meant, broken, so that
//! a slip of the pen is not also told as something missing. Only one value is looked at here at a
//! time; what must agree with what is the lowering's affair.

use crate::diagnostic::Findings;
use crate::fields::{self, Datum, Fields, Item};
use crate::shape::{Complaint, Field, Keys, List, Map, Shape, Table, Words};
use crate::source::Span;
use crate::suggest::{listed, nearest, quoted};
use crate::tree::{Entry, Node, Value};

/// Checks a table and everything in it; gives nothing where it is incomplete.
pub(crate) fn table(
    entries: Vec<Entry>,
    span: Span,
    shape: &'static Table,
    findings: &mut Findings,
) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut slips = Fields::default();
    for Entry { key, key_span, node } in entries {
        let Some(field) = shape.fields.iter().find(|field| field.key == key) else {
            slips.entries.extend(unknown_key(&key, key_span, shape, findings));
            continue;
        };
        let place = Place { key: &key, field: Some(field), in_list: false };
        let item = value(node, &field.shape, place, findings);
        fields.entries.push(fields::Entry { key, key_span, item });
    }
    // Behind the others, so that a key that is there as well is found first.
    fields.entries.append(&mut slips.entries);
    is_complete(&fields, span, shape, findings).then_some(fields)
}

/// Tells of a key that the table does not have; gives the key that was probably meant.
fn unknown_key(
    key: &str,
    span: Span,
    shape: &'static Table,
    findings: &mut Findings,
) -> Option<fields::Entry> {
    if findings.is_full() {
        findings.error(span, "unknown key");
        return None;
    }
    let diagnostic = findings.error(span, format!("unknown key {}", quoted(key)));
    diagnostic.label(match shape.name {
        "file" => "no such table".to_owned(),
        name => format!("not a key of `{name}`"),
    });
    let keys = || shape.fields.iter().map(|field| field.key);
    let meant = nearest(key, keys());
    diagnostic.help(match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the keys here are {}", listed(keys())),
    });
    let datum = Datum::Broken;
    meant.map(|meant| fields::Entry {
        key: meant.to_owned(),
        key_span: span,
        item: Item { span, datum },
    })
}

/// Tells what a table lacks, or has too much of.
fn is_complete(
    fields: &Fields,
    span: Span,
    shape: &'static Table,
    findings: &mut Findings,
) -> bool {
    let mut complete = true;
    for field in shape.fields.iter().filter(|field| field.required) {
        if fields.item(field.key).is_none() {
            complete = false;
            findings
                .error(span, format!("`{}` is missing", field.key))
                .label(format!("`{}` needs it", shape.name))
                .help(example(field));
        }
    }
    let alternatives = shape.exactly_one;
    let mut present: Vec<_> = alternatives.iter().filter_map(|key| fields.entry(key)).collect();
    present.sort_by_key(|entry| entry.key_span);
    match (present.first(), present.get(1)) {
        (None, _) if !alternatives.is_empty() => {
            complete = false;
            findings
                .error(
                    span,
                    format!(
                        "`{}` has none of {}",
                        shape.name,
                        listed(alternatives.iter().copied())
                    ),
                )
                .label("one of them is needed")
                .help(first_example(shape));
        }
        (Some(first), Some(second)) => {
            complete = false;
            findings
                .error(
                    second.key_span,
                    format!("`{}` and `{}` exclude each other", first.key, second.key),
                )
                .label("one too many")
                .related(first.key_span, "the other one")
                .help(format!(
                    "`{}` takes exactly one of {}",
                    shape.name,
                    listed(alternatives.iter().copied())
                ));
        }
        (None, _) | (Some(_), None) => {}
    }
    complete
}

/// Where a value stands: under which key, and what is known of it.
#[derive(Clone, Copy)]
struct Place<'k> {
    key: &'k str,
    /// Absent for the keys of a map, which are the user's.
    field: Option<&'static Field>,
    /// Whether it is an item of a list that stands there.
    in_list: bool,
}

impl Place<'_> {
    /// What a sentence about the value begins with.
    fn subject(self) -> String {
        let key = quoted(self.key);
        if self.in_list { format!("an item of {key}") } else { key }
    }
}

fn value(node: Node, shape: &'static Shape, place: Place<'_>, findings: &mut Findings) -> Item {
    let span = node.span;
    let datum = read(node, shape, place, findings).unwrap_or_else(|complaint| {
        let diagnostic = findings.error(span, format!("{} {}", place.subject(), complaint.message));
        if let Some(help) = complaint.help.or_else(|| place.field.map(example)) {
            diagnostic.help(help);
        }
        Datum::Broken
    });
    Item { span, datum }
}

fn read(
    node: Node,
    shape: &'static Shape,
    place: Place<'_>,
    findings: &mut Findings,
) -> Result<Datum, Complaint> {
    let Node { span, value } = node;
    match (shape, value) {
        (Shape::Either(one, _), value) if takes(one, &value) => {
            read(Node { span, value }, one, place, findings)
        }
        (Shape::Either(_, other), value) if takes(other, &value) => {
            read(Node { span, value }, other, place, findings)
        }
        (Shape::Table(shape), Value::Table(entries)) => {
            Ok(table(entries, span, shape, findings).map_or(Datum::Broken, Datum::Table))
        }
        (Shape::Map(shape), Value::Table(entries)) => {
            Ok(Datum::Table(map(entries, shape, findings)))
        }
        (Shape::List(shape), Value::List(nodes)) => list(nodes, shape, place, findings),
        (Shape::Text(format), Value::Text(text)) => {
            (format.read)(&text).map_err(|bad| bad.about(&text))
        }
        (Shape::Word(words), Value::Text(text)) => match (word(&text, words), text) {
            (Ok(()), text) => Ok(Datum::Text(text)),
            (Err(bad), text) => Err(bad.about(&text)),
        },
        (Shape::Bool, Value::Bool(flag)) => Ok(Datum::Bool(flag)),
        (Shape::Integer { min, why, .. }, Value::Integer(integer)) if integer < *min => {
            Err(Complaint::new(format!("must be at least {min}")).with_help(*why))
        }
        (Shape::Integer { max, .. }, Value::Integer(integer)) if integer <= *max => {
            Ok(Datum::Integer(integer))
        }
        (Shape::Integer { max, .. }, Value::Integer(_) | Value::HugeInteger) => {
            Err(Complaint::new(format!("must be at most {max}")))
        }
        (Shape::Number { min, max, why }, Value::Integer(integer)) => {
            number(as_number(integer), *min, *max, why)
        }
        (Shape::Number { min, max, why }, Value::Float(float)) => number(float, *min, *max, why),
        (shape, value) => {
            let complaint =
                Complaint::new(format!("must be {}, not {}", shape.what(), value.sort()));
            // A map's values have no example, but this much can be said of them.
            if place.field.is_none() && matches!(shape, Shape::Text(_)) {
                return Err(complaint.with_help("put it in quotes"));
            }
            Err(complaint)
        }
    }
}

/// Whether a value is of the sort that a shape wants, be it right or wrong.
fn takes(shape: &Shape, value: &Value) -> bool {
    match shape {
        Shape::Table(_) | Shape::Map(_) => matches!(value, Value::Table(_)),
        Shape::List(_) => matches!(value, Value::List(_)),
        Shape::Either(one, other) => takes(one, value) || takes(other, value),
        Shape::Text(_) | Shape::Word(_) => matches!(value, Value::Text(_)),
        Shape::Bool => matches!(value, Value::Bool(_)),
        Shape::Integer { .. } => matches!(value, Value::Integer(_) | Value::HugeInteger),
        Shape::Number { .. } => {
            matches!(value, Value::Integer(_) | Value::HugeInteger | Value::Float(_))
        }
    }
}

fn map(entries: Vec<Entry>, shape: &'static Map, findings: &mut Findings) -> Fields {
    let mut fields = Fields::default();
    for Entry { key, key_span, node } in entries {
        let item =
            value(node, &shape.values, Place { key: &key, field: None, in_list: false }, findings);
        let read = match &shape.keys {
            Keys::Text(format) => (format.read)(&key).map(drop),
            Keys::Word(words) => word(&key, words),
        };
        match read {
            Ok(()) => fields.entries.push(fields::Entry { key, key_span, item }),
            Err(complaint) => {
                let diagnostic =
                    findings.error(key_span, format!("{} {}", quoted(&key), complaint.message));
                if let Some(help) = complaint.help {
                    diagnostic.help(help);
                }
            }
        }
    }
    fields
}

fn list(
    nodes: Vec<Node>,
    shape: &'static List,
    place: Place<'_>,
    findings: &mut Findings,
) -> Result<Datum, Complaint> {
    match shape.empty {
        Some(why) if nodes.is_empty() => Err(Complaint::new("cannot be empty").with_help(why)),
        Some(_) | None => {
            let place = Place { in_list: true, ..place };
            let items = nodes.into_iter().map(|node| value(node, &shape.items, place, findings));
            Ok(Datum::List(items.collect()))
        }
    }
}

fn word(text: &str, words: &'static Words) -> Result<(), Complaint> {
    if words.accepted().any(|word| word == text) {
        return Ok(());
    }
    if let Some(why) = words.why_refused(text) {
        return Err(
            Complaint::not(&format!("{} that can be given here", words.what)).with_help(why)
        );
    }
    Err(Complaint::not(words.what).with_help(match nearest(text, words.accepted()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("it is one of {}", listed(words.accepted())),
    }))
}

fn number(number: f64, min: f64, max: f64, why: &str) -> Result<Datum, Complaint> {
    if !number.is_finite() {
        return Err(Complaint::new("must be a finite number"));
    }
    if number < min {
        return Err(Complaint::new(format!("must be at least {min}")).with_help(why));
    }
    if number > max {
        return Err(Complaint::new(format!("must be at most {max}")).with_help(why));
    }
    Ok(Datum::Number(number))
}

#[expect(clippy::cast_precision_loss, reason = "no amount, factor or part needs more than 53 bits")]
fn as_number(integer: i64) -> f64 {
    integer as f64
}

/// How a key may look in a file.
fn example(field: &Field) -> String {
    format!("for example: `{} = {}`", field.key, field.example)
}

fn first_example(shape: &Table) -> String {
    let wanted = |field: &&Field| shape.exactly_one.first() == Some(&field.key);
    shape.fields.iter().find(wanted).map_or_else(String::new, example)
}
