//! A provider that stands in for Google at a development server: whoever is chosen on its page is signed in. It is on this
//! machine only, has a key of its own at each start, and lives by the clock of the server.
use std::{
    collections::HashMap,
    fmt::Write as _,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use anyhow::{Result, anyhow};
use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use axum::{
    Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION},
    },
    response::{Html, IntoResponse as _, Response},
    routing::get,
};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use kernel::entropy::Entropy;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::{Host, Url};

const CLIENT: &str = "development";
/// Known to everybody; it guards nothing but that the server sends one.
const SECRET: &str = "development-secret";
const KEY_ID: &str = "development";
/// How long a code and a token count, in seconds.
const CODE_S: i64 = 60;
const TOKEN_S: i64 = 3600;

/// Whether the flags leave Google to the stand-in.
pub fn is_wanted(flags: &[(String, String)]) -> bool {
    !flags.iter().any(|(name, _)| name.starts_with("google_") || name == "provider_endpoints")
}

/// Begins to serve, and says which settings lead there.
pub async fn start(clock: Arc<AtomicI64>) -> Result<Vec<(String, String)>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let provider = Arc::new(Provider::new(url.clone(), clock)?);
    let routes = Router::new()
        .route("/authorize", get(choose).post(chosen))
        .route("/token", axum::routing::post(token))
        .route("/keys", get(keys))
        .with_state(provider);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let endpoints = ["authorize", "token"].map(|part| format!("google.{part}={url}/{part}"));
    let endpoints = format!("{},google.jwks={url}/keys,google.issuer={url}", endpoints.join(","));
    Ok([("google_client_id", CLIENT), ("google_client_secret", SECRET), ("provider_endpoints", &endpoints)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec())
}

struct Provider {
    url: String,
    clock: Arc<AtomicI64>,
    key: EncodingKey,
    public: Value,
    codes: Mutex<HashMap<String, Grant>>,
}

/// Where somebody comes from and is sent back to.
#[derive(Clone, Serialize, Deserialize)]
struct Asked {
    client_id: String,
    redirect_uri: String,
    #[serde(default)]
    state: String,
    nonce: Option<String>,
    code_challenge: Option<String>,
}

/// Who they say they are.
#[derive(Deserialize)]
struct Choice {
    #[serde(flatten)]
    asked: Asked,
    email: String,
    #[serde(default)]
    name: String,
    /// Of the checkbox that says the email is not confirmed.
    unconfirmed: Option<String>,
}

/// What a code stands for.
struct Grant {
    choice: Choice,
    until: i64,
}

#[derive(Deserialize)]
struct Redemption {
    code: String,
    client_id: String,
    client_secret: String,
    redirect_uri: String,
    code_verifier: Option<String>,
}

impl Provider {
    fn new(url: String, clock: Arc<AtomicI64>) -> Result<Self> {
        let wrong = |_| anyhow!("cannot make a key for the development provider");
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(wrong)?;
        let private = pair.to_pkcs8v1().map_err(wrong)?;
        // A point that is not compressed: 4, then the two coordinates.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|coordinate| BASE64URL_NOPAD.encode(coordinate));
        let public =
            json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": KEY_ID, "x": x, "y": y });
        let key = EncodingKey::from_ec_der(private.as_ref());
        Ok(Self { url, clock, key, public, codes: Mutex::default() })
    }

    fn now(&self) -> i64 {
        self.clock.load(Relaxed) / 1000
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Grant>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id_token(&self, choice: &Choice) -> Result<String> {
        let (now, email) = (self.now(), choice.email.trim().to_lowercase());
        let name = match choice.name.trim() {
            "" => email.split('@').next().unwrap_or_default().to_owned(),
            name => name.to_owned(),
        };
        let claims = json!({
            "iss": self.url, "aud": CLIENT, "iat": now, "exp": now + TOKEN_S, "nonce": choice.asked.nonce,
            "sub": &HEXLOWER.encode(digest(&SHA256, email.as_bytes()).as_ref())[..21],
            "email": email, "email_verified": choice.unconfirmed.is_none(), "name": name,
        });
        let header = Header { kid: Some(KEY_ID.into()), ..Header::new(Algorithm::ES256) };
        Ok(encode(&header, &claims, &self.key)?)
    }
}

/// The page on which one chooses who to be.
async fn choose(RawQuery(query): RawQuery) -> Response {
    match read::<Asked>(query.unwrap_or_default().as_bytes()) {
        Ok(asked) => ([(CACHE_CONTROL, "no-store")], Html(page(&asked))).into_response(),
        Err(why) => refusal(why),
    }
}

fn refusal(why: String) -> Response {
    (StatusCode::BAD_REQUEST, why + "\n").into_response()
}

fn read<T: for<'a> Deserialize<'a> + AsRef<Asked>>(form: &[u8]) -> Result<T, String> {
    let found: T = serde_urlencoded::from_bytes(form).map_err(|error| error.to_string())?;
    let asked = found.as_ref();
    let is_here = Url::parse(&asked.redirect_uri).ok().is_some_and(|url| {
        let is_this_machine = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        url.scheme() == "http" && is_this_machine
    });
    if !is_here || asked.client_id != CLIENT {
        return Err("This provider serves the development server alone.".into());
    }
    Ok(found)
}

impl AsRef<Self> for Asked {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsRef<Asked> for Choice {
    fn as_ref(&self) -> &Asked {
        &self.asked
    }
}

async fn chosen(State(provider): State<Arc<Provider>>, body: Bytes) -> Response {
    let choice: Choice = match read(&body) {
        Ok(choice) => choice,
        Err(why) => return refusal(why),
    };
    let Ok(mut back) = Url::parse(&choice.asked.redirect_uri) else { return StatusCode::BAD_REQUEST.into_response() };
    if choice.email.contains('@') {
        let code = random();
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &choice.asked.state);
        let until = provider.now() + CODE_S;
        provider.codes().insert(code, Grant { choice, until });
    } else {
        back.query_pairs_mut().append_pair("error", "access_denied").append_pair("state", &choice.asked.state);
    }
    (StatusCode::SEE_OTHER, [(LOCATION, String::from(back))]).into_response()
}

async fn token(State(provider): State<Arc<Provider>>, body: Bytes) -> Response {
    let refuse = |why: &str| (StatusCode::BAD_REQUEST, as_json(&json!({ "error": why }))).into_response();
    let Ok(given) = serde_urlencoded::from_bytes::<Redemption>(&body) else { return refuse("invalid_request") };
    if (given.client_id.as_str(), given.client_secret.as_str()) != (CLIENT, SECRET) {
        return refuse("invalid_client");
    }
    let Some(Grant { choice, until }) = provider.codes().remove(&given.code) else { return refuse("invalid_grant") };
    let is_proven = choice.asked.code_challenge.as_ref().is_none_or(|challenge| {
        let verifier = given.code_verifier.unwrap_or_default();
        BASE64URL_NOPAD.encode(digest(&SHA256, verifier.as_bytes()).as_ref()) == *challenge
    });
    if provider.now() > until || given.redirect_uri != choice.asked.redirect_uri || !is_proven {
        return refuse("invalid_grant");
    }
    match provider.id_token(&choice) {
        Ok(id_token) => {
            let answer = json!({
                "access_token": random(), "token_type": "Bearer", "expires_in": TOKEN_S, "id_token": id_token,
            });
            as_json(&answer)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn keys(State(provider): State<Arc<Provider>>) -> Response {
    as_json(&json!({ "keys": [provider.public] }))
}

fn as_json(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], value.to_string()).into_response()
}

fn random() -> String {
    Entropy::system().token().expose().to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn page(asked: &Asked) -> String {
    let fields = serde_json::to_value(asked).unwrap_or_default();
    let mut hidden = String::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            let _ = write!(hidden, "<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escaped(value));
        }
    }
    let mut people = String::new();
    for (email, name, _) in cli::PEOPLE {
        let _ = write!(
            people,
            "<form method=\"post\" action=\"/authorize\">{hidden}<input type=\"hidden\" name=\"name\" \
             value=\"{name}\"><button class=\"who\" name=\"email\" value=\"{email}\"><b>{name}</b>\
             <span>{email}</span></button></form>"
        );
    }
    PAGE.replace("{people}", &people).replace("{hidden}", &hidden)
}

const PAGE: &str = include_str!("provider.html");

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(redirect_uri: &str) -> String {
        let asked = Asked {
            client_id: CLIENT.into(),
            redirect_uri: redirect_uri.into(),
            state: "\"><script>".into(),
            nonce: None,
            code_challenge: None,
        };
        serde_urlencoded::to_string(asked).unwrap()
    }

    #[test]
    fn it_sends_people_to_this_machine_only_and_writes_nothing_raw() {
        let here = asked("http://localhost:8080/auth/social/google/callback");
        let found: Asked = read(here.as_bytes()).expect("here");
        assert!(!page(&found).contains("<script>"), "{}", page(&found));
        for elsewhere in [
            "https://example.com/",
            "http://localhost.example.com/",
            "http://127.example.com/",
            "http://10.0.0.1/",
            "javascript:1",
        ] {
            assert!(read::<Asked>(asked(elsewhere).as_bytes()).is_err(), "{elsewhere}");
        }
    }
}
