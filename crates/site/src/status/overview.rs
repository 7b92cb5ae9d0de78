//! What there is to know about the platform: how it does now, how it did, and what went wrong.
use std::collections::BTreeMap;

use db::Db;
use kernel::{
    Janua,
    clock::{Day, Timestamp},
    fault::Result,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    model::{Component, DAYS_KEPT, Impact, Incident, IncidentId, Stage, State, Update, UptimeDay},
    probe::first_day,
};

/// As many incidents that are over as a page shows.
const MOST_PAST: u32 = 50;

/// Everything that the status page shows.
pub struct Overview {
    /// The worst of all components and open incidents; nothing before anything was looked at.
    pub status: Option<State>,
    pub updated_at: Option<Timestamp>,
    pub components: Vec<Component>,
    pub uptime: Vec<ComponentUptime>,
    pub open: Vec<IncidentView>,
    /// What began and ended in the days of the uptime, newest first.
    pub past: Vec<IncidentView>,
}

impl Overview {
    pub async fn read(janua: &Janua) -> Result<Self> {
        let components = Component::all(&janua.db).await?;
        let open = Incident::open(&janua.db).await?;
        let since = first_day(janua.clock.now()).start();
        let past = Incident::resolved_since(&janua.db, since, MOST_PAST).await?;
        let (status, updated_at) = worst(&components, &open);
        Ok(Self {
            status,
            updated_at,
            components,
            uptime: uptime(janua).await?,
            open: with_timelines(&janua.db, open).await?,
            past: with_timelines(&janua.db, past).await?,
        })
    }
}

/// How bad it is, and since when that is known.
pub(super) fn worst(components: &[Component], open: &[Incident]) -> (Option<State>, Option<Timestamp>) {
    let felt = open.iter().map(|incident| match incident.impact {
        Impact::None => State::Operational,
        Impact::Minor | Impact::Major => State::Degraded,
        Impact::Critical => State::Outage,
    });
    let status = components.iter().map(|component| component.state).chain(felt).max();
    (status, components.iter().map(|component| component.checked_at).max())
}

#[derive(Serialize, JsonSchema)]
pub struct ComponentUptime {
    pub name: String,
    /// Percent of all looks of the 90 days that found it working.
    pub uptime: Option<f64>,
    /// 90 days, oldest first, today last.
    pub days: Vec<DayView>,
}

#[derive(Serialize, JsonSchema)]
pub struct DayView {
    pub day: Day,
    /// Percent; null without checks.
    pub uptime: Option<f64>,
    pub checks: i64,
    pub failures: i64,
}

/// How each component did on each day that is kept.
pub(super) async fn uptime(janua: &Janua) -> db::Result<Vec<ComponentUptime>> {
    let first = first_day(janua.clock.now());
    let mut kept: BTreeMap<String, BTreeMap<i64, UptimeDay>> = BTreeMap::new();
    for day in UptimeDay::since(&janua.db, first).await? {
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
    Ok(components.collect())
}

/// With three digits, and never 100 when something failed.
fn percent(checks: i64, failures: i64) -> Option<f64> {
    let worked = i128::from(checks - failures) * 100_000;
    let thousandths = worked.checked_div(i128::from(checks))?;
    i32::try_from(thousandths).ok().map(|thousandths| f64::from(thousandths) / 1000.0)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncidentView {
    pub id: IncidentId,
    pub title: String,
    pub impact: Impact,
    pub state: Stage,
    /// The components it touches.
    pub components: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    /// The timeline, oldest first.
    pub updates: Vec<UpdateView>,
}

impl IncidentView {
    pub(super) fn of(incident: Incident, updates: Vec<UpdateView>) -> Self {
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

impl From<Update> for UpdateView {
    fn from(update: Update) -> Self {
        Self { state: update.state, message: update.message, at: update.at }
    }
}

#[derive(Serialize, JsonSchema)]
pub struct UpdateView {
    pub state: Stage,
    pub message: String,
    pub at: Timestamp,
}

/// Each with its own timeline; they come newest first.
pub(super) async fn with_timelines(db: &Db, incidents: Vec<Incident>) -> db::Result<Vec<IncidentView>> {
    let (Some(newest), Some(oldest)) = (incidents.first(), incidents.last()) else { return Ok(vec![]) };
    let mut timelines: BTreeMap<IncidentId, Vec<UpdateView>> = BTreeMap::new();
    for update in Update::of_incidents(db, oldest.created_at, newest.created_at).await? {
        timelines.entry(update.incident_id).or_default().push(update.into());
    }
    let views = incidents.into_iter().map(|incident| {
        let updates = timelines.remove(&incident.id).unwrap_or_default();
        IncidentView::of(incident, updates)
    });
    Ok(views.collect())
}
