//! Listening from a command line: deliveries come over a stream instead of going to an endpoint, and their results are
//! reported back. A listener is a webhook of its own kind, so the log shows its deliveries like any others.
//!
//! Deliveries wait in the queue until they have a result. A stream that breaks loses nothing: the next one sends what has
//! no result yet. A listener without a stream gets no deliveries after [`GRACE`], but stays for [`REST`]: when its stream
//! comes back, the events that it missed are sent first.
use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use futures_util::stream;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Path, Query, Routes},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    accounts::AccountId,
    apps::{Application, ApplicationId},
    enter::{Admin, AppCaller, InApp},
    orgs::Role,
    sessions::{SessionId, StoredSession},
};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use super::{
    api::WebhookPath,
    attempt::{MOST_KEPT, Target, signed_headers},
    deliveries::{Attempt, Delivery, DeliveryId, Search, State as DeliveryState},
    events::{WebhookListenerEnded, WebhookListenerStarted},
    jobs::{Clear, KEPT, Recover},
    model::{Webhook, WebhookId, seal},
    names, payload, rules,
    rules::UNKNOWN_EVENT_TYPES,
};

pub fn routes() -> Routes {
    Routes::new("webhooks")
        .get("/webhooks/listen", listen, "receive deliveries over a stream of events")
        .answers::<String>(200, "text/event-stream")
        .fails(&[UNKNOWN_EVENT_TYPES, NO_STREAM, TOO_MANY])
        .post("/webhooks/listen/{id}/results", report_results, "report the outcomes of streamed deliveries")
        .get("/apps/{appId}/webhooks/listen", listen_to_app, "receive deliveries over a stream of events (dashboard)")
        .answers::<String>(200, "text/event-stream")
        .fails(&[UNKNOWN_EVENT_TYPES, NO_STREAM, TOO_MANY])
        .post(
            "/apps/{appId}/webhooks/listen/{webhookId}/results",
            report_app_results,
            "report the outcomes of streamed deliveries (dashboard)",
        )
}

pub const NO_STREAM: Code =
    Code::new(406, "stream_only", "This route answers a stream of events. Ask with Accept: text/event-stream.");
pub const TOO_MANY: Code =
    Code::new(409, "too_many_listeners", "The app has the maximum number of listeners. Stop one first.");
/// Listeners of one app at a time.
const MOST: usize = 10;
/// Listeners of one app that can still be resumed.
const MOST_RESTING: u32 = 20;
/// How long a listener without a stream gets deliveries.
const GRACE: Duration = Duration::from_mins(10);
/// How long it can be resumed after that: a laptop sleeps over a weekend.
const REST: Duration = Duration::from_hours(72);
/// A transaction that is under way when a listener comes to rest may write events from before.
const OVERLAP: Duration = Duration::from_mins(1);
/// How often it is put off while the stream lives.
const PUT_OFF: Duration = Duration::from_mins(1);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The longest a stream goes on without looking at its session and at the queue.
const LOOK: Duration = Duration::from_millis(700);
/// Deliveries without a result that a stream sends at most.
const WINDOW: u32 = 200;

/// Wakes streams on this node when deliveries were created.
#[derive(Default)]
pub struct Streams(pub Notify);

#[derive(Deserialize, JsonSchema)]
struct Wishes {
    /// Event names, `audit.*` or `*`, separated by commas. Default: all.
    #[schemars(length(max = 2000))]
    events: Option<String>,
    /// Begins with the events since this moment, not longer ago than thirty days.
    since: Option<Timestamp>,
    /// A webhook of the app: the listener hears the events of that webhook, signed with its secret.
    webhook: Option<WebhookId>,
    /// Where deliveries are forwarded to; shown in lists.
    #[schemars(length(max = 2048))]
    forward: Option<String>,
}

async fn listen(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Query(wishes): Query<Wishes>,
    headers: HeaderMap,
) -> Result<Response> {
    open(&janua, caller, wishes, &headers).await
}

async fn listen_to_app(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Query(wishes): Query<Wishes>,
    headers: HeaderMap,
) -> Result<Response> {
    open(&janua, caller, wishes, &headers).await
}

async fn open(janua: &Janua, caller: InApp<Admin>, wishes: Wishes, headers: &HeaderMap) -> Result<Response> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    if !text(header::ACCEPT).contains("text/event-stream") {
        return Err(NO_STREAM.into());
    }
    let last = text(header::HeaderName::from_static("last-event-id"));
    let resumed = match last.split('.').next().unwrap_or_default().parse::<WebhookId>() {
        Ok(id) => resume(janua, &caller, id).await?,
        Err(_) => None,
    };
    let is_resumed = resumed.is_some();
    let listener = match resumed {
        Some(listener) => listener,
        None => begin(janua, &caller, wishes).await?,
    };
    let stream = Stream::of(janua.clone(), &caller, listener, is_resumed);
    let body = Body::from_stream(stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    }));
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The caller's own listener that is still there. One that came to rest gets what happened since.
async fn resume(janua: &Janua, caller: &InApp<Admin>, id: WebhookId) -> Result<Option<Webhook>> {
    let (app, account, now) = (caller.application.id, caller.session.account().id, janua.clock.now());
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let found = Webhook::hold(tx, app, id).await?.filter(|webhook| webhook.is_listener_of(account));
        let Some(Webhook { is_active, listens_until: Some(until), .. }) = found else { return Ok(None) };
        if !is_active {
            if Webhook::count_listeners(tx, app, now).await? >= MOST {
                return Err(TOO_MANY.into());
            }
            let since = until.minus(OVERLAP);
            let job = Recover { app, webhook: id, since, after: (since, String::new()) };
            jobs::enqueue(tx, janua, now, &job).await?;
        }
        Webhook::resume(tx, id, now.plus(GRACE + PUT_OFF)).await?;
        Ok(found.map(|listener| Webhook { is_active: true, ..listener }))
    })
}

async fn begin(janua: &Janua, caller: &InApp<Admin>, wishes: Wishes) -> Result<Webhook> {
    let (app_id, account, now) = (caller.application.id, caller.session.account().id, janua.clock.now());
    if wishes.since.is_some_and(|since| since > now || now.since(since) > KEPT) {
        return Err(INVALID.at("since", "range", "must be within the last thirty days"));
    }
    let mirrored = match wishes.webhook {
        Some(id) => Some(Webhook::find(&janua.db, app_id, id).await?.ok_or(NOT_FOUND)?),
        None => None,
    };
    let events = match (&mirrored, &wishes.events) {
        (Some(webhook), _) => webhook.events.clone(),
        (None, Some(events)) => {
            let events = events.split(',').map(str::trim).filter(|name| !name.is_empty());
            rules::check_events(janua, events.map(str::to_owned).collect())?
        }
        (None, None) => vec![names::ALL.to_owned()],
    };
    let id = WebhookId::new(&janua.entropy, now);
    let secret = own_secret(janua, app_id, account);
    let webhook = Webhook {
        id,
        app_id,
        url: wishes.forward.unwrap_or_default(),
        events,
        is_active: true,
        standard_headers: false,
        is_standard: false,
        secret: seal(janua, id, &secret.into()),
        retiring_secret: None,
        retiring_until: None,
        failures: 0,
        created_at: now,
        listens_until: Some(now.plus(GRACE + PUT_OFF)),
        listener_of: Some(account.to_string()),
        mirrors: mirrored.map(|webhook| webhook.id),
    };
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if Webhook::count_listeners(tx, app_id, now).await? >= MOST {
            return Err(TOO_MANY.into());
        }
        // Each start of a command line leaves one.
        for webhook in Webhook::delete_resting(tx, app_id, MOST_RESTING).await? {
            jobs::enqueue(tx, janua, now, &Clear { webhook }).await?;
        }
        caller.record(tx, janua, &WebhookListenerStarted { webhook_id: id.to_string() }).await?;
        webhook.insert(tx).await?;
        if let Some(since) = wishes.since {
            let job = Recover { app: app_id, webhook: id, since, after: (since, String::new()) };
            jobs::enqueue(tx, janua, now, &job).await?;
        }
        Ok(Application::set_listening(tx, app_id, true).await?)
    })?;
    Ok(webhook)
}

/// The same for a developer and an app each time, so that a receiver is set up once. 64 hexadecimal characters.
fn own_secret(janua: &Janua, app: ApplicationId, account: AccountId) -> String {
    let mac = janua.vault.mac("webhook-listener", format!("{app}:{account}").as_bytes());
    kernel::crypto::hash(mac.as_bytes())
}

struct Stream {
    janua: Janua,
    session: SessionId,
    account: AccountId,
    app: ApplicationId,
    listener: Webhook,
    is_resumed: bool,
    is_begun: bool,
    is_over: bool,
    /// What was sent and has no result, with the moment it became due: sent again, it is due anew.
    sent: HashSet<(DeliveryId, Option<Timestamp>)>,
    spoke: Instant,
    put_off: Instant,
    looked: Option<Instant>,
}

impl Stream {
    fn of(janua: Janua, caller: &InApp<Admin>, listener: Webhook, is_resumed: bool) -> Self {
        let now = Instant::now();
        Self {
            session: caller.session.id(),
            account: caller.session.account().id,
            app: caller.application.id,
            janua,
            listener,
            is_resumed,
            is_begun: false,
            is_over: false,
            sent: HashSet::new(),
            spoke: now,
            put_off: now,
            looked: None,
        }
    }

    /// The next piece; nothing when the stream is over.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        if !self.is_begun {
            self.is_begun = true;
            return Some(self.greeting());
        }
        loop {
            let streams = self.janua.own::<Arc<Streams>>().clone();
            // Asked for before the look, so that nothing slips in between.
            let woken = streams.0.notified();
            match self.look().await {
                Ok(Some(text)) => {
                    self.spoke = Instant::now();
                    return Some(text);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "cannot look for deliveries of a listener; trying again"),
            }
            if self.spoke.elapsed() >= HEARTBEAT {
                self.spoke = Instant::now();
                return Some(": heartbeat\n\n".into());
            }
            tokio::select! {
                () = woken => {}
                () = time::sleep(LOOK) => {}
            }
        }
    }

    fn greeting(&self) -> String {
        let secret = match self.listener.mirrors {
            Some(_) => None,
            None => Some(own_secret(&self.janua, self.app, self.account)),
        };
        let data = json!({
            "id": self.listener.id, "events": self.listener.events, "secret": secret, "webhook": self.listener.mirrors,
            "resumed": self.is_resumed,
        });
        format!("id: {}\nevent: listener\ndata: {data}\n\n", self.listener.id)
    }

    fn end(&mut self, code: &str, message: &str) -> String {
        self.is_over = true;
        format!("event: end\ndata: {}\n\n", json!({ "code": code, "message": message }))
    }

    async fn look(&mut self) -> db::Result<Option<String>> {
        if self.janua.leaving.is_so() {
            return Ok(Some(self.end("restarting", "The server is restarting.")));
        }
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            let rests = self.rests().await?;
            if rests.is_none() || !self.may_listen().await? {
                return Ok(Some(
                    self.end("session_ended", "The session has ended, or may no longer listen to this app."),
                ));
            }
            if rests == Some(true) {
                // This node could not put it off, or the clock was moved: a new stream resumes it.
                return Ok(Some(self.end("restarting", "The listener must be resumed.")));
            }
        }
        let now = self.janua.clock.now();
        if self.put_off.elapsed() >= PUT_OFF {
            self.put_off = Instant::now();
            Webhook::put_off(&self.janua.db, self.listener.id, now.plus(GRACE + PUT_OFF)).await?;
        }
        let search = Search {
            webhook: self.listener.id,
            until: now,
            after: kernel::http::Key { at: Timestamp(i64::MIN), id: String::new() },
            most: WINDOW,
        };
        let due = Delivery::due(&self.janua.db, &search).await?;
        let waiting: HashSet<_> = due.iter().map(|one| (one.id, one.ready_at)).collect();
        self.sent.retain(|one| waiting.contains(one));
        let fresh: Vec<Delivery> =
            due.into_iter().filter(|one| !self.sent.contains(&(one.id, one.ready_at))).collect();
        if fresh.is_empty() {
            return Ok(None);
        }
        let signer = self.signer().await?;
        let mut text = String::new();
        for delivery in fresh {
            self.sent.insert((delivery.id, delivery.ready_at));
            text.push_str(&self.told(signer.as_ref(), &delivery, now));
        }
        Ok(Some(text))
    }

    /// Whether the listener has come to rest under a stream; nothing when it was deleted.
    async fn rests(&self) -> db::Result<Option<bool>> {
        let found = Webhook::find(&self.janua.db, self.app, self.listener.id).await?;
        Ok(found.map(|listener| !listener.is_active))
    }

    /// Whether the session lives and its user is still an admin of the app.
    async fn may_listen(&self) -> db::Result<bool> {
        let session = StoredSession::find(&self.janua.db, self.session).await?;
        if !session.is_some_and(|session| session.is_alive(self.janua.clock.now())) {
            return Ok(false);
        }
        let reached = Application::reach(&self.janua.db, self.app, self.account).await?;
        Ok(reached.is_some_and(|reached| reached.role >= Role::Admin))
    }

    /// The webhook that signs: the mirrored one as it is now, or the listener itself.
    async fn signer(&self) -> db::Result<Option<Target>> {
        let mirrored = match self.listener.mirrors {
            Some(id) => Webhook::find(&self.janua.db, self.app, id).await?,
            None => None,
        };
        let webhook = mirrored.unwrap_or_else(|| self.listener.clone());
        Ok(Target::of(&self.janua, webhook, self.janua.clock.now()).ok())
    }

    fn told(&self, signer: Option<&Target>, delivery: &Delivery, now: Timestamp) -> String {
        let body = payload::body(delivery);
        let headers: BTreeMap<&str, String> =
            signer.map(|signer| signed_headers(signer, delivery, &body, now)).into_iter().flatten().collect();
        let data = json!({
            "deliveryId": delivery.id, "event": delivery.event, "headers": headers,
            "body": String::from_utf8_lossy(&body),
        });
        format!("id: {}.{}\nevent: delivery\ndata: {data}\n\n", self.listener.id, delivery.id)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Results {
    #[schemars(length(min = 1, max = 100))]
    results: Vec<Outcome>,
}

/// The outcome of one delivery.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    delivery_id: DeliveryId,
    /// 0 when there was no answer.
    #[schemars(range(min = 0, max = 599))]
    status_code: u16,
    #[schemars(range(min = 0, max = 86_400_000))]
    latency_ms: u64,
    /// Why there was no answer.
    #[schemars(length(max = 200))]
    error: Option<String>,
    /// How the answer begins.
    #[schemars(length(max = 1024))]
    response: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Reported {
    /// How many results were new.
    noted: u32,
}

async fn report_results(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(WebhookPath { id }): Path<WebhookPath>,
    Json(results): Json<Results>,
) -> Result<Json<Reported>> {
    note(&janua, &caller, id, results).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListenerPath {
    webhook_id: WebhookId,
}

async fn report_app_results(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(ListenerPath { webhook_id }): Path<ListenerPath>,
    Json(results): Json<Results>,
) -> Result<Json<Reported>> {
    note(&janua, &caller, webhook_id, results).await
}

async fn note(janua: &Janua, caller: &InApp<Admin>, id: WebhookId, reported: Results) -> Result<Json<Reported>> {
    let (app_id, account, now) = (caller.application.id, caller.session.account().id, janua.clock.now());
    let found = Webhook::find(&janua.db, app_id, id).await?;
    found.filter(|webhook| webhook.is_listener_of(account)).ok_or(NOT_FOUND)?;
    let mut ended = vec![];
    for outcome in reported.results {
        if let Some(delivery) = Delivery::find(&janua.db, id, outcome.delivery_id).await? {
            ended.push(with(delivery, outcome, now));
        }
    }
    let noted = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        let mut noted = 0;
        for delivery in &ended {
            noted += u32::from(delivery.note_and_see(tx).await?);
        }
        Ok(noted)
    })?;
    Ok(Json(Reported { noted }))
}

/// The delivery with its result. It is not tried again by itself: a developer watches, and sends it again.
fn with(before: Delivery, outcome: Outcome, now: Timestamp) -> Delivery {
    let is_delivered = (200..300).contains(&outcome.status_code);
    let Outcome { status_code, latency_ms, error, response, .. } = outcome;
    let clean = |text: String| -> String { text.replace('\0', "\u{fffd}").chars().take(MOST_KEPT).collect() };
    let mut attempts = before.attempts;
    let at = now.minus(Duration::from_millis(latency_ms));
    attempts.0.push(Attempt { at, status_code, latency_ms, error: error.map(clean) });
    // The log shows the latest.
    let surplus = attempts.0.len().saturating_sub(50);
    attempts.0.drain(..surplus);
    Delivery {
        state: if is_delivered { DeliveryState::Delivered } else { DeliveryState::Failed },
        ready_at: None,
        tries: before.tries + 1,
        attempt_count: before.attempt_count + 1,
        status_code,
        response: response.filter(|_| !is_delivered).map(clean),
        attempts,
        delivered_at: Some(now),
        ..before
    }
}

/// Lets listeners rest whose stream did not come back, and deletes those that rested long enough with what is left of them.
pub async fn tidy(janua: &Janua) -> db::Result<()> {
    let now = janua.clock.now();
    Webhook::rest_listeners(&janua.db, now).await?;
    let before = now.minus(REST);
    for Webhook { app_id: app, id, .. } in Webhook::expired_listeners(&janua.db, before).await? {
        db::transact!(janua.db, async |tx| {
            if Webhook::delete_expired(tx, id, before).await? {
                end_listening(tx, janua, app, id).await?;
            }
            Ok::<_, db::Error>(())
        })?;
    }
    Ok(())
}

/// What follows when a listener is gone.
pub async fn end_listening(tx: &mut db::Tx, janua: &Janua, app: ApplicationId, id: WebhookId) -> db::Result<()> {
    if Webhook::count(tx, app).await? == 0 {
        Application::set_listening(tx, app, false).await?;
    }
    jobs::enqueue(tx, janua, janua.clock.now(), &Clear { webhook: id }).await
}

/// The audit event of a listener that somebody ended.
pub fn ended(id: WebhookId) -> WebhookListenerEnded {
    WebhookListenerEnded { webhook_id: id.to_string() }
}
