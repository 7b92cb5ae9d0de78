//! Events stored for the apps with webhooks. An event is there exactly when its change is: both are written by one
//! transaction.
//!
//! An event of a user goes to the app it happened in, and otherwise to the apps the user has signed in to. An event
//! of an app goes to that app, and an event of an organization to the apps it owns.
use db::{Db, InJson, Reach, Sql, Tx, params, row};
use kernel::{Janua, clock::Timestamp, telemetry};
use serde::Serialize;
use serde_json::Value;

pub use crate::ids::AppEventId;
use crate::{
    apps::scopes::{Scope, Scopes},
    events::{About, By, Happened},
    ids::{AccountId, ApplicationId, EventId, OrgId},
};

/// The topic on which a commit says that something waits to be told.
pub const TOPIC: &str = "outbox";

/// Something that happened, as one app may know it.
#[derive(Debug, Clone)]
pub struct AppEvent {
    pub id: AppEventId,
    pub app_id: ApplicationId,
    /// The value of the event list it is; many events are for the audit log alone.
    pub webhook: Option<String>,
    /// The type in the audit log.
    pub kind: String,
    pub at: Timestamp,
    /// The last listener that was given it, while it is being handed out.
    pub reached: String,
}
row!(AppEvent { id, app_id, webhook, kind, at, reached });

/// An app that an event concerns and that has a webhook, with the parts of the user that it may know.
struct Listening {
    app_id: ApplicationId,
    email: Option<String>,
    name: Option<String>,
    email_verified: Option<bool>,
    /// The scopes that the user granted to this app, where there is a consent.
    scopes: Option<Scopes>,
}
row!(Listening { app_id, email, name, email_verified, scopes });

/// The apps that a condition on `app` and `$3` finds, with the person `$1` as they are now.
macro_rules! listening {
    ($condition:literal) => {
        concat!(
            "SELECT app.id AS app_id, account.email, account.name, account.email_verified, app_user.scopes FROM app
     LEFT JOIN account ON account.id = $1
     LEFT JOIN app_user ON app_user.app_id = app.id AND app_user.account_id = $1
     WHERE app.has_webhooks = $2 AND ",
            $condition
        )
    };
}

impl Listening {
    async fn find(tx: &mut Tx, by: &By, about: About) -> db::Result<Vec<Self>> {
        let person = about.person;
        match (about, by.app) {
            (About { app: Some(app), .. }, _) | (About { org: None, person: Some(_), .. }, Some(app)) => {
                tx.all(listening!("app.id = $3"), params![person, true, app]).await
            }
            (About { org: Some(org), .. }, _) => {
                tx.all(listening!("app.org_id = $3"), params![person, true, org]).await
            }
            (About { person: Some(_), .. }, None) => {
                let sql = listening!("app.id IN (SELECT app_id FROM app_user WHERE account_id = $1)");
                tx.all(sql, params![person, true]).await
            }
            (About { person: None, .. }, _) => Ok(vec![]),
        }
    }

    fn user(&self, id: AccountId) -> User<'_> {
        let has = |scope| self.scopes.as_ref().is_none_or(|scopes| scopes.has(scope));
        let (email, name) = (has(Scope::Email), has(Scope::Profile));
        User {
            email: self.email.as_deref().filter(|_| email),
            email_verified: self.email_verified.filter(|_| email),
            id,
            name: self.name.as_deref().filter(|_| name),
        }
    }
}

/// The stored form of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts<'a> {
    id: EventId,
    #[serde(rename = "type")]
    kind: &'static str,
    actor: Option<String>,
    target: Option<&'a str>,
    org_id: Option<OrgId>,
    app_id: Option<ApplicationId>,
    ip: Option<&'a str>,
    user_agent: Option<&'a str>,
    at: Timestamp,
    details: &'a Value,
    user: Option<User<'a>>,
}

/// The user; of a deleted one nothing but the id.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct User<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_verified: Option<bool>,
    id: AccountId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

pub(crate) async fn put(tx: &mut Tx, janua: &Janua, by: &By, about: About, happened: &Happened) -> db::Result<()> {
    let listening = Listening::find(tx, by, about).await?;
    if listening.is_empty() {
        return Ok(());
    }
    for listening in listening {
        let is_here = by.app == Some(listening.app_id) || about.org.is_some();
        let facts = InJson(Facts {
            id: happened.id,
            kind: happened.kind,
            actor: by.actor_id(),
            target: happened.target.as_deref(),
            org_id: about.org,
            app_id: about.app.or(by.app),
            // Where somebody is when they act elsewhere is not this app's business.
            ip: by.ip.as_deref().filter(|_| is_here),
            user_agent: by.user_agent.as_deref().filter(|_| is_here),
            at: happened.at,
            details: &happened.details,
            user: about.person.map(|id| listening.user(id)),
        });
        tx.send(
            "INSERT INTO app_event (id, app_id, account_id, webhook, type, facts, at, waits_since, reached, request_id,
                                    traceparent)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7, '', $8, $9)",
            params![
                AppEventId::new(&janua.entropy, happened.at),
                listening.app_id,
                about.person,
                happened.name,
                happened.kind,
                &facts,
                happened.at,
                telemetry::request_id().as_deref(),
                telemetry::traceparent()
            ],
        )
        .await?;
    }
    tx.notify(Reach::ThisNode, TOPIC, "").await
}

macro_rules! nameless {
    ($bound:literal) => {
        concat!(
            "UPDATE app_event SET facts = '{\"user\":{\"id\":\"' || account_id || '\"}}' WHERE id IN
                 (SELECT id FROM app_event WHERE account_id = $1
                    AND facts <> '{\"user\":{\"id\":\"' || account_id || '\"}}'",
            $bound,
            ")"
        )
    };
}

/// Removes a deleted user's data from stored events, so that only the id stays. This does most rows, some at a time.
pub(crate) async fn forget_past(db: &Db, account: AccountId) -> db::Result<()> {
    db.sweep(nameless!(" LIMIT $2"), params![account]).await.map(drop)
}

/// Does the remaining rows; none are added after that.
pub(crate) async fn forget_person(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    tx.exec(nameless!(""), params![account]).await.map(drop)
}

/// Stores an example event, to test a webhook with. It does not wait for the fan-out.
pub async fn rehearse(tx: &mut Tx, janua: &Janua, app_id: ApplicationId, facts: &Value) -> db::Result<AppEventId> {
    let (id, now) = (AppEventId::new(&janua.entropy, janua.clock.now()), janua.clock.now());
    tx.exec(
        "INSERT INTO app_event (id, app_id, type, facts, at, reached, request_id, traceparent)
         VALUES ($1, $2, '', $3, $4, '', $5, $6)",
        params![id, app_id, facts, now, telemetry::request_id().as_deref(), telemetry::traceparent()],
    )
    .await?;
    Ok(id)
}

/// Whether an event waits for the fan-out.
pub async fn is_waiting(db: &Db) -> db::Result<bool> {
    let sql = "SELECT id FROM app_event WHERE waits_since IS NOT NULL ORDER BY waits_since, id LIMIT 1";
    Ok(db.opt::<(String,)>(sql, params![]).await?.is_some())
}

/// How many events wait. Counting stops at 10,000.
pub async fn count_waiting(db: &Db) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n
               FROM (SELECT 1 FROM app_event WHERE waits_since IS NOT NULL LIMIT 10000) w";
    db.one::<(i64,)>(sql, params![]).await.map(|(count,)| count)
}

/// The oldest waiting events, locked until the transaction ends.
pub async fn hold_waiting(tx: &mut Tx, most: u32) -> db::Result<Vec<AppEvent>> {
    const HOLD: Sql = Sql::two(
        "SELECT id, app_id, webhook, type AS kind, at, reached FROM app_event WHERE waits_since IS NOT NULL
         ORDER BY waits_since, id LIMIT $1",
        "SELECT id, app_id, webhook, type AS kind, at, reached FROM app_event WHERE waits_since IS NOT NULL
         ORDER BY waits_since, id LIMIT $1 FOR UPDATE SKIP LOCKED",
    );
    tx.all(HOLD, params![most]).await
}

/// Notes how far an event got, so that no webhook gets it again.
pub async fn reached(tx: &mut Tx, id: AppEventId, webhook: &str) -> db::Result<()> {
    tx.send("UPDATE app_event SET reached = $2 WHERE id = $1", params![id, webhook]).await
}

/// Marks an event as handed out to all webhooks.
pub async fn handed_out(tx: &mut Tx, id: AppEventId) -> db::Result<()> {
    tx.send("UPDATE app_event SET waits_since = NULL WHERE id = $1", params![id]).await
}

/// The events of an app since a moment, oldest first, after the one given.
pub async fn since(
    db: &Db,
    app: ApplicationId,
    since: Timestamp,
    after: (Timestamp, &str),
    most: u32,
) -> db::Result<Vec<AppEvent>> {
    db.all(
        "SELECT id, app_id, webhook, type AS kind, at, reached FROM app_event
         WHERE app_id = $1 AND at >= $2 AND (at, id) > ($3, $4) AND waits_since IS NULL AND type <> ''
         ORDER BY at, id LIMIT $5",
        params![app, since, after.0, after.1, most],
    )
    .await
}

/// Throws away what is older and was handed out, a bit at a time; answers how much it was.
pub async fn sweep(db: &Db, before: Timestamp, most: u32) -> db::Result<u64> {
    db.exec(
        "DELETE FROM app_event WHERE id IN
             (SELECT id FROM app_event WHERE id < $1 AND waits_since IS NULL AND NOT EXISTS
                  (SELECT 1 FROM webhook_delivery WHERE webhook_delivery.event_id = app_event.id)
              ORDER BY id LIMIT $2)",
        params![AppEventId::first_of(before), most],
    )
    .await
}
