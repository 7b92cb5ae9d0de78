//! Webhooks: who listens to what, and what became of every delivery.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
    samples,
};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[NavEntry::new(Area::App, "Build", "Webhooks", "webhook", "/webhooks")];

pub fn routes() -> Routes {
    pages("pages").get("/console/apps/{appId}/webhooks", webhooks_page, "webhooks of an app").get(
        "/console/apps/{appId}/webhooks/{webhookId}",
        webhook_page,
        "one webhook, its secret and its deliveries",
    )
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfWebhook {
    app_id: String,
    webhook_id: String,
}

/// What can be listened to, as the description has it.
fn events(me: &Me) -> Value {
    let told = me.janua.description.get().into_iter().flat_map(|documents| &documents.told);
    let events: Vec<_> = told.map(|(name, says)| json!({ "name": name, "says": says })).collect();
    json!({ "events": events, "samples": samples::webhooks() })
}

async fn webhooks_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [APP, ("list", "/apps/{appId}/webhooks?{query}")];
    me.show_with("console/webhooks.html", &place, &asks, events(&me)).await
}

async fn webhook_page(me: Me, Path(place): Path<OfWebhook>) -> Response {
    let asks = [
        APP,
        ("webhook", "/apps/{appId}/webhooks/{webhookId}"),
        ("list", "/apps/{appId}/webhooks/{webhookId}/deliveries"),
    ];
    me.show_with("console/webhook.html", &place, &asks, events(&me)).await
}
