//! Deliveries as stored, and every statement on them.
use db::{Db, FromValue, InJson, Tx, Value, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    http::Key,
    id::Id,
    telemetry::{MOST_STEPS, StepKind, TraceStep},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::events::outbox::AppEventId;

use super::model::WebhookId;

pub type DeliveryId = Id<Delivery>;

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Will be tried, for the first time or again.
    Pending,
    Delivered,
    Failed,
    /// The webhook was switched off before.
    Cancelled,
    /// Its payload is larger than a delivery may be.
    Dropped,
}

const STATES: [(State, &str); 5] = [
    (State::Pending, "pending"),
    (State::Delivered, "delivered"),
    (State::Failed, "failed"),
    (State::Cancelled, "cancelled"),
    (State::Dropped, "dropped"),
];

impl From<State> for Value {
    fn from(state: State) -> Self {
        STATES.iter().find(|(known, _)| *known == state).map_or("pending", |(_, word)| word).into()
    }
}
impl FromValue for State {
    fn from_value(value: Value) -> Option<Self> {
        let word = String::from_value(value)?;
        STATES.iter().find(|(_, known)| *known == word).map(|(state, _)| *state)
    }
}

/// One attempt of a delivery.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub at: Timestamp,
    /// 0 when there was no answer.
    pub status_code: u16,
    pub latency_ms: u64,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    /// The name it goes under.
    pub event: String,
    pub state: State,
    pub ready_at: Option<Timestamp>,
    /// Tries since it was last asked for.
    pub tries: u32,
    /// Tries altogether.
    pub attempt_count: u32,
    pub status_code: u16,
    pub response: Option<String>,
    pub attempts: InJson<Vec<Attempt>>,
    pub delivered_at: Option<Timestamp>,
    /// What happened, as the outbox has it: JSON.
    pub facts: String,
    /// The span that caused it, for the header of the same name.
    pub traceparent: Option<String>,
}
row!(Delivery {
    id,
    webhook_id,
    event,
    state,
    ready_at,
    tries,
    attempt_count,
    status_code,
    response,
    attempts,
    delivered_at,
    facts,
    traceparent
});

struct TracedDelivery {
    id: String,
    webhook_id: String,
    event: String,
    state: String,
    attempt_count: u32,
    status_code: u16,
    created_at: Timestamp,
    delivered_at: Option<Timestamp>,
    app_id: String,
}
row!(TracedDelivery { id, webhook_id, event, state, attempt_count, status_code, created_at, delivered_at, app_id });

/// The deliveries of what a request caused, oldest first.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let sql =
        "SELECT d.id, d.webhook_id, d.event, d.state, d.attempt_count, d.status_code, d.created_at, d.delivered_at,
                      app_event.app_id
               FROM app_event JOIN webhook_delivery d ON d.event_id = app_event.id
               WHERE app_event.request_id = $1 ORDER BY d.id LIMIT $2";
    let deliveries: Vec<TracedDelivery> = db.all(sql, params![request, MOST_STEPS]).await?;
    let step = |delivery: TracedDelivery| {
        TraceStep::new(StepKind::Delivery, delivery.id, delivery.created_at, delivery.event)
            .state(delivery.state)
            .tries(delivery.attempt_count)
            .status_code(delivery.status_code)
            .ended_at(delivery.delivered_at)
            .with("webhookId", Some(delivery.webhook_id))
            .with("appId", Some(delivery.app_id))
    };
    Ok(deliveries.into_iter().map(step).collect())
}

/// Where to look for what one webhook has to deliver.
pub struct Search {
    pub webhook: WebhookId,
    pub until: Timestamp,
    pub after: Key,
    pub most: u32,
}

impl Search {
    fn params(&self) -> Vec<Value> {
        params![self.webhook, self.until, self.after.at, &self.after.id, self.most]
    }
}

const DUE: &str = "SELECT webhook_delivery.*, app_event.facts, app_event.traceparent FROM webhook_delivery
     JOIN app_event ON app_event.id = webhook_delivery.event_id
     WHERE webhook_delivery.webhook_id = $1 AND webhook_delivery.ready_at <= $2
       AND (webhook_delivery.ready_at, webhook_delivery.id) > ($3, $4)
     ORDER BY webhook_delivery.ready_at, webhook_delivery.id LIMIT $5";

const NOTE: &str =
    "UPDATE webhook_delivery SET state = $2, ready_at = $3, tries = $4, attempt_count = $5, status_code = $6,
                                 response = $7, attempts = $8, delivered_at = $9
     WHERE id = $1 AND ready_at IS NOT NULL";

/// How many deliveries will be attempted, counted up to 10,000, and since when the oldest has been due.
pub async fn queued(db: &Db) -> db::Result<(i64, Option<Timestamp>)> {
    let count = "SELECT CAST(COUNT(*) AS BIGINT) AS n
                 FROM (SELECT 1 FROM webhook_delivery WHERE ready_at IS NOT NULL LIMIT 10000) w";
    let oldest = "SELECT next_at FROM webhook WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1";
    let (count,): (i64,) = db.one(count, params![]).await?;
    let oldest: Option<(Timestamp,)> = db.opt(oldest, params![]).await?;
    Ok((count, oldest.map(|(at,)| at)))
}

impl Delivery {
    /// A new one; nothing when the webhook was given this already.
    pub async fn insert(
        tx: &mut Tx,
        janua: &Janua,
        webhook: WebhookId,
        event_id: AppEventId,
        event: &str,
        now: Timestamp,
    ) -> db::Result<DeliveryId> {
        let id = DeliveryId::new(&janua.entropy, now);
        tx.send(
            "INSERT INTO webhook_delivery (id, webhook_id, event_id, event, state, ready_at, tries, attempt_count,
                                           status_code, attempts, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, '[]', $6)
             ON CONFLICT (event_id, webhook_id, event) DO NOTHING",
            params![id, webhook, event_id, event, State::Pending, now],
        )
        .await?;
        Ok(id)
    }

    /// Like a new one, or the old one again if it did not arrive.
    pub async fn recover(
        tx: &mut Tx,
        janua: &Janua,
        webhook: WebhookId,
        event_id: AppEventId,
        event: &str,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec(
            "INSERT INTO webhook_delivery (id, webhook_id, event_id, event, state, ready_at, tries, attempt_count,
                                           status_code, attempts, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, '[]', $6)
             ON CONFLICT (event_id, webhook_id, event) DO UPDATE SET state = $5, ready_at = $6, tries = 0
             WHERE webhook_delivery.state IN ('failed', 'cancelled')",
            params![DeliveryId::new(&janua.entropy, now), webhook, event_id, event, State::Pending, now],
        )
        .await?;
        Ok(())
    }

    pub async fn find(db: &Db, webhook: WebhookId, id: DeliveryId) -> db::Result<Option<Self>> {
        db.opt(
            "SELECT webhook_delivery.*, app_event.facts, app_event.traceparent FROM webhook_delivery
             JOIN app_event ON app_event.id = webhook_delivery.event_id
             WHERE webhook_delivery.webhook_id = $1 AND webhook_delivery.id = $2",
            params![webhook, id],
        )
        .await
    }

    /// The newest that were tried.
    pub async fn newest(db: &Db, webhook: WebhookId, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT webhook_delivery.*, app_event.facts, app_event.traceparent FROM webhook_delivery
             JOIN app_event ON app_event.id = webhook_delivery.event_id
             WHERE webhook_delivery.webhook_id = $1 AND webhook_delivery.delivered_at IS NOT NULL
             ORDER BY webhook_delivery.delivered_at DESC, webhook_delivery.id DESC LIMIT $2",
            params![webhook, most],
        )
        .await
    }

    /// What is to be tried now, in the order in which it became so.
    pub async fn due(db: &Db, search: &Search) -> db::Result<Vec<Self>> {
        db.all(DUE, search.params()).await
    }

    /// The same, as it will be after the transaction.
    pub async fn due_then(tx: &mut Tx, search: &Search) -> db::Result<Vec<Self>> {
        tx.all(DUE, search.params()).await
    }

    /// Writes down how an attempt ended, unless it was taken out of the queue meanwhile. The webhook must be ours
    /// ([`Held::keep`](super::model::Held::keep)).
    pub async fn note(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(NOTE, self.noted()).await
    }

    /// The same, for whoever must know whether it counts.
    pub async fn note_and_see(&self, tx: &mut Tx) -> db::Result<bool> {
        Ok(tx.exec(NOTE, self.noted()).await? == 1)
    }

    fn noted(&self) -> Vec<Value> {
        params![
            self.id,
            self.state,
            self.ready_at,
            self.tries,
            self.attempt_count,
            u32::from(self.status_code),
            self.response.clone(),
            &self.attempts,
            self.delivered_at
        ]
    }

    /// Puts it into the queue once more. `false` when it is there already.
    pub async fn again(tx: &mut Tx, id: DeliveryId, now: Timestamp) -> db::Result<bool> {
        let sql =
            "UPDATE webhook_delivery SET state = $2, ready_at = $3, tries = 0 WHERE id = $1 AND ready_at IS NULL";
        Ok(tx.exec(sql, params![id, State::Pending, now]).await? == 1)
    }

    /// The same event for a listener, as a new delivery or once more.
    pub async fn mirror(
        tx: &mut Tx,
        janua: &Janua,
        listener: WebhookId,
        of: DeliveryId,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec(
            "INSERT INTO webhook_delivery (id, webhook_id, event_id, event, state, ready_at, tries, attempt_count,
                                           status_code, attempts, created_at)
             SELECT $1, $2, event_id, event, $3, $4, 0, 0, 0, '[]', $4 FROM webhook_delivery WHERE id = $5
             ON CONFLICT (event_id, webhook_id, event) DO UPDATE SET state = $3, ready_at = $4, tries = 0",
            params![DeliveryId::new(&janua.entropy, now), listener, State::Pending, now, of],
        )
        .await
        .map(drop)
    }

    /// Takes what waits for a webhook that was switched off out of the queue, a bit at a time; answers how much it was.
    pub async fn cancel(db: &Db, webhook: WebhookId, until: Timestamp, most: u32) -> db::Result<u64> {
        db.exec(
            "UPDATE webhook_delivery SET state = $4, ready_at = NULL WHERE id IN
                 (SELECT id FROM webhook_delivery WHERE webhook_id = $1 AND ready_at IS NOT NULL AND created_at <= $2
                  LIMIT $3)",
            params![webhook, until, most, State::Cancelled],
        )
        .await
    }

    /// Removes what is left of a webhook, a bit at a time.
    pub async fn sweep_of(db: &Db, webhook: WebhookId, most: u32) -> db::Result<u64> {
        db.exec(
            "DELETE FROM webhook_delivery WHERE id IN
                 (SELECT id FROM webhook_delivery WHERE webhook_id = $1 LIMIT $2)",
            params![webhook, most],
        )
        .await
    }

    /// Removes records that were kept long enough, and what waits for nobody, a bit at a time.
    pub async fn sweep(db: &Db, before: Timestamp, most: u32) -> db::Result<u64> {
        db.exec(
            "DELETE FROM webhook_delivery WHERE id IN
                 (SELECT id FROM webhook_delivery
                  WHERE id < $1 AND (delivered_at IS NULL OR (delivered_at < $2 AND ready_at IS NULL))
                  ORDER BY id LIMIT $3)",
            params![DeliveryId::first_of(before), before, most],
        )
        .await
    }
}
