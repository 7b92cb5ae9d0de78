//! What an app does with tokens, as the standards of OAuth have it: gets them, looks at them, takes them back.
mod client;
mod inspect;
mod token;
mod userinfo;

use kernel::{fault::Code, http::Routes};

pub fn routes() -> Routes {
    token::routes().and(inspect::routes()).and(userinfo::routes())
}

const INVALID_REQUEST: Code = Code::new(400, "invalid_request", "The request lacks something, or says it twice.");
const INVALID_CLIENT: Code = Code::new(401, "invalid_client", "The client is not known, or did not prove who it is.");
const INVALID_GRANT: Code =
    Code::new(400, "invalid_grant", "What was presented was used, has run out, never was, or is another client's.");
const UNAUTHORIZED_CLIENT: Code = Code::new(400, "unauthorized_client", "This client may not get tokens this way.");
const UNSUPPORTED_GRANT: Code = Code::new(400, "unsupported_grant_type", "There is no such way to get tokens.");
