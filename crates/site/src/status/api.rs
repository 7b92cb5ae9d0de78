//! The public doors to the status of the platform.
use std::time::Duration;

use axum::{
    extract::State as Ctx,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, Listed, Page, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::PlatformOwner;

use super::{
    incidents::{self, ALREADY_RESOLVED, Report},
    model::{Component, Impact, Incident, IncidentId, Stage, State, Update},
    overview::{self, ComponentUptime, IncidentView, Overview, UpdateView},
};
use crate::{accept::wants_page, status::events::IncidentReported};

pub fn routes() -> Routes {
    Routes::new("status")
        .get("/status", summary, "platform status summary; a page for browsers")
        .answers::<SummaryView>(200, "application/json")
        .answers::<String>(200, HTML)
        .answers::<String>(500, HTML)
        .answers::<String>(503, HTML)
        .get("/status/canary", canary, "canary check for synthetic monitoring")
        .answers::<CanaryView>(200, "application/json")
        .answers::<CanaryView>(503, "application/json")
        .get("/status/uptime", uptime, "uptime history per component")
        .get("/status/incidents", list_incidents, "active and recent incidents, newest first")
        .post("/admin/status/incidents", report, "create or update an incident")
        .fails(&[ALREADY_RESOLVED, NOT_FOUND])
}

const HTML: &str = "text/html; charset=utf-8";
const CANARY_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SummaryView {
    /// The worst of all components and open incidents; null before anything was looked at.
    status: Option<State>,
    updated_at: Option<Timestamp>,
    components: Vec<Component>,
    open_incidents: Vec<OpenIncident>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OpenIncident {
    id: IncidentId,
    title: String,
    impact: Impact,
    state: Stage,
    created_at: Timestamp,
}

/// Draws the status for people. Whoever makes pages brings it along; without it everybody gets JSON.
pub struct StatusPage(pub fn(&Janua, Result<Overview>) -> Response);

async fn summary(Ctx(janua): Ctx<Janua>, headers: HeaderMap) -> Result<Response> {
    let mut response = match janua.find::<StatusPage>().filter(|_| wants_page(&headers)) {
        Some(page) => page.0(&janua, Overview::read(&janua).await),
        None => Json(summarize(&janua).await?).into_response(),
    };
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

async fn summarize(janua: &Janua) -> Result<SummaryView> {
    let components = Component::all(&janua.db).await?;
    let open = Incident::open(&janua.db).await?;
    let (status, updated_at) = overview::worst(&components, &open);
    let open_incidents = open.into_iter().map(|i| OpenIncident {
        id: i.id,
        title: i.title,
        impact: i.impact,
        state: i.stage,
        created_at: i.created_at,
    });
    Ok(SummaryView { status, updated_at, open_incidents: open_incidents.collect(), components })
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CanaryView {
    ok: bool,
    at: Timestamp,
    latency_ms: u64,
}

/// Goes the whole way a request goes, to the database and back, each time it is asked.
async fn canary(Ctx(janua): Ctx<Janua>) -> Response {
    let started = tokio::time::Instant::now();
    let ok = janua.db.ping(CANARY_PATIENCE).await.is_ok();
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(CanaryView { ok, at: janua.clock.now(), latency_ms })).into_response()
}

#[derive(Serialize, JsonSchema)]
struct UptimeView {
    components: Vec<ComponentUptime>,
}

async fn uptime(Ctx(janua): Ctx<Janua>) -> Result<Json<UptimeView>> {
    Ok(Json(UptimeView { components: overview::uptime(&janua).await? }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IncidentsView {
    incidents: Vec<IncidentView>,
    next_cursor: Option<String>,
}

/// A new incident, or with `id` the next entry of one that is there.
#[derive(Deserialize, JsonSchema)]
struct NewReport {
    id: Option<IncidentId>,
    /// Needed for a new incident.
    #[schemars(length(min = 1, max = 200))]
    title: Option<String>,
    impact: Option<Impact>,
    state: Option<Stage>,
    #[schemars(length(max = 20), inner(length(min = 1, max = 50)))]
    components: Option<Vec<String>>,
    /// The public message about the incident.
    #[schemars(length(min = 1, max = 4000))]
    message: String,
}

async fn report(
    Ctx(janua): Ctx<Janua>,
    owner: PlatformOwner,
    Json(new): Json<NewReport>,
) -> Result<Json<IncidentView>> {
    if new.id.is_none() && new.title.is_none() {
        return Err(INVALID.at("title", "required", "is required for a new incident"));
    }
    let report = Report {
        title: new.title,
        impact: new.impact,
        stage: new.state,
        components: new.components,
        message: new.message,
    };
    let (incident, updates) = transact!(janua, async |tx| {
        let incident = match new.id {
            Some(id) => incidents::update(tx, &janua, id, report.clone()).await?,
            None => incidents::open(tx, &janua, report.clone()).await?,
        };
        let event = IncidentReported { incident_id: incident.id.to_string(), state: incident.stage.name() };
        owner.record(tx, &janua, &event).await?;
        let updates = Update::of_incident(tx, incident.id).await?;
        Ok((incident, updates))
    })?;
    Ok(Json(IncidentView::of(incident, updates.into_iter().map(UpdateView::from).collect())))
}

async fn list_incidents(Ctx(janua): Ctx<Janua>, page: Page) -> Result<Json<IncidentsView>> {
    let fetch = async |below, most| Incident::page(&janua.db, &below, most).await;
    let Listed { rows, next_cursor } =
        page.list(&janua, "incidents", Scope::platform(), fetch, Incident::key).await?;
    Ok(Json(IncidentsView { incidents: overview::with_timelines(&janua.db, rows).await?, next_cursor }))
}
