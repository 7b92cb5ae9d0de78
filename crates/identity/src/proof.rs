//! What cannot be undone needs a fresh proof of who somebody is, as strong as the strongest they have.
//!
//! The one rule: a passkey or a second factor is stronger than a password, and a password is stronger than a mailed link or a
//! provider. Somebody who has a passkey or a second factor proves that, somebody who has a password proves that, and for
//! everybody else any sign-in will do. It was proven in the sign-in, or since then in the session, not more than ten minutes
//! ago; or it comes with the request.

use kernel::{
    Janua,
    fault::{Code, Fault, Result},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        factors::{self, Factor},
        password::{Hasher, Verdict},
    },
    email::Email,
    enter::{Attempt, REAUTHENTICATION_REQUIRED, Session, Visitor},
    sessions::{Proof, sign_in::Typed},
};

use crate::{
    asked::{self, What},
    destination::Destination,
    events::SignInFailed,
    passkeys::Passkeys,
};

pub const WRONG_PASSWORD: Code = Code::new(403, "wrong_password", "The current password is wrong.");
pub const WRONG_CODE: Code = Code::new(403, "wrong_code", "The code is wrong, has expired or was already used.");

/// What a route that asks for a fresh proof can answer.
pub const REFUSALS: [Code; 3] = [REAUTHENTICATION_REQUIRED, WRONG_PASSWORD, WRONG_CODE];

/// How much a proof is worth, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    /// A link in a mail, or a provider's word.
    Link,
    Password,
    /// A passkey or a second factor.
    Strong,
}

/// What would do as a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Method {
    /// By signing in again with it.
    Passkey,
    /// `code` in the request, or at a sign-in.
    Totp,
    Sms,
    Recovery,
    /// `password` in the request, or at a sign-in.
    Password,
    /// By signing in again.
    MagicLink,
    Provider,
}

/// What the strongest proof of a person is worth, and what it can be given by.
fn needed(janua: &Janua, session: &Session) -> (Strength, Vec<Method>) {
    let (account, factors) = (session.account(), session.factors());
    // Where passkeys are off nobody can show one.
    let has_passkey = !factors.passkeys.is_empty() && janua.own::<Passkeys>().are_on();
    let of_factors = factors.names().into_iter().map(|factor| match factor {
        Factor::Totp => Method::Totp,
        Factor::Sms => Method::Sms,
        Factor::Recovery => Method::Recovery,
    });
    let strong: Vec<Method> = has_passkey.then_some(Method::Passkey).into_iter().chain(of_factors).collect();
    if !strong.is_empty() {
        return (Strength::Strong, strong);
    }
    if account.password_hash.is_some() {
        return (Strength::Password, vec![Method::Password]);
    }
    let by_mail = account.email.as_ref().map(|_| Method::MagicLink);
    let by_provider = (!account.linked.is_empty()).then_some(Method::Provider);
    (Strength::Link, by_mail.into_iter().chain(by_provider).collect())
}

/// The strongest that was proven in a session not long ago. A trusted device stands in for a second factor at the gate, and
/// for nothing else.
fn proven(janua: &Janua, session: &Session) -> Option<Strength> {
    let fresh = session.fresh(janua)?;
    Some(if fresh.passkey || fresh.factor {
        Strength::Strong
    } else if fresh.password {
        Strength::Password
    } else {
        Strength::Link
    })
}

/// A proof in the request. Required if the last proof is too weak or older than ten minutes.
#[derive(Default, Deserialize, JsonSchema)]
pub struct Fresh {
    /// The current password; for users without a passkey and without a second factor.
    password: Option<Typed>,
    /// A code of a second factor, or a recovery code.
    code: Option<Typed>,
}

impl Fresh {
    pub fn by_password(password: Option<Typed>) -> Self {
        Self { password, code: None }
    }

    pub fn by_code(code: Option<Typed>) -> Self {
        Self { password: None, code }
    }

    /// As [`check`](Self::check), where a second factor is to be switched off or another door opened in its place: the code
    /// comes with the request, however fresh the session is. A passkey just used is as good.
    pub async fn check_strictly(&self, janua: &Janua, visitor: &Visitor, session: &Session) -> Result<()> {
        match &self.code {
            None if session.factors().is_on() && !session.fresh(janua).is_some_and(|fresh| fresh.passkey) => {
                Err(refusal(&needed(janua, session).1))
            }
            _ => self.check(janua, visitor, session).await,
        }
    }

    /// Refuses unless what was given is right and strong enough or, when nothing was given, what was proven in the session is
    /// fresh and strong enough. What is proven here counts in the session from now on.
    pub async fn check(&self, janua: &Janua, visitor: &Visitor, session: &Session) -> Result<()> {
        let (strength, methods) = needed(janua, session);
        let is_proven = proven(janua, session).is_some_and(|proven| proven >= strength);
        let may_count = strength <= Strength::Password || is_proven;
        match (&self.password, &self.code) {
            (_, Some(code)) if session.factors().is_on() => by_code(janua, visitor, session, code).await,
            (Some(password), _) if may_count && session.account().password_hash.is_some() => {
                let attempt = by_password(janua, visitor, session, password).await?;
                transact!(janua, async |tx| {
                    attempt.forgive(tx).await?;
                    session.living.session.proved(tx, Proof::Password, janua.clock.now()).await?;
                    Ok(())
                })
            }
            _ if !is_proven => Err(refusal(&methods)),
            // There is nothing that it could be.
            (Some(_), _) => Err(WRONG_PASSWORD.into()),
            (None, Some(_)) => Err(WRONG_CODE.into()),
            (None, None) => Ok(()),
        }
    }
}

/// Says what would do.
fn refusal(methods: &[Method]) -> Fault {
    Fault::from(REAUTHENTICATION_REQUIRED).with_extra("methods", &methods)
}

async fn by_code(janua: &Janua, visitor: &Visitor, session: &Session, code: &Typed) -> Result<()> {
    let account = session.account().id;
    let attempt = visitor.attempt_factor(janua, account).await?;
    let proven = transact!(janua, async |tx| {
        let proven = factors::prove(tx, janua, account, &code.0, None).await?;
        match proven {
            Some(factor) => {
                attempt.forgive(tx).await?;
                session.living.session.proved(tx, Proof::Factor(factor), janua.clock.now()).await?;
            }
            // Committed, too: a wrong code counts against the right one, and the user can see that there was one.
            None => session.record(tx, janua, &SignInFailed { reason: "wrong_code" }).await?,
        }
        Ok(proven)
    })?;
    proven.map(drop).ok_or_else(|| WRONG_CODE.into())
}

/// The try with the right password, to be forgiven with whatever it is for.
pub async fn by_password(janua: &Janua, visitor: &Visitor, session: &Session, password: &Typed) -> Result<Attempt> {
    let account = session.account();
    // Nobody has a password without an email.
    let email = account.email.as_deref().and_then(Email::parse).ok_or(WRONG_PASSWORD)?;
    let attempt = visitor.attempt(janua, &email).await?;
    match janua.own::<Hasher>().verify(&password.0, account.password_hash.clone()).await? {
        Verdict { matches: true, .. } => Ok(attempt),
        // Noted, and warned of, as a wrong password of a sign-in is: they count as one.
        Verdict { matches: false, .. } => {
            let wrong = What::WrongPassword { is_last: attempt.is_last };
            db::aside(asked::keep(janua, visitor, &email, wrong, Destination::default())).await?;
            Err(WRONG_PASSWORD.into())
        }
    }
}
