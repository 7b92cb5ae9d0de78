//! Shared responses of the description: many operations answer the same refusals, so each kind stands once among the
//! components, with the codes it can have as an enumeration, and operations refer to it.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::wording::Wording;
use crate::crypto;

/// A name lists this many codes; where there are more, a part of their hash stands for the rest. Operations refer to it
/// thousands of times, so it is short.
const MOST_NAMED: usize = 1;

/// The codes of one status, and what each says.
pub(super) type Codes = BTreeMap<String, String>;

#[derive(Default)]
pub(super) struct Shared {
    pub(super) responses: Map<String, Value>,
    pub(super) schemas: Map<String, Value>,
}

impl Shared {
    /// A refusal with one of these codes. `answer` is what the operation answers with this status besides.
    pub(super) fn refuse(&mut self, mut answer: Value, wording: &dyn Wording, status: u16, codes: &Codes) -> Value {
        let lines: Vec<_> = codes.iter().map(|(name, says)| format!("- `{name}`: {says}")).collect();
        let before = answer["description"].as_str().map(|text| format!("{text}\n\n")).unwrap_or_default();
        answer["description"] = json!(format!("{before}{}", lines.join("\n")));
        let name = name_of(wording, status, codes);
        let schema = self.schema(&name, wording, status, codes);
        answer["content"][wording.content_type()] = json!({ "schema": schema });
        self.share(name, answer)
    }

    /// A refusal that is a page, and has no code.
    pub(super) fn share_page(&mut self, status: &str, answer: Value) -> Value {
        self.share(format!("Refused{status}"), answer)
    }

    /// Puts a response among the components, under its name and what else it can be; answers a reference to it.
    pub(super) fn share(&mut self, mut name: String, answer: Value) -> Value {
        if !answer["content"]["text/html"].is_null() {
            name.push_str("Page");
        }
        // The same codes with other words (a body that must be a form, and not JSON) are another response.
        if self.responses.get(&name).is_some_and(|known| known["description"] != answer["description"]) {
            name.push_str(&short_hash(answer["description"].as_str().unwrap_or_default()));
        }
        match self.responses.get(&name) {
            None => {
                self.responses.insert(name.clone(), answer);
            }
            Some(known) if *known == answer => {}
            // The body of its own that one operation has with this status.
            Some(_) => return answer,
        }
        json!({ "$ref": format!("#/components/responses/{name}") })
    }

    /// The form of refusals in this wording, narrowed to what these codes can say.
    fn schema(&mut self, name: &str, wording: &dyn Wording, status: u16, codes: &Codes) -> Value {
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let words: Vec<_> = codes.keys().map(|code| wording.word(code, status)).collect();
        let known: BTreeSet<_> = words.iter().flatten().collect();
        if known.is_empty() {
            return reference(wording.schema_name());
        }
        let mut narrowed =
            json!({ "type": "object", "properties": { wording.member(): { "type": "string", "enum": known } } });
        if words.iter().all(Option::is_some) {
            narrowed["required"] = json!([wording.member()]);
        }
        let schema = json!({ "allOf": [reference(wording.schema_name()), narrowed] });
        self.schemas.insert(name.to_owned(), schema);
        reference(name)
    }
}

/// Made of the status and the codes alone, so that it stays the same while these do.
fn name_of(wording: &dyn Wording, status: u16, codes: &Codes) -> String {
    let form = wording.schema_name().trim_end_matches("Error");
    let mut name = format!("{form}{status}");
    for code in codes.keys().take(MOST_NAMED) {
        for word in code.split('_') {
            let (first, rest) = word.split_at_checked(1).unwrap_or_default();
            name.push_str(&first.to_uppercase());
            name.push_str(rest);
        }
    }
    if codes.len() > MOST_NAMED {
        let all: Vec<_> = codes.keys().map(String::as_str).collect();
        name.push_str(&short_hash(&all.join(" ")));
    }
    name
}

fn short_hash(text: &str) -> String {
    crypto::hash(text.as_bytes()).chars().take(4).collect()
}

/// Takes out schemas that nothing refers to: those of paths and queries are spelled out where they are asked for.
pub(super) fn forget_unused(document: &mut Value) {
    let mut used = BTreeSet::new();
    let mut open: Vec<Value> = vec![];
    for part in ["paths", "webhooks"] {
        open.push(document[part].clone());
    }
    open.push(document["components"]["responses"].clone());
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    while let Some(part) = open.pop() {
        let mut names = vec![];
        references(&part, &mut names);
        for name in names {
            if let Some(schema) = schemas.get(&name).filter(|_| !used.contains(&name)) {
                open.push(schema.clone());
                used.insert(name);
            }
        }
    }
    schemas.retain(|name, _| used.contains(name));
}

fn references(part: &Value, names: &mut Vec<String>) {
    match part {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str);
            names.extend(name.and_then(|name| name.strip_prefix("#/components/schemas/")).map(str::to_owned));
            fields.values().for_each(|field| references(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}

/// Says in words what a member of a body is when it is left out. Generators take a member with a `default` for one that is
/// always there, and demand it of those who send it.
pub(super) fn say_defaults(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            let Some(default) = property.remove("default") else { continue };
            let is_empty = [json!(null), json!(false), json!([]), json!({}), json!("")].contains(&default);
            if !is_empty {
                let before = property.get("description").and_then(Value::as_str).unwrap_or_default();
                let said = format!("{before} Default: {default}.");
                property.insert("description".into(), json!(said.trim_start()));
            }
        }
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(say_defaults),
        Value::Array(items) => items.iter_mut().for_each(say_defaults),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wording::{PROBLEMS, tests::Letters};

    fn codes(names: &[&str]) -> Codes {
        names.iter().map(|name| ((*name).to_owned(), format!("It is {name}."))).collect()
    }

    #[test]
    fn refusals_that_are_alike_stand_once_and_list_their_codes() {
        let mut shared = Shared::default();
        let first = shared.refuse(json!({}), PROBLEMS, 404, &codes(&["not_found"]));
        assert_eq!(first, json!({ "$ref": "#/components/responses/Problem404NotFound" }));
        assert_eq!(shared.refuse(json!({}), PROBLEMS, 404, &codes(&["not_found"])), first);
        let page = json!({ "content": { "text/html": {} } });
        let page = shared.refuse(page, PROBLEMS, 404, &codes(&["not_found"]));
        assert_eq!(page["$ref"], "#/components/responses/Problem404NotFoundPage");
        let mut form = codes(&["not_found"]);
        form.insert("not_found".into(), "Otherwise.".into());
        let form = shared.refuse(json!({}), PROBLEMS, 404, &form);
        let form = form["$ref"].as_str().unwrap();
        assert!(form.starts_with("#/components/responses/Problem404NotFound") && form.len() > 41, "{form}");
        let own = json!({ "content": { "application/json": { "schema": { "type": "object" } } } });
        let own = shared.refuse(own, PROBLEMS, 404, &codes(&["not_found"]));
        assert!(own["content"]["application/json"].is_object() && own["$ref"].is_null(), "{own}");
        let schema = &shared.schemas["Problem404NotFound"]["allOf"];
        assert_eq!(schema[1]["properties"]["code"]["enum"], json!(["not_found"]));
        assert_eq!(schema[1]["required"], json!(["code"]));
        assert_eq!((shared.responses.len(), shared.schemas.len()), (3, 1));
    }

    #[test]
    fn a_refusal_says_what_its_standard_says() {
        let mut shared = Shared::default();
        shared.refuse(json!({}), &Letters, 400, &codes(&["invalid", "malformed", "invalid_grant"]));
        let narrowed = |shared: &Shared, start: &str| {
            let schema = shared.schemas.iter().find(|(name, _)| name.starts_with(start));
            schema.unwrap().1["allOf"][1].clone()
        };
        let schema = narrowed(&shared, "Letter400Invalid");
        assert_eq!(schema["properties"]["letter"]["enum"], json!(["invalid_grant", "x"]));
        shared.refuse(json!({}), &Letters, 409, &codes(&["uniqueness", "conflict"]));
        let schema = narrowed(&shared, "Letter409Conflict");
        assert_eq!(
            (&schema["properties"]["letter"]["enum"], &schema["required"]),
            (&json!(["uniqueness"]), &json!(null))
        );
        shared.refuse(json!({}), &Letters, 409, &codes(&["conflict"]));
        assert_eq!(
            shared.responses["Letter409Conflict"]["content"]["application/letters+json"]["schema"]["$ref"],
            "#/components/schemas/LetterError"
        );
        let long = name_of(PROBLEMS, 400, &codes(&["a", "b_c", "d", "e"]));
        assert!(long.starts_with("Problem400A") && long.len() == "Problem400A".len() + 4, "{long}");
        assert_ne!(long, name_of(PROBLEMS, 400, &codes(&["a", "b_c", "d", "f"])));
    }

    #[test]
    fn a_default_is_said_and_does_not_make_a_member_required() {
        let mut schema = json!({ "properties": {
            "list": { "type": "array", "default": [] },
            "deep": { "properties": { "wait": { "description": "In seconds.", "default": 5 } } },
            "default": { "type": "string" },
        } });
        say_defaults(&mut schema);
        assert_eq!(
            schema,
            json!({ "properties": {
            "list": { "type": "array" },
            "deep": { "properties": { "wait": { "description": "In seconds. Default: 5." } } },
            "default": { "type": "string" },
        } })
        );
    }

    #[test]
    fn only_schemas_that_something_refers_to_are_kept() {
        let mut document = json!({
            "paths": { "/x": { "$ref": "#/components/schemas/A" } },
            "components": { "schemas": { "A": { "items": { "$ref": "#/components/schemas/B" } }, "B": {}, "C": {
                "$ref": "#/components/schemas/C" } } },
        });
        forget_unused(&mut document);
        let kept: Vec<_> = document["components"]["schemas"].as_object().unwrap().keys().collect();
        assert_eq!(kept, ["A", "B"]);
    }
}
