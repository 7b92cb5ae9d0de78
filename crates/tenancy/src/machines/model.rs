//! A machine as it is stored, and every statement on it.
use db::{FromRow, FromValue, InJson, Reach, Read, Row, Tx, Value, holding, params};
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TOPIC, limit::MachineLimit};
use crate::{
    events::About,
    ids::{AccountId, MachineId, OrgId},
};

/// The kind of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Signs in with a wallet.
    Agent,
    /// Signs in with a secret or a key, and can act for its owner.
    Framework,
    /// A server of the Model Context Protocol.
    Mcp,
}

/// The status of a machine. One past its expiry is expired besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its wallet or its domain is not proven yet.
    Pending,
    Active,
    Suspended,
    /// Its `expiresAt` has passed.
    Expired,
}

/// Why a machine was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspendedBy {
    Owner,
    OrgAdmin,
    Platform,
    /// It used up a limit that suspends.
    Limit,
    KillSwitch,
    /// The owner left the organization, was deactivated or deleted their account.
    OwnerGone,
}

/// The rank of a user towards a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Its owner, who is a member of its organization.
    Owner,
    OrgAdmin,
    Platform,
}

macro_rules! words { ($($type:ident { $($variant:ident = $word:literal),+ })+) => { $(
    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }

        pub fn named(word: &str) -> Option<Self> {
            match word { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            Self::named(&String::from_value(value)?)
        }
    }
)+ } }
words! {
    Kind { Agent = "agent", Framework = "framework", Mcp = "mcp" }
    State { Pending = "pending", Active = "active", Suspended = "suspended", Expired = "expired" }
    SuspendedBy {
        Owner = "owner", OrgAdmin = "org_admin", Platform = "platform", Limit = "limit", KillSwitch = "kill_switch",
        OwnerGone = "owner_gone"
    }
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub id: MachineId,
    pub kind: Kind,
    pub org_id: OrgId,
    /// None after the owner's account was deleted.
    pub owner_id: Option<AccountId>,
    pub name: String,
    pub description: Option<String>,
    /// As stored: never `Expired`, which follows from the time ([`Machine::state_at`]).
    pub state: State,
    pub suspended_by: Option<SuspendedBy>,
    pub suspended_reason: Option<String>,
    pub suspended_at: Option<Timestamp>,
    pub scopes: Vec<String>,
    pub audiences: Vec<String>,
    pub limits: Vec<MachineLimit>,
    pub jwks: Option<serde_json::Value>,
    pub jwks_uri: Option<String>,
    pub redirect_uris: Vec<String>,
    pub generation: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub proven_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

impl Machine {
    /// Reads its columns out of a row that may have others.
    pub fn take(row: &mut Row) -> db::Result<Self> {
        let InJson(limits) = row.get("limits")?;
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("kind")?,
            org_id: row.get("org_id")?,
            owner_id: row.get("owner_id")?,
            name: row.get("name")?,
            description: row.get("description")?,
            state: row.get("state")?,
            suspended_by: row.get("suspended_by")?,
            suspended_reason: row.get("suspended_reason")?,
            suspended_at: row.get("suspended_at")?,
            scopes: row.get("scopes")?,
            audiences: row.get("audiences")?,
            limits,
            jwks: row.get("jwks")?,
            jwks_uri: row.get("jwks_uri")?,
            redirect_uris: row.get("redirect_uris")?,
            generation: row.get("generation")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
            proven_at: row.get("proven_at")?,
            last_used_at: row.get("last_used_at")?,
            expires_at: row.get("expires_at")?,
        })
    }
}

impl FromRow for Machine {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Self::take(&mut row)
    }
}

impl Machine {
    /// The target of an event about it.
    pub fn about(&self) -> About {
        About::machine(self.id, self.org_id)
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Its state as people see it.
    pub fn state_at(&self, now: Timestamp) -> State {
        if self.state != State::Suspended && self.is_expired(now) { State::Expired } else { self.state }
    }

    /// Whether it is an OAuth client that users can authorize.
    pub fn is_client(&self) -> bool {
        self.kind == Kind::Framework && !self.redirect_uris.is_empty()
    }

    /// Whether tokens of a generation count now.
    pub fn accepts(&self, generation: i64, now: Timestamp) -> bool {
        self.state == State::Active && self.generation == generation && !self.is_expired(now)
    }

    pub async fn find(mut from: impl Read, id: MachineId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM machine WHERE id = $1", params![id]).await
    }

    /// Locks the row until the transaction ends, and reads the machine.
    pub async fn hold(tx: &mut Tx, id: MachineId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM machine WHERE id = $1"), params![id]).await
    }

    pub async fn count(tx: &mut Tx, org: OrgId) -> db::Result<i64> {
        let (count,): (i64,) =
            tx.one("SELECT CAST(COUNT(*) AS BIGINT) FROM machine WHERE org_id = $1", params![org]).await?;
        Ok(count)
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO machine (id, kind, org_id, owner_id, name, description, state, scopes, audiences, limits, jwks,
                                  jwks_uri, redirect_uris, generation, created_at, updated_at, proven_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16, $17)",
            params![
                self.id,
                self.kind,
                self.org_id,
                self.owner_id,
                &self.name,
                self.description.clone(),
                self.state,
                &self.scopes,
                &self.audiences,
                &InJson(&self.limits),
                self.jwks.as_ref(),
                self.jwks_uri.clone(),
                &self.redirect_uris,
                self.generation,
                self.created_at,
                self.proven_at,
                self.expires_at
            ],
        )
        .await?;
        Ok(())
    }

    /// Writes what its owner may change. Tokens that are out stay valid with the scopes they have, unless `generation` was
    /// raised.
    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE machine SET name = $2, description = $3, scopes = $4, audiences = $5, limits = $6, jwks = $7,
                                jwks_uri = $8, redirect_uris = $9, generation = $10, updated_at = $11, expires_at = $12,
                                state = $13, proven_at = $14, owner_id = $15, suspended_by = $16,
                                suspended_reason = $17, suspended_at = $18
             WHERE id = $1",
            params![
                self.id,
                &self.name,
                self.description.clone(),
                &self.scopes,
                &self.audiences,
                &InJson(&self.limits),
                self.jwks.as_ref(),
                self.jwks_uri.clone(),
                &self.redirect_uris,
                self.generation,
                self.updated_at,
                self.expires_at,
                self.state,
                self.proven_at,
                self.owner_id,
                self.suspended_by,
                self.suspended_reason.clone(),
                self.suspended_at
            ],
        )
        .await?;
        self.changed(tx).await
    }

    pub async fn delete(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec("DELETE FROM machine WHERE id = $1", params![self.id]).await?;
        self.changed(tx).await
    }

    /// Tells every node to forget what it remembers of the machine.
    pub async fn changed(&self, tx: &mut Tx) -> db::Result<()> {
        tx.notify(Reach::EveryNode, TOPIC, self.id.to_string()).await
    }

    /// Notes that it got a token; once a minute is enough.
    pub(super) async fn note_use(&self, tx: &mut Tx, now: Timestamp) -> db::Result<()> {
        const MINUTE_MS: i64 = 60_000;
        if self.last_used_at.is_some_and(|at| now.0 - at.0 < MINUTE_MS) {
            return Ok(());
        }
        let sql = "UPDATE machine SET last_used_at = $2 WHERE id = $1 AND COALESCE(last_used_at, 0) <= $3";
        tx.send(sql, params![self.id, now, Timestamp(now.0 - MINUTE_MS)]).await
    }

    /// Those of an owner, held, in one order: for what ends with the owner.
    pub(super) async fn hold_of_owner(tx: &mut Tx, owner: AccountId, org: Option<OrgId>) -> db::Result<Vec<Self>> {
        let org = org.map(|id| id.to_string()).unwrap_or_default();
        let sql = holding!(
            "SELECT * FROM machine WHERE owner_id = $1 AND ($2 = '' OR org_id = $2) AND state <> 'suspended' ORDER BY id"
        );
        tx.all(sql, params![owner, org]).await
    }
}
