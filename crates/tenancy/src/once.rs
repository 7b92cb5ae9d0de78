//! Secrets that work once: the link in a mail, its code, a captcha pass. Each is for one purpose, is kept as a hash, and
//! is used up by the one statement that checks it.
use std::time::Duration;

use db::{Db, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::Code,
};

use crate::ids::AccountId;

pub const TOKEN_SPENT: Code =
    Code::new(410, "token_spent", "This link or code is invalid or has expired. Request a new one.");

/// A code dies after this many wrong guesses.
const TRIES: i64 = 5;

/// The purpose of a secret. Each feature declares its own beside the code that uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purpose {
    /// As it stands in the database, and like no other.
    pub name: &'static str,
    /// Zero for a secret that says of itself how long it is good.
    pub life: Duration,
}

impl Purpose {
    pub const fn new(name: &'static str, life: Duration) -> Self {
        Self { name, life }
    }
}

/// A secret that was found: its account and the value stored with it.
#[derive(Debug)]
pub struct Spent {
    hash: String,
    pub account_id: Option<AccountId>,
    sealed: Option<Vec<u8>>,
}
row!(Spent { hash, account_id, sealed });

impl Spent {
    /// The value that was stored with the secret.
    pub fn aside(&self, janua: &Janua) -> Option<Vec<u8>> {
        janua.vault.open("once", &place(&self.hash), self.sealed.as_ref()?).ok().map(|plain| plain.to_vec())
    }
}

fn place(hash: &str) -> String {
    format!("once:sealed:{hash}")
}

/// A code is short, so its hash is keyed: without the master key it cannot be found by trying them all.
fn code_hash(janua: &Janua, account_id: AccountId, code: &Secret) -> String {
    janua.vault.mac("once-code", format!("{account_id}\n{}", code.expose()).as_bytes())
}

/// Makes a secret of its own for a purpose, with something put aside for when it is used.
pub async fn issue(
    tx: &mut Tx,
    janua: &Janua,
    purpose: Purpose,
    account_id: Option<AccountId>,
    aside: &[u8],
) -> db::Result<Secret> {
    let token = janua.entropy.token();
    keep(tx, janua, purpose, &token, account_id, aside).await?;
    Ok(token)
}

/// As [`issue`], for a secret that the caller made.
pub async fn keep(
    tx: &mut Tx,
    janua: &Janua,
    purpose: Purpose,
    token: &Secret,
    account_id: Option<AccountId>,
    aside: &[u8],
) -> db::Result<()> {
    let is_declared = janua.declared::<Purpose>().contains(&purpose);
    debug_assert!(is_declared, "{} is in no list that a feature declares", purpose.name);
    let now = janua.clock.now();
    let hash = crypto::hash(token.expose().as_bytes());
    tx.exec(
        "INSERT INTO once (hash, purpose, account_id, tries, sealed, created_at, expires_at)
         VALUES ($1, $2, $3, 0, $4, $5, $6)",
        params![
            &hash,
            purpose.name,
            account_id,
            janua.vault.seal("once", &place(&hash), aside),
            now,
            now.plus(purpose.life)
        ],
    )
    .await?;
    Ok(())
}

/// Remembers a secret that was not kept here, used up from the start; `false` when it was here before, or may have been:
/// one that is older than the last restore could have been used in what was lost.
pub async fn first_use(
    tx: &mut Tx,
    purpose: Purpose,
    secret: &Secret,
    born: Timestamp,
    now: Timestamp,
    until: Timestamp,
) -> db::Result<bool> {
    if last_restore(tx).await?.is_some_and(|restored| born <= restored) {
        return Ok(false);
    }
    let kept = tx
        .exec(
            "INSERT INTO once (hash, purpose, tries, created_at, expires_at, used_at) VALUES ($1, $2, 0, $3, $4, $3)
             ON CONFLICT (hash) DO NOTHING",
            params![crypto::hash(secret.expose().as_bytes()), purpose.name, now, until],
        )
        .await?;
    Ok(kept == 1)
}

/// Gives a secret a code beside it, for people who cannot follow a link.
pub async fn add_code(
    tx: &mut Tx,
    janua: &Janua,
    token: &Secret,
    account_id: AccountId,
    life: Duration,
) -> db::Result<Secret> {
    let code = janua.entropy.otp();
    let hash = crypto::hash(token.expose().as_bytes());
    tx.exec(
        "UPDATE once SET code_hash = $2, code_expires_at = $3 WHERE hash = $1",
        params![hash, code_hash(janua, account_id, &code), janua.clock.now().plus(life)],
    )
    .await?;
    Ok(code)
}

/// A secret that could be used now. A look that decides nothing: it spares costly work for one that is spent.
pub async fn look(db: &Db, purpose: Purpose, token: &Secret, now: Timestamp) -> db::Result<Option<Spent>> {
    db.opt(
        "SELECT hash, account_id, sealed FROM once
         WHERE hash = $1 AND purpose = $2 AND used_at IS NULL AND expires_at > $3 AND tries < $4",
        params![crypto::hash(token.expose().as_bytes()), purpose.name, now, TRIES],
    )
    .await
}

/// Finds a secret, used and expired ones included: for the value stored with it, never for a sign-in.
pub async fn recall(db: &Db, purpose: Purpose, token: &Secret) -> db::Result<Option<Spent>> {
    db.opt(
        "SELECT hash, account_id, sealed FROM once WHERE hash = $1 AND purpose = $2",
        params![crypto::hash(token.expose().as_bytes()), purpose.name],
    )
    .await
}

/// Those of a person that could be used now, oldest first.
pub async fn open(tx: &mut Tx, purpose: Purpose, account_id: AccountId, now: Timestamp) -> db::Result<Vec<Spent>> {
    tx.all(
        "SELECT hash, account_id, sealed FROM once
         WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL AND expires_at > $3 ORDER BY created_at, hash",
        params![account_id, purpose.name, now],
    )
    .await
}

/// Uses a secret up; `None` when it is unknown, used or expired.
pub async fn spend(tx: &mut Tx, purpose: Purpose, token: &Secret, now: Timestamp) -> db::Result<Option<Spent>> {
    let spent: Vec<Spent> = tx
        .put(
            "UPDATE once SET used_at = $3 WHERE hash = $1 AND purpose = $2 AND used_at IS NULL AND expires_at > $3
             RETURNING hash, account_id, sealed",
            params![crypto::hash(token.expose().as_bytes()), purpose.name, now],
        )
        .await?;
    Ok(spent.into_iter().next())
}

/// As [`spend`], for one user, and nothing of it stays in the database: for secrets that are shown once.
pub async fn take(
    tx: &mut Tx,
    purpose: Purpose,
    account_id: AccountId,
    token: &Secret,
    now: Timestamp,
) -> db::Result<Option<Spent>> {
    let taken: Vec<Spent> = tx
        .put(
            "DELETE FROM once WHERE hash = $1 AND purpose = $2 AND account_id = $3 AND expires_at > $4
             RETURNING hash, account_id, sealed",
            params![crypto::hash(token.expose().as_bytes()), purpose.name, account_id, now],
        )
        .await?;
    Ok(taken.into_iter().next())
}

/// Deletes all secrets of a purpose but the newest few, before one more is [issued](issue).
pub async fn drop_oldest(tx: &mut Tx, purpose: Purpose, account_id: AccountId) -> db::Result<()> {
    tx.exec(
        "DELETE FROM once WHERE account_id = $1 AND purpose = $2
           AND hash NOT IN (SELECT hash FROM once WHERE account_id = $1 AND purpose = $2
                            ORDER BY created_at DESC, hash LIMIT $3)",
        params![account_id, purpose.name, GOOD_AT_ONCE],
    )
    .await?;
    Ok(())
}

/// Counts one try at a secret's code; `None` when it is unknown, used, expired or was tried too often. It stays
/// usable until it is [spent](spend).
pub async fn attempt(db: &Db, purpose: Purpose, token: &Secret, now: Timestamp) -> db::Result<Option<Spent>> {
    let tried: Vec<Spent> = db
        .put(
            "UPDATE once SET tries = tries + 1
             WHERE hash = $1 AND purpose = $2 AND used_at IS NULL AND expires_at > $3 AND tries < $4
             RETURNING hash, account_id, sealed",
            params![crypto::hash(token.expose().as_bytes()), purpose.name, now, TRIES],
        )
        .await?;
    Ok(tried.into_iter().next())
}

/// Uses a secret up by its code. A wrong guess counts against every code that is open for the person.
pub async fn spend_code(
    tx: &mut Tx,
    janua: &Janua,
    purpose: Purpose,
    account_id: AccountId,
    code: &Secret,
    now: Timestamp,
) -> db::Result<Option<Spent>> {
    let open: Vec<(String,)> = tx
        .put(
            "UPDATE once SET tries = tries + 1
             WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL AND code_expires_at > $3 AND tries < $4
             RETURNING hash",
            params![account_id, purpose.name, now, TRIES],
        )
        .await?;
    if open.is_empty() {
        return Ok(None);
    }
    let spent: Vec<Spent> = tx
        .put(
            "UPDATE once SET used_at = $3
             WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL AND code_expires_at > $3 AND tries <= $4
               AND code_hash = $5
             RETURNING hash, account_id, sealed",
            params![account_id, purpose.name, now, TRIES, code_hash(janua, account_id, code)],
        )
        .await?;
    Ok(spent.into_iter().next())
}

/// How many links of one purpose work at the same time. A newer link leaves the last few valid; otherwise a stranger
/// who requests links for an email could invalidate the one that its owner is about to follow.
const GOOD_AT_ONCE: u32 = 3;

/// Makes room for one more: of the unused secrets of a purpose the newest few stay good.
pub async fn make_room(tx: &mut Tx, purpose: Purpose, account_id: AccountId, now: Timestamp) -> db::Result<()> {
    tx.exec(
        "UPDATE once SET used_at = $3 WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL
           AND hash NOT IN (SELECT hash FROM once WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL
                            ORDER BY created_at DESC, hash LIMIT $4)",
        params![account_id, purpose.name, now, GOOD_AT_ONCE - 1],
    )
    .await?;
    Ok(())
}

/// Makes all unused secrets of a purpose useless.
pub async fn void(tx: &mut Tx, purpose: Purpose, account_id: AccountId, now: Timestamp) -> db::Result<()> {
    let sql = "UPDATE once SET used_at = $3 WHERE account_id = $1 AND purpose = $2 AND used_at IS NULL";
    tx.exec(sql, params![account_id, purpose.name, now]).await?;
    Ok(())
}

/// The [fact](kernel::installation) of when the database was last restored.
pub(crate) const RESTORED_AT: &str = "restored_at";

async fn last_restore(tx: &mut Tx) -> db::Result<Option<Timestamp>> {
    let found = kernel::installation::read(tx, RESTORED_AT).await?;
    Ok(found.and_then(|text| text.parse().ok()).map(Timestamp))
}
