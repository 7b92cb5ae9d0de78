//! Webhooks as stored, and every statement on them.
use std::time::Duration;

use db::{Db, Reach, Sql, Tx, holding, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Fault, INTERNAL, Result},
    http::Key,
    id::Id,
    ports::outgoing::host_of,
};
use tenancy::{accounts::AccountId, apps::ApplicationId};
use url::Url;

use super::changes::TOPIC;

pub type WebhookId = Id<Webhook>;

#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    pub id: WebhookId,
    pub app_id: ApplicationId,
    pub url: String,
    pub events: Vec<String>,
    pub is_active: bool,
    /// Whether deliveries carry the headers of Standard Webhooks.
    pub standard_headers: bool,
    /// Whether these stand in place of our own. They have the same names, so both together are not possible; webhooks
    /// from before carry those with Svix's names beside ours.
    pub is_standard: bool,
    /// Sealed, like the one below.
    pub secret: Vec<u8>,
    /// The one before, while receivers change over.
    pub retiring_secret: Option<Vec<u8>>,
    pub retiring_until: Option<Timestamp>,
    /// How many deliveries in a row have failed.
    pub failures: u32,
    pub created_at: Timestamp,
    /// Until when a listener waits for its stream; `None` for a webhook with an endpoint.
    pub listens_until: Option<Timestamp>,
    /// The account that listens.
    pub listener_of: Option<String>,
    /// The webhook that a listener listens along with.
    pub mirrors: Option<WebhookId>,
}
row!(Webhook {
    id,
    app_id,
    url,
    events,
    is_active,
    standard_headers,
    is_standard,
    secret,
    retiring_secret,
    retiring_until,
    failures,
    created_at,
    listens_until,
    listener_of,
    mirrors
});

/// What a secret is sealed for.
const PURPOSE: &str = "webhook";

pub fn seal(janua: &Janua, id: WebhookId, secret: &Secret) -> Vec<u8> {
    janua.vault.seal(PURPOSE, &format!("webhook:secret:{id}"), secret.expose().as_bytes())
}

impl Webhook {
    /// Every secret a delivery is signed with right now, the present one first.
    pub fn signing_secrets(&self, janua: &Janua, now: Timestamp) -> Result<Vec<Secret>> {
        let old = self.retiring_secret.as_ref().filter(|_| self.retiring_until.is_some_and(|until| now < until));
        std::iter::once(&self.secret).chain(old).map(|sealed| self.open(janua, sealed)).collect()
    }

    fn open(&self, janua: &Janua, sealed: &[u8]) -> Result<Secret> {
        let opened = janua.vault.open(PURPOSE, &format!("webhook:secret:{}", self.id), sealed);
        let plain = opened.map_err(|error| INTERNAL.caused_by(error))?;
        let text = std::str::from_utf8(&plain).map_err(|error| INTERNAL.caused_by(error))?;
        Ok::<_, Fault>(text.to_owned().into())
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO webhook (id, app_id, url, events, is_active, standard_headers, secret, failures, created_at,
                                  held_until, fence, is_standard, host, listens_until, listener_of, mirrors)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, 0, 0, $9, $10, $11, $12, $13)",
            params![
                self.id,
                self.app_id,
                &self.url,
                &self.events,
                self.is_active,
                self.standard_headers,
                self.secret.clone(),
                self.created_at,
                self.is_standard,
                // A listener takes no place among the webhooks of a host.
                self.host().filter(|_| !self.is_listener()).or_else(|| self.is_listener().then(String::new)),
                self.listens_until,
                self.listener_of.clone(),
                self.mirrors
            ],
        )
        .await?;
        self.subscribe(tx).await
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE webhook SET url = $2, events = $3, is_active = $4, standard_headers = $5, secret = $6,
                                retiring_secret = $7, retiring_until = $8, failures = $9, is_standard = $10,
                                host = $11 WHERE id = $1",
            params![
                self.id,
                &self.url,
                &self.events,
                self.is_active,
                self.standard_headers,
                self.secret.clone(),
                self.retiring_secret.clone(),
                self.retiring_until,
                self.failures,
                self.is_standard,
                self.host()
            ],
        )
        .await?;
        tx.send("DELETE FROM webhook_subscription WHERE webhook_id = $1", params![self.id]).await?;
        self.subscribe(tx).await?;
        changed(tx, self.id).await
    }

    pub fn is_listener(&self) -> bool {
        self.listens_until.is_some()
    }

    pub fn is_listener_of(&self, account: AccountId) -> bool {
        self.is_listener() && self.listener_of.as_deref() == Some(account.to_string().as_str())
    }

    pub fn host(&self) -> Option<String> {
        Url::parse(&self.url).ok().map(|url| host_of(&url))
    }

    /// How many of an app lead to a host.
    pub async fn count_at(tx: &mut Tx, app: ApplicationId, host: &str) -> db::Result<usize> {
        // Webhooks from before hosts were written down have none.
        let sql = "SELECT url FROM webhook WHERE app_id = $1 AND (host = $2 OR host IS NULL)";
        let found: Vec<(String,)> = tx.all(sql, params![app, host]).await?;
        Ok(found.iter().filter(|(url,)| Url::parse(url).is_ok_and(|url| host_of(&url) == host)).count())
    }

    async fn subscribe(&self, tx: &mut Tx) -> db::Result<()> {
        for event in &self.events {
            let sql = "INSERT INTO webhook_subscription (app_id, event, webhook_id) VALUES ($1, $2, $3)";
            // Not waited for: on PostgreSQL all of them go along with the next statement.
            tx.send(sql, params![self.app_id, event, self.id]).await?;
        }
        Ok(())
    }

    /// Only ever within one app: another app's webhook does not exist for the caller.
    pub async fn find(db: &Db, app: ApplicationId, id: WebhookId) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM webhook WHERE app_id = $1 AND id = $2", params![app, id]).await
    }

    /// Lets nobody else change it until the transaction is over, and answers what it is now.
    pub async fn hold(tx: &mut Tx, app: ApplicationId, id: WebhookId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM webhook WHERE app_id = $1 AND id = $2"), params![app, id]).await
    }

    /// Listeners at rest are not shown.
    pub async fn page(db: &Db, app: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM webhook WHERE app_id = $1 AND (created_at, id) < ($2, $3)
               AND (listens_until IS NULL OR is_active = $5)
             ORDER BY created_at DESC, id DESC LIMIT $4",
            params![app, below.at, &below.id, most, true],
        )
        .await
    }

    pub async fn count(tx: &mut Tx, app: ApplicationId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM webhook WHERE app_id = $1";
        let (count,): (i64,) = tx.one(sql, params![app]).await?;
        Ok(count)
    }

    /// How many count against a quota: those with an endpoint.
    pub async fn count_endpoints(tx: &mut Tx, app: ApplicationId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM webhook WHERE app_id = $1 AND listens_until IS NULL";
        let (count,): (i64,) = tx.one(sql, params![app]).await?;
        Ok(count)
    }

    /// How many listen by a stream.
    pub async fn count_listeners(tx: &mut Tx, app: ApplicationId, now: Timestamp) -> db::Result<usize> {
        let sql = "SELECT id FROM webhook WHERE app_id = $1 AND listens_until > $2";
        Ok(tx.all::<(WebhookId,)>(sql, params![app, now]).await?.len())
    }

    /// A listener waits until then.
    pub async fn put_off(db: &Db, id: WebhookId, until: Timestamp) -> db::Result<()> {
        let sql = "UPDATE webhook SET listens_until = $2 WHERE id = $1 AND listens_until IS NOT NULL";
        db.exec(sql, params![id, until]).await.map(drop)
    }

    /// A stream came back.
    pub async fn resume(tx: &mut Tx, id: WebhookId, until: Timestamp) -> db::Result<()> {
        let sql = "UPDATE webhook SET listens_until = $2, is_active = $3 WHERE id = $1 AND listens_until IS NOT NULL";
        tx.send(sql, params![id, until, true]).await
    }

    /// Listeners whose stream did not come back get no more deliveries.
    pub async fn rest_listeners(db: &Db, now: Timestamp) -> db::Result<u64> {
        let sql = "UPDATE webhook SET is_active = $2 WHERE listens_until <= $1 AND is_active = $3";
        db.exec(sql, params![now, false, true]).await
    }

    /// Deletes listeners of an app that rest, but for the latest so many.
    pub async fn delete_resting(tx: &mut Tx, app: ApplicationId, but: u32) -> db::Result<Vec<WebhookId>> {
        let sql = "DELETE FROM webhook WHERE id IN
                       (SELECT id FROM webhook WHERE app_id = $1 AND listens_until IS NOT NULL AND is_active = $2
                        ORDER BY listens_until DESC LIMIT 100 OFFSET $3)
                   RETURNING id";
        let gone: Vec<(WebhookId,)> = tx.put(sql, params![app, false, but]).await?;
        Ok(gone.into_iter().map(|(id,)| id).collect())
    }

    /// Listeners without a stream since a moment.
    pub async fn expired_listeners(db: &Db, now: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM webhook WHERE listens_until <= $1 ORDER BY listens_until LIMIT 500";
        db.all(sql, params![now]).await
    }

    /// `false` when it came back meanwhile.
    pub async fn delete_expired(tx: &mut Tx, id: WebhookId, now: Timestamp) -> db::Result<bool> {
        let gone = tx.exec("DELETE FROM webhook WHERE id = $1 AND listens_until <= $2", params![id, now]).await?;
        Ok(gone == 1)
    }

    /// Listeners that listen along with a webhook.
    pub async fn mirrors_of(tx: &mut Tx, id: WebhookId, now: Timestamp) -> db::Result<Vec<WebhookId>> {
        let sql = "SELECT id FROM webhook WHERE mirrors = $1 AND listens_until > $2 ORDER BY id";
        let found: Vec<(WebhookId,)> = tx.all(sql, params![id, now]).await?;
        Ok(found.into_iter().map(|(id,)| id).collect())
    }

    /// `false` when the app has no such webhook.
    pub async fn delete(tx: &mut Tx, app: ApplicationId, id: WebhookId) -> db::Result<bool> {
        let gone = tx.exec("DELETE FROM webhook WHERE app_id = $1 AND id = $2", params![app, id]).await?;
        changed(tx, id).await?;
        Ok(gone == 1)
    }

    /// Says that there is something to deliver from this moment on.
    pub async fn wake(tx: &mut Tx, id: WebhookId, at: Timestamp) -> db::Result<()> {
        // The deliveries of a listener are fetched, so that no node is to deliver them.
        let sql = "UPDATE webhook SET next_at = $2
                   WHERE id = $1 AND listens_until IS NULL AND (next_at IS NULL OR next_at > $2)";
        tx.exec(sql, params![id, at]).await?;
        Ok(())
    }

    /// A delivery failed; answers the webhook if it still is active.
    pub async fn failed(tx: &mut Tx, id: WebhookId) -> db::Result<Option<Self>> {
        let sql = "UPDATE webhook SET failures = failures + 1 WHERE id = $1 AND is_active = $2 RETURNING *";
        let failed: Vec<Self> = tx.put(sql, params![id, true]).await?;
        Ok(failed.into_iter().next())
    }

    /// `false` when somebody else did, or it is gone.
    pub async fn switch_off(tx: &mut Tx, id: WebhookId) -> db::Result<bool> {
        let sql = "UPDATE webhook SET is_active = $2 WHERE id = $1 AND is_active = $3";
        let switched = tx.exec(sql, params![id, false, true]).await?;
        changed(tx, id).await?;
        Ok(switched == 1)
    }

    /// Drops secrets whose time is over.
    pub async fn retire_secrets(db: &Db, now: Timestamp) -> db::Result<u64> {
        let sql = "UPDATE webhook SET retiring_secret = NULL, retiring_until = NULL WHERE retiring_until <= $1";
        db.exec(sql, params![now]).await
    }
}

/// Tells whoever delivers for it to look at it again. Other nodes look in any case.
async fn changed(tx: &mut Tx, id: WebhookId) -> db::Result<()> {
    tx.notify(Reach::ThisNode, TOPIC, id.to_string()).await
}

/// A webhook this node delivers for.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub id: WebhookId,
    pub fence: i64,
}
row!(Held { id, fence });

/// Longer than a lane works.
const LEASE: Duration = Duration::from_mins(1);

impl Held {
    /// Takes up to `most` webhooks that have something to deliver; nobody else delivers for them until the lease ends.
    pub async fn claim(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        const CLAIM: Sql = Sql::two(
            "UPDATE webhook SET held_until = $2, fence = fence + 1 WHERE id IN
                 (SELECT id FROM webhook WHERE next_at <= $1 AND held_until <= $1 AND is_active = $4
                  ORDER BY next_at, id LIMIT $3)
             RETURNING id, fence",
            "WITH due AS MATERIALIZED
                 (SELECT id FROM webhook WHERE next_at <= $1 AND held_until <= $1 AND is_active = $4
                  ORDER BY next_at, id LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED)
             UPDATE webhook SET held_until = $2, fence = fence + 1 FROM due WHERE webhook.id = due.id
             RETURNING webhook.id, webhook.fence",
        );
        db.put(CLAIM, params![now, now.plus(LEASE), most, true]).await
    }

    /// When there is something to deliver next, if ever.
    pub async fn next(db: &Db, now: Timestamp) -> db::Result<Option<Timestamp>> {
        let sql = "SELECT next_at FROM webhook WHERE next_at IS NOT NULL AND held_until <= $1 AND is_active = $2
                   ORDER BY next_at, id LIMIT 1";
        Ok(db.opt::<(Timestamp,)>(sql, params![now, true]).await?.map(|(at,)| at))
    }

    /// What it is now; nothing when it is gone, or another node has it.
    pub async fn look(&self, db: &Db) -> db::Result<Option<Webhook>> {
        db.opt("SELECT * FROM webhook WHERE id = $1 AND fence = $2", params![self.id, self.fence]).await
    }

    /// Whether it is still there and still ours; if so, it stays ours until the transaction is over.
    pub async fn keep(&self, tx: &mut Tx) -> db::Result<bool> {
        let question = holding!("SELECT id, fence FROM webhook WHERE id = $1 AND fence = $2");
        Ok(tx.opt::<Self>(question, params![self.id, self.fence]).await?.is_some())
    }

    /// A delivery succeeded.
    pub async fn succeeded(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send("UPDATE webhook SET failures = 0 WHERE id = $1 AND failures > 0", params![self.id]).await
    }

    /// Lets go of it until its next delivery is due.
    pub async fn release(&self, tx: &mut Tx) -> db::Result<()> {
        // Two statements: the first waits for whoever is just adding a delivery ([`Listener::page`]), so that the second
        // sees it. Nobody would look for it otherwise.
        const HOLD: Sql = Sql::two(
            "SELECT id, fence FROM webhook WHERE id = $1 AND fence = $2",
            "SELECT id, fence FROM webhook WHERE id = $1 AND fence = $2 FOR UPDATE",
        );
        if tx.opt::<Self>(HOLD, params![self.id, self.fence]).await?.is_some() {
            tx.exec(
                "UPDATE webhook SET held_until = 0, next_at =
                     (SELECT MIN(ready_at) FROM webhook_delivery WHERE webhook_id = $1 AND ready_at IS NOT NULL)
                 WHERE id = $1",
                params![self.id],
            )
            .await?;
        }
        Ok(())
    }
}

pub(super) async fn release_all(db: &Db) -> db::Result<()> {
    db.exec("UPDATE webhook SET held_until = 0 WHERE held_until > 0", vec![]).await?;
    Ok(())
}

/// Those of an app that listen to a value, in the order of their ids.
pub struct Listener {
    pub webhook_id: WebhookId,
    pub created_at: Timestamp,
}
row!(Listener { webhook_id, created_at });

macro_rules! page {
    ($lock:literal) => {
        concat!(
            "SELECT webhook_subscription.webhook_id, webhook.created_at FROM webhook_subscription
             JOIN webhook ON webhook.id = webhook_subscription.webhook_id
             WHERE webhook_subscription.app_id = $1 AND webhook_subscription.event = $2
               AND webhook_subscription.webhook_id > $3 AND webhook.is_active = $4 AND webhook.created_at <= $5
             ORDER BY webhook_subscription.webhook_id LIMIT $6",
            $lock
        )
    };
}

impl Listener {
    /// Those after the given one that were there at a moment. Until the transaction is over none of them is let go of by
    /// whoever delivers for it: it would not see what is being added. Others may add to them all the same.
    pub async fn page(
        tx: &mut Tx,
        app: ApplicationId,
        value: &str,
        after: &str,
        at: Timestamp,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        const PAGE: Sql = Sql::two(page!(""), page!(" FOR KEY SHARE OF webhook"));
        tx.all(PAGE, params![app, value, after, true, at, most]).await
    }

    /// Says to all between the two that there is something to deliver.
    pub async fn wake(
        tx: &mut Tx,
        app: ApplicationId,
        value: &str,
        range: (&str, &str),
        now: Timestamp,
    ) -> db::Result<()> {
        tx.send(
            "UPDATE webhook SET next_at = $5 WHERE id IN
                 (SELECT webhook_id FROM webhook_subscription
                  WHERE app_id = $1 AND event = $2 AND webhook_id > $3 AND webhook_id <= $4)
               AND is_active = $6 AND listens_until IS NULL AND (next_at IS NULL OR next_at > $5)",
            params![app, value, range.0, range.1, now, true],
        )
        .await
    }
}
