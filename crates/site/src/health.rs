//! Is this node alive, and can it do its work? Kept up to date in the background, so that asking costs nothing.
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use kernel::{
    Janua,
    clock::Timestamp,
    http::{Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub fn routes() -> Routes {
    Routes::new("status")
        .get("/health", health, "health probe")
        .answers::<HealthView>(200, "application/json")
        .answers::<HealthView>(503, "application/json")
        .always()
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(1);
/// A look older than this says nothing about now.
const STALE: Duration = Duration::from_secs(5);

#[derive(Deserialize, JsonSchema)]
struct HealthQuery {
    /// `live` asks only whether the process answers at all; restart it when it does not.
    part: Option<Part>,
}

#[derive(Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Part {
    Live,
    Ready,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HealthView {
    /// `ok`, `unavailable`, or `leaving` while the node shuts down.
    status: &'static str,
    version: &'static str,
    /// The process answers.
    live: bool,
    /// It can do its work: send it requests.
    ready: bool,
    checks: Vec<Check>,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Check {
    name: &'static str,
    ok: bool,
    latency_ms: u64,
}

/// What the last look found.
#[derive(Default)]
pub struct Health(RwLock<Option<Arc<Seen>>>);

struct Seen {
    at: Timestamp,
    ready: bool,
    leaving: bool,
    /// The answer as it goes out, made once and not for each who asks.
    json: Bytes,
}

/// Looks again and again, for as long as the node runs.
pub async fn watch(janua: Janua) {
    loop {
        look(&janua).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(janua: &Janua) -> Arc<Seen> {
    let started = tokio::time::Instant::now();
    let outcome = janua.db.ping(PATIENCE).await;
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Who leaves still works, but is not the one to send anything to.
    let (answers, leaving) = (outcome.is_ok(), janua.leaving.is_so());
    let ready = answers && !leaving;
    if let Err(error) = outcome {
        tracing::warn!(%error, "not ready: the database does not answer");
    }
    let view = HealthView {
        status: if ready {
            "ok"
        } else if leaving {
            "leaving"
        } else {
            "unavailable"
        },
        version: env!("CARGO_PKG_VERSION"),
        live: true,
        ready,
        checks: vec![Check { name: "database", ok: answers, latency_ms }],
    };
    let json = serde_json::to_vec(&view).unwrap_or_default().into();
    let seen = Arc::new(Seen { at: janua.clock.now(), ready, leaving, json });
    *janua.own::<Health>().0.write().unwrap_or_else(PoisonError::into_inner) = Some(seen.clone());
    seen
}

async fn health(State(janua): State<Janua>, Query(query): Query<HealthQuery>) -> Response {
    let last = janua.own::<Health>().0.read().unwrap_or_else(PoisonError::into_inner).clone();
    let is_fresh =
        |seen: &Arc<Seen>| janua.clock.now().since(seen.at) < STALE && seen.leaving == janua.leaving.is_so();
    let seen = match last.filter(is_fresh) {
        Some(seen) => seen,
        None => look(&janua).await,
    };
    let good = seen.ready || query.part == Some(Part::Live);
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = Response::new(Body::from(seen.json.clone()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
