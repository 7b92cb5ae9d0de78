//! For platform admins: the inbox of the processor's events, and handling one again.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes, Scope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::PlatformAdmin;

use super::{
    jobs,
    webhook::{InboxId, StoredEvent},
};

pub fn routes() -> Routes {
    Routes::new("billing")
        .get("/billing/admin/events", list_processor_events, "events of the payment processor, newest first")
        .post(
            "/billing/admin/events/{eventId}/replay",
            replay_processor_event,
            "handle an event of the processor again",
        )
        .fails(&[NOT_FOUND])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventView {
    id: InboxId,
    /// billing or connect
    source: String,
    /// The processor's id.
    event_id: String,
    #[serde(rename = "type")]
    kind: String,
    livemode: bool,
    object_id: Option<String>,
    /// received, or pulled when the webhook was lost
    came_by: String,
    /// `waiting`, `applied`, `no_change`, `superseded`, `ignored`, `unknown`, `other_account`, `wrong_mode` and others
    outcome: String,
    detail: Option<String>,
    org_id: Option<String>,
    received_at: Timestamp,
    handled_at: Option<Timestamp>,
}

impl From<StoredEvent> for EventView {
    fn from(event: StoredEvent) -> Self {
        Self {
            id: event.id,
            source: event.source,
            event_id: event.event_id,
            kind: event.r#type,
            livemode: event.livemode,
            object_id: event.object_id,
            came_by: event.came_by,
            outcome: event.outcome,
            detail: event.detail,
            org_id: event.org_id,
            received_at: event.received_at,
            handled_at: event.handled_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventList {
    events: Vec<EventView>,
    next_cursor: Option<String>,
}

async fn list_processor_events(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    page: Page,
) -> Result<Json<EventList>> {
    let fetch = async |below, most| StoredEvent::page(&janua.db, &below, most).await;
    let key = |event: &StoredEvent| Key { at: event.received_at, id: event.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "processor-events", Scope::platform(), fetch, key).await?;
    Ok(Json(EventList { events: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventPath {
    event_id: InboxId,
}

async fn replay_processor_event(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Path(path): Path<EventPath>,
) -> Result<Json<EventView>> {
    let event = StoredEvent::find(&janua.db, path.event_id).await?.ok_or(NOT_FOUND)?;
    jobs::replay(&janua, &event).await?;
    Ok(Json(event.into()))
}
