//! What people let clients know and do: remembered, shown to them, and taken back.
use axum::{extract::State, response::NoContent};
use db::{Db, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    id::Id,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    accounts::{Account, AccountId},
    apps::{ApplicationId, scopes::Scopes},
    enter::Session,
    events::{self, By, happenings::SessionRevoked},
    machines::{Machine, MachineEvent, MachineId},
    sessions,
};

use super::clients::Described;
use crate::events::{ConsentGranted, ConsentRevoked};

pub fn routes() -> Routes {
    Routes::new("auth")
        .get("/auth/consents", list_consents, "the user's consents, newest first")
        .delete("/auth/consents/{id}", revoke_consent, "revoke a consent and end its sessions")
        .fails(&[NOT_FOUND])
}

pub struct Consent {
    id: Id<Consent>,
    client: String,
    name: String,
    /// Separated by spaces; empty for this service itself.
    resource: String,
    pub(super) scopes: Scopes,
    /// The origin or scheme that people were sent on to.
    pub(super) place: String,
    created_at: Timestamp,
    updated_at: Timestamp,
}
row!(Consent { id, client, name, resource, scopes, place, created_at, updated_at });

const OF_CLIENT: &str = "SELECT id, client, name, resource, scopes, place, created_at, updated_at FROM consent
                         WHERE account_id = $1 AND client = $2 AND resource = $3";

impl Consent {
    pub async fn find(db: &Db, account: AccountId, client: &str, resource: Option<&str>) -> db::Result<Option<Self>> {
        db.opt(OF_CLIENT, params![account, client, resource.unwrap_or_default()]).await
    }

    pub async fn page(db: &Db, account: AccountId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, client, name, resource, scopes, place, created_at, updated_at FROM consent
             WHERE account_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4",
            params![account, below.at, &below.id, most],
        )
        .await
    }
}

/// What somebody says yes to.
pub struct Agreed<'a> {
    pub client: &'a str,
    pub app_id: Option<ApplicationId>,
    pub name: &'a str,
    pub resource: Option<&'a str>,
    pub scopes: &'a Scopes,
    /// The origin or scheme that people are sent on to.
    pub place: &'a str,
}

impl Agreed<'_> {
    /// Remembers it, beside what was said before.
    pub async fn remember(&self, tx: &mut Tx, janua: &Janua, by: &By, account: AccountId) -> Result<()> {
        let (now, resource) = (janua.clock.now(), self.resource.unwrap_or_default());
        let before: Option<Consent> = tx.opt(OF_CLIENT, params![account, self.client, resource]).await?;
        let all = before.map_or_else(|| self.scopes.clone(), |before| before.scopes.and(self.scopes));
        tx.exec(
            "INSERT INTO consent (id, account_id, client, app_id, resource, name, scopes, place, created_at,
                                  updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $9, $8, $8)
             ON CONFLICT (account_id, client, resource) DO UPDATE SET name = $6, scopes = $7, place = $9,
               updated_at = $8",
            params![
                Id::<Consent>::new(&janua.entropy, now),
                account,
                self.client,
                self.app_id,
                resource,
                self.name,
                &all,
                now,
                self.place
            ],
        )
        .await?;
        if self.app_id.is_none() {
            Described::note_use(tx, self.client, now).await?;
        }
        let event = ConsentGranted { client_id: self.client.to_owned(), scope: self.scopes.to_string() };
        Ok(events::record(tx, janua, by, Some(account), &event).await?)
    }
}

/// A user's consent for a client.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsentView {
    id: Id<Consent>,
    /// The client ID: an app's id, or the URL of the client.
    client_id: String,
    /// The client's name.
    name: String,
    /// Where its tokens count, if not here; the first of `resources`.
    resource: Option<String>,
    /// Where its tokens count, if not here.
    resources: Vec<String>,
    scopes: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<Consent> for ConsentView {
    fn from(consent: Consent) -> Self {
        let resources: Vec<String> = consent.resource.split_whitespace().map(str::to_owned).collect();
        Self {
            id: consent.id,
            client_id: consent.client,
            name: consent.name,
            resource: resources.first().cloned(),
            resources,
            scopes: consent.scopes.names().map(str::to_owned).collect(),
            created_at: consent.created_at,
            updated_at: consent.updated_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Consents {
    consents: Vec<ConsentView>,
    next_cursor: Option<String>,
}

async fn list_consents(State(janua): State<Janua>, session: Session, page: Page) -> Result<Json<Consents>> {
    let account = session.account().id;
    let fetch = async |below, most| Consent::page(&janua.db, account, &below, most).await;
    let key = |consent: &Consent| Key { at: consent.created_at, id: consent.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "consents", account, fetch, key).await?;
    Ok(Json(Consents { consents: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct OneConsent {
    id: Id<Consent>,
}

async fn revoke_consent(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OneConsent>,
) -> Result<NoContent> {
    let (account, now) = (session.account().id, janua.clock.now());
    transact!(janua, async |tx| {
        Account::hold(tx, account).await?;
        let sql = "DELETE FROM consent WHERE id = $1 AND account_id = $2
                   RETURNING id, client, name, resource, scopes, place, created_at, updated_at";
        let gone: Vec<Consent> = tx.put(sql, params![path.id, account]).await?;
        let Some(Consent { client, resource, .. }) = gone.into_iter().next() else { return Err(NOT_FOUND.into()) };
        session.record(tx, &janua, &ConsentRevoked { client_id: client.clone() }).await?;
        if let Ok(id) = client.parse::<MachineId>()
            && let Some(machine) = Machine::find(&mut *tx, id).await?
        {
            let event = MachineEvent::delegation_revoked(json!({ "name": machine.name, "subject": account }));
            session.record_about(tx, &janua, machine.about().person(account), &event).await?;
        }
        // What is under way is off, too.
        let sql = "DELETE FROM oauth_code WHERE client = $1 AND used_at IS NULL
                     AND session_id IN (SELECT id FROM session WHERE account_id = $2)";
        tx.exec(sql, params![&client, account]).await?;
        let sql = "UPDATE device_code SET state = 'denied'
                   WHERE account_id = $1 AND app_id = $2 AND state = 'approved'";
        tx.exec(sql, params![account, &client]).await?;
        for id in sessions::StoredSession::revoke_granted(tx, account, &client, &resource, now).await? {
            let event = SessionRevoked { session_id: id, reason: "consent_revoked" };
            session.record(tx, &janua, &event).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}
