//! The public doors to the status of the platform.
use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::State as Ctx,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use kernel::{
    App,
    clock::{Day, Timestamp},
    fault::{Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Page, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::PlatformOwner,
    events::{self, Event},
};

use super::{
    incidents::{self, ALREADY_RESOLVED, Report},
    model::{Component, DAYS_KEPT, Impact, Incident, IncidentId, Stage, State, Update, UptimeDay},
    probe::first_day,
};

pub fn routes() -> Routes {
    Routes::new("status")
        .get("/status", summary, "platform status summary")
        .get("/status/canary", canary, "canary check for synthetic monitoring")
        .answers::<CanaryView>(200, "application/json")
        .answers::<CanaryView>(503, "application/json")
        .get("/status/uptime", uptime, "uptime history per component")
        .get("/status/incidents", list_incidents, "active and recent incidents, newest first")
        .post("/admin/status/incidents", report, "create or update an incident")
        .fails(&[ALREADY_RESOLVED, NOT_FOUND])
}

const CANARY_PATIENCE: Duration = Duration::from_secs(2);
/// The name cursors of this list are bound to.
const INCIDENTS: &str = "incidents";

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

async fn summary(Ctx(app): Ctx<App>) -> Result<Json<SummaryView>> {
    let components = Component::all(&app.db).await?;
    let open = Incident::open(&app.db).await?;
    let felt = open.iter().map(|incident| match incident.impact {
        Impact::None => State::Operational,
        Impact::Minor | Impact::Major => State::Degraded,
        Impact::Critical => State::Outage,
    });
    Ok(Json(SummaryView {
        status: components.iter().map(|component| component.state).chain(felt).max(),
        updated_at: components.iter().map(|component| component.checked_at).max(),
        open_incidents: open
            .into_iter()
            .map(|i| OpenIncident {
                id: i.id,
                title: i.title,
                impact: i.impact,
                state: i.stage,
                created_at: i.created_at,
            })
            .collect(),
        components,
    }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CanaryView {
    ok: bool,
    at: Timestamp,
    latency_ms: u64,
}

/// Goes the whole way a request goes, to the database and back, each time it is asked.
async fn canary(Ctx(app): Ctx<App>) -> Response {
    let started = tokio::time::Instant::now();
    let ok = app.db.ping(CANARY_PATIENCE).await.is_ok();
    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(CanaryView { ok, at: app.clock.now(), latency_ms })).into_response()
}

#[derive(Serialize, JsonSchema)]
struct UptimeView {
    components: Vec<ComponentUptime>,
}

#[derive(Serialize, JsonSchema)]
struct ComponentUptime {
    name: String,
    /// Percent of all looks of the 90 days that found it working.
    uptime: Option<f64>,
    /// 90 days, oldest first, today last.
    days: Vec<DayView>,
}

#[derive(Serialize, JsonSchema)]
struct DayView {
    day: Day,
    /// Percent; null when nobody looked.
    uptime: Option<f64>,
    checks: i64,
    failures: i64,
}

async fn uptime(Ctx(app): Ctx<App>) -> Result<Json<UptimeView>> {
    let first = first_day(app.clock.now());
    let mut kept: BTreeMap<String, BTreeMap<i64, UptimeDay>> = BTreeMap::new();
    for day in UptimeDay::since(&app.db, first).await? {
        kept.entry(day.component.clone()).or_default().insert(day.day.0, day);
    }
    let components = kept.into_iter().map(|(name, days)| ComponentUptime {
        name,
        uptime: percent(days.values().map(|d| d.checks).sum(), days.values().map(|d| d.failures).sum()),
        days: (first.0..first.0 + DAYS_KEPT)
            .map(|day| {
                let (checks, failures) = days.get(&day).map_or((0, 0), |found| (found.checks, found.failures));
                DayView { day: Day(day), uptime: percent(checks, failures), checks, failures }
            })
            .collect(),
    });
    Ok(Json(UptimeView { components: components.collect() }))
}

/// With three digits, and never 100 when something failed.
fn percent(checks: i64, failures: i64) -> Option<f64> {
    let worked = i128::from(checks - failures) * 100_000;
    let thousandths = worked.checked_div(i128::from(checks))?;
    i32::try_from(thousandths).ok().map(|thousandths| f64::from(thousandths) / 1000.0)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IncidentsView {
    incidents: Vec<IncidentView>,
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct IncidentView {
    id: IncidentId,
    title: String,
    impact: Impact,
    state: Stage,
    /// The components it touches.
    components: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    resolved_at: Option<Timestamp>,
    /// The timeline, oldest first.
    updates: Vec<UpdateView>,
}

impl IncidentView {
    fn of(incident: Incident, updates: Vec<UpdateView>) -> Self {
        Self {
            id: incident.id,
            title: incident.title,
            impact: incident.impact,
            state: incident.stage,
            components: incident.components,
            created_at: incident.created_at,
            updated_at: incident.updated_at,
            resolved_at: incident.resolved_at,
            updates,
        }
    }
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
    /// What is known now, for everybody to read.
    #[schemars(length(min = 1, max = 4000))]
    message: String,
}

async fn report(Ctx(app): Ctx<App>, owner: PlatformOwner, Json(new): Json<NewReport>) -> Result<Json<IncidentView>> {
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
    let (incident, updates) = transact!(app.db, tx, {
        let incident = match new.id {
            Some(id) => incidents::update(tx, &app, id, report.clone()).await?,
            None => incidents::open(tx, &app, report.clone()).await?,
        };
        let event = Event::IncidentReported { incident: incident.id.to_string(), state: incident.stage.name() };
        events::record(tx, &app, &owner.0.by(), None, &event).await?;
        let updates = Update::of_incident(tx, incident.id).await?;
        Ok::<_, Fault>((incident, updates))
    })?;
    Ok(Json(IncidentView::of(incident, updates.into_iter().map(UpdateView::from).collect())))
}

impl From<Update> for UpdateView {
    fn from(update: Update) -> Self {
        Self { state: update.state, message: update.message, at: update.at }
    }
}

#[derive(Serialize, JsonSchema)]
struct UpdateView {
    state: Stage,
    message: String,
    at: Timestamp,
}

async fn list_incidents(Ctx(app): Ctx<App>, page: Page) -> Result<Json<IncidentsView>> {
    let below = page.below(&app, INCIDENTS)?;
    let mut found = Incident::page(&app.db, &below, page.fetch()).await?;
    let next_cursor = page.cut(&app, INCIDENTS, &mut found, Incident::key);
    let (Some(newest), Some(oldest)) = (found.first(), found.last()) else {
        return Ok(Json(IncidentsView { incidents: vec![], next_cursor }));
    };
    let mut timelines: BTreeMap<IncidentId, Vec<UpdateView>> = BTreeMap::new();
    for update in Update::of_incidents(&app.db, oldest.created_at, newest.created_at).await? {
        timelines.entry(update.incident_id).or_default().push(update.into());
    }
    let incidents = found.into_iter().map(|incident| {
        let updates = timelines.remove(&incident.id).unwrap_or_default();
        IncidentView::of(incident, updates)
    });
    Ok(Json(IncidentsView { incidents: incidents.collect(), next_cursor }))
}
