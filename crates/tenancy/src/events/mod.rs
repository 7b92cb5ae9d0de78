//! Events: recorded in the transaction that causes them, for the audit log and for webhooks.
pub mod audit;
pub mod figures;
pub mod happenings;
pub mod outbox;
pub mod watch;

use db::{Db, Tx, params};
use kernel::{Janua, clock::Timestamp, telemetry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use crate::ids::EventId;
use crate::ids::{AccountId, AppKeyId, ApplicationId, MachineId, OrgId};

/// Something that happened, for audit logs and webhooks. [`events!`](crate::events!) declares one. It holds ids and
/// plain facts only, so that no secret can leak.
pub trait Event: Send + Sync {
    fn kind(&self) -> Kind;
    fn details(&self) -> Value;
}

/// The names of an event, the same each time it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The type in the audit log.
    pub audit: &'static str,
    /// The name in webhooks; none for an event of the audit log alone.
    pub webhook: Option<&'static str>,
    /// A sentence for the documentation.
    pub about: &'static str,
}

/// Declares the events of a feature: the type in the audit log, the name in webhooks, and the details of each.
/// `EVENTS` lists them, for [`Feature::declares`](kernel::feature::Feature::declares).
///
/// ```ignore
/// events! {
///     /// A lamp was lit.
///     LampLit { lamp_id: LampId, watts: u32 } = "LAMP_LIT" as "lamp.lit";
/// }
/// ```
#[macro_export]
macro_rules! events {
    (@struct $($about:literal)+, $name:ident) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, serde::Serialize)]
        pub struct $name;
    };
    (@struct $($about:literal)+, $name:ident { $($field:ident: $type:ty),+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $(pub $field: $type),+ }
    };
    (@name) => { None };
    (@name $webhook:literal) => { Some($webhook) };
    ($(
        $(#[doc = $about:literal])+
        $name:ident $({ $($field:ident: $type:ty),+ $(,)? })? = $audit:literal $(as $webhook:literal)?;
    )+) => {
        $(
            $crate::events!(@struct $($about)+, $name $({ $($field: $type),+ })?);

            impl $name {
                pub const KIND: $crate::events::Kind = $crate::events::Kind {
                    audit: $audit, webhook: $crate::events!(@name $($webhook)?), about: concat!($($about),+),
                };
            }

            impl $crate::events::Event for $name {
                fn kind(&self) -> $crate::events::Kind {
                    Self::KIND
                }

                fn details(&self) -> serde_json::Value {
                    $crate::events::details(self)
                }
            }
        )+

        pub const EVENTS: &[$crate::events::Kind] = &[$($name::KIND),+];
    };
}

/// The fields of an event as JSON.
pub fn details(event: &impl Serialize) -> Value {
    serde_json::to_value(event).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// The actor of an event, and where the request came from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct By {
    /// The signed-in user; none before sign-in.
    pub actor: Option<AccountId>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    /// The app in which it happened.
    pub app: Option<ApplicationId>,
    /// The secret key by which a program did it, where no user is signed in.
    #[serde(default)]
    pub key: Option<AppKeyId>,
    /// Whether it was done by a command in a shell of the server, where no user is signed in.
    #[serde(default)]
    pub is_shell: bool,
}

/// The actor in the audit log of what a command in a shell did.
pub const SHELL: &str = "shell";

impl By {
    /// A command in a shell of the server.
    pub fn shell() -> Self {
        Self { is_shell: true, ..Self::default() }
    }

    /// The actor as the audit log names it.
    fn actor_name(&self) -> Option<String> {
        self.actor_id().or_else(|| self.is_shell.then(|| SHELL.to_owned()))
    }

    /// The ID of the user or the app key that did it.
    pub(crate) fn actor_id(&self) -> Option<String> {
        self.actor.map(|id| id.to_string()).or_else(|| self.key.map(|id| id.to_string()))
    }
}

/// The target of an event: a user, an organization, an app, or none of them for the platform itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct About {
    pub(crate) person: Option<AccountId>,
    pub(crate) org: Option<OrgId>,
    pub(crate) app: Option<ApplicationId>,
    pub(crate) machine: Option<MachineId>,
}

impl About {
    pub fn in_org(org: OrgId) -> Self {
        Self { org: Some(org), ..Self::default() }
    }

    pub fn application(app: ApplicationId, org: OrgId) -> Self {
        Self { org: Some(org), app: Some(app), ..Self::default() }
    }

    /// A machine of an organization.
    pub fn machine(machine: MachineId, org: OrgId) -> Self {
        Self { machine: Some(machine), ..Self::in_org(org) }
    }

    #[must_use]
    pub fn person(self, person: AccountId) -> Self {
        Self { person: Some(person), ..self }
    }

    /// The most specific target.
    fn target(&self) -> Option<String> {
        let (machine, person, app, org) = (
            self.machine.map(|id| id.to_string()),
            self.person.map(|id| id.to_string()),
            self.app.map(|id| id.to_string()),
            self.org.map(|id| id.to_string()),
        );
        machine.or(person).or(app).or(org)
    }
}

impl From<AccountId> for About {
    fn from(person: AccountId) -> Self {
        Self::from(Some(person))
    }
}

impl From<Option<AccountId>> for About {
    fn from(person: Option<AccountId>) -> Self {
        Self { person, ..Self::default() }
    }
}

/// Records an event in the audit log and in the outbox of the apps that listen. An event in an organization without a
/// person as its target is listed in the actor's own audit log. Handlers record through the
/// extractor that let the caller in ([`Session::record`](crate::enter::Session::record) and its like).
pub async fn record(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    about: impl Into<About> + Send,
    event: &dyn Event,
) -> db::Result<()> {
    let (now, about) = (janua.clock.now(), about.into());
    let kind = event.kind();
    debug_assert!(janua.declared::<Kind>().contains(&kind), "{} is in no list that a feature declares", kind.audit);
    let (id, target, details) = (EventId::new(&janua.entropy, now), about.target(), event.details());
    tx.send(
        "INSERT INTO audit_event (id, type, webhook, account_id, actor, target, org_id, app_id, ip, user_agent, at,
                                  details, machine_id, is_tallied, request_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        params![
            id,
            kind.audit,
            kind.webhook,
            about.person.or(by.actor.filter(|_| about.org.is_some())),
            by.actor_name(),
            target.clone(),
            about.org,
            about.app.or(by.app),
            by.ip.clone(),
            by.user_agent.clone(),
            now,
            &details,
            about.machine,
            watch::is_watched(janua),
            telemetry::request_id().as_deref()
        ],
    )
    .await?;
    let what = watch::What::Event { id, kind: kind.audit, details: &details };
    watch::tell(tx, janua, about.app.or(by.app), about.person, what).await?;
    let happened = Happened { id, name: kind.webhook, kind: kind.audit, target, details, at: now };
    outbox::put(tx, janua, by, about, &happened).await
}

/// An event as it goes to the outbox.
pub(crate) struct Happened {
    pub id: EventId,
    /// The name in webhooks.
    pub name: Option<&'static str>,
    pub kind: &'static str,
    pub target: Option<String>,
    pub details: Value,
    pub at: Timestamp,
}

/// Statements that anonymize the audit log of a deleted account. Events of an organization keep their details,
/// because they are the organization's history, too; IP address and user agent go.
macro_rules! nameless {
    ($bound:literal) => {
        [
            concat!(
                "UPDATE audit_event SET ip = NULL, user_agent = NULL,
                                        details = CASE WHEN org_id IS NULL THEN '{}' ELSE details END
                 WHERE id IN (SELECT id FROM audit_event WHERE account_id = $1
                                AND (ip IS NOT NULL OR user_agent IS NOT NULL OR (org_id IS NULL AND details <> '{}'))",
                $bound,
                ")"
            ),
            concat!(
                "UPDATE audit_event SET ip = NULL, user_agent = NULL
                 WHERE id IN (SELECT id FROM audit_event WHERE actor = $1 AND actor <> account_id
                                AND (ip IS NOT NULL OR user_agent IS NOT NULL)",
                $bound,
                ")"
            ),
        ]
    };
}

/// Anonymizes most events of an account before it is deleted, some rows at a time, because on SQLite every other
/// writer waits for a transaction.
pub async fn forget_past(db: &Db, account_id: AccountId) -> db::Result<()> {
    for sql in nameless!(" LIMIT $2") {
        db.sweep(sql, params![account_id]).await?;
    }
    outbox::forget_past(db, account_id).await
}

/// Anonymizes the remaining events of an account, in the transaction that deletes it. Call [`forget_past`] before.
pub async fn forget_person(tx: &mut Tx, account_id: AccountId) -> db::Result<()> {
    for sql in nameless!("") {
        tx.exec(sql, params![account_id]).await?;
    }
    outbox::forget_person(tx, account_id).await
}
