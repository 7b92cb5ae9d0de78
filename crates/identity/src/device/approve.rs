//! The person's side: they type the code where they are signed in, see what asks, and say yes or no.
use axum::extract::State;
use db::{params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result, UNAUTHENTICATED},
    http::{FormOrJson, Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::Account,
    apps::{ApplicationId, scopes::Scopes},
    enter::{AnySession, Session, ToAdmit, Visitor},
    events::Event,
    sessions::{self, sign_in::Typed},
};

use super::user_code_hash;
use crate::{
    BODY,
    events::{DeviceApproved, DeviceDenied},
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

pub const NO_SUCH_CODE: Code = Code::new(404, "no_such_code", "Unknown code. Check the code on your device.");

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

/// The device that was approved or denied.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Decided {
    approved: bool,
    device: String,
    ip: String,
    created_at: Timestamp,
    /// The app and its scopes; null for a program without an app.
    app: Option<String>,
    scopes: Vec<String>,
}

async fn decide_device(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    AnySession(session): AnySession,
    FormOrJson(body): FormOrJson<Decide>,
) -> Result<Json<Decided>> {
    let approved = body.approve.unwrap_or(true);
    let asking = decide(&janua, &visitor, &session, &body.user_code, approved, body.code).await?;
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

impl Asking {
    /// Whether the session may answer it. For others the code does not exist.
    fn is_for(&self, session: &Session) -> bool {
        session.may_let_in(self.app_id, None)
    }
}

/// Shows what asks, without an answer. A wrong code is a try like any other.
pub async fn look(janua: &Janua, visitor: &Visitor, session: &Session, user_code: &str) -> Result<Asking> {
    let attempt = visitor.attempt_device(janua, session.account().id).await?;
    let hash = user_code_hash(janua, user_code);
    transact!(janua, async |tx| {
        let found: Option<Asking> = tx
            .opt(
                "SELECT device, ip, device_code.created_at, scopes, app.name AS app_name, app_id
                 FROM device_code LEFT JOIN app ON app.id = device_code.app_id
                 WHERE user_code_hash = $1 AND state = 'pending' AND expires_at > $2",
                params![&hash, janua.clock.now()],
            )
            .await?;
        let found = found.filter(|found| found.is_for(session)).ok_or(NO_SUCH_CODE)?;
        attempt.forgive_one(tx).await?;
        Ok(found)
    })
}

pub async fn decide(
    janua: &Janua,
    visitor: &Visitor,
    session: &Session,
    user_code: &str,
    approved: bool,
    code: Option<Typed>,
) -> Result<Asking> {
    let proves_now = approved && !session.passed_gate();
    if proves_now {
        Fresh::by_code(code).check_strictly(janua, visitor, session).await?;
    }
    let (account, now) = (session.account().id, janua.clock.now());
    // No more than was proven: a trusted device that lets another one in proved no second factor.
    let mark = if proves_now { Some("mfa") } else { session.living.session.gate_mark() };
    let methods: Vec<String> = mark.into_iter().map(str::to_owned).collect();
    let since = if proves_now { now } else { session.living.session.authenticated_at };
    let attempt = visitor.attempt_device(janua, account).await?;
    let (state, hash) = (if approved { "approved" } else { "denied" }, user_code_hash(janua, user_code));
    transact!(janua, async |tx| {
        // Whoever ends all sessions holds the account, too: a session that is over lets nobody in.
        Account::hold(tx, account).await?;
        let own = sessions::StoredSession::find(&mut *tx, session.id()).await?;
        own.filter(|own| own.is_alive(now)).ok_or(UNAUTHENTICATED)?;
        let asking: Vec<Asking> = tx
            .put(
                "UPDATE device_code SET state = $2, account_id = $3, methods = $5, authenticated_at = $6
                 WHERE user_code_hash = $1 AND state = 'pending' AND expires_at > $4
                 RETURNING device, ip, created_at, scopes, app_id,
                           (SELECT name FROM app WHERE app.id = device_code.app_id) AS app_name",
                params![&hash, state, account, now, &methods, since],
            )
            .await?;
        let asking = asking.into_iter().find(|asking| asking.is_for(session)).ok_or(NO_SUCH_CODE)?;
        attempt.forgive_one(tx).await?;
        let approval = DeviceApproved { device: asking.device.clone(), device_ip: asking.ip.clone() };
        let event: &dyn Event = if approved { &approval } else { &DeviceDenied };
        session.record(tx, janua, event).await?;
        if let (true, Some(id), Some(scopes)) = (approved, asking.app_id, &asking.scopes) {
            let name = asking.app_name.as_deref().unwrap_or_default();
            let agreed =
                Agreed { client: &id.to_string(), app_id: Some(id), name, resource: None, scopes, place: "" };
            agreed.remember(tx, janua, &session.by(), account).await?;
        }
        Ok(asking)
    })
}
