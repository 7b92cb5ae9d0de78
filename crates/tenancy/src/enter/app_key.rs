//! Access by an app key.
use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{CROSS_SITE, Code, Fault, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, foreign_origin, may_answer, note_app, requires},
};

use super::live::Live;
use crate::apps::{Application, Keyed};

pub(super) const HEADER: &str = "x-service-app-key";
pub const INVALID_APP_KEY: Code = Code::new(401, "invalid_app_key", "This app key does not exist or was deleted.");

/// The app whose key came with the request.
pub struct AppKey(pub Arc<Keyed>);

impl FromRequestParts<Janua> for AppKey {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        presented(janua, parts).await?.map(Self).ok_or_else(|| UNAUTHENTICATED.into())
    }
}

impl OperationInput for AppKey {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["appKey"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY]);
    }
}

/// The app whose key came with the request. An unknown key is refused even where no key is needed.
pub(super) async fn presented(janua: &Janua, parts: &Parts) -> Result<Option<Arc<Keyed>>> {
    let headers = &parts.headers;
    let Some(key) = headers.get(HEADER) else { return Ok(None) };
    let key = Secret::from(key.to_str().map_err(|_| INVALID_APP_KEY)?.to_owned());
    let keyed = janua.own::<Arc<Live>>().keyed(janua, &key).await?.ok_or(INVALID_APP_KEY)?;
    refuse_foreign_pages(janua, parts, &keyed).await?;
    note_app(&parts.extensions, keyed.app_id);
    Ok(Some(keyed))
}

/// A web page calls with the key of its own app.
pub(super) async fn refuse_foreign_pages(janua: &Janua, parts: &Parts, keyed: &Keyed) -> Result<()> {
    if let Some(origin) = foreign_origin(janua, &parts.headers)
        && !keyed.allowed_origins.contains(&origin)
        && !Application::allows(&janua.db, keyed.app_id, &origin).await?
    {
        return Err(CROSS_SITE.into());
    }
    Ok(())
}
