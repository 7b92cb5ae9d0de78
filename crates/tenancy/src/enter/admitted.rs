//! Visitors as extractors. A handler takes one by the name that says what was checked before it runs.
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Code, Fault, RATE_LIMITED, Result},
    http::{Client, GenContext, Operation, OperationInput, may_answer},
};

use super::{
    app_key::{INVALID_APP_KEY, presented as app_key},
    captcha::{CAPTCHA_REQUIRED, PASS},
    cookies,
    visitor::{Visitor, from_where},
};
use crate::{
    events::By,
    quotas::QUOTA_EXCEEDED,
    sessions::sign_in::{ACCOUNT_CLOSED, ACCOUNT_DISABLED, BLOCKED_FROM_APP},
};

impl Visitor {
    async fn of(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let client = Client::from_request_parts(parts, janua).await?;
        let keyed = app_key(janua, parts).await?;
        let by = from_where(client, parts.headers.get(header::USER_AGENT));
        let by = By { app: keyed.as_ref().map(|keyed| keyed.app_id), ..by };
        let user_agent = by.user_agent.clone().unwrap_or_default();
        let route = parts.uri.path().to_owned();
        let pass = parts.headers.get(PASS).and_then(|value| value.to_str().ok()).map(|text| text.to_owned().into());
        let trusted_device = trusted_device(janua, client, &parts.headers);
        Ok(Self { by, client, user_agent, trusted_device, app: keyed, route, pass })
    }
}

/// A visitor who was admitted before the handler runs.
pub struct Admitted(pub Visitor);

/// A visitor that the handler itself admits, because that needs the body: with the email in it ([`Visitor::admit`]),
/// with the captcha that a page's form brings, or by counting a try at a secret (`attempt` and its like).
pub struct ToAdmit(pub Visitor);

/// A visitor without a check: the request carries a session, a refresh token, an app key or a solved captcha, and
/// none of those can be guessed.
pub struct NotAdmitted(pub Visitor);

impl FromRequestParts<Janua> for Admitted {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let visitor = Visitor::of(parts, janua).await?;
        visitor.admit(janua, None).await?;
        Ok(Self(visitor))
    }
}

impl FromRequestParts<Janua> for ToAdmit {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Visitor::of(parts, janua).await.map(Self)
    }
}

impl FromRequestParts<Janua> for NotAdmitted {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Visitor::of(parts, janua).await.map(Self)
    }
}

const OF_VISITORS: &[Code] =
    &[RATE_LIMITED, INVALID_APP_KEY, ACCOUNT_CLOSED, ACCOUNT_DISABLED, BLOCKED_FROM_APP, QUOTA_EXCEEDED];

impl OperationInput for Admitted {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        ToAdmit::operation_input(ctx, operation);
    }
}

impl OperationInput for ToAdmit {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[CAPTCHA_REQUIRED]);
        may_answer(operation, OF_VISITORS);
    }
}

impl OperationInput for NotAdmitted {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, OF_VISITORS);
    }
}

/// Read from the cookie, or from the header that a trusted proxy made of it. Headers from other clients are ignored.
fn trusted_device(janua: &Janua, client: Client, headers: &HeaderMap) -> Option<Secret> {
    let by_proxy = || headers.get("x-service-mfa-trusted").and_then(|value| value.to_str().ok());
    let told = cookies::read_strictly(janua, headers, cookies::TRUSTED);
    told.or_else(|| client.by_our_proxy.then(by_proxy).flatten().map(|text| text.to_owned().into()))
}
