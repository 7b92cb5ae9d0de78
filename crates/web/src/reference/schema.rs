//! A JSON schema, as rows that a person can read. References are followed; one that leads back to itself ends.
use serde::Serialize;
use serde_json::Value;

use super::text;

/// Deeper than anything a person would read in a table, and an end for whatever goes round in circles.
const DEEPEST: usize = 6;
const MOST_ROWS: usize = 250;

/// One field, by its whole name.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub depth: usize,
    pub kind: String,
    pub required: bool,
    pub about: String,
}

pub struct Schemas<'a>(pub &'a Value);

impl<'a> Schemas<'a> {
    /// What a reference leads to, and its name.
    pub fn resolve(&self, schema: &'a Value) -> (&'a Value, Option<&'a str>) {
        let (mut schema, mut name) = (schema, None);
        for _ in 0..DEEPEST {
            let Some(reference) = schema["$ref"].as_str() else { break };
            name = reference.strip_prefix("#/components/schemas/");
            schema = name.map_or(&Value::Null, |name| &self.0["components"]["schemas"][name]);
        }
        (schema, name)
    }

    /// The fields of an object, and theirs.
    pub fn rows(&self, schema: &'a Value) -> Vec<Row> {
        let mut rows = vec![];
        self.walk(schema, "", 0, &mut vec![], &mut rows);
        rows
    }

    fn walk(&self, schema: &'a Value, path: &str, depth: usize, inside: &mut Vec<&'a str>, rows: &mut Vec<Row>) {
        let (schema, name) = self.resolve(schema);
        if depth > DEEPEST || rows.len() >= MOST_ROWS || name.is_some_and(|name| inside.contains(&name)) {
            return;
        }
        inside.extend(name);
        for part in list(schema, "allOf") {
            self.walk(part, path, depth, inside, rows);
        }
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let required = list(schema, "required").iter().any(|name| name == field);
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            rows.push(self.row(&path, property, depth, required));
            self.walk(property, &path, depth + 1, inside, rows);
        }
        if schema["items"].is_object() {
            self.walk(&schema["items"], &format!("{path}[]"), depth, inside, rows);
        }
        if schema["additionalProperties"].is_object() {
            let path = if path.is_empty() { "*".to_owned() } else { format!("{path}.*") };
            rows.push(self.row(&path, &schema["additionalProperties"], depth, false));
            self.walk(&schema["additionalProperties"], &path, depth + 1, inside, rows);
        }
        let forms: Vec<_> = forms(schema).filter(|form| self.has_fields(form)).collect();
        for (number, form) in forms.iter().enumerate() {
            if forms.len() > 1 {
                let name = format!("{path} (form {} of {})", number + 1, forms.len()).trim().to_owned();
                let about = about(self.resolve(form).0);
                rows.push(Row { name, depth, kind: self.kind(form), required: false, about });
            }
            self.walk(form, path, depth, inside, rows);
        }
        if name.is_some() {
            inside.pop();
        }
    }

    fn row(&self, name: &str, property: &'a Value, depth: usize, required: bool) -> Row {
        Row { name: name.to_owned(), depth, kind: self.kind(property), required, about: self.about(property) }
    }

    fn has_fields(&self, schema: &'a Value) -> bool {
        let (schema, _) = self.resolve(schema);
        ["properties", "items", "allOf", "oneOf", "anyOf"].iter().any(|word| !schema[word].is_null())
    }

    /// What it is about: its own words, or those of what it refers to; and its limits.
    pub fn about(&self, schema: &'a Value) -> String {
        let own = about(schema);
        let (referred, _) = self.resolve(schema);
        let said = if own.is_empty() { about(referred) } else { own };
        [said, limits(referred)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// Of which kind it is, in a word or two.
    pub fn kind(&self, schema: &'a Value) -> String {
        self.kind_at(schema, 0)
    }

    fn kind_at(&self, schema: &'a Value, depth: usize) -> String {
        let (schema, _) = self.resolve(schema);
        if depth > DEEPEST {
            return "…".to_owned();
        }
        if !schema["const"].is_null() {
            return schema["const"].to_string();
        }
        if schema["enum"].is_array() {
            return either(list(schema, "enum").iter().map(Value::to_string));
        }
        let types: Vec<_> = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            many => many.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        if types.is_empty() {
            let kinds = forms(schema).chain(list(schema, "allOf")).map(|form| self.kind_at(form, depth + 1));
            let kinds = either(kinds);
            return if kinds.is_empty() { "anything".to_owned() } else { kinds };
        }
        let format = text(schema, "format");
        either(types.into_iter().map(|kind| match kind {
            "array" => format!("list of {}", self.kind_at(&schema["items"], depth + 1)),
            "string" if !format.is_empty() => format!("string ({format})"),
            "object" if schema["properties"].is_null() && schema["additionalProperties"].is_object() => {
                format!("object of {}", self.kind_at(&schema["additionalProperties"], depth + 1))
            }
            kind => kind.to_owned(),
        }))
    }
}

pub fn list<'a>(schema: &'a Value, word: &str) -> &'a [Value] {
    schema[word].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What it may look like, when that is more than one thing.
pub fn forms(schema: &Value) -> impl Iterator<Item = &Value> {
    list(schema, "oneOf").iter().chain(list(schema, "anyOf"))
}

/// Each once, in their order.
fn either(kinds: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = vec![];
    for kind in kinds {
        if !seen.contains(&kind) {
            seen.push(kind);
        }
    }
    seen.join(" or ")
}

fn about(schema: &Value) -> String {
    text(schema, "description").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn limits(schema: &Value) -> String {
    let between = |least: &str, most: &str, what: &str| match (&schema[least], &schema[most]) {
        (Value::Null, Value::Null) => None,
        (least, Value::Null) => Some(format!("At least {least}{what}.")),
        (Value::Null, most) => Some(format!("At most {most}{what}.")),
        (least, most) if least == most => Some(format!("Exactly {least}{what}.")),
        (least, most) => Some(format!("{least} to {most}{what}.")),
    };
    let pattern = schema["pattern"].as_str().map(|pattern| format!("Must match {pattern}"));
    let default = Some(&schema["default"]).filter(|value| !value.is_null());
    let said = [
        between("minLength", "maxLength", " characters"),
        between("minItems", "maxItems", " entries"),
        between("minimum", "maximum", ""),
        default.map(|value| format!("Left out: {value}.")),
        pattern,
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
