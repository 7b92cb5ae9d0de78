//! What may happen to an incident: it is opened, it moves along, it is resolved, and every step is kept.
use db::Tx;
use kernel::{
    Janua,
    fault::{Code, NOT_FOUND, Result},
    id::Id,
};

use super::model::Update;
pub use super::model::{Impact, Incident, IncidentId, Stage};

pub const ALREADY_RESOLVED: Code = Code::new(409, "incident_resolved", "The incident is resolved. Create a new one.");

/// What is told about an incident, at its start or later. What is left out stays as it was.
#[derive(Debug, Default, Clone)]
pub struct Report {
    pub title: Option<String>,
    pub impact: Option<Impact>,
    pub stage: Option<Stage>,
    pub components: Option<Vec<String>>,
    pub message: String,
}

/// Opens an incident; its first entry says what is known.
pub async fn open(tx: &mut Tx, janua: &Janua, report: Report) -> Result<Incident> {
    let now = janua.clock.now();
    let blank = Incident {
        id: IncidentId::new(&janua.entropy, now),
        title: String::new(),
        impact: Impact::Minor,
        stage: Stage::Investigating,
        components: vec![],
        created_at: now,
        updated_at: now,
        resolved_at: None,
    };
    tell(tx, janua, blank, report).await
}

/// Adds an entry to the timeline and moves the incident along.
pub async fn update(tx: &mut Tx, janua: &Janua, id: IncidentId, report: Report) -> Result<Incident> {
    let incident = Incident::find(tx, id).await?.ok_or(NOT_FOUND)?;
    if incident.resolved_at.is_some() {
        return Err(ALREADY_RESOLVED.into());
    }
    tell(tx, janua, incident, report).await
}

async fn tell(tx: &mut Tx, janua: &Janua, mut incident: Incident, report: Report) -> Result<Incident> {
    let now = janua.clock.now();
    incident.title = report.title.unwrap_or(incident.title);
    incident.impact = report.impact.unwrap_or(incident.impact);
    incident.stage = report.stage.unwrap_or(incident.stage);
    incident.components = report.components.unwrap_or(incident.components);
    incident.updated_at = now;
    incident.resolved_at = (incident.stage == Stage::Resolved).then_some(now);
    incident.save(tx).await?;
    let update = Update { incident_id: incident.id, state: incident.stage, message: report.message, at: now };
    update.insert(tx, Id::new(&janua.entropy, now)).await?;
    Ok(incident)
}
