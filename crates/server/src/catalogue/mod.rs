//! The catalogue test: every route the product promises is there with the guard it promises, or stands on the list of
//! those still to come; and nothing else is there.
mod app_sessions;
mod errors;

use std::collections::BTreeMap;

use axum::http::Method;
use kernel::testing::TestApp;
use serde_json::{Value, json};

use crate::start::features;

const ROUTES: &str = include_str!("routes.txt");
const TO_COME: &str = include_str!("to-come.txt");
/// Lower this with every route that is built; raising it is not allowed.
const STILL_TO_COME: usize = 101;
/// Routes beyond the catalogue, with their guards.
const BEYOND: &[(&str, &str, &str)] = &[
    ("POST", "/auth/verify", "public"),
    ("PATCH", "/auth/passkey/{credentialId}", "session"),
    ("POST", "/auth/mfa/sms/code", "session"),
    ("GET", "/auth/trusted-devices", "session"),
    ("DELETE", "/auth/trusted-devices", "session"),
    ("DELETE", "/auth/trusted-devices/{id}", "session"),
    ("GET", "/org/{id}/invites", "org-admin"),
    ("POST", "/org/{id}/scim-tokens", "org-admin"),
    ("GET", "/org/{id}/scim-tokens", "org-admin"),
    ("DELETE", "/org/{id}/scim-tokens/{tokenId}", "org-admin"),
    ("GET", "/org/{id}/scim-groups", "org-admin"),
    ("PATCH", "/org/{id}/scim-groups/{groupId}", "org-admin"),
    ("GET", "/scim/v2/Schemas/{id}", "public"),
    ("GET", "/scim/v2/ResourceTypes/{id}", "public"),
    ("POST", "/scim/v2/.search", "scim"),
    ("POST", "/scim/v2/Users/.search", "scim"),
    ("POST", "/scim/v2/Groups", "scim"),
    ("POST", "/scim/v2/Groups/.search", "scim"),
    ("PUT", "/scim/v2/Groups/{id}", "scim"),
    ("PATCH", "/scim/v2/Groups/{id}", "scim"),
    ("DELETE", "/scim/v2/Groups/{id}", "scim"),
    ("GET", "/oauth/userinfo", "session"),
    ("POST", "/oauth/userinfo", "session"),
    ("GET", "/files/pictures/{name}", "public"),
    ("PUT", "/files/incoming/{name}", "public"),
    ("GET", "/auth/consents", "session"),
    ("DELETE", "/auth/consents/{id}", "session"),
    ("GET", "/.well-known/oauth-authorization-server", "public"),
    ("GET", "/.well-known/change-password", "public"),
    ("GET", "/.well-known/passkey-endpoints", "public"),
    ("POST", "/oauth/authorize", "public"),
    ("GET", "/oauth/logout", "session-optional"),
    ("POST", "/oauth/logout", "session-optional"),
    ("GET", "/consent", "session-optional"),
    ("POST", "/consent", "session-optional"),
    ("GET", "/assets/{name}", "public"),
    ("GET", "/assets/brand/{name}", "public"),
    ("GET", "/favicon.ico", "public"),
    ("GET", "/reference", "public"),
    ("GET", "/reference/{tag}", "public"),
    ("POST", "/apps/{appId}/logo/upload-url", "org-admin"),
    ("DELETE", "/apps/{appId}/logo", "org-admin"),
    ("GET", "/sign-in", "public"),
    ("POST", "/sign-in", "public"),
    ("POST", "/sign-in/factor", "public"),
    ("POST", "/sign-in/with", "public"),
    ("GET", "/sign-in/{provider}", "public"),
    ("POST", "/sign-in/{provider}", "public"),
    ("POST", "/sign-in/link", "public"),
    ("GET", "/auth/magic-link/verify", "public"),
    ("POST", "/sign-in/follow", "public"),
    ("GET", "/sign-up", "public"),
    ("POST", "/sign-up", "public"),
    ("GET", "/auth/accept-invite", "session-optional"),
    ("POST", "/accept-invite", "session-optional"),
    ("GET", "/forgot-password", "public"),
    ("POST", "/forgot-password", "public"),
    ("GET", "/auth/reset-password", "public"),
    ("POST", "/reset-password", "public"),
    ("GET", "/device", "session-optional"),
    ("POST", "/device", "session-optional"),
    ("POST", "/device/decide", "session-optional"),
    ("POST", "/webhooks/{id}/test", "session+app-key-admin"),
    ("POST", "/webhooks/{id}/deliveries/{deliveryId}/redeliver", "session+app-key-admin"),
    ("POST", "/webhooks/{id}/recover", "session+app-key-admin"),
    ("GET", "/account", "session-optional"),
    ("GET", "/account/security", "session-optional"),
    ("GET", "/account/sessions", "session-optional"),
    ("GET", "/account/apps", "session-optional"),
    ("GET", "/account/activity", "session-optional"),
    ("GET", "/account/data", "session-optional"),
    ("GET", "/account/data/export", "session-optional"),
    ("GET", "/console", "session-optional"),
    ("GET", "/console/orgs/{id}", "session-optional"),
    ("GET", "/console/orgs/{id}/members", "session-optional"),
    ("GET", "/console/orgs/{id}/scim", "session-optional"),
    ("GET", "/console/orgs/{id}/activity", "session-optional"),
    ("GET", "/console/apps/{appId}", "session-optional"),
    ("GET", "/console/apps/{appId}/keys", "session-optional"),
    ("GET", "/console/apps/{appId}/users", "session-optional"),
    ("GET", "/console/apps/{appId}/domain", "session-optional"),
    ("GET", "/console/apps/{appId}/webhooks", "session-optional"),
    ("GET", "/console/apps/{appId}/webhooks/{webhookId}", "session-optional"),
    ("GET", "/console/platform", "session-optional"),
    ("GET", "/console/platform/abuse", "session-optional"),
    ("GET", "/console/platform/incidents", "session-optional"),
    ("GET", "/console/design", "session-optional"),
    ("GET", "/console/outbox", "session-optional"),
    ("GET", "/console/outbox/{id}", "session-optional"),
    ("GET", "/console/outbox/{id}/body", "session-optional"),
    ("POST", "/act", "session-optional"),
    ("GET", "/first-owner", "public"),
    ("POST", "/first-owner", "public"),
    ("GET", "/apps/{appId}/webhooks/{webhookId}", "session"),
    ("PATCH", "/apps/{appId}/webhooks/{webhookId}", "session"),
    ("GET", "/apps/{appId}/webhooks/{webhookId}/deliveries", "session"),
    ("POST", "/apps/{appId}/webhooks/{webhookId}/test", "session"),
    ("POST", "/apps/{appId}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver", "session"),
    ("POST", "/apps/{appId}/webhooks/{webhookId}/recover", "session"),
    ("GET", "/org/{id}/audit-log", "org-admin"),
    ("GET", "/admin/queues", "platform-owner"),
    ("GET", "/admin/signing-keys", "platform-owner"),
    ("GET", "/admin/outbox", "platform-owner"),
    ("GET", "/admin/outbox/{id}", "platform-owner"),
];

/// Method and path to guard.
fn catalogue() -> BTreeMap<(String, String), String> {
    let rows = lines(ROUTES).map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(method), Some(path), Some(guard), None) => ((method, path), guard),
            _ => panic!("not a row: {line}"),
        }
    });
    let beyond = BEYOND.iter().map(|(method, path, guard)| (((*method).into(), (*path).into()), (*guard).into()));
    rows.chain(beyond).collect()
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
        "public" => Some(json!([])),
        "session" | "platform-owner" | "org-member" | "org-admin" | "org-owner" => {
            Some(json!([{ "bearer": [] }, { "cookie": [] }]))
        }
        "session-optional" => Some(json!([{}, { "bearer": [] }, { "cookie": [] }])),
        "app-key" => Some(json!([{ "appKey": [] }, { "clientBasic": [] }, {}])),
        "session+app-key-member" | "session+app-key-admin" => {
            Some(json!([{ "appKey": [], "bearer": [] }, { "appKey": [], "cookie": [] }]))
        }
        "refresh" => Some(json!([{ "refreshCookie": [] }])),
        "scim" => Some(json!([{ "scimToken": [] }])),
        "this-machine" => Some(json!([{}, { "metricsToken": [] }])),
        _ => None,
    }
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
fn the_catalogue_is_whole_and_the_list_of_what_is_to_come_only_shrinks() {
    let (catalogue, to_come) = (catalogue(), to_come());
    assert_eq!(lines(ROUTES).count(), 218);
    assert_eq!(catalogue.len(), 218 + BEYOND.len(), "no row stands twice");
    assert_eq!(to_come.len(), STILL_TO_COME, "lower STILL_TO_COME when you build a route");
    for row in &to_come {
        assert!(catalogue.contains_key(row), "{row:?} is not in the catalogue");
    }
}

#[tokio::test]
async fn every_route_is_in_the_catalogue_with_its_guard_and_every_row_is_built_or_to_come() {
    let t = TestApp::start(features).await;
    let (catalogue, to_come) = (catalogue(), to_come());
    let built = built(&t.app.description.get().expect("the description is there").value());
    for (row, operation) in &built {
        let guard = catalogue.get(row).unwrap_or_else(|| panic!("{row:?} is routed and not in the catalogue"));
        assert!(!to_come.contains(row), "{row:?} is built: take it off the list of what is to come");
        let expected =
            security(guard).unwrap_or_else(|| panic!("{row:?}: say what {guard} means in the description"));
        let said = operation.get("security").cloned().unwrap_or_default();
        assert_eq!(said, expected, "{row:?} is not guarded as {guard}");
        if let Some(role) = guard.strip_prefix("org-").or_else(|| guard.strip_prefix("session+app-key-")) {
            assert_eq!(operation["x-role"], role, "{row:?}");
        }
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{row:?} has no description");
    }
    for row in catalogue.keys() {
        assert!(built.contains_key(row) || to_come.contains(row), "{row:?} is neither built nor to come");
    }
    t.finish().await;
}

#[tokio::test]
async fn the_description_is_small_and_lists_the_codes_of_every_refusal() {
    let t = TestApp::start(features).await;
    let documents = t.app.description.get().expect("the description is there");
    let document = documents.value();
    let built = built(&document);
    let size = document.to_string().len();
    assert!(size < built.len() * 2_200, "{size} bytes for {} operations", built.len());
    let component = |value: &Value| {
        let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        path.map_or(value.clone(), |path| document.pointer(path).expect("it leads somewhere").clone())
    };
    for (row, operation) in &built {
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
    let app = &document["components"]["schemas"]["NewApp"];
    assert_eq!(app["required"], json!(["name"]), "what may be left out is not required");
    assert!(app["properties"]["redirectUris"]["default"].is_null(), "nor taken for it by generators");
    let export = &document["paths"]["/account/data/export"]["get"]["responses"]["200"]["content"];
    assert_eq!(export["application/json"]["schema"]["$ref"], "#/components/schemas/Export");
    t.finish().await;
}

#[tokio::test]
async fn without_credentials_a_public_route_answers_and_a_guarded_one_does_not() {
    let t = TestApp::start(features).await;
    let catalogue = catalogue();
    for (method, path) in built(&t.app.description.get().expect("the description is there").value()).keys() {
        let guard = &catalogue[&(method.clone(), path.clone())];
        let method: Method = method.parse().expect("a method");
        let path = path.replace(['{', '}'], "");
        let answer = t.ask(method.clone(), &path).from("192.0.2.1").await;
        let is_open = ["public", "session-optional"].contains(&guard.as_str());
        assert_eq!(answer.status == 401, !is_open, "{method} {path} ({guard}) answered {}", answer.status);
    }
    t.finish().await;
}

#[tokio::test]
async fn what_is_to_come_is_not_there() {
    let t = TestApp::start(features).await;
    for (method, path) in to_come().into_iter().filter(|(method, _)| method != "ANY") {
        let path = path.replace(['{', '}'], "");
        let answer = t.ask(method.parse().expect("a method"), &path).await;
        assert!(matches!(answer.status, 404 | 405), "{method} {path} answered {}", answer.status);
    }
    t.finish().await;
}
