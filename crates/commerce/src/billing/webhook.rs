//! The inbox of both webhooks: a signature is checked on the bytes as they came, the event is stored with its job in one commit,
//! and 200 is answered. Nothing is called and nothing is granted in the request.
use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, request::Parts},
};
use db::{Db, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Code, Fault, MALFORMED, Result},
    http::{GenContext, Json, Key, Operation, OperationInput, Raw, Routes},
    id::Id,
    jobs::{self, Chore},
    transact,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tenancy::events::{self, About, By};

use super::{events::EventRejected, jobs::HandleEvent};
use crate::payments::{
    Driver, NOT_CONFIGURED, Payments, Source,
    read::Event,
    signature::{MALFORMED_HEADER, OUTSIDE_TOLERANCE, SIGNATURE_MISMATCH, verify},
};

pub const EVENT_MISMATCH: Code =
    Code::new(400, "event_mismatch", "An event of this id was received before, with another content.");
const LONGEST: usize = 256 * 1024;
/// Events are kept this long.
const KEPT: Duration = Duration::from_hours(24 * 30);

pub const CHORES: &[Chore] = &[Chore::sweep(
    "processor_event",
    "DELETE FROM processor_event WHERE id IN
         (SELECT id FROM processor_event WHERE received_at < $1 ORDER BY received_at LIMIT $2)",
    KEPT,
)];

pub fn routes() -> Routes {
    Routes::new("billing")
        .body_limit(LONGEST)
        .each(|routes| {
            routes
                .fails(&[
                    NOT_CONFIGURED,
                    MALFORMED_HEADER,
                    OUTSIDE_TOLERANCE,
                    SIGNATURE_MISMATCH,
                    EVENT_MISMATCH,
                    MALFORMED,
                ])
                .unkept()
        })
        .post("/billing/webhook", receive_billing_event, "payment-processor webhook receiver")
        .post("/connect/webhook/payments", receive_merchant_event, "connected-merchant webhook receiver")
}

/// All headers of a request.
struct Headers(HeaderMap);

impl FromRequestParts<Janua> for Headers {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        Ok(Self(parts.headers.clone()))
    }
}

impl OperationInput for Headers {
    fn operation_input(_: &mut GenContext, _: &mut Operation) {}
}

#[derive(Serialize, JsonSchema)]
struct Received {
    received: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
}

async fn receive_billing_event(State(janua): State<Janua>, headers: Headers, body: Raw) -> Result<Json<Received>> {
    receive(&janua, Source::Billing, &headers.0, &body.0).await
}

async fn receive_merchant_event(State(janua): State<Janua>, headers: Headers, body: Raw) -> Result<Json<Received>> {
    receive(&janua, Source::Connect, &headers.0, &body.0).await
}

async fn receive(janua: &Janua, source: Source, headers: &HeaderMap, body: &[u8]) -> Result<Json<Received>> {
    let driver = Payments::required(janua)?;
    let secrets = driver.secrets(janua, source);
    if secrets.is_empty() {
        return Err(NOT_CONFIGURED.because(format!("No {}_webhook_secrets are set.", source.name())));
    }
    if let Err(code) = verify(headers, body, &secrets, janua.clock.now()) {
        reject(janua, code.name).await?;
        return Err(code.into());
    }
    let value: Value = serde_json::from_slice(body).map_err(|_| MALFORMED.because("Not JSON."))?;
    let event = Event::read(&value).ok_or_else(|| MALFORMED.because("Not an event."))?;
    let text = String::from_utf8_lossy(body);
    let stored = transact!(janua, async |tx| Ok(StoredEvent::store(
        tx, janua, driver, source, "received", &event, &text
    )
    .await?))?;
    match stored {
        Stored::New => Ok(Json(Received { received: true, duplicate: None })),
        Stored::Duplicate => Ok(Json(Received { received: true, duplicate: Some(true) })),
        Stored::Other => {
            reject(janua, EVENT_MISMATCH.name).await?;
            Err(EVENT_MISMATCH.into())
        }
    }
}

/// When a refusal was recorded last: once a minute is enough.
#[derive(Default)]
pub struct LastRejection(AtomicI64);

async fn reject(janua: &Janua, reason: &str) -> Result<()> {
    let now = janua.clock.now().0;
    let last = &janua.own::<LastRejection>().0;
    let before = last.load(Relaxed);
    if now - before < 60_000 || last.compare_exchange(before, now, Relaxed, Relaxed).is_err() {
        return Ok(());
    }
    let event = EventRejected { reason: reason.to_owned() };
    let recorded = async {
        transact!(janua, async |tx| Ok(events::record(tx, janua, &By::default(), About::default(), &event).await?))
    };
    db::aside(recorded).await
}

pub type InboxId = Id<StoredEvent>;

/// An event as it is kept.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    pub id: InboxId,
    pub source: String,
    pub event_id: String,
    pub r#type: String,
    pub livemode: bool,
    pub account: Option<String>,
    pub object_id: Option<String>,
    pub received_at: Timestamp,
    pub came_by: String,
    pub outcome: String,
    pub detail: Option<String>,
    pub org_id: Option<String>,
    pub handled_at: Option<Timestamp>,
}

impl db::FromRow for StoredEvent {
    fn from_row(mut row: db::Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            source: row.get("source")?,
            event_id: row.get("event_id")?,
            r#type: row.get("type")?,
            livemode: row.get("livemode")?,
            account: row.get("account")?,
            object_id: row.get("object_id")?,
            received_at: row.get("received_at")?,
            came_by: row.get("came_by")?,
            outcome: row.get("outcome")?,
            detail: row.get("detail")?,
            org_id: row.get("org_id")?,
            handled_at: row.get("handled_at")?,
        })
    }
}

/// What became of an event that came.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    New,
    Duplicate,
    /// The same id with another content.
    Other,
}

struct Digest {
    digest: String,
    came_by: String,
}
row!(Digest { digest, came_by });

impl StoredEvent {
    /// Stores an event and the job that handles it.
    pub async fn store(
        tx: &mut Tx,
        janua: &Janua,
        driver: &Driver,
        source: Source,
        came_by: &'static str,
        event: &Event,
        body: &str,
    ) -> db::Result<Stored> {
        let now = janua.clock.now();
        let (id, digest) = (InboxId::new(&janua.entropy, now), crypto::hash(body.as_bytes()));
        let outcome = if event.livemode == driver.livemode { "waiting" } else { "wrong_mode" };
        let stored = tx
            .exec(
                "INSERT INTO processor_event (id, source, event_id, type, livemode, account, object_id, digest, body,
                                              received_at, came_by, outcome)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (source, event_id) DO NOTHING",
                params![
                    id,
                    source.name(),
                    &event.id,
                    &event.kind,
                    event.livemode,
                    event.account.clone(),
                    event.object.clone(),
                    &digest,
                    body,
                    now,
                    came_by,
                    outcome
                ],
            )
            .await?;
        if stored == 0 {
            let sql = "SELECT digest, came_by FROM processor_event WHERE source = $1 AND event_id = $2";
            let known: Option<Digest> = tx.opt(sql, params![source.name(), &event.id]).await?;
            // One that we fetched ourselves is written differently than one that was sent.
            let is_same = known.is_some_and(|known| known.digest == digest || known.came_by != came_by);
            return Ok(if is_same { Stored::Duplicate } else { Stored::Other });
        }
        if outcome == "waiting" {
            jobs::enqueue(tx, janua, now, &HandleEvent { id }).await?;
        }
        Ok(Stored::New)
    }

    pub async fn find(db: &Db, id: InboxId) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM processor_event WHERE id = $1", params![id]).await
    }

    pub async fn page(db: &Db, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM processor_event WHERE (received_at, id) < ($1, $2) ORDER BY received_at DESC, id DESC LIMIT $3",
            params![below.at, &below.id, most],
        )
        .await
    }

    /// When the last one came.
    pub async fn last(db: &Db) -> db::Result<Option<Timestamp>> {
        let sql = "SELECT received_at FROM processor_event ORDER BY received_at DESC, id DESC LIMIT 1";
        Ok(db.opt::<(Timestamp,)>(sql, params![]).await?.map(|(at,)| at))
    }

    /// Writes down what an event did.
    pub async fn done(db: &Db, id: InboxId, outcome: &Outcome, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE processor_event SET outcome = $2, detail = $3, org_id = $4, handled_at = $5 WHERE id = $1";
        db.exec(sql, params![id, outcome.word, outcome.detail.clone(), outcome.org.clone(), now]).await.map(drop)
    }
}

/// What an event did.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub word: &'static str,
    pub detail: Option<String>,
    pub org: Option<String>,
}

impl Outcome {
    pub fn new(word: &'static str) -> Self {
        Self { word, detail: None, org: None }
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers give texts, numbers and ids alike")]
    pub fn of(word: &'static str, org: impl ToString) -> Self {
        Self { word, detail: None, org: Some(org.to_string()) }
    }
}
