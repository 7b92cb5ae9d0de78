//! Who may create apps and organizations, by the installation's policy.
use kernel::{
    Janua,
    fault::{Code, Result},
};

use super::session::{Session, is_platform_owner};
use crate::{
    orgs::{Membership, invites::Invite},
    policy::{Builders, Policy},
};

pub const BUILDERS_ONLY: Code = Code::new(
    403,
    "builders_only",
    "Only some people may create apps and organizations here. Contact the people who run this service.",
);

/// Whether a person may create apps and organizations.
pub async fn may_build(janua: &Janua, session: &Session) -> db::Result<bool> {
    let builders = janua.config.of::<Policy>().builders;
    if builders == Builders::Everyone || is_platform_owner(janua, session) {
        return Ok(true);
    }
    Ok(builders == Builders::Members && belongs_somewhere(janua, session).await?)
}

/// Whether a person has something to do in the console: they may build, or belong to an organization.
pub async fn sees_console(janua: &Janua, session: &Session) -> db::Result<bool> {
    Ok(may_build(janua, session).await? || is_member(janua, session).await?)
}

/// Refuses people who may not create apps and organizations.
pub async fn refuse_others(janua: &Janua, session: &Session) -> Result<()> {
    if may_build(janua, session).await? { Ok(()) } else { Err(BUILDERS_ONLY.into()) }
}

async fn is_member(janua: &Janua, session: &Session) -> db::Result<bool> {
    Ok(!Membership::all_of(&janua.db, session.account().id).await?.is_empty())
}

async fn belongs_somewhere(janua: &Janua, session: &Session) -> db::Result<bool> {
    if is_member(janua, session).await? {
        return Ok(true);
    }
    let account = session.account();
    match account.email_key.as_deref().filter(|_| account.email_verified) {
        Some(key) => Invite::is_open_for(&janua.db, key, janua.clock.now()).await,
        None => Ok(false),
    }
}
