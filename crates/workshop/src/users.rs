//! The people who signed in through an app.
use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Listed, Page, Path, Query, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    apps::end_users::{EndUser, Hit, Search},
    enter::{Admin, InApp, Member},
    events::{About, Event, audit::AppActivity},
    ids::SessionId,
    sessions::{self, StoredSession},
};

use crate::events::{UserBlocked, UserUnblocked};

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps/{appId}/users", list_users, "list end users of the app")
        .get("/apps/{appId}/users/{userId}", get_user, "an end user of the app: profile, sessions and activity in it")
        .fails(&[NOT_FOUND])
        .delete("/apps/{appId}/users/{userId}/sessions", end_sessions, "end the end user's sessions in the app")
        .fails(&[NOT_FOUND])
        .post(
            "/apps/{appId}/users/{userId}/block",
            block,
            "end the end user's sessions in the app and refuse new ones",
        )
        .fails(&[NOT_FOUND])
        .post("/apps/{appId}/users/{userId}/unblock", unblock, "let a blocked end user sign in to the app again")
        .fails(&[NOT_FOUND])
}

#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// The beginning of an email or of a word of a name; with several words (three count), of each of them. Without it,
    /// the latest sign-in comes first; with it, users are in alphabetical order.
    #[schemars(length(max = 200))]
    search: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Users {
    users: Vec<EndUser>,
    next_cursor: Option<String>,
}

async fn list_users(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Query(Wanted { search }): Query<Wanted>,
    page: Page,
) -> Result<Json<Users>> {
    let id = caller.application.id;
    let text = search.unwrap_or_default();
    let (users, next_cursor) = match Search::read(&text) {
        None => {
            let fetch = async |below, most| EndUser::page(&janua.db, id, &below, most).await;
            let Listed { rows, next_cursor } = page.list(&janua, "users", id, fetch, EndUser::key).await?;
            (rows, next_cursor)
        }
        Some(wanted) => {
            let fetch = async |below, most| EndUser::search(&janua.db, id, &wanted, &below, most).await;
            let scope = Scope::from(id).found_by(&text);
            let Listed { rows, next_cursor } = page.list(&janua, "found", scope, fetch, Hit::key).await?;
            (rows.into_iter().map(|hit| hit.user).collect(), next_cursor)
        }
    };
    Ok(Json(Users { users, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UserPath {
    user_id: AccountId,
}

/// The data of an end user that an app may see.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UserDetails {
    #[serde(flatten)]
    user: EndUser,
    /// In this app, newest first.
    sessions: Vec<SessionInApp>,
    /// The newest 50 events of the user in this app.
    activity: Vec<AppActivity>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SessionInApp {
    id: SessionId,
    /// Such as "Firefox on Linux".
    device: String,
    ip: String,
    created_at: Timestamp,
    last_seen_at: Timestamp,
    expires_at: Timestamp,
}

impl From<StoredSession> for SessionInApp {
    fn from(session: StoredSession) -> Self {
        Self {
            id: session.id,
            device: session.device,
            ip: session.ip,
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            expires_at: session.expires_at,
        }
    }
}

async fn get_user(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<UserPath>,
) -> Result<Json<UserDetails>> {
    let (app, id) = (caller.application.id, path.user_id);
    let user = EndUser::find(&janua.db, app, id).await?.ok_or(NOT_FOUND)?;
    let sessions = StoredSession::of_app(&janua.db, id, app, janua.clock.now()).await?;
    let activity = AppActivity::of(&janua.db, app, id).await?;
    Ok(Json(UserDetails { user, sessions: sessions.into_iter().map(Into::into).collect(), activity }))
}

/// Holds the app as its admin, and the account, as the beginning of a session does.
async fn hold(tx: &mut Tx, caller: &InApp<Admin>, id: AccountId) -> Result<()> {
    let application = caller.hold(tx).await?;
    // Not of an account that is no end user: whether it exists is not the app's business.
    EndUser::find(&mut *tx, application.id, id).await?.ok_or(NOT_FOUND)?;
    Account::hold(tx, id).await?.map(drop).ok_or_else(|| NOT_FOUND.into())
}

async fn record(
    tx: &mut Tx,
    janua: &Janua,
    caller: &InApp<Admin>,
    id: AccountId,
    event: &dyn Event,
) -> db::Result<()> {
    caller.session.record_about(tx, janua, About::app(&caller.application).person(id), event).await
}

async fn end_sessions(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<UserPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        hold(tx, &caller, path.user_id).await?;
        let (by, app) = (in_app(&caller), caller.application.id);
        Ok(sessions::end_in_app(tx, &janua, &by, path.user_id, app, "ended_by_app").await?)
    })?;
    Ok(NoContent)
}

/// The admin, acting in the app.
fn in_app(caller: &InApp<Admin>) -> tenancy::events::By {
    tenancy::events::By { app: Some(caller.application.id), ..caller.session.by() }
}

async fn block(State(janua): State<Janua>, caller: InApp<Admin>, Path(path): Path<UserPath>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        hold(tx, &caller, path.user_id).await?;
        let (by, app) = (in_app(&caller), caller.application.id);
        if EndUser::set_blocked(tx, app, path.user_id, Some(janua.clock.now())).await? {
            sessions::end_in_app(tx, &janua, &by, path.user_id, app, "blocked_from_app").await?;
            record(tx, &janua, &caller, path.user_id, &UserBlocked).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}

async fn unblock(State(janua): State<Janua>, caller: InApp<Admin>, Path(path): Path<UserPath>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        hold(tx, &caller, path.user_id).await?;
        if EndUser::set_blocked(tx, caller.application.id, path.user_id, None).await? {
            record(tx, &janua, &caller, path.user_id, &UserUnblocked).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}
