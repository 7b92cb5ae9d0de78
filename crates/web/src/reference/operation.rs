//! One operation of the description, in the words of the reference.
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    schema::{Row, Schemas, list},
    text,
    who::{headers, who},
};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const JSON: &str = "application/json";

pub struct Reader<'a> {
    document: &'a Value,
    schemas: Schemas<'a>,
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
struct Body {
    kind: String,
    about: String,
    rows: Vec<Row>,
    example: String,
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
            for refusal in refusals(operation) {
                *counts.entry(refusal).or_default() += 1;
            }
        }
        counts.into_iter().filter(|(_, count)| count * 10 >= all * 9).map(|(refusal, _)| refusal).collect()
    }

    fn operation(&self, method: &str, path: &str, operation: &'a Value, everywhere: &[Refusal]) -> Operation {
        let body = self.body(operation);
        let mut refusals = refusals(operation);
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

    fn answers(&self, operation: &'a Value) -> Vec<Answer> {
        let mut answers = vec![];
        for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
            let contents: Vec<_> = answer["content"].as_object().into_iter().flatten().collect();
            let is_good = status.starts_with(['1', '2', '3']);
            let said = text(answer, "description").split("\n\n").next().unwrap_or_default();
            let about = if said.starts_with("- `") || said == "As it says." { "" } else { said };
            let put = |kind: &str, rows| Answer {
                status: status.clone(),
                kind: kind.to_owned(),
                about: about.to_owned(),
                rows,
            };
            if contents.is_empty() && is_good {
                answers.push(put("nothing", vec![]));
            }
            // A refusal has the form of all refusals; what else comes with such a status is an answer.
            for (kind, content) in contents.into_iter().filter(|_| is_good) {
                answers.push(put(kind, self.schemas.rows(&content["schema"])));
            }
        }
        answers
    }

    fn curl(&self, method: &str, path: &str, operation: &'a Value, body: Option<&Body>) -> String {
        let base = text(&self.document["servers"][0], "url");
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for parameter in list(operation, "parameters") {
            if parameter["in"] == "query" && parameter["required"] == true {
                let name = text(parameter, "name");
                query.append_pair(name, &plain(&self.schemas.example_of(name, &parameter["schema"])));
            }
        }
        let (query, path) = (query.finish(), placeholders(path));
        let address = if query.is_empty() { format!("{base}{path}") } else { format!("{base}{path}?{query}") };
        let mut lines = vec![format!("curl -X {} {}", method.to_uppercase(), quoted(&address))];
        lines.extend(headers(operation).into_iter().map(|(name, value)| format!("-H \"{name}: {value}\"")));
        if let Some(body) = body {
            lines.push(format!("-H {}", quoted(&format!("Content-Type: {}", body.kind))));
            lines.push(match body.kind.as_str() {
                "application/octet-stream" => "--data-binary @file".to_owned(),
                _ => format!("-d {}", quoted(&body.example)),
            });
        }
        lines.join(" \\\n  ")
    }

    fn attempt(&self, method: &str, path: &str, operation: &'a Value, body: Option<&Body>) -> Value {
        let fields = list(operation, "parameters").iter().map(|parameter| {
            let name = text(parameter, "name");
            // An id that is made up leads nowhere; a value that may be left out is left out.
            let is_known = parameter["required"] == true && parameter["in"] != "path";
            let example = self.schemas.example_of(name, &parameter["schema"]);
            json!({
                "name": name, "in": parameter["in"], "required": parameter["required"] == true,
                "value": if is_known { plain(&example) } else { String::new() },
            })
        });
        // Whoever is signed in here is known by their cookies.
        let by_header = headers(operation).into_iter().filter(|(_, value)| *value != "Bearer $TOKEN");
        let by_header = by_header.map(|(name, value)| {
            let (start, _) = value.split_once('$').unwrap_or_default();
            json!({ "name": name, "in": "header", "required": false, "value": "", "hint": format!("{start}…") })
        });
        json!({
            "method": method.to_uppercase(),
            "path": path,
            "fields": fields.chain(by_header).collect::<Vec<_>>(),
            "body": body.filter(|body| body.kind != "application/octet-stream")
                .map(|body| json!({ "type": body.kind, "text": body.example })),
        })
    }
}

/// The refusals of an operation, out of the lines in which the description lists them.
fn refusals(operation: &Value) -> Vec<Refusal> {
    let mut found = vec![];
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        for line in text(answer, "description").lines().filter_map(|line| line.strip_prefix("- `")) {
            if let Some((code, says)) = line.split_once("`: ") {
                found.push(Refusal { status: status.clone(), code: code.to_owned(), says: says.to_owned() });
            }
        }
    }
    found
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// As it stands in an address or a form.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.first().map(plain).unwrap_or_default(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// `/apps/APP_ID` for `/apps/{appId}`, because programs for the command line read braces in their own way.
fn placeholders(path: &str) -> String {
    let mut out = String::new();
    let mut is_name = false;
    for c in path.chars() {
        match c {
            '{' | '}' => is_name = c == '{',
            c if is_name && c.is_uppercase() => out.extend(['_', c]),
            c if is_name => out.extend(c.to_uppercase()),
            c => out.push(c),
        }
    }
    out
}

/// For a shell, which takes it to the letter.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
