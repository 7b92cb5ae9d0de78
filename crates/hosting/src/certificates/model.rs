//! Certificates, orders and challenges as stored, and every statement on them.
use std::time::Duration;

use db::{Db, Reach, Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INTERNAL, Result},
};
use tenancy::{apps::ApplicationId, orgs::OrgId};
use zeroize::Zeroizing;

use crate::domains::Reason;

/// The topic on which a change to a certificate or a challenge is told; its body is the name.
pub const TOPIC: &str = "certificate";
const PURPOSE: &str = "certificate_key";
/// How long a node may work on an order before another one takes over.
pub const LEASE: Duration = Duration::from_secs(90);

#[derive(Debug, Clone)]
pub struct Certificate {
    pub name: String,
    pub app_id: Option<ApplicationId>,
    pub org_id: Option<OrgId>,
    /// PEM, the certificate of the name first.
    pub chain: Option<String>,
    pub sealed_key: Option<Vec<u8>>,
    pub issuer: Option<String>,
    pub not_before: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
    pub renew_at: Option<Timestamp>,
    /// The order that is open at the authority.
    pub order_url: Option<String>,
    pub order_key: Option<Vec<u8>>,
    pub ordered_at: Option<Timestamp>,
    /// When the order is worked on next; none when there is nothing to do.
    pub next_try_at: Option<Timestamp>,
    pub failures: u32,
    pub error: Option<String>,
    pub fence: i64,
}
row!(Certificate {
    name,
    app_id,
    org_id,
    chain,
    sealed_key,
    issuer,
    not_before,
    not_after,
    renew_at,
    order_url,
    order_key,
    ordered_at,
    next_try_at,
    failures,
    error,
    fence
});

/// What was issued.
pub struct Issued {
    pub chain: String,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub renew_at: Timestamp,
}

impl Certificate {
    pub async fn find(mut from: impl Read, name: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM certificate WHERE name = $1", params![name]).await
    }

    pub fn is_live(&self, now: Timestamp) -> bool {
        self.chain.is_some() && self.not_after.is_some_and(|end| end > now)
    }

    /// Wants a certificate for a name, now unless it was tried before.
    pub async fn want(
        tx: &mut Tx,
        name: &str,
        owner: Option<(ApplicationId, OrgId)>,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec(
            "INSERT INTO certificate (name, app_id, org_id, created_at, next_try_at) VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (name) DO UPDATE SET next_try_at = COALESCE(certificate.next_try_at, $4)",
            params![name, owner.map(|(app, _)| app), owner.map(|(_, org)| org), now],
        )
        .await?;
        Ok(())
    }

    /// Tries again at once.
    pub async fn hurry(tx: &mut Tx, name: &str, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE certificate SET next_try_at = $2 WHERE name = $1 AND next_try_at > $2";
        tx.exec(sql, params![name, now]).await?;
        Ok(())
    }

    /// Those whose order is to be worked on, fair between organizations: the first of each come first.
    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<(String,)>> {
        db.all(
            "SELECT name FROM (
                 SELECT name, next_try_at, ROW_NUMBER() OVER (PARTITION BY org_id ORDER BY next_try_at, name) AS place
                 FROM certificate WHERE next_try_at <= $1 AND leased_until <= $1
             ) AS waiting WHERE place <= 10 ORDER BY place, next_try_at, name LIMIT $2",
            params![now, most],
        )
        .await
    }

    /// Those that are to be renewed by now and have no order open.
    pub async fn start_renewals(tx: &mut Tx, now: Timestamp, most: u32) -> db::Result<Vec<(String,)>> {
        tx.put(
            "UPDATE certificate SET next_try_at = $1 WHERE next_try_at IS NULL AND name IN
                 (SELECT name FROM certificate WHERE renew_at <= $1 AND next_try_at IS NULL ORDER BY renew_at, name LIMIT $2)
             RETURNING name",
            params![now, most],
        )
        .await
    }

    /// Takes it in hand: until the lease is over no other node works on it. None when another one does.
    pub async fn claim(db: &Db, name: &str, now: Timestamp) -> db::Result<Option<Self>> {
        let taken: Vec<Self> = db
            .put(
                "UPDATE certificate SET fence = fence + 1, leased_until = $3
                 WHERE name = $1 AND leased_until <= $2 AND next_try_at IS NOT NULL RETURNING *",
                params![name, now, now.plus(LEASE)],
            )
            .await?;
        Ok(taken.into_iter().next())
    }

    /// Works on it for longer; `false` when another node has it by now.
    pub async fn renew_lease(&self, db: &Db, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE certificate SET leased_until = $3 WHERE name = $1 AND fence = $2";
        Ok(db.exec(sql, params![&self.name, self.fence, now.plus(LEASE)]).await? == 1)
    }

    /// Lets go of it until `at`.
    pub async fn release(&self, tx: &mut Tx, at: Option<Timestamp>) -> db::Result<bool> {
        let sql = "UPDATE certificate SET leased_until = 0, next_try_at = $3 WHERE name = $1 AND fence = $2";
        Ok(tx.exec(sql, params![&self.name, self.fence, at]).await? == 1)
    }

    /// Keeps an order, with the key that its certificate will have.
    pub async fn save_order(&self, db: &Db, url: &str, key: &[u8], now: Timestamp) -> db::Result<bool> {
        let sql =
            "UPDATE certificate SET order_url = $3, order_key = $4, ordered_at = $5 WHERE name = $1 AND fence = $2";
        Ok(db.exec(sql, params![&self.name, self.fence, url, key.to_vec(), now]).await? == 1)
    }

    /// The order failed, or was not made. The certificate that is there stays.
    pub async fn fail(
        &self,
        tx: &mut Tx,
        failure: &Failure,
        next_try_at: Timestamp,
        keeps_order: bool,
    ) -> db::Result<bool> {
        let failed = tx
            .exec(
                "UPDATE certificate SET failures = failures + $3, reason = $4, error = $5, next_try_at = $6, leased_until = 0,
                     order_url = CASE WHEN $7 THEN order_url ELSE NULL END,
                     order_key = CASE WHEN $7 THEN order_key ELSE NULL END
                 WHERE name = $1 AND fence = $2",
                params![
                    &self.name,
                    self.fence,
                    i64::from(failure.counts),
                    failure.reason,
                    failure.text.clone(),
                    next_try_at,
                    keeps_order
                ],
            )
            .await?;
        tx.exec("DELETE FROM acme_challenge WHERE name = $1", params![&self.name]).await?;
        Ok(failed == 1)
    }

    /// The certificate that its order ended with takes the place of the one before, on every node.
    pub async fn succeed(&self, tx: &mut Tx, issued: &Issued) -> db::Result<bool> {
        let kept = tx
            .exec(
                "UPDATE certificate SET chain = $3, sealed_key = order_key, issuer = $4, not_before = $5, not_after = $6,
                     renew_at = $7, renewal_checked_at = NULL, order_url = NULL, order_key = NULL, next_try_at = NULL,
                     failures = 0, reason = NULL, error = NULL, warned_at = NULL, leased_until = 0
                 WHERE name = $1 AND fence = $2 AND order_key IS NOT NULL",
                params![
                    &self.name,
                    self.fence,
                    &issued.chain,
                    &issued.issuer,
                    issued.not_before,
                    issued.not_after,
                    issued.renew_at
                ],
            )
            .await?;
        tx.exec("DELETE FROM acme_challenge WHERE name = $1", params![&self.name]).await?;
        changed(tx, &self.name).await?;
        Ok(kept == 1)
    }

    pub async fn set_renewal(db: &Db, name: &str, renew_at: Option<Timestamp>, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE certificate SET renew_at = COALESCE($2, renew_at), renewal_checked_at = $3 WHERE name = $1";
        db.exec(sql, params![name, renew_at, now]).await?;
        Ok(())
    }

    /// Live ones whose authority was not asked for a day when to renew them.
    pub async fn unasked(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM certificate WHERE renew_at IS NOT NULL AND next_try_at IS NULL AND not_after > $1
               AND (renewal_checked_at IS NULL OR renewal_checked_at < $2) ORDER BY name LIMIT $3",
            params![now, now.minus(Duration::from_hours(24)), most],
        )
        .await
    }

    /// Live ones that are past their renewal and of whose admins nobody was told for a day.
    pub async fn overdue(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM certificate WHERE renew_at < $1 AND not_after > $1 AND app_id IS NOT NULL
               AND (warned_at IS NULL OR warned_at < $2) ORDER BY renew_at, name LIMIT $3",
            params![now, now.minus(Duration::from_hours(24)), most],
        )
        .await
    }

    /// Those that are past their renewal, with those that expired in the last week.
    pub async fn past_renewal(db: &Db, now: Timestamp) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT * FROM certificate WHERE renew_at < $1 AND not_after > $2 ORDER BY renew_at, name LIMIT 200";
        db.all(sql, params![now, now.minus(Duration::from_hours(24 * 7))]).await
    }

    pub async fn note_warning(tx: &mut Tx, name: &str, now: Timestamp) -> db::Result<()> {
        tx.exec("UPDATE certificate SET warned_at = $2 WHERE name = $1", params![name, now]).await.map(drop)
    }

    pub async fn open_orders(tx: &mut Tx, org: Option<OrgId>) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM certificate WHERE org_id = $1 AND order_url IS NOT NULL";
        let (open,): (i64,) = tx.one(sql, params![org]).await?;
        Ok(open)
    }

    pub async fn destroy(tx: &mut Tx, name: &str, app: ApplicationId) -> db::Result<()> {
        tx.exec("DELETE FROM certificate WHERE name = $1 AND app_id = $2", params![name, app]).await?;
        changed(tx, name).await
    }

    /// The key of the certificate that is served.
    pub fn key(&self, janua: &Janua) -> Result<Option<Zeroizing<Vec<u8>>>> {
        self.sealed_key.as_deref().map(|sealed| open(janua, &self.name, sealed)).transpose()
    }

    pub fn pending_key(&self, janua: &Janua) -> Result<Option<Zeroizing<Vec<u8>>>> {
        self.order_key.as_deref().map(|sealed| open(janua, &self.name, sealed)).transpose()
    }
}

pub async fn changed(tx: &mut Tx, name: &str) -> db::Result<()> {
    tx.notify(Reach::EveryNode, TOPIC, name.to_owned()).await
}

pub fn seal(janua: &Janua, name: &str, key: &[u8]) -> Vec<u8> {
    janua.vault.seal(PURPOSE, &format!("certificate:key:{name}"), key)
}

fn open(janua: &Janua, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let opened = janua.vault.open(PURPOSE, &format!("certificate:key:{name}"), sealed);
    opened.map_err(|error| INTERNAL.caused_by(error))
}

/// Why there is no certificate, or no new one.
#[derive(Debug, Clone)]
pub struct Failure {
    pub reason: Reason,
    pub text: String,
    /// Whether the name itself is to blame, so that the next try waits longer.
    pub counts: bool,
    /// How long the authority asks to wait.
    pub wait: Option<Duration>,
}

/// How a node answers a certificate authority that checks a name.
#[derive(Debug, Clone)]
pub struct StoredChallenge {
    pub token: String,
    pub name: String,
    pub kind: String,
    pub answer: String,
}
row!(StoredChallenge { token, name, kind, answer });

impl StoredChallenge {
    pub async fn save(&self, tx: &mut Tx, ends_at: Timestamp) -> db::Result<()> {
        tx.exec(
            "INSERT INTO acme_challenge (token, name, kind, answer, ends_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (name, token) DO UPDATE SET kind = $3, answer = $4, ends_at = $5",
            params![&self.token, &self.name, &self.kind, &self.answer, ends_at],
        )
        .await?;
        changed(tx, &self.name).await
    }

    /// By host and token: a token of another host opens nothing.
    pub async fn find(db: &Db, name: &str, token: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT token, name, kind, answer FROM acme_challenge WHERE name = $1 AND token = $2 AND kind = 'http-01'";
        db.opt(sql, params![name, token]).await
    }

    pub async fn in_zone(db: &Db, name: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT token, name, kind, answer FROM acme_challenge WHERE name = $1 AND kind = 'dns-01' LIMIT 1";
        db.opt(sql, params![name]).await
    }

    pub async fn for_handshake(db: &Db, name: &str) -> db::Result<Option<Self>> {
        let sql =
            "SELECT token, name, kind, answer FROM acme_challenge WHERE name = $1 AND kind = 'tls-alpn-01' LIMIT 1";
        db.opt(sql, params![name]).await
    }
}

/// The sealed account at a certificate authority.
pub async fn account(db: &Db, directory: &str) -> db::Result<Option<Vec<u8>>> {
    let sql = "SELECT sealed FROM acme_account WHERE directory = $1";
    let found: Option<(Vec<u8>,)> = db.opt(sql, params![directory]).await?;
    Ok(found.map(|(sealed,)| sealed))
}

/// Keeps a new account; the one that was kept first counts.
pub async fn save_account(db: &Db, directory: &str, sealed: Vec<u8>, now: Timestamp) -> db::Result<()> {
    let sql = "INSERT INTO acme_account (directory, sealed, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    db.exec(sql, params![directory, sealed, now]).await.map(drop)
}

/// At the start of a node that is alone on its database: what the process before it held is free.
pub async fn release_all(db: &Db) -> db::Result<()> {
    db.exec("UPDATE certificate SET leased_until = 0 WHERE leased_until > 0", params![]).await.map(drop)
}

pub async fn forget_account(db: &Db, directory: &str) -> db::Result<()> {
    db.exec("DELETE FROM acme_account WHERE directory = $1", params![directory]).await.map(drop)
}
