//! Storage through the front door, with the store in a folder and in a bucket.
mod bucket;
mod cases;
mod leaving;
mod objects;
mod resumable;
mod strangers;

use axum::http::Method;
use identity::testing::{PASSWORD, Person, member, signed_in};
use kernel::{
    clock::Clock,
    config::Config,
    feature::Feature,
    testing::{Answer, Ask, S3Server, START, TestJanua},
};
use serde_json::{Value, json};

pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and whatever follows";

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(commerce::feature(config))
        .and(crate::feature(config))
}

/// An app with a key, its admin, and an end user in a session of the app.
pub struct Shop {
    pub t: TestJanua,
    pub admin: Person,
    pub app: String,
    pub key: String,
    pub user: Person,
    /// The bucket, if there is one.
    pub bucket: Option<S3Server>,
}

impl Shop {
    pub async fn open() -> Self {
        Self::with(Config::for_tests(), None).await
    }

    pub async fn in_bucket() -> Self {
        let server = S3Server::start().await;
        Self::with(server.config(), Some(server)).await
    }

    pub async fn with_plans(plans: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plans.toml");
        std::fs::write(&path, plans).unwrap();
        let config = Config::for_tests().with(|commerce: &mut commerce::Settings| commerce.plans_file = Some(path));
        Self::with(config, None).await
    }

    pub async fn with(config: Config, bucket: Option<S3Server>) -> Self {
        let t = TestJanua::start_with(config, feature).await;
        // The server of a bucket has no other clock than the wall's.
        t.advance(Clock::System.now().since(START));
        let admin = signed_in(&t, "admin@example.com").await;
        let made = admin.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let app = text(&made.body["id"]);
        let key = make_key(&t, &admin, &app, "live").await;
        let user = end_user(&t, "user@example.com", &key).await;
        t.run_jobs().await;
        t.happened().await;
        Self { t, admin, app, key, user, bucket }
    }

    /// As the end user, with the key.
    pub fn ask<'a>(&'a self, method: Method, path: &str) -> Ask<'a> {
        self.ask_as(&self.user, method, path)
    }

    pub fn ask_as<'a>(&'a self, person: &Person, method: Method, path: &str) -> Ask<'a> {
        person.asks(self.t.ask(method, path)).header("x-service-app-key", &self.key)
    }

    pub async fn presign(&self, body: &Value) -> Answer {
        self.ask(Method::POST, "/storage/presign-upload").json(body).await
    }

    /// Puts bytes as a client would: the URL leads here or to the bucket.
    pub async fn put(&self, offer: &Value, bytes: &[u8]) -> u16 {
        let url = offer["uploadUrl"].as_str().unwrap();
        let content_type = offer["headers"]["Content-Type"].as_str().unwrap();
        if self.bucket.is_some() {
            let put = reqwest::Client::new().put(url).header("content-type", content_type).body(bytes.to_vec());
            return put.send().await.unwrap().status().as_u16();
        }
        self.put_here(url, content_type, bytes).await.status
    }

    pub async fn put_here(&self, url: &str, content_type: &str, bytes: &[u8]) -> Answer {
        let put = self.t.ask(Method::PUT, path_of(url)).header("content-type", content_type);
        put.header("content-length", &bytes.len().to_string()).body(bytes.to_vec()).await
    }

    pub async fn finalize(&self, id: &str, body: &Value) -> Answer {
        self.ask(Method::POST, &format!("/storage/finalize/{id}")).json(body).await
    }

    /// A ready object.
    pub async fn store(&self, name: &str, content_type: &str, bytes: &[u8]) -> Value {
        self.store_as(&json!({ "name": name, "contentType": content_type, "size": bytes.len() }), bytes).await
    }

    pub async fn store_as(&self, body: &Value, bytes: &[u8]) -> Value {
        let offer = self.presign(body).await;
        assert_eq!(offer.status, 200, "{}", offer.text);
        assert!((200..300).contains(&self.put(&offer.body, bytes).await));
        let done = self.finalize(&text(&offer.body["objectId"]), &json!({})).await;
        assert_eq!(done.status, 200, "{}", done.text);
        done.body
    }

    /// Reads a URL, wherever it leads.
    pub async fn read(&self, url: &str) -> (u16, Vec<u8>) {
        match &self.bucket {
            Some(server) if url.starts_with(&server.url) => {
                let answer = reqwest::get(url).await.unwrap();
                (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
            }
            _ => {
                let answer = self.t.get(path_of(url)).await;
                (answer.status, answer.bytes.to_vec())
            }
        }
    }

    pub async fn usage(&self) -> (i64, i64) {
        let listed = self.ask(Method::GET, "/storage/objects").await;
        assert_eq!(listed.status, 200, "{}", listed.text);
        let usage = &listed.body["usage"];
        (usage["objects"].as_i64().unwrap(), usage["bytes"].as_i64().unwrap())
    }

    /// The files in the store that lie there now, however they are called.
    pub fn files(&self) -> usize {
        let folder = match &self.bucket {
            Some(server) => server.file(""),
            None => self.t.folder.path().join("objects"),
        };
        ["o", "uploads"].map(|name| count(&folder.join(name))).iter().sum()
    }

    /// Lets every file go whose moment is to come. A bucket's server has the clock of the wall and refuses requests from
    /// another time, so there the moments are moved instead of the clock.
    pub async fn let_files_go(&self) {
        if self.bucket.is_some() {
            let sql = "UPDATE storage_file SET doomed_at = 0 WHERE doomed_at IS NOT NULL";
            self.t.janua.db.exec(sql, db::params![]).await.unwrap();
            self.t.advance(std::time::Duration::from_mins(1));
        } else {
            self.t.advance(std::time::Duration::from_hours(4));
        }
        self.t.run_jobs().await;
    }

    pub async fn finish(self) {
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

fn count(folder: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let entries = entries.map(|entry| entry.unwrap());
    entries.map(|entry| if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

pub async fn make_key(t: &TestJanua, admin: &Person, app: &str, environment: &str) -> String {
    let body = json!({ "type": "publishable", "environment": environment });
    let made = admin.asks(t.post(&format!("/apps/{app}/keys")).json(&body)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    text(&made.body["value"])
}

/// Somebody in a session of the app.
pub async fn end_user(t: &TestJanua, email: &str, key: &str) -> Person {
    member(t, email).await;
    let body = json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    Person::of(&t.post("/auth/login").json(&body).header("x-service-app-key", key).await)
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}")).to_owned()
}

/// The path and query of a URL.
pub fn path_of(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    &url[after + url[after..].find('/').unwrap()..]
}

pub fn new(name: &str, size: usize) -> Value {
    json!({ "name": name, "contentType": "text/plain", "size": size })
}
