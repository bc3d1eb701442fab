//! The numbers that belong to an event: the text of a flat JSON object.
//!
//! An event is made once and written three times, to the journal, to the history and to whoever
//! watches. So its body is text from the start: small, made in one go, and copied as it is.

use std::fmt::Write as _;

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// The body of an event. Two are equal when they say the same in the same words.
#[derive(Debug, Clone)]
pub struct Body(Box<RawValue>);

impl Body {
    /// The body of what serializes as an object whose first entry is its `type`, with these numbers
    /// behind; and the type.
    pub(crate) fn tagged(
        what: &impl Serialize,
        more: impl Iterator<Item = (&'static str, u64)>,
    ) -> (String, Body) {
        let text = serde_json::to_string(what).unwrap_or_default();
        let tagged = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"'));
        let Some((kind, rest)) = tagged else { return (String::new(), Body::default()) };
        let mut body = String::with_capacity(rest.len() + 96);
        body.push('{');
        let rest = rest.strip_prefix(',').unwrap_or(rest);
        body.push_str(rest.strip_suffix('}').unwrap_or(rest));
        for (name, number) in more {
            let comma = if body.len() > 1 { "," } else { "" };
            // A String takes whatever is written to it.
            let _ = write!(body, "{comma}\"{name}\":{number}");
        }
        body.push('}');
        (kind.to_owned(), Body::parse(body).unwrap_or_default())
    }

    /// The body that a text is, where it is one.
    pub(crate) fn parse(text: String) -> Option<Body> {
        let text = RawValue::from_string(text).ok()?;
        text.get().starts_with('{').then_some(Body(text))
    }

    /// Its text: a JSON object.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Its text, for a serializer that passes it on as it is.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// What it says, by name.
    pub fn entries(&self) -> Map<String, Value> {
        // Nothing but an object is ever put in.
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }

    /// What it says under a name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.entries().remove(name)
    }
}

impl From<Map<String, Value>> for Body {
    fn from(entries: Map<String, Value>) -> Body {
        // A map with string keys and finite numbers can always be written.
        to_raw_value(&entries).map_or_else(|_| Body(RawValue::NULL.to_owned()), Body)
    }
}

impl From<Box<RawValue>> for Body {
    /// Text from elsewhere is only trusted to be JSON: what is no object says nothing.
    fn from(text: Box<RawValue>) -> Body {
        if text.get().starts_with('{') { Body(text) } else { Body::default() }
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::from(Map::new())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for Body {
    /// Entry by entry, so that it can be flattened into what it belongs to.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Body, D::Error> {
        Map::deserialize(deserializer).map(Body::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_goes_in_comes_out_and_what_is_no_object_says_nothing() {
        let Value::Object(entries) = json!({ "max": 5, "by": "it \"quotes\"", "list": [1, null] })
        else {
            unreachable!("it is an object");
        };
        let body = Body::from(entries.clone());
        assert_eq!(body.entries(), entries);
        assert_eq!((body.get("max"), body.get("min")), (Some(json!(5)), None));
        assert_eq!(body.text(), r#"{"by":"it \"quotes\"","list":[1,null],"max":5}"#);
        let read: Body = serde_json::from_str(body.text()).unwrap();
        assert_eq!(read, body);
        let tagged = |what: Value, more: Option<u64>| {
            let (kind, body) = Body::tagged(&what, more.map(|number| ("used", number)).into_iter());
            (kind, body.text().to_owned())
        };
        let text = |kind: &str, body: &str| (kind.to_owned(), body.to_owned());
        assert_eq!(tagged(json!({ "type": "a" }), None), text("a", "{}"));
        assert_eq!(tagged(json!({ "type": "a" }), Some(1)), text("a", r#"{"used":1}"#));
        let nested = json!({ "type": "a", "x": { "y": "}" } });
        assert_eq!(tagged(nested, Some(1)), text("a", r#"{"x":{"y":"}"},"used":1}"#));
        assert_eq!(tagged(json!({ "a": "no type" }), Some(1)), text("", "{}"));
        for nothing in ["7", "[1]", "null", "\"{}\""] {
            let raw = RawValue::from_string(nothing.to_owned()).unwrap();
            assert_eq!(Body::from(raw).entries(), Map::new(), "{nothing}");
            assert_eq!(Body::parse(nothing.to_owned()), None, "{nothing}");
        }
        assert_eq!(Body::default().entries(), Map::new());
    }
}
