//! Purchases of domains as stored, and every statement on them.
use db::{Db, FromValue, Read, Tx, Value, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INTERNAL, Result},
    http::Key,
    id::Id,
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{apps::ApplicationId, orgs::OrgId};

use super::Contact;
use crate::domains::words;

const PURPOSE: &str = "registration_contact";

pub type RegistrationId = Id<Registration>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationStatus {
    Submitted,
    InProgress,
    Succeeded,
    Failed,
    /// Somebody has to do something, as the message says.
    ActionRequired,
}

words! {
    RegistrationStatus {
        Submitted = "submitted",
        InProgress = "in_progress",
        Succeeded = "succeeded",
        Failed = "failed",
        ActionRequired = "action_required",
    }
}

#[derive(Debug, Clone)]
pub struct Registration {
    pub id: RegistrationId,
    pub org_id: OrgId,
    pub app_id: Option<ApplicationId>,
    pub domain: String,
    pub years: i64,
    pub auto_renew: bool,
    pub privacy: bool,
    pub price: i64,
    pub currency: String,
    pub contact: Option<Vec<u8>>,
    pub status: RegistrationStatus,
    pub message: Option<String>,
    pub is_open: bool,
    pub operation: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}
row!(Registration {
    id,
    org_id,
    app_id,
    domain,
    years,
    auto_renew,
    privacy,
    price,
    currency,
    contact,
    status,
    message,
    is_open,
    operation,
    created_at,
    updated_at,
    expires_at
});

impl Registration {
    /// `false` when a purchase of the name is open already.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO domain_registration (id, org_id, app_id, domain, years, auto_renew, privacy, price, currency,
                     contact, status, is_open, created_at, updated_at, next_poll_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $13) ON CONFLICT DO NOTHING",
                params![
                    self.id,
                    self.org_id,
                    self.app_id,
                    &self.domain,
                    self.years,
                    self.auto_renew,
                    self.privacy,
                    self.price,
                    &self.currency,
                    self.contact.clone(),
                    self.status,
                    self.is_open,
                    self.created_at
                ],
            )
            .await?;
        Ok(made == 1)
    }

    pub async fn find(mut from: impl Read, id: RegistrationId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM domain_registration WHERE id = $1", params![id]).await
    }

    pub async fn page(db: &Db, org: OrgId, app: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM domain_registration
                   WHERE org_id = $1 AND app_id = $2 AND (created_at, id) < ($3, $4)
                   ORDER BY created_at DESC, id DESC LIMIT $5";
        db.all(sql, params![org, app, below.at, &below.id, most]).await
    }

    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<(RegistrationId,)>> {
        let sql = "SELECT id FROM domain_registration WHERE next_poll_at <= $1 ORDER BY next_poll_at, id LIMIT $2";
        db.all(sql, params![now, most]).await
    }

    /// Takes it in hand until `until`. None when it has ended, or another node has it.
    pub async fn claim(db: &Db, id: RegistrationId, now: Timestamp, until: Timestamp) -> db::Result<Option<Self>> {
        let taken: Vec<Self> = db
            .put(
                "UPDATE domain_registration SET next_poll_at = $3 WHERE id = $1 AND is_open = $4 AND next_poll_at <= $2
                 RETURNING *",
                params![id, now, until, true],
            )
            .await?;
        Ok(taken.into_iter().next())
    }

    /// Notes that the registrar is about to be asked; `false` when that was noted before.
    pub async fn note_asking(&self, db: &Db, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE domain_registration SET asked_at = $2 WHERE id = $1 AND asked_at IS NULL";
        Ok(db.exec(sql, params![self.id, now]).await? == 1)
    }

    pub async fn save(&self, tx: &mut Tx, next_poll_at: Option<Timestamp>) -> db::Result<bool> {
        let saved = tx
            .exec(
                "UPDATE domain_registration SET status = $2, message = $3, is_open = $4, operation = $5, updated_at = $6,
                     expires_at = $7, next_poll_at = $8, contact = $9 WHERE id = $1 AND is_open = $10",
                params![
                    self.id,
                    self.status,
                    self.message.clone(),
                    self.is_open,
                    self.operation.clone(),
                    self.updated_at,
                    self.expires_at,
                    next_poll_at,
                    self.contact.clone(),
                    true
                ],
            )
            .await?;
        Ok(saved == 1)
    }

    pub fn seal(janua: &Janua, id: RegistrationId, contact: &Contact) -> Vec<u8> {
        let plain = serde_json::to_vec(contact).unwrap_or_default();
        janua.vault.seal(PURPOSE, &format!("domain_registration:contact:{id}"), &plain)
    }

    pub fn contact(&self, janua: &Janua) -> Result<Contact> {
        let failed = |error: &dyn std::fmt::Display| INTERNAL.caused_by(error);
        let sealed = self.contact.as_deref().unwrap_or_default();
        let place = format!("domain_registration:contact:{}", self.id);
        let plain = janua.vault.open(PURPOSE, &place, sealed).map_err(|error| failed(&error))?;
        serde_json::from_slice(&plain).map_err(|error| failed(&error))
    }
}
