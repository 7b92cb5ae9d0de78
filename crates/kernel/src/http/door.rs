//! The door: everything that happens to a request before its handler runs and to its answer after.
//!
//! One service written out in order, instead of a stack of layers: the order is the security, and it can be read here.
use std::{
    collections::HashMap,
    net::SocketAddr,
    num::NonZeroU32,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    http::{HeaderValue, Method, Request, header},
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http_body_util::Limited;
use tower::Service as _;
use tower_http::compression::{
    CompressionLayer,
    predicate::{Predicate, SizeAbove},
};

use super::{
    Routes,
    client::Client,
    headers::{REQUEST_ID, request_id, secure},
    idempotency::{self, Turn},
    input,
    limit::Limit,
    origins::Origins,
    routes::RouteRow,
};
use crate::{
    App,
    fault::{Carried, Fault, INTERNAL, OVERLOADED, Result, TIMED_OUT, TOO_LARGE},
    telemetry::{ABOUT, RouteMetrics},
};

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

#[derive(Clone)]
pub struct Door(Arc<Inner>);

struct Inner {
    app: App,
    router: Router,
    /// By path, then by method; the same paths the router knows.
    rows: matchit::Router<HashMap<Method, Known>>,
    unknown: Known,
    origins: Origins,
    limit: Option<Limit>,
    in_flight: AtomicUsize,
}

/// A route as the pipeline sees it.
#[derive(Clone)]
struct Known {
    /// Whether a handler is there; if not, the router only says 404 or 405.
    exists: bool,
    body_limit: usize,
    always: bool,
    metrics: RouteMetrics,
}

impl Door {
    /// Puts the routes behind the door and fills in the description.
    pub fn new(app: App, routes: Routes, version: &str) -> Result<Self, String> {
        let (router, rows, api) = routes.finish();
        app.description.set(&app.config, version, &api, &rows)?;
        let compression = CompressionLayer::new().compress_when(SizeAbove::new(1024).and(Public));
        let router = router.layer(compression).with_state(app.clone());
        let per_minute = NonZeroU32::new(app.config.rate_limit_per_minute).filter(|_| app.config.rate_limits.is_on());
        Ok(Self(Arc::new(Inner {
            rows: known(&app, rows)?,
            unknown: Known {
                exists: false,
                body_limit: 0,
                always: false,
                metrics: app.metrics.route("any", "unknown"),
            },
            origins: Origins::of(&app.config),
            limit: per_minute.map(|requests| Limit::per_minute(requests, &app.clock)),
            in_flight: AtomicUsize::new(0),
            app,
            router,
        })))
    }

    pub fn app(&self) -> &App {
        &self.0.app
    }

    /// One request, from first to last.
    pub async fn handle(&self, peer: SocketAddr, mut request: Request<Body>) -> Response {
        let door = &*self.0;
        let started = now();
        let id = request_id(request.headers(), &door.app.entropy, door.app.clock.now());
        let found = door.rows.at(request.uri().path()).ok();
        let known = found.and_then(|found| found.value.get(without_head(request.method()))).unwrap_or(&door.unknown);
        let client = Client::of(peer, request.headers(), &door.app.config.trusted_proxies);
        let origin = request.headers().get(header::ORIGIN).cloned();
        request.extensions_mut().insert(client);

        let (answer, left) = ABOUT.scope(id.clone(), door.admit(known, client, request)).await;
        let mut response = answer.unwrap_or_else(Fault::into_response);
        if let Some(Carried(fault)) = response.extensions_mut().remove() {
            response = render(response, &fault, &id);
        }
        let headers = response.headers_mut();
        if let (Some(left), Some(limit)) = (left, &door.limit) {
            limit.tell(left, headers);
        }
        door.origins.share(origin.as_ref(), headers);
        secure(headers, door.app.config.is_https());
        if let Ok(id) = HeaderValue::try_from(&*id) {
            headers.insert(REQUEST_ID, id);
        }
        known.metrics.record(response.status().as_u16(), started.elapsed());
        response
    }
}

impl Inner {
    /// May this request be worked on at all? The cheapest reasons to say no come first.
    async fn admit(&self, known: &Known, client: Client, request: Request<Body>) -> (Result<Response>, Option<u32>) {
        if known.always {
            return (self.pass(known, client, request).await, None);
        }
        let Some(_place) = self.take_place() else {
            return (Err(Fault::from(OVERLOADED).retry_after(Duration::from_secs(1))), None);
        };
        let left = match self.limit.as_ref().map(|limit| limit.take(client)).transpose() {
            Ok(left) => left,
            Err(refusal) => return (Err(refusal), None),
        };
        if let Some(answer) = self.origins.preflight(request.method(), request.headers()) {
            return (Ok(answer), left);
        }
        if let Err(refusal) = self.origins.refuse_forgery(request.method(), request.headers()) {
            return (Err(refusal), left);
        }
        (self.pass(known, client, request).await, left)
    }

    fn take_place(&self) -> Option<Place<'_>> {
        let before = self.in_flight.fetch_add(1, Relaxed);
        self.app.metrics.in_flight.inc();
        let place = Place(self);
        (before < self.app.config.max_in_flight).then_some(place)
    }

    /// Within its size and its time, and once only if the client says so.
    async fn pass(&self, known: &Known, client: Client, request: Request<Body>) -> Result<Response> {
        if !known.exists {
            return self.call(request).await;
        }
        if request.body().size_hint().lower() > known.body_limit as u64 {
            return Err(TOO_LARGE.into());
        }
        let request = if request.body().is_end_stream() {
            request
        } else {
            request.map(|body| Body::new(Limited::new(body, known.body_limit)))
        };
        match idempotency::key(request.method(), request.headers())? {
            None => self.call(request).await,
            // On the heap: it is rare, and would make the future of every request larger.
            Some(key) => Box::pin(self.call_once(&key, client, request)).await,
        }
    }

    async fn call_once(&self, key: &str, client: Client, request: Request<Body>) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let body = input::read(body).await?;
        match Turn::of(&self.app, key, client, &parts, &body).await? {
            Turn::Again(answer) => Ok(answer),
            Turn::First(slot) => {
                let response = self.call(Request::from_parts(parts, Body::from(body))).await;
                let mut response = response.unwrap_or_else(Fault::into_response);
                // Rendered here, so that the kept answer is whole; the id in it is the first request's.
                if let Some(Carried(fault)) = response.extensions_mut().remove() {
                    let id = ABOUT.try_with(Clone::clone).unwrap_or_default();
                    response = render(response, &fault, &id);
                }
                Ok(slot.settle(&self.app, response).await)
            }
        }
    }

    async fn call(&self, request: Request<Body>) -> Result<Response> {
        // An axum router is always ready, and clones for the price of a counter.
        let answer = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
        match tokio::time::timeout(self.app.config.request_timeout, answer).await {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Err(panic)) => {
                let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(INTERNAL.caused_by(format!("panicked: {}", said.unwrap_or_default())))
            }
            Err(_) => Err(Fault::from(TIMED_OUT).retry_after(Duration::from_secs(1))),
        }
    }
}

/// A request being worked on.
struct Place<'a>(&'a Inner);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
        self.0.app.metrics.in_flight.dec();
    }
}

/// What may lie in a cache may be compressed. Everything else may hold a secret, and the length of a compressed
/// answer that also holds what an attacker sent gives secrets away (BREACH).
#[derive(Clone, Copy)]
struct Public;

impl Predicate for Public {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        let cache = response.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
        cache.is_some_and(|cache| cache.starts_with("public"))
    }
}

fn known(app: &App, rows: Vec<RouteRow>) -> Result<matchit::Router<HashMap<Method, Known>>, String> {
    let mut by_path: HashMap<&'static str, HashMap<Method, Known>> = HashMap::new();
    for row in rows {
        let metrics = app.metrics.route(row.method.as_str(), row.path);
        let known = Known { exists: true, body_limit: row.body_limit, always: row.always, metrics };
        by_path.entry(row.path).or_default().insert(row.method, known);
    }
    let mut router = matchit::Router::new();
    for (path, methods) in by_path {
        router.insert(path, methods).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(router)
}

/// The router answers HEAD with GET's handler.
fn without_head(method: &Method) -> &Method {
    if method == Method::HEAD { &Method::GET } else { method }
}

/// Makes the body of a refusal, and writes its cause to the log.
fn render(response: Response, fault: &Fault, id: &str) -> Response {
    if let Some((cause, born)) = fault.cause() {
        let code = fault.code();
        if code.status >= 500 {
            tracing::error!(code = code.name, cause, place = %born, request = id, "a request failed");
        } else {
            tracing::debug!(code = code.name, cause, place = %born, request = id, "a request was refused");
        }
    }
    let body = serde_json::to_vec(&fault.problem(id)).unwrap_or_default();
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, PROBLEM);
    Response::from_parts(parts, Body::from(body))
}

#[expect(clippy::disallowed_methods, reason = "measures how long a request took, which nobody decides by")]
fn now() -> Instant {
    Instant::now()
}
