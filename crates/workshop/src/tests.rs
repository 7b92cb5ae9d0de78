//! Apps through their front door.
mod administration;
mod app_sessions;
mod apps;
mod deployer;
mod keys;
mod oauth;
mod policy;
mod users;

use axum::http::Method;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config).and(directory::feature(config)).and(crate::feature(config))
}

async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

pub async fn make_app(t: &TestJanua, person: &Person, name: &str) -> Value {
    let made = person.asks(t.post("/apps").json(&json!({ "name": name }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body
}

pub async fn make_key(t: &TestJanua, person: &Person, app: &str, kind: &str, environment: &str) -> Value {
    let body = json!({ "type": kind, "environment": environment });
    let made = person.asks(t.post(&format!("/apps/{app}/keys")).json(&body)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body
}

pub fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

/// Puts somebody into the organization of an app.
pub async fn put(t: &TestJanua, app: &Value, person: &Person, role: &str) {
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 0)";
    let org = app["orgId"].as_str().expect("an organization");
    t.janua.db.exec(sql, db::params![org, &person.id, role]).await.expect("a member");
}

/// Signs in through an app.
pub async fn login_with(t: &TestJanua, email: &str, key: &str) -> Answer {
    let body = json!({ "email": email, "password": identity::testing::PASSWORD,
        "options": { "tokenDelivery": "body" } });
    t.post("/auth/login").json(&body).header("x-service-app-key", key).await
}
