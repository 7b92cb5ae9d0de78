//! Plans, quotas and usage through the front door.
mod billing;
mod connect;
mod crowd;
mod keyed;
mod merchants;
mod plans;
mod quotas;
mod stripe;
mod usage;

use std::path::PathBuf;

use axum::http::Method;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

use crate::Settings;

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(crate::feature(config))
}

/// A plans file that stays for as long as the value does.
pub struct PlansFile {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl PlansFile {
    pub fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.toml");
        std::fs::write(&path, text).unwrap();
        Self { _folder: folder, path }
    }

    pub fn config(&self) -> Config {
        let path = self.path.clone();
        Config::for_tests()
            .with(|commerce: &mut Settings| commerce.plans_file = Some(path))
            .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()])
            .with(|webhooks: &mut workshop::webhooks::Settings| {
                webhooks.webhook_allow_nets = vec!["127.0.0.0/8".parse().unwrap()];
            })
    }
}

pub async fn start(plans: &str) -> TestJanua {
    let file = PlansFile::new(plans);
    TestJanua::start_with(file.config(), feature).await
}

pub fn id(value: &Value) -> String {
    value["id"].as_str().expect("an id").to_owned()
}

pub async fn make_app(t: &TestJanua, person: &Person, name: &str) -> Answer {
    person.asks(t.post("/apps").json(&json!({ "name": name }))).await
}

pub async fn make_key(t: &TestJanua, person: &Person, app: &str, kind: &str, environment: &str) -> Answer {
    let body = json!({ "type": kind, "environment": environment });
    person.asks(t.post(&format!("/apps/{app}/keys")).json(&body)).await
}

pub async fn make_hook(t: &TestJanua, person: &Person, app: &str) -> Answer {
    let body = json!({ "url": "https://127.0.0.1:9/", "events": ["user.signed_in"] });
    person.asks(t.post(&format!("/apps/{app}/webhooks")).json(&body)).await
}

pub async fn delete(t: &TestJanua, person: &Person, path: &str) -> Answer {
    person.asks(t.ask(Method::DELETE, path)).await
}

/// An app with a key, of somebody who is signed in.
pub struct Shop {
    pub owner: Person,
    pub org: String,
    pub app: String,
    pub key: String,
}

impl Shop {
    pub async fn open(t: &TestJanua, email: &str, kind: &str) -> Self {
        let owner = signed_in(t, email).await;
        let app = make_app(t, &owner, "Shop").await.body;
        let made = make_key(t, &owner, &id(&app), kind, "live").await;
        let key = made.body["value"].as_str().expect("a key").to_owned();
        Self { owner, org: app["orgId"].as_str().expect("an organization").to_owned(), app: id(&app), key }
    }
}

/// Somebody who signs in again.
pub async fn again(t: &TestJanua, email: &str) -> Person {
    Person::of(&identity::testing::login(t, email, identity::testing::PASSWORD).await)
}
