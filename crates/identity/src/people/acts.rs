//! What is done to somebody's account by a platform owner or in a shell. Each act is recorded with its actor, is shown in
//! the person's own activity, and is mailed where it concerns their security.
use db::{Reach, Tx};
use kernel::{Janua, crypto::Secret, fault::Result, installation};
use tenancy::{
    accounts::{
        Account, AccountId, HeldAccount,
        factors::{self, Factor},
        passkeys::Passkey,
    },
    enter::{ACCOUNT_TOPIC, runs_platform},
    events::{self, By, Event},
    messages::mail::{self, Mail},
    once,
    sessions::{self},
};

pub use tenancy::enter::platform_owners as owners;

use super::{ACCOUNT_INVITE, ALREADY_VERIFIED, LAST_PLATFORM_OWNER, NO_EMAIL, OWN_ACCOUNT};
use crate::{
    asked::Registration,
    destination::Destination,
    device,
    events::{
        AccountDisabled, AccountEnabled, FactorsReset, MfaDisabled, NewPasswordRequired, PasskeyRemoved,
        PlatformOwnerAdded, PlatformOwnerRemoved, VerificationResent,
    },
    magic_link::MAGIC_LINK,
    mails::{self, OwnerAct, OwnerActed},
    password::RESET_PASSWORD,
    register::{CODE_LIFE, VERIFY_EMAIL},
    trusted,
};

/// Locks out changes to who runs the platform, so that two owners cannot remove each other at the same moment.
const OWNERS: &str = "platform_owners";

/// Refuses an act that would take an account away from its own actor, or from the last platform owner.
pub async fn may_lose(tx: &mut Tx, janua: &Janua, by: &By, account: &Account) -> Result<()> {
    if by.actor == Some(account.id) {
        return Err(OWN_ACCOUNT.into());
    }
    installation::write_once(tx, OWNERS, "").await?;
    installation::lock(tx, OWNERS).await?;
    if runs_platform(janua, account) && !others_run_platform(tx, janua, account.id).await? {
        return Err(LAST_PLATFORM_OWNER.into());
    }
    Ok(())
}

async fn others_run_platform(tx: &mut Tx, janua: &Janua, but: AccountId) -> db::Result<bool> {
    Ok(owners(tx, janua).await?.iter().any(|owner| owner.id != but && owner.disabled_at.is_none()))
}

async fn done(tx: &mut Tx, janua: &Janua, by: &By, account: &Account, event: &dyn Event) -> Result<()> {
    events::record(tx, janua, by, Some(account.id), event).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    Ok(())
}

async fn tell(tx: &mut Tx, janua: &Janua, account: &Account, told: &(dyn Mail + Sync)) -> Result<()> {
    if let Some(email) = &account.email {
        mail::send(tx, janua, email, told).await?;
    }
    Ok(())
}

fn acted(account: &Account, act: OwnerAct) -> OwnerActed {
    OwnerActed { name: account.name.clone(), act }
}

/// Ends everything that opens the account or is about to: sessions, links, approved and trusted devices.
async fn shut(tx: &mut Tx, janua: &Janua, by: &By, account: &Account, reason: &'static str) -> Result<()> {
    for purpose in [RESET_PASSWORD, ACCOUNT_INVITE, MAGIC_LINK, VERIFY_EMAIL] {
        once::void(tx, purpose, account.id, janua.clock.now()).await?;
    }
    device::withdraw(tx, account.id).await?;
    trusted::forget_all(tx, janua, by, account.id).await?;
    sessions::end_all(tx, janua, by, account.id, None, reason).await?;
    Ok(())
}

/// `false` when it was disabled before.
pub async fn disable(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<bool> {
    may_lose(tx, janua, by, account).await?;
    if account.disabled_at.is_some() {
        return Ok(false);
    }
    let now = janua.clock.now();
    Account::set_disabled(tx, account.id, Some(now), now).await?;
    shut(tx, janua, by, account, "account_disabled").await?;
    done(tx, janua, by, account, &AccountDisabled).await?;
    tell(tx, janua, account, &acted(account, OwnerAct::Disabled)).await?;
    Ok(true)
}

/// `false` when it was not disabled.
pub async fn enable(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<bool> {
    if account.disabled_at.is_none() {
        return Ok(false);
    }
    Account::set_disabled(tx, account.id, None, janua.clock.now()).await?;
    done(tx, janua, by, account, &AccountEnabled).await?;
    tell(tx, janua, account, &acted(account, OwnerAct::Enabled)).await?;
    Ok(true)
}

/// Removes every second factor and passkey, and what was begun with them.
pub async fn reset_factors(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<()> {
    for factor in [Factor::Totp, Factor::Sms] {
        if factors::remove(tx, account.id, factor).await? {
            events::record(tx, janua, by, Some(account.id), &MfaDisabled { factor }).await?;
        }
    }
    for passkey in Passkey::of(&mut *tx, account.id).await? {
        Passkey::remove(tx, account.id, &passkey.credential_id).await?;
        let event = PasskeyRemoved { credential_id: passkey.credential_id };
        events::record(tx, janua, by, Some(account.id), &event).await?;
    }
    factors::void_open(tx, account.id, janua.clock.now()).await?;
    shut(tx, janua, by, account, "factors_reset").await?;
    done(tx, janua, by, account, &FactorsReset).await?;
    tell(tx, janua, account, &acted(account, OwnerAct::FactorsReset)).await
}

/// Removes the password and mails a link to choose another.
pub async fn require_password(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<()> {
    let email = account.email.clone().ok_or(NO_EMAIL)?;
    Account::clear_password(tx, account.id, janua.clock.now()).await?;
    shut(tx, janua, by, account, "new_password_required").await?;
    let token = invite(tx, janua, account.id).await?;
    done(tx, janua, by, account, &NewPasswordRequired).await?;
    let told = mails::NewPasswordRequired { name: account.name.clone(), token };
    Ok(mail::send(tx, janua, &email, &told).await?)
}

/// A link to choose a password; the ones before it no longer work.
pub async fn invite(tx: &mut Tx, janua: &Janua, account: AccountId) -> db::Result<Secret> {
    once::void(tx, ACCOUNT_INVITE, account, janua.clock.now()).await?;
    once::issue(tx, janua, ACCOUNT_INVITE, Some(account), &[]).await
}

pub async fn end_sessions(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<()> {
    shut(tx, janua, by, account, "ended_by_platform_owner").await?;
    tell(tx, janua, account, &acted(account, OwnerAct::SessionsEnded)).await
}

/// The email counts as the user's from now on. A password that a sign-up chose before that may be a stranger's, so the user
/// chooses another one; links of before do not work.
pub async fn verify_email(tx: &mut Tx, janua: &Janua, account: AccountId) -> Result<()> {
    let now = janua.clock.now();
    if !Account::is_established(tx, account).await? {
        Account::clear_password(tx, account, now).await?;
    }
    once::void(tx, VERIFY_EMAIL, account, now).await?;
    Ok(Account::set_email_verified(tx, account, true, now).await?)
}

/// Mails the link and the code that confirm the email. What the person chose at the sign-up stays.
pub async fn resend_verification(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount) -> Result<()> {
    if account.email_verified {
        return Err(ALREADY_VERIFIED.into());
    }
    let (email, now) = (account.email.clone().ok_or(NO_EMAIL)?, janua.clock.now());
    let password_hash = account.password_hash.clone();
    let registration = Registration {
        name: account.name.clone(),
        password_hash,
        likeness: None,
        destination: Destination::default(),
    };
    once::make_room(tx, VERIFY_EMAIL, account.id, now).await?;
    let aside = serde_json::to_vec(&registration).unwrap_or_default();
    let token = once::issue(tx, janua, VERIFY_EMAIL, Some(account.id), &aside).await?;
    let code = once::add_code(tx, janua, &token, account.id, CODE_LIFE).await?;
    done(tx, janua, by, account, &VerificationResent).await?;
    // Not by name: nobody has proven yet whose words those are.
    Ok(mail::send(tx, janua, &email, &mails::Verify { name: String::new(), token, code }).await?)
}

/// Makes a person a platform owner, or no longer one; `false` when nothing changed.
pub async fn set_owner(tx: &mut Tx, janua: &Janua, by: &By, account: &HeldAccount, is_owner: bool) -> Result<bool> {
    if account.runs_platform == is_owner {
        return Ok(false);
    }
    if is_owner {
        Account::set_runs_platform(tx, account.id, true).await?;
        done(tx, janua, by, account, &PlatformOwnerAdded).await?;
    } else {
        may_lose(tx, janua, by, account).await?;
        Account::set_runs_platform(tx, account.id, false).await?;
        done(tx, janua, by, account, &PlatformOwnerRemoved).await?;
    }
    Ok(true)
}
