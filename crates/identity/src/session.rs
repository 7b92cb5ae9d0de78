//! Staying signed in, and leaving.
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result, UNAUTHENTICATED},
    http::{Json, MaybeJson, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, factors::Whole},
    enter::{AnySession, Delivery, Granted, NotAdmitted, RefreshToken, Session, ToAdmit, cookies, may_use_cookie},
    events::{self, By, happenings::SessionRevoked},
    orgs::Membership,
    sessions::{
        self, SessionId, Turned, read_refresh_token,
        sign_in::{self, CompletedSignIn, SignedIn, Typed, UserView},
    },
};

use crate::{
    BODY, device,
    events::RefreshTokenReused,
    proof::{self, Fresh},
    trusted,
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .get("/auth/me", me, "the authenticated user")
        .post("/auth/refresh", refresh, "rotate the refresh token, issue a new access token")
        .answers::<SignedIn>(200, "application/json")
        .post("/auth/reauthenticate", reauthenticate, "confirm that it is you, for what needs a recent proof")
        .answers_nothing(204)
        .fails(&proof::REFUSALS)
        .post("/auth/logout", logout, "invalidate the current session")
        .answers_nothing(204)
        .get("/auth/sessions", list_sessions, "the user's active sessions")
        .delete("/auth/sessions/{id}", revoke_session, "revoke one session")
        .answers_nothing(204)
        .delete("/auth/sessions", revoke_sessions, "revoke all sessions of the user")
        .answers_nothing(204)
}

/// A client sees what the person let it know.
async fn me(caller: Granted) -> Json<UserView> {
    let session = &caller.0;
    Json(UserView::seen_in(&session.living.session, session.account(), session.factors()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Refresh {
    /// For programs that keep it themselves; browsers send the cookie.
    refresh_token: Option<Typed>,
}

async fn refresh(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    RefreshToken(cookie): RefreshToken,
    headers: HeaderMap,
    MaybeJson(body): MaybeJson<Refresh>,
) -> Result<Response> {
    let in_body = body.and_then(|body| body.refresh_token).map(|typed| typed.0);
    let delivery = if in_body.is_some() { Delivery::Body } else { Delivery::Cookie };
    let token = in_body.or(cookie).ok_or(UNAUTHENTICATED)?;
    let (id, generation) = read_refresh_token(&janua, &token).ok_or(UNAUTHENTICATED)?;
    // Looked at before anything turns: a page elsewhere must not even end the session.
    if delivery == Delivery::Cookie && headers.contains_key(header::ORIGIN) {
        let session = sessions::StoredSession::find(&janua.db, id).await?.ok_or(UNAUTHENTICATED)?;
        may_use_cookie(&janua, &headers, &session).await?;
    }
    let through = visitor.app.as_ref().map(|keyed| keyed.app_id.to_string());
    let person = turn(&janua, &visitor.by, (id, generation), through.as_deref(), delivery).await?;
    person.ok_or(UNAUTHENTICATED)?.answer(&janua)
}

/// What is proven here counts in the session for ten minutes, for all routes that ask for it. Without a proof in the request it
/// answers 204 where the session has a fresh one, and otherwise names what would do.
async fn reauthenticate(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<StatusCode> {
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives the next refresh token for one that was shown, to whoever holds the session; nothing when it is worth nothing.
pub async fn turn(
    janua: &Janua,
    by: &By,
    shown: (SessionId, i64),
    holder: Option<&str>,
    delivery: Delivery,
) -> Result<Option<CompletedSignIn>> {
    let (id, generation) = shown;
    // Not carried to the writer, which was measured and cost more: probably fewer shared a commit.
    transact!(janua, async |tx| {
        match sessions::turn(tx, janua, id, generation, holder).await? {
            Turned::On(session) => person(tx, *session, delivery).await,
            Turned::Reused(session) => {
                end_copied(tx, janua, by, &session).await?;
                Ok(None)
            }
            // The token is one of ours, so its holder may hear why it no longer works.
            Turned::Ended => match sign_in::refusal_of_ended(tx, id).await? {
                Some(code) => Err(code.into()),
                None => Ok(None),
            },
        }
    })
}

/// Whose session this is, and what they are now.
pub async fn person(
    tx: &mut Tx,
    session: sessions::StoredSession,
    delivery: Delivery,
) -> Result<Option<CompletedSignIn>> {
    let whole = Whole::find(&mut *tx, session.account_id).await?;
    let org = match session.org_id {
        Some(org) => Membership::of(&mut *tx, org, session.account_id).await?,
        None => None,
    };
    let person =
        |Whole { account, factors }| CompletedSignIn { account, factors, session, org, delivery, trusted: None };
    Ok(whole.map(person))
}

/// Gives a session another refresh token than the one its client has. By two steps: what the client has is then no retry of
/// a moment ago, and gets no successor.
pub async fn turn_over(tx: &mut Tx, janua: &Janua, id: SessionId) -> Result<Option<CompletedSignIn>> {
    let mut person = None;
    for _ in 0..2 {
        let Some(session) = sessions::StoredSession::find(&mut *tx, id).await? else { return Ok(None) };
        let holder = session.holder();
        if let Turned::On(session) = sessions::turn(tx, janua, id, session.generation, holder.as_deref()).await? {
            person = self::person(tx, *session, Delivery::Cookie).await?;
        }
    }
    Ok(person)
}

/// Somebody has a copy of the refresh token; nobody knows who of the two is right.
async fn end_copied(tx: &mut Tx, janua: &Janua, by: &By, session: &sessions::StoredSession) -> Result<()> {
    let (now, account, id) = (janua.clock.now(), session.account_id, session.id);
    if sessions::StoredSession::revoke(tx, account, id, now).await? {
        let reused = RefreshTokenReused { session_id: id };
        events::record(tx, janua, by, Some(account), &reused).await?;
        let ended = SessionRevoked { session_id: id, reason: "refresh_token_reused" };
        events::record(tx, janua, by, Some(account), &ended).await?;
    }
    Ok(())
}

async fn logout(State(janua): State<Janua>, Granted(session): Granted) -> Result<Response> {
    end(&janua, &session.by(), session.account(), session.id(), "signed_out").await?;
    Ok(gone(&janua))
}

async fn end(janua: &Janua, by: &By, account: &Account, id: SessionId, reason: &'static str) -> Result<bool> {
    transact!(janua, async |tx| Ok(sessions::end(tx, janua, by, account.id, id, reason).await?))
}

/// Nothing to say, and the cookies go.
fn gone(janua: &Janua) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    cookies::clear_session(janua, response.headers_mut());
    response
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Sessions {
    sessions: Vec<SessionView>,
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    id: SessionId,
    /// Name of the device, such as "Firefox on Linux".
    device: String,
    ip: String,
    created_at: Timestamp,
    last_seen_at: Timestamp,
    expires_at: Timestamp,
    /// How the user signed in; empty in an app's session.
    methods: Vec<String>,
    /// The one this request came in.
    current: bool,
}

impl SessionView {
    pub fn of(session: sessions::StoredSession, current: SessionId) -> Self {
        Self {
            current: session.id == current,
            id: session.id,
            device: session.device,
            ip: session.ip,
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            expires_at: session.expires_at,
            methods: session.methods,
        }
    }
}

/// In an app's session, those of the app.
async fn list_sessions(State(janua): State<Janua>, AnySession(session): AnySession) -> Result<Json<Sessions>> {
    let (account, now) = (session.account().id, janua.clock.now());
    let found = match session.of_app() {
        Some(own) => sessions::StoredSession::of_app(&janua.db, account, own, now).await?,
        None => sessions::StoredSession::of(&janua.db, account, now).await?,
    };
    let mut sessions: Vec<_> = found.into_iter().map(|found| SessionView::of(found, session.id())).collect();
    // How somebody signs in to the service is not the app's concern.
    if session.of_app().is_some() {
        for session in &mut sessions {
            session.methods.clear();
        }
    }
    Ok(Json(Sessions { sessions, next_cursor: None }))
}

#[derive(Deserialize, JsonSchema)]
struct OneSession {
    id: SessionId,
}

async fn revoke_session(
    State(janua): State<Janua>,
    AnySession(session): AnySession,
    Path(path): Path<OneSession>,
) -> Result<Response> {
    if let Some(own) = session.of_app() {
        let other = sessions::StoredSession::find(&janua.db, path.id).await?;
        other.filter(|other| other.app_id == Some(own)).ok_or(NOT_FOUND)?;
    }
    if !end(&janua, &session.by(), session.account(), path.id, "revoked").await? {
        return Err(NOT_FOUND.into());
    }
    Ok(if path.id == session.id() { gone(&janua) } else { StatusCode::NO_CONTENT.into_response() })
}

/// What would become a session is void, too, and no device is trusted any more. An app ends what it has, and nothing else.
async fn revoke_sessions(State(janua): State<Janua>, AnySession(session): AnySession) -> Result<Response> {
    let (account, by) = (session.account().id, session.by());
    transact!(janua, async |tx| {
        if let Some(own) = session.of_app() {
            return Ok(sessions::end_in_app(tx, &janua, &by, account, own, "revoked").await?);
        }
        // Before anything else: what is let in meanwhile is let in before, or after all sessions are over.
        Account::hold(tx, account).await?;
        device::withdraw(tx, account).await?;
        trusted::forget_all(tx, &janua, &by, account).await?;
        Ok(sessions::end_all(tx, &janua, &by, account, None, "revoked").await?)
    })?;
    let mut response = gone(&janua);
    if session.of_app().is_none() {
        cookies::clear_trusted(&janua, response.headers_mut());
    }
    Ok(response)
}
