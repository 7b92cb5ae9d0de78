//! What an app claims of a name, as stored, and every statement on it.
use db::{Db, FromValue, Tx, Value, holding, params, row};
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::apps::{Application, ApplicationId};

/// Why a domain is not proven, or may not stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// There is no record at its name.
    TxtMissing,
    /// There are records, and none of them is this app's.
    TxtWrong,
    /// Another app has proven the domain. It moves here when this app's record stands and the other one's does not, seen
    /// twice within at least 24 hours.
    Contested,
    /// Another app has proven the domain meanwhile, and this app's record was gone.
    LostOwnership,
    /// The record was not seen for seven days; `verify` starts over.
    TimedOut,
}

macro_rules! words { ($($variant:ident = $word:literal),+) => {
    impl From<Reason> for Value {
        fn from(reason: Reason) -> Self {
            match reason { $(Reason::$variant => $word),+ }.into()
        }
    }
    impl FromValue for Reason {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
} }
words! {
    TxtMissing = "txt_missing",
    TxtWrong = "txt_wrong",
    Contested = "contested",
    LostOwnership = "lost_ownership",
    TimedOut = "timed_out"
}

#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub app_id: ApplicationId,
    pub domain: String,
    pub token: String,
    pub created_at: Timestamp,
    /// The last look that was answered, and what stood there.
    pub checked_at: Option<Timestamp>,
    pub seen: Option<Vec<String>>,
    pub verified_at: Option<Timestamp>,
    pub reason: Option<Reason>,
    /// Nothing is looked up by itself any more when there is none.
    pub next_check_at: Option<Timestamp>,
    /// Looks in a row that found nothing, or got no answer.
    pub fruitless: u32,
    /// Since when it waits for its proof; none for one that never had to wait anew.
    pub pending_since: Option<Timestamp>,
    /// Since when the record of a proven domain is gone.
    pub missing_since: Option<Timestamp>,
    /// Since when this app's record stands and that of the app which has proven the name does not.
    pub contested_since: Option<Timestamp>,
    /// When the people of the app were told last that another one is about to have its domain.
    pub warned_at: Option<Timestamp>,
}
row!(Claim {
    app_id,
    domain,
    token,
    created_at,
    checked_at,
    seen,
    verified_at,
    reason,
    next_check_at,
    fruitless,
    pending_since,
    missing_since,
    contested_since,
    warned_at
});

impl Claim {
    pub fn new(
        app_id: ApplicationId,
        domain: String,
        token: String,
        now: Timestamp,
        next_check_at: Timestamp,
    ) -> Self {
        Self {
            app_id,
            domain,
            token,
            created_at: now,
            checked_at: None,
            seen: None,
            verified_at: None,
            reason: None,
            next_check_at: Some(next_check_at),
            fruitless: 0,
            pending_since: Some(now),
            missing_since: None,
            contested_since: None,
            warned_at: None,
        }
    }

    pub async fn find(db: &Db, app: ApplicationId) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM app_domain WHERE app_id = $1", params![app]).await
    }

    /// Those that are to be looked at by now, the longest due first.
    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM app_domain WHERE next_check_at <= $1 ORDER BY next_check_at, app_id LIMIT $2";
        db.all(sql, params![now, most]).await
    }

    /// `false` when the app has one already.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let sql = "INSERT INTO app_domain (app_id, domain, token, created_at, reason, next_check_at, pending_since)
                   VALUES ($1, $2, $3, $4, $5, $6, $4) ON CONFLICT (app_id) DO NOTHING";
        let made = tx
            .exec(
                sql,
                params![self.app_id, &self.domain, &self.token, self.created_at, self.reason, self.next_check_at],
            )
            .await?;
        Ok(made == 1)
    }

    pub async fn is_proven_elsewhere(tx: &mut Tx, domain: &str, app: ApplicationId) -> db::Result<bool> {
        let sql = "SELECT app_id FROM app_domain WHERE domain = $1 AND app_id <> $2 AND verified_at IS NOT NULL";
        Ok(tx.opt::<(String,)>(sql, params![domain, app]).await?.is_some())
    }

    /// This claim as it is now, and that of another app which has proven the name. Nothing changes about the name until the
    /// transaction is over: of two that prove it at once one is the first. Nothing when the claim is another one by now.
    pub async fn hold(&self, tx: &mut Tx) -> db::Result<Option<(Self, Option<Self>)>> {
        let question = holding!("SELECT * FROM app_domain WHERE domain = $1 ORDER BY app_id");
        let held: Vec<Self> = tx.all(question, params![&self.domain]).await?;
        let (own, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|claim| claim.app_id == self.app_id);
        let own = own.into_iter().find(|claim| claim.token == self.token);
        Ok(own.map(|own| (own, others.into_iter().find(|other| other.verified_at.is_some()))))
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        let sql =
            "UPDATE app_domain SET checked_at = $2, seen = $3, verified_at = $4, reason = $5, next_check_at = $6,
                       fruitless = $7, pending_since = $8, missing_since = $9, contested_since = $10, warned_at = $11
                   WHERE app_id = $1";
        tx.exec(
            sql,
            params![
                self.app_id,
                self.checked_at,
                self.seen.as_ref(),
                self.verified_at,
                self.reason,
                self.next_check_at,
                self.fruitless,
                self.pending_since,
                self.missing_since,
                self.contested_since,
                self.warned_at
            ],
        )
        .await?;
        Ok(())
    }

    /// Nobody answered: that is all that is noted.
    pub async fn postpone(&self, db: &Db, at: Timestamp) -> db::Result<()> {
        let sql =
            "UPDATE app_domain SET next_check_at = $3, fruitless = fruitless + 1 WHERE app_id = $1 AND token = $2";
        db.exec(sql, params![self.app_id, &self.token, at]).await?;
        Ok(())
    }

    /// The proof of a name stands: whoever else wants it begins anew.
    pub async fn end_contests(tx: &mut Tx, domain: &str) -> db::Result<()> {
        let sql = "UPDATE app_domain SET contested_since = NULL
                   WHERE domain = $1 AND verified_at IS NULL AND contested_since IS NOT NULL";
        tx.exec(sql, params![domain]).await?;
        Ok(())
    }

    pub async fn remove(tx: &mut Tx, app: ApplicationId) -> db::Result<Option<String>> {
        let sql = "DELETE FROM app_domain WHERE app_id = $1 RETURNING domain";
        let gone: Vec<(String,)> = tx.put(sql, params![app]).await?;
        Ok(gone.into_iter().next().map(|(domain,)| domain))
    }

    /// The app it is of. It is not held: whoever holds an app may be waiting for its claim.
    pub async fn application(&self, tx: &mut Tx) -> db::Result<Application> {
        Application::find(tx, self.app_id).await?.ok_or(db::Error::Missing)
    }
}
