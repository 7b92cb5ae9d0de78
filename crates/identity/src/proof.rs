//! What cannot be undone needs a fresh proof of who somebody is: the password again, or a sign-in not long ago.
use kernel::{
    App,
    fault::{Code, Fault, Result},
    transact,
};
use tenancy::{
    email::Email,
    enter::{Attempt, REAUTHENTICATION_REQUIRED, Session, Visitor},
    password::{Hasher, Verdict},
    sign_in::Typed,
};

pub const WRONG_PASSWORD: Code = Code::new(403, "wrong_password", "This is not your present password.");

/// What a route that asks for a fresh proof can answer.
pub const REFUSALS: [Code; 2] = [REAUTHENTICATION_REQUIRED, WRONG_PASSWORD];

/// Refuses unless the password is right or, without one, the sign-in is fresh.
pub async fn is_fresh(app: &App, visitor: &Visitor, session: &Session, password: Option<&Typed>) -> Result<()> {
    match password {
        Some(password) => {
            let attempt = by_password(app, visitor, session, password).await?;
            transact!(app.db, tx, { Ok::<_, Fault>(attempt.forgive(tx).await?) })
        }
        None if session.is_fresh(app) => Ok(()),
        None => Err(REAUTHENTICATION_REQUIRED.into()),
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
