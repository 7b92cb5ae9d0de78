//! After a database was put back to an earlier moment: whatever was used up or ended since must not come back to life.
//!
//! Nobody knows any more what that was. So every session and every secret that works once ends, and everything that
//! signed for them is replaced; people sign in again with what they know and have. What stands on its own — passwords,
//! passkeys, authenticator apps, memberships — is as it was at that moment.
use db::{Db, Reach, Sql, Tx, Value, params, row};
use kernel::{App, clock::Timestamp};

use crate::happenings::DatabaseRestored;
use crate::{
    apps,
    events::{self, By},
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
    db::transact!(app.db, async |tx| {
        let sql = "INSERT INTO setting (name, value) VALUES ('restored_at', $1)
                   ON CONFLICT (name) DO UPDATE SET value = $1";
        tx.exec(sql, params![app.clock.now().0.to_string()]).await?;
        let event = DatabaseRestored { ended_sessions: ended.sessions };
        events::record(tx, app, &By::default(), None, &event).await?;
        // Nodes that are running forget what they remember.
        tx.notify(Reach::EveryNode, sessions::TOPIC, "all").await?;
        tx.notify(Reach::EveryNode, apps::TOPIC, "all").await
    })
    .map_err(failed)?;
    Ok(ended)
}

/// The next rows of a table, in the order of its key: `$1` is the key to go on after, `$2` how many.
#[rustfmt::skip]
macro_rules! next { ($table:literal, $key:literal, $which:literal) => {
    concat!(" WHERE ", $key, " IN (SELECT ", $key, " FROM ", $table, " WHERE ", $key, " > $1 AND ", $which,
        " ORDER BY ", $key, " LIMIT $2) RETURNING ", $key)
} }
/// Writes the present moment, `$3`, into them.
#[rustfmt::skip]
macro_rules! mark { ($table:literal . $key:literal, $column:literal where $which:literal) => {
    concat!("UPDATE ", $table, " SET ", $column, " = $3", next!($table, $key, $which))
} }
#[rustfmt::skip]
macro_rules! remove { ($table:literal . $key:literal where $which:literal) => {
    concat!("DELETE FROM ", $table, next!($table, $key, $which))
} }

async fn end_rows(app: &App, keys: Keys) -> db::Result<Ended> {
    let (db, now) = (&app.db, app.clock.now());
    let marked = async |sql: &'static str| each(db, sql, Some(now)).await;
    let removed = async |sql: &'static str| each(db, sql, None).await;
    let sessions = marked(mark!("session"."id", "revoked_at" where "revoked_at IS NULL")).await?;
    let secrets = marked(mark!("once"."hash", "used_at" where "used_at IS NULL")).await?
        + removed(remove!("device_code"."hash" where "TRUE")).await?
        + removed(remove!("oauth_code"."hash" where "TRUE")).await?;
    let recovery_codes = marked(mark!("recovery_code"."hash", "used_at" where "used_at IS NULL")).await?;
    let trusted_devices = removed(remove!("trusted_device"."hash" where "TRUE")).await?;
    // Invites stay in sight of whoever sent them, and can be sent again.
    let invites = marked(mark!("org_invite"."hash", "expires_at" where "expires_at > $3")).await?;
    let uploads = marked(mark!("upload"."id", "expires_at" where "done_at IS NULL AND expires_at > $3")).await?;
    // What had not left by then has left since, or holds a link that is ended.
    let messages = removed(remove!("mail"."id" where "TRUE")).await?
        + removed(remove!("job"."id" where "kind IN ('sms.send', 'identity.asked')")).await?;
    // An answer kept for a repeated request may hold tokens, and speaks of what is not so any more.
    removed(remove!("idempotent_reply"."scope" where "TRUE")).await?;
    // Who had not come first by then may have since: the next start prints another link.
    db.exec("DELETE FROM setting WHERE name = 'first_owner_link'", params![]).await?;
    // A code that was typed just before the loss counts no second time.
    let step = now.0 / TOTP_STEP_MS + 1;
    db.exec("UPDATE totp_factor SET last_step = $1 WHERE last_step < $1", params![step]).await?;
    let (mut app_keys, mut scim_tokens) = (0, 0);
    if keys == Keys::End {
        app_keys = removed(remove!("app_key"."id" where "kind = 'secret'")).await?;
        scim_tokens = removed(remove!("scim_token"."id" where "TRUE")).await?;
    }
    Ok(Ended {
        sessions,
        secrets,
        recovery_codes,
        trusted_devices,
        invites,
        uploads,
        messages,
        app_keys,
        scim_tokens,
    })
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
