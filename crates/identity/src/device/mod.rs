//! Device authorization (RFC 8628), for programs without a browser. The program shows a code, the user enters it
//! where they are signed in, and the program polls until it gets a session.
pub mod approve;

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, header::AUTHORIZATION},
    response::{IntoResponse as _, Response},
};
use db::{Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Code, Fault, Result},
    http::{FormOrJson, Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId, factors::Factors},
    apps::{ApplicationId, scopes::Scopes},
    enter::{Admitted, Delivery, Visitor},
    sessions::{
        device_name,
        sign_in::{self, CompletedSignIn, Entered, SignInMethod, SignedIn, Typed},
    },
};

use crate::{
    BODY,
    oauth::{self, Credentials},
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/device/code", begin_device, "start device authorization")
        .fails(&[oauth::INVALID_REQUEST, oauth::INVALID_CLIENT])
        .post("/auth/device/token", poll_device, "poll for the device token after approval")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<DeviceTokens>(200, "application/json")
        .fails(&ANSWERS)
        .and(approve::routes())
}

const LIFE: Duration = Duration::from_mins(10);
/// How long a program waits between two questions, and how much longer once it was too fast.
const INTERVAL_S: i64 = 5;
const SLOWER_S: i64 = 5;
/// No vowels, so that no code is a word, and nothing that looks like something else. Eight of them are 34 bits.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;

const PENDING: Code =
    Code::new(400, "authorization_pending", "The user has not decided yet. Ask again after the interval.");
const SLOW_DOWN: Code = Code::new(400, "slow_down", "Polling too fast. Wait five seconds longer between requests.");
const DENIED: Code = Code::new(400, "access_denied", "The user denied access.");
const EXPIRED: Code = Code::new(400, "expired_token", "The device code has expired. Start again.");
const INVALID_GRANT: Code = Code::new(400, "invalid_grant", "The device code is invalid or was already used.");
/// What a program that asks can hear, beside the tokens.
pub const ANSWERS: [Code; 5] = [PENDING, SLOW_DOWN, DENIED, EXPIRED, INVALID_GRANT];

#[derive(Serialize, JsonSchema)]
struct Begun {
    device_code: String,
    /// The code that the user enters.
    user_code: String,
    /// The URL of the page to enter the code.
    verification_uri: String,
    /// The same with the code in it, for a QR code.
    verification_uri_complete: String,
    /// Seconds.
    expires_in: u64,
    /// Seconds between two questions.
    interval: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Begin {
    /// The requested scopes. Default: all.
    #[schemars(length(max = 2000))]
    scope: Option<String>,
    #[serde(flatten)]
    client: Credentials,
}

/// A program of the person's own gets a session like theirs; an app gets what its scopes say.
async fn begin_device(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    headers: HeaderMap,
    FormOrJson(body): FormOrJson<Begin>,
) -> Result<Json<Begun>> {
    let is_app = visitor.app.is_some() || body.client.client_id.is_some() || headers.contains_key(AUTHORIZATION);
    let application = if is_app {
        let keyed = oauth::client_of(&janua, &headers, &visitor, &body.client).await?.keyed;
        Some(keyed.ok_or(oauth::INVALID_CLIENT)?.app_id)
    } else {
        None
    };
    let scopes = application.map(|_| body.scope.as_deref().map_or_else(Scopes::all, Scopes::standard));
    let (token, now) = (janua.entropy.token(), janua.clock.now());
    let user_code: String = janua.entropy.bytes::<{ 4 * LENGTH }>().chunks(4).map(letter).collect();
    janua
        .db
        .exec(
            "INSERT INTO device_code (hash, user_code_hash, state, device, ip, interval_s, polled_at, created_at,
                                      expires_at, app_id, scopes)
             VALUES ($1, $2, 'pending', $3, $4, $5, 0, $6, $7, $8, $9)",
            params![
                crypto::hash(token.expose().as_bytes()),
                user_code_hash(&janua, &user_code),
                device_name(&visitor.user_agent),
                visitor.client.address.to_string(),
                INTERVAL_S,
                now,
                now.plus(LIFE),
                application,
                scopes.as_ref()
            ],
        )
        .await?;
    let shown = format!("{}-{}", &user_code[..LENGTH / 2], &user_code[LENGTH / 2..]);
    let verification_uri = format!("{}/device", janua.config.base_url());
    Ok(Json(Begun {
        device_code: token.expose().to_owned(),
        verification_uri_complete: format!("{verification_uri}?user_code={shown}"),
        user_code: shown,
        verification_uri,
        expires_in: LIFE.as_secs(),
        interval: INTERVAL_S,
    }))
}

/// A letter out of four random bytes; the small bias is less than a billionth.
fn letter(bytes: &[u8]) -> char {
    let number = bytes.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
    char::from(LETTERS[number % LETTERS.len()])
}

/// As it is compared, however it was typed. Keyed, because it is short.
fn user_code_hash(janua: &Janua, typed: &str) -> String {
    let kept: String = typed.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_uppercase()).collect();
    janua.vault.mac("device-code", kept.as_bytes())
}

#[derive(Deserialize, JsonSchema)]
struct Poll {
    device_code: Typed,
}

struct Waiting {
    state: String,
    account_id: Option<AccountId>,
    interval_s: i64,
    polled_at: Timestamp,
    expires_at: Timestamp,
    app_id: Option<ApplicationId>,
    methods: Option<Vec<String>>,
    authenticated_at: Option<Timestamp>,
    scopes: Option<Scopes>,
}
row!(Waiting { state, account_id, interval_s, polled_at, expires_at, app_id, methods, authenticated_at, scopes });

/// The tokens of a device under the names of the standard (RFC 8628, 3.5), and under those of every other sign-in.
#[derive(Serialize, JsonSchema)]
struct DeviceTokens {
    #[serde(flatten)]
    tokens: oauth::Tokens,
    #[serde(flatten)]
    signed_in: SignedIn,
}

impl DeviceTokens {
    fn of(janua: &Janua, person: &CompletedSignIn) -> Result<Self> {
        let (signed_in, _) = person.hand_out(janua)?;
        Ok(Self { tokens: oauth::Tokens::handed_out(janua, person, &signed_in, None)?, signed_in })
    }
}

/// What a question finds.
pub enum Found {
    In(Box<Entered>),
    Not(Code),
}

async fn poll_device(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    FormOrJson(body): FormOrJson<Poll>,
) -> Result<Response> {
    let hash = crypto::hash(body.device_code.0.expose().as_bytes());
    let found = transact!(janua, async |tx| poll(tx, &janua, &visitor, &hash).await)?;
    match found {
        Found::In(entered) => match *entered {
            Entered::In(person) => Ok(Json(DeviceTokens::of(&janua, &person)?).into_response()),
            entered => entered.answer(&janua),
        },
        // Clients of the standard look for these fields.
        Found::Not(code) => {
            Err(Fault::from(code).with_extra("error", &code.name).with_extra("error_description", &code.says))
        }
    }
}

pub async fn poll(tx: &mut Tx, janua: &Janua, visitor: &Visitor, hash: &str) -> Result<Found> {
    let now = janua.clock.now();
    let sql = "SELECT state, account_id, interval_s, polled_at, expires_at, app_id, methods, authenticated_at,
                      scopes
               FROM device_code WHERE hash = $1";
    // A code is for the app that asked for it.
    let through = visitor.app.as_ref().map(|keyed| keyed.app_id);
    let waiting = tx.opt::<Waiting>(sql, params![hash]).await?.filter(|waiting| waiting.app_id == through);
    let Some(waiting) = waiting else { return Ok(Found::Not(INVALID_GRANT)) };
    if waiting.expires_at <= now {
        return Ok(Found::Not(EXPIRED));
    }
    // Whoever ends sessions holds the account first, and then what would become one.
    if let ("approved", Some(id)) = (waiting.state.as_str(), waiting.account_id) {
        Account::hold(tx, id).await?;
    }
    let pause = Duration::from_secs(u64::try_from(waiting.interval_s).unwrap_or(0));
    let is_too_fast = now < waiting.polled_at.plus(pause) && waiting.state == "pending";
    let slower = if is_too_fast { SLOWER_S } else { 0 };
    let sql = "UPDATE device_code SET polled_at = $2, interval_s = interval_s + $3 WHERE hash = $1";
    tx.exec(sql, params![hash, now, slower]).await?;
    match (waiting.state.as_str(), waiting.account_id) {
        _ if is_too_fast => Ok(Found::Not(SLOW_DOWN)),
        ("pending", _) => Ok(Found::Not(PENDING)),
        ("denied", _) => Ok(Found::Not(DENIED)),
        ("approved", Some(id)) => {
            // One statement decides who gets it.
            let sql = "UPDATE device_code SET state = 'used' WHERE hash = $1 AND state = 'approved'";
            let is_ours = tx.exec(sql, params![hash]).await? == 1;
            let account = if is_ours { Account::find(tx, id).await? } else { None };
            let Some(account) = account else { return Ok(Found::Not(INVALID_GRANT)) };
            // The device has proven what whoever let it in had proven, when they had, and nothing more.
            let has = |mark: &&str| waiting.methods.iter().flatten().any(|method| method == mark);
            let gate_mark = ["mfa", "trusted"].into_iter().find(has);
            if gate_mark.is_none() && Factors::of(&mut *tx, id).await?.is_on() {
                return Ok(Found::Not(INVALID_GRANT));
            }
            let since = waiting.authenticated_at;
            let scopes = waiting.scopes;
            let way = SignInMethod { method: "device", gate_mark, since, delivery: Delivery::Body, scopes };
            Ok(Found::In(Box::new(sign_in::enter(tx, janua, visitor, account, way).await?)))
        }
        _ => Ok(Found::Not(INVALID_GRANT)),
    }
}

/// What was approved and not fetched yet is off: it would be a session that outlives the end of all sessions.
pub async fn withdraw(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let sql = "UPDATE device_code SET state = 'denied' WHERE account_id = $1 AND state = 'approved'";
    tx.exec(sql, params![account]).await?;
    Ok(())
}
