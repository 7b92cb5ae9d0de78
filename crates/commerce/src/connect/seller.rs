//! The callers that take payments for merchants.
use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use kernel::{
    Janua, crypto,
    fault::{FORBIDDEN, Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, may_answer, requires},
};
use tenancy::{
    apps::{Application, ApplicationId, KeyKind},
    enter::{AppKey, Session},
    orgs::Role,
};

use super::model::{MerchantPayment, PaymentId};
use crate::{billing::payer_of_app, keyed::KeyedSession, usage::SECRET_KEY_REQUIRED};

/// Who may say what a merchant's customer pays: a member of the app's organization, or a secret key of the app.
pub enum Seller {
    Member(Box<KeyedSession>),
    Key(ApplicationId),
}

impl FromRequestParts<Janua> for Seller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let has_session =
            parts.headers.contains_key(header::AUTHORIZATION) || parts.headers.contains_key(header::COOKIE);
        let is_within = parts.extensions.get::<tenancy::enter::Within>().is_some();
        if !has_session && !is_within && parts.headers.contains_key("x-service-app-key") {
            let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
            return if keyed.kind == KeyKind::Secret {
                Ok(Self::Key(keyed.app_id))
            } else {
                Err(SECRET_KEY_REQUIRED.into())
            };
        }
        KeyedSession::from_request_parts(parts, janua).await.map(|caller| Self::Member(Box::new(caller)))
    }
}

impl OperationInput for Seller {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        // The header is named by the scheme, alone or beside a session.
        Session::operation_input(ctx, operation);
        requires(operation, &["appKey"]);
        may_answer(operation, &[UNAUTHENTICATED, SECRET_KEY_REQUIRED, NOT_FOUND, FORBIDDEN]);
    }
}

impl Seller {
    /// The app that is named, if the caller may.
    pub async fn app(&self, janua: &Janua, named: Option<ApplicationId>, least: Role) -> Result<Application> {
        match self {
            Self::Member(caller) => {
                payer_of_app(janua, caller, named, least).await?.app.ok_or_else(|| NOT_FOUND.into())
            }
            Self::Key(app) if named.is_none_or(|named| named == *app) => {
                Application::find(&janua.db, *app).await?.ok_or_else(|| NOT_FOUND.into())
            }
            Self::Key(_) => Err(NOT_FOUND.into()),
        }
    }

    pub async fn payment(&self, janua: &Janua, id: PaymentId, least: Role) -> Result<MerchantPayment> {
        let payment = MerchantPayment::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        self.app(janua, Some(payment.app_id), least).await?;
        Ok(payment)
    }
}

/// The caller's `Idempotency-Key`, as a digest.
pub struct RequestKey(pub Option<String>);

impl FromRequestParts<Janua> for RequestKey {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let key = parts.headers.get("idempotency-key").map(|value| crypto::hash(value.as_bytes()));
        Ok(Self(key))
    }
}

impl OperationInput for RequestKey {}
