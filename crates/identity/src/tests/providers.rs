//! A provider in the test: one small server that answers in the shapes of all of them, signs with keys of its own, and
//! holds us to what the standards ask of a client.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
        RsaKeyPair, UnparsedPublicKey,
    },
};
use axum::{
    Router,
    extract::State,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONTENT_TYPE, LOCATION},
    },
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use db::{params, row};
use kernel::{
    config::Config,
    crypto,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};
use url::Url;

use super::actors::{FIREFOX, feature};

/// Somebody as a provider knows them: claims for those that sign, documents for the others.
#[derive(Clone)]
pub struct Somebody {
    pub said: Value,
    pub emails: Value,
}

pub fn somebody(said: Value) -> Somebody {
    Somebody { said, emails: json!([]) }
}

/// A person at an OpenID provider, with a proven address.
pub fn proven(sub: &str, email: &str) -> Somebody {
    somebody(json!({ "sub": sub, "email": email, "email_verified": true, "name": "Ada Lovelace" }))
}

struct Grant {
    somebody: Somebody,
    asked: HashMap<String, String>,
}

#[derive(Default)]
pub struct Inner {
    grants: HashMap<String, Grant>,
    people: HashMap<String, Somebody>,
    /// Every answer is this, when it is set.
    pub broken: Option<(StatusCode, Value)>,
    pub keys_asked: usize,
    /// The last question for tokens.
    pub heard: HashMap<String, String>,
    /// Put over the claims of the next id tokens.
    pub claims: Value,
    now_s: i64,
    count: usize,
}

#[derive(Clone)]
pub struct StandIn {
    pub url: String,
    pub inner: Arc<Mutex<Inner>>,
}

const KID: &str = "first";

fn rsa() -> &'static RsaKeyPair {
    static KEY: OnceLock<RsaKeyPair> = OnceLock::new();
    KEY.get_or_init(|| RsaKeyPair::from_pkcs8(&tenancy::testing::ready_key(1).unwrap()).unwrap())
}

/// The key Apple would have given us, as the text of its file.
pub fn apple_key() -> &'static (String, EcdsaKeyPair) {
    static KEY: OnceLock<(String, EcdsaKeyPair)> = OnceLock::new();
    KEY.get_or_init(|| {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let text = BASE64.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\\n{text}\\n-----END PRIVATE KEY-----");
        (pem, EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref()).unwrap())
    })
}

pub fn encoded(value: &Value) -> String {
    BASE64URL_NOPAD.encode(value.to_string().as_bytes())
}

pub fn decoded(part: &str) -> Value {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
}

/// A token with this header, signed with the provider's key whatever the header says.
pub fn signed(header: &Value, claims: &Value) -> String {
    let text = format!("{}.{}", encoded(header), encoded(claims));
    let mut signature = vec![0; rsa().public_modulus_len()];
    rsa().sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))
}

/// The provider's public key as everybody can read it.
pub fn public_key() -> Vec<u8> {
    rsa().public_key().as_ref().to_vec()
}

pub fn header() -> Value {
    json!({ "alg": "RS256", "typ": "JWT", "kid": KID })
}

impl StandIn {
    /// The provider, and a service that knows it under all eight names.
    pub async fn start() -> (Self, TestJanua) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stand_in = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            inner: Arc::new(Mutex::new(Inner { claims: json!({}), ..Inner::default() })),
        };
        let router = Router::new()
            .route("/token", post(token))
            .route("/jwks", get(jwks))
            .route("/userinfo", get(userinfo))
            .route("/emails", get(emails))
            // Whoever follows a redirect of ours hears a no here.
            .route("/elsewhere", any(|| async { no("invalid_grant") }))
            .with_state(stand_in.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let t = TestJanua::start_with(stand_in.settings(&[]), feature).await;
        (stand_in, t)
    }

    /// Settings under which this server is every provider.
    pub fn settings(&self, more: &[(&str, &str)]) -> Config {
        let url = &self.url;
        let mut flags: Vec<(String, String)> = vec![
            ("apple_team_id".into(), "TEAM".into()),
            ("apple_key_id".into(), "KEY".into()),
            ("cognito_issuer".into(), format!("{url}/pool")),
            ("cognito_domain".into(), url.clone()),
        ];
        let mut parts = vec![];
        for name in ["google", "github", "apple", "microsoft", "facebook", "discord", "linkedin", "cognito"] {
            let secret = if name == "apple" { apple_key().0.clone() } else { format!("{name}-secret") };
            flags.push((format!("{name}_client_id"), format!("{name}-id")));
            flags.push((format!("{name}_client_secret"), secret));
            let signs = !matches!(name, "github" | "facebook" | "discord");
            parts.push(format!("{name}.authorize={url}/authorize?keep=this,{name}.token={url}/token"));
            match (name, signs) {
                // One speaks for many tenants, each an issuer of its own.
                ("microsoft", _) => parts.push(format!("{name}.jwks={url}/jwks,{name}.issuer={url}/{{tid}}/v2.0")),
                (_, true) => parts.push(format!("{name}.jwks={url}/jwks,{name}.issuer={url}/{name}")),
                (_, false) => parts.push(format!("{name}.userinfo={url}/userinfo")),
            }
        }
        parts.push(format!("github.emails={url}/emails"));
        flags.push(("provider_endpoints".into(), parts.join(",")));
        flags.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let sections = [tenancy::PART.settings, crate::PART.settings].concat();
        Config { listen: Config::for_tests().listen, ..Config::load(None, [], flags, &sections).unwrap() }
    }

    /// The person says yes at the provider: the code they come back with.
    pub fn agree(&self, t: &TestJanua, url: &str, somebody: Somebody) -> String {
        let asked: HashMap<String, String> = Url::parse(url).unwrap().query_pairs().into_owned().collect();
        assert_eq!((asked["response_type"].as_str(), asked["keep"].as_str()), ("code", "this"));
        let mut inner = self.inner.lock().unwrap();
        inner.now_s = t.janua.clock.now().0 / 1000;
        inner.count += 1;
        let code = format!("code-{}", inner.count);
        inner.grants.insert(code.clone(), Grant { somebody, asked });
        code
    }

    /// The claims of a good token of this provider.
    pub fn claims(&self, t: &TestJanua, provider: &str, somebody: &Somebody) -> Value {
        let now = t.janua.clock.now().0 / 1000;
        claims(&self.url, provider, somebody, now)
    }
}

fn claims(url: &str, provider: &str, somebody: &Somebody, now: i64) -> Value {
    let issuer = match somebody.said["tid"].as_str() {
        Some(tenant) => format!("{url}/{tenant}/v2.0"),
        None => format!("{url}/{provider}"),
    };
    let mut claims = json!({ "iss": issuer, "aud": format!("{provider}-id"), "iat": now, "exp": now + 3600 });
    claims.as_object_mut().unwrap().extend(somebody.said.as_object().unwrap().clone());
    claims
}

struct JsonReply(StatusCode, Value);

impl IntoResponse for JsonReply {
    fn into_response(self) -> Response {
        let mut response = (self.0, [(CONTENT_TYPE, "application/json")], self.1.to_string()).into_response();
        if self.0.is_redirection() {
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/elsewhere"));
        }
        response
    }
}

fn no(error: &str) -> JsonReply {
    JsonReply(StatusCode::BAD_REQUEST, json!({ "error": error }))
}

/// Codes for tokens, as strict as a provider is about PKCE, the redirect URI and who asks.
async fn token(State(stand_in): State<StandIn>, form: String) -> JsonReply {
    let form: HashMap<String, String> = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let mut inner = stand_in.inner.lock().unwrap();
    inner.heard.clone_from(&form);
    if let Some((status, body)) = &inner.broken {
        return JsonReply(*status, body.clone());
    }
    let client = form["client_id"].trim_end_matches("-id").to_owned();
    let Some(grant) = inner.grants.remove(&form["code"]) else {
        // GitHub says no with a 200.
        let status = if client == "github" { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        let error = if client == "github" { "bad_verification_code" } else { "invalid_grant" };
        return JsonReply(status, json!({ "error": error }));
    };
    let is_secret = match client.as_str() {
        "apple" => is_apple_secret(&form["client_secret"], &format!("{}/apple", stand_in.url), inner.now_s),
        name => form["client_secret"] == format!("{name}-secret"),
    };
    if !is_secret || grant.asked["client_id"] != form["client_id"] {
        return no("invalid_client");
    }
    let proof =
        form.get("code_verifier").map(|verifier| BASE64URL_NOPAD.encode(&crypto::digest(verifier.as_bytes())));
    if form["redirect_uri"] != grant.asked["redirect_uri"] || proof.as_ref() != grant.asked.get("code_challenge") {
        return no("invalid_grant");
    }
    let access = format!("access-{}", form["code"]);
    let mut claims = claims(&stand_in.url, &client, &grant.somebody, inner.now_s);
    if client != "linkedin" {
        claims["nonce"] = grant.asked.get("nonce").cloned().into();
    }
    claims.as_object_mut().unwrap().extend(inner.claims.as_object().unwrap().clone());
    inner.people.insert(access.clone(), grant.somebody);
    let mut answer = json!({ "access_token": access, "refresh_token": "refresh-of-the-provider", "expires_in": 3600,
                             "id_token": signed(&header(), &claims) });
    if client != "linkedin" {
        answer["token_type"] = json!("bearer");
    }
    JsonReply(StatusCode::OK, answer)
}

fn is_apple_secret(token: &str, issuer: &str, now: i64) -> bool {
    let (text, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = text.split_once('.').unwrap();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, apple_key().1.public_key().as_ref());
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
    let (header, claims) = (decoded(header), decoded(claims));
    key.verify(text.as_bytes(), &signature).is_ok()
        && (&header["alg"], &header["kid"]) == (&json!("ES256"), &json!("KEY"))
        && (&claims["iss"], &claims["sub"], &claims["aud"]) == (&json!("TEAM"), &json!("apple-id"), &json!(issuer))
        && claims["exp"].as_i64().unwrap() > now
}

async fn jwks(State(stand_in): State<StandIn>) -> JsonReply {
    let mut inner = stand_in.inner.lock().unwrap();
    inner.keys_asked += 1;
    if let Some((status, body)) = &inner.broken {
        return JsonReply(*status, body.clone());
    }
    let public = rsa().public_key();
    let part = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let rsa = json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": KID,
                      "n": part(public.modulus().big_endian_without_leading_zero()),
                      "e": part(public.exponent().big_endian_without_leading_zero()) });
    // Kinds we do not know, and one that would let everybody sign.
    let odd = json!({ "kty": "LMS", "kid": "odd" });
    let shared = json!({ "kty": "oct", "kid": "shared", "k": part(b"everybody knows"), "alg": "HS256" });
    JsonReply(StatusCode::OK, json!({ "keys": [odd, shared, rsa] }))
}

fn person(stand_in: &StandIn, headers: &HeaderMap) -> Result<Somebody, JsonReply> {
    let inner = stand_in.inner.lock().unwrap();
    if let Some((status, body)) = &inner.broken {
        return Err(JsonReply(*status, body.clone()));
    }
    assert_eq!(headers["user-agent"], "Janua", "GitHub answers nobody without a name");
    let token = headers["authorization"].to_str().unwrap().trim_start_matches("Bearer ");
    inner.people.get(token).cloned().ok_or_else(|| JsonReply(StatusCode::UNAUTHORIZED, json!({})))
}

async fn userinfo(State(stand_in): State<StandIn>, headers: HeaderMap) -> JsonReply {
    person(&stand_in, &headers).map_or_else(|said| said, |person| JsonReply(StatusCode::OK, person.said))
}

async fn emails(State(stand_in): State<StandIn>, headers: HeaderMap) -> JsonReply {
    person(&stand_in, &headers).map_or_else(|said| said, |person| JsonReply(StatusCode::OK, person.emails))
}

/// A browser that was sent to a provider.
pub struct Sent {
    pub url: String,
    pub cookie: String,
    pub state: String,
}

/// Asks where to go.
pub async fn begin(t: &TestJanua, provider: &str) -> Sent {
    sent(&t.get(&format!("/auth/oauth/{provider}/url")).await)
}

pub fn sent(answer: &Answer) -> Sent {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let url = answer.body["url"].as_str().unwrap().to_owned();
    let state = Url::parse(&url).unwrap().query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    Sent { url, cookie, state }
}

/// Comes back with a code.
pub async fn come_back(t: &TestJanua, provider: &str, sent: &Sent, code: &str) -> Answer {
    post_back(t, provider, Some(&sent.cookie), &json!({ "code": code, "state": sent.state })).await
}

pub async fn post_back(t: &TestJanua, provider: &str, cookie: Option<&str>, body: &Value) -> Answer {
    let ask = t.post(&format!("/auth/oauth/{provider}")).json(body).header("user-agent", FIREFOX);
    match cookie {
        Some(cookie) => ask.header("cookie", cookie).await,
        None => ask.await,
    }
}

/// There and back again.
pub async fn sign_in(stand_in: &StandIn, t: &TestJanua, provider: &str, somebody: Somebody) -> Answer {
    let sent = begin(t, provider).await;
    let code = stand_in.agree(t, &sent.url, somebody);
    come_back(t, provider, &sent, &code).await
}

struct Count {
    n: i64,
}
row!(Count { n });

/// The one number a statement counts.
pub async fn rows(t: &TestJanua, sql: &'static str) -> i64 {
    t.janua.db.one::<Count>(sql, params![]).await.unwrap().n
}
