//! Whose billing it is, and who may see and change it.
use db::Tx;
use kernel::{
    Janua,
    fault::{FORBIDDEN, INVALID, NOT_FOUND, Result},
};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::Session,
    orgs::{Membership, Org, OrgId, Role},
};

use crate::{keyed::KeyedSession, usage::ORG_REQUIRED};

/// An organization, or an app of it.
pub struct Payer {
    pub org: Org,
    pub app: Option<Application>,
    least: Role,
}

impl Payer {
    /// The app's id, or nothing: how subjects are told apart.
    pub fn app_key(&self) -> String {
        self.app.as_ref().map(|app| app.id.to_string()).unwrap_or_default()
    }

    /// The console's page about it.
    pub fn page(&self) -> String {
        match &self.app {
            Some(app) => format!("/console/apps/{}/billing", app.id),
            None => format!("/console/orgs/{}/billing", self.org.id),
        }
    }

    /// Locks the organization and checks the caller's role again.
    pub async fn hold(&self, tx: &mut Tx, session: &Session) -> Result<()> {
        if !Org::hold(tx, self.org.id).await? {
            return Err(NOT_FOUND.into());
        }
        let now = Membership::of(&mut *tx, self.org.id, session.account().id).await?.ok_or(NOT_FOUND)?;
        if now.role < self.least {
            return Err(FORBIDDEN.into());
        }
        match &self.app {
            Some(app) => Application::hold(tx, app.id).await?.map(drop).ok_or_else(|| NOT_FOUND.into()),
            None => Ok(()),
        }
    }
}

/// The named organization, or the one the session acts for; the caller must be an admin of it.
pub async fn org(janua: &Janua, session: &Session, named: Option<OrgId>) -> Result<Payer> {
    let org = match named {
        Some(org) => org,
        None => session.org().map(|membership| membership.org.id).ok_or(ORG_REQUIRED)?,
    };
    let Membership { org, role } = Membership::of(&janua.db, org, session.account().id).await?.ok_or(NOT_FOUND)?;
    if role < Role::Admin { Err(FORBIDDEN.into()) } else { Ok(Payer { org, app: None, least: Role::Admin }) }
}

/// The app that the caller means, for one with at least this role in its organization.
pub async fn app(janua: &Janua, caller: &KeyedSession, named: Option<ApplicationId>, least: Role) -> Result<Payer> {
    let named = caller.app(named)?.ok_or_else(|| INVALID.at("appId", "required", "is required"))?;
    let app = Application::find(&janua.db, named).await?.ok_or(NOT_FOUND)?;
    let Membership { org, role } =
        Membership::of(&janua.db, app.org_id, caller.session.account().id).await?.ok_or(NOT_FOUND)?;
    if role < least { Err(FORBIDDEN.into()) } else { Ok(Payer { org, app: Some(app), least }) }
}
