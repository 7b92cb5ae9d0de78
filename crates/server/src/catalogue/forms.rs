//! Every form of the pages leads to a route. A form of the account or the console names a request (`call`) that the
//! interface has, and each of its fields is one that the request knows: a typo would be found only when somebody presses
//! the button.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kernel::testing::TestJanua;
use serde_json::Value;

use super::built;
use crate::start::features;

/// Fields that `/act` reads itself.
const OF_ACT: [&str; 9] = ["call", "back", "form", "then", "show", "captcha", "done", "shown", "once"];
/// The macros of `parts/forms.html` that draw a control. Their first argument is its name.
const CONTROLS: [&str; 6] = ["field", "password", "area", "choose", "choices", "check"];

/// Templates by the name under which others include them.
fn templates() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/templates");
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).expect("a folder of templates");
        let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a template").path()).collect();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).expect("below it").display().to_string();
                found.insert(name, fs::read_to_string(path).expect("a text"));
            }
        }
    }
    found
}

/// What stands between two words, wherever the first one occurs.
fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split_once(end).map(|(inside, _)| inside))
}

/// An expression such as `"/apps/" ~ app.id ~ "/keys"`, with `{}` for what only a page knows. A name that the template sets
/// to such an expression stands for it.
fn written_out(expression: &str, template: &str) -> String {
    let parts = expression.split('~').map(str::trim).map(|part| {
        if let Some(text) = part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
            return text.to_owned();
        }
        let set = format!("set {part} = \"");
        let value = between(template, &set, "%}").next();
        value.map_or("{}".to_owned(), |value| {
            written_out(&format!("\"{}", value.trim_end_matches('-').trim()), template)
        })
    });
    parts.collect()
}

/// The request that a form names.
fn call(form: &str, template: &str) -> Option<(String, String)> {
    let expression = between(form, "{% with call=", ", form=").next();
    let call = match expression {
        Some(expression) => written_out(expression, template),
        None => between(form, "name=\"call\" value=\"", "\"").next()?.to_owned(),
    };
    call.split_once(' ').map(|(method, path)| (method.to_owned(), path.to_owned()))
}

/// The names of a form's controls.
fn fields(form: &str, templates: &BTreeMap<String, String>) -> Vec<String> {
    let included = between(form, "{% include \"", "\"").filter(|name| *name != "act.html");
    let text = included.fold(form.to_owned(), |text, name| text + &templates[name]);
    let mut names: Vec<String> = between(&text, " name=\"", "\"").map(str::to_owned).collect();
    for control in CONTROLS {
        for start in ["{{ ", "{{- "].map(|open| format!("{open}{control}(")) {
            for arguments in text.split(&start).skip(1) {
                let first = arguments.strip_prefix("name=").unwrap_or(arguments);
                let name = first.strip_prefix('"').and_then(|rest| rest.split_once('"'));
                names.push(name.map_or("password", |(name, _)| name).to_owned());
            }
        }
    }
    names.retain(|name| !OF_ACT.contains(&name.as_str()) && !name.ends_with(":body"));
    names
}

/// The schema behind references, and beside `null`.
fn resolved<'a>(schema: &'a Value, description: &'a Value) -> &'a Value {
    if let Some(path) = schema["$ref"].as_str() {
        return resolved(description.pointer(&path[1..]).expect("a schema"), description);
    }
    match schema["anyOf"].as_array().and_then(|choices| choices.iter().find(|choice| choice["type"] != "null")) {
        Some(choice) => resolved(choice, description),
        None => schema,
    }
}

/// Whether a schema has a field, such as `name`, `events:list` or `branding.color`.
fn knows(schema: &Value, field: &str, description: &Value) -> bool {
    let schema = resolved(schema, description);
    let (name, inner) = match field.split(':').next().unwrap_or_default().split_once('.') {
        Some((record, name)) => (record, Some(name)),
        None => (field.split(':').next().unwrap_or_default(), None),
    };
    match (schema["properties"].get(name), inner) {
        (Some(record), Some(inner)) => knows(record, inner, description),
        (found, _) => found.is_some() || schema["additionalProperties"] == true,
    }
}

#[tokio::test]
async fn every_form_leads_to_a_route_that_knows_its_fields() {
    let t = TestJanua::start(features).await;
    let description = t.janua.description.get().expect("the description").value();
    let routes = built(&description);
    // By the path with `{}` for each parameter, as forms write it.
    let blank = |path: &str| {
        let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
        segments.collect::<Vec<_>>().join("/")
    };
    let operations: BTreeMap<(String, String), &Value> =
        routes.iter().map(|((method, path), operation)| ((method.clone(), blank(path)), operation)).collect();
    let templates = templates();
    let (mut wrong, mut acts) = (vec![], 0);
    for (name, template) in &templates {
        for form in between(template, "<form", "</form>") {
            let action = between(form, "action=\"", "\"").next().unwrap_or_default();
            if action != "/act" {
                let method = between(form, "method=\"", "\"").next().unwrap_or_default().to_uppercase();
                let is_known = !action.starts_with('/') || operations.contains_key(&(method.clone(), action.into()));
                wrong.extend((!is_known).then(|| format!("{name}: no route {method} {action}")));
                continue;
            }
            acts += 1;
            let Some(request) = call(form, template) else {
                wrong.push(format!("{name}: a form without a call: {form}"));
                continue;
            };
            let Some(operation) = operations.get(&request) else {
                wrong.push(format!("{name}: no route {} {}", request.0, request.1));
                continue;
            };
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let unknown = fields(form, &templates).into_iter().filter(|field| !knows(schema, field, &description));
            wrong.extend(unknown.map(|field| format!("{name}: {} {} knows no {field}", request.0, request.1)));
        }
    }
    assert!(acts > 40, "only {acts} forms were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
    t.finish().await;
}
