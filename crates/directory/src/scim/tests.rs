//! SCIM through its front door.
mod access;
mod filters;
mod groups;
mod lifecycle;
mod patches;
mod providers;
mod users;

use axum::http::Method;
use identity::testing::{Person, login, refresh, signed_in};
use kernel::testing::{Answer, Ask, TestJanua};
use serde_json::{Value, json};

use crate::tests::{accept, id, invite_token, joined, make_org};

fn feature(config: &kernel::config::Config) -> kernel::feature::Feature {
    identity::testing::feature(config).and(crate::feature(config)).and(workshop::feature(config))
}

/// An organization with an owner and a token of its provider.
struct Org {
    t: TestJanua,
    owner: Person,
    id: String,
    token: String,
}

impl Org {
    async fn start() -> Self {
        let t = TestJanua::start(feature).await;
        let owner = signed_in(&t, "owner@example.com").await;
        let id = id(&make_org(&t, &owner, "Acme").await).to_owned();
        let token = make_token(&t, &owner, &id).await;
        t.happened().await;
        Self { t, owner, id, token }
    }

    fn ask(&self, method: &str, path: &str) -> Ask<'_> {
        let path = format!("/scim/v2{path}");
        self.t.ask(method.parse().unwrap(), &path).header("authorization", &format!("Bearer {}", self.token))
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path).await
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask(method, path).header("content-type", "application/scim+json").body(body.to_string()).await
    }

    /// A new user, as it is shown.
    async fn user(&self, body: &Value) -> Value {
        let made = self.send("POST", "/Users", body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body
    }

    async fn named(&self, user_name: &str) -> Value {
        self.user(&json!({ "schemas": [USER], "userName": user_name })).await
    }

    async fn patch(&self, user: &str, operations: &Value) -> Answer {
        let schemas = json!(["urn:ietf:params:scim:api:messages:2.0:PatchOp"]);
        self.send("PATCH", &format!("/Users/{user}"), &json!({ "schemas": schemas, "Operations": operations })).await
    }

    /// The names of the users that a filter finds.
    async fn found(&self, filter: &str) -> Vec<String> {
        let answer = self.get(&format!("/Users?filter={}", encoded(filter))).await;
        assert_eq!(answer.status, 200, "{filter}: {}", answer.text);
        let found = answer.body["Resources"].as_array().unwrap();
        assert_eq!(answer.body["totalResults"], json!(found.len()), "{filter}");
        let mut names: Vec<_> = found.iter().map(|user| user["userName"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    async fn finish(self) {
        self.t.run_jobs().await;
        crate::tests::finish(self.t).await;
    }
}

const USER: &str = super::schema::USER;

async fn make_token(t: &TestJanua, person: &Person, org: &str) -> String {
    let made = person.asks(t.post(&format!("/org/{org}/scim-tokens")).json(&json!({ "name": "Okta" }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body["value"].as_str().unwrap().to_owned()
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The status of a refusal and SCIM's word for it.
fn refused(answer: &Answer) -> (u16, &str) {
    assert_eq!(answer.header("content-type"), "application/scim+json", "{}", answer.text);
    assert_eq!(answer.body["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:Error"]));
    assert_eq!(answer.body["status"], json!(answer.status.to_string()));
    (answer.status, answer.body["scimType"].as_str().unwrap_or_default())
}

async fn me(t: &TestJanua, person: &Person) -> u16 {
    person.asks(t.get("/auth/me")).await.status
}
