//! What features do when an account, an organization or an app is deleted. Each feature declares it beside its own
//! tables.
use std::pin::Pin;

use db::{Tx, params};
use kernel::Janua;

use crate::ids::{AccountId, ApplicationId, OrgId};

/// Runs in the transaction that deletes the row, before the row is deleted.
pub type Hook<T> = for<'a> fn(&'a mut Tx, &'a Janua, T) -> Pin<Box<dyn Future<Output = db::Result<()>> + Send + 'a>>;

/// What a feature declares, with [`Feature::declares`](kernel::feature::Feature::declares).
#[derive(Clone, Copy)]
pub enum Gone {
    Account(Hook<AccountId>),
    Org(Hook<OrgId>),
    App(Hook<ApplicationId>),
    /// A member whom the organization's identity provider deactivated.
    Access(Hook<LostAccess>),
    /// Deletes rows that may be many before the deletion, some at a time, because other writers wait for a long
    /// transaction. A statement with the id as `$1` and the number of rows as `$2`.
    ManyOfOrg(&'static str),
    ManyOfApp(&'static str),
}

/// The access of a member that ends.
#[derive(Debug, Clone, Copy)]
pub struct LostAccess {
    pub org: OrgId,
    pub account: AccountId,
    /// Whether the account belongs to the organization: then its access to everything ends, otherwise only its access to
    /// the organization's apps.
    pub is_home: bool,
}

pub async fn account(tx: &mut Tx, janua: &Janua, id: AccountId) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::Account(hook) = gone {
            hook(tx, janua, id).await?;
        }
    }
    Ok(())
}

pub async fn org(tx: &mut Tx, janua: &Janua, id: OrgId) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::Org(hook) = gone {
            hook(tx, janua, id).await?;
        }
    }
    Ok(())
}

pub async fn app(tx: &mut Tx, janua: &Janua, id: ApplicationId) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::App(hook) = gone {
            hook(tx, janua, id).await?;
        }
    }
    Ok(())
}

pub(crate) async fn access(tx: &mut Tx, janua: &Janua, lost: LostAccess) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::Access(hook) = gone {
            hook(tx, janua, lost).await?;
        }
    }
    Ok(())
}

pub(crate) async fn empty_org(janua: &Janua, id: OrgId) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::ManyOfOrg(sql) = gone {
            janua.db.sweep(*sql, params![id]).await?;
        }
    }
    Ok(())
}

pub(crate) async fn empty_app(janua: &Janua, id: ApplicationId) -> db::Result<()> {
    for gone in janua.declared::<Gone>() {
        if let Gone::ManyOfApp(sql) = gone {
            janua.db.sweep(*sql, params![id]).await?;
        }
    }
    Ok(())
}
