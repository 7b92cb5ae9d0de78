//! Insights through the front door.
mod alarms;
mod analytics;
mod collector;
mod observability;
mod otlp;
mod traces;

use identity::testing::{PASSWORD, Person};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(crate::feature(config))
}

async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

/// An app with a key that users sign in with.
struct App {
    id: String,
    org: String,
    key: String,
}

async fn make_app(t: &TestJanua, person: &Person, name: &str) -> App {
    let made = person.asks(t.post("/apps").json(&json!({ "name": name }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["id"]);
    let body = json!({ "type": "publishable", "environment": "live" });
    let key = person.asks(t.post(&format!("/apps/{id}/keys")).json(&body)).await;
    App { id, org: text(&made.body["orgId"]), key: text(&key.body["value"]) }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Signs in to an app.
async fn login_to(t: &TestJanua, app: &App, email: &str) -> Answer {
    let body = json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    t.post("/auth/login").json(&body).header("x-service-app-key", &app.key).await
}

/// Puts somebody into the organization of an app.
async fn put(t: &TestJanua, app: &App, person: &Person, role: &str) {
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 0)";
    t.janua.db.exec(sql, db::params![&app.org, &person.id, role]).await.expect("a member");
}
