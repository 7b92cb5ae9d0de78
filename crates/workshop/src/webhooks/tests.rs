//! Webhooks through their front door, with a real receiver at the other end.
mod again;
mod delivery;
mod disabling;
mod events;
mod guard;
mod libraries;
mod listening;
mod manage;
mod rebinding;
mod rotation;
mod samples;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode},
};
use identity::testing::{Person, signed_in};
use kernel::{
    config::{Config, Switch},
    feature::Feature,
    testing::{Answer, Ask, TestJanua},
};
use serde_json::{Value, json};

use super::{Pace, deliver_due};
use crate::tests::{feature, id, login_with, make_app, make_key, put};

/// With little patience, for a receiver that hangs. Nobody else takes this long, not even on a busy machine.
fn impatient(config: &Config) -> Feature {
    feature(config).own(Pace { attempt: Duration::from_secs(3) })
}

/// Where receivers on this machine are allowed.
fn config() -> Config {
    Config::for_tests().with(|webhooks: &mut crate::webhooks::Settings| {
        webhooks.webhook_allow_nets = vec!["127.0.0.0/8".parse().unwrap()];
        webhooks.webhook_allow_http = Switch::On;
    })
}

async fn start() -> TestJanua {
    TestJanua::start_with(config(), feature).await
}

/// What the receiver got.
#[derive(Clone)]
struct Heard {
    headers: HeaderMap,
    raw: Vec<u8>,
    body: Value,
}

impl Heard {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// What the receiver says: a status, a body, perhaps `Retry-After`.
type Says = (u16, String, Option<String>);

#[derive(Default)]
struct Inner {
    heard: Vec<Heard>,
    says: VecDeque<Says>,
    otherwise: u16,
}

/// A receiver that remembers, and says what it is told to.
#[derive(Clone)]
struct Receiver {
    url: String,
    inner: Arc<Mutex<Inner>>,
}

impl Receiver {
    async fn start() -> Self {
        let inner = Arc::new(Mutex::new(Inner { otherwise: 200, ..Inner::default() }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    fn says(&self, status: u16, body: &str, retry_after: Option<&str>) {
        self.inner.lock().unwrap().says.push_back((status, body.to_owned(), retry_after.map(str::to_owned)));
    }

    /// From now on, when nothing else is said.
    fn always(&self, status: u16) {
        self.inner.lock().unwrap().otherwise = status;
    }

    /// What came since this was last asked.
    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.inner.lock().unwrap().heard)
    }

    fn events(&self) -> Vec<String> {
        self.heard().iter().map(|heard| heard.header("webhook-event-type").to_owned()).collect()
    }
}

async fn take(
    State(inner): State<Arc<Mutex<Inner>>>,
    headers: HeaderMap,
    raw: Bytes,
) -> (StatusCode, HeaderMap, String) {
    let mut inner = inner.lock().unwrap();
    let body = serde_json::from_slice(&raw).unwrap_or_default();
    inner.heard.push(Heard { headers, raw: raw.to_vec(), body });
    let otherwise = (inner.otherwise, String::new(), None);
    let (status, body, retry_after) = inner.says.pop_front().unwrap_or(otherwise);
    let mut headers = HeaderMap::new();
    if let Some(value) = retry_after {
        headers.insert("retry-after", value.parse().unwrap());
    }
    (StatusCode::from_u16(status).unwrap(), headers, body)
}

/// An app with a key, and the person who made it.
struct Shop {
    owner: Person,
    app: Value,
    key: String,
}

impl Shop {
    async fn open(t: &TestJanua) -> Self {
        let owner = signed_in(t, "ada@example.com").await;
        Self::of(t, owner).await
    }

    async fn of(t: &TestJanua, owner: Person) -> Self {
        let app = make_app(t, &owner, "Shop").await;
        let key = make_key(t, &owner, id(&app), "publishable", "live").await;
        let key = key["value"].as_str().unwrap().to_owned();
        Self { owner, app, key }
    }

    fn asks<'a>(&self, ask: Ask<'a>) -> Ask<'a> {
        self.owner.asks(ask).header("x-service-app-key", &self.key)
    }

    async fn register(&self, t: &TestJanua, url: &str, events: &[&str]) -> Value {
        let made = self.asks(t.post("/webhooks").json(&json!({ "url": url, "events": events }))).await;
        assert_eq!(made.status, 200, "{}", made.text);
        made.body
    }

    async fn change(&self, t: &TestJanua, webhook: &Value, change: &Value) -> Answer {
        self.asks(t.ask(Method::PATCH, &format!("/webhooks/{}", id(webhook))).json(change)).await
    }

    async fn deliveries(&self, t: &TestJanua, webhook: &Value) -> Vec<Value> {
        let answer = self.asks(t.get(&format!("/webhooks/{}/deliveries", id(webhook)))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["deliveries"].as_array().unwrap().clone()
    }

    /// Sends an example of an event; the simplest thing to be delivered.
    async fn rehearse(&self, t: &TestJanua, webhook: &Value) {
        let answer = self.asks(t.post(&format!("/webhooks/{}/test", id(webhook)))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

/// Delivers what is due now.
async fn deliver(t: &TestJanua) -> usize {
    deliver_due(&t.janua).await.unwrap()
}

async fn done(t: TestJanua) {
    t.run_jobs().await;
    t.finish().await;
}
