//! One operation of the description, in the words of the reference.
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    call::plain,
    schema::{Row, Schemas, list},
    text,
    who::who,
};

const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "options"];
const JSON: &str = "application/json";
/// How the names of what refusals look like begin, by the standards they keep to.
const REFUSALS: [&str; 3] = ["Problem", "OAuth", "Scim"];

pub struct Reader<'a> {
    pub(super) document: &'a Value,
    pub(super) schemas: Schemas<'a>,
}

/// A group, and where each of its operations is found.
#[derive(Serialize)]
pub struct Group {
    pub name: String,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    id: String,
    method: String,
    path: String,
    summary: String,
}

#[derive(Serialize)]
pub struct Operation {
    id: String,
    method: String,
    path: String,
    summary: String,
    about: String,
    who: String,
    parameters: Vec<Parameter>,
    body: Option<Body>,
    answers: Vec<Answer>,
    refusals: Vec<Refusal>,
    curl: String,
    /// For the script that makes a form of it, as JSON.
    attempt: String,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    place: String,
    kind: String,
    required: bool,
    about: String,
}

#[derive(Serialize)]
pub struct Body {
    pub(super) kind: String,
    about: String,
    rows: Vec<Row>,
    pub(super) example: String,
}

#[derive(Serialize)]
struct Answer {
    status: String,
    kind: String,
    about: String,
    rows: Vec<Row>,
}

#[derive(Serialize, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    status: String,
    code: String,
    says: String,
}

impl<'a> Reader<'a> {
    pub fn new(document: &'a Value) -> Self {
        Self { document, schemas: Schemas(document) }
    }

    fn all(&self) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
        let paths = self.document["paths"].as_object().into_iter().flatten();
        paths.flat_map(|(path, item)| {
            let here = METHODS.into_iter().filter(|method| item[method].is_object());
            here.map(move |method| (method, path.as_str(), &item[method]))
        })
    }

    fn of_group(&self, group: &str) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
        self.all().filter(move |(_, _, operation)| operation["tags"][0] == group)
    }

    pub fn groups(&self) -> Vec<Group> {
        let names = list(self.document, "tags").iter().map(|tag| text(tag, "name"));
        let group = |name: &str| {
            let entries = self.of_group(name).map(|(method, path, operation)| Entry {
                id: text(operation, "operationId").to_owned(),
                method: method.to_uppercase(),
                path: path.to_owned(),
                summary: text(operation, "summary").to_owned(),
            });
            Group { name: name.to_owned(), entries: entries.collect() }
        };
        names.map(group).collect()
    }

    pub fn operations(&self, group: &str) -> Vec<Operation> {
        let everywhere = self.everywhere();
        self.of_group(group)
            .map(|(method, path, operation)| self.operation(method, path, operation, &everywhere))
            .collect()
    }

    /// What the service itself sends, of a group.
    pub fn told(&self, group: &str) -> Vec<Value> {
        let told = self.document["webhooks"].as_object().into_iter().flatten();
        let told = told.filter(|(_, item)| item["post"]["tags"][0] == group).map(|(name, item)| {
            let operation = &item["post"];
            let content = &operation["requestBody"]["content"][JSON];
            json!({
                "name": name,
                "summary": text(operation, "summary"),
                "rows": self.schemas.rows(&content["schema"]),
                "example": pretty(&content["example"]),
            })
        });
        told.collect()
    }

    /// What nearly every operation can refuse with: said once, not with each.
    pub fn everywhere(&self) -> Vec<Refusal> {
        let mut counts: BTreeMap<Refusal, usize> = BTreeMap::new();
        let mut all = 0;
        for (_, _, operation) in self.all() {
            all += 1;
            for refusal in self.refusals(operation) {
                *counts.entry(refusal).or_default() += 1;
            }
        }
        counts.into_iter().filter(|(_, count)| count * 10 >= all * 9).map(|(refusal, _)| refusal).collect()
    }

    fn operation(&self, method: &str, path: &str, operation: &'a Value, everywhere: &[Refusal]) -> Operation {
        let body = self.body(operation);
        let mut refusals = self.refusals(operation);
        refusals.retain(|refusal| !everywhere.contains(refusal));
        Operation {
            id: text(operation, "operationId").to_owned(),
            method: method.to_uppercase(),
            path: path.to_owned(),
            summary: text(operation, "summary").to_owned(),
            about: text(operation, "description").to_owned(),
            who: who(operation),
            parameters: list(operation, "parameters").iter().map(|one| self.parameter(one)).collect(),
            answers: self.answers(operation),
            refusals,
            curl: self.curl(method, path, operation, body.as_ref()),
            attempt: self.attempt(method, path, operation, body.as_ref()).to_string(),
            body,
        }
    }

    fn parameter(&self, parameter: &'a Value) -> Parameter {
        let schema = &parameter["schema"];
        Parameter {
            name: text(parameter, "name").to_owned(),
            place: text(parameter, "in").to_owned(),
            kind: self.schemas.kind(schema).trim_end_matches(" or null").to_owned(),
            required: parameter["required"] == true,
            about: self.schemas.about(schema),
        }
    }

    /// JSON when it is taken, a form otherwise.
    fn body(&self, operation: &'a Value) -> Option<Body> {
        let contents = operation["requestBody"]["content"].as_object()?;
        let (kind, content) = contents.get_key_value(JSON).or_else(|| contents.iter().next())?;
        let schema = &content["schema"];
        let example = match content["example"].clone() {
            Value::Null => self.schemas.example(schema),
            given => given,
        };
        let example = match (kind.as_str(), &example) {
            ("application/x-www-form-urlencoded", Value::Object(fields)) => {
                let pairs = fields.iter().map(|(name, value)| (name, plain(value)));
                url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
            }
            ("application/octet-stream", _) => String::new(),
            _ => pretty(&example),
        };
        let about = self.schemas.about(schema);
        Some(Body { kind: kind.clone(), about, rows: self.schemas.rows(schema), example })
    }

    /// What an operation answers by status, also where it refers to what others answer too.
    fn responses(&self, operation: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let shared = &self.document["components"]["responses"];
        operation["responses"].as_object().into_iter().flatten().map(move |(status, answer)| {
            let name = answer["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/responses/"));
            (status, name.map_or(answer, |name| &shared[name]))
        })
    }

    /// The refusals of an operation, out of the lines in which the description lists them.
    fn refusals(&self, operation: &'a Value) -> Vec<Refusal> {
        let mut found = vec![];
        for (status, answer) in self.responses(operation) {
            for line in text(answer, "description").lines().filter_map(|line| line.strip_prefix("- `")) {
                if let Some((code, says)) = line.split_once("`: ") {
                    found.push(Refusal { status: status.clone(), code: code.to_owned(), says: says.to_owned() });
                }
            }
        }
        found
    }

    fn answers(&self, operation: &'a Value) -> Vec<Answer> {
        let mut answers = vec![];
        for (status, answer) in self.responses(operation) {
            let contents: Vec<_> = answer["content"].as_object().into_iter().flatten().collect();
            let is_good = status.starts_with(['1', '2', '3']);
            let said = text(answer, "description").split("\n\n").next().unwrap_or_default();
            let about = if said.starts_with("- `") || said == "OK" { "" } else { said };
            let put = |kind: &str, rows| Answer {
                status: status.clone(),
                kind: kind.to_owned(),
                about: about.to_owned(),
                rows,
            };
            if contents.is_empty() && is_good {
                answers.push(put("nothing", vec![]));
            }
            for (kind, content) in contents {
                let schema = &content["schema"];
                // Refusals are listed by their codes, and have the same form everywhere.
                let name = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/"));
                let is_refusal = name.is_some_and(|name| REFUSALS.iter().any(|form| name.starts_with(form)));
                if is_good || !(is_refusal || kind == "text/html") {
                    answers.push(put(kind, self.schemas.rows(schema)));
                }
            }
        }
        answers
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
