//! What this browser requested a mail for, kept in a cookie of its own: the page that waits for the mail knows the email
//! without naming it in its URL, and the link in the mail knows the browser again.
use axum::{
    http::{HeaderMap, Method},
    response::Response,
};
use data_encoding::BASE64URL_NOPAD;
use identity::{destination::Destination, register::VERIFY_EMAIL};
use kernel::{Janua, crypto::Secret};
use serde::{Deserialize, Serialize};
use tenancy::enter::cookies;

use crate::onward::Onward;

/// Which mail was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedMail {
    Confirmation,
    SignInLink,
    NewPassword,
}

impl RequestedMail {
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Confirmation, Self::SignInLink, Self::NewPassword].into_iter().find(|mail| mail.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmation => "confirmation",
            Self::SignInLink => "sign_in_link",
            Self::NewPassword => "new_password",
        }
    }
}

#[derive(Serialize, Deserialize)]
pub struct Began {
    secret: String,
    pub email: String,
    pub mail: RequestedMail,
}

const PURPOSE: &str = "began";
const PLACE: &str = "cookie:began";

impl Began {
    pub fn read(janua: &Janua, headers: &HeaderMap) -> Option<Self> {
        let sealed = cookies::read_strictly(janua, headers, cookies::BEGAN)?;
        let sealed = BASE64URL_NOPAD.decode(sealed.expose().as_bytes()).ok()?;
        serde_json::from_slice(&janua.vault.open(PURPOSE, PLACE, &sealed).ok()?).ok()
    }

    /// One secret for all that a browser requests, so that the second mail does not make it a stranger to the first.
    pub fn new(janua: &Janua, headers: &HeaderMap, email: &str, mail: RequestedMail) -> Self {
        let known = Self::read(janua, headers).map(|known| known.secret);
        let secret = known.unwrap_or_else(|| janua.entropy.token().expose().to_owned());
        Self { secret, email: email.to_owned(), mail }
    }

    pub fn secret(&self) -> Secret {
        self.secret.clone().into()
    }

    pub fn destination(&self, onward: &Onward) -> Destination {
        Destination::new(&onward.to, onward.app(), &self.secret())
    }

    /// For as long as the longest link is good.
    pub fn remember(&self, janua: &Janua, mut response: Response) -> Response {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        let sealed = BASE64URL_NOPAD.encode(&janua.vault.seal(PURPOSE, PLACE, &plain));
        cookies::set_began(janua, &sealed, VERIFY_EMAIL.life, response.headers_mut());
        response
    }
}

/// Whether a request for a link in a mail only looks: a scanner's HEAD, a browser's prefetch.
pub fn only_looks(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name: &str, word| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.to_lowercase().contains(word)
    };
    let prefetches = ["purpose", "sec-purpose", "x-purpose", "x-moz"].iter().any(|name| says(name, "prefetch"));
    method == Method::HEAD || prefetches
}
