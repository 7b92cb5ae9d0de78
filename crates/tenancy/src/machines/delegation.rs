//! Machines that act for a user (RFC 8693). A delegated token can do what both the machine and the token it came from can do,
//! at most three machines deep, and dies with the user's session and with every machine on the way.
use kernel::{
    Janua,
    fault::{Fault, Result},
    transact,
};

use super::{
    INVALID_SCOPE, INVALID_TARGET, Machine,
    limits::Outcome,
    targets::{self, Granted, Wanted},
    tokens::{self, DEEPEST, Issued, Recognised, Subject},
};
use crate::{
    enter::{self, Living},
    events::By,
    sessions::audience::Audience,
};

/// The user a machine is to act for, and what came with the token that says so.
pub struct Principal {
    pub subject: Subject,
    /// None: everything the user may do.
    pub scopes: Option<Vec<String>>,
    pub audience: Option<Audience>,
    /// The OAuth client that the user gave the token to.
    pub client: Option<String>,
}

impl Principal {
    /// A user in a session.
    pub fn of(living: &Living) -> Self {
        let session = &living.session;
        let scopes = session.scopes.as_ref().map(|scopes| scopes.to_string().split(' ').map(str::to_owned).collect());
        Self {
            subject: Subject { account: living.person.account.id, session: session.id, before: None, until: None },
            scopes,
            audience: session.resource.clone(),
            client: session.holder(),
        }
    }

    /// Finds the principal of a token: a user, or a user for whom a machine acts already. None for a machine on its
    /// own.
    pub async fn of_token(janua: &Janua, token: &str) -> db::Result<Option<Self>> {
        if let Some((claims, living)) = enter::recognise(janua, token).await? {
            return Ok(Some(Self {
                audience: claims.aud.clone().filter(|_| living.session.resource.is_some()),
                ..Self::of(&living)
            }));
        }
        let Some(Recognised { claims, living: Some(living), .. }) = tokens::recognise(janua, token).await? else {
            return Ok(None);
        };
        let own = Self::of(&living);
        Ok(Some(Self {
            subject: Subject { before: claims.act.clone(), until: Some(claims.exp), ..own.subject },
            scopes: Some(claims.scope.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect()),
            audience: Some(claims.aud.clone()),
            client: own.client,
        }))
    }

    /// Whether the user let this machine act: it is theirs, or they gave it the token.
    fn allows(&self, machine: &Machine) -> bool {
        machine.owner_id == Some(self.subject.account) || self.client.as_deref() == Some(&machine.id.to_string())
    }
}

/// Why there is no delegated token.
pub enum Refusal {
    /// The user did not let this machine act, or too many machines act already.
    NotAllowed(&'static str),
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A token by which a machine acts for a user.
pub async fn delegate(
    janua: &Janua,
    by: &By,
    machine: &Machine,
    principal: &Principal,
    wanted: &Wanted,
) -> Result<Issued, Refusal> {
    if !principal.allows(machine) {
        return Err(Refusal::NotAllowed("The user does not own this machine and did not authorize it."));
    }
    let before = principal.subject.before.as_ref();
    if before.is_some_and(|act| act.chain().count() >= DEEPEST) {
        return Err(Refusal::NotAllowed("Too many machines act for one another."));
    }
    if before.is_some_and(|act| act.chain().any(|act| act.sub == machine.id)) {
        return Err(Refusal::NotAllowed("This machine acts for the user already."));
    }
    tokens::refuse_inactive(machine, janua.clock.now())?;
    let granted = narrowed(janua, machine, principal, wanted)?;
    let subject = Some(&principal.subject);
    let outcome = transact!(janua, async |tx| Ok(tokens::record(tx, janua, by, machine, &granted, subject).await?))?;
    match outcome {
        Outcome::Counted(_) => Ok(tokens::sign(janua, machine, &granted, subject)?),
        Outcome::Refused(left) => Err(left.fault().into()),
    }
}

/// The scopes that both the machine and the previous token have.
fn narrowed(janua: &Janua, machine: &Machine, principal: &Principal, wanted: &Wanted) -> Result<Granted> {
    let mut scopes = targets::scopes(machine, wanted.scopes.as_deref())?;
    if let Some(theirs) = &principal.scopes {
        let is_more = scopes.iter().any(|scope| !theirs.contains(scope));
        if wanted.scopes.is_some() && is_more {
            return Err(INVALID_SCOPE.into());
        }
        scopes.retain(|scope| theirs.contains(scope));
    }
    if scopes.is_empty() {
        return Err(INVALID_SCOPE.because("The machine and the user's token have no scope in common."));
    }
    let base = janua.config.base_url();
    let only = principal.audience.as_ref().and_then(|theirs| theirs.iter().next().map(str::to_owned));
    let audience = targets::audience(janua, machine, wanted.resource.as_deref().or(only.as_deref()))?;
    if let Some(theirs) = &principal.audience {
        let is_within = |name: &str| {
            let above = |place: &str| match (targets::resource(name), targets::resource(place)) {
                (Some(url), Some(above)) => targets::lies_under(&url, &above),
                _ => false,
            };
            name == base && theirs.has(&base) || theirs.iter().any(|place| place == name || above(place))
        };
        if !audience.iter().all(is_within) {
            return Err(INVALID_TARGET.into());
        }
    }
    Ok(Granted { scopes, audience })
}
