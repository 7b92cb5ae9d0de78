//! The OAuth 2.1 and OpenID Connect provider: authorization, tokens, introspection, revocation, consents and clients.
pub mod authorize;
mod client;
pub mod clients;
mod codes;
mod consents;
mod documents;
mod inspect;
pub mod logout;
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

pub const INVALID_REQUEST: Code = Code::new(400, "invalid_request", "The request lacks something, or says it twice.");
pub const INVALID_CLIENT: Code =
    Code::new(401, "invalid_client", "The client is not known, or did not prove who it is.");
const INVALID_GRANT: Code =
    Code::new(400, "invalid_grant", "What was presented was used, has run out, never was, or is another client's.");
const INVALID_SCOPE: Code = Code::new(400, "invalid_scope", "This is more than was granted.");
const INVALID_TARGET: Code = Code::new(400, "invalid_target", "There is no such place that tokens can be had for.");
const UNAUTHORIZED_CLIENT: Code = Code::new(400, "unauthorized_client", "This client may not get tokens this way.");
const UNSUPPORTED_GRANT: Code = Code::new(400, "unsupported_grant_type", "There is no such way to get tokens.");
