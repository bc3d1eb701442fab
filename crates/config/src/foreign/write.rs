//! A tree written down as a `defib.toml`.
//!
//! What is written and read again is the same tree, but for the places. Tables of agents, groups and
//! the like stand under headers, what is inside them on one line each.

use std::fmt::Write as _;

use crate::tree::{Entry, Value};

/// The tables whose own tables have headers: `[agent.NAME]`.
const OF_NAMES: [&str; 4] = ["agent", "module", "group", "notify"];

/// The file that says what the tree says.
pub(crate) fn toml(entries: &[Entry]) -> String {
    let mut text = String::new();
    for Entry { key, node, .. } in entries {
        if let (true, Value::Table(tables)) = (OF_NAMES.contains(&key.as_str()), &node.value) {
            for table in tables {
                let header = format!("{key}.{}", bare(&table.key));
                section(&mut text, &header, &table.node.value);
            }
        } else {
            section(&mut text, &bare(key), &node.value);
        }
    }
    text
}

fn section(text: &mut String, header: &str, value: &Value) {
    let Value::Table(entries) = value else {
        // No part of the tree that a format makes is anything else.
        let _ = writeln!(text, "{header} = {}", inline(value));
        return;
    };
    if !text.is_empty() {
        text.push('\n');
    }
    // A String takes whatever is written to it.
    let _ = writeln!(text, "[{header}]");
    for (at, Entry { key, node, .. }) in entries.iter().enumerate() {
        // Of two that say the same the first counts, as it does where a tree is read.
        if entries[..at].iter().all(|earlier| earlier.key != *key) {
            let _ = writeln!(text, "{} = {}", bare(key), inline(&node.value));
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Bool(flag) => flag.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::HugeInteger => i64::MAX.to_string(),
        Value::Float(float) => format!("{float:?}"),
        Value::Date | Value::Null => "\"\"".to_owned(),
        Value::List(nodes) => {
            let items: Vec<String> = nodes.iter().map(|node| inline(&node.value)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let item =
                |entry: &Entry| format!("{} = {}", bare(&entry.key), inline(&entry.node.value));
            let items: Vec<String> = entries.iter().map(item).collect();
            if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
        }
    }
}

/// A key, in quotes where it needs them.
pub(super) fn bare(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    // Every JSON string is a TOML string, but for one character that JSON leaves as it is.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Findings;
    use crate::schema::to_json;
    use crate::tree;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let text = "[project]\nname = \"x\"\n[agent.\"ä.b\"]\ncommand = [\"a\", \"q\\\"\\n\\u007f\"]\n\
                    limits = [{ restarts = 5, within = \"1h\" }]\nenv = { A = \"1\", \"b c\" = \"\" }\n\
                    backoff = { factor = 2.0 }\n[group.g]\nmembers = [\"ä.b\"]\n";
        let tree = tree::read(text, &mut Findings::default()).unwrap_or_default();
        let written = toml(&tree);
        let again = tree::read(&written, &mut Findings::default()).unwrap_or_default();
        assert_eq!(to_json(&Value::Table(tree)), to_json(&Value::Table(again)), "{written}");
    }
}
