//! The same for who has no key of the app at hand: its people, in the console. What is done is what the routes with a key
//! do.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, MaybeJson, Page, Path, Routes},
    ports::dns::DNS_UNAVAILABLE,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::{Admin, InApp, Member},
    quotas::QUOTA_EXCEEDED,
};

use super::{
    again::{self, Deliveries, INACTIVE, Missed, Recovering, Rehearsal, STILL_PENDING, UnderWay},
    api::{self, Change, IS_LISTENER, NewWebhook, TOO_MANY, WebhookView, Webhooks},
    deliveries::DeliveryId,
    model::WebhookId,
    rules::{TOO_MANY_AT_HOST, UNKNOWN_EVENT_TYPES},
};

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps/{appId}/webhooks", list_app_webhooks, "list webhooks (dashboard)")
        .post("/apps/{appId}/webhooks", create_app_webhook, "create a webhook (dashboard)")
        .fails(&[UNKNOWN_EVENT_TYPES, DNS_UNAVAILABLE, TOO_MANY, TOO_MANY_AT_HOST, QUOTA_EXCEEDED])
        .get("/apps/{appId}/webhooks/{webhookId}", get_app_webhook, "one webhook (dashboard)")
        .patch("/apps/{appId}/webhooks/{webhookId}", update_app_webhook, "change a webhook (dashboard)")
        .fails(&[UNKNOWN_EVENT_TYPES, DNS_UNAVAILABLE, TOO_MANY_AT_HOST, IS_LISTENER])
        .delete("/apps/{appId}/webhooks/{webhookId}", delete_app_webhook, "delete a webhook (dashboard)")
        .get("/apps/{appId}/webhooks/{webhookId}/deliveries", list_app_deliveries, "latest deliveries (dashboard)")
        .post("/apps/{appId}/webhooks/{webhookId}/test", test_app_webhook, "send an example (dashboard)")
        .fails(&[UNKNOWN_EVENT_TYPES, INACTIVE])
        .post(
            "/apps/{appId}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver",
            redeliver_to_app,
            "send a delivery again (dashboard)",
        )
        .fails(&[INACTIVE, STILL_PENDING])
        .post("/apps/{appId}/webhooks/{webhookId}/recover", recover_app_webhook, "deliver missed events (dashboard)")
        .fails(&[INACTIVE])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppWebhookPath {
    webhook_id: WebhookId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppDeliveryPath {
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
}

async fn list_app_webhooks(State(janua): State<Janua>, caller: InApp<Member>, page: Page) -> Result<Json<Webhooks>> {
    api::list(&janua, &caller.application, &page).await
}

async fn create_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewWebhook>,
) -> Result<Json<WebhookView>> {
    api::register(&janua, &caller, new).await
}

async fn get_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(which): Path<AppWebhookPath>,
) -> Result<Json<WebhookView>> {
    api::show(&janua, &caller, which.webhook_id).await
}

async fn update_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(which): Path<AppWebhookPath>,
    Json(change): Json<Change>,
) -> Result<Json<WebhookView>> {
    api::alter(&janua, &caller, which.webhook_id, change).await
}

async fn delete_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(which): Path<AppWebhookPath>,
) -> Result<NoContent> {
    api::remove(&janua, &caller, which.webhook_id).await
}

async fn list_app_deliveries(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(which): Path<AppWebhookPath>,
) -> Result<Json<Deliveries>> {
    again::newest(&janua, &caller, which.webhook_id).await
}

async fn test_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(which): Path<AppWebhookPath>,
    MaybeJson(wanted): MaybeJson<Rehearsal>,
) -> Result<Json<UnderWay>> {
    again::rehearse(&janua, &caller, which.webhook_id, wanted).await
}

async fn redeliver_to_app(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(which): Path<AppDeliveryPath>,
) -> Result<Json<UnderWay>> {
    again::once_more(&janua, &caller, which.webhook_id, which.delivery_id).await
}

async fn recover_app_webhook(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(which): Path<AppWebhookPath>,
    Json(missed): Json<Missed>,
) -> Result<Json<Recovering>> {
    again::make_up(&janua, &caller, which.webhook_id, missed).await
}
