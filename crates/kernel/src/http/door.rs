//! The door: everything that happens to a request before its handler runs and to its answer after.
//!
//! One service written out in order, instead of a stack of layers: the order is the security, and it can be read here.
use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    num::NonZeroU32,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    http::{HeaderMap, HeaderValue, Method, Request, Version, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::Either};
use http_body_util::BodyExt as _;
use tokio::time::{self, Instant};
use tower::{Service as _, ServiceExt as _};
use tower_http::compression::{Compression, predicate::SizeAbove};

use super::{
    Routes,
    access::{self, AccessLine},
    bodies::{Bodies, ByNetwork, Rest, discard},
    client::Client,
    headers::{self, Defaults, REQUEST_ID},
    idempotency,
    limit::Limit,
    origins::{self, Origins, Sharing},
    routes::RouteRow,
    streamed::{LONGEST_STREAM, Streams},
    wording::{self, Wording, Wordings},
};
use crate::{
    Janua,
    fault::{Carried, Fault, INTERNAL, OVERLOADED, Result, TIMED_OUT, TOO_LARGE},
    telemetry::{self, ABOUT, RouteMetrics, SpanOf},
};

/// In bytes; what is shorter is not worth it.
const LEAST_COMPRESSED: u64 = 1024;

#[derive(Clone)]
pub struct Door(Arc<Inner>);

/// How a refusal looks to a person in front of a browser. A feature that draws pages declares one.
#[derive(Clone, Copy)]
pub struct ErrorPage(pub fn(&Janua, &Fault, &str) -> Response);

pub(super) struct Inner {
    janua: Janua,
    pub(super) router: Router,
    wordings: Wordings,
    /// By path, then by method; the same paths the router knows.
    rows: matchit::Router<ByMethod>,
    unknown: Arc<KnownRoute>,
    defaults: Defaults,
    origins: Origins,
    limit: Option<Limit>,
    in_flight: AtomicUsize,
    by_network: ByNetwork,
    bodies: Bodies,
    streams: Streams,
}

/// What is known of a path, by method.
type ByMethod = Vec<(Method, Arc<KnownRoute>)>;

/// What becomes of a request's body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyUse {
    /// No handler is there: the router only says 404 or 405.
    Discarded,
    /// It is read before the handler runs.
    Whole,
    /// The handler reads it as it comes.
    Streamed,
}

/// A route as the pipeline sees it.
struct KnownRoute {
    body: BodyUse,
    body_limit: usize,
    always: bool,
    is_kept: bool,
    sharing: Sharing,
    metrics: RouteMetrics,
}

impl Door {
    /// Puts the routes behind the door.
    pub fn new(janua: Janua, routes: Routes, version: &str) -> Result<Self, String> {
        let (router, draft) = routes.finish();
        let rows = known(&janua, &draft.rows)?;
        let wordings = draft.wordings.clone();
        janua.description.set(draft, version, janua.config.base_url());
        let router = router.with_state(janua.clone());
        let per_minute =
            NonZeroU32::new(janua.config.rate_limit_per_minute).filter(|_| janua.config.rate_limits.is_on());
        let door = Arc::new(Inner {
            rows,
            wordings,
            unknown: Arc::new(KnownRoute {
                body: BodyUse::Discarded,
                body_limit: 0,
                always: false,
                is_kept: false,
                sharing: Sharing::KnownOrigins,
                metrics: janua.metrics.route("any", "unknown"),
            }),
            defaults: Defaults::new(janua.config.is_https()),
            origins: Origins::of(&janua),
            limit: per_minute.map(|requests| Limit::per_minute(requests, &janua.clock)),
            in_flight: AtomicUsize::new(0),
            by_network: ByNetwork::new(),
            bodies: Bodies::new(),
            streams: Streams::new(),
            janua,
            router,
        });
        door.janua.inside.set(Arc::downgrade(&door));
        Ok(Self(door))
    }

    pub fn janua(&self) -> &Janua {
        &self.0.janua
    }

    /// One request, from first to last. What can be done at once is done before there is a future: a small one is
    /// cheaper to hand about, and each request has one.
    pub fn handle(self, peer: SocketAddr, mut request: Request<Body>) -> impl Future<Output = Response> + Send {
        let door = self.0;
        let started = Instant::now();
        let started_at = door.janua.clock.now();
        let about = headers::about(request.headers(), &door.janua.entropy, started_at);
        let method = access::name(request.method());
        let found = door.rows.at(request.uri().path()).ok();
        let of_method = |method: &Method| found.as_ref().and_then(|found| of_method(found.value, method));
        let known = of_method(request.method()).unwrap_or(&door.unknown).clone();
        let sharing = match origins::preflighted(request.method(), request.headers()) {
            Some(method) => of_method(&method).map_or(Sharing::KnownOrigins, |known| known.sharing),
            None => known.sharing,
        };
        let client = Client::of(peer, request.headers(), &door.janua.config.trusted_proxies);
        let wording = door.wordings.of(request.uri().path());
        let origin = request.headers().get(header::ORIGIN).cloned();
        let encodings = request.headers().get(header::ACCEPT_ENCODING).cloned();
        let line = AccessLine::begin(door.janua.config.log_requests, &mut request, client);
        let is_browser = wants_page(request.headers());
        request.extensions_mut().insert(client);
        // Later versions of HTTP can leave a body behind; before, the next request comes after it.
        let stands_in_line = request.version() < Version::HTTP_2;
        let (admitted, left) = door.admit(&known, client, &request, sharing);
        let work = match admitted {
            Ok(Admitted::Now(place)) => match door.work(&known, client, request, started) {
                Ok(work) => Work::Now(place, ABOUT.scope(about.clone(), work)),
                Err(refusal) => Work::Said(Err(refusal), Body::empty()),
            },
            Ok(Admitted::Later) => {
                let work = door.clone().read_and_work(known.clone(), client, request, stands_in_line);
                Work::Later(Box::pin(ABOUT.scope(about.clone(), work)))
            }
            Ok(Admitted::Answered(response)) => Work::Said(Ok(response), request.into_body()),
            Err(refusal) => Work::Said(Err(refusal), request.into_body()),
        };
        async move {
            let (answer, rest) = match work {
                Work::Now(_place, work) => (work.await, Rest::Read),
                Work::Later(work) => work.await,
                Work::Said(answer, body) if body.is_end_stream() || !stands_in_line => (answer, Rest::Read),
                Work::Said(answer, body) => (answer, Box::pin(discard(body)).await),
            };
            let page = door.janua.declared::<ErrorPage>().first().filter(|_| is_browser && wording.has_pages());
            let id = about.name();
            let mut response = whole(answer, id, wording, page.map(|page| (&door.janua, page)));
            if is_public(&response) {
                response = compressed(response, encodings).await;
            }
            let headers = response.headers_mut();
            door.defaults.under(headers);
            if let (Some(left), Some(limit)) = (left, &door.limit) {
                limit.tell(left, headers);
            }
            door.origins.share(origin.as_ref(), sharing, headers);
            if let Ok(id) = HeaderValue::try_from(&**id) {
                headers.insert(REQUEST_ID, id);
            }
            if rest == Rest::Open && stands_in_line {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            let (status, took) = (response.status().as_u16(), started.elapsed());
            known.metrics.record(status, took);
            let what = SpanOf::Request { method, route: known.metrics.route(), status };
            door.janua.metrics.spans.record(&about, what, started_at, took);
            if let Some(line) = line {
                line.write(known.metrics.route(), id, status, response.body().size_hint().exact(), took);
            }
            response
        }
    }
}

/// What becomes of a request that is not refused at the door.
enum Admitted {
    /// It has no body, and is worked on at once; in its place, unless it needs none.
    Now(Option<Place>),
    /// Its body comes first.
    Later,
    Answered(Response),
}

/// A request on its way to its answer.
enum Work<F> {
    Now(Option<Place>, F),
    Later(Pin<Box<dyn Future<Output = (Result<Response>, Rest)> + Send>>),
    /// The answer is known, and the body that came with the request is not wanted.
    Said(Result<Response>, Body),
}

impl Inner {
    /// May this request be worked on at all, and how many more may come? The cheapest reasons to say no come first.
    fn admit(
        self: &Arc<Self>,
        known: &KnownRoute,
        client: Client,
        request: &Request<Body>,
        sharing: Sharing,
    ) -> (Result<Admitted>, Option<u32>) {
        let has_body = !request.body().is_end_stream();
        if known.always {
            return (Ok(if has_body { Admitted::Later } else { Admitted::Now(None) }), None);
        }
        // One that waits for its body holds no place; and where there is none anyway, its body is not waited for.
        let place = if has_body { self.refuse_when_full().map(|()| None) } else { self.take_place(client).map(Some) };
        let place = match place {
            Ok(place) => place,
            Err(refusal) => return (Err(refusal), None),
        };
        let left = match self.limit.as_ref().map(|limit| limit.take(client)).transpose() {
            Ok(left) => left,
            Err(refusal) => return (Err(refusal), None),
        };
        if let Some(answer) = self.origins.preflight(request.method(), request.headers(), sharing) {
            return (Ok(Admitted::Answered(answer)), left);
        }
        let allowed = self.origins.refuse_forgery(request.method(), request.headers());
        (allowed.map(|()| if has_body { Admitted::Later } else { Admitted::Now(place) }), left)
    }

    fn refuse_when_full(&self) -> Result<()> {
        if self.in_flight.load(Relaxed) < self.janua.config.max_in_flight { Ok(()) } else { Err(overloaded()) }
    }

    /// One of `max_in_flight` places, of which those of one network hold half at most.
    fn take_place(self: &Arc<Self>, client: Client) -> Result<Place> {
        let most = self.janua.config.max_in_flight;
        let before = self.in_flight.fetch_add(1, Relaxed);
        self.janua.metrics.in_flight.inc();
        let mut place = Place { door: self.clone(), network: None };
        if before >= most {
            return Err(overloaded());
        }
        let network = self.by_network.of(client.network());
        if !self.by_network.add(network, 1, most.div_ceil(2)) {
            return Err(overloaded());
        }
        place.network = Some(network);
        Ok(place)
    }

    /// Waits for the body, and then works in a place. Also answers what became of the rest of the body.
    async fn read_and_work(
        self: Arc<Self>,
        known: Arc<KnownRoute>,
        client: Client,
        request: Request<Body>,
        stands_in_line: bool,
    ) -> (Result<Response>, Rest) {
        if known.body == BodyUse::Streamed {
            return self.stream_and_work(&known, client, request, stands_in_line).await;
        }
        let (parts, body) = request.into_parts();
        let is_wanted = known.body == BodyUse::Whole;
        let is_too_large = is_wanted && body.size_hint().lower() > known.body_limit as u64;
        let (body, rest) = if is_wanted && !is_too_large {
            match self.bodies.read(client.network(), body, known.body_limit).await {
                Ok(body) => (body, Rest::Read),
                Err(refusal) => return (Err(refusal), Rest::Open),
            }
        } else {
            (Bytes::new(), if stands_in_line { discard(body).await } else { Rest::Read })
        };
        if is_too_large {
            return (Err(TOO_LARGE.into()), rest);
        }
        let place = if known.always { Ok(None) } else { self.take_place(client).map(Some) };
        let request = Request::from_parts(parts, Body::from(body));
        let work = place.and_then(|place| Ok((place, self.work(&known, client, request, Instant::now())?)));
        match work {
            Ok((_place, work)) => (work.await, rest),
            Err(refusal) => (Err(refusal), rest),
        }
    }

    /// The handler reads the body itself, as it comes. Meanwhile the request holds no place of those that others need, but
    /// one of those for streams.
    async fn stream_and_work(
        &self,
        known: &KnownRoute,
        client: Client,
        request: Request<Body>,
        stands_in_line: bool,
    ) -> (Result<Response>, Rest) {
        let most = known.body_limit as u64;
        let (answer, body) = if request.body().size_hint().lower() > most {
            (Err(TOO_LARGE.into()), request.into_body())
        } else {
            match self.streams.begin(client.network(), request, most) {
                Ok((_place, request, body)) => (self.call(request, Instant::now() + LONGEST_STREAM).await, body),
                Err((refusal, body)) => (Err(refusal), body),
            }
        };
        let is_over = body.is_end_stream() || !stands_in_line;
        (answer, if is_over { Rest::Read } else { discard(body).await })
    }

    /// Within its time, and once only if the client says so. Its body is there.
    fn work(
        self: &Arc<Self>,
        known: &KnownRoute,
        client: Client,
        request: Request<Body>,
        started: Instant,
    ) -> Result<impl Future<Output = Result<Response>> + Send + use<>> {
        let deadline = started + self.janua.config.request_timeout;
        let is_kept = known.is_kept && self.wordings.of(request.uri().path()).keeps_answers();
        Ok(match idempotency::key(request.method(), request.headers())?.filter(|_| is_kept) {
            None => Either::Left(self.call(request, deadline)),
            Some(key) => {
                let door = self.clone();
                Either::Right(Box::pin(async move { door.call_once(&key, client, request, deadline).await }))
            }
        })
    }

    async fn call_once(
        &self,
        key: &str,
        client: Client,
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| INTERNAL.caused_by(error))?.to_bytes();
        let wording = self.wordings.of(parts.uri.path());
        let claim = idempotency::claim(&self.janua, key, client, &parts, &body);
        let answer = claim.around(self.call(Request::from_parts(parts, Body::from(body)), deadline)).await;
        // Made whole here, because it is kept; the id in it is the first request's.
        let id = telemetry::about().map(|about| about.name().clone()).unwrap_or_default();
        idempotency::settle(&self.janua, &claim, || whole(answer, &id, wording, None)).await
    }

    fn call(
        &self,
        request: Request<Body>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Response>> + Send + use<> {
        // An axum router is always ready, and clones for the price of a counter.
        let answer = AssertUnwindSafe(self.router.clone().call(request)).catch_unwind();
        time::timeout_at(deadline, answer).map(|outcome| match outcome {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Err(panic)) => {
                let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(INTERNAL.caused_by(format!("panicked: {}", said.unwrap_or_default())))
            }
            Err(_) => Err(Fault::from(TIMED_OUT).retry_after(Duration::from_secs(1))),
        })
    }
}

fn overloaded() -> Fault {
    Fault::from(OVERLOADED).retry_after(Duration::from_secs(1))
}

/// A request being worked on.
struct Place {
    door: Arc<Inner>,
    /// Where it counts for its network, once it does.
    network: Option<usize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.in_flight.fetch_sub(1, Relaxed);
        self.door.janua.metrics.in_flight.dec();
        if let Some(network) = self.network {
            self.door.by_network.take_off(network, 1);
        }
    }
}

/// What may lie in a cache may be compressed. Everything else may hold a secret, and the length of a compressed
/// answer that also holds what an attacker sent gives secrets away (BREACH).
fn is_public(response: &Response) -> bool {
    let says =
        |name, start: &[u8]| response.headers().get(name).is_some_and(|value| value.as_bytes().starts_with(start));
    // A picture is compressed already, and what can be asked for in parts is sent as it lies.
    let is_file = says(header::CONTENT_TYPE, b"image/") || response.headers().contains_key(header::ACCEPT_RANGES);
    says(header::CACHE_CONTROL, b"public") && !is_file
}

/// The library compresses what a service answers, so the answer is put into one. Around the whole router it would cost
/// the many answers that are never compressed as much as the few that are.
async fn compressed(response: Response, encodings: Option<HeaderValue>) -> Response {
    let mut response = Some(response);
    let answer =
        tower::service_fn(move |_: Request<()>| ready(Ok::<_, Infallible>(response.take().unwrap_or_default())));
    let mut request = Request::new(());
    request.headers_mut().extend(encodings.map(|value| (header::ACCEPT_ENCODING, value)));
    match Compression::new(answer).compress_when(SizeAbove::new(LEAST_COMPRESSED)).oneshot(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

fn known(janua: &Janua, rows: &[RouteRow]) -> Result<matchit::Router<ByMethod>, String> {
    let mut by_path: HashMap<&'static str, ByMethod> = HashMap::new();
    for row in rows {
        let metrics = janua.metrics.route(row.method.as_str(), row.path);
        let RouteRow { body_limit, streams, always, is_kept, sharing, .. } = *row;
        let body = if streams { BodyUse::Streamed } else { BodyUse::Whole };
        let known = KnownRoute { body, body_limit, always, is_kept, sharing, metrics };
        by_path.entry(row.path).or_default().push((row.method.clone(), Arc::new(known)));
    }
    let mut router = matchit::Router::new();
    for (path, methods) in by_path {
        router.insert(path, methods).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(router)
}

fn of_method<'a>(known: &'a [(Method, Arc<KnownRoute>)], method: &Method) -> Option<&'a Arc<KnownRoute>> {
    // The router answers HEAD with GET's handler.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    known.iter().find(|(known, _)| known == method).map(|(_, known)| known)
}

/// The answer with its body, also where it is a refusal: at the door, or by a handler, which hands it on inside.
fn whole(answer: Result<Response>, id: &str, wording: &dyn Wording, page: Page<'_>) -> Response {
    match answer {
        Ok(mut response) => match response.extensions_mut().remove() {
            Some(Carried(fault)) => render(response, &fault, id, wording, page),
            None => response,
        },
        Err(fault) => render(fault.head(), &fault, id, wording, page),
    }
}

/// How to draw the page of a refusal, for a browser.
type Page<'a> = Option<(&'a Janua, &'a ErrorPage)>;

/// Whether a person waits for the answer: browsers name HTML when they open a page. Programs that name it send a token, or
/// take JSON as well.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("text/html") && !accepted.contains("json") && !headers.contains_key(header::AUTHORIZATION)
}

/// Makes the body of a refusal, and writes its cause to the log.
fn render(response: Response, fault: &Fault, id: &str, wording: &dyn Wording, page: Page<'_>) -> Response {
    if let Some((cause, born)) = fault.cause() {
        let code = fault.code();
        if code.status >= 500 {
            tracing::error!(code = code.name, cause, place = %born, request = id, "a request failed");
        } else {
            tracing::debug!(code = code.name, cause, place = %born, request = id, "a request was refused");
        }
    }
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    if let Some((janua, ErrorPage(draw))) = page {
        let (drawn, body) = draw(janua, fault, id).into_parts();
        parts.headers.extend(drawn.headers);
        return Response::from_parts(parts, body);
    }
    let body = wording::body(wording, fault, id);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(wording.content_type()));
    Response::from_parts(parts, Body::from(body))
}
