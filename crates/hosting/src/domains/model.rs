//! The domains of apps as stored, and every statement on them.
use db::{Db, FromValue, Read, Tx, Value, holding, params, row};
use kernel::{Janua, clock::Timestamp, id::Id};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    apps::{Application, ApplicationId},
    orgs::OrgId,
};

use super::check::Seen;
use crate::edge::site;

pub type DomainId = Id<Domain>;

macro_rules! words { ($($type:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }
pub(crate) use words;

/// Why a domain is not proven, or may not stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofReason {
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

/// The state of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The TXT record was not seen yet.
    PendingOwnership,
    /// Proven; it does not lead here yet, or is not switched on.
    PendingDns,
    /// It leads here, and a certificate is being ordered.
    Issuing,
    /// Served.
    Active,
    /// It was active and leads elsewhere now. It is served while its certificate lives.
    Misconfigured,
    /// Given up; a check starts over.
    Failed,
    /// Switched off by the platform.
    Suspended,
}

/// Why a domain is not served, or may not stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    TxtMissing,
    TxtWrong,
    /// Another app has proven the domain.
    Contested,
    /// There is no such name in DNS.
    Nxdomain,
    /// The name exists without an address or alias.
    NoRecords,
    PointsElsewhere,
    /// Some of its addresses are ours and some are not.
    MixedAnswers,
    /// Its IPv4 addresses are ours, its IPv6 addresses are not.
    Ipv6Elsewhere,
    /// No name server answered.
    DnsUnavailable,
    /// The zone's signatures are wrong.
    DnssecFailed,
    /// Its CAA records do not allow our certificate authority.
    CaaForbids,
    /// It leads here by DNS, but a request to it did not arrive.
    NotReachingUs,
    CaUnavailable,
    CaRateLimited,
    /// The certificate authority could not check the domain.
    ValidationFailed,
    /// Nothing was found for seven days.
    TimedOut,
    /// It led elsewhere for seven days.
    Moved,
    LostOwnership,
}

words! {
    ProofReason {
        TxtMissing = "txt_missing",
        TxtWrong = "txt_wrong",
        Contested = "contested",
        LostOwnership = "lost_ownership",
        TimedOut = "timed_out",
    }
    Status {
        PendingOwnership = "pending_ownership",
        PendingDns = "pending_dns",
        Issuing = "issuing",
        Active = "active",
        Misconfigured = "misconfigured",
        Failed = "failed",
        Suspended = "suspended",
    }
    Reason {
        TxtMissing = "txt_missing",
        TxtWrong = "txt_wrong",
        Contested = "contested",
        Nxdomain = "nxdomain",
        NoRecords = "no_records",
        PointsElsewhere = "points_elsewhere",
        MixedAnswers = "mixed_answers",
        Ipv6Elsewhere = "ipv6_elsewhere",
        DnsUnavailable = "dns_unavailable",
        DnssecFailed = "dnssec_failed",
        CaaForbids = "caa_forbids",
        NotReachingUs = "not_reaching_us",
        CaUnavailable = "ca_unavailable",
        CaRateLimited = "ca_rate_limited",
        ValidationFailed = "validation_failed",
        TimedOut = "timed_out",
        Moved = "moved",
        LostOwnership = "lost_ownership",
    }
}

impl From<ProofReason> for Reason {
    fn from(reason: ProofReason) -> Self {
        match reason {
            ProofReason::TxtMissing => Self::TxtMissing,
            ProofReason::TxtWrong => Self::TxtWrong,
            ProofReason::Contested => Self::Contested,
            ProofReason::LostOwnership => Self::LostOwnership,
            ProofReason::TimedOut => Self::TimedOut,
        }
    }
}

/// One name of one app.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_field_names, reason = "named as its columns")]
pub struct Domain {
    pub id: DomainId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub domain: String,
    /// The text that proves it.
    pub token: String,
    pub created_at: Timestamp,
    /// The app's own name.
    pub is_own: bool,
    /// A name of the app's site.
    pub is_listed: bool,
    /// Switched on by itself as soon as it can be.
    pub is_automatic: bool,
    pub attached_at: Option<Timestamp>,
    pub redirect_to: Option<String>,
    pub verified_at: Option<Timestamp>,
    /// The row above it whose proof covers it.
    pub proven_by: Option<DomainId>,
    /// The last check of the proof that was answered, and what was there.
    pub checked_at: Option<Timestamp>,
    pub seen: Option<Vec<String>>,
    pub reason: Option<ProofReason>,
    /// Since when it waits for its proof; none for one that never had to wait anew.
    pub pending_since: Option<Timestamp>,
    /// Since when the record of a proven domain is gone.
    pub missing_since: Option<Timestamp>,
    /// Since when this app's record stands and that of the app which has proven the name does not.
    pub contested_since: Option<Timestamp>,
    /// When the admins were told last that another app is about to have the domain.
    pub warned_at: Option<Timestamp>,
    pub status: Status,
    pub status_since: Timestamp,
    pub status_reason: Option<Reason>,
    /// What the last answered check found.
    pub found: Option<Seen>,
    pub looks: u32,
    /// Checks in a row that found nothing, or got no answer.
    pub fruitless: u32,
    /// Nothing is checked by itself any more when there is none.
    pub next_check_at: Option<Timestamp>,
    /// Checks in a row by which an active domain leads elsewhere, and since when.
    pub astray_looks: u32,
    pub astray_since: Option<Timestamp>,
    /// When the admins were told last that it leads elsewhere.
    pub told_at: Option<Timestamp>,
    pub active_at: Option<Timestamp>,
    /// Since when its pages may ask for passkeys of this service.
    pub passkeys_at: Option<Timestamp>,
}
row!(Domain {
    id,
    app_id,
    org_id,
    domain,
    token,
    created_at,
    is_own,
    is_listed,
    is_automatic,
    attached_at,
    redirect_to,
    verified_at,
    proven_by,
    checked_at,
    seen,
    reason,
    pending_since,
    missing_since,
    contested_since,
    warned_at,
    status,
    status_since,
    status_reason,
    found,
    looks,
    fruitless,
    next_check_at,
    astray_looks,
    astray_since,
    told_at,
    active_at,
    passkeys_at
});

impl Domain {
    pub fn new(
        id: DomainId,
        (app_id, org_id): (ApplicationId, OrgId),
        domain: String,
        token: String,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            app_id,
            org_id,
            domain,
            token,
            created_at: now,
            is_own: false,
            is_listed: false,
            is_automatic: false,
            attached_at: None,
            redirect_to: None,
            verified_at: None,
            proven_by: None,
            checked_at: None,
            seen: None,
            reason: None,
            pending_since: Some(now),
            missing_since: None,
            contested_since: None,
            warned_at: None,
            status: Status::PendingOwnership,
            status_since: now,
            status_reason: Some(Reason::TxtMissing),
            found: None,
            looks: 0,
            fruitless: 0,
            next_check_at: Some(now.plus(super::status::FIRST_WAIT)),
            astray_looks: 0,
            astray_since: None,
            told_at: None,
            active_at: None,
            passkeys_at: None,
        }
    }

    /// A new claim of an app, with a text of its own to prove it by.
    pub fn claim(janua: &Janua, application: &Application, domain: String) -> Self {
        let now = janua.clock.now();
        let token = format!("janua-verification={}", janua.entropy.token().expose());
        Self::new(DomainId::new(&janua.entropy, now), (application.id, application.org_id), domain, token, now)
    }

    /// Whether requests to its host are answered with the app's site.
    pub fn is_served(&self) -> bool {
        self.attached_at.is_some()
            && self.verified_at.is_some()
            && !matches!(self.status, Status::Failed | Status::Suspended)
    }

    pub async fn find(mut from: impl Read, app: ApplicationId, domain: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM app_domain WHERE app_id = $1 AND domain = $2", params![app, domain]).await
    }

    /// The app's own name.
    pub async fn own(mut from: impl Read, app: ApplicationId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM app_domain WHERE app_id = $1 AND is_own = $2", params![app, true]).await
    }

    /// The first five hundred of an app, newest first.
    pub async fn of_app(db: &Db, app: ApplicationId) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM app_domain WHERE app_id = $1 ORDER BY created_at DESC, id DESC LIMIT 500";
        db.all(sql, params![app]).await
    }

    /// The one that has proven a name.
    pub async fn proven(mut from: impl Read, domain: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM app_domain WHERE domain = $1 AND verified_at IS NOT NULL", params![domain]).await
    }

    /// Those that are to be checked by now, the longest due first.
    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM app_domain WHERE next_check_at <= $1 ORDER BY next_check_at, id LIMIT $2";
        db.all(sql, params![now, most]).await
    }

    /// The proof of a name above, in the same organization, that covers this one.
    pub async fn covering(tx: &mut Tx, org: OrgId, domain: &str) -> db::Result<Option<Self>> {
        for above in super::names::above(domain) {
            let sql = "SELECT * FROM app_domain WHERE domain = $1 AND org_id = $2 AND verified_at IS NOT NULL
                         AND proven_by IS NULL";
            if let Some(found) = tx.opt(sql, params![above, org]).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// `false` when the app has this name already, or another own name.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, is_own, is_listed, is_automatic,
                     redirect_to, verified_at, proven_by, reason, next_check_at, pending_since, status, status_since,
                     status_reason)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $6, $17)
                 ON CONFLICT DO NOTHING",
                params![
                    self.id,
                    self.app_id,
                    self.org_id,
                    &self.domain,
                    &self.token,
                    self.created_at,
                    self.is_own,
                    self.is_listed,
                    self.is_automatic,
                    self.redirect_to.clone(),
                    self.verified_at,
                    self.proven_by,
                    self.reason,
                    self.next_check_at,
                    self.pending_since,
                    self.status,
                    self.status_reason
                ],
            )
            .await?;
        Ok(made == 1)
    }

    pub async fn is_proven_elsewhere(tx: &mut Tx, domain: &str, app: ApplicationId) -> db::Result<bool> {
        let sql = "SELECT app_id FROM app_domain WHERE domain = $1 AND app_id <> $2 AND verified_at IS NOT NULL";
        Ok(tx.opt::<(String,)>(sql, params![domain, app]).await?.is_some())
    }

    /// This row as it is now, and that of another app which has proven the name. Nothing changes about the name until the
    /// transaction is over: of two that prove it at once one is the first. None when the row is another one by now.
    pub async fn hold(&self, tx: &mut Tx) -> db::Result<Option<(Self, Option<Self>)>> {
        let question = holding!("SELECT * FROM app_domain WHERE domain = $1 ORDER BY app_id");
        let held: Vec<Self> = tx.all(question, params![&self.domain]).await?;
        let (own, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|row| row.app_id == self.app_id);
        let own = own.into_iter().find(|row| row.token == self.token);
        Ok(own.map(|own| (own, others.into_iter().find(|other| other.verified_at.is_some()))))
    }

    pub async fn save(&self, tx: &mut Tx, janua: &Janua) -> db::Result<()> {
        tx.exec(
            "UPDATE app_domain SET is_own = $2, is_listed = $3, is_automatic = $4, attached_at = $5, redirect_to = $6,
                 verified_at = $7, proven_by = $8, checked_at = $9, seen = $10, reason = $11, pending_since = $12,
                 missing_since = $13, contested_since = $14, warned_at = $15, status = $16, status_since = $17,
                 status_reason = $18, found = $19, looks = $20, fruitless = $21, next_check_at = $22, astray_looks = $23,
                 astray_since = $24, told_at = $25, active_at = $26, passkeys_at = $27
             WHERE id = $1",
            params![
                self.id,
                self.is_own,
                self.is_listed,
                self.is_automatic,
                self.attached_at,
                self.redirect_to.clone(),
                self.verified_at,
                self.proven_by,
                self.checked_at,
                self.seen.as_ref(),
                self.reason,
                self.pending_since,
                self.missing_since,
                self.contested_since,
                self.warned_at,
                self.status,
                self.status_since,
                self.status_reason,
                self.found.as_ref(),
                self.looks,
                self.fruitless,
                self.next_check_at,
                self.astray_looks,
                self.astray_since,
                self.told_at,
                self.active_at,
                self.passkeys_at
            ],
        )
        .await?;
        self.route(tx, janua).await
    }

    /// The edge serves what is proven and switched on, and nothing else, from this commit on.
    async fn route(&self, tx: &mut Tx, janua: &Janua) -> db::Result<()> {
        if self.is_served() {
            return site::attach_host(tx, janua, &self.domain, self.app_id, self.redirect_to.as_deref()).await;
        }
        site::detach_host(tx, &self.domain, self.app_id).await.map(drop)
    }

    /// Ends what the edge serves under it.
    pub async fn unroute(&self, tx: &mut Tx) -> db::Result<()> {
        site::detach_host(tx, &self.domain, self.app_id).await.map(drop)
    }

    /// No name server answered: that is all that is noted.
    pub async fn postpone(&self, db: &Db, at: Timestamp) -> db::Result<()> {
        let sql = "UPDATE app_domain SET next_check_at = $3, fruitless = fruitless + 1, looks = looks + 1
                   WHERE id = $1 AND token = $2";
        db.exec(sql, params![self.id, &self.token, at]).await?;
        Ok(())
    }

    /// The proof of a name stands: other claims on it begin anew.
    pub async fn end_contests(tx: &mut Tx, domain: &str) -> db::Result<()> {
        let sql = "UPDATE app_domain SET contested_since = NULL
                   WHERE domain = $1 AND verified_at IS NULL AND contested_since IS NOT NULL";
        tx.exec(sql, params![domain]).await?;
        Ok(())
    }

    /// The names that a lost proof covered have none of their own: they wait for theirs, and nothing is served there.
    pub async fn uncover(tx: &mut Tx, lost: DomainId, now: Timestamp) -> db::Result<Vec<Self>> {
        tx.put(
            "UPDATE app_domain SET verified_at = NULL, proven_by = NULL, attached_at = NULL, reason = 'txt_missing',
                 status = 'pending_ownership', status_reason = 'txt_missing', status_since = $2, pending_since = $2,
                 next_check_at = $2, fruitless = 0
             WHERE proven_by = $1 RETURNING *",
            params![lost, now],
        )
        .await
    }

    /// The names whose pages may ask for passkeys of this service.
    pub async fn with_passkeys(tx: &mut Tx) -> db::Result<Vec<(String,)>> {
        let sql = "SELECT domain FROM app_domain WHERE passkeys_at IS NOT NULL ORDER BY passkeys_at, id";
        tx.all(sql, params![]).await
    }

    pub async fn delete(&self, tx: &mut Tx) -> db::Result<bool> {
        let gone = tx.exec("DELETE FROM app_domain WHERE id = $1", params![self.id]).await?;
        self.unroute(tx).await?;
        Ok(gone == 1)
    }

    pub async fn all_of(tx: &mut Tx, app: ApplicationId) -> db::Result<Vec<Self>> {
        tx.all("SELECT * FROM app_domain WHERE app_id = $1 ORDER BY id", params![app]).await
    }

    /// The app it is of. It is not locked: whoever has locked an app may be waiting for its domain.
    pub async fn application(&self, tx: &mut Tx) -> db::Result<Application> {
        Application::find(tx, self.app_id).await?.ok_or(db::Error::Missing)
    }
}

/// A window is counted in so many parts, and one part more than fits is looked at: no sliding window ever holds more.
const PARTS: i64 = 12;

/// Counts one against a budget of `most` in any `window`; `false` when it is spent.
pub async fn spend(
    tx: &mut Tx,
    subject: &str,
    now: Timestamp,
    window: std::time::Duration,
    most: i64,
) -> db::Result<bool> {
    let length = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let bucket = now.0.div_euclid(length / PARTS);
    // The row is locked before the sum is read: of many at once each sees what those before it have spent.
    let hold = "INSERT INTO domain_budget (subject, bucket, used, ends_at) VALUES ($1, $2, 0, $3)
                ON CONFLICT (subject, bucket) DO UPDATE SET ends_at = excluded.ends_at";
    tx.exec(hold, params![subject, bucket, now.0.saturating_add(length.saturating_mul(2))]).await?;
    if spent(&mut *tx, subject, now, window).await? >= most {
        return Ok(false);
    }
    let count = "UPDATE domain_budget SET used = used + 1 WHERE subject = $1 AND bucket = $2";
    tx.exec(count, params![subject, bucket]).await?;
    Ok(true)
}

/// How much of a budget is spent.
pub async fn spent(
    mut from: impl Read,
    subject: &str,
    now: Timestamp,
    window: std::time::Duration,
) -> db::Result<i64> {
    let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let bucket = now.0.div_euclid(window / PARTS);
    let sum =
        "SELECT COALESCE(CAST(SUM(used) AS BIGINT), 0) AS n FROM domain_budget WHERE subject = $1 AND bucket >= $2";
    let (used,): (i64,) = from.one(sum, params![subject, bucket - PARTS]).await?;
    Ok(used)
}
