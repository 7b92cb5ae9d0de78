//! Whether a token was signed by the provider, for us, and is good now.
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{Secret, same},
    fault::{Code, Result},
};
use serde_json::Value;

use super::{
    providers::{Provider, Providers},
    table::Source,
};

pub const INVALID_ID_TOKEN: Code =
    Code::new(401, "invalid_id_token", "The id token is invalid, has expired or was already used.");

/// How far the provider's clock and ours may lie apart.
const LEEWAY_S: i64 = 60;
const LONGEST: usize = 16 * 1024;

/// The claims of a token that stood up to everything but the nonce.
pub struct Verified(pub Value);

impl Verified {
    /// Until when the token is good, as far as we are concerned.
    pub fn until(&self) -> Timestamp {
        Timestamp(self.0["exp"].as_i64().unwrap_or_default().saturating_add(LEEWAY_S).saturating_mul(1000))
    }

    pub fn born(&self) -> Timestamp {
        Timestamp(self.0["iat"].as_i64().unwrap_or_default().saturating_mul(1000))
    }

    /// Whether it was made for this very attempt.
    pub fn has_nonce(&self, source: &Source, nonce: &Secret) -> bool {
        match (&self.0["nonce"], source) {
            (Value::String(said), _) => same(said.as_bytes(), nonce.expose().as_bytes()),
            (Value::Null, Source::IdToken { echoes_nonce, .. }) => !echoes_nonce,
            _ => false,
        }
    }
}

/// The part of a token that its signature covers. What follows can be written in more than one way.
pub fn signed_part(token: &Secret) -> Secret {
    token.expose().rsplit_once('.').map_or("", |(text, _)| text).to_owned().into()
}

pub async fn verify(janua: &Janua, provider: &Provider, token: &Secret) -> Result<Verified> {
    let now = janua.clock.now();
    if token.expose().len() > LONGEST {
        return Err(INVALID_ID_TOKEN.into());
    }
    // The header only chooses among the keys of the provider: a key, or an address of one, in it is not looked at.
    let header = decode_header(token.expose()).map_err(|_| INVALID_ID_TOKEN)?;
    let (Some(keys), Some(id)) = (&provider.keys, &header.kid) else { return Err(INVALID_ID_TOKEN.into()) };
    let key = keys.find(janua.own::<Providers>().wire()?, id, now).await?.ok_or(INVALID_ID_TOKEN)?;
    let allowed = algorithms(&key);
    if !allowed.contains(&header.alg) {
        return Err(INVALID_ID_TOKEN.into());
    }
    let mut rules = Validation::new(header.alg);
    // The library would look at the system's clock, and at the audience as one of many; both are looked at below.
    (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
    rules.required_spec_claims.clear();
    let key = DecodingKey::from_jwk(&key).map_err(|_| INVALID_ID_TOKEN)?;
    let claims = decode::<Value>(token.expose(), &key, &rules).map_err(|_| INVALID_ID_TOKEN)?.claims;
    let is_good = is_current(&claims, now) && is_for(&claims, &provider.client_id) && is_from(&claims, provider);
    if is_good { Ok(Verified(claims)) } else { Err(INVALID_ID_TOKEN.into()) }
}

/// What a key may have signed with: the key decides, not the token. A key both sides would know is none.
fn algorithms(key: &Jwk) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    if matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_))) {
        return vec![];
    }
    let of_kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => vec![ES256],
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P384 => vec![ES384],
        AlgorithmParameters::OctetKeyPair(_) => vec![EdDSA],
        AlgorithmParameters::EllipticCurve(_) | AlgorithmParameters::OctetKey(_) => vec![],
    };
    let is_said = |algorithm: &Algorithm| match key.common.key_algorithm {
        None => true,
        Some(said) => named(*algorithm) == said,
    };
    of_kind.into_iter().filter(is_said).collect()
}

fn named(algorithm: Algorithm) -> KeyAlgorithm {
    match algorithm {
        Algorithm::HS256 => KeyAlgorithm::HS256,
        Algorithm::HS384 => KeyAlgorithm::HS384,
        Algorithm::HS512 => KeyAlgorithm::HS512,
        Algorithm::ES256 => KeyAlgorithm::ES256,
        Algorithm::ES384 => KeyAlgorithm::ES384,
        Algorithm::RS256 => KeyAlgorithm::RS256,
        Algorithm::RS384 => KeyAlgorithm::RS384,
        Algorithm::RS512 => KeyAlgorithm::RS512,
        Algorithm::PS256 => KeyAlgorithm::PS256,
        Algorithm::PS384 => KeyAlgorithm::PS384,
        Algorithm::PS512 => KeyAlgorithm::PS512,
        Algorithm::EdDSA => KeyAlgorithm::EdDSA,
    }
}

fn is_current(claims: &Value, now: Timestamp) -> bool {
    let seconds = now.0.div_euclid(1000);
    let exp = claims["exp"].as_i64();
    let (iat, nbf) = (claims["iat"].as_i64(), claims["nbf"].as_i64());
    exp.is_some_and(|exp| seconds < exp.saturating_add(LEEWAY_S))
        && iat.is_some_and(|iat| iat <= seconds + LEEWAY_S)
        && (claims["nbf"].is_null() || nbf.is_some_and(|nbf| nbf <= seconds + LEEWAY_S))
}

/// For us alone, or for us among others when it was asked for by us (`azp`).
fn is_for(claims: &Value, client_id: &str) -> bool {
    let is_us = |value: &Value| value.as_str() == Some(client_id);
    match &claims["aud"] {
        Value::Array(all) if all.len() > 1 => all.iter().any(is_us) && is_us(&claims["azp"]),
        Value::Array(all) => all.iter().any(is_us),
        one => is_us(one),
    }
}

fn is_from(claims: &Value, provider: &Provider) -> bool {
    let said = claims["iss"].as_str().unwrap_or_default();
    provider.issuers.iter().any(|issuer| match issuer.split_once("{tid}") {
        None => issuer == said,
        // Each tenant of Microsoft is an issuer of its own, and may speak for itself alone.
        Some((before, after)) => {
            let tenant = claims["tid"].as_str().filter(|tid| is_uuid(tid));
            tenant.is_some_and(|tid| said == format!("{before}{tid}{after}"))
        }
    })
}

pub fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
