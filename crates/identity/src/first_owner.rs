//! The first person of a new installation. The start prints a link; whoever has it can read what the server says, and
//! becomes its owner. It works once, and not where the settings name the owners.
use kernel::{
    Janua,
    crypto::same,
    fault::{Code, Result},
    installation, transact,
};
use tenancy::{
    accounts::{
        Account, AccountId,
        password::{self, Hasher},
    },
    enter::{Delivery, Visitor},
    events::{self, About, By},
    once::TOKEN_SPENT,
    restored::AfterRestore,
    sessions::sign_in::{self, Entered, SignInMethod, Typed},
};

use crate::{
    events::{AccountCreated, OwnerLinkRenewed, PlatformOwnerMade},
    register::SignUp,
};

/// The row that says who was first, once somebody was.
const TAKEN: &str = "first_owner";
/// The row that the link is made from: another database has another link.
const SEED: &str = "first_owner_link";
pub const PATH: &str = "/first-owner";

const ADDRESS_TAKEN: Code = Code::new(
    409,
    "address_taken",
    "This email has an account. Use another one, or add the email to platform_owners.",
);

/// The first owner may have come after the moment that was restored: the next start prints another link.
pub(crate) const AFTER_RESTORE: AfterRestore = AfterRestore::delete_fact(SEED);

/// Gets the link ready, or closes the door for good where the settings name the owners: an old link must not come back to
/// life when they no longer do.
pub async fn start(janua: &Janua) -> db::Result<()> {
    let seed = janua.config.of::<tenancy::Settings>().platform_owners.is_empty().then(|| janua.entropy.token());
    let (name, value) = seed.as_ref().map_or((TAKEN, "settings"), |seed| (SEED, seed.expose()));
    db::transact!(janua.db, async |tx| installation::write_once(tx, name, value).await).map(drop)
}

/// What the link bears; nothing once the door is closed.
async fn token(janua: &Janua) -> db::Result<Option<String>> {
    if installation::read(&janua.db, TAKEN).await?.is_some() {
        return Ok(None);
    }
    let seed = installation::read(&janua.db, SEED).await?;
    Ok(seed.map(|seed| janua.vault.mac(SEED, seed.as_bytes())))
}

/// Where the first owner is made; nothing once there is one. The same after every start and on every node.
pub async fn link(janua: &Janua) -> db::Result<Option<String>> {
    Ok(token(janua).await?.map(|token| format!("{}{PATH}?token={token}", janua.config.base_url())))
}

/// Another link, which works once although there is an owner; links from before do not. Nothing where the settings name the
/// owners. For the shell of the server: whoever can run it owns the installation anyway.
pub async fn renew(janua: &Janua) -> Result<Option<String>> {
    if !janua.config.of::<tenancy::Settings>().platform_owners.is_empty() {
        return Ok(None);
    }
    transact!(janua, async |tx| {
        installation::remove(tx, TAKEN).await?;
        installation::write(tx, SEED, janua.entropy.token().expose()).await?;
        Ok(events::record(tx, janua, &By::shell(), About::default(), &OwnerLinkRenewed).await?)
    })?;
    Ok(link(janua).await?)
}

/// Refuses whoever comes with another token, or too late.
pub async fn look(janua: &Janua, given: &Typed) -> Result<()> {
    let token = token(janua).await?;
    let is_right = token.is_some_and(|token| same(given.0.expose().as_bytes(), token.as_bytes()));
    if is_right { Ok(()) } else { Err(TOKEN_SPENT.into()) }
}

/// Makes the account and lets it in. There is nothing to confirm: nobody else can read what a server prints.
pub async fn make(janua: &Janua, visitor: &Visitor, given: &Typed, new: &SignUp) -> Result<Entered> {
    visitor.admit(janua, Some(&new.email)).await?;
    look(janua, given).await?;
    password::check("password", &new.password.0, Some(&new.email), &new.name)?;
    let password_hash = janua.own::<Hasher>().hash(&janua.entropy, &new.password.0).await?;
    let now = janua.clock.now();
    let owner = Account {
        password_hash: Some(password_hash),
        email_verified: true,
        ..Account::new(AccountId::new(&janua.entropy, now), Some(&new.email), new.name.trim(), now)
    };
    transact!(janua, async |tx| {
        if !installation::write_once(tx, TAKEN, &owner.id.to_string()).await? {
            return Err(TOKEN_SPENT.into());
        }
        let (account, is_new) = Account::ensure(tx, &owner).await?;
        if !is_new {
            return Err(ADDRESS_TAKEN.into());
        }
        Account::entrust_platform(tx, account.id).await?;
        visitor.record_about(tx, janua, account.id, &AccountCreated).await?;
        visitor.record_about(tx, janua, account.id, &PlatformOwnerMade).await?;
        sign_in::enter(tx, janua, visitor, account, SignInMethod::by("pwd", Delivery::Cookie)).await
    })
}
