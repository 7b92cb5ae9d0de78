//! Access tokens: RS256 JWTs that name the user and the session.
//!
//! Written out instead of taken from a JWT library: libraries parse the private key for every signature and read the
//! system's clock, and the refusals (another algorithm, a key in the token) are shortest here.

use data_encoding::BASE64URL_NOPAD;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INTERNAL, Result},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    accounts::Account,
    apps::scopes::Scope,
    ids::{AccountId, ApplicationId, SessionId},
    orgs::Membership,
    sessions::{StoredSession, audience::Audience, keys::Ring},
};

/// Clocks of our own nodes may differ by this much.
const LEEWAY_S: i64 = 5;
/// Longer than any token we make; not worth looking at.
const LONGEST: usize = 8 * 1024;
/// The type of the token (RFC 9068): an id token or a ticket signed by the same key has another one.
pub(crate) const TYPE: &str = "at+jwt";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    pub iss: String,
    pub sub: AccountId,
    pub sid: SessionId,
    pub jti: String,
    pub iat: i64,
    pub exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    pub email: Option<String>,
    pub org_id: Option<String>,
    pub org_slug: Option<String>,
    pub role: Option<String>,
    pub aud: Option<Audience>,
    pub app_id: Option<String>,
    /// The scopes of a client; left out in a user's own token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(rename = "client_id", default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Agents', frameworks' and MCP servers' tokens say what they are; a person's does not.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The claims of an app's own token, which names no user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppClaims {
    pub iss: String,
    pub sub: ApplicationId,
    pub aud: ApplicationId,
    pub client_id: ApplicationId,
    pub jti: String,
    pub iat: i64,
    pub exp: i64,
    /// `app`, which no person's token says.
    #[serde(rename = "type")]
    kind: String,
}

const APP: &str = "app";

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: String,
}

/// A token for one session, good for the configured time.
pub fn mint(
    janua: &Janua,
    account: &Account,
    session: &StoredSession,
    org: Option<&Membership>,
) -> Result<(String, i64)> {
    let now = janua.clock.now();
    let life = i64::try_from(janua.config.of::<crate::Settings>().access_token_life.as_secs()).unwrap_or(900);
    let seconds = now.0.div_euclid(1000);
    // A client learns what the person let it know; the person's own token says everything.
    let tells = |scope| session.scopes.as_ref().is_none_or(|scopes| scopes.has(scope));
    let org = org.filter(|_| tells(Scope::Profile));
    let claims = Claims {
        iss: janua.config.base_url(),
        sub: account.id,
        sid: session.id,
        jti: janua.entropy.uuid(now).to_string(),
        iat: seconds,
        exp: seconds + life,
        nbf: None,
        email: account.email.clone().filter(|_| tells(Scope::Email)),
        org_id: org.map(|org| org.org.id.to_string()),
        org_slug: org.map(|org| org.org.slug.clone()),
        role: org.map(|org| org.role.name().to_owned()),
        aud: session.resource.clone().or_else(|| session.holder().map(Audience::one)),
        app_id: session.app_id.map(|id| id.to_string()),
        scope: session.scopes.as_ref().map(ToString::to_string),
        client_id: session.scopes.as_ref().and_then(|_| session.holder()),
        kind: None,
    };
    Ok((sign(janua, now, TYPE, &claims)?, life))
}

/// A token for an app itself.
pub fn mint_for_app(janua: &Janua, id: ApplicationId) -> Result<(String, i64)> {
    let now = janua.clock.now();
    let life = i64::try_from(janua.config.of::<crate::Settings>().access_token_life.as_secs()).unwrap_or(900);
    let (iat, jti) = (now.0.div_euclid(1000), janua.entropy.uuid(now).to_string());
    let (iss, kind) = (janua.config.base_url(), APP.to_owned());
    let claims = AppClaims { iss, sub: id, aud: id, client_id: id, jti, iat, exp: iat + life, kind };
    Ok((sign(janua, now, TYPE, &claims)?, life))
}

pub(crate) fn sign(janua: &Janua, now: Timestamp, kind: &str, claims: &impl Serialize) -> Result<String> {
    db::answer_opens_account();
    let signed = janua.own::<Ring>().signing(now, |key| {
        let header = Header { alg: "RS256".into(), typ: Some(kind.into()), kid: key.id.clone() };
        let (header, claims) = (serde_json::to_vec(&header).ok()?, serde_json::to_vec(claims).ok()?);
        let text = format!("{}.{}", BASE64URL_NOPAD.encode(&header), BASE64URL_NOPAD.encode(&claims));
        let signature = key.sign(text.as_bytes())?;
        Some(format!("{text}.{}", BASE64URL_NOPAD.encode(&signature)))
    });
    signed.flatten().ok_or_else(|| INTERNAL.caused_by("there is no key that signs now"))
}

/// The claims of a token of a person that we signed and that is good now.
pub fn verify(janua: &Janua, token: &str) -> Option<Claims> {
    let claims: Claims = signed(janua, TYPE, token)?;
    let is_meant = claims.iss == janua.config.base_url() && claims.kind.is_none();
    (is_meant && is_current(&claims, janua.clock.now())).then_some(claims)
}

/// The claims of a token of an app itself that we signed and that is good now.
pub fn verify_for_app(janua: &Janua, token: &str) -> Option<AppClaims> {
    let claims: AppClaims = signed(janua, TYPE, token)?;
    let is_meant = claims.iss == janua.config.base_url() && claims.kind == APP;
    (is_meant && janua.clock.now().0.div_euclid(1000) < claims.exp).then_some(claims)
}

/// Reads the claims of a token of one type with our signature, for any audience.
pub(crate) fn signed<T: DeserializeOwned>(janua: &Janua, kind: &str, token: &str) -> Option<T> {
    if token.len() > LONGEST {
        return None;
    }
    let (text, signature) = token.rsplit_once('.')?;
    let (header, claims) = text.split_once('.')?;
    let header: Header = serde_json::from_slice(&BASE64URL_NOPAD.decode(header.as_bytes()).ok()?).ok()?;
    // The only algorithm, the only type, and a key that is ours: what else the header says is not looked at.
    if header.alg != "RS256" || header.typ.as_deref() != Some(kind) {
        return None;
    }
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    let is_ours =
        janua.own::<Ring>().published(janua, &header.kid, |key| key.verifies(text.as_bytes(), &signature))?;
    if !is_ours {
        return None;
    }
    serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?).ok()
}

/// Whether verified claims hold at this moment; asked again each time a remembered token comes back.
pub fn is_current(claims: &Claims, now: Timestamp) -> bool {
    let seconds = now.0.div_euclid(1000);
    seconds < claims.exp && claims.nbf.is_none_or(|nbf| nbf <= seconds + LEEWAY_S) && claims.iat <= seconds + LEEWAY_S
}
