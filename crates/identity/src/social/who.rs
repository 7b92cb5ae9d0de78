//! Whose account it is that a provider opens. All of it in the transaction that also begins the session.
use db::{Reach, Tx};
use kernel::{
    Janua,
    fault::{Code, Result},
};
use tenancy::{
    accounts::{
        Account, AccountId,
        social::{Identity, Linked, Tokens},
    },
    email::Email,
    enter::{ACCOUNT_TOPIC, Visitor},
    events, gone,
    messages::mail::{self, Origin},
    sessions,
};

use super::{profile::Profile, table::Row};
use crate::{
    events::{AccountCreated, AccountDeleted, EmailVerified, SocialLinked},
    mails::ProviderLinked,
    policy,
};

pub const ACCOUNT_EXISTS: Code =
    Code::new(409, "account_exists", "An account with this email exists. Sign in the way you did before.");

/// The account, and whether it was made just now.
pub async fn recognise(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    row: &Row,
    profile: &Profile,
    tokens: Option<&[u8]>,
) -> Result<(Account, bool)> {
    // The provider's own id says who it is, whatever the address says today.
    if let Some(known) = Identity::find(tx, row.name, &profile.subject).await? {
        return Ok((known_again(tx, janua, row, profile, known.account_id, tokens).await?, false));
    }
    let proven = profile.email.as_ref().filter(|_| profile.email_verified);
    let there = match &profile.email {
        Some(email) => Account::by_email(&mut *tx, email).await?,
        None => None,
    };
    match (there, proven) {
        (Some(account), Some(_)) if account.email_verified => {
            link_to(tx, janua, visitor, row, profile, &account, tokens).await?;
            Ok((reread(tx, account.id).await?, false))
        }
        (Some(squatter), Some(_)) => {
            remove_unproven(tx, janua, visitor, &squatter).await?;
            Ok((create(tx, janua, visitor, row, profile, proven, tokens).await?, true))
        }
        (Some(_), None) => Err(ACCOUNT_EXISTS.into()),
        (None, _) => {
            policy::check_proven(&mut *tx, janua, proven).await?;
            Ok((create(tx, janua, visitor, row, profile, proven, tokens).await?, true))
        }
    }
}

async fn known_again(
    tx: &mut Tx,
    janua: &Janua,
    row: &Row,
    profile: &Profile,
    account: AccountId,
    tokens: Option<&[u8]>,
) -> Result<Account> {
    identity(janua, row, profile, account).refresh(tx, janua, tokens.map(Tokens)).await?;
    let mut account = reread(tx, account).await?;
    let told = profile.username.as_deref();
    if told.is_some() && told != account.linked.username(row.name) {
        account.linked = Linked::renew(tx, account.id).await?;
        tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    }
    Ok(account)
}

/// Both sides have proven the address: the provider to its own, the person to us.
async fn link_to(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    row: &Row,
    profile: &Profile,
    account: &Account,
    tokens: Option<&[u8]>,
) -> Result<()> {
    // Another account at the same provider, perhaps one that got the address later, is not let in beside the first.
    if !Account::hold_verified(tx, account.id, janua.clock.now()).await? {
        return Err(again().into());
    }
    if reread(tx, account.id).await?.linked.has(row.name) {
        // Unless it is this very one, which came in by another door meanwhile.
        let is_this = Identity::find(tx, row.name, &profile.subject).await?.is_some();
        return Err(if is_this { again().into() } else { ACCOUNT_EXISTS.into() });
    }
    link(tx, janua, visitor, row, profile, account.id, tokens).await?;
    if let Some(email) = &account.email {
        let origin = Origin::new(&visitor.by, janua.clock.now());
        let linked = ProviderLinked { name: account.name.clone(), provider: row.label, origin };
        mail::send(tx, janua, email, &linked).await?;
    }
    Ok(())
}

/// Whoever signed up with somebody else's address and never proved it gets nothing of what its owner does later:
/// the account goes with its password, its sessions and everything they opened.
async fn remove_unproven(tx: &mut Tx, janua: &Janua, visitor: &Visitor, account: &Account) -> Result<()> {
    sessions::end_all(tx, janua, &visitor.by, account.id, None, "account_replaced").await?;
    visitor.record_about(tx, janua, account.id, &AccountDeleted).await?;
    events::forget_person(tx, account.id).await?;
    gone::account(tx, janua, account.id).await?;
    if !Account::delete_unverified(tx, account.id).await? {
        return Err(again().into());
    }
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    Ok(())
}

async fn create(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    row: &Row,
    profile: &Profile,
    proven: Option<&Email>,
    tokens: Option<&[u8]>,
) -> Result<Account> {
    let now = janua.clock.now();
    let new = Account {
        avatar_url: profile.avatar_url.clone(),
        email_verified: proven.is_some(),
        auth_provider: row.name.into(),
        ..Account::new(AccountId::new(&janua.entropy, now), proven, &name(profile), now)
    };
    if !new.insert(tx).await? {
        return Err(again().into());
    }
    visitor.record_about(tx, janua, new.id, &AccountCreated).await?;
    if new.email_verified {
        visitor.record_about(tx, janua, new.id, &EmailVerified).await?;
    }
    let linked = link(tx, janua, visitor, row, profile, new.id, tokens).await?;
    Ok(Account { linked, ..new })
}

async fn link(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    row: &Row,
    profile: &Profile,
    account: AccountId,
    tokens: Option<&[u8]>,
) -> Result<Linked> {
    if !identity(janua, row, profile, account).insert(tx, janua, tokens.map(Tokens)).await? {
        return Err(again().into());
    }
    let linked = Linked::renew(tx, account).await?;
    let by = events::By { actor: Some(account), ..visitor.by.clone() };
    events::record(tx, janua, &by, Some(account), &SocialLinked { provider: row.name }).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.to_string()).await?;
    Ok(linked)
}

fn identity(janua: &Janua, row: &Row, profile: &Profile, account_id: AccountId) -> Identity {
    let now = janua.clock.now();
    Identity {
        provider: row.name.into(),
        subject: profile.subject.clone(),
        account_id,
        email: profile.email.as_ref().map(|email| email.as_str().to_owned()),
        email_verified: profile.email_verified,
        username: profile.username.clone(),
        name: profile.name.clone(),
        avatar_url: profile.avatar_url.clone(),
        linked_at: now,
        last_used_at: now,
    }
}

/// People have a name here, even where the provider tells none.
fn name(profile: &Profile) -> String {
    let of_address = || profile.email.as_ref()?.as_str().split('@').next().map(str::to_owned);
    let told = profile.name.clone().filter(|name| !name.is_empty());
    told.or_else(|| profile.username.clone()).or_else(of_address).unwrap_or_else(|| "New member".into())
}

async fn reread(tx: &mut Tx, id: AccountId) -> Result<Account> {
    Ok(Account::find(tx, id).await?.ok_or_else(again)?)
}

/// Somebody else changed what was just read; from the start it will be seen.
fn again() -> db::Error {
    db::Error::Conflict("the account changed meanwhile".into())
}
