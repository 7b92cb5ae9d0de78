//! What a request says beside its body.
use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    fault::{Fault, Result},
    http::OperationInput,
};

/// The `Idempotency-Key` of the request. It is stored with the message, so that a mail is sent once whatever happens to
/// the answer.
pub struct OnceKey(pub Option<String>);

impl FromRequestParts<Janua> for OnceKey {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        Ok(Self(parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned)))
    }
}

impl OperationInput for OnceKey {}
