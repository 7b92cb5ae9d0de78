//! Features that follow what happens in apps. Each is called in the transaction that causes it.
use std::pin::Pin;

use db::{FromRow, Row, Tx, params};
use kernel::{Janua, clock::Timestamp};
use serde_json::Value;

use crate::ids::{AccountId, ApplicationId, EventId};

/// What a feature declares, with [`Feature::declares`](kernel::feature::Feature::declares), to be told of what happens in
/// apps.
#[derive(Clone, Copy)]
pub struct Watcher(pub for<'a> fn(&'a mut Tx, &'a Janua, Occurrence<'a>) -> Watching<'a>);

pub type Watching<'a> = Pin<Box<dyn Future<Output = db::Result<()>> + Send + 'a>>;

/// Something that happened in an app.
pub struct Occurrence<'a> {
    pub app: ApplicationId,
    /// The person it happened to.
    pub person: Option<AccountId>,
    pub at: Timestamp,
    pub what: What<'a>,
}

pub enum What<'a> {
    /// An event of the audit log.
    Event { id: EventId, kind: &'static str, details: &'a Value },
    /// A person who proved a first factor was asked for a second one.
    SecondFactorAsked,
    /// A session was refreshed that was seen before at this moment.
    Refreshed { before: Timestamp },
}

pub(crate) fn is_watched(janua: &Janua) -> bool {
    !janua.declared::<Watcher>().is_empty()
}

pub(crate) async fn tell(
    tx: &mut Tx,
    janua: &Janua,
    app: Option<ApplicationId>,
    person: Option<AccountId>,
    what: What<'_>,
) -> db::Result<()> {
    let (Some(app), [Watcher(watch)]) = (app, janua.declared::<Watcher>()) else { return Ok(()) };
    watch(tx, janua, Occurrence { app, person, at: janua.clock.now(), what }).await
}

/// An event of an app that no feature was told of, because there was none when it happened.
pub struct PastEvent {
    pub id: String,
    pub app: ApplicationId,
    pub kind: String,
    pub person: Option<AccountId>,
    pub at: Timestamp,
    pub details: Value,
}

impl FromRow for PastEvent {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let account: Option<String> = row.get("account_id")?;
        let (target, org): (Option<String>, Option<String>) = (row.get("target")?, row.get("org_id")?);
        // In an organization the account of an event may be the actor.
        let person = account.filter(|account| org.is_none() || target.as_ref() == Some(account));
        Ok(Self {
            id: row.get("id")?,
            app: row.get("app_id")?,
            kind: row.get("type")?,
            person: person.and_then(|id| id.parse().ok()),
            at: row.get("at")?,
            details: row.get("details")?,
        })
    }
}

/// Takes the oldest events that no feature was told of. They are taken once: the transaction marks them.
pub async fn take_past(tx: &mut Tx, most: u32) -> db::Result<Vec<PastEvent>> {
    let sql = "UPDATE audit_event SET is_tallied = TRUE WHERE id IN
                   (SELECT id FROM audit_event WHERE app_id IS NOT NULL AND NOT is_tallied ORDER BY at, id LIMIT $1)
               RETURNING id, type, account_id, target, org_id, app_id, at, details";
    tx.put(sql, params![most]).await
}
