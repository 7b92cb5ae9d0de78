//! Deployments and the edge through their front doors.
mod archives;
mod cdn;
mod delivery;
mod deploys;
mod members;
pub mod moto;
mod nodes;

use std::{io::Write as _, sync::Arc};

use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

use crate::edge::{
    Edge,
    respond::{Connection, respond},
};

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(commerce::feature(config))
        .and(crate::feature(config))
}

pub async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

pub async fn make_app(t: &TestJanua, person: &Person, name: &str) -> Value {
    let made = person.asks(t.post("/apps").json(&json!({ "name": name }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body
}

pub fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

/// A signed-in owner of an app.
pub struct Owner {
    pub person: Person,
    pub app: String,
    pub org: String,
}

impl Owner {
    pub async fn of(t: &TestJanua, email: &str, slug: &str) -> Self {
        let person = signed_in(t, email).await;
        let app = person.asks(t.post("/apps").json(&json!({ "name": slug, "slug": slug }))).await;
        assert_eq!(app.status, 200, "{}", app.text);
        let text = |name: &str| app.body[name].as_str().unwrap().to_owned();
        Self { app: text("id"), org: text("orgId"), person }
    }

    pub async fn deploys(&self, t: &TestJanua, query: &str, archive: Vec<u8>) -> Answer {
        let path = format!("/apps/{}/deploy{query}", self.app);
        let ask = t.post(&path).header("content-type", "application/gzip").body(archive);
        self.person.asks(ask).await
    }

    /// Deploys and expects that it works.
    pub async fn deployed(&self, t: &TestJanua, files: &[(&str, &str)]) -> Value {
        let answer = self.deploys(t, "", site(files)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["status"], "ready");
        answer.body
    }

    pub async fn sets(&self, t: &TestJanua, settings: Value) {
        let path = format!("/apps/{}/cdn", self.app);
        let set = self.person.asks(t.post(&path).json(&json!({ "settings": settings }))).await;
        assert_eq!(set.status, 200, "{}", set.text);
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One entry of an archive, written by hand so that it may be wrong.
pub fn entry(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_entry_type(tar::EntryType::new(kind));
    if matches!(kind, b'1' | b'2') {
        header.set_link_name("index.html").unwrap();
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

pub fn end() -> Vec<u8> {
    vec![0; 1024]
}

/// A gzip-compressed tar of files.
pub fn site(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(vec![]);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

/// What the edge answers.
#[derive(Debug)]
pub struct Served {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Served {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Asks the edge of a node, as a browser would.
pub async fn ask(t: &TestJanua, host: &str, path: &str, headers: &[(&str, &str)]) -> Served {
    let mut request = Request::builder().uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(t, request.body(()).unwrap()).await
}

pub async fn send(t: &TestJanua, request: Request<()>) -> Served {
    let edge = t.janua.own::<Arc<Edge>>();
    let response = respond(&t.janua, edge, &Connection::default(), &request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Served { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub async fn shows(t: &TestJanua, host: &str, path: &str) -> (u16, String) {
    let served = ask(t, host, path, &[("accept", "text/html")]).await;
    (served.status, served.text())
}

/// The host of a URL.
pub fn host_of(url: &Value) -> String {
    url.as_str().unwrap().split("//").nth(1).unwrap().split(':').next().unwrap().to_owned()
}
