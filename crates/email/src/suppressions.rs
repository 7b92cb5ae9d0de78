//! Recipients that an app does not write to: they bounced, complained, unsubscribed, or were put there by hand.
use axum::{extract::State, response::NoContent};
use db::{Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    email::Email,
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    jobs::Chore,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{Admin, InApp, Member},
    events::{self, About, By},
};

use crate::{
    events::{Suppressed, SuppressionRemoved},
    words::Reason,
};

pub fn routes() -> Routes {
    Routes::new("email")
        .get("/apps/{appId}/email/suppressions", list_suppressions, "suppressed recipients, newest first")
        .post("/apps/{appId}/email/suppressions", add_suppression, "suppress a recipient")
        .delete("/apps/{appId}/email/suppressions/{email}", remove_suppression, "remove a suppression")
}

pub const CHORE: Chore = Chore::sweep(
    "email_suppression",
    "DELETE FROM email_suppression WHERE (app_id, email_key) IN
         (SELECT app_id, email_key FROM email_suppression WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
    std::time::Duration::ZERO,
);

pub struct Suppression {
    pub email_key: String,
    pub email: String,
    pub reason: Reason,
    pub detail: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}
row!(Suppression { email_key, email, reason, detail, created_at, expires_at });

impl Suppression {
    /// The entry of a recipient that counts now.
    pub async fn find(
        mut from: impl Read,
        app: ApplicationId,
        email_key: &str,
        now: Timestamp,
    ) -> db::Result<Option<Self>> {
        let sql = "SELECT email_key, email, reason, detail, created_at, expires_at FROM email_suppression
                   WHERE app_id = $1 AND email_key = $2 AND (expires_at IS NULL OR expires_at > $3)";
        from.opt(sql, params![app, email_key, now]).await
    }

    async fn page(
        mut from: impl Read,
        app: ApplicationId,
        below: &Key,
        most: u32,
        now: Timestamp,
    ) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT email_key, email, reason, detail, created_at, expires_at FROM email_suppression
             WHERE app_id = $1 AND (created_at, email_key) < ($2, $3) AND (expires_at IS NULL OR expires_at > $5)
             ORDER BY created_at DESC, email_key DESC LIMIT $4",
            params![app, below.at, &below.id, most, now],
        )
        .await
    }
}

/// Puts a recipient on the list. A complaint stays one: nothing weaker takes its place.
pub async fn add(tx: &mut Tx, janua: &Janua, by: &By, application: &Application, entry: &Suppression) -> Result<()> {
    let now = janua.clock.now();
    let before = Suppression::find(&mut *tx, application.id, &entry.email_key, now).await?;
    let strength =
        |reason: Reason, expires_at: Option<Timestamp>| (expires_at.is_none(), reason == Reason::Complaint);
    if before.is_some_and(|b| strength(b.reason, b.expires_at) >= strength(entry.reason, entry.expires_at)) {
        return Ok(());
    }
    tx.exec(
        "INSERT INTO email_suppression (app_id, email_key, email, reason, detail, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (app_id, email_key) DO UPDATE SET reason = $4, detail = $5, created_at = $6, expires_at = $7",
        params![
            application.id,
            &entry.email_key,
            &entry.email,
            entry.reason,
            entry.detail.clone(),
            entry.created_at,
            entry.expires_at
        ],
    )
    .await?;
    let event = Suppressed { email: entry.email.clone(), reason: entry.reason.name() };
    Ok(events::record(tx, janua, by, About::app(application), &event).await?)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SuppressionView {
    email: String,
    reason: Reason,
    /// The answer of the recipient's server or of the relay.
    detail: Option<String>,
    created_at: Timestamp,
    /// When it ends by itself; null for never.
    expires_at: Option<Timestamp>,
}

impl SuppressionView {
    fn of(entry: Suppression) -> Self {
        let Suppression { email, reason, detail, created_at, expires_at, .. } = entry;
        Self { email, reason, detail, created_at, expires_at }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Suppressions {
    suppressions: Vec<SuppressionView>,
    next_cursor: Option<String>,
}

async fn list_suppressions(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    page: Page,
) -> Result<Json<Suppressions>> {
    let (app, now) = (caller.application.id, janua.clock.now());
    let fetch = async |below, most| Suppression::page(&janua.db, app, &below, most, now).await;
    let key = |one: &Suppression| Key { at: one.created_at, id: one.email_key.clone() };
    let Listed { rows, next_cursor } = page.list(&janua, "email-suppressions", app, fetch, key).await?;
    Ok(Json(Suppressions { suppressions: rows.into_iter().map(SuppressionView::of).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct NewSuppression {
    #[schemars(length(min = 3, max = 254))]
    email: String,
}

async fn add_suppression(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewSuppression>,
) -> Result<Json<SuppressionView>> {
    let email = Email::parse(&new.email).ok_or_else(|| INVALID.at("email", "wrong_form", "must be an email"))?;
    let entry = Suppression {
        email_key: email.key().to_owned(),
        email: email.as_str().to_owned(),
        reason: Reason::Manual,
        detail: None,
        created_at: janua.clock.now(),
        expires_at: None,
    };
    let stored = transact!(janua, async |tx| {
        let application = caller.hold(tx).await?;
        add(tx, &janua, &caller.session.by(), &application, &entry).await?;
        Ok(Suppression::find(&mut *tx, application.id, &entry.email_key, entry.created_at).await?)
    })?;
    Ok(Json(SuppressionView::of(stored.ok_or(NOT_FOUND)?)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SuppressionPath {
    email: String,
}

async fn remove_suppression(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<SuppressionPath>,
) -> Result<NoContent> {
    let email = Email::parse(&path.email).ok_or(NOT_FOUND)?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let sql = "DELETE FROM email_suppression WHERE app_id = $1 AND email_key = $2";
        if tx.exec(sql, params![caller.application.id, email.key()]).await? == 0 {
            return Err(NOT_FOUND.into());
        }
        let event = SuppressionRemoved { email: email.as_str().to_owned() };
        Ok(caller.record(tx, &janua, &event).await?)
    })?;
    Ok(NoContent)
}
