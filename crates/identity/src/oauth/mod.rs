//! The OAuth 2.1 and OpenID Connect provider: authorization, tokens, introspection, revocation, consents and clients.
pub mod authorize;
mod client;
pub mod clients;
mod codes;
mod consents;
mod documents;
mod inspect;
pub mod logout;
mod machines;
mod registration;
pub mod request;
mod settings;
mod token;
mod userinfo;
mod wording;

use kernel::{config::Config, fault::Code, http::Routes};
use tenancy::gone::Gone;

pub use client::{Credentials, of as client_of};
pub use consents::{Agreed, Consent, ConsentView};
pub use documents::Silent;
pub use settings::Settings;
pub(crate) use token::Tokens;

pub fn routes(config: &Config) -> Routes {
    token::routes()
        .and(inspect::routes())
        .and(userinfo::routes())
        .and(consents::routes())
        .and(registration::routes(config.of::<Settings>().client_registration.is_on()))
        .worded("/oauth", &wording::OAuth)
}

/// What people allowed an app that goes.
pub(crate) const GONE: Gone =
    Gone::ManyOfApp("DELETE FROM consent WHERE id IN (SELECT id FROM consent WHERE app_id = $1 LIMIT $2)");

pub const INVALID_REQUEST: Code = Code::new(400, "invalid_request", "A parameter is missing or was sent twice.");
pub const INVALID_CLIENT: Code = Code::new(401, "invalid_client", "Unknown client, or wrong client credentials.");
const INVALID_GRANT: Code = Code::new(
    400,
    "invalid_grant",
    "The code or refresh token is invalid, has expired, was already used or belongs to another client.",
);
const INVALID_SCOPE: Code = Code::new(400, "invalid_scope", "The scope exceeds what was granted.");
const INVALID_TARGET: Code = Code::new(400, "invalid_target", "The resource is unknown.");
const UNAUTHORIZED_CLIENT: Code = Code::new(400, "unauthorized_client", "This client may not use this grant type.");
const UNSUPPORTED_GRANT: Code = Code::new(400, "unsupported_grant_type", "The grant type is not supported.");
