//! The person's side: they type the code where they are signed in, see what asks, and say yes or no.
use axum::extract::State;
use kernel::{
    App,
    clock::Timestamp,
    fault::{Code, Fault, Result, UNAUTHENTICATED},
    http::{FormOrJson, Json, Routes},
    params, row, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::Account,
    apps::ApplicationId,
    enter::{AnySession, Session, ToAdmit, Visitor},
    events::{self, Event},
    scopes::Scopes,
    sessions,
    sign_in::Typed,
};

use super::user_code_hash;
use crate::{
    BODY,
    oauth::Agreed,
    proof::{self, Fresh},
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/device/verify", decide_device, "approve a pending device code")
        .fails(&[NO_SUCH_CODE])
        .fails(&proof::REFUSALS)
}

pub const NO_SUCH_CODE: Code = Code::new(404, "no_such_code", "No device waits with this code. Look at it again.");

#[derive(Deserialize, JsonSchema)]
struct Decide {
    /// As the device shows it; case and dashes do not matter.
    #[schemars(length(max = 64))]
    user_code: String,
    /// `false` sends the device away.
    approve: Option<bool>,
    /// A code of a second factor, where this session began before there was one.
    code: Option<Typed>,
}

/// What was decided upon, so that the person sees whether it is what they meant.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Decided {
    approved: bool,
    device: String,
    ip: String,
    created_at: Timestamp,
    /// The app that asks, and what it gets to know and do; nothing for a program of the person's own.
    app: Option<String>,
    scopes: Vec<String>,
}

async fn decide_device(
    State(app): State<App>,
    ToAdmit(visitor): ToAdmit,
    AnySession(session): AnySession,
    FormOrJson(body): FormOrJson<Decide>,
) -> Result<Json<Decided>> {
    let approved = body.approve.unwrap_or(true);
    let asking = decide(&app, &visitor, &session, &body.user_code, approved, body.code).await?;
    let scopes = asking.scopes.iter().flat_map(Scopes::names).map(str::to_owned).collect();
    let Asking { device, ip, created_at, app_name, .. } = asking;
    Ok(Json(Decided { approved, device, ip, created_at, app: app_name, scopes }))
}

/// What waits for an answer.
pub struct Asking {
    pub device: String,
    pub ip: String,
    pub created_at: Timestamp,
    pub scopes: Option<Scopes>,
    pub app_name: Option<String>,
    pub app_id: Option<ApplicationId>,
}
row!(Asking { device, ip, created_at, scopes, app_name, app_id });

/// Who came in through an app lets in what belongs to it, and nothing else.
fn through(session: &Session) -> String {
    session.of_app().map(|id| id.to_string()).unwrap_or_default()
}

/// Shows what asks, without an answer. A wrong code is a try like any other.
pub async fn look(app: &App, visitor: &Visitor, session: &Session, user_code: &str) -> Result<Asking> {
    let attempt = visitor.attempt_device(app, session.account().id).await?;
    let hash = user_code_hash(app, user_code);
    transact!(app.db, tx, {
        let found: Option<Asking> = tx
            .opt(
                "SELECT device, ip, device_code.created_at, scopes, app.name AS app_name, app_id
                 FROM device_code LEFT JOIN app ON app.id = device_code.app_id
                 WHERE user_code_hash = $1 AND state = 'pending' AND expires_at > $2 AND ($3 = '' OR app_id = $3)",
                params![&hash, app.clock.now(), through(session)],
            )
            .await?;
        let found = found.ok_or(NO_SUCH_CODE)?;
        attempt.forgive_one(tx).await?;
        Ok::<_, Fault>(found)
    })
}

pub async fn decide(
    app: &App,
    visitor: &Visitor,
    session: &Session,
    user_code: &str,
    approved: bool,
    code: Option<Typed>,
) -> Result<Asking> {
    let proves_now = approved && !session.passed_gate();
    if proves_now {
        Fresh::by_code(code).check_strictly(app, visitor, session).await?;
    }
    let (account, now) = (session.account().id, app.clock.now());
    let methods: Vec<String> = if proves_now || session.is_strong() { vec!["mfa".into()] } else { vec![] };
    let since = if proves_now { now } else { session.living.session.authenticated_at };
    let attempt = visitor.attempt_device(app, account).await?;
    let (state, hash, through) =
        (if approved { "approved" } else { "denied" }, user_code_hash(app, user_code), through(session));
    transact!(app.db, tx, {
        // Whoever ends all sessions holds the account, too: a session that is over lets nobody in.
        Account::hold(tx, account).await?;
        let own = sessions::Session::find_in(tx, session.id()).await?;
        own.filter(|own| own.is_alive(now)).ok_or(UNAUTHENTICATED)?;
        let asking: Vec<Asking> = tx
            .put(
                "UPDATE device_code SET state = $2, account_id = $3, methods = $5, authenticated_at = $6
                 WHERE user_code_hash = $1 AND state = 'pending' AND expires_at > $4
                   AND ($7 = '' OR app_id = $7)
                 RETURNING device, ip, created_at, scopes, app_id,
                           (SELECT name FROM app WHERE app.id = device_code.app_id) AS app_name",
                params![&hash, state, account, now, &methods, since, &through],
            )
            .await?;
        let asking = asking.into_iter().next().ok_or(NO_SUCH_CODE)?;
        attempt.forgive_one(tx).await?;
        let event = if approved {
            Event::DeviceApproved { device: asking.device.clone(), ip: asking.ip.clone() }
        } else {
            Event::DeviceDenied
        };
        events::record(tx, app, &session.by(), Some(account), &event).await?;
        if let (true, Some(id), Some(scopes)) = (approved, asking.app_id, &asking.scopes) {
            let name = asking.app_name.as_deref().unwrap_or_default();
            let agreed =
                Agreed { client: &id.to_string(), app_id: Some(id), name, resource: None, scopes, place: "" };
            agreed.remember(tx, app, &session.by(), account).await?;
        }
        Ok::<_, Fault>(asking)
    })
}
