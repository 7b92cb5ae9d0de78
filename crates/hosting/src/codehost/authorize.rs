//! Connecting: a user is sent to the code host, comes back, and proves there which installation and which repositories are
//! theirs. A number in the address proves nothing; the user's own token does, and is then thrown away.
use std::time::Duration;

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Code, FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, MaybeJson, OperationInput, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    enter::{Admin, InOrg, Session},
    ids::SessionId,
    once::{self, Purpose},
    orgs::OrgId,
};

use super::{
    api::{InstallationAnswer, InstallationView},
    events::CodehostConnected,
    host::{CodeHost, Described, Host, HostError, NOT_CONFIGURED, UNAVAILABLE},
    model::{Installation, InstallationId, Repository, Status},
};

const STATE: Purpose = Purpose::new("codehost_state", Duration::from_mins(10));
pub const PURPOSES: &[Purpose] = &[STATE, super::actions::RUN];

const INVALID_STATE: Code =
    Code::new(400, "invalid_state", "This sign-in was not started in this browser. Start again.");
const INVALID_CODE: Code =
    Code::new(400, "codehost_code_spent", "The code host does not know this code. Connect again.");
const NOT_YOURS: Code = Code::new(
    403,
    "installation_not_yours",
    "Your account at the code host has no access to this installation, or may not push to any of its repositories.",
);
const SEVERAL: Code = Code::new(
    400,
    "several_installations",
    "Your account at the code host has several installations. Name one with installation_id.",
);

pub fn routes() -> Routes {
    Routes::new("codehost")
        .post("/codehost/authorize", authorize, "start an app-installation OAuth flow")
        .fails(&[NOT_CONFIGURED, FORBIDDEN, NOT_FOUND])
        .get("/codehost/callback", come_back, "handle the OAuth callback and store the installation")
        .fails(&[NOT_CONFIGURED, UNAVAILABLE, INVALID_STATE, INVALID_CODE, NOT_YOURS, SEVERAL, FORBIDDEN, NOT_FOUND])
        .answers::<InstallationAnswer>(200, "application/json")
        .answers_nothing(303)
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuthorizeRequest {
    /// Default: the organization of the session.
    org_id: Option<OrgId>,
    /// Where the browser goes afterwards: a path of this service. Default: the console's page.
    #[schemars(length(max = 500))]
    redirect_to: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuthorizeAnswer {
    /// The URL to send the browser to.
    url: String,
    expires_at: Timestamp,
}

/// What is put aside with a state.
#[derive(Serialize, Deserialize)]
struct Attempt {
    session: SessionId,
    org: OrgId,
    redirect_to: String,
}

/// A path of this service, and of no other.
fn is_own_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains(['\\', '#'])
        && !path.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn callback_url(janua: &Janua) -> String {
    format!("{}/codehost/callback", janua.config.base_url())
}

async fn authorize(
    State(janua): State<Janua>,
    session: Session,
    MaybeJson(asked): MaybeJson<AuthorizeRequest>,
) -> Result<Json<AuthorizeAnswer>> {
    let asked = asked.unwrap_or_default();
    let org = asked.org_id.or(session.org().map(|membership| membership.org.id));
    let org = org.ok_or_else(|| INVALID.at("orgId", "required", "the session acts for no organization; name one"))?;
    let caller = InOrg::<Admin>::reach(&janua, session, org).await?;
    let host = CodeHost::host(&janua)?;
    let redirect_to = asked.redirect_to.unwrap_or_else(|| format!("/console/orgs/{org}/code"));
    if !is_own_path(&redirect_to) {
        return Err(INVALID.at("redirectTo", "wrong_form", "must be a path of this service, such as /console"));
    }
    let now = janua.clock.now();
    let attempt = Attempt { session: caller.session.id(), org, redirect_to };
    let aside = serde_json::to_vec(&attempt).unwrap_or_default();
    let account = caller.session.account().id;
    let state = transact!(janua, async |tx| Ok(once::issue(tx, &janua, STATE, Some(account), &aside).await?))?;
    let mut url = host.configured.url.clone();
    url.set_path(&format!("/apps/{}/installations/new", host.configured.slug));
    url.query_pairs_mut().append_pair("state", state.expose()).append_pair("redirect_uri", &callback_url(&janua));
    Ok(Json(AuthorizeAnswer { url: url.into(), expires_at: now.plus(STATE.life) }))
}

#[derive(Deserialize, JsonSchema)]
struct Back {
    #[schemars(with = "Option<String>", length(max = 400))]
    code: Option<String>,
    #[schemars(length(max = 400))]
    state: Option<String>,
    installation_id: Option<i64>,
    /// `install`, `update` or `request`.
    #[schemars(length(max = 40))]
    setup_action: Option<String>,
}

/// Whether the answer is for a program.
struct WantsJson(bool);

impl FromRequestParts<Janua> for WantsJson {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        Ok(Self(accept.contains("application/json")))
    }
}

impl OperationInput for WantsJson {}

async fn come_back(
    State(janua): State<Janua>,
    session: Session,
    WantsJson(wants_json): WantsJson,
    Query(back): Query<Back>,
) -> Result<Response> {
    let host = CodeHost::host(&janua)?;
    let state = Secret::from(back.state.clone().unwrap_or_default());
    let now = janua.clock.now();
    let kept = once::look(&janua.db, STATE, &state, now).await?.ok_or(INVALID_STATE)?;
    let attempt: Attempt =
        kept.aside(&janua).and_then(|aside| serde_json::from_slice(&aside).ok()).ok_or(INVALID_STATE)?;
    // Looked at before it is used up, so that another session cannot use up what is not its own.
    if attempt.session != session.id() {
        return Err(INVALID_STATE.into());
    }
    let caller = InOrg::<Admin>::reach(&janua, session, attempt.org).await?;
    let used = transact!(janua, async |tx| Ok(once::spend(tx, STATE, &state, now).await?))?;
    if used.is_none() {
        return Err(INVALID_STATE.into());
    }
    let code = back.code.as_deref().unwrap_or_default();
    let user = host.exchange(code, &callback_url(&janua)).await.map_err(unavailable)?.ok_or(INVALID_CODE)?;
    let is_request = back.setup_action.as_deref() == Some("request");
    let id = if is_request {
        ask_for_approval(&janua, &caller).await?
    } else {
        let proven = prove(host, &user, back.installation_id).await?;
        connect(&janua, &caller, proven).await?
    };
    if wants_json {
        let installation = InstallationView::find(&janua, id).await?;
        return Ok(Json(InstallationAnswer { installation }).into_response());
    }
    let to = HeaderValue::try_from(attempt.redirect_to).unwrap_or(HeaderValue::from_static("/console"));
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response())
}

pub fn unavailable(error: HostError) -> Fault {
    let wait = match &error {
        HostError::Away { wait, .. } => *wait,
        HostError::Refused { .. } => None,
    };
    let fault = UNAVAILABLE.caused_by(error);
    match wait {
        Some(wait) => fault.retry_after(wait),
        None => fault,
    }
}

/// An installation that a user has access to, with the repositories they may push to.
struct Proven {
    described: Described,
    repositories: Vec<Repository>,
    may_uninstall: bool,
}

/// What the host says of the user's own token. The number in the address chooses among what it says, and adds nothing.
async fn prove(host: &Host, user: &Secret, wanted: Option<i64>) -> Result<Proven> {
    let theirs = host.installations(user).await.map_err(unavailable)?;
    let described = match (wanted, &theirs[..]) {
        (Some(id), all) => all.iter().find(|one| one.id == id).ok_or(NOT_YOURS)?,
        (None, [only]) => only,
        (None, []) => return Err(NOT_YOURS.into()),
        (None, several) => {
            let named: Vec<_> =
                several.iter().map(|one| json!({ "id": one.id, "account": one.account_login })).collect();
            return Err(Fault::from(SEVERAL).with_extra("installations", &named));
        }
    };
    let repositories = match host.repositories(user, described.id).await {
        Ok(repositories) => repositories,
        Err(error) if error.is_gone() => return Err(NOT_YOURS.into()),
        Err(error) => return Err(unavailable(error)),
    };
    if repositories.is_empty() {
        return Err(NOT_YOURS.into());
    }
    let number = host.who(user).await.map_err(unavailable)?;
    let may_uninstall = host.administers(user, number, described).await;
    Ok(Proven { described: described.clone(), repositories, may_uninstall })
}

/// Stores what was proven. Connecting again renews it: what the user may no longer link is no longer linked.
async fn connect(janua: &Janua, caller: &InOrg<Admin>, proven: Proven) -> Result<InstallationId> {
    let (now, account) = (janua.clock.now(), caller.session.account().id);
    let Proven { described, repositories, may_uninstall } = proven;
    transact!(janua, async |tx| {
        let org = caller.hold(tx).await?.org.id;
        let before = Installation::of_org(tx, org, described.id).await?;
        let status = if described.is_suspended { Status::Suspended } else { Status::Active };
        let installation = Installation {
            id: before.as_ref().map_or_else(|| InstallationId::new(&janua.entropy, now), |before| before.id),
            org_id: org,
            external_id: Some(described.id),
            account_login: described.account_login.clone(),
            account_type: described.account_type.clone(),
            account_avatar: described.account_avatar.clone(),
            status,
            repository_selection: described.repository_selection.clone(),
            permissions: described.permissions.clone(),
            may_uninstall,
            commit_statuses: before.as_ref().is_none_or(|before| before.commit_statuses),
            pull_request_comments: before.as_ref().is_none_or(|before| before.pull_request_comments),
            connected_by: Some(account),
            last_delivery_at: None,
            created_at: now,
            updated_at: now,
        };
        if before.is_some() {
            installation.save(tx).await?;
        } else {
            installation.insert(tx).await?;
        }
        Installation::end_requests(tx, org, account).await?;
        let id = installation.id;
        for known in Repository::all_of(&mut *tx, id).await? {
            if repositories.iter().all(|one| one.repository_id != known.repository_id) {
                Repository::delete(tx, id, known.repository_id).await?;
            }
        }
        for repository in &repositories {
            repository.put(tx, id).await?;
        }
        let event = CodehostConnected { installation_id: id, account: described.account_login.clone() };
        caller.record(tx, janua, &event).await?;
        Ok(id)
    })
}

/// A user who may not install the app asked an owner of the account to. They connect again once that is done.
async fn ask_for_approval(janua: &Janua, caller: &InOrg<Admin>) -> Result<InstallationId> {
    let (now, account) = (janua.clock.now(), caller.session.account().id);
    transact!(janua, async |tx| {
        let org = caller.hold(tx).await?.org.id;
        Installation::end_requests(tx, org, account).await?;
        let installation = Installation {
            id: InstallationId::new(&janua.entropy, now),
            org_id: org,
            external_id: None,
            account_login: String::new(),
            account_type: String::new(),
            account_avatar: None,
            status: Status::PendingApproval,
            repository_selection: "selected".into(),
            permissions: json!({}),
            may_uninstall: false,
            commit_statuses: true,
            pull_request_comments: true,
            connected_by: Some(account),
            last_delivery_at: None,
            created_at: now,
            updated_at: now,
        };
        installation.insert(tx).await?;
        Ok(installation.id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_back_is_a_path_of_ours() {
        for path in ["/", "/console/orgs/1/code?x=1"] {
            assert!(is_own_path(path), "{path}");
        }
        for other in ["", "console", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "/a#b"] {
            assert!(!is_own_path(other), "{other}");
        }
    }
}
