//! Identities of users at sign-in providers: the stored rows, and every statement on them.
use std::collections::BTreeMap;

use db::{Db, FromValue, Tx, Value, params, row};
use kernel::{Janua, clock::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AccountId;

/// A user's identity at one provider. `subject` is the provider's id, and the only field that identifies the user.
#[derive(Debug, Clone)]
pub struct Identity {
    pub provider: String,
    pub subject: String,
    pub account_id: AccountId,
    pub email: Option<String>,
    /// Whether the provider vouches for the email.
    pub email_verified: bool,
    pub username: Option<String>,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
    pub linked_at: Timestamp,
    pub last_used_at: Timestamp,
}
row!(Identity {
    provider,
    subject,
    account_id,
    email,
    email_verified,
    username,
    name,
    avatar_url,
    linked_at,
    last_used_at
});

/// The provider's tokens, on their way into the vault.
pub struct Tokens<'a>(pub &'a [u8]);

impl Identity {
    pub async fn find(tx: &mut Tx, provider: &str, subject: &str) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT provider, subject, account_id, email, email_verified, username, name, avatar_url, linked_at,
                    last_used_at FROM social_identity WHERE provider = $1 AND subject = $2",
            params![provider, subject],
        )
        .await
    }

    /// Everything linked to a person, the one used last first.
    pub async fn of(db: &Db, account: AccountId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT provider, subject, account_id, email, email_verified, username, name, avatar_url, linked_at,
                    last_used_at FROM social_identity WHERE account_id = $1 ORDER BY last_used_at DESC, provider",
            params![account],
        )
        .await
    }

    /// Links the identity; `false` when the account has one of this provider, or another account has this one.
    pub async fn insert(&self, tx: &mut Tx, janua: &Janua, tokens: Option<Tokens<'_>>) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO social_identity (provider, subject, account_id, email, email_verified, username, name,
                                              avatar_url, sealed, linked_at, last_used_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10) ON CONFLICT DO NOTHING",
                params![
                    &self.provider,
                    &self.subject,
                    self.account_id,
                    self.email.clone(),
                    self.email_verified,
                    self.username.clone(),
                    self.name.clone(),
                    self.avatar_url.clone(),
                    self.sealed(janua, tokens),
                    self.linked_at
                ],
            )
            .await?;
        Ok(made == 1)
    }

    /// Stores the provider's present answer. A missing value (a name that it sends only once) stays as it was.
    pub async fn refresh(&self, tx: &mut Tx, janua: &Janua, tokens: Option<Tokens<'_>>) -> db::Result<()> {
        tx.exec(
            "UPDATE social_identity SET email_verified = CASE WHEN CAST($3 AS TEXT) IS NULL THEN email_verified ELSE $4 END,
                    email = COALESCE($3, email), username = COALESCE($5, username), name = COALESCE($6, name),
                    avatar_url = COALESCE($7, avatar_url), sealed = COALESCE($8, sealed), last_used_at = $9
             WHERE provider = $1 AND subject = $2",
            params![
                &self.provider,
                &self.subject,
                self.email.clone(),
                self.email_verified,
                self.username.clone(),
                self.name.clone(),
                self.avatar_url.clone(),
                self.sealed(janua, tokens),
                self.last_used_at
            ],
        )
        .await?;
        Ok(())
    }

    /// Bound to the row: put into another one it cannot be opened.
    fn sealed(&self, janua: &Janua, tokens: Option<Tokens<'_>>) -> Option<Vec<u8>> {
        let place = format!("social_identity:sealed:{}:{}", self.provider, self.subject);
        tokens.map(|Tokens(plain)| janua.vault.seal("social", &place, plain))
    }
}

/// The public part of a user's identity at one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Visible {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    username: Option<String>,
}

/// The providers linked to an account, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Linked(BTreeMap<String, Visible>);

impl FromValue for Linked {
    fn from_value(value: Value) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok()
    }
}

impl Linked {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the present identities into the account's row. The caller has locked that row, so that of two links at
    /// once the second sees the first.
    pub async fn renew(tx: &mut Tx, account: AccountId) -> db::Result<Self> {
        let rows: Vec<VisibleRow> = tx
            .all("SELECT provider, subject, username FROM social_identity WHERE account_id = $1", params![account])
            .await?;
        let pairs = rows.into_iter().map(|row| (row.provider, Visible { id: row.subject, username: row.username }));
        let linked = Self(pairs.collect());
        let text = serde_json::to_string(&linked).unwrap_or_default();
        tx.exec("UPDATE account SET linked = $2 WHERE id = $1", params![account, text]).await?;
        Ok(linked)
    }

    pub fn has(&self, provider: &str) -> bool {
        self.0.contains_key(provider)
    }

    pub fn username(&self, provider: &str) -> Option<&str> {
        self.0.get(provider)?.username.as_deref()
    }

    fn id(&self, provider: &str) -> Option<String> {
        Some(self.0.get(provider)?.id.clone())
    }
}

struct VisibleRow {
    provider: String,
    subject: String,
    username: Option<String>,
}
row!(VisibleRow { provider, subject, username });

/// The user's ids at providers; omitted where there is none.
#[derive(Default, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderIds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub google_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub github_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub github_username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apple_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microsoft_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facebook_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discord_id: Option<String>,
}

impl ProviderIds {
    pub fn of(linked: &Linked) -> Self {
        Self {
            google_id: linked.id("google"),
            github_id: linked.id("github"),
            github_username: linked.username("github").map(str::to_owned),
            apple_id: linked.id("apple"),
            microsoft_id: linked.id("microsoft"),
            facebook_id: linked.id("facebook"),
            discord_id: linked.id("discord"),
        }
    }
}
