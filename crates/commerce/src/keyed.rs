//! Callers of rows that are about an app: it is named by its ID, or by a key of it.
use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    fault::{FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{GenContext, Operation, OperationInput, may_answer, reads_headers},
};
use schemars::JsonSchema;
use tenancy::{
    apps::ApplicationId,
    enter::{AppCaller, Member, Session},
};

/// A user in a session of the service, and the app whose key came along (`X-Service-App-Key`), if one did. The key says which
/// app is meant and nothing else: what the user may do follows from their role.
pub struct KeyedSession {
    pub session: Session,
    app: Option<ApplicationId>,
}

impl KeyedSession {
    /// The app that is meant: by its ID, by its key, or by both if they agree.
    pub fn app(&self, named: Option<ApplicationId>) -> Result<Option<ApplicationId>> {
        match (named, self.app) {
            (Some(named), Some(keyed)) if named != keyed => {
                Err(INVALID.at("appId", "mismatch", "is not the app of X-Service-App-Key"))
            }
            (named, keyed) => Ok(named.or(keyed)),
        }
    }

    /// Whether something of this app is what the caller means: the key of another app hides it.
    pub fn means(&self, app: ApplicationId) -> bool {
        self.app.is_none_or(|keyed| keyed == app)
    }
}

impl FromRequestParts<Janua> for KeyedSession {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if parts.headers.contains_key("x-service-app-key") {
            let AppCaller(caller) = AppCaller::<Member>::from_request_parts(parts, janua).await?;
            return Ok(Self { app: Some(caller.application.id), session: caller.session });
        }
        Ok(Self { session: Session::from_request_parts(parts, janua).await?, app: None })
    }
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes a header")]
struct AppKeyHeader {
    /// A key of the app that is meant.
    #[schemars(rename = "X-Service-App-Key")]
    app_key: Option<String>,
}

impl OperationInput for KeyedSession {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        reads_headers::<AppKeyHeader>(ctx, operation);
        may_answer(operation, &[NOT_FOUND, FORBIDDEN]);
    }
}
