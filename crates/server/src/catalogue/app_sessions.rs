//! What a session that belongs to an app may do, route by route: a new route is refused to it, or stands on this list.
use axum::http::Method;
use identity::testing::{PASSWORD, Person, signed_in};
use kernel::testing::{Answer, TestJanua};
use serde_json::{Value, json};

use super::{built, catalogue, guard_of};
use crate::start::features;

/// Its own profile, its own sign-out, the app's own sessions and devices, the user's own files in the app.
const APPS_MAY: &[(&str, &str)] = &[
    ("GET", "/auth/me"),
    ("POST", "/auth/logout"),
    ("GET", "/auth/sessions"),
    ("DELETE", "/auth/sessions"),
    ("DELETE", "/auth/sessions/{id}"),
    ("POST", "/auth/device/verify"),
    ("PATCH", "/user/profile"),
    ("POST", "/user/avatar/upload-url"),
    ("POST", "/user/avatar/restore-from-oauth"),
    ("GET", "/oauth/userinfo"),
    ("POST", "/oauth/userinfo"),
    ("POST", "/storage/presign-upload"),
    ("POST", "/storage/finalize/{objectId}"),
    ("GET", "/storage/objects"),
    ("GET", "/storage/objects/{id}"),
    ("PATCH", "/storage/objects/{id}"),
    ("DELETE", "/storage/objects/{id}"),
    ("POST", "/storage/uploads"),
    ("GET", "/storage/uploads/{objectId}"),
    ("PATCH", "/storage/uploads/{objectId}"),
    ("DELETE", "/storage/uploads/{objectId}"),
];
/// Open to everybody, and refused to a session that belongs to an app, should one come along.
const OPEN_AND_OWN: &[(&str, &str)] = &[("POST", "/auth/accept-invite")];

struct Shop {
    key: String,
}

impl Shop {
    async fn open(t: &TestJanua, owner: &Person) -> Self {
        let app = owner.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
        let path = format!("/apps/{}/keys", app.body["id"].as_str().expect("an app"));
        let body = json!({ "type": "publishable", "environment": "live" });
        let made = owner.asks(t.post(&path).json(&body)).await;
        Self { key: made.body["value"].as_str().expect("a key").to_owned() }
    }

    async fn enter(&self, t: &TestJanua) -> Person {
        let body =
            json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
        Person::of(&t.post("/auth/login").json(&body).header("x-service-app-key", &self.key).await)
    }
}

/// The same by the header, with the app's key, and by the cookie.
async fn ask(t: &TestJanua, shop: &Shop, person: &Person, method: &str, path: &str) -> [Answer; 2] {
    let (method, path): (Method, _) = (method.parse().expect("a method"), path.replace(['{', '}'], ""));
    let ask = || t.ask(method.clone(), &path).from("192.0.2.1");
    let by_bearer = person.asks(ask()).header("x-service-app-key", &shop.key).await;
    let by_cookie = ask().header("cookie", &format!("service_access={}", person.access));
    [by_bearer, by_cookie.header("sec-fetch-site", "same-origin").header("x-service-app-key", &shop.key).await]
}

#[tokio::test]
async fn a_session_that_belongs_to_an_app_is_refused_wherever_the_rule_does_not_let_it_in() {
    // With an owner: without one the console says where the owner's link is, to everybody.
    let config = kernel::config::Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, features).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let shop = Shop::open(&t, &ada).await;
    let catalogue = catalogue();
    let mut person = shop.enter(&t).await;
    for ((method, path), operation) in built(&t.janua.description.get().expect("the description").value()) {
        let what = format!("{method} {path}");
        let row = (method.as_str(), path.as_str());
        let guard = guard_of(&catalogue, &(method.clone(), path.clone()));
        let guard = guard.as_str();
        let is_session = guard.starts_with("session") && guard != "session-optional"
            || ["active-org-admin", "agent-admin"].contains(&guard)
            || super::role(guard).is_some();
        let says = operation.get("x-app-session").cloned().unwrap_or_default();
        if APPS_MAY.contains(&row) {
            assert_eq!(says, Value::Bool(true), "{what}");
            for answer in ask(&t, &shop, &person, &method, &path).await {
                assert_ne!(answer.body["code"], "app_session", "{what}");
            }
            person = shop.enter(&t).await;
        } else if is_session || OPEN_AND_OWN.contains(&row) {
            assert_eq!(says, Value::Bool(false), "{what}");
            for answer in ask(&t, &shop, &person, &method, &path).await {
                assert_eq!(answer.refusal(), (403, "app_session"), "{what}: {}", answer.text);
            }
        } else {
            assert_eq!(says, Value::Null, "{what} takes a session, and its guard does not say so");
        }
        if method == "GET"
            && guard == "session-optional"
            && ["/account", "/console"].iter().any(|p| path.starts_with(p))
        {
            let page =
                t.get(&path.replace(['{', '}'], "")).header("cookie", &format!("service_access={}", person.access));
            let page = page.await;
            assert_eq!(page.status, 303, "{what}: {}", page.text);
            assert!(page.header("location").contains("/sign-in"), "{what}");
        }
        t.advance(std::time::Duration::from_secs(2));
    }
    t.run_jobs().await;
    let ada = shop.enter(&t).await;
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 200, "ada is still there");
    t.finish().await;
}
