//! Mail of apps through the front door, against real SMTP servers and a real name server.
mod bounced;
mod direct;
mod domains;
mod faults;
mod peers;
mod refused;
mod sent;
mod stored;

use axum::http::Method;
use identity::testing::{Person, signed_in};
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

pub async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

/// An app with a secret key, of somebody who is signed in.
pub struct Shop {
    pub owner: Person,
    pub app: String,
    pub key: String,
}

pub async fn make_app(t: &TestJanua, person: &Person) -> String {
    let made = person.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body["id"].as_str().unwrap().to_owned()
}

impl Shop {
    pub async fn open(t: &TestJanua, email: &str) -> Self {
        let owner = signed_in(t, email).await;
        let app = make_app(t, &owner).await;
        let body = json!({ "type": "secret", "environment": "live" });
        let made = owner.asks(t.post(&format!("/apps/{app}/keys")).json(&body)).await;
        let key = made.body["value"].as_str().expect("a key").to_owned();
        t.run_jobs().await;
        Self { owner, app, key }
    }

    /// With a domain that is taken as verified.
    pub async fn ready(t: &TestJanua, email: &str, host: &str) -> Self {
        let shop = Self::open(t, email).await;
        shop.add_domain(t, host).await;
        let seen = "UPDATE email_key SET is_seen = $2 WHERE app_id = $1";
        t.janua.db.exec(seen, db::params![&shop.app, true]).await.unwrap();
        let sql = "UPDATE email_domain SET status = 'verified', next_check_at = NULL WHERE app_id = $1";
        t.janua.db.exec(sql, db::params![&shop.app]).await.unwrap();
        t.happened().await;
        shop
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/apps/{}/email{rest}", self.app)
    }

    pub async fn add_domain(&self, t: &TestJanua, host: &str) -> Answer {
        self.owner.asks(t.post(&self.path("/domains")).json(&json!({ "hostname": host }))).await
    }

    /// As the app's own server asks.
    pub async fn sends(&self, t: &TestJanua, body: &Value) -> Answer {
        t.post(&self.path("/send")).header("x-service-app-key", &self.key).json(body).await
    }

    pub async fn gets(&self, t: &TestJanua, rest: &str) -> Answer {
        self.owner.asks(t.get(&self.path(rest))).await
    }

    pub async fn posts(&self, t: &TestJanua, rest: &str, body: &Value) -> Answer {
        self.owner.asks(t.post(&self.path(rest)).json(body)).await
    }

    pub async fn deletes(&self, t: &TestJanua, rest: &str) -> Answer {
        self.owner.asks(t.ask(Method::DELETE, &self.path(rest))).await
    }

    /// A message of the log.
    pub async fn message(&self, t: &TestJanua, sent: &Answer) -> Value {
        let id = sent.body["messageId"].as_str().expect("a message");
        self.gets(t, &format!("/messages/{id}")).await.body
    }
}

pub fn mail(to: &str) -> Value {
    json!({ "to": to, "subject": "Receipt", "html": "<p>Thank you, <b>Zoë</b>.</p>" })
}

/// Delivers everything that is due.
pub async fn deliver(t: &TestJanua) {
    t.run_jobs().await;
    crate::deliver_due(&t.janua).await.expect("the queue");
}

/// The mails of apps that the test's mailbox has, newest last.
pub fn delivered(t: &TestJanua) -> Vec<String> {
    t.mailbox.mails().into_iter().filter(|mail| mail.contains("X-Janua-Ref")).collect()
}
