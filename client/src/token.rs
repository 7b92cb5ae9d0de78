//! Whose access token a request carries. RS256 only; the keys are those the service publishes, kept for five minutes.
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
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
    /// Where the token counts: the id of an app, or the URLs of servers.
    #[serde(default, deserialize_with = "one_or_several")]
    pub aud: Vec<String>,
    pub email: Option<String>,
    pub org_id: Option<String>,
    pub org_slug: Option<String>,
    pub role: Option<String>,
    pub app_id: Option<String>,
    /// The OAuth client that holds the token; none for the service's own sessions.
    #[serde(rename = "client_id")]
    pub client_id: Option<String>,
    /// What the client may do, separated by spaces.
    pub scope: Option<String>,
    /// Tokens of apps, agents and other machines have one (`app` for client credentials); a user's have none.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

impl Claims {
    /// Whether the user granted this scope.
    pub fn has_scope(&self, name: &str) -> bool {
        self.scope.as_deref().unwrap_or_default().split(' ').any(|granted| granted == name)
    }
}

/// An audience is a string or a list of strings (RFC 7519, 4.1.3).
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Option::<Audience>::deserialize(from)? {
        None => vec![],
        Some(Audience::One(name)) => vec![name],
        Some(Audience::Several(names)) => names,
    })
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
    #[error("this is not an access token")]
    NotAccessToken,
    #[error("the token belongs to a machine, not to a user")]
    Machine,
    #[error("the token belongs to a user, not to a machine")]
    User,
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

    /// Only tokens for this server are taken: its URL as clients write it in `resource` (RFC 8707).
    #[must_use]
    pub fn for_resource(self, url: &str) -> Self {
        Self { audience: Some(url.to_owned()), ..self }
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

    /// Verifies a user's access token. Id tokens and tokens of machines are refused.
    pub async fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        let claims = self.verify_any(token).await?;
        if claims.kind.is_some() { Err(TokenError::Machine) } else { Ok(claims) }
    }

    /// Verifies an access token of a machine: an app's own (client credentials), an agent's. `kind` says which.
    pub async fn verify_machine(&self, token: &str) -> Result<Claims, TokenError> {
        let claims = self.verify_any(token).await?;
        if claims.kind.is_some() { Ok(claims) } else { Err(TokenError::User) }
    }

    async fn verify_any(&self, token: &str) -> Result<Claims, TokenError> {
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
        // An id token is signed by the same keys and says who somebody is, but opens nothing (RFC 9068, 4).
        let kind = header.typ.to_ascii_lowercase();
        if kind != "at+jwt" && kind != "application/at+jwt" {
            return Err(TokenError::NotAccessToken);
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
        if self.audience.as_ref().is_some_and(|audience| !claims.aud.contains(audience)) {
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
        Ok(set.into_keys())
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

impl KeySet {
    fn into_keys(self) -> HashMap<String, RsaPublicKeyComponents<Vec<u8>>> {
        let keys = self.keys.into_iter().filter(|key| key.kty == "RSA").filter_map(|key| {
            let read = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).ok();
            Some((key.kid, RsaPublicKeyComponents { n: read(&key.n)?, e: read(&key.e)? }))
        });
        keys.collect()
    }
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
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use aws_lc_rs::{
        encoding::{AsDer as _, Pkcs8V1Der},
        rand::SystemRandom,
        rsa::{KeyPair, KeySize, PublicKeyComponents},
        signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
    };
    use serde_json::{Value, json};

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
        let token =
            format!("{}.{}.AAAA", encode("{\"alg\":\"RS256\",\"typ\":\"at+jwt\",\"kid\":\"x\"}"), encode("{}"));
        assert!(matches!(verifier.verify(&token).await, Err(TokenError::KeysUnavailable(_))));
        assert_eq!(verifier.verify_request(None, None).await, Err(TokenError::Missing));
    }

    /// A service with one key, which signs whatever it is told to.
    struct Service {
        base: String,
        key: RsaKeyPair,
    }

    impl Service {
        fn start() -> Self {
            let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
            let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
            let key = RsaKeyPair::from_pkcs8(der.as_ref()).unwrap();
            let public = PublicKeyComponents::<Vec<u8>>::from(key.public_key());
            let (n, e) = (BASE64URL_NOPAD.encode(&public.n), BASE64URL_NOPAD.encode(&public.e));
            let set = json!({ "keys": [{ "kty": "RSA", "kid": "one", "n": n, "e": e }] }).to_string();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let base = format!("http://{}", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).unwrap();
                    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n";
                    write!(stream, "{head}Content-Length: {}\r\n\r\n{set}", set.len()).unwrap();
                }
            });
            Self { base, key }
        }

        fn token(&self, kind: Option<&str>, more: &Value) -> String {
            let mut header = json!({ "alg": "RS256", "kid": "one" });
            if let Some(kind) = kind {
                header["typ"] = json!(kind);
            }
            let mut claims = json!({ "iss": self.base, "sub": "ada", "exp": 2_000 });
            for (name, value) in more.as_object().unwrap() {
                claims[name] = value.clone();
            }
            let encode = |part: &Value| BASE64URL_NOPAD.encode(part.to_string().as_bytes());
            let text = format!("{}.{}", encode(&header), encode(&claims));
            let mut signature = vec![0; self.key.public_modulus_len()];
            self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
            format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))
        }

        fn verifier(&self) -> Verifier {
            Verifier::new(&self.base).unwrap().with_clock(|| 1_000)
        }
    }

    #[tokio::test]
    async fn an_id_token_is_no_access_token_and_a_machine_is_no_user() {
        let service = Service::start();
        let verifier = service.verifier();
        let nothing = json!({});
        for kind in ["at+jwt", "AT+JWT", "application/at+jwt"] {
            assert_eq!(verifier.verify(&service.token(Some(kind), &nothing)).await.unwrap().sub, "ada", "{kind}");
        }
        for kind in [Some("JWT"), Some("jwt"), Some("logout+jwt"), Some(""), None] {
            let token = service.token(kind, &nothing);
            assert_eq!(verifier.verify(&token).await, Err(TokenError::NotAccessToken), "{kind:?}");
            assert_eq!(verifier.verify_machine(&token).await, Err(TokenError::NotAccessToken), "{kind:?}");
        }
        for kind in ["app", "agent", "mcp", ""] {
            let token = service.token(Some("at+jwt"), &json!({ "type": kind }));
            assert_eq!(verifier.verify(&token).await, Err(TokenError::Machine), "{kind}");
            assert_eq!(
                verifier.verify_request(None, Some(&format!("Bearer {token}"))).await,
                Err(TokenError::Machine)
            );
            assert_eq!(verifier.verify_machine(&token).await.unwrap().kind.as_deref(), Some(kind));
        }
        let person = service.token(Some("at+jwt"), &nothing);
        assert_eq!(verifier.verify_machine(&person).await, Err(TokenError::User));
    }

    fn reason(error: &TokenError) -> &'static str {
        match error {
            TokenError::Missing => "missing",
            TokenError::Malformed => "malformed",
            TokenError::Algorithm => "algorithm",
            TokenError::NotAccessToken => "not_access_token",
            TokenError::Machine => "machine",
            TokenError::User => "user",
            TokenError::UnknownKey => "unknown_key",
            TokenError::Signature => "signature",
            TokenError::Expired => "expired",
            TokenError::Issuer => "issuer",
            TokenError::Audience => "audience",
            TokenError::KeysUnavailable(_) => "keys_unavailable",
        }
    }

    /// The clients in TypeScript and Python read the same file.
    #[tokio::test]
    async fn the_shared_vectors_are_judged_alike() {
        let vectors: Value = serde_json::from_str(include_str!("../vectors/tokens.json")).unwrap();
        let mut verifier = Verifier::new(vectors["issuer"].as_str().unwrap()).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() > 90, "{}", cases.len());
        for case in cases {
            let (name, token) = (&case["name"], case["token"].as_str().unwrap());
            let now = case["now"].as_u64().unwrap();
            let set: KeySet = serde_json::from_value(vectors["keys"].clone()).unwrap();
            verifier = verifier.with_clock(move || now);
            verifier.audience = case["audience"].as_str().map(str::to_owned);
            verifier.kept = Mutex::new(Some(Kept { keys: set.into_keys(), since: now }));
            let judged = match case["kind"].as_str().unwrap() {
                "machine" => verifier.verify_machine(token).await,
                _ => verifier.verify(token).await,
            };
            match (&judged, case["reason"].as_str()) {
                (Ok(claims), None) => {
                    let Claims { sub, email, app_id, scope, kind, .. } = claims;
                    let said = json!({ "sub": sub, "email": email, "appId": app_id, "scope": scope, "type": kind });
                    for (claim, value) in case["claims"].as_object().unwrap() {
                        assert_eq!(&said[claim], value, "{name}: {claim}");
                    }
                }
                (Err(error), Some(expected)) => assert_eq!(reason(error), expected, "{name}"),
                _ => panic!("{name}: {judged:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_server_takes_tokens_for_itself_and_reads_their_scopes() {
        let service = Service::start();
        let (one, two) = ("https://one.example/mcp", "https://two.example/mcp");
        let verifier = service.verifier().for_resource(one);
        for aud in [json!(one), json!([one]), json!([two, one])] {
            let token = service.token(Some("at+jwt"), &json!({ "aud": aud, "scope": "openid mcp:tools" }));
            let claims = verifier.verify(&token).await.unwrap();
            assert!(claims.has_scope("mcp:tools") && !claims.has_scope("mcp"), "{aud}");
        }
        for aud in [json!(two), json!([two]), json!([]), Value::Null, json!("https://one.example/mcp/")] {
            let token = service.token(Some("at+jwt"), &json!({ "aud": aud }));
            assert_eq!(verifier.verify(&token).await, Err(TokenError::Audience), "{aud}");
        }
        let without = service.token(Some("at+jwt"), &json!({}));
        assert_eq!(verifier.verify(&without).await, Err(TokenError::Audience));
        assert_eq!(service.verifier().verify(&without).await.unwrap().aud, Vec::<String>::new());
    }
}
