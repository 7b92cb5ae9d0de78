//! Second factors: enabling and disabling them, and the check at sign-in.
pub mod gate;
mod sms;
mod totp;

use axum::response::NoContent;
use db::{Reach, Tx};
use kernel::{
    Janua,
    fault::{Code, Result, UNAUTHENTICATED},
    http::Routes,
    transact,
};
use tenancy::{
    accounts::{
        Account,
        factors::{self, Factor},
    },
    enter::{ACCOUNT_TOPIC, Session},
    events::Event,
    messages::mail::{self, Origin},
    sessions::{self, Proof},
};

use crate::{
    events::{MfaDisabled, MfaEnabled},
    mails::FactorChanged,
};

pub fn routes() -> Routes {
    gate::routes().and(totp::routes()).and(sms::routes())
}

const FACTOR_NOT_ON: Code = Code::new(409, "factor_not_on", "This factor is not enabled.");

const NEW_CODES: &str = "New recovery codes were created for your account. The old codes no longer work.";

async fn changed(tx: &mut Tx, janua: &Janua, session: &Session, factor: Factor, is_on: bool) -> Result<()> {
    let (on, off) = (MfaEnabled { factor }, MfaDisabled { factor });
    let event: &dyn Event = if is_on { &on } else { &off };
    let what = match (factor, is_on) {
        (Factor::Totp, true) => "An authenticator app was added to your account as a second factor.",
        (Factor::Totp, false) => "The authenticator app was removed from your account.",
        (Factor::Sms, true) => "A phone was added to your account as a second factor.",
        (Factor::Sms, false) => "The phone was removed from your account as a second factor.",
        (Factor::Recovery, _) => NEW_CODES,
    };
    // Whoever switches one on has just proven it.
    if is_on {
        session.living.session.proved(tx, Proof::Factor(factor), janua.clock.now()).await?;
    }
    note(tx, janua, session, event, what).await
}

/// Writes down that what the person proves themselves with has changed, tells them, makes every trusted device a stranger,
/// and ends what else was begun. Refuses where the session was ended meanwhile: what was proven in it counts no more.
pub async fn note(
    tx: &mut Tx,
    janua: &Janua,
    session: &Session,
    event: &dyn Event,
    what: &'static str,
) -> Result<()> {
    end_begun(tx, janua, session).await?;
    session.record(tx, janua, event).await?;
    factors::distrust_devices(tx, session.account().id).await?;
    tell(tx, janua, session, what).await
}

/// Ends sign-ins and enrolments that were begun and not finished. Locks the account, and refuses a session that was ended
/// meanwhile.
async fn end_begun(tx: &mut Tx, janua: &Janua, session: &Session) -> Result<()> {
    let (account, now) = (session.account().id, janua.clock.now());
    Account::hold(tx, account).await?;
    let own = sessions::StoredSession::find(&mut *tx, session.id()).await?;
    own.filter(|own| own.is_alive(now)).ok_or(UNAUTHENTICATED)?;
    Ok(factors::void_open(tx, account, now).await?)
}

async fn remove(janua: &Janua, session: &Session, factor: Factor) -> Result<NoContent> {
    transact!(janua, async |tx| {
        Account::hold(tx, session.account().id).await?;
        if !factors::remove(tx, session.account().id, factor).await? {
            return Err(FACTOR_NOT_ON.into());
        }
        changed(tx, janua, session, factor, false).await
    })?;
    Ok(NoContent)
}

async fn tell(tx: &mut Tx, janua: &Janua, session: &Session, what: &'static str) -> Result<()> {
    let account = session.account();
    if let Some(email) = &account.email {
        let origin = Origin::new(&session.by(), janua.clock.now());
        mail::send(tx, janua, email, &FactorChanged { name: account.name.clone(), what, origin }).await?;
    }
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    Ok(())
}
