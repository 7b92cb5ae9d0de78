//! One way to a provider and back: what was put aside when a person was sent there, and what they must bring along.
use std::time::Duration;

use axum::http::HeaderMap;
use kernel::{
    Janua,
    crypto::{Secret, same},
    fault::{Code, INVALID, Result},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    enter::{Visitor, cookies},
    once::{self, Purpose},
};
use url::Url;

use super::providers::{Provider, is_loopback_http};

pub const INVALID_STATE: Code =
    Code::new(400, "invalid_state", "This sign-in was not started in this browser. Start again.");

/// A person who was sent to a provider and comes back.
pub const STATE: Purpose = Purpose::new("social_state", Duration::from_mins(10));

/// Put aside under a secret that only the person's browser has, in a cookie.
#[derive(Serialize, Deserialize)]
pub struct Attempt {
    provider: String,
    pub redirect_uri: String,
    pub verifier: String,
    pub nonce: String,
    /// As the caller gave it, or one of our own.
    pub state: String,
    /// The app that began it.
    app: Option<ApplicationId>,
}

impl Attempt {
    pub fn new(
        janua: &Janua,
        visitor: &Visitor,
        provider: &Provider,
        redirect_uri: Option<String>,
        state: Option<String>,
    ) -> Result<Self> {
        let chance = || janua.entropy.token().expose().to_owned();
        let usual = || format!("{}/sign-in/{}", janua.config.base_url(), provider.row.name);
        let redirect_uri = match redirect_uri {
            Some(given) if may_return_to(janua, visitor, &given) => given,
            Some(_) => {
                let why = "must be on this service, on an allowed origin, or http on the person's own machine";
                return Err(INVALID.at("redirectUri", "not_allowed", why));
            }
            None => usual(),
        };
        Ok(Self {
            provider: provider.row.name.into(),
            redirect_uri,
            verifier: chance(),
            nonce: chance(),
            state: state.unwrap_or_else(chance),
            app: visitor.by.app,
        })
    }

    /// Puts it aside; what is answered goes into the cookie.
    pub async fn keep(&self, janua: &Janua) -> Result<Secret> {
        let aside = serde_json::to_vec(self).unwrap_or_default();
        transact!(janua, async |tx| Ok(once::issue(tx, janua, STATE, None, &aside).await?))
    }

    /// The attempt this browser began at this provider. It is used up by being asked for, whatever comes of it.
    pub async fn take(
        janua: &Janua,
        visitor: &Visitor,
        headers: &HeaderMap,
        provider: &Provider,
        state: Option<&Secret>,
        redirect_uri: Option<&str>,
    ) -> Result<Self> {
        let (Some(cookie), Some(state)) = (cookies::read_strictly(janua, headers, cookies::SOCIAL), state) else {
            return Err(INVALID_STATE.into());
        };
        let now = janua.clock.now();
        let spent = transact!(janua, async |tx| Ok(once::spend(tx, STATE, &cookie, now).await?))?;
        let aside = spent.and_then(|spent| spent.aside(janua)).ok_or(INVALID_STATE)?;
        let attempt: Self = serde_json::from_slice(&aside).map_err(|_| INVALID_STATE)?;
        let is_this = attempt.provider == provider.row.name
            && attempt.app == visitor.by.app
            && same(attempt.state.as_bytes(), state.expose().as_bytes())
            && redirect_uri.is_none_or(|uri| uri == attempt.redirect_uri);
        if is_this { Ok(attempt) } else { Err(INVALID_STATE.into()) }
    }
}

/// A code must reach nobody but our own pages, those of allowed origins or of the app that asks, and programs on the
/// person's machine.
fn may_return_to(janua: &Janua, visitor: &Visitor, uri: &str) -> bool {
    let Ok(url) = Url::parse(uri) else { return false };
    let origin = url.origin().ascii_serialization();
    let is_ours =
        origin == janua.config.base_url() || janua.config.allowed_origins.iter().any(|ours| ours.0 == origin);
    let is_apps = visitor.app.as_ref().is_some_and(|keyed| keyed.allowed_origins.contains(&origin));
    let is_plain =
        !uri.contains('\\') && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    is_plain && (is_ours || is_apps || is_loopback_http(&url))
}
