//! The shape of a file as a JSON Schema (draft 2020-12), for editors.
//!
//! It is written from the same description that files are checked by. It says less than the
//! checks where a schema cannot: that a name is known, or that two keys agree.

use serde_json::{Map as Object, Value, json};

use crate::shape::file::FILE;
use crate::shape::{Field, Format, Keys, Shape, Table, Words};
use crate::tree;

/// The schema of `defib.toml`.
pub fn schema() -> Value {
    let mut definitions = Object::new();
    let mut schema = object(&FILE, &mut definitions);
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("defib.toml"));
    schema.insert("$defs".to_owned(), Value::Object(definitions));
    Value::Object(schema)
}

fn object(table: &'static Table, definitions: &mut Object<String, Value>) -> Object<String, Value> {
    let mut properties = Object::new();
    for field in table.fields {
        properties.insert(field.key.to_owned(), property(field, definitions));
    }
    let required: Vec<_> = table.fields.iter().filter(|f| f.required).map(|f| f.key).collect();
    let mut object = Object::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("description".to_owned(), json!(table.doc));
    object.insert("properties".to_owned(), Value::Object(properties));
    object.insert("additionalProperties".to_owned(), json!(false));
    if !required.is_empty() {
        object.insert("required".to_owned(), json!(required));
    }
    if !table.exactly_one.is_empty() {
        let alternatives = table.exactly_one.iter().map(|key| json!({ "required": [key] }));
        object.insert("oneOf".to_owned(), alternatives.collect());
    }
    object
}

fn property(field: &'static Field, definitions: &mut Object<String, Value>) -> Value {
    let mut property = value(&field.shape, definitions);
    property.insert("description".to_owned(), json!(field.doc));
    property.insert("examples".to_owned(), json!([from_toml(field.example)]));
    if !field.default.is_empty() {
        property.insert("default".to_owned(), from_toml(field.default));
    }
    Value::Object(property)
}

fn value(shape: &'static Shape, definitions: &mut Object<String, Value>) -> Object<String, Value> {
    let schema = match shape {
        Shape::Table(table) => {
            if !definitions.contains_key(table.name) {
                let definition = object(table, definitions);
                definitions.insert(table.name.to_owned(), Value::Object(definition));
            }
            json!({ "$ref": format!("#/$defs/{}", table.name) })
        }
        Shape::Map(map) => {
            let keys = match &map.keys {
                Keys::Text(format) => text(format),
                Keys::Word(words) => choice(words),
            };
            json!({
                "type": "object",
                "propertyNames": keys,
                "additionalProperties": value(&map.values, definitions),
            })
        }
        Shape::List(list) => {
            let items = value(&list.items, definitions);
            let fewest = usize::from(list.empty.is_some());
            json!({ "type": "array", "items": items, "minItems": fewest })
        }
        Shape::Either(one, other) => {
            json!({ "anyOf": [value(one, definitions), value(other, definitions)] })
        }
        Shape::Text(format) => text(format),
        Shape::Word(words) => choice(words),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Integer { min, max, .. } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Shape::Number { min, max, .. } if *max < f64::MAX => {
            json!({ "type": "number", "minimum": min, "maximum": max })
        }
        Shape::Number { min, .. } => json!({ "type": "number", "minimum": min }),
    };
    match schema {
        Value::Object(object) => object,
        // Every arm above is written as an object.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Object::new()
        }
    }
}

fn text(format: &Format) -> Value {
    json!({ "type": "string", "pattern": format.pattern })
}

fn choice(words: &Words) -> Value {
    json!({ "enum": words.accepted().collect::<Vec<_>>() })
}

/// A value as it stands in a file, as JSON.
fn from_toml(text: &str) -> Value {
    let mut ignored = crate::diagnostic::Findings::default();
    let entries = tree::read(&format!("value = {text}"), &mut ignored);
    entries.into_iter().flatten().next().map_or(Value::Null, |entry| to_json(&entry.node.value))
}

/// What was written, as JSON.
pub(crate) fn to_json(value: &tree::Value) -> Value {
    match value {
        tree::Value::Text(text) => json!(text),
        tree::Value::Bool(flag) => json!(flag),
        tree::Value::Integer(integer) => json!(integer),
        tree::Value::Float(float) => json!(float),
        tree::Value::HugeInteger | tree::Value::Date | tree::Value::Null => Value::Null,
        tree::Value::List(nodes) => nodes.iter().map(|node| to_json(&node.value)).collect(),
        tree::Value::Table(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.node.value))).collect()
        }
    }
}

#[cfg(test)]
mod tests;
