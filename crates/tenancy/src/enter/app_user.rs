//! Access of the end users of an app, with a key of that app.
use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use db::Tx;
use kernel::{
    Janua,
    fault::{CROSS_SITE, Code, Fault, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, may_answer, requires},
};

use super::{
    APP_KEY_MISMATCH, INSUFFICIENT_SCOPE, Live, Session,
    app_key::{AppKey, INVALID_APP_KEY},
    session::describe_session,
};
use crate::{
    apps::{Keyed, end_users},
    events::{About, Event},
    ids::AccountId,
};

pub const NOT_AN_APP_USER: Code =
    Code::new(403, "not_an_app_user", "You have not signed in to this app. Sign in to it first.");

/// An end user of the app of the request's key: in a session of that app, or in one of the service, if they signed in to
/// the app before or are a member of its organization.
pub struct AppUser {
    pub session: Session,
    pub keyed: Arc<Keyed>,
}

impl AppUser {
    pub fn account(&self) -> AccountId {
        self.session.account().id
    }

    /// Records something that the user did in the app.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        let about = About::application(self.keyed.app_id, self.keyed.org_id).person(self.account());
        self.session.record_about(tx, janua, about, event).await
    }
}

impl FromRequestParts<Janua> for AppUser {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::of_any_app(parts, janua).await?;
        let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
        let account = session.account().id;
        match session.of_app() {
            Some(own) if own == keyed.app_id => {}
            Some(_) => return Err(APP_KEY_MISMATCH.into()),
            None => {
                let member = janua.own::<Arc<Live>>().membership(janua, keyed.org_id, account).await?;
                if member.is_none() && !end_users::may_enter(&janua.db, keyed.app_id, account).await? {
                    return Err(NOT_AN_APP_USER.into());
                }
            }
        }
        Ok(Self { session, keyed })
    }
}

impl OperationInput for AppUser {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["appKey", "bearer"]);
        requires(operation, &["appKey", "cookie"]);
        may_answer(
            operation,
            &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE, APP_KEY_MISMATCH, CROSS_SITE, NOT_AN_APP_USER],
        );
        describe_session(operation, true);
    }
}
