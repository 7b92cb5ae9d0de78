//! What cannot be undone needs a fresh proof of who somebody is: the password again, a second factor, or a sign-in not
//! long ago.
use kernel::{
    App,
    fault::{Code, Fault, Result},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    email::Email,
    enter::{Attempt, REAUTHENTICATION_REQUIRED, Session, Visitor},
    factors,
    password::{Hasher, Verdict},
    sign_in::Typed,
};

pub const WRONG_PASSWORD: Code = Code::new(403, "wrong_password", "This is not your present password.");
pub const WRONG_CODE: Code = Code::new(403, "wrong_code", "This code is wrong, has run out or was used before.");

/// What a route that asks for a fresh proof can answer.
pub const REFUSALS: [Code; 3] = [REAUTHENTICATION_REQUIRED, WRONG_PASSWORD, WRONG_CODE];

/// Needed when the last sign-in is more than ten minutes ago: one of the two.
#[derive(Default, Deserialize, JsonSchema)]
pub struct Fresh {
    /// The present password.
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

    /// Refuses unless something was given and is right: that the sign-in is fresh is not enough.
    pub async fn check_strictly(&self, app: &App, visitor: &Visitor, session: &Session) -> Result<()> {
        match self {
            Self { password: None, code: None } => Err(REAUTHENTICATION_REQUIRED.into()),
            given => given.check(app, visitor, session).await,
        }
    }

    /// Refuses unless what was given is right or, when nothing was given, the sign-in is fresh. Where a session began
    /// before there was a second factor, only that factor is a proof.
    pub async fn check(&self, app: &App, visitor: &Visitor, session: &Session) -> Result<()> {
        match (&self.password, &self.code) {
            (_, None) if !session.passed_gate() => Err(REAUTHENTICATION_REQUIRED.into()),
            (Some(password), _) if session.passed_gate() => {
                let attempt = by_password(app, visitor, session, password).await?;
                transact!(app.db, tx, { Ok::<_, Fault>(attempt.forgive(tx).await?) })
            }
            (_, Some(code)) => {
                let account = session.account().id;
                let attempt = visitor.attempt_factor(app, account).await?;
                let proven = transact!(app.db, tx, {
                    let proven = factors::prove(tx, app, account, &code.0, None).await?;
                    if let Some(factor) = proven {
                        attempt.forgive(tx).await?;
                        if !session.is_strong() {
                            session.living.session.strengthen(tx, factor.method(), app.clock.now()).await?;
                        }
                    }
                    // Committed either way: a wrong code counts against the right one.
                    Ok::<_, Fault>(proven)
                })?;
                proven.map(drop).ok_or_else(|| WRONG_CODE.into())
            }
            (_, None) if session.is_fresh(app) => Ok(()),
            (_, None) => Err(REAUTHENTICATION_REQUIRED.into()),
        }
    }
}

/// The try with the right password, to be forgiven with whatever it is for.
pub async fn by_password(app: &App, visitor: &Visitor, session: &Session, password: &Typed) -> Result<Attempt> {
    let account = session.account();
    // Nobody has a password without an address.
    let email = account.email.as_deref().and_then(Email::parse).ok_or(WRONG_PASSWORD)?;
    let attempt = visitor.attempt(app, &email).await?;
    match app.own::<Hasher>().verify(&password.0, account.password_hash.clone()).await? {
        Verdict { matches: true, .. } => Ok(attempt),
        Verdict { matches: false, .. } => Err(WRONG_PASSWORD.into()),
    }
}
