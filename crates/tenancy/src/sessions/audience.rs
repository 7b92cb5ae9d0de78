//! Where a token counts: at one server or at several.
use std::{borrow::Cow, fmt};

use db::{FromValue, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// URLs of servers, or the id of one client. In a token a single one is a string and several are a list (RFC 7519,
/// 4.1.3); in a column they are separated by spaces, which no URL holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience(Vec<String>);

impl Audience {
    pub fn one(name: String) -> Self {
        Self(vec![name])
    }

    /// Makes an audience of servers; their order does not matter. `None` for no server at all.
    pub fn of(mut names: Vec<String>) -> Option<Self> {
        names.sort();
        names.dedup();
        (!names.is_empty()).then_some(Self(names))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|known| known == name)
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl From<&Audience> for Value {
    fn from(audience: &Audience) -> Self {
        audience.to_string().into()
    }
}

impl FromValue for Audience {
    fn from_value(value: Value) -> Option<Self> {
        let text = String::from_value(value)?;
        Some(Self(text.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect()))
    }
}

impl Serialize for Audience {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Audience {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OneOrSeveral {
            One(String),
            Several(Vec<String>),
        }
        Ok(match OneOrSeveral::deserialize(from)? {
            OneOrSeveral::One(name) => Self(vec![name]),
            OneOrSeveral::Several(names) => Self(names),
        })
    }
}

impl JsonSchema for Audience {
    fn schema_name() -> Cow<'static, str> {
        "Audience".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "array"], "maxLength": 2000, "items": { "type": "string", "maxLength": 2000 },
            "maxItems": 50,
        })
    }
    fn inline_schema() -> bool {
        true
    }
}
