//! The code host through the front door, with a server that plays GitHub.
mod actions;
mod again;
mod connecting;
mod deliveries;
mod doctor;
mod github;
mod pushes;

use identity::testing::Person;
pub use kernel::testing::{Answer, TestJanua, join_all};
pub use serde_json::{Value, json};

pub use self::github::{GitHub, PullRequest, deliver, sha};
pub use crate::tests::{Owner, feature, host_of, shows};

/// The numbers at the host.
pub const INSTALLATION: i64 = 7;
pub const REPOSITORY: i64 = 70;
pub const USER: i64 = 1;

pub async fn start() -> (TestJanua, GitHub, Owner) {
    let github = GitHub::start().await;
    let t = TestJanua::start_with(github.config(), feature).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    github.user(USER, "code-1");
    github.install(INSTALLATION, REPOSITORY, USER);
    t.run_jobs().await;
    t.happened().await;
    (t, github, ada)
}

/// The state in the address that a user is sent to.
pub async fn authorize(t: &TestJanua, person: &Person, org: &str) -> String {
    let sent = person.asks(t.post("/codehost/authorize").json(&json!({ "orgId": org }))).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let url = url::Url::parse(sent.body["url"].as_str().unwrap()).unwrap();
    assert!(url.path() == "/apps/janua-test/installations/new", "{url}");
    let (_, state) = url.query_pairs().find(|(name, _)| name == "state").unwrap();
    state.into_owned()
}

pub async fn come_back(t: &TestJanua, person: &Person, query: &str) -> Answer {
    person.asks(t.get(&format!("/codehost/callback?{query}"))).header("accept", "application/json").await
}

/// Connects an installation; answers its id.
pub async fn connect(t: &TestJanua, person: &Person, org: &str, code: &str, installation: i64) -> String {
    let state = authorize(t, person, org).await;
    let query = format!("code={code}&state={state}&installation_id={installation}&setup_action=install");
    let back = come_back(t, person, &query).await;
    assert_eq!(back.status, 200, "{}", back.text);
    back.body["installation"]["id"].as_str().unwrap().to_owned()
}

pub async fn change(t: &TestJanua, owner: &Owner, id: &str, body: Value) -> Answer {
    let ask = t.ask(axum::http::Method::PATCH, &format!("/codehost/installations/{id}"));
    owner.person.asks(ask.json(&body)).await
}

/// A connected installation whose repository deploys to the app, as `more` says.
pub async fn linked(t: &TestJanua, github: &GitHub, owner: &Owner, more: Value) -> String {
    github.push(REPOSITORY, "main", 1, "one");
    let id = connect(t, &owner.person, &owner.org, "code-1", INSTALLATION).await;
    let mut link = json!({ "repositoryId": REPOSITORY, "appId": owner.app, "productionBranch": "main" });
    more.as_object().unwrap().iter().for_each(|(name, value)| link[name] = value.clone());
    let changed = change(t, owner, &id, json!({ "links": [link] })).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    t.run_jobs().await;
    id
}

pub async fn installation(t: &TestJanua, owner: &Owner, id: &str) -> Value {
    let shown = owner.person.asks(t.get(&format!("/codehost/installations/{id}"))).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    shown.body["installation"].clone()
}

/// What the newest delivery led to.
pub async fn outcome(t: &TestJanua, owner: &Owner, id: &str) -> (String, String) {
    let listed = owner.person.asks(t.get(&format!("/codehost/installations/{id}/deliveries"))).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    let led = &listed.body["deliveries"][0]["outcomes"][0];
    let text = |name: &str| led[name].as_str().unwrap_or_default().to_owned();
    (text("result"), text("message"))
}

pub async fn deployments(t: &TestJanua, owner: &Owner) -> Vec<Value> {
    let listed = owner.person.asks(t.get("/deployments")).await;
    listed.body["deployments"].as_array().unwrap().clone()
}
