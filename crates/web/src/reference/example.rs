//! An example of what a schema allows.
use kernel::http::Checker;
use serde_json::{Map, Value, json};

use super::schema::{Schemas, forms, list};

const DEEPEST: usize = 5;

/// What is tried in the place of a text, until something fits its pattern and its length.
const TEXTS: &[&str] = &[
    "text",
    "ada@example.com",
    "https://example.com/",
    "#1d4ed8",
    "+493012345678",
    "+49.3012345678",
    "123456",
    "01a2b3c4-d5e6-7f80-9a0b-1c2d3e4f5061",
    "example.com",
    "acct:ada@example.com",
    "a-longer-text-of-thirty-two-chars",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "usd",
    "USD",
    "CH",
    "a",
];

impl<'a> Schemas<'a> {
    pub fn example(&self, schema: &'a Value) -> Value {
        self.example_at(schema, "", 0)
    }

    /// The name of a field says more than its type.
    pub fn example_of(&self, name: &str, schema: &'a Value) -> Value {
        self.example_at(schema, name, 0)
    }

    fn example_at(&self, schema: &'a Value, name: &str, depth: usize) -> Value {
        let (schema, _) = self.resolve(schema);
        let given =
            [&schema["example"], &schema["examples"][0], &schema["const"], &schema["enum"][0], &schema["default"]];
        if let Some(given) = given.into_iter().find(|value| !value.is_null()) {
            return given.clone();
        }
        if depth > DEEPEST {
            return Value::Null;
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find_map(|kind| kind.as_str().filter(|kind| *kind != "null")),
            kind => kind.as_str(),
        };
        match kind {
            Some("string") => json!(string(schema, name)),
            Some("integer" | "number") => match &schema["minimum"] {
                Value::Null => json!(1),
                least => least.clone(),
            },
            Some("boolean") => json!(true),
            Some("null") => Value::Null,
            Some("array") => json!([self.example_at(&schema["items"], name, depth + 1)]),
            _ => self.object(schema, depth),
        }
    }

    fn object(&self, schema: &'a Value, depth: usize) -> Value {
        let mut object = Map::new();
        for part in list(schema, "allOf") {
            if let Value::Object(fields) = self.example_at(part, "", depth + 1) {
                object.extend(fields);
            }
        }
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            object.insert(field.clone(), self.example_at(property, field, depth + 1));
        }
        let is_null = |form: &&Value| form["type"] != "null";
        match forms(schema).find(is_null).map(|form| self.example_at(form, "", depth + 1)) {
            Some(Value::Object(fields)) => {
                object.extend(fields);
                Value::Object(object)
            }
            Some(other) if object.is_empty() => other,
            _ => Value::Object(object),
        }
    }
}

fn string(schema: &Value, name: &str) -> &'static str {
    let first = match (schema["format"].as_str(), name) {
        (Some("uuid"), _) => "01a2b3c4-d5e6-7f80-9a0b-1c2d3e4f5061",
        (Some("date-time"), _) => "2026-01-31T10:00:00.000Z",
        (Some("date"), _) => "2026-01-31",
        (Some("email"), _) | (_, "email") => "ada@example.com",
        (Some("uri"), _) | (_, "url" | "uri" | "redirect_uri" | "redirectUris") => "https://example.com/",
        (_, "allowedOrigins") => "https://example.com",
        (_, "password" | "newPassword" | "currentPassword") => "correct horse battery staple",
        (_, "name") => "Ada",
        (_, "code") => "123456",
        (_, "currency") => "usd",
        (_, "countryCode") => "CH",
        _ => "text",
    };
    let checker = Checker::new(schema.clone()).ok();
    let fits = |text: &&&str| checker.as_ref().is_none_or(|checker| checker.allows(&json!(text)));
    [first].iter().chain(TEXTS).find(fits).copied().unwrap_or("text")
}
