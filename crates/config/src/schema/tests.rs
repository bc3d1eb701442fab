//! The schema says what the checks do: both are tried on the same files and the same examples.
//!
//! The small validator here knows exactly the words that the schema uses, and fails on any other.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::{from_toml, schema, to_json};
use crate::diagnostic::Findings;
use crate::shape::file::FILE;
use crate::shape::{Shape, Table};
use crate::source::Span;
use crate::{check, parse_in, tree};

const EVERY_KEY: &str = include_str!("../../tests/fixtures/every-key.toml");

/// Why a value does not fit a schema, if it does not.
fn misfit(value: &Value, schema: &Value, root: &Value) -> Option<String> {
    schema.as_object().unwrap().iter().find_map(|(word, rule)| {
        let why = broken(value, word, rule, schema, root)?;
        Some(if why.is_empty() { format!("{value} breaks {word}: {rule}") } else { why })
    })
}

/// Whether one word of a schema is broken, with a reason from further inside where there is one.
/// A word about objects says nothing of a list, and so on.
fn broken(value: &Value, word: &str, rule: &Value, schema: &Value, root: &Value) -> Option<String> {
    let fits = |schema: &Value| misfit(value, schema, root).is_none();
    let rules = || rule.as_array().unwrap().iter();
    let entries = || value.as_object().into_iter().flatten();
    let fine = match word {
        "$schema" | "$defs" | "title" | "description" | "examples" | "default" => true,
        "$ref" => {
            let at = rule.as_str().unwrap().strip_prefix('#').unwrap();
            return misfit(value, root.pointer(at).unwrap(), root);
        }
        "type" => match rule.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            other => panic!("{other}"),
        },
        "enum" => rules().any(|one| one == value),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "minItems" => {
            value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap())
        }
        "pattern" => {
            let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "required" => rules().all(|key| value.get(key.as_str().unwrap()).is_some()),
        "oneOf" => rules().filter(|one| fits(one)).count() == 1,
        "anyOf" => rules().any(fits),
        "items" => {
            let mut items = value.as_array().into_iter().flatten();
            return items.find_map(|item| misfit(item, rule, root));
        }
        "propertyNames" => {
            return entries().find_map(|(key, _)| misfit(&json!(key), rule, root));
        }
        "properties" => {
            return entries().find_map(|(key, value)| misfit(value, rule.get(key)?, root));
        }
        "additionalProperties" => {
            let known = |key: &str| schema.get("properties").is_some_and(|p| p.get(key).is_some());
            let mut others = entries().filter(|(key, _)| !known(key));
            if rule.is_object() {
                return others.find_map(|(_, value)| misfit(value, rule, root));
            }
            others.next().is_none()
        }
        other => panic!("the schema uses a word that its test does not know: {other}"),
    };
    (!fine).then(String::new)
}

fn as_json(text: &str) -> Value {
    let entries = tree::read(text, &mut Findings::default()).unwrap();
    to_json(&tree::Value::Table(entries))
}

/// Every table of the file, by its name.
fn tables() -> BTreeMap<&'static str, &'static Table> {
    fn inside(shape: &'static Shape, found: &mut BTreeMap<&'static str, &'static Table>) {
        match shape {
            Shape::Table(table) => add(table, found),
            Shape::Map(map) => inside(&map.values, found),
            Shape::List(list) => inside(&list.items, found),
            Shape::Either(one, other) => {
                inside(one, found);
                inside(other, found);
            }
            Shape::Text(_)
            | Shape::Word(_)
            | Shape::Bool
            | Shape::Integer { .. }
            | Shape::Number { .. } => {}
        }
    }
    fn add(table: &'static Table, found: &mut BTreeMap<&'static str, &'static Table>) {
        if let Some(other) = found.insert(table.name, table) {
            assert_eq!(other.doc, table.doc, "two tables are called {}", table.name);
            return;
        }
        for field in table.fields {
            inside(&field.shape, found);
        }
    }
    let mut found = BTreeMap::new();
    add(&FILE, &mut found);
    found
}

#[test]
fn the_file_with_every_key_fits_the_schema() {
    let schema = schema();
    assert_eq!(misfit(&as_json(EVERY_KEY), &schema, &schema), None);
}

#[test]
fn the_file_with_every_key_has_every_key() {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    found.insert(key.clone());
                    walk(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(&as_json(EVERY_KEY), &mut found);
    for (name, table) in tables() {
        for field in table.fields {
            assert!(found.contains(field.key), "{name}.{}", field.key);
        }
    }
}

#[test]
fn what_the_shape_refuses_the_schema_refuses_too() {
    let schema = schema();
    for text in [
        "agnet = 1",
        "agent.a.comand = \"x\"",
        "agent.a.pty = \"yes\"",
        "agent.a.command = []",
        "agent.a.restart = \"on-failur\"",
        "agent.a.stop_timeout = \"10\"",
        "agent.a.stop_timeout = 10",
        "agent.a.backoff.jitter = 1.5",
        "agent.a.backoff.factor = 0.5",
        "agent.a.limits = [{ within = \"60s\" }]",
        "agent.a.limits = [{ deaths = 0, within = \"60s\" }]",
        "agent.a.limits = [{ deaths = 1, restarts = 1, within = \"60s\" }]",
        "agent.a.exit_codes = { 2 = \"stopped\" }",
        "agent.a.exit_codes = { 2000 = \"config\" }",
        "agent.a.on = { broke = \"restart\" }",
        "agent.a.env = { \"A=B\" = \"x\" }",
        "agent.a.budget.per_day = { usd = -1 }",
        "agent.a.umask = \"99\"",
        "agent.a.trigger = \"bot\"",
        "agent.\"a b\".command = \"x\"",
        "defaults.comand = \"x\"",
        "group.g = {}",
        "group.g.members = []",
        "notify.n = {}",
        "notify.n = { slack = \"https://x\", desktop = true }",
        "rule = [{ match = \"x\", class = \"config\" }]",
        "server.tls = { cert = \"x\" }",
        "supervisor.max_total_restarts = -1",
    ] {
        assert!(parse_in(Path::new("/srv/night"), text).config.is_none(), "{text}");
        assert!(misfit(&as_json(text), &schema, &schema).is_some(), "{text}");
    }
}

#[test]
fn every_example_and_every_default_fits_its_own_shape_and_schema() {
    let root = schema();
    for (name, table) in tables() {
        for field in table.fields {
            for text in [field.example, field.default].into_iter().filter(|text| !text.is_empty()) {
                let what = format!("{name}.{} = {text}", field.key);
                let mut findings = Findings::default();
                let entries =
                    tree::read(&format!("{} = {text}", field.key), &mut findings).unwrap();
                let lone: &'static Table = Box::leak(Box::new(Table {
                    exactly_one: &[],
                    fields: std::slice::from_ref(field),
                    ..*table
                }));
                check::table(entries, Span::START, lone, &mut findings);
                assert_eq!(findings.into_diagnostics(""), [], "{what}");
                let at = if name == "file" {
                    "/properties".to_owned()
                } else {
                    format!("/$defs/{name}/properties")
                };
                let schema = &root.pointer(&at).unwrap()[field.key];
                assert_eq!(misfit(&from_toml(text), schema, &root), None, "{what}");
                assert_eq!(schema["description"], field.doc, "{what}");
            }
            assert!(field.doc.ends_with('.') && !field.example.is_empty(), "{name}.{}", field.key);
            assert_ne!(
                field.example, field.default,
                "{name}.{}: an example shows another value",
                field.key
            );
        }
    }
}

#[test]
fn the_schema_names_its_draft_and_every_table() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let defined: Vec<_> = schema["$defs"].as_object().unwrap().keys().map(String::as_str).collect();
    let tables: Vec<_> = tables().into_keys().filter(|name| *name != "file").collect();
    assert_eq!(defined, tables);
}
