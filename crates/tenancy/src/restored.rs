//! After a restore, what was used or ended since the backup must not become valid again.
//!
//! The restored database does not know what that was. So every session and every one-time secret ends, and the
//! signing keys are replaced; users sign in again. Passwords, passkeys, authenticator apps and memberships stay as
//! they were at the time of the backup.
use db::{Db, Reach, Sql, Value, claim, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    installation,
    jobs::{self, Job as _},
};

use crate::{
    apps,
    events::{self, By, happenings::DatabaseRestored},
    machines,
    messages::sms::SendSms,
    once, quotas,
    sessions::{self, keys},
};

/// The number of rows a statement changes, so that none takes long.
const BATCH: i64 = 5_000;
/// A code of an authenticator app is valid for half a minute; the codes before and after it are accepted, too.
const TOTP_STEP_MS: i64 = 30_000;

/// Whether secret app keys and SCIM tokens stay valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Otherwise a key that was deleted since the backup would work again.
    End,
    Keep,
}

/// How many rows ended, for the operator.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ended {
    pub sessions: u64,
    /// Links, codes, tickets, challenges.
    pub secrets: u64,
    pub recovery_codes: u64,
    pub trusted_devices: u64,
    pub invites: u64,
    pub uploads: u64,
    /// Mails and text messages that were not sent yet.
    pub messages: u64,
    pub app_keys: u64,
    pub scim_tokens: u64,
    /// Secrets and kill switches of machines.
    pub machine_secrets: u64,
    /// Keys of organizations' registries of MCP servers.
    pub registry_keys: u64,
    /// What is not reported.
    others: u64,
}

/// A key or token that is valid and may have been deleted since the backup.
#[derive(Debug)]
pub struct ValidKey {
    pub prefix: String,
    /// The app of a key, the organization of a token.
    pub owner: String,
    pub name: Option<String>,
    pub created_at: Timestamp,
}
row!(ValidKey { prefix, owner, name, created_at });

/// Ends all of it. Safe to repeat after an interruption.
pub async fn end(janua: &Janua, keys: Keys) -> Result<Ended, String> {
    // First, so that no old signature counts if a later step fails.
    keys::replace(janua).await?;
    let failed = |error: db::Error| format!("cannot end what must not come back: {error}");
    let ended = end_rows(janua, keys).await.map_err(failed)?;
    db::transact!(janua.db, async |tx| {
        installation::write(tx, once::RESTORED_AT, &janua.clock.now().0.to_string()).await?;
        let event = DatabaseRestored { ended_sessions: ended.sessions };
        events::record(tx, janua, &By::default(), None, &event).await?;
        // Running nodes clear their caches.
        tx.notify(Reach::EveryNode, sessions::TOPIC, "all").await?;
        tx.notify(Reach::EveryNode, machines::TOPIC, "all").await?;
        tx.notify(Reach::EveryNode, apps::TOPIC, "all").await
    })
    .map_err(failed)?;
    Ok(ended)
}

/// What ends after a restore. The owner of a table declares it: `Feature::declares(&[AfterRestore::remove(…)])`.
///
/// The statements go through a table in the order of its key, some rows at a time: `$1` is the key to continue after, `$2`
/// the number of rows, and they return the keys. `counted` says what the rows count as.
#[derive(Clone, Copy)]
pub struct AfterRestore {
    work: Work,
    counted: Counted,
}

type Counted = fn(&mut Ended) -> &mut u64;

#[derive(Clone, Copy)]
enum Work {
    Mark(&'static str),
    Remove(&'static str),
    RemoveKeys(&'static str),
    DeleteJobs(&'static str),
    DeleteFact(&'static str),
}

impl AfterRestore {
    /// An UPDATE that writes the present moment, `$3`.
    pub const fn mark(sql: &'static str, counted: Counted) -> Self {
        Self { work: Work::Mark(sql), counted }
    }

    /// A DELETE.
    pub const fn remove(sql: &'static str, counted: Counted) -> Self {
        Self { work: Work::Remove(sql), counted }
    }

    /// A DELETE of keys or tokens, which an operator can [keep](Keys::Keep).
    pub const fn remove_keys(sql: &'static str, counted: Counted) -> Self {
        Self { work: Work::RemoveKeys(sql), counted }
    }

    /// Deletes the jobs of a kind: they send messages.
    pub const fn delete_jobs(kind: &'static str) -> Self {
        Self { work: Work::DeleteJobs(kind), counted: |ended| &mut ended.messages }
    }

    /// Deletes a [fact about the installation](installation), which counts as nothing.
    pub const fn delete_fact(name: &'static str) -> Self {
        Self { work: Work::DeleteFact(name), counted: |ended| &mut ended.others }
    }

    async fn done(self, janua: &Janua, keys: Keys) -> db::Result<u64> {
        match self.work {
            Work::Mark(sql) => each(&janua.db, sql, Some(janua.clock.now())).await,
            Work::Remove(sql) => each(&janua.db, sql, None).await,
            Work::RemoveKeys(sql) if keys == Keys::End => each(&janua.db, sql, None).await,
            Work::RemoveKeys(_) => Ok(0),
            Work::DeleteJobs(kind) => jobs::forget_kind(&janua.db, kind).await,
            Work::DeleteFact(name) => installation::delete(&janua.db, name).await.map(|()| 0),
        }
    }
}

/// What ends of this crate's tables.
pub(crate) const AFTER_RESTORE: &[AfterRestore] = &[
    AfterRestore::mark(
        "UPDATE session SET revoked_at = $3 WHERE id IN
             (SELECT id FROM session WHERE id > $1 AND revoked_at IS NULL ORDER BY id LIMIT $2) RETURNING id",
        |ended| &mut ended.sessions,
    ),
    AfterRestore::mark(
        "UPDATE once SET used_at = $3 WHERE hash IN
             (SELECT hash FROM once WHERE hash > $1 AND used_at IS NULL ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.secrets,
    ),
    AfterRestore::mark(
        "UPDATE recovery_code SET used_at = $3 WHERE hash IN
             (SELECT hash FROM recovery_code WHERE hash > $1 AND used_at IS NULL ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.recovery_codes,
    ),
    AfterRestore::remove(
        "DELETE FROM trusted_device WHERE hash IN
             (SELECT hash FROM trusted_device WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.trusted_devices,
    ),
    // Expired invitations stay listed, and can be sent again.
    AfterRestore::mark(
        "UPDATE org_invite SET expires_at = $3 WHERE hash IN
             (SELECT hash FROM org_invite WHERE hash > $1 AND expires_at > $3 ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.invites,
    ),
    AfterRestore::mark(
        "UPDATE upload SET expires_at = $3 WHERE id IN
             (SELECT id FROM upload WHERE id > $1 AND done_at IS NULL AND expires_at > $3 ORDER BY id LIMIT $2)
         RETURNING id",
        |ended| &mut ended.uploads,
    ),
    // A message that waited at that moment was sent since, or holds a link that is ended.
    AfterRestore::remove(
        "DELETE FROM mail WHERE id IN (SELECT id FROM mail WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
        |ended| &mut ended.messages,
    ),
    AfterRestore::delete_jobs(SendSms::KIND),
    AfterRestore::remove_keys(
        "DELETE FROM app_key WHERE id IN
             (SELECT id FROM app_key WHERE id > $1 AND kind = 'secret' ORDER BY id LIMIT $2) RETURNING id",
        |ended| &mut ended.app_keys,
    ),
    AfterRestore::remove_keys(
        "DELETE FROM scim_token WHERE id IN (SELECT id FROM scim_token WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
        |ended| &mut ended.scim_tokens,
    ),
    // Tokens of a machine that was suspended since the backup must not count again.
    AfterRestore::mark(
        "UPDATE machine SET generation = generation + 1, updated_at = $3 WHERE id IN
             (SELECT id FROM machine WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
        |ended| &mut ended.others,
    ),
    AfterRestore::remove_keys(
        "DELETE FROM machine_secret WHERE hash IN
             (SELECT hash FROM machine_secret WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.machine_secrets,
    ),
];

async fn end_rows(janua: &Janua, keys: Keys) -> db::Result<Ended> {
    let mut ended = Ended::default();
    for declared in janua.declared::<AfterRestore>() {
        *(declared.counted)(&mut ended) += declared.done(janua, keys).await?;
    }
    quotas::recount_keys(&janua.db).await?;
    // A reply kept for a repeated request may hold tokens, and describes a state that is lost.
    claim::forget_before(&janua.db, i64::MAX).await?;
    // A code of an authenticator app that was used just before the loss must not work a second time.
    let step = janua.clock.now().0 / TOTP_STEP_MS + 1;
    janua.db.exec("UPDATE totp_factor SET last_step = $1 WHERE last_step < $1", params![step]).await?;
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

/// The secret keys and tokens that are valid now.
pub async fn kept(db: &Db) -> db::Result<Vec<ValidKey>> {
    db.all(
        "SELECT prefix, app_id AS owner, name, created_at FROM app_key WHERE kind = 'secret'
         UNION ALL SELECT prefix, org_id AS owner, name, created_at FROM scim_token
         UNION ALL SELECT prefix, machine_id AS owner, purpose AS name, created_at FROM machine_secret
         ORDER BY created_at, prefix",
        params![],
    )
    .await
}
