//! Tests of the whole program against the catalogue of routes: every route of `routes.txt` exists with its guard or
//! is listed in `to-come.txt`, and no other route exists.
mod admission;
mod app_sessions;
mod cases;
mod circles;
mod declared;
mod errors;
mod forms;
mod matrix;
mod owners;
mod paging;

use std::collections::BTreeMap;

use axum::http::Method;
use kernel::testing::TestJanua;
use serde_json::{Value, json};

use crate::start::features;

const ROUTES: &str = include_str!("routes.txt");
const BEYOND: &str = include_str!("beyond.txt");
const TO_COME: &str = include_str!("to-come.txt");
const ADD_ROUTES_HERE: &str = "crates/server/src/catalogue/beyond.txt";
/// The roles in an organization, the least first.
const ROLES: [&str; 3] = ["member", "admin", "owner"];
/// Method and path to guard.
fn catalogue() -> BTreeMap<(String, String), String> {
    let rows = lines(ROUTES).chain(lines(BEYOND)).map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(path), Some(guard), None) => ((method, path), guard),
            _ => panic!("not a row: {line}"),
        }
    });
    rows.collect()
}

/// The guard of a route that exists.
fn guard_of(catalogue: &BTreeMap<(String, String), String>, row: &(String, String)) -> String {
    let missing = || panic!("{} {} is not in the catalogue: add a row to {ADD_ROUTES_HERE}", row.0, row.1);
    // A row for any method stands for those that the path has.
    let any = ("ANY".to_owned(), row.1.clone());
    catalogue.get(row).or_else(|| catalogue.get(&any)).cloned().unwrap_or_else(missing)
}

fn to_come() -> Vec<(String, String)> {
    let rows = lines(TO_COME).map(|line| line.split_once(' ').unwrap_or_else(|| panic!("not a row: {line}")));
    rows.map(|(method, path)| (method.to_owned(), path.to_owned())).collect()
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty())
}

/// What the description must say for a guard; `None` for guards that no built route has yet.
fn security(guard: &str) -> Option<Value> {
    match guard {
        "public" | "signature" => Some(json!([])),
        "session" | "agent-admin" | "platform-owner" | "platform-admin" | "active-org-admin" | "org-member"
        | "org-admin" | "org-owner" | "app-member" | "app-admin" | "owning-org-admin" => {
            Some(json!([{ "bearer": [] }, { "cookie": [] }]))
        }
        "session-or-app-key" => Some(json!([{ "bearer": [] }, { "cookie": [] }, { "appKey": [] }])),
        "session-optional" => Some(json!([{}, { "bearer": [] }, { "cookie": [] }])),
        "app-key" => Some(json!([{ "appKey": [] }, { "clientBasic": [] }, {}])),
        "app-key-alone" => Some(json!([{ "appKey": [] }])),
        "session+app-key" | "session+app-key-member" | "session+app-key-admin" => {
            Some(json!([{ "appKey": [], "bearer": [] }, { "appKey": [], "cookie": [] }]))
        }
        "session-or-secret-key" => {
            Some(json!([{ "bearer": [] }, { "cookie": [] }, { "appKey": [] }, { "secretKey": [] }]))
        }
        "session-or-deploy-token" => Some(json!([
            { "bearer": [] }, { "cookie": [] }, { "appKey": [] }, { "secretKey": [] }, { "deployToken": [] }
        ])),
        "refresh" => Some(json!([{ "refreshCookie": [] }])),
        "scim" => Some(json!([{ "scimToken": [] }])),
        "session-or-machine" => Some(json!([{ "bearer": [] }, { "cookie": [] }, { "machineToken": [] }])),
        "machine" => Some(json!([{ "machineToken": [] }])),
        "session-or-kill-switch" => Some(json!([{ "bearer": [] }, { "cookie": [] }, { "killSwitch": [] }])),
        "this-machine" => Some(json!([{}, { "metricsToken": [] }])),
        _ => None,
    }
}

/// The least role that a guard asks for, as the description says it.
fn role(guard: &str) -> Option<&str> {
    let prefixes = ["org-", "app-", "session+app-key-"];
    let named = prefixes.iter().find_map(|prefix| guard.strip_prefix(prefix));
    let of_its_own = match guard {
        "platform-owner" | "platform-admin" => Some(guard),
        "session-or-secret-key" | "session-or-deploy-token" | "owning-org-admin" => Some("admin"),
        _ => None,
    };
    named.filter(|role| ROLES.contains(role)).or(of_its_own)
}

/// Method and path to operation, out of the description.
fn built(description: &Value) -> BTreeMap<(String, String), Value> {
    let paths = description["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(move |(method, operation)| ((method.to_uppercase(), path.clone()), operation.clone()))
    });
    operations.collect()
}

#[test]
fn the_catalogue_is_whole_and_no_row_stands_twice() {
    let (catalogue, to_come) = (catalogue(), to_come());
    assert_eq!(lines(ROUTES).count(), 218);
    assert_eq!(catalogue.len(), 218 + lines(BEYOND).count(), "no row stands twice");
    for row in &to_come {
        assert!(catalogue.contains_key(row), "{row:?} is not in the catalogue");
    }
}

#[tokio::test]
async fn every_route_is_in_the_catalogue_with_its_guard_and_every_row_is_built_or_to_come() {
    let t = TestJanua::start(features).await;
    let (catalogue, to_come) = (catalogue(), to_come());
    let built = built(&t.janua.description.get().expect("the description is there").value());
    for (row, operation) in &built {
        let guard = &guard_of(&catalogue, row);
        assert!(!to_come.contains(row), "{row:?} is built: take it off the list of what is to come");
        let expected =
            security(guard).unwrap_or_else(|| panic!("{row:?}: say what {guard} means in the description"));
        let said = operation.get("security").cloned().unwrap_or_default();
        assert_eq!(said, expected, "{row:?} is not guarded as {guard}");
        assert_eq!(operation["x-role"].as_str(), role(guard), "{row:?} does not ask for the role of {guard}");
        let is_of_app = role(guard).is_some()
            && (guard.starts_with("app-")
                || ["session-or-secret-key", "session-or-deploy-token"].contains(&guard.as_str()));
        assert_eq!(is_of_app, row.1.starts_with("/apps/{appId}"), "{row:?} is guarded as {guard}");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{row:?} has no description");
    }
    for row in catalogue.keys() {
        let is_any = row.0 == "ANY" && built.keys().any(|(_, path)| *path == row.1);
        assert!(built.contains_key(row) || is_any || to_come.contains(row), "{row:?} is neither built nor to come");
    }
    t.finish().await;
}

#[tokio::test]
async fn the_description_is_small_and_lists_the_codes_of_every_refusal() {
    let t = TestJanua::start(features).await;
    let documents = t.janua.description.get().expect("the description is there");
    let document = documents.value();
    let built = built(&document);
    let size = document.to_string().len();
    assert!(size < built.len() * 2_200, "{size} bytes for {} operations", built.len());
    let component = |value: &Value| {
        let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        path.map_or(value.clone(), |path| document.pointer(path).expect("it leads somewhere").clone())
    };
    for (row, operation) in &built {
        let named: Vec<_> = operation["parameters"].as_array().into_iter().flatten().collect();
        let is_twice = |one: &Value| named.iter().filter(|other| other["name"] == one["name"]).count() > 1;
        assert!(!named.iter().any(|one| is_twice(one)), "{row:?} names a parameter twice");
        let answers = operation["responses"].as_object().expect("answers");
        assert!(answers.keys().any(|status| status.starts_with(['2', '3'])), "{row:?} never succeeds");
        for (status, answer) in answers {
            let answer = component(answer);
            assert!(answer["description"].as_str().is_some_and(|text| !text.is_empty()), "{row:?} {status}");
            let problem = component(&answer["content"]["application/problem+json"]["schema"]);
            let Some(codes) = problem["allOf"][1]["properties"]["code"]["enum"].as_array() else {
                assert!(problem.is_null(), "{row:?} {status} does not list its codes");
                continue;
            };
            for code in codes.iter().filter_map(Value::as_str) {
                let says = answer["description"].as_str().is_some_and(|text| text.contains(&format!("- `{code}`: ")));
                let known = &document["x-problems"][code]["title"];
                assert!(says && known.is_string(), "{row:?} {status} {code}");
            }
        }
    }
    // Generators do not understand a schema that is `true`: a word about the field makes it an object.
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        for (field, of) in schema["properties"].as_object().into_iter().flatten() {
            assert!(of.is_object(), "{field} of {name} has no description");
        }
    }
    let app = &document["components"]["schemas"]["NewApp"];
    assert_eq!(app["required"], json!(["name"]), "what may be left out is not required");
    assert!(app["properties"]["redirectUris"]["default"].is_null(), "nor taken for it by generators");
    let export = &document["paths"]["/account/data/export"]["get"]["responses"]["200"]["content"];
    assert_eq!(export["application/json"]["schema"]["$ref"], "#/components/schemas/Export");
    t.finish().await;
}

#[tokio::test]
async fn without_credentials_a_public_route_answers_and_a_guarded_one_does_not() {
    let t = TestJanua::start(features).await;
    let catalogue = catalogue();
    for (method, path) in built(&t.janua.description.get().expect("the description is there").value()).keys() {
        let guard = &guard_of(&catalogue, &(method.clone(), path.clone()));
        let method: Method = method.parse().expect("a method");
        let path = path.replace(['{', '}'], "");
        let answer = t.ask(method.clone(), &path).from("192.0.2.1").await;
        let is_open = ["public", "session-optional", "signature"].contains(&guard.as_str());
        assert_eq!(answer.status == 401, !is_open, "{method} {path} ({guard}) answered {}", answer.status);
    }
    t.finish().await;
}

#[tokio::test]
async fn what_is_to_come_is_not_there() {
    let t = TestJanua::start(features).await;
    for (method, path) in to_come().into_iter().filter(|(method, _)| method != "ANY") {
        let path = path.replace(['{', '}'], "");
        let answer = t.ask(method.parse().expect("a method"), &path).await;
        assert!(matches!(answer.status, 404 | 405), "{method} {path} answered {}", answer.status);
    }
    t.finish().await;
}
