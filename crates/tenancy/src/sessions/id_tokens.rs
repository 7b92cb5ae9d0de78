//! Id tokens (OpenID Connect): they tell a client which user signed in, when and how. They open nothing.
use data_encoding::BASE64URL_NOPAD;
use kernel::{Janua, crypto, fault::Result};
use serde::{Deserialize, Serialize};

use crate::{
    accounts::Account,
    apps::scopes::{Scope, Scopes},
    ids::{AccountId, SessionId},
    sessions::{StoredSession, tokens},
};

/// Told apart from access tokens by this alone, so neither passes for the other.
const TYPE: &str = "JWT";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdClaims {
    pub iss: String,
    pub sub: AccountId,
    /// The client it was made for.
    pub aud: String,
    pub sid: SessionId,
    pub iat: i64,
    pub exp: i64,
    /// The moment of the user's proof, and its methods (RFC 8176, and words of our own).
    pub auth_time: i64,
    pub amr: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Ties it to the access token it came with.
    pub at_hash: String,
    #[serde(flatten)]
    pub about: About,
}

/// The claims about a user within the granted scopes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct About {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email_verified: Option<bool>,
}

impl About {
    pub fn of(account: &Account, scopes: &Scopes) -> Self {
        let (profile, email) = (scopes.has(Scope::Profile), scopes.has(Scope::Email));
        Self {
            name: profile.then(|| account.name.clone()),
            picture: account.avatar_url.clone().filter(|_| profile),
            updated_at: profile.then(|| account.updated_at.0.div_euclid(1000)),
            email: account.email.clone().filter(|_| email),
            email_verified: email.then_some(account.email_verified),
        }
    }
}

/// Makes the id token for the client of the session, if the client requested the scope `openid`.
pub fn mint(
    janua: &Janua,
    account: &Account,
    session: &StoredSession,
    access_token: &str,
    nonce: Option<String>,
) -> Result<Option<String>> {
    let (Some(scopes), Some(aud)) = (&session.scopes, session.holder()) else { return Ok(None) };
    if !scopes.has(Scope::OpenId) {
        return Ok(None);
    }
    let now = janua.clock.now();
    let (seconds, life) = (now.0.div_euclid(1000), janua.config.of::<crate::Settings>().access_token_life.as_secs());
    let claims = IdClaims {
        iss: janua.config.base_url(),
        sub: account.id,
        aud,
        sid: session.id,
        iat: seconds,
        exp: seconds + i64::try_from(life).unwrap_or(900),
        auth_time: session.authenticated_at.0.div_euclid(1000),
        amr: session.methods.clone(),
        nonce,
        at_hash: BASE64URL_NOPAD.encode(&crypto::digest(access_token.as_bytes())[..16]),
        about: About::of(account, scopes),
    };
    tokens::sign(janua, now, TYPE, &claims).map(Some)
}

/// Reads the claims of an id token of ours, also an expired one: a hint at the user, not a proof.
pub fn read_hint(janua: &Janua, token: &str) -> Option<IdClaims> {
    let claims: IdClaims = tokens::signed(janua, TYPE, token)?;
    (claims.iss == janua.config.base_url()).then_some(claims)
}
