//! Client assertions (RFC 7523, `private_key_jwt`): a machine signs a short JWT with its own key instead of sending a secret.
use std::time::Duration;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use data_encoding::BASE64URL_NOPAD;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Fault, INVALID, Result},
    ports::outgoing::{self, Call, Limits, Reach},
    recent::Recent,
    transact,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Machine, MachineId};
use crate::{once, sessions::audience::Audience};

/// The `client_assertion_type` of such a JWT.
pub const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

pub const ASSERTION: once::Purpose = once::Purpose::new("client_assertion", Duration::ZERO);

const LONGEST_LIFE_S: i64 = 300;
const LEEWAY_S: i64 = 5;
const MOST_KEYS: usize = 5;
const MOST_BYTES: usize = 16 * 1024;
const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: MOST_BYTES };

/// Key sets that were fetched, by their URL.
pub struct KeySets {
    found: Recent<String, Value>,
    /// URLs that had none: anybody may send an assertion, and each must not become a request to another server.
    missing: Recent<String, ()>,
}

impl Default for KeySets {
    fn default() -> Self {
        let (found, missing) = (Duration::from_mins(5), Duration::from_secs(30));
        Self { found: Recent::new(1_000, found), missing: Recent::new(1_000, missing) }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: i64,
    iat: Option<i64>,
    nbf: Option<i64>,
    jti: String,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    d: Option<Value>,
}

impl Jwk {
    fn algorithm(&self) -> Option<&'static str> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("OKP", Some("Ed25519")) => Some("EdDSA"),
            ("EC", Some("P-256")) => Some("ES256"),
            ("RSA", _) => Some("RS256"),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        let bytes = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).map_or(0, |bytes| bytes.len());
        match self.algorithm() {
            Some("EdDSA") => bytes(&self.x) == 32,
            Some("ES256") => bytes(&self.x) == 32 && bytes(&self.y) == 32,
            Some("RS256") => (256..=1024).contains(&bytes(&self.n)) && bytes(&self.e) > 0,
            _ => false,
        }
    }

    fn verifies(&self, alg: &str, text: &[u8], signature: &[u8]) -> bool {
        let is_meant = self.algorithm() == Some(alg) && self.alg.as_deref().is_none_or(|said| said == alg);
        let read = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).unwrap_or_default();
        if !is_meant {
            return false;
        }
        match alg {
            "EdDSA" => UnparsedPublicKey::new(&ED25519, read(&self.x)).verify(text, signature).is_ok(),
            "ES256" => {
                let point = [vec![4], read(&self.x), read(&self.y)].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(text, signature).is_ok()
            }
            "RS256" => RsaPublicKeyComponents { n: read(&self.n), e: read(&self.e) }
                .verify(&RSA_PKCS1_2048_8192_SHA256, text, signature)
                .is_ok(),
            _ => false,
        }
    }
}

fn keys(set: &Value) -> Option<Vec<Jwk>> {
    let keys: Vec<Jwk> = serde_json::from_value(set.get("keys")?.clone()).ok()?;
    (!keys.is_empty() && keys.len() <= MOST_KEYS).then_some(keys)
}

/// Refuses a key set that no assertion could be checked with, and one that holds a private key.
pub fn check_keys(set: &Value) -> Result<()> {
    let wrong = |why: &str| -> Fault { INVALID.at("jwks", "wrong_form", why) };
    if set.to_string().len() > MOST_BYTES {
        return Err(wrong("must be at most 16 kB"));
    }
    let keys = keys(set).ok_or_else(|| wrong("must have one to five keys"))?;
    if keys.iter().any(|key| key.d.is_some()) {
        return Err(wrong("must not contain a private key"));
    }
    if keys.iter().all(Jwk::is_whole) { Ok(()) } else { Err(wrong("must have Ed25519, P-256 or RSA keys")) }
}

/// The machine that signed an assertion, which counts once. Nothing for any assertion that does not hold.
pub async fn verify(janua: &Janua, text: &Secret) -> Result<Option<Machine>> {
    let now = janua.clock.now();
    let Some(read) = Read::of(text.expose()) else { return Ok(None) };
    let Some(id) = read.machine(janua, now) else { return Ok(None) };
    let Some(machine) = Machine::find(&janua.db, id).await? else { return Ok(None) };
    let Some(set) = key_set(janua, &machine).await? else { return Ok(None) };
    let named = |key: &Jwk| read.header.kid.is_none() || key.kid.is_none() || key.kid == read.header.kid;
    let keys = keys(&set).unwrap_or_default();
    let mut fitting = keys.iter().filter(|key| named(key));
    if !fitting.any(|key| key.verifies(&read.header.alg, read.text.as_bytes(), &read.signature)) {
        return Ok(None);
    }
    let (born, until) =
        (Timestamp(read.claims.iat.map_or(now.0, |iat| iat * 1000)), now.plus(Duration::from_mins(10)));
    let used = Secret::from(format!("{id}\n{}", read.claims.jti));
    let is_first = db::aside(async {
        transact!(janua, async |tx| Ok(once::first_use(tx, ASSERTION, &used, born, now, until).await?))
    })
    .await?;
    Ok(is_first.then_some(machine))
}

/// The parts of an assertion.
struct Read<'a> {
    text: &'a str,
    header: Header,
    claims: Claims,
    signature: Vec<u8>,
}

impl<'a> Read<'a> {
    fn of(assertion: &'a str) -> Option<Self> {
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).ok();
        let (text, signature) = assertion.rsplit_once('.').filter(|_| assertion.len() <= 8 * 1024)?;
        let (header, claims) = text.split_once('.')?;
        Some(Self {
            text,
            header: serde_json::from_slice(&decode(header)?).ok()?,
            claims: serde_json::from_slice(&decode(claims)?).ok()?,
            signature: decode(signature)?,
        })
    }

    /// The machine that signed it, if its claims are valid now.
    fn machine(&self, janua: &Janua, now: Timestamp) -> Option<MachineId> {
        let (claims, seconds, base) = (&self.claims, now.0.div_euclid(1000), janua.config.base_url());
        let is_for_us = claims.aud.has(&base) || claims.aud.has(&format!("{base}/oauth/token"));
        let is_timely = seconds < claims.exp
            && claims.exp <= seconds + LONGEST_LIFE_S + LEEWAY_S
            && claims.iat.is_none_or(|iat| iat <= seconds + LEEWAY_S)
            && claims.nbf.is_none_or(|nbf| nbf <= seconds + LEEWAY_S);
        let is_named = claims.iss == claims.sub && (1..=200).contains(&claims.jti.len());
        claims.sub.parse().ok().filter(|_| is_for_us && is_timely && is_named)
    }
}

/// The keys of a machine: those it registered, or those it publishes.
async fn key_set(janua: &Janua, machine: &Machine) -> Result<Option<Value>> {
    if machine.jwks.is_some() {
        return Ok(machine.jwks.clone());
    }
    let Some(uri) = &machine.jwks_uri else { return Ok(None) };
    let sets = janua.own::<KeySets>();
    if let Some(known) = sets.found.get(uri) {
        return Ok(Some(known));
    }
    if sets.missing.get(uri).is_some() {
        return Ok(None);
    }
    let set = fetch(janua, uri).await;
    match &set {
        Some(set) => sets.found.insert(uri.clone(), set.clone()),
        None => sets.missing.insert(uri.clone(), ()),
    }
    Ok(set)
}

async fn fetch(janua: &Janua, uri: &str) -> Option<Value> {
    let url = outgoing::endpoint(uri).ok()?;
    let headers: HeaderMap = [
        (header::ACCEPT, HeaderValue::from_static("application/json")),
        (header::USER_AGENT, HeaderValue::from_static("Janua")),
    ]
    .into_iter()
    .collect();
    let call = Call { method: Method::GET, url, headers, body: "".into(), limits: LIMITS, reach: Reach::Public };
    let reply = match janua.outgoing.send(call).await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%error, "the keys of a machine cannot be fetched");
            return None;
        }
    };
    let set: Option<Value> = serde_json::from_slice(&reply.body).ok().filter(|_| reply.status.is_success());
    set.filter(|set| !reply.is_cut && keys(set).is_some())
}
