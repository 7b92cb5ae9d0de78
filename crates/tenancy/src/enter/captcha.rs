//! The proof of work asked of suspicious callers (the ALTCHA scheme): a challenge in the refusal, a pass for solving it.
use std::time::Duration;

use altcha::{CreateChallengeOptions, Payload, VerifySolutionOptions};
use axum::http::HeaderName;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Code, Fault, INTERNAL, Result},
};

use crate::once::{self, Purpose};

pub const CAPTCHA_REQUIRED: Code = Code::new(
    403,
    "captcha_required",
    "A security check is required. Solve the challenge and repeat the request with the pass.",
);
pub const NOT_SOLVED: Code = Code::new(400, "captcha_not_solved", "The solution of the challenge is wrong.");

/// The header a retried request brings its pass in.
pub const PASS: HeaderName = HeaderName::from_static("x-service-captcha-pass");

/// The purpose of a pass, which is given for the solution of a challenge.
pub const PASS_PURPOSE: Purpose = Purpose::new("captcha_pass", Duration::from_mins(10));
/// A challenge that was solved for a pass. It says itself how long it is good.
pub const CHALLENGE_PURPOSE: Purpose = Purpose::new("captcha_challenge", Duration::ZERO);

const CHALLENGE_LIFE: Duration = Duration::from_mins(10);
/// Half a second in a browser; a whole core for an attacker with thousands of tries.
const COST: u32 = 2_000;
const COUNTER: u64 = 300;
/// The number of levels. Each level doubles the work, up to eight seconds in a browser.
pub const LEVELS: u32 = 5;

/// Challenges and passes.
pub struct Captcha;

impl Captcha {
    /// A new challenge, bound to the route it was asked for and as hard as its level says.
    pub fn challenge(janua: &Janua, route: &str, level: u32) -> Result<altcha::Challenge> {
        let expires_at = janua.clock.now().plus(CHALLENGE_LIFE).0 / 1000;
        let level = level.clamp(1, LEVELS);
        let counter = u32::try_from((COUNTER + janua.entropy.up_to(COUNTER)) << (level - 1)).unwrap_or(300);
        let mut data = std::collections::BTreeMap::new();
        data.insert("route".to_owned(), route.into());
        data.insert("level".to_owned(), level.into());
        data.insert("expires".to_owned(), expires_at.into());
        let options = CreateChallengeOptions {
            cost: COST,
            counter: Some(counter),
            data: Some(data),
            hmac_key_signature_secret: Some(key(janua, "solution")),
            hmac_signature_secret: Some(key(janua, "challenge")),
            ..CreateChallengeOptions::default()
        };
        altcha::create_challenge(options).map_err(|error| INTERNAL.caused_by(error))
    }

    /// The refusal that carries a challenge.
    pub fn demand(janua: &Janua, route: &str, level: u32) -> Fault {
        match Self::challenge(janua, route, level) {
            Ok(challenge) => Fault::from(CAPTCHA_REQUIRED).with_extra("challenge", &challenge),
            Err(fault) => fault,
        }
    }

    /// A pass for a solved challenge, once for each challenge.
    pub async fn redeem(tx: &mut Tx, janua: &Janua, token: &Secret) -> Result<Secret> {
        let Solved { payload, route, level, expires } = read(janua, token).ok_or(NOT_SOLVED)?;
        let spent = payload.challenge.signature.unwrap_or_default().into();
        let (now, born) = (janua.clock.now(), expires.minus(CHALLENGE_LIFE));
        let until = now.plus(CHALLENGE_LIFE);
        if !once::first_use(tx, CHALLENGE_PURPOSE, &spent, born, now, until).await? {
            return Err(once::TOKEN_SPENT.into());
        }
        Ok(once::issue(tx, janua, PASS_PURPOSE, None, format!("{level} {route}").as_bytes()).await?)
    }

    /// Whether this pass was given for this route and for at least as much work; it is used up either way.
    pub async fn accept(janua: &Janua, pass: &Secret, route: &str, level: u32) -> db::Result<bool> {
        let spend = async {
            db::transact!(janua.db, async |tx| once::spend(tx, PASS_PURPOSE, pass, janua.clock.now()).await)
        };
        let spent = db::aside(spend).await?;
        let aside = spent.and_then(|spent| spent.aside(janua)).and_then(|aside| String::from_utf8(aside).ok());
        let given = aside.as_deref().and_then(|aside| aside.split_once(' '));
        Ok(given.is_some_and(|(worth, given)| given == route && worth.parse().is_ok_and(|worth: u32| level <= worth)))
    }
}

/// A challenge of ours that was solved.
struct Solved {
    payload: Payload,
    route: String,
    level: u64,
    expires: Timestamp,
}

fn key(janua: &Janua, purpose: &str) -> String {
    janua.vault.mac("captcha", purpose.as_bytes())
}

fn read(janua: &Janua, token: &Secret) -> Option<Solved> {
    let text = token.expose().trim().as_bytes();
    let bytes = BASE64.decode(text).or_else(|_| BASE64URL_NOPAD.decode(text)).ok()?;
    let payload: Payload = serde_json::from_slice(&bytes).ok()?;
    let mut options = VerifySolutionOptions::new(&payload.challenge, &payload.solution, key(janua, "challenge"));
    options.hmac_key_signature_secret = Some(key(janua, "solution"));
    let verified = altcha::verify_solution(options).ok()?.verified;
    let data = payload.challenge.parameters.data.clone()?;
    let expires = data.get("expires")?.as_i64()?;
    let route = data.get("route")?.as_str()?.to_owned();
    let level = data.get("level")?.as_u64()?;
    // Compares with our own clock, not the library's.
    let is_good = verified && janua.clock.now().0 / 1000 < expires;
    let expires = Timestamp(expires.saturating_mul(1000));
    is_good.then_some(Solved { payload, route, level, expires })
}
