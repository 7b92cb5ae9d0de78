//! Organizations through their front door.
mod auto_join;
mod invites;
mod orgs;
mod owners;

use axum::http::Method;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

fn feature(config: &Config) -> Feature {
    identity::testing::feature(config).and(crate::feature(config))
}

async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

pub(crate) async fn make_org(t: &TestJanua, person: &Person, name: &str) -> Value {
    let made = person.asks(t.post("/org").json(&json!({ "name": name }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body
}

pub(crate) fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

async fn invite(t: &TestJanua, person: &Person, org: &str, email: &str, role: &str) -> Answer {
    let body = json!({ "email": email, "role": role });
    person.asks(t.post(&format!("/org/{org}/members")).json(&body)).await
}

/// The token of the newest invite that came to an address.
pub(crate) async fn invite_token(t: &TestJanua, email: &str) -> String {
    t.run_jobs().await;
    identity::testing::token_in(&identity::testing::mail_to(t, email).expect("a mail"))
}

pub(crate) async fn accept(t: &TestJanua, person: &Person, token: &str) -> Answer {
    person.asks(t.post("/auth/accept-invite").json(&json!({ "token": token }))).await
}

/// Somebody new who is in an organization in this role.
pub(crate) async fn joined(t: &TestJanua, owner: &Person, org: &str, email: &str, role: &str) -> Person {
    let person = signed_in(t, email).await;
    assert_eq!(invite(t, owner, org, email, role).await.status, 200);
    let token = invite_token(t, email).await;
    let accepted = accept(t, &person, &token).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
    person
}

async fn set_role(t: &TestJanua, person: &Person, org: &str, whom: &str, role: &str) -> Answer {
    let path = format!("/org/{org}/members/{whom}");
    person.asks(t.ask(Method::PATCH, &path).json(&json!({ "role": role }))).await
}

async fn remove(t: &TestJanua, person: &Person, org: &str, whom: &str) -> Answer {
    person.asks(t.ask(Method::DELETE, &format!("/org/{org}/members/{whom}"))).await
}

/// Whatever happened, the directory shows the role that the membership says, and none without one.
pub(crate) async fn finish(t: TestJanua) {
    let sql = "SELECT person.id FROM person
               LEFT JOIN org_member ON org_member.org_id = person.org_id AND org_member.account_id = person.account_id
               WHERE COALESCE(person.role, '') <> COALESCE(org_member.role, '')";
    let wrong: Vec<(String,)> = t.janua.db.all(sql, vec![]).await.unwrap();
    assert_eq!(wrong, []);
    t.finish().await;
}
