//! The first person of a new installation. The start prints a link; whoever has it can read what the server says, and
//! becomes its owner. It works once, and not where the settings name the owners.
use kernel::{
    App,
    crypto::same,
    db::{self, Db},
    fault::{Code, Fault, Result},
    params, transact,
};
use tenancy::{
    accounts::{Account, AccountId},
    enter::{Delivery, Visitor},
    events::{self, Event},
    once::TOKEN_SPENT,
    password::{self, Hasher},
    sign_in::{self, Entered, Typed, Way},
};

use crate::register::SignUp;

/// What is written into the settings of the installation once somebody was first.
const SETTING: &str = "first_owner";
pub const PATH: &str = "/first-owner";

const ADDRESS_TAKEN: Code = Code::new(
    409,
    "address_taken",
    "This address has an account already. Take another one, or name the address in platform_owners.",
);

fn token(app: &App) -> String {
    app.vault.mac(SETTING, b"")
}

async fn is_open(app: &App) -> db::Result<bool> {
    async fn is_taken(db: &Db) -> db::Result<bool> {
        let sql = "SELECT value FROM setting WHERE name = $1";
        Ok(db.opt::<(String,)>(sql, params![SETTING]).await?.is_some())
    }
    Ok(app.config.platform_owners.is_empty() && !is_taken(&app.db).await?)
}

/// Where the first owner is made; nothing once there is one. The same after every start and on every node.
pub async fn link(app: &App) -> db::Result<Option<String>> {
    let link = || format!("{}{PATH}?token={}", app.config.base_url(), token(app));
    Ok(is_open(app).await?.then(link))
}

/// Refuses whoever comes with another token, or too late.
pub async fn look(app: &App, given: &Typed) -> Result<()> {
    let is_right = same(given.0.expose().as_bytes(), token(app).as_bytes());
    if is_right && is_open(app).await? { Ok(()) } else { Err(TOKEN_SPENT.into()) }
}

/// Makes the account and lets it in. There is nothing to confirm: nobody else can read what a server prints.
pub async fn make(app: &App, visitor: &Visitor, given: &Typed, new: &SignUp) -> Result<Entered> {
    visitor.admit(app, Some(&new.email)).await?;
    look(app, given).await?;
    password::check("password", &new.password.0, Some(&new.email), &new.name)?;
    let password_hash = app.own::<Hasher>().hash(&app.entropy, &new.password.0).await?;
    let now = app.clock.now();
    let owner = Account {
        password_hash: Some(password_hash),
        email_verified: true,
        ..Account::new(AccountId::new(&app.entropy, now), Some(&new.email), new.name.trim(), now)
    };
    transact!(app.db, tx, {
        let sql = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        if tx.exec(sql, params![SETTING, owner.id]).await? == 0 {
            return Err(Fault::from(TOKEN_SPENT));
        }
        let (account, is_new) = Account::ensure(tx, &owner).await?;
        if !is_new {
            return Err(ADDRESS_TAKEN.into());
        }
        Account::entrust_platform(tx, account.id).await?;
        events::record(tx, app, &visitor.by, Some(account.id), &Event::AccountCreated).await?;
        events::record(tx, app, &visitor.by, Some(account.id), &Event::PlatformOwnerMade).await?;
        sign_in::enter(tx, app, visitor, account, Way::by("pwd", Delivery::Cookie)).await
    })
}
