//! Access to an app by a member of the organization that owns it.
use std::marker::PhantomData;

use axum::{extract::FromRequestParts, http::request::Parts};
use db::Tx;
use kernel::{
    Janua,
    fault::{CROSS_SITE, FORBIDDEN, Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, Path, may_answer, note_app, requires},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    INSUFFICIENT_SCOPE, Session,
    app_key::{AppKey, INVALID_APP_KEY},
    org::{Least, describe_role},
    session::describe_session,
};
use crate::{
    apps::{Application, Reached},
    events::{About, Event},
    ids::{ApplicationId, Role},
    orgs::{Membership, Org},
};

/// A caller with at least the role `R` in the organization that owns the app of the path's `{appId}`.
pub struct InApp<R> {
    pub session: Session,
    pub application: Application,
    pub role: Role,
    least: PhantomData<R>,
}

impl<R> InApp<R> {
    /// Records something that happened to the app.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.session.record_about(tx, janua, About::app(&self.application), event).await
    }
}

impl<R: Least> InApp<R> {
    /// Locks the app until the transaction ends, and checks the caller's role again, because it may have changed
    /// meanwhile.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Application> {
        // Locks the organization first, in the same order as its deletion does.
        Org::hold(tx, self.application.org_id).await?;
        let application = Application::hold(tx, self.application.id).await?.ok_or(NOT_FOUND)?;
        let now = Membership::of(&mut *tx, application.org_id, self.session.account().id).await?.ok_or(NOT_FOUND)?;
        if now.role < R::ROLE { Err(FORBIDDEN.into()) } else { Ok(application) }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppPath {
    pub(super) app_id: ApplicationId,
}

impl<R: Least> FromRequestParts<Janua> for InApp<R> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        let Path(AppPath { app_id }) = Path::from_request_parts(parts, janua).await?;
        note_app(&parts.extensions, app_id);
        Self::reach(janua, session, app_id).await
    }
}

impl<R: Least> InApp<R> {
    /// For routes whose app is not in the path `/apps/{appId}`: as the extractor does.
    pub async fn reach(janua: &Janua, session: Session, id: ApplicationId) -> Result<Self> {
        let reached = Application::reach(&janua.db, id, session.account().id).await?;
        let Reached { application, role } = reached.ok_or(NOT_FOUND)?;
        if role < R::ROLE {
            return Err(FORBIDDEN.into());
        }
        Ok(Self { session, application, role, least: PhantomData })
    }
}

impl<R: Least> OperationInput for InApp<R> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        Path::<AppPath>::operation_input(ctx, operation);
        may_answer(operation, &[FORBIDDEN]);
        describe_role(operation, R::ROLE);
    }
}

/// The app of the request's key, and a caller with at least the role `R` in the organization that owns it. The
/// session must be one of the service itself: end users of the app cannot configure it.
pub struct AppCaller<R>(pub InApp<R>);

impl<R: Least> FromRequestParts<Janua> for AppCaller<R> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::beside_key(parts, janua).await?;
        let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
        InApp::reach(janua, session, keyed.app_id).await.map(Self)
    }
}

impl<R: Least> OperationInput for AppCaller<R> {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["appKey", "bearer"]);
        requires(operation, &["appKey", "cookie"]);
        may_answer(
            operation,
            &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE, CROSS_SITE, FORBIDDEN, NOT_FOUND],
        );
        describe_session(operation, false);
        describe_role(operation, R::ROLE);
    }
}
