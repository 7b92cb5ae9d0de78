//! Suspending and reactivating machines. Either is one commit: the state, the generation that makes all tokens invalid, the
//! event and the notice to other nodes.
use db::Tx;
use kernel::{Janua, fault::Result};
use serde_json::json;

use super::{
    AGENT_LIMIT, Machine, MachineAct, MachineEvent, Rank, SUSPENDED_BY_ADMIN, State, SuspendedBy, limits, mails,
};
use crate::{
    events::{self, By},
    gone::Gone,
    ids::{AccountId, OrgId},
    orgs::Membership,
};

pub(crate) const GONE: &[Gone] =
    &[Gone::Account(|tx, janua, account| Box::pin(owner_gone(tx, janua, account, None)))];

impl SuspendedBy {
    /// The least rank that may reactivate.
    pub fn rank(self) -> Rank {
        match self {
            Self::Owner | Self::Limit | Self::KillSwitch => Rank::Owner,
            Self::OrgAdmin | Self::OwnerGone => Rank::OrgAdmin,
            Self::Platform => Rank::Platform,
        }
    }
}

/// Suspends a machine that the caller holds. `false` when it was suspended by the same or a higher rank already; then nothing
/// changes and nothing is recorded.
pub async fn suspend(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    machine: &mut Machine,
    why: SuspendedBy,
    reason: Option<String>,
) -> db::Result<bool> {
    let is_so = machine.suspended_by.is_some_and(|before| before.rank() >= why.rank());
    if machine.state == State::Suspended && is_so {
        return Ok(false);
    }
    let now = janua.clock.now();
    machine.state = State::Suspended;
    (machine.suspended_by, machine.suspended_at) = (Some(why), Some(now));
    machine.suspended_reason.clone_from(&reason);
    machine.generation += 1;
    machine.updated_at = now;
    machine.save(tx).await?;
    let details = json!({ "by": why, "reason": reason, "name": machine.name });
    let event = MachineEvent::new(machine.kind, MachineAct::Suspended, details);
    events::record(tx, janua, by, machine.about(), &event).await?;
    Ok(true)
}

/// Suspends by a kill switch, and tells the people who look after the machine.
pub async fn kill(tx: &mut Tx, janua: &Janua, by: &By, machine: &mut Machine) -> db::Result<()> {
    if suspend(tx, janua, by, machine, SuspendedBy::KillSwitch, None).await? {
        let event = MachineEvent::kill_switch(json!({ "name": machine.name }));
        events::record(tx, janua, by, machine.about(), &event).await?;
        mails::tell(tx, janua, machine, mails::MachineNews::KillSwitch, "").await?;
    }
    Ok(())
}

/// Reactivates a machine that the caller holds. A caller who reactivates what lost its owner becomes the owner.
pub async fn reactivate(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    machine: &mut Machine,
    (account, rank): (AccountId, Rank),
) -> Result<bool> {
    if machine.state != State::Suspended {
        return Ok(false);
    }
    let why = machine.suspended_by.unwrap_or(SuspendedBy::Owner);
    if rank < why.rank() {
        return Err(SUSPENDED_BY_ADMIN.into());
    }
    let now = janua.clock.now();
    if why == SuspendedBy::Limit
        && let Some(full) = limits::is_used_up(tx, machine, now).await?
    {
        let left = limits::Left { remaining: 0, resets_at: full.resets_at, now };
        return Err(left.fault());
    }
    let is_owned = match machine.owner_id {
        Some(owner) => Membership::of(&mut *tx, machine.org_id, owner).await?.is_some(),
        None => false,
    };
    if !is_owned {
        // Without an owner in the organization no token of it counts.
        machine.owner_id = (rank == Rank::OrgAdmin).then_some(account);
    }
    let is_proven = machine.kind == super::Kind::Framework || machine.proven_at.is_some();
    machine.state = if is_proven { State::Active } else { State::Pending };
    (machine.suspended_by, machine.suspended_at, machine.suspended_reason) = (None, None, None);
    machine.updated_at = now;
    machine.save(tx).await?;
    let details = json!({ "name": machine.name, "was": why });
    let event = MachineEvent::new(machine.kind, MachineAct::Reactivated, details);
    events::record(tx, janua, by, machine.about(), &event).await?;
    Ok(true)
}

/// The codes of [`reactivate`].
pub const REACTIVATE: &[kernel::fault::Code] = &[SUSPENDED_BY_ADMIN, AGENT_LIMIT];

/// Suspends what an owner leaves behind: in one organization, or everywhere.
pub(crate) async fn owner_gone(tx: &mut Tx, janua: &Janua, owner: AccountId, org: Option<OrgId>) -> db::Result<()> {
    for mut machine in Machine::hold_of_owner(tx, owner, org).await? {
        suspend(tx, janua, &By::default(), &mut machine, SuspendedBy::OwnerGone, None).await?;
    }
    Ok(())
}
