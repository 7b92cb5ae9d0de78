//! What was delivered, and delivering it again: one delivery, everything since a moment, or a rehearsal.
use axum::extract::State;
use db::Reach;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, MaybeJson, Path, Routes},
    jobs as queue, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tenancy::{
    enter::{Admin, AppCaller, InApp, Member},
    events::outbox,
};

use super::{
    api::WebhookPath,
    deliveries::{Attempt, Delivery, DeliveryId, State as DeliveryState},
    jobs::{KEPT, Recover},
    model::{Webhook, WebhookId},
    names, payload,
    rules::UNKNOWN_EVENT_TYPES,
};

pub fn routes() -> Routes {
    Routes::new("webhooks")
        .get("/webhooks/{id}/deliveries", list_deliveries, "up to 50 latest delivery records, newest first")
        .post("/webhooks/{id}/test", test_webhook, "send an example of an event")
        .fails(&[UNKNOWN_EVENT_TYPES, INACTIVE])
        .post("/webhooks/{id}/deliveries/{deliveryId}/redeliver", redeliver, "send a delivery again")
        .fails(&[INACTIVE, STILL_PENDING])
        .post("/webhooks/{id}/recover", recover, "send all events since a point in time that were not delivered")
        .fails(&[INACTIVE])
}

pub const INACTIVE: Code = Code::new(409, "webhook_inactive", "The webhook is disabled. Enable it first.");
pub const STILL_PENDING: Code = Code::new(409, "delivery_pending", "This delivery is still in progress.");
/// How many records are shown.
const SHOWN: u32 = 50;

/// A delivery as it is shown.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryView {
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
    event: String,
    payload: Map<String, Value>,
    /// Of the last attempt; 0 when there was no answer.
    status_code: u16,
    /// How the receiver's answer begins, or why there was none; only when the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    attempt_count: u32,
    /// The moment of the last attempt.
    delivered_at: Option<Timestamp>,
    /// When the record goes, in seconds since 1970.
    ttl: Option<i64>,
    status: DeliveryState,
    /// When it is tried next.
    next_attempt_at: Option<Timestamp>,
    /// Every attempt, oldest first.
    attempts: Vec<Attempt>,
}

impl From<Delivery> for DeliveryView {
    fn from(delivery: Delivery) -> Self {
        Self {
            webhook_id: delivery.webhook_id,
            delivery_id: delivery.id,
            payload: serde_json::from_slice(&payload::body(&delivery)).unwrap_or_default(),
            event: delivery.event,
            status_code: delivery.status_code,
            response: delivery.response,
            attempt_count: delivery.attempt_count,
            delivered_at: delivery.delivered_at,
            ttl: delivery.delivered_at.map(|at| at.plus(KEPT).0.div_euclid(1000)),
            status: delivery.state,
            next_attempt_at: delivery.ready_at,
            attempts: delivery.attempts.0,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deliveries {
    deliveries: Vec<DeliveryView>,
    /// Always null: older ones are not shown.
    next_cursor: Option<String>,
}

async fn list_deliveries(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Member>,
    Path(WebhookPath { id }): Path<WebhookPath>,
) -> Result<Json<Deliveries>> {
    newest(&janua, &caller, id).await
}

pub async fn newest(janua: &Janua, caller: &InApp<Member>, id: WebhookId) -> Result<Json<Deliveries>> {
    Webhook::find(&janua.db, caller.application.id, id).await?.ok_or(NOT_FOUND)?;
    let deliveries = Delivery::newest(&janua.db, id, SHOWN).await?.into_iter().map(DeliveryView::from).collect();
    Ok(Json(Deliveries { deliveries, next_cursor: None }))
}

#[derive(Deserialize, JsonSchema)]
pub struct Rehearsal {
    /// The event to send an example of; by default the first the webhook listens to.
    #[schemars(length(min = 1, max = 100))]
    event: Option<String>,
}

/// A delivery that is on its way.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnderWay {
    delivery_id: DeliveryId,
    event: String,
}

async fn test_webhook(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(WebhookPath { id }): Path<WebhookPath>,
    MaybeJson(wanted): MaybeJson<Rehearsal>,
) -> Result<Json<UnderWay>> {
    rehearse(&janua, &caller, id, wanted).await
}

pub async fn rehearse(
    janua: &Janua,
    caller: &InApp<Admin>,
    id: WebhookId,
    wanted: Option<Rehearsal>,
) -> Result<Json<UnderWay>> {
    let app_id = caller.application.id;
    let wanted = wanted.and_then(|wanted| wanted.event);
    let now = janua.clock.now();
    let under_way = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let webhook = Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        if !webhook.is_active {
            return Err(INACTIVE.into());
        }
        let listens = || webhook.events.iter().find(|value| names::is_named(janua, value)).cloned();
        let event = wanted.clone().or_else(listens).unwrap_or_else(|| "user.signed_in".into());
        if !names::is_named(janua, &event) {
            return Err(UNKNOWN_EVENT_TYPES.at("event", "unknown", format!("unknown: {event}")));
        }
        let mut facts = payload::example_facts(&event);
        (facts["test"], facts["at"], facts["appId"]) = (json!(true), json!(now), json!(app_id));
        let about = outbox::rehearse(tx, janua, app_id, &facts).await?;
        let delivery_id = Delivery::insert(tx, janua, id, about, &event, now).await?;
        for listener in Webhook::mirrors_of(tx, id, now).await? {
            Delivery::mirror(tx, janua, listener, delivery_id, now).await?;
        }
        Webhook::wake(tx, id, now).await?;
        tx.notify(Reach::ThisNode, outbox::TOPIC, "").await?;
        Ok(UnderWay { delivery_id, event })
    })?;
    Ok(Json(under_way))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryPath {
    id: WebhookId,
    delivery_id: DeliveryId,
}

async fn redeliver(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(DeliveryPath { id, delivery_id }): Path<DeliveryPath>,
) -> Result<Json<UnderWay>> {
    once_more(&janua, &caller, id, delivery_id).await
}

pub async fn once_more(
    janua: &Janua,
    caller: &InApp<Admin>,
    id: WebhookId,
    delivery_id: DeliveryId,
) -> Result<Json<UnderWay>> {
    let app_id = caller.application.id;
    Webhook::find(&janua.db, app_id, id).await?.ok_or(NOT_FOUND)?;
    let delivery = Delivery::find(&janua.db, id, delivery_id).await?.ok_or(NOT_FOUND)?;
    let now = janua.clock.now();
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let webhook = Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        if !webhook.is_active {
            return Err(INACTIVE.into());
        }
        if !Delivery::again(tx, delivery_id, now).await? {
            return Err(STILL_PENDING.into());
        }
        for listener in Webhook::mirrors_of(tx, id, now).await? {
            Delivery::mirror(tx, janua, listener, delivery_id, now).await?;
        }
        Webhook::wake(tx, id, now).await?;
        Ok(tx.notify(Reach::ThisNode, outbox::TOPIC, "").await?)
    })?;
    Ok(Json(UnderWay { delivery_id, event: delivery.event }))
}

#[derive(Deserialize, JsonSchema)]
pub struct Missed {
    /// Not longer ago than thirty days.
    since: Timestamp,
}

#[derive(Serialize, JsonSchema)]
pub struct Recovering {
    /// From this moment on.
    since: Timestamp,
}

async fn recover(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(WebhookPath { id }): Path<WebhookPath>,
    Json(missed): Json<Missed>,
) -> Result<Json<Recovering>> {
    make_up(&janua, &caller, id, missed).await
}

pub async fn make_up(
    janua: &Janua,
    caller: &InApp<Admin>,
    id: WebhookId,
    Missed { since }: Missed,
) -> Result<Json<Recovering>> {
    let (app_id, now) = (caller.application.id, janua.clock.now());
    Webhook::find(&janua.db, app_id, id).await?.ok_or(NOT_FOUND)?;
    if since > now || now.since(since) > KEPT {
        return Err(INVALID.at("since", "range", "must be within the last thirty days"));
    }
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let webhook = Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        if !webhook.is_active {
            return Err(INACTIVE.into());
        }
        let job = Recover { app: app_id, webhook: id, since, after: (since, String::new()) };
        Ok(queue::enqueue(tx, janua, now, &job).await?)
    })?;
    Ok(Json(Recovering { since }))
}
