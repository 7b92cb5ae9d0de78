//! Tokens of machines: access tokens that say what they are by `type`, so that no user route takes them. A token counts while
//! the machine has the generation it was issued in; a delegated one also while the user's session lives.
use std::{sync::Arc, time::Duration};

use db::Tx;
use kernel::{Janua, clock::Timestamp, crypto::Fingerprint, fault::Result};
use serde::Serialize;
use serde_json::json;

use super::{
    AGENT_EXPIRED, AGENT_SUSPENDED, Act, Kind, Machine, MachineAct, MachineClaims, MachineEvent, State,
    limits::{self, Outcome},
    targets::Granted,
};
use crate::{
    apps::{self, Keyed},
    enter::{self, Live, Living},
    events::{self, By},
    ids::{AccountId, MachineId, SessionId},
    sessions::{keys::MACHINE_TOKEN_LIFE, tokens},
};

/// How long tokens of agents and delegated tokens live.
pub const SHORT_LIFE: Duration = Duration::from_mins(15);
/// How many machines act one for another at the most.
pub const DEEPEST: usize = 3;

/// The user whom a machine acts for.
#[derive(Debug, Clone)]
pub struct Subject {
    pub account: AccountId,
    pub session: SessionId,
    /// The machines that acted for the user before.
    pub before: Option<Act>,
    /// No token outlives the one it came from.
    pub until: Option<i64>,
}

/// A token, as it is handed out.
pub struct Issued {
    pub access_token: String,
    pub expires_in: i64,
    pub scope: String,
}

/// Refuses a machine that gets no tokens now.
pub fn refuse_inactive(machine: &Machine, now: Timestamp) -> Result<()> {
    match machine.state_at(now) {
        State::Suspended => Err(AGENT_SUSPENDED.into()),
        State::Expired => Err(AGENT_EXPIRED.into()),
        State::Active | State::Pending => Ok(()),
    }
}

/// Counts and records a token, in the transaction that grants it. Call [`sign`] afterwards.
pub async fn record(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    machine: &Machine,
    granted: &Granted,
    subject: Option<&Subject>,
) -> db::Result<Outcome> {
    let mut outcome = Outcome::Counted(None);
    if machine.limits.iter().any(|limit| limit.meter == limits::TOKENS)
        && let Some(mut held) = Machine::hold(tx, machine.id).await?
    {
        outcome = limits::count(tx, janua, by, &mut held, limits::TOKENS, 1).await?;
        if matches!(outcome, Outcome::Refused(_)) {
            return Ok(outcome);
        }
    }
    machine.note_use(tx, janua.clock.now()).await?;
    let about = machine.about();
    let details = json!({ "audience": granted.audience, "scope": granted.scope(), "result": "issued",
                          "subject": subject.map(|subject| subject.account) });
    match subject {
        None => {
            let event = MachineEvent::new(machine.kind, MachineAct::TokenIssued, details);
            events::record(tx, janua, by, about, &event).await?;
        }
        Some(subject) => {
            let event = MachineEvent::delegated(details);
            events::record(tx, janua, by, about.person(subject.account), &event).await?;
        }
    }
    Ok(outcome)
}

/// Signs a token that was [recorded](record).
pub fn sign(janua: &Janua, machine: &Machine, granted: &Granted, subject: Option<&Subject>) -> Result<Issued> {
    let now = janua.clock.now();
    let iat = now.0.div_euclid(1000);
    let life = match (machine.kind, subject) {
        (Kind::Agent, _) | (_, Some(_)) => SHORT_LIFE,
        (Kind::Framework | Kind::Mcp, None) => MACHINE_TOKEN_LIFE,
    };
    let mut exp = iat + i64::try_from(life.as_secs()).unwrap_or(900);
    for end in [machine.expires_at.map(|at| at.0.div_euclid(1000)), subject.and_then(|subject| subject.until)] {
        exp = exp.min(end.unwrap_or(exp));
    }
    let act = subject.map(|subject| Act {
        sub: machine.id,
        kind: machine.kind,
        generation: machine.generation,
        act: subject.before.clone().map(Box::new),
    });
    let claims = MachineClaims {
        iss: janua.config.base_url(),
        sub: subject.map_or_else(|| machine.id.to_string(), |subject| subject.account.to_string()),
        aud: granted.audience.clone(),
        client_id: machine.id,
        jti: janua.entropy.uuid(now).to_string(),
        iat,
        exp,
        kind: machine.kind,
        generation: machine.generation,
        scope: granted.scope(),
        org_id: machine.org_id,
        owner: machine.owner_id,
        sid: subject.map(|subject| subject.session),
        act,
    };
    let access_token = tokens::sign(janua, now, tokens::TYPE, &claims)?;
    Ok(Issued { access_token, expires_in: exp - iat, scope: granted.scope() })
}

/// What we vouch for in a public lookup.
#[derive(Serialize)]
struct Attestation<'a> {
    iss: String,
    sub: &'a str,
    verified: bool,
    iat: i64,
    exp: i64,
}

/// A signed statement for others about a wallet or a domain. It is no access token.
pub fn attest(janua: &Janua, subject: &str, verified: bool) -> Result<String> {
    const LIFE_S: i64 = 300;
    let now = janua.clock.now();
    let iat = now.0.div_euclid(1000);
    let claims = Attestation { iss: janua.config.base_url(), sub: subject, verified, iat, exp: iat + LIFE_S };
    tokens::sign(janua, now, "janua-proof+jwt", &claims)
}

/// A machine that presents a valid token.
#[derive(Clone)]
pub struct Recognised {
    pub claims: Arc<MachineClaims>,
    pub machine: Arc<Machine>,
    /// The session of the user, for a delegated token.
    pub living: Option<Living>,
}

impl Recognised {
    /// Whether a service may ask about the token: it is the token's audience, or belongs to the machine's organization.
    pub async fn may_be_asked_by(&self, janua: &Janua, keyed: &Keyed) -> db::Result<bool> {
        let is_own = keyed.org_id == self.machine.org_id;
        Ok(is_own || apps::counts_at(&janua.db, &self.claims.aud, keyed.app_id).await?)
    }
}

fn is_current(claims: &MachineClaims, now: Timestamp) -> bool {
    const LEEWAY_S: i64 = 5;
    let seconds = now.0.div_euclid(1000);
    seconds < claims.exp && claims.iat <= seconds + LEEWAY_S
}

fn verified(janua: &Janua, token: &str) -> Option<Arc<MachineClaims>> {
    let live = janua.own::<Arc<Live>>();
    let key = Fingerprint::of(token);
    let claims = match live.machine_tokens.get(&key) {
        Some(claims) => claims,
        // Known as a user's, which saves a look at its signature.
        None if live.tokens.get(&key).is_some() => return None,
        None => {
            let claims: MachineClaims = tokens::signed(janua, tokens::TYPE, token)?;
            let claims = Arc::new(claims);
            live.machine_tokens.insert(key, claims.clone());
            claims
        }
    };
    (claims.iss == janua.config.base_url() && is_current(&claims, janua.clock.now())).then_some(claims)
}

/// A machine that is active in this generation, and whose owner still exists.
async fn active(janua: &Janua, id: MachineId, generation: i64) -> db::Result<Option<Arc<Machine>>> {
    let live = janua.own::<Arc<Live>>();
    let found = live.machine(janua, id).await?;
    let found = found.filter(|machine| machine.accepts(generation, janua.clock.now()));
    let Some(machine) = found else { return Ok(None) };
    let is_owned = match machine.owner_id {
        Some(owner) => live.is_enabled(janua, owner).await?,
        None => false,
    };
    Ok(is_owned.then_some(machine))
}

/// The machine behind a token that is valid now; nothing for any other token.
pub async fn recognise(janua: &Janua, token: &str) -> db::Result<Option<Recognised>> {
    let Some(claims) = verified(janua, token) else { return Ok(None) };
    let Some(machine) = active(janua, claims.client_id, claims.generation).await? else { return Ok(None) };
    let living = match (&claims.act, claims.sid) {
        (None, None) => None,
        (Some(act), Some(sid)) => {
            // Every machine on the way must be alive, and the user's session.
            for acting in act.chain() {
                if active(janua, acting.sub, acting.generation).await?.is_none() {
                    return Ok(None);
                }
            }
            let living = enter::living(janua, sid).await?;
            let living = living.filter(|living| living.person.account.id.to_string() == claims.sub);
            let Some(living) = living else { return Ok(None) };
            Some(living)
        }
        _ => return Ok(None),
    };
    Ok(Some(Recognised { claims, machine, living }))
}
