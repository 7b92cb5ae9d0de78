//! After a database was put back to an earlier moment: whatever was used up or ended since must not come back to life.
//!
//! Nobody knows any more what that was. So every session and every secret that works once ends, and everything that
//! signed for them is replaced; people sign in again with what they know and have. What stands on its own — passwords,
//! passkeys, authenticator apps, memberships — is as it was at that moment.
use kernel::{
    App,
    clock::Timestamp,
    db::{self, Db, Reach, Sql, Tx, Value},
    params, row, transact,
};

use crate::{
    apps,
    events::{self, By, Event},
    keys, sessions,
};

/// So many rows at once: none of these statements takes long, however many there are.
const BATCH: i64 = 5_000;
/// Codes of an authenticator app count for half a minute, and those of the neighbouring ones are taken, too.
const TOTP_STEP_MS: i64 = 30_000;

/// Whether the secret keys of apps and the tokens of directories go on working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// One that was deleted since would work again.
    End,
    Keep,
}

/// What was ended, for whoever did it to read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ended {
    pub sessions: u64,
    /// Links, codes, tickets, challenges.
    pub secrets: u64,
    pub recovery_codes: u64,
    pub trusted_devices: u64,
    pub invites: u64,
    pub uploads: u64,
    /// Mails and text messages that had not left.
    pub messages: u64,
    pub app_keys: u64,
    pub scim_tokens: u64,
}

/// A key or token that works, and may have been deleted since.
#[derive(Debug)]
pub struct Kept {
    pub prefix: String,
    /// The app of a key, the organization of a token.
    pub owner: String,
    pub name: Option<String>,
    pub created_at: Timestamp,
}
row!(Kept { prefix, owner, name, created_at });

/// Ends all of it. Cut off in the middle, it is simply done again.
pub async fn end(app: &App, keys: Keys) -> Result<Ended, String> {
    // First of all: nothing that signs counts any more, whatever happens next.
    keys::replace(app).await?;
    let failed = |error: db::Error| format!("cannot end what must not come back: {error}");
    let ended = end_rows(app, keys).await.map_err(failed)?;
    transact!(app.db, tx, {
        let sql = "INSERT INTO setting (name, value) VALUES ('restored_at', $1)
                   ON CONFLICT (name) DO UPDATE SET value = $1";
        tx.exec(sql, params![app.clock.now().0.to_string()]).await?;
        let event = Event::DatabaseRestored { sessions: ended.sessions };
        events::record(tx, app, &By::default(), None, &event).await?;
        // Nodes that are running forget what they remember.
        tx.notify(Reach::EveryNode, sessions::TOPIC, "all").await?;
        tx.notify(Reach::EveryNode, apps::TOPIC, "all").await
    })
    .map_err(failed)?;
    Ok(ended)
}

async fn end_rows(app: &App, keys: Keys) -> db::Result<Ended> {
    let (db, now) = (&app.db, app.clock.now());
    let mut ended = Ended {
        sessions: each(
            db,
            "UPDATE session SET revoked_at = $3 WHERE id IN
               (SELECT id FROM session WHERE id > $1 AND revoked_at IS NULL ORDER BY id LIMIT $2) RETURNING id",
            Some(now),
        )
        .await?,
        secrets: each(
            db,
            "UPDATE once SET used_at = $3 WHERE hash IN
               (SELECT hash FROM once WHERE hash > $1 AND used_at IS NULL ORDER BY hash LIMIT $2) RETURNING hash",
            Some(now),
        )
        .await?,
        recovery_codes: each(
            db,
            "UPDATE recovery_code SET used_at = $3 WHERE hash IN
               (SELECT hash FROM recovery_code WHERE hash > $1 AND used_at IS NULL ORDER BY hash LIMIT $2)
             RETURNING hash",
            Some(now),
        )
        .await?,
        ..Ended::default()
    };
    ended.trusted_devices = each(
        db,
        "DELETE FROM trusted_device WHERE hash IN
           (SELECT hash FROM trusted_device WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        None,
    )
    .await?;
    ended.secrets += each(
        db,
        "DELETE FROM device_code WHERE hash IN
           (SELECT hash FROM device_code WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        None,
    )
    .await?;
    ended.secrets += each(
        db,
        "DELETE FROM oauth_code WHERE hash IN
           (SELECT hash FROM oauth_code WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        None,
    )
    .await?;
    // Invites stay in sight of whoever sent them, and can be sent again.
    ended.invites = each(
        db,
        "UPDATE org_invite SET expires_at = $3 WHERE hash IN
           (SELECT hash FROM org_invite WHERE hash > $1 AND expires_at > $3 ORDER BY hash LIMIT $2) RETURNING hash",
        Some(now),
    )
    .await?;
    ended.uploads = each(
        db,
        "UPDATE upload SET expires_at = $3 WHERE id IN
           (SELECT id FROM upload WHERE id > $1 AND done_at IS NULL AND expires_at > $3 ORDER BY id LIMIT $2)
         RETURNING id",
        Some(now),
    )
    .await?;
    // What had not left by then has left since, or holds a link that is ended.
    ended.messages = each(
        db,
        "DELETE FROM mail WHERE id IN (SELECT id FROM mail WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
        None,
    )
    .await?;
    ended.messages += each(
        db,
        "DELETE FROM job WHERE id IN
           (SELECT id FROM job WHERE id > $1 AND kind IN ('sms.send', 'identity.asked') ORDER BY id LIMIT $2)
         RETURNING id",
        None,
    )
    .await?;
    // An answer kept for a repeated request may hold tokens, and speaks of what is not so any more.
    each(
        db,
        "DELETE FROM idempotent_reply WHERE scope IN
           (SELECT scope FROM idempotent_reply WHERE scope > $1 ORDER BY scope LIMIT $2) RETURNING scope",
        None,
    )
    .await?;
    // A code that was typed just before the loss counts no second time.
    let step = now.0 / TOTP_STEP_MS + 1;
    db.exec("UPDATE totp_factor SET last_step = $1 WHERE last_step < $1", params![step]).await?;
    if keys == Keys::End {
        ended.app_keys = each(
            db,
            "DELETE FROM app_key WHERE id IN
               (SELECT id FROM app_key WHERE id > $1 AND kind = 'secret' ORDER BY id LIMIT $2) RETURNING id",
            None,
        )
        .await?;
        ended.scim_tokens = each(
            db,
            "DELETE FROM scim_token WHERE id IN
               (SELECT id FROM scim_token WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
            None,
        )
        .await?;
    }
    Ok(ended)
}

/// Runs a statement over a table in the order of its key, a batch at a time; answers how many rows it changed.
async fn each(db: &Db, sql: &'static str, now: Option<Timestamp>) -> db::Result<u64> {
    let (mut after, mut changed) = (String::new(), 0);
    loop {
        let mut params: Vec<Value> = params![&after, BATCH];
        params.extend(now.map(Value::from));
        let keys: Vec<(String,)> = db.put(Sql::from(sql), params).await?;
        changed += keys.len() as u64;
        match keys.into_iter().map(|(key,)| key).max() {
            Some(last) => after = last,
            None => return Ok(changed),
        }
    }
}

/// The secret keys and tokens that work now.
pub async fn kept(db: &Db) -> db::Result<Vec<Kept>> {
    db.all(
        "SELECT prefix, app_id AS owner, name, created_at FROM app_key WHERE kind = 'secret'
         UNION ALL SELECT prefix, org_id AS owner, name, created_at FROM scim_token
         ORDER BY created_at, prefix",
        params![],
    )
    .await
}

/// When a database was last put back to an earlier moment.
pub(crate) async fn last(tx: &mut Tx) -> db::Result<Option<Timestamp>> {
    let found: Option<(String,)> = tx.opt("SELECT value FROM setting WHERE name = 'restored_at'", params![]).await?;
    Ok(found.and_then(|(text,)| text.parse().ok()).map(Timestamp))
}
