//! One's own account: the profile, what happened, everything that is kept, and the way out.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use kernel::{
    App,
    clock::Timestamp,
    db::{self, Db, Reach},
    fault::{Fault, Result},
    http::{Json, Key, MaybeJson, Page, Routes},
    params, row, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    enter::{ACCOUNT_TOPIC, Session, Visitor, cookies},
    events::{self, Event},
    mail, sessions,
    sign_in::UserView,
    social::Identity,
};

use crate::{
    BODY,
    proof::{self, Fresh},
    session::SessionView,
};

pub fn routes() -> Routes {
    Routes::new("account")
        .body_limit(BODY)
        .patch("/user/profile", update_profile, "update display name, bio and similar")
        .get("/auth/audit-log", audit_log, "the user's audit events, newest first")
        .get("/auth/export", export, "everything the platform holds on the user")
        .delete("/auth/me", delete_account, "delete the authenticated user's account")
        .answers_nothing(204)
        .fails(&proof::REFUSALS)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProfilePatch {
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// Empty takes it away.
    #[schemars(length(max = 2000))]
    bio: Option<String>,
    accept_marketing: Option<bool>,
}

async fn update_profile(
    State(app): State<App>,
    session: Session,
    Json(patch): Json<ProfilePatch>,
) -> Result<Json<UserView>> {
    let id = session.account().id;
    let fields: Vec<_> = [
        ("name", patch.name.is_some()),
        ("bio", patch.bio.is_some()),
        ("acceptMarketing", patch.accept_marketing.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    let account = transact!(app.db, tx, {
        let mut account = Account::find(tx, id).await?.ok_or(kernel::fault::UNAUTHENTICATED)?;
        if let Some(name) = &patch.name {
            account.name = name.trim().to_owned();
        }
        if let Some(bio) = &patch.bio {
            account.bio = Some(bio.clone()).filter(|bio| !bio.is_empty());
        }
        account.accepts_marketing = patch.accept_marketing.unwrap_or(account.accepts_marketing);
        account.updated_at = app.clock.now();
        account.save_profile(tx).await?;
        events::record(tx, &app, &session.by(), Some(id), &Event::ProfileUpdated { fields: fields.clone() }).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
        Ok::<_, Fault>(account)
    })?;
    Ok(Json(UserView::of(&account, session.factors())))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuditLog {
    events: Vec<AuditEntry>,
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntry {
    id: String,
    /// Such as `SIGNED_IN`.
    #[serde(rename = "type")]
    kind: String,
    /// Who did it; null for what happened at the door.
    actor: Option<String>,
    target: Option<String>,
    org_id: Option<String>,
    app_id: Option<String>,
    ip: Option<String>,
    user_agent: Option<String>,
    at: Timestamp,
    details: serde_json::Map<String, serde_json::Value>,
}

struct AuditRow {
    id: String,
    kind: String,
    actor: Option<String>,
    target: Option<String>,
    org_id: Option<String>,
    app_id: Option<String>,
    ip: Option<String>,
    user_agent: Option<String>,
    at: Timestamp,
    details: serde_json::Value,
}
row!(AuditRow { id, kind, actor, target, org_id, app_id, ip, user_agent, at, details });

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.id,
            kind: row.kind,
            actor: row.actor,
            target: row.target,
            org_id: row.org_id,
            app_id: row.app_id,
            ip: row.ip,
            user_agent: row.user_agent,
            at: row.at,
            details: row.details.as_object().cloned().unwrap_or_default(),
        }
    }
}

async fn audit_page(db: &Db, account: AccountId, below: &Key, most: u32) -> db::Result<Vec<AuditRow>> {
    db.all(
        "SELECT id, type AS kind, actor, target, org_id, app_id, ip, user_agent, at, details FROM audit_event
         WHERE account_id = $1 AND (at, id) < ($2, $3) ORDER BY at DESC, id DESC LIMIT $4",
        params![account, below.at, &below.id, most],
    )
    .await
}

async fn audit_log(State(app): State<App>, session: Session, page: Page) -> Result<Json<AuditLog>> {
    // A cursor is bound to the person: somebody else's is refused.
    let list = format!("audit-log:{}", session.account().id);
    let below = page.below(&app, &list)?;
    let mut rows = audit_page(&app.db, session.account().id, &below, page.fetch()).await?;
    let next_cursor = page.cut(&app, &list, &mut rows, |row| Key { at: row.at, id: row.id.clone() });
    Ok(Json(AuditLog { events: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Export {
    exported_at: Timestamp,
    user: UserView,
    accepts_marketing: bool,
    has_password: bool,
    recovery_codes_left: i64,
    sessions: Vec<SessionView>,
    linked_identities: Vec<LinkedIdentity>,
    audit_events: Vec<AuditEntry>,
}

/// What a provider said about the person. Its tokens are not part of it: nobody but this server uses them.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkedIdentity {
    provider: String,
    /// The person's id there.
    subject: String,
    email: Option<String>,
    /// Whether the provider vouches for the address.
    email_verified: bool,
    username: Option<String>,
    name: Option<String>,
    avatar_url: Option<String>,
    linked_at: Timestamp,
    last_used_at: Timestamp,
}

impl From<Identity> for LinkedIdentity {
    fn from(identity: Identity) -> Self {
        Self {
            provider: identity.provider,
            subject: identity.subject,
            email: identity.email,
            email_verified: identity.email_verified,
            username: identity.username,
            name: identity.name,
            avatar_url: identity.avatar_url,
            linked_at: identity.linked_at,
            last_used_at: identity.last_used_at,
        }
    }
}

/// How many audit events an export holds at the most; the audit log has them all, page by page.
const EXPORTED_EVENTS: u32 = 10_000;

async fn export(State(app): State<App>, session: Session) -> Result<Json<Export>> {
    let (now, account) = (app.clock.now(), session.account());
    transact!(app.db, tx, {
        Ok::<_, Fault>(events::record(tx, &app, &session.by(), Some(account.id), &Event::DataExported).await?)
    })?;
    let newest = Key { at: Timestamp(i64::MAX), id: "~".into() };
    let audit = audit_page(&app.db, account.id, &newest, EXPORTED_EVENTS).await?;
    let found = sessions::Session::of(&app.db, account.id, now).await?;
    let linked = Identity::of(&app.db, account.id).await?;
    Ok(Json(Export {
        exported_at: now,
        user: UserView::of(account, session.factors()),
        recovery_codes_left: session.factors().recovery_left,
        accepts_marketing: account.accepts_marketing,
        has_password: account.password_hash.is_some(),
        sessions: found.into_iter().map(|found| SessionView::of(found, session.id())).collect(),
        linked_identities: linked.into_iter().map(Into::into).collect(),
        audit_events: audit.into_iter().map(Into::into).collect(),
    }))
}

async fn delete_account(
    State(app): State<App>,
    visitor: Visitor,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<Response> {
    let account = session.account();
    fresh.unwrap_or_default().check(&app, &visitor, &session).await?;
    transact!(app.db, tx, {
        for id in sessions::Session::revoke_all(tx, account.id, None, app.clock.now()).await? {
            let event = Event::SessionRevoked { session: id, reason: "account_deleted" };
            events::record(tx, &app, &session.by(), Some(account.id), &event).await?;
        }
        events::record(tx, &app, &session.by(), Some(account.id), &Event::AccountDeleted).await?;
        events::forget_person(tx, account.id).await?;
        if let Some(email) = &account.email {
            mail::send(tx, &app, email, &mail::Kind::AccountDeleted { name: account.name.clone() }).await?;
        }
        Account::delete(tx, account.id).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
        Ok::<_, Fault>(())
    })?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    cookies::clear_session(&app, response.headers_mut());
    Ok(response)
}
