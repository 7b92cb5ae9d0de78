//! A sign-in that waits for its second factor, kept in a cookie of its own: the page that asks for it is a page with a URL, so
//! reloading it asks again and does not sign in again.
use axum::{http::HeaderMap, response::Response};
use data_encoding::BASE64URL_NOPAD;
use kernel::Janua;
use serde::{Deserialize, Serialize};
use tenancy::{accounts::factors::MFA_TICKET, enter::cookies};

#[derive(Serialize, Deserialize)]
pub struct WaitingSignIn {
    pub ticket: String,
    /// What the person can prove, in words.
    pub hint: String,
    /// How the person signed in so far.
    pub method: String,
    /// The page to continue to.
    pub to: String,
}

/// Browsers drop a cookie of more than 4096 bytes, name and attributes included.
const LONGEST: usize = 3900;
const PURPOSE: &str = "waiting";
const PLACE: &str = "cookie:waiting";

impl WaitingSignIn {
    pub fn read(janua: &Janua, headers: &HeaderMap) -> Option<Self> {
        let sealed = cookies::read_strictly(janua, headers, cookies::WAITING)?;
        let sealed = BASE64URL_NOPAD.decode(sealed.expose().as_bytes()).ok()?;
        serde_json::from_slice(&janua.vault.open(PURPOSE, PLACE, &sealed).ok()?).ok()
    }

    /// For as long as its ticket is good. Nothing if the browser would not keep the cookie, as with the long URL of an
    /// OAuth request.
    pub fn remember(&self, janua: &Janua, mut response: Response) -> Option<Response> {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        let sealed = BASE64URL_NOPAD.encode(&janua.vault.seal(PURPOSE, PLACE, &plain));
        if sealed.len() > LONGEST {
            return None;
        }
        cookies::set_waiting(janua, &sealed, MFA_TICKET.life, response.headers_mut());
        Some(response)
    }
}
