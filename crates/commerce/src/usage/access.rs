//! Who may track and who may read usage.
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use kernel::{
    Janua,
    fault::{FORBIDDEN, Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, bearer, may_answer},
};
use std::sync::Arc;
use tenancy::{
    accounts::AccountId,
    apps::{Application, ApplicationId, Keyed},
    enter::{AnySession, AppKey, Session},
    machines::tokens::{self, Recognised},
    orgs::{Membership, Org, OrgId, Role},
};

use super::ORG_REQUIRED;

/// The app whose key came along, and the user who is signed in to it, if a token came along, too.
pub struct Tracker {
    pub keyed: Arc<Keyed>,
    pub user: Option<AccountId>,
    /// The machine whose token came along instead. What is tracked counts on its limits.
    pub machine: Option<Recognised>,
    /// The `Idempotency-Key` of the request.
    pub idempotency_key: Option<String>,
}

impl FromRequestParts<Janua> for Tracker {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
        let machine = match bearer(&parts.headers) {
            Some(token) => tokens::recognise(janua, token).await?,
            None => None,
        };
        let user = if machine.is_none() && parts.headers.contains_key(header::AUTHORIZATION) {
            Some(AnySession::from_request_parts(parts, janua).await?.0.account().id)
        } else {
            None
        };
        if let Some(machine) = &machine
            && !machine.may_be_asked_by(janua, &keyed).await?
        {
            return Err(UNAUTHENTICATED.into());
        }
        Ok(Self { keyed, user, machine, idempotency_key: text(&parts.headers, "idempotency-key") })
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

impl OperationInput for Tracker {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        AppKey::operation_input(ctx, operation);
        may_answer(operation, &[UNAUTHENTICATED, FORBIDDEN]);
    }
}

/// The organization whose usage is read, and the apps of it.
pub struct Scope {
    pub org: Org,
    pub apps: Vec<Application>,
}

/// The named app, the named organization, or the one the session acts for; the caller must be an admin of it.
pub async fn scope(
    janua: &Janua,
    session: &Session,
    org: Option<OrgId>,
    app: Option<ApplicationId>,
) -> Result<Scope> {
    let account = session.account().id;
    let (org, app) = match (org, app) {
        (named, Some(app)) => {
            let app = Application::find(&janua.db, app).await?.ok_or(NOT_FOUND)?;
            if named.is_some_and(|org| org != app.org_id) {
                return Err(NOT_FOUND.into());
            }
            (app.org_id, Some(app))
        }
        (Some(org), None) => (org, None),
        (None, None) => (session.org().map(|membership| membership.org.id).ok_or(ORG_REQUIRED)?, None),
    };
    let Membership { org, role } = Membership::of(&janua.db, org, account).await?.ok_or(NOT_FOUND)?;
    if role < Role::Admin {
        return Err(FORBIDDEN.into());
    }
    let apps = match app {
        Some(app) => vec![app],
        None => Application::of_org(&janua.db, org.id).await?,
    };
    Ok(Scope { org, apps })
}

/// Whether the answer is to be a table.
pub struct Accept {
    pub csv: bool,
}

impl FromRequestParts<Janua> for Accept {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let accepted = text(&parts.headers, "accept").unwrap_or_default();
        Ok(Self { csv: accepted.split(',').any(|kind| kind.trim().starts_with("text/csv")) })
    }
}

impl OperationInput for Accept {}
