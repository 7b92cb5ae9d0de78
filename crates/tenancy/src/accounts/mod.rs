//! Accounts: what is stored of users, their passwords, second factors, passkeys and linked providers.
pub mod factors;
pub mod passkeys;
pub mod password;
pub mod search;
pub mod social;

use std::ops::Deref;

use db::{Db, Read, Tx, holding, params, row};
use kernel::clock::Timestamp;

pub use crate::ids::AccountId;
use crate::{accounts::social::Linked, apps::end_users, email::Email};

#[derive(Debug, Clone)]
pub struct Account {
    pub id: AccountId,
    pub email: Option<String>,
    pub email_key: Option<String>,
    pub name: String,
    pub bio: Option<String>,
    pub avatar_url: Option<String>,
    pub email_verified: bool,
    pub password_hash: Option<String>,
    pub accepts_marketing: bool,
    /// As in `Europe/Zurich`; nothing where none is known.
    pub time_zone: Option<String>,
    /// How it began: `email`, or a provider's name.
    pub auth_provider: String,
    /// The providers the person can sign in with.
    pub linked: Linked,
    /// Whether the account is a platform owner: by the first-owner link, or made one later.
    pub runs_platform: bool,
    /// The moment it was disabled; a disabled account refuses every sign-in.
    pub disabled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Account {
    id,
    email,
    email_key,
    name,
    bio,
    avatar_url,
    email_verified,
    password_hash,
    accepts_marketing,
    time_zone,
    auth_provider,
    linked,
    runs_platform,
    disabled_at,
    created_at,
    updated_at
});

/// An account whose row is locked until the end of the transaction that read it.
pub struct HeldAccount(pub(crate) Account);

impl Deref for HeldAccount {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.0
    }
}

impl Account {
    /// A new account with these values alone.
    pub fn new(id: AccountId, email: Option<&Email>, name: &str, now: Timestamp) -> Self {
        Self {
            id,
            email: email.map(|email| email.as_str().to_owned()),
            email_key: email.map(|email| email.key().to_owned()),
            name: name.to_owned(),
            bio: None,
            avatar_url: None,
            email_verified: false,
            password_hash: None,
            accepts_marketing: false,
            time_zone: None,
            auth_provider: "email".to_owned(),
            linked: Linked::default(),
            runs_platform: false,
            disabled_at: None,
            created_at: now,
            updated_at: now,
        }
    }

    pub async fn by_email(mut from: impl Read, email: &Email) -> db::Result<Option<Self>> {
        from.opt(
            "SELECT id, email, email_key, name, bio, avatar_url, email_verified, password_hash, accepts_marketing,
                    time_zone, auth_provider, linked, runs_platform, disabled_at, created_at, updated_at FROM account WHERE email_key = $1",
            params![email.key()],
        )
        .await
    }

    /// No password opens it until one is set anew.
    pub async fn clear_password(tx: &mut Tx, id: AccountId, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE account SET password_hash = NULL, updated_at = $2 WHERE id = $1";
        tx.exec(sql, params![id, now]).await?;
        Ok(())
    }

    /// Whether an account with an unverified email is more than a sign-up, which may be a stranger's: a platform owner
    /// created it, or its email was verified before.
    pub async fn is_established(tx: &mut Tx, id: AccountId) -> db::Result<bool> {
        let found: Option<(bool,)> = tx.opt("SELECT established FROM account WHERE id = $1", params![id]).await?;
        Ok(found.is_some_and(|(is_established,)| is_established))
    }

    /// A platform owner created the account, so sign-ups with its email change nothing of it.
    pub async fn establish(tx: &mut Tx, id: AccountId) -> db::Result<()> {
        let sql = "UPDATE account SET established = $2 WHERE id = $1";
        tx.exec(sql, params![id, true]).await.map(drop)
    }

    /// Another sign-up with the email of an unverified account: its name and its password count.
    pub async fn sign_up_again(
        tx: &mut Tx,
        id: AccountId,
        name: &str,
        password_hash: Option<&str>,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec(
            "UPDATE account SET name = $2, password_hash = $3, updated_at = $4 WHERE id = $1 AND email_verified = $5",
            params![id, name, password_hash, now, false],
        )
        .await?;
        Self::renamed(tx, id).await
    }

    pub async fn find(tx: &mut Tx, id: AccountId) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT id, email, email_key, name, bio, avatar_url, email_verified, password_hash, accepts_marketing,
                    time_zone, auth_provider, linked, runs_platform, disabled_at, created_at, updated_at FROM account WHERE id = $1",
            params![id],
        )
        .await
    }

    /// Locks the row until the transaction ends, and reads the account as it is now. Callers lock it before they
    /// change rows that depend on it.
    pub async fn hold(tx: &mut Tx, id: AccountId) -> db::Result<Option<HeldAccount>> {
        Ok(tx.opt(holding!("SELECT * FROM account WHERE id = $1"), params![id]).await?.map(HeldAccount))
    }

    /// Finds the account of an email, or creates it; `true` when it was created.
    pub async fn ensure(tx: &mut Tx, new: &Self) -> db::Result<(Self, bool)> {
        let made = tx
            .exec(
                "INSERT INTO account (id, email, email_key, name, email_verified, password_hash, accepts_marketing,
                                      created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT (email_key) DO NOTHING",
                params![
                    new.id,
                    new.email.clone(),
                    new.email_key.clone(),
                    &new.name,
                    new.email_verified,
                    new.password_hash.clone(),
                    new.accepts_marketing,
                    new.created_at
                ],
            )
            .await?;
        let there = tx
            .one(
                "SELECT id, email, email_key, name, bio, avatar_url, email_verified, password_hash,
                        accepts_marketing, time_zone, auth_provider, linked, runs_platform, disabled_at, created_at, updated_at FROM account WHERE email_key = $1",
                params![new.email_key.clone()],
            )
            .await?;
        if made == 1 {
            search::note(tx, new.id).await?;
        }
        Ok((there, made == 1))
    }

    /// Inserts a new account, which may have no email; `false` when another account has the email.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO account (id, email, email_key, name, avatar_url, email_verified, accepts_marketing,
                                      auth_provider, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) ON CONFLICT (email_key) DO NOTHING",
                params![
                    self.id,
                    self.email.clone(),
                    self.email_key.clone(),
                    &self.name,
                    self.avatar_url.clone(),
                    self.email_verified,
                    self.accepts_marketing,
                    &self.auth_provider,
                    self.created_at
                ],
            )
            .await?;
        if made == 1 {
            search::note(tx, self.id).await?;
        }
        Ok(made == 1)
    }

    /// Marks the email as verified, and takes the name and password of the sign-up whose link proved it.
    pub async fn verified(
        tx: &mut Tx,
        id: AccountId,
        name: &str,
        password_hash: Option<&str>,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec(
            "UPDATE account SET email_verified = $2, name = $3, password_hash = $4, updated_at = $5 WHERE id = $1",
            params![id, true, name, password_hash, now],
        )
        .await?;
        Self::renamed(tx, id).await
    }

    /// Marks the email as verified, because a link in a mail to it was followed.
    pub async fn mark_verified(tx: &mut Tx, id: AccountId, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE account SET email_verified = $2, updated_at = $3 WHERE id = $1 AND email_verified = $4";
        Ok(tx.exec(sql, params![id, true, now, false]).await? == 1)
    }

    pub async fn set_password(tx: &mut Tx, id: AccountId, hash: &str, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE account SET password_hash = $2, updated_at = $3 WHERE id = $1";
        tx.exec(sql, params![id, hash, now]).await?;
        Ok(())
    }

    /// The same password in a newer form, unless it was changed meanwhile.
    pub async fn upgrade_hash(db: &Db, id: AccountId, old: &str, new: &str) -> db::Result<()> {
        let sql = "UPDATE account SET password_hash = $3 WHERE id = $1 AND password_hash = $2";
        db.exec(sql, params![id, old, new]).await?;
        Ok(())
    }

    pub async fn save_profile(&self, tx: &mut Tx, old_name: &str) -> db::Result<()> {
        tx.send(
            "UPDATE account SET name = $2, bio = $3, accepts_marketing = $4, updated_at = $5, time_zone = $6
             WHERE id = $1",
            params![
                self.id,
                &self.name,
                self.bio.clone(),
                self.accepts_marketing,
                self.updated_at,
                self.time_zone.clone()
            ],
        )
        .await?;
        if self.name == old_name { Ok(()) } else { Self::renamed(tx, self.id).await }
    }

    /// The time zone of a browser that the user signed in with, unless one is known already; `true` when it was set.
    pub async fn note_time_zone(tx: &mut Tx, id: AccountId, zone: &str) -> db::Result<bool> {
        let sql = "UPDATE account SET time_zone = $2 WHERE id = $1 AND time_zone IS NULL";
        Ok(tx.exec(sql, params![id, zone]).await? == 1)
    }

    /// The time zone of the user with this email.
    pub async fn time_zone_of(mut from: impl Read, email: &Email) -> db::Result<Option<String>> {
        let sql = "SELECT time_zone FROM account WHERE email_key = $1";
        let found = from.opt::<(Option<String>,)>(sql, params![email.key()]).await?;
        Ok(found.and_then(|(zone,)| zone))
    }

    /// The name or the email changed, so the account is found by other words, here and in its apps.
    async fn renamed(tx: &mut Tx, id: AccountId) -> db::Result<()> {
        search::note(tx, id).await?;
        end_users::renamed(tx, id).await
    }

    /// Another email; `false` when it belongs to another account.
    pub async fn set_email(tx: &mut Tx, id: AccountId, email: &Email, now: Timestamp) -> db::Result<bool> {
        let sql = "SELECT id FROM account WHERE email_key = $1 AND id <> $2";
        if tx.opt::<(String,)>(sql, params![email.key(), id]).await?.is_some() {
            return Ok(false);
        }
        let sql = "UPDATE account SET email = $2, email_key = $3, updated_at = $4 WHERE id = $1";
        tx.exec(sql, params![id, email.as_str(), email.key(), now]).await?;
        Self::renamed(tx, id).await?;
        Ok(true)
    }

    /// An account that was verified before stays more than a sign-up.
    pub async fn set_email_verified(tx: &mut Tx, id: AccountId, is_verified: bool, now: Timestamp) -> db::Result<()> {
        let sql =
            "UPDATE account SET email_verified = $2, updated_at = $3, established = established OR email_verified
                   WHERE id = $1";
        tx.exec(sql, params![id, is_verified, now]).await.map(drop)
    }

    /// Closes the account to every sign-in, or opens it again. Its sessions are ended by the caller.
    pub async fn set_disabled(
        tx: &mut Tx,
        id: AccountId,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> db::Result<()> {
        let sql = "UPDATE account SET disabled_at = $2, updated_at = $3 WHERE id = $1";
        tx.exec(sql, params![id, since, now]).await.map(drop)
    }

    /// Platform owners by their account, not by the settings; the first 100.
    pub async fn who_run_platform(mut from: impl Read) -> db::Result<Vec<Self>> {
        from.all("SELECT * FROM account WHERE runs_platform ORDER BY id LIMIT 100", vec![]).await
    }

    /// Makes an account a platform owner.
    pub async fn entrust_platform(tx: &mut Tx, id: AccountId) -> db::Result<()> {
        Self::set_runs_platform(tx, id, true).await
    }

    pub async fn set_runs_platform(tx: &mut Tx, id: AccountId, runs_platform: bool) -> db::Result<()> {
        let sql = "UPDATE account SET runs_platform = $2 WHERE id = $1";
        tx.exec(sql, params![id, runs_platform]).await.map(drop)
    }

    /// `false` when there is no such account.
    pub async fn set_avatar(tx: &mut Tx, id: AccountId, url: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE account SET avatar_url = $2, updated_at = $3 WHERE id = $1";
        Ok(tx.exec(sql, params![id, url, now]).await? == 1)
    }

    /// Locks the row until the transaction ends; `false` when the account is gone or its email unverified.
    pub async fn hold_verified(tx: &mut Tx, id: AccountId, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE account SET updated_at = $2 WHERE id = $1 AND email_verified = $3";
        Ok(tx.exec(sql, params![id, now, true]).await? == 1)
    }

    /// Deletes an account with an unverified email; `false` when the email was verified meanwhile.
    pub async fn delete_unverified(tx: &mut Tx, id: AccountId) -> db::Result<bool> {
        let sql = "DELETE FROM account WHERE id = $1 AND email_verified = $2";
        Ok(tx.exec(sql, params![id, false]).await? == 1)
    }

    /// Everything that hangs on the account goes with it.
    pub async fn delete(tx: &mut Tx, id: AccountId) -> db::Result<bool> {
        Ok(tx.exec("DELETE FROM account WHERE id = $1", params![id]).await? == 1)
    }
}
