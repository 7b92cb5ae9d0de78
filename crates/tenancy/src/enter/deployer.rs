//! Access of programs that work on an app without a user: deployments from CI, mail from a server.
use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use db::Tx;
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Code, FORBIDDEN, Fault, NOT_FOUND, Result},
    http::{Client, GenContext, Operation, OperationInput, Path, bearer, may_answer, note_app, requires},
};

use super::{
    AppKey, INVALID_APP_KEY, InApp, Live, Session,
    app::AppPath,
    app_key::{HEADER, refuse_foreign_pages},
    org::{Admin, describe_role},
    session::presents_session,
    visitor::from_where,
};
use crate::{
    apps::{Application, Keyed, StoredAppKey},
    events::{self, About, By, Event},
    ids::{AccountId, AppKeyId, KeyKind},
    orgs::Org,
};

pub const SECRET_KEY_REQUIRED: Code = Code::new(
    403,
    "secret_key_required",
    "A publishable key may not do this. Call from a server, with a secret key.",
);

/// An admin of the organization that owns the app of the path's `{appId}`, or the holder of a secret key of that app
/// (`Authorization: Bearer sk_…` or `X-Service-App-Key: sk_…`). Events name the user or the key as the actor.
pub struct Deployer {
    pub application: Application,
    credential: Credential,
}

enum Credential {
    Admin(Box<InApp<Admin>>),
    Key { id: AppKeyId, by: By },
}

impl Deployer {
    /// The signed-in user; none for a key.
    pub fn account(&self) -> Option<AccountId> {
        match &self.credential {
            Credential::Admin(caller) => Some(caller.session.account().id),
            Credential::Key { .. } => None,
        }
    }

    /// The key; none for a user.
    pub fn key(&self) -> Option<AppKeyId> {
        match &self.credential {
            Credential::Admin(_) => None,
            Credential::Key { id, .. } => Some(*id),
        }
    }

    /// The actor and origin of this request, for events.
    pub fn by(&self) -> By {
        match &self.credential {
            Credential::Admin(caller) => caller.session.by(),
            Credential::Key { by, .. } => by.clone(),
        }
    }

    /// Locks the app until the transaction ends, and checks the caller's role or key again, because it may have changed
    /// meanwhile.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Application> {
        match &self.credential {
            Credential::Admin(caller) => caller.hold(tx).await,
            Credential::Key { id, .. } => {
                // Locks the organization first, in the same order as its deletion does.
                Org::hold(tx, self.application.org_id).await?;
                let application = Application::hold(tx, self.application.id).await?.ok_or(NOT_FOUND)?;
                let is_alive = StoredAppKey::exists(tx, application.id, *id).await?;
                if is_alive { Ok(application) } else { Err(INVALID_APP_KEY.into()) }
            }
        }
    }

    /// Records something that happened to the app.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        events::record(tx, janua, &self.by(), About::app(&self.application), event).await
    }

    async fn by_key(parts: &mut Parts, janua: &Janua, keyed: Arc<Keyed>) -> Result<Self> {
        let id = keyed.key_id.filter(|_| keyed.kind == KeyKind::Secret).ok_or(SECRET_KEY_REQUIRED)?;
        let Path(AppPath { app_id }) = Path::from_request_parts(parts, janua).await?;
        if keyed.app_id != app_id {
            return Err(NOT_FOUND.into());
        }
        let application = Application::find(&janua.db, app_id).await?.ok_or(NOT_FOUND)?;
        let client = Client::from_request_parts(parts, janua).await?;
        let origin = from_where(client, parts.headers.get(header::USER_AGENT));
        let by = By { key: Some(id), app: Some(app_id), ..origin };
        Ok(Self { application, credential: Credential::Key { id, by } })
    }
}

/// An app key that was sent as a bearer token. Access tokens begin otherwise.
fn key_as_bearer(parts: &Parts) -> Option<Secret> {
    let token = bearer(&parts.headers)?;
    (token.starts_with("sk_") || token.starts_with("pk_")).then(|| token.to_owned().into())
}

impl FromRequestParts<Janua> for Deployer {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if let Some(key) = key_as_bearer(parts) {
            let keyed = janua.own::<Arc<Live>>().keyed(janua, &key).await?.ok_or(INVALID_APP_KEY)?;
            refuse_foreign_pages(janua, parts, &keyed).await?;
            note_app(&parts.extensions, keyed.app_id);
            return Self::by_key(parts, janua, keyed).await;
        }
        if presents_session(parts) || !parts.headers.contains_key(HEADER) {
            let caller = InApp::from_request_parts(parts, janua).await?;
            let application = caller.application.clone();
            return Ok(Self { application, credential: Credential::Admin(Box::new(caller)) });
        }
        let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
        Self::by_key(parts, janua, keyed).await
    }
}

impl OperationInput for Deployer {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        requires(operation, &["appKey"]);
        requires(operation, &["secretKey"]);
        Path::<AppPath>::operation_input(ctx, operation);
        may_answer(operation, &[FORBIDDEN, SECRET_KEY_REQUIRED, kernel::fault::CROSS_SITE]);
        describe_role(operation, crate::ids::Role::Admin);
    }
}
