//! Roles as types: a handler that takes `InOrg<Admin>` runs only for admins and owners of the organization in its
//! path. The role comes from the database or this node's cache of it, never from the token.
use std::{marker::PhantomData, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use db::Tx;
use kernel::{
    Janua,
    fault::{FORBIDDEN, Fault, NOT_FOUND, Result},
    http::{GenContext, Operation, OperationInput, Path, may_answer},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Live, Session};
use crate::{
    events::{About, Event},
    ids::{AccountId, OrgId, Role},
    orgs::{Membership, Org},
};

/// The least role that a handler requires.
pub trait Least: Send + Sync + 'static {
    const ROLE: Role;
    /// The role that is enough if the path's `{userId}` is the caller.
    const FOR_ONESELF: Role = Self::ROLE;
}

pub struct Member;
pub struct Admin;
pub struct Owner;
/// An admin, or the user that the path names.
pub struct AdminOrSelf;

impl Least for Member {
    const ROLE: Role = Role::Member;
}
impl Least for Admin {
    const ROLE: Role = Role::Admin;
}
impl Least for Owner {
    const ROLE: Role = Role::Owner;
}
impl Least for AdminOrSelf {
    const ROLE: Role = Role::Admin;
    const FOR_ONESELF: Role = Role::Member;
}

/// A caller with at least the role `R` in the organization of the path's `{id}`.
pub struct InOrg<R> {
    pub session: Session,
    pub membership: Arc<Membership>,
    least: PhantomData<R>,
}

impl<R: Least> InOrg<R> {
    /// Locks the organization and its members until the transaction ends, and checks the caller's role again, because
    /// it may have changed meanwhile.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Membership> {
        let id = self.org().id;
        if !Org::hold(tx, id).await? {
            return Err(NOT_FOUND.into());
        }
        let now = Membership::of(&mut *tx, id, self.session.account().id).await?.ok_or(NOT_FOUND)?;
        if now.role < R::ROLE.min(R::FOR_ONESELF) { Err(FORBIDDEN.into()) } else { Ok(now) }
    }
}

impl<R: Least> InOrg<R> {
    /// For routes whose organization is not in the path: as the extractor does.
    pub async fn reach(janua: &Janua, session: Session, org: OrgId) -> Result<Self> {
        let membership = member(janua, &session, org, R::ROLE).await?;
        Ok(Self { session, membership, least: PhantomData })
    }
}

impl<R> InOrg<R> {
    pub fn org(&self) -> &Org {
        &self.membership.org
    }

    pub fn role(&self) -> Role {
        self.membership.role
    }

    /// Records something that happened to the organization.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.session.record_about(tx, janua, About::in_org(self.org().id), event).await
    }

    /// Records something that happened to a person in the organization.
    pub async fn record_about(
        &self,
        tx: &mut Tx,
        janua: &Janua,
        person: AccountId,
        event: &dyn Event,
    ) -> db::Result<()> {
        self.session.record_about(tx, janua, About::in_org(self.org().id).person(person), event).await
    }
}

#[derive(Deserialize, JsonSchema)]
struct OrgPath {
    id: OrgId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whom {
    user_id: AccountId,
}

impl<R: Least> FromRequestParts<Janua> for InOrg<R> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        let Path(OrgPath { id }) = Path::from_request_parts(parts, janua).await?;
        let whom: Option<Path<Whom>> = Path::from_request_parts(parts, janua).await.ok();
        let is_self = whom.is_some_and(|Path(whom)| whom.user_id == session.account().id);
        let least = if is_self { R::FOR_ONESELF } else { R::ROLE };
        let membership = member(janua, &session, id, least).await?;
        Ok(Self { session, membership, least: PhantomData })
    }
}

/// The caller's membership. Other callers get 404, so that they do not learn whether the organization exists.
pub(super) async fn member(janua: &Janua, session: &Session, org: OrgId, least: Role) -> Result<Arc<Membership>> {
    let live = janua.own::<Arc<Live>>();
    let membership = live.membership(janua, org, session.account().id).await?.ok_or(NOT_FOUND)?;
    if membership.role < least { Err(FORBIDDEN.into()) } else { Ok(membership) }
}

impl<R: Least> OperationInput for InOrg<R> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        Path::<OrgPath>::operation_input(ctx, operation);
        describe_role(operation, R::ROLE);
    }
}

pub(super) fn describe_role(operation: &mut Operation, least: Role) {
    if least > Role::Member {
        may_answer(operation, &[FORBIDDEN]);
    }
    operation.extensions.insert("x-role".into(), least.name().into());
}
