//! Whose access token a request carries. RS256 only; the keys are those the service publishes, kept for five minutes.
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::Mutex;

/// How long a key set is good for.
const KEPT: Duration = Duration::from_mins(5);
/// How long to wait for the service.
const PATIENCE: Duration = Duration::from_secs(10);
/// The cookie's names, the protected one first.
const COOKIES: [&str; 2] = ["__Host-service_access", "service_access"];

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    pub iss: String,
    /// Whose it is.
    pub sub: String,
    pub sid: Option<String>,
    pub exp: u64,
    pub aud: Option<String>,
    pub email: Option<String>,
    pub org_id: Option<String>,
    pub org_slug: Option<String>,
    pub role: Option<String>,
    pub app_id: Option<String>,
    /// Tokens of agents and other machines have one; they are nobody's session.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// Why a token is not to be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the request carries no token")]
    Missing,
    #[error("this is not a token")]
    Malformed,
    #[error("the token is not signed with RS256")]
    Algorithm,
    #[error("the token's key is not one of the service's")]
    UnknownKey,
    #[error("the signature is wrong")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is of another service")]
    Issuer,
    #[error("the token is for another app")]
    Audience,
    #[error("the service's keys are out of reach: {0}")]
    KeysUnavailable(String),
}

/// The token of a request, out of its `Cookie` and `Authorization` headers: the cookie first.
pub fn presented<'a>(cookie: Option<&'a str>, authorization: Option<&'a str>) -> Option<&'a str> {
    let named = |name: &str| {
        let pairs = cookie.unwrap_or_default().split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value).next()
    };
    let bearer = || {
        let (scheme, token) = authorization?.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    };
    COOKIES.into_iter().find_map(named).or_else(bearer)
}

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Verifies access tokens of one service. Cheap to share; make one and keep it.
pub struct Verifier {
    issuer: String,
    audience: Option<String>,
    client: reqwest::Client,
    kept: Mutex<Option<Kept>>,
    now: Clock,
}

struct Kept {
    keys: HashMap<String, RsaPublicKeyComponents<Vec<u8>>>,
    since: u64,
}

impl Verifier {
    /// `base_url` is the service's address, which is also the issuer of its tokens.
    pub fn new(base_url: &str) -> Result<Self, TokenError> {
        let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self {
            issuer: base_url.trim_end_matches('/').to_owned(),
            audience: None,
            client: client.map_err(|error| TokenError::KeysUnavailable(error.to_string()))?,
            kept: Mutex::new(None),
            now: Arc::new(system_now),
        })
    }

    /// Only tokens of this app are taken.
    #[must_use]
    pub fn for_app(self, app_id: &str) -> Self {
        Self { audience: Some(app_id.to_owned()), ..self }
    }

    /// Another clock than the system's, in seconds since 1970; for tests.
    #[must_use]
    pub fn with_clock(self, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), ..self }
    }

    /// Whose request it is, by its `Cookie` and `Authorization` headers.
    pub async fn verify_request(
        &self,
        cookie: Option<&str>,
        authorization: Option<&str>,
    ) -> Result<Claims, TokenError> {
        self.verify(presented(cookie, authorization).ok_or(TokenError::Missing)?).await
    }

    pub async fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        let mut parts = token.split('.');
        let (Some(head), Some(body), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let header: Header = read(head)?;
        if header.alg != "RS256" {
            return Err(TokenError::Algorithm);
        }
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| TokenError::Malformed)?;
        self.check(&header.kid, format!("{head}.{body}").as_bytes(), &signature).await?;
        let claims: Claims = read(body)?;
        if claims.exp <= (self.now)() {
            return Err(TokenError::Expired);
        }
        if claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        if self.audience.is_some() && self.audience != claims.aud {
            return Err(TokenError::Audience);
        }
        Ok(claims)
    }

    async fn check(&self, kid: &str, signed: &[u8], signature: &[u8]) -> Result<(), TokenError> {
        let mut kept = self.kept.lock().await;
        let now = (self.now)();
        let fresh = kept.take().filter(|kept| now.saturating_sub(kept.since) < KEPT.as_secs());
        let kept = match fresh {
            Some(fresh) => kept.insert(fresh),
            None => kept.insert(Kept { keys: self.fetch().await?, since: now }),
        };
        let key = kept.keys.get(kid).ok_or(TokenError::UnknownKey)?;
        key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).map_err(|_| TokenError::Signature)
    }

    async fn fetch(&self) -> Result<HashMap<String, RsaPublicKeyComponents<Vec<u8>>>, TokenError> {
        let unavailable = |error: reqwest::Error| TokenError::KeysUnavailable(error.to_string());
        let url = format!("{}/.well-known/jwks.json", self.issuer);
        let answer = self.client.get(url).send().await.and_then(reqwest::Response::error_for_status);
        let set: KeySet = answer.map_err(unavailable)?.json().await.map_err(unavailable)?;
        let keys = set.keys.into_iter().filter(|key| key.kty == "RSA").filter_map(|key| {
            let read = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).ok();
            Some((key.kid, RsaPublicKeyComponents { n: read(&key.n)?, e: read(&key.e)? }))
        });
        Ok(keys.collect())
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
}

fn read<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

#[expect(clippy::disallowed_methods, reason = "users' services have the system's clock and no other")]
fn system_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_comes_first_then_the_header() {
        let bearer = Some("Bearer b");
        assert_eq!(presented(Some("x=1; __Host-service_access=h; service_access=l"), bearer), Some("h"));
        assert_eq!(presented(Some("service_access=l"), bearer), Some("l"));
        assert_eq!(presented(Some("service_access="), bearer), Some("b"));
        assert_eq!(presented(None, Some("bearer b")), Some("b"));
        assert_eq!((presented(None, Some("Basic b")), presented(Some("other=1"), None)), (None, None));
    }

    #[tokio::test]
    async fn what_is_not_rs256_is_refused_before_any_key_is_asked_for() {
        // Nobody answers there.
        let verifier = Verifier::new("http://127.0.0.1:1").unwrap();
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        for alg in ["none", "HS256", "RS512", "rs256", ""] {
            let token = format!("{}.{}.", encode(&format!("{{\"alg\":\"{alg}\"}}")), encode("{}"));
            assert_eq!(verifier.verify(&token).await, Err(TokenError::Algorithm), "{alg}");
        }
        for token in ["", "a", "a.b", "a.b.c", "a.b.c.d", "!.!.!"] {
            assert_eq!(verifier.verify(token).await, Err(TokenError::Malformed), "{token}");
        }
        let token = format!("{}.{}.AAAA", encode("{\"alg\":\"RS256\",\"kid\":\"x\"}"), encode("{}"));
        assert!(matches!(verifier.verify(&token).await, Err(TokenError::KeysUnavailable(_))));
        assert_eq!(verifier.verify_request(None, None).await, Err(TokenError::Missing));
    }
}
