//! Components, days and incidents as they are stored, and every statement on them.
use db::{Db, FromRow, FromValue, Row, Tx, Value, params, row};
use kernel::{
    clock::{Day, Timestamp},
    http::Key,
    id::Id,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many days of uptime are kept and shown.
pub const DAYS_KEPT: i64 = 90;

/// Words kept as text, by the names they have on the wire.
macro_rules! words { ($($(#[$doc:meta])* $type:ident { $($(#[$each:meta])* $variant:ident = $name:literal,)+ })+) => { $(
    $(#[$doc])*
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum $type { $($(#[$each])* #[serde(rename = $name)] $variant,)+ }

    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $name,)+ }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($name => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }

words! {
    /// The state of a component, from best to worst.
    State {
        Operational = "operational",
        Degraded = "degraded",
        Outage = "outage",
    }
    /// How much of the service an incident touches, from least to most.
    Impact {
        None = "none",
        Minor = "minor",
        Major = "major",
        Critical = "critical",
    }
    /// The state of an incident.
    Stage {
        Investigating = "investigating",
        Identified = "identified",
        Monitoring = "monitoring",
        Resolved = "resolved",
    }
}

/// The newest word on one component.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    pub name: String,
    pub state: State,
    /// The problem in words, without internal details.
    pub detail: Option<String>,
    pub latency_ms: i64,
    pub checked_at: Timestamp,
}
row!(Component { name, state, detail, latency_ms, checked_at });

impl Component {
    pub(super) async fn all(db: &Db) -> db::Result<Vec<Self>> {
        let sql = "SELECT name, state, detail, latency_ms, checked_at FROM component ORDER BY name";
        db.all(sql, params![]).await
    }

    pub(super) async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO component (name, state, detail, latency_ms, checked_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (name) DO UPDATE SET state = $2, detail = $3, latency_ms = $4, checked_at = $5",
            params![&self.name, self.state, self.detail.clone(), self.latency_ms, self.checked_at],
        )
        .await?;
        Ok(())
    }

    pub(super) async fn last_check(tx: &mut Tx, name: &str) -> db::Result<Option<Timestamp>> {
        let found: Option<(Timestamp,)> =
            tx.opt("SELECT checked_at FROM component WHERE name = $1", params![name]).await?;
        Ok(found.map(|(at,)| at))
    }
}

/// How one component did on one day.
#[derive(Debug)]
pub(super) struct UptimeDay {
    pub(super) component: String,
    pub(super) day: Day,
    pub(super) checks: i64,
    pub(super) failures: i64,
}
row!(UptimeDay { component, day, checks, failures });

impl UptimeDay {
    pub(super) async fn since(db: &Db, first: Day) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT component, day, checks, failures FROM uptime_day WHERE day >= $1 ORDER BY component, day",
            params![first],
        )
        .await
    }

    /// Adds to the day's count.
    pub(super) async fn add(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO uptime_day (component, day, checks, failures) VALUES ($1, $2, $3, $4)
             ON CONFLICT (component, day)
             DO UPDATE SET checks = uptime_day.checks + $3, failures = uptime_day.failures + $4",
            params![&self.component, self.day, self.checks, self.failures],
        )
        .await?;
        Ok(())
    }

    pub(super) async fn forget_before(tx: &mut Tx, first: Day) -> db::Result<()> {
        tx.exec("DELETE FROM uptime_day WHERE day < $1", params![first]).await?;
        Ok(())
    }
}

pub type IncidentId = Id<Incident>;

/// Something that went wrong, and how far it has come.
#[derive(Debug, Clone)]
pub struct Incident {
    pub id: IncidentId,
    pub title: String,
    pub impact: Impact,
    pub stage: Stage,
    pub components: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
}
impl FromRow for Incident {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            title: row.get("title")?,
            impact: row.get("impact")?,
            stage: row.get("state")?,
            components: row.get("components")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
            resolved_at: row.get("resolved_at")?,
        })
    }
}

/// An incident that an alarm opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct AlarmIncident {
    pub(super) id: IncidentId,
    pub(super) resolved_at: Option<Timestamp>,
    /// Since when the alarm finds nothing any more.
    pub(super) well_since: Option<Timestamp>,
}
row!(AlarmIncident { id, resolved_at, well_since });

impl AlarmIncident {
    pub(super) async fn newest(tx: &mut Tx, alarm: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT id, resolved_at, well_since FROM incident WHERE alarm = $1
                   ORDER BY created_at DESC, id DESC LIMIT 1";
        tx.opt(sql, params![alarm]).await
    }

    pub(super) async fn mark(tx: &mut Tx, id: IncidentId, alarm: &str) -> db::Result<()> {
        tx.exec("UPDATE incident SET alarm = $2 WHERE id = $1", params![id, alarm]).await.map(drop)
    }

    pub(super) async fn set_well(tx: &mut Tx, id: IncidentId, since: Option<Timestamp>) -> db::Result<()> {
        tx.exec("UPDATE incident SET well_since = $2 WHERE id = $1", params![id, since]).await.map(drop)
    }
}

/// One entry of an incident's timeline.
#[derive(Debug, Clone)]
pub(super) struct Update {
    pub(super) incident_id: IncidentId,
    pub(super) state: Stage,
    pub(super) message: String,
    pub(super) at: Timestamp,
}
row!(Update { incident_id, state, message, at });

impl Incident {
    pub(super) fn key(&self) -> Key {
        Key { at: self.created_at, id: self.id.to_string() }
    }

    pub(super) async fn page(db: &Db, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, title, impact, state, components, created_at, updated_at, resolved_at FROM incident
             WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3",
            params![below.at, &below.id, most],
        )
        .await
    }

    pub(super) async fn open(db: &Db) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, title, impact, state, components, created_at, updated_at, resolved_at FROM incident
             WHERE resolved_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 50",
            params![],
        )
        .await
    }

    /// What is over, newest first.
    pub(super) async fn resolved_since(db: &Db, first: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, title, impact, state, components, created_at, updated_at, resolved_at FROM incident
             WHERE created_at >= $1 AND resolved_at IS NOT NULL ORDER BY created_at DESC, id DESC LIMIT $2",
            params![first, most],
        )
        .await
    }

    pub(super) async fn find(tx: &mut Tx, id: IncidentId) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT id, title, impact, state, components, created_at, updated_at, resolved_at FROM incident
             WHERE id = $1",
            params![id],
        )
        .await
    }

    /// As it now is, whether or not it was there before.
    pub(super) async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO incident (id, title, impact, state, components, created_at, updated_at, resolved_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (id) DO UPDATE SET title = $2, impact = $3, state = $4, components = $5, updated_at = $7,
                                            resolved_at = $8",
            params![
                self.id,
                &self.title,
                self.impact,
                self.stage,
                &self.components,
                self.created_at,
                self.updated_at,
                self.resolved_at
            ],
        )
        .await?;
        Ok(())
    }
}

impl Update {
    pub(super) async fn insert(&self, tx: &mut Tx, id: Id<Self>) -> db::Result<()> {
        tx.exec(
            "INSERT INTO incident_update (id, incident_id, state, message, at) VALUES ($1, $2, $3, $4, $5)",
            params![id, self.incident_id, self.state, &self.message, self.at],
        )
        .await?;
        Ok(())
    }

    /// The timeline of one incident, oldest entry first.
    pub(super) async fn of_incident(tx: &mut Tx, id: IncidentId) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT incident_id, state, message, at FROM incident_update WHERE incident_id = $1 ORDER BY at, id";
        tx.all(sql, params![id]).await
    }

    /// The timelines of all incidents between two moments of creation, oldest entry first.
    pub(super) async fn of_incidents(db: &Db, oldest: Timestamp, newest: Timestamp) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT u.incident_id, u.state, u.message, u.at FROM incident_update u
             JOIN incident i ON i.id = u.incident_id
             WHERE i.created_at >= $1 AND i.created_at <= $2 ORDER BY u.at, u.id",
            params![oldest, newest],
        )
        .await
    }
}
