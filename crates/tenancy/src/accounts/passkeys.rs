//! Passkeys: the stored rows, and every statement on them. Only the code that checks a signature reads the key; for
//! all other code it is opaque.
use db::{Db, Read, Tx, params, row};
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{accounts::Account, ids::AccountId};

/// How many a person can have.
pub const MOST: usize = 10;

/// A passkey as its owner sees it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Passkey {
    pub credential_id: String,
    /// The name of the passkey; at first that of its password manager or device.
    pub device_name: String,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
}
row!(Passkey { credential_id, device_name, created_at, last_used_at });

/// Whose it is, and what a signature is checked with.
pub struct Owned {
    pub account_id: AccountId,
    pub key: String,
}
row!(Owned { account_id, key });

/// The outcome of adding a passkey.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    Kept,
    /// An account has this passkey already.
    Taken,
    TooMany,
}

impl Passkey {
    pub async fn of(mut from: impl Read, account: AccountId) -> db::Result<Vec<Self>> {
        from.all(OF, params![account]).await
    }

    pub async fn find(db: &Db, credential_id: &str) -> db::Result<Option<Owned>> {
        db.opt("SELECT account_id, key FROM passkey WHERE credential_id = $1", params![credential_id]).await
    }

    /// Keeps a new one, for an account that has room for it.
    pub async fn add(&self, tx: &mut Tx, account: AccountId, key: &str) -> db::Result<Added> {
        // Two at once are one after the other, and the second sees the first.
        Account::hold(tx, account).await?;
        if Self::of(&mut *tx, account).await?.len() >= MOST {
            return Ok(Added::TooMany);
        }
        let kept = tx
            .exec(
                "INSERT INTO passkey (credential_id, account_id, device_name, key, created_at)
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (credential_id) DO NOTHING",
                params![&self.credential_id, account, &self.device_name, key, self.created_at],
            )
            .await?;
        Ok(if kept == 1 { Added::Kept } else { Added::Taken })
    }

    /// Notes a use and what it changed about the key; `false` when another use came in between, or it is gone.
    pub async fn used(tx: &mut Tx, credential_id: &str, old: &str, new: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE passkey SET key = $3, last_used_at = $4 WHERE credential_id = $1 AND key = $2";
        Ok(tx.exec(sql, params![credential_id, old, new, now]).await? == 1)
    }

    /// The renamed passkey; `None` when the person has no such one.
    pub async fn rename(
        tx: &mut Tx,
        account: AccountId,
        credential_id: &str,
        device_name: &str,
    ) -> db::Result<Option<Self>> {
        let renamed: Vec<Self> = tx
            .put(
                "UPDATE passkey SET device_name = $3 WHERE credential_id = $1 AND account_id = $2
                 RETURNING credential_id, device_name, created_at, last_used_at",
                params![credential_id, account, device_name],
            )
            .await?;
        Ok(renamed.into_iter().next())
    }

    /// `false` when the person has no such one.
    pub async fn remove(tx: &mut Tx, account: AccountId, credential_id: &str) -> db::Result<bool> {
        let sql = "DELETE FROM passkey WHERE credential_id = $1 AND account_id = $2";
        Ok(tx.exec(sql, params![credential_id, account]).await? == 1)
    }
}

const OF: &str = "SELECT credential_id, device_name, created_at, last_used_at FROM passkey WHERE account_id = $1
     ORDER BY created_at, credential_id";
