//! Access of machines, and of the people who look after them.
use std::marker::PhantomData;

use axum::{extract::FromRequestParts, http::request::Parts};
use db::Tx;
use kernel::{
    Janua,
    fault::{Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, Path, bearer, may_answer, requires},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Kind, Machine, MachineId, Rank,
    tokens::{self, Recognised},
};
use crate::{
    enter::{Session, is_platform_owner},
    events::Event,
    ids::Role,
    orgs::Membership,
};

/// A machine that calls with a token of its own, in the header only.
pub struct MachineToken(pub Recognised);

impl FromRequestParts<Janua> for MachineToken {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let token = bearer(&parts.headers).ok_or(UNAUTHENTICATED)?;
        Ok(Self(tokens::recognise(janua, token).await?.ok_or(UNAUTHENTICATED)?))
    }
}

impl OperationInput for MachineToken {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["machineToken"]);
        may_answer(operation, &[UNAUTHENTICATED]);
    }
}

/// A kind of machine as a type.
pub trait OfKind: Send + Sync + 'static {
    const KIND: Kind;
}

pub struct OfAgent;
pub struct OfFramework;
pub struct OfMcp;

impl OfKind for OfAgent {
    const KIND: Kind = Kind::Agent;
}
impl OfKind for OfFramework {
    const KIND: Kind = Kind::Framework;
}
impl OfKind for OfMcp {
    const KIND: Kind = Kind::Mcp;
}

/// A user who may manage the machine of the path's `{id}`: its owner, or an admin of its organization. Others get 404, as for
/// an id that does not exist.
pub struct Managed<K> {
    pub session: Session,
    pub machine: Machine,
    pub rank: Rank,
    kind: PhantomData<K>,
}

/// Like [`Managed`], for what platform owners may do, too: suspend and reactivate.
pub struct Warden<K>(pub Managed<K>);

impl<K: OfKind> Managed<K> {
    /// Finds a machine by an ID that came in the body.
    pub async fn reach(janua: &Janua, session: Session, id: MachineId) -> Result<Self> {
        let machine = Machine::find(&janua.db, id).await?.filter(|machine| machine.kind == K::KIND);
        let machine = machine.ok_or(NOT_FOUND)?;
        let membership = Membership::of(&janua.db, machine.org_id, session.account().id).await?;
        let rank = rank(&session, &machine, membership.as_ref()).ok_or(NOT_FOUND)?;
        Ok(Self { session, machine, rank, kind: PhantomData })
    }

    async fn reach_for_platform(janua: &Janua, session: Session, id: MachineId) -> Result<Self> {
        if !is_platform_owner(janua, &session) {
            return Self::reach(janua, session, id).await;
        }
        let machine = Machine::find(&janua.db, id).await?.filter(|machine| machine.kind == K::KIND);
        Ok(Self { session, machine: machine.ok_or(NOT_FOUND)?, rank: Rank::Platform, kind: PhantomData })
    }

    /// Locks the machine until the transaction ends, and checks the caller's rank again.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Machine> {
        let machine = Machine::hold(tx, self.machine.id).await?.ok_or(NOT_FOUND)?;
        if self.rank < Rank::Platform {
            let membership = Membership::of(&mut *tx, machine.org_id, self.session.account().id).await?;
            let now = rank(&self.session, &machine, membership.as_ref()).ok_or(NOT_FOUND)?;
            if now < self.rank {
                return Err(NOT_FOUND.into());
            }
        }
        Ok(machine)
    }

    /// Whether the caller is the owner.
    pub fn is_own(&self) -> bool {
        self.machine.owner_id == Some(self.session.account().id)
    }

    /// Records something that the caller did to the machine.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.session.record_about(tx, janua, self.machine.about(), event).await
    }
}

fn rank(session: &Session, machine: &Machine, membership: Option<&Membership>) -> Option<Rank> {
    let membership = membership?;
    if membership.role >= Role::Admin {
        return Some(Rank::OrgAdmin);
    }
    (machine.owner_id == Some(session.account().id)).then_some(Rank::Owner)
}

#[derive(Deserialize, JsonSchema)]
struct MachinePath {
    id: MachineId,
}

impl<K: OfKind> FromRequestParts<Janua> for Managed<K> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        let Path(MachinePath { id }) = Path::from_request_parts(parts, janua).await?;
        Self::reach(janua, session, id).await
    }
}

impl<K: OfKind> FromRequestParts<Janua> for Warden<K> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        let Path(MachinePath { id }) = Path::from_request_parts(parts, janua).await?;
        Managed::reach_for_platform(janua, session, id).await.map(Self)
    }
}

impl<K: OfKind> OperationInput for Managed<K> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        Path::<MachinePath>::operation_input(ctx, operation);
    }
}

impl<K: OfKind> OperationInput for Warden<K> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Managed::<K>::operation_input(ctx, operation);
    }
}
