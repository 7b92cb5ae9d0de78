//! The organization that users get when they create something and have none.
use db::Tx;
use kernel::{Janua, fault::Result};

use super::Session;
use crate::{
    accounts::Account,
    apps::slugs,
    events::{About, happenings::OrgCreated},
    ids::{OrgId, Role},
    orgs::{Membership, Org, members::OrgMember, switch},
};

/// Creates an organization for a user who has none, and lets the session act for it. The account is held, so that two
/// requests at once create one.
pub async fn create_own_org(tx: &mut Tx, janua: &Janua, session: &Session) -> Result<Membership> {
    let (account, now) = (session.account(), janua.clock.now());
    Account::hold(tx, account.id).await?;
    let name = format!("{}'s organization", account.name);
    let mut org = Org::new(OrgId::new(&janua.entropy, now), &name, &slugs::made_from(janua, &account.name), now);
    if !org.insert(tx).await? {
        org.slug = slugs::slug_near(janua, &org.slug);
        if !org.insert(tx).await? {
            return Err(slugs::SLUG_TAKEN.into());
        }
    }
    OrgMember::add(tx, janua, org.id, account.id, Role::Owner).await?;
    session.record_about(tx, janua, About::in_org(org.id), &OrgCreated).await?;
    if session.org().is_none() {
        switch(tx, session.id(), account.id, org.id).await?;
    }
    Ok(Membership { org, role: Role::Owner })
}
