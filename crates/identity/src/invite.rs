//! Accepting an invite: as somebody who is signed in, or as a newcomer, who gets an account by it.
//!
//! The link came to the invited address, so whoever has it has read that address's mail. That is enough for a new
//! account, and for nothing that an old one has: its password and its sessions are not touched.
use axum::{extract::State, response::Response};
use db::{Reach, Tx};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Code, Fault, INVALID, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::{
        Account, AccountId,
        password::{self, Hasher, WEAK_PASSWORD},
    },
    email::Email,
    enter::{ACCOUNT_TOPIC, Delivery, MaybeSession, Session, ToAdmit, Visitor},
    once::{self, TOKEN_SPENT},
    orgs::{self, Membership, invites::Invite, people},
    sessions::sign_in::{self, Entered, MayEnter, SignInMethod, Typed},
};

use crate::{
    BODY,
    events::{AccountCreated, EmailVerified},
    password::LoginOptions,
    policy,
    register::VERIFY_EMAIL,
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/accept-invite", accept_invite, "accept an organization invite")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<MayEnter>(200, "application/json")
        .fails(&[TOKEN_SPENT, SIGN_IN_FIRST, OTHER_ADDRESS, WEAK_PASSWORD])
        .fails(&policy::REFUSALS)
}

pub const SIGN_IN_FIRST: Code =
    Code::new(409, "sign_in_first", "The invited email has an account. Sign in to it, then accept the invitation.");
const OTHER_ADDRESS: Code = Code::new(403, "other_address", "This invitation is for another email.");

#[derive(Deserialize, JsonSchema)]
pub struct Accept {
    pub token: Typed,
    /// For a new account.
    #[schemars(length(min = 1, max = 200))]
    pub name: Option<String>,
    /// For a new account: 8 to 256 characters that are hard to guess.
    pub password: Option<Typed>,
    pub options: Option<LoginOptions>,
}

async fn accept_invite(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    MaybeSession(session): MaybeSession,
    Json(body): Json<Accept>,
) -> Result<Response> {
    let delivery = body.options.as_ref().and_then(|options| options.token_delivery).unwrap_or_default();
    match accept(&janua, &visitor, session.as_ref(), body, delivery).await? {
        Accepted::Joined(membership) => match &session {
            Some(session) => sign_in::renew(&janua, session, &membership),
            None => Err(TOKEN_SPENT.into()),
        },
        Accepted::Entered(entered) => entered.answer(&janua),
    }
}

/// What came of it.
pub enum Accepted {
    /// Who was signed in acts for the organization now.
    Joined(Box<Membership>),
    /// Who was not has an account.
    Entered(Box<Entered>),
}

/// The same for programs and for the page.
pub async fn accept(
    janua: &Janua,
    visitor: &Visitor,
    session: Option<&Session>,
    body: Accept,
    delivery: Delivery,
) -> Result<Accepted> {
    visitor.admit(janua, None).await?;
    let invite = Invite::look(&janua.db, &body.token.0, janua.clock.now()).await?.ok_or(TOKEN_SPENT)?;
    if let Some(session) = session {
        let joined = join(janua, session, &invite, &body.token.0).await?;
        return Ok(Accepted::Joined(Box::new(joined)));
    }
    let email = Email::parse(&invite.email).ok_or(TOKEN_SPENT)?;
    if Account::by_email(&janua.db, &email).await?.is_some_and(|account| account.email_verified) {
        return Err(SIGN_IN_FIRST.into());
    }
    policy::check(janua, true)?;
    let (name, password) = match (body.name, body.password) {
        (Some(name), Some(password)) => (name, password),
        (name, password) => {
            let missing = [("name", name.is_none()), ("password", password.is_none())];
            let missing = missing.into_iter().filter(|(_, is_missing)| *is_missing);
            let say = "is required for a new account";
            return Err(missing.fold(Fault::from(INVALID), |fault, (field, _)| fault.and(field, "required", say)));
        }
    };
    password::check("password", &password.0, Some(&email), &name)?;
    let hash = janua.own::<Hasher>().hash(&janua.entropy, &password.0).await?;
    let (now, id) = (janua.clock.now(), AccountId::new(&janua.entropy, janua.clock.now()));
    let entered = transact!(janua, async |tx| {
        let new = Account { password_hash: Some(hash.clone()), ..Account::new(id, Some(&email), name.trim(), now) };
        let account = newcomer(tx, janua, visitor, new, &body.token.0).await?;
        let way = SignInMethod::by("pwd", delivery);
        sign_in::enter(tx, janua, visitor, account, way).await
    })?;
    Ok(Accepted::Entered(Box::new(entered)))
}

/// An invite for this address that could be accepted now. A look that decides nothing.
pub async fn look(janua: &Janua, email: &Email, token: &Secret) -> Result<Invite> {
    let invite = Invite::look(&janua.db, token, janua.clock.now()).await?;
    invite.filter(|invite| invite.email_key == email.key()).ok_or_else(|| TOKEN_SPENT.into())
}

/// Somebody who is signed in joins, and acts for the organization from now on.
async fn join(janua: &Janua, session: &Session, invite: &Invite, token: &Secret) -> Result<Membership> {
    let account = session.account();
    if !account.email_verified || account.email_key.as_deref() != Some(&invite.email_key) {
        return Err(OTHER_ADDRESS.into());
    }
    transact!(janua, async |tx| {
        let org = Invite::accept(tx, janua, &session.by(), token, account).await?.ok_or(TOKEN_SPENT)?;
        orgs::switch(tx, session.id(), account.id, org).await?;
        Ok(Membership::of(&mut *tx, org, account.id).await?.ok_or(TOKEN_SPENT)?)
    })
}

/// Makes the account of an invited address, verified at once, and takes it in. What was signed up for the address
/// before and never confirmed counts for nothing. Refuses where an account is verified: nothing of it is changed.
pub async fn newcomer(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    new: Account,
    token: &Secret,
) -> Result<Account> {
    let now = janua.clock.now();
    let (there, is_new) = Account::ensure(tx, &new).await?;
    if there.email_verified {
        return Err(SIGN_IN_FIRST.into());
    }
    Account::verified(tx, there.id, &new.name, new.password_hash.as_deref(), now).await?;
    // What somebody else agreed to under this address is not agreed to.
    let known = Account { accepts_marketing: new.accepts_marketing, name: new.name, ..there.clone() };
    known.save_profile(tx, &known.name).await?;
    once::void(tx, VERIFY_EMAIL, there.id, now).await?;
    if is_new {
        visitor.record_about(tx, janua, there.id, &AccountCreated).await?;
    }
    visitor.record_about(tx, janua, there.id, &EmailVerified).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, there.id.to_string()).await?;
    let account = Account::find(tx, there.id).await?.ok_or(TOKEN_SPENT)?;
    let org = Invite::accept(tx, janua, &visitor.by, token, &account).await?.ok_or(TOKEN_SPENT)?;
    people::found_home(tx, org, account.id).await?;
    Ok(account)
}
