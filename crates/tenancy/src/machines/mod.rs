//! Software with an identity of its own: agents, framework agents and MCP servers. What the three kinds have in common:
//! an owner, a state, limits, secrets and tokens. Features add what is special about each kind.
pub mod assertion;
pub mod caller;
mod claims;
pub mod delegation;
mod events;
mod limit;
pub mod limits;
pub mod log;
mod mails;
mod model;
pub mod refusals;
pub mod secrets;
pub mod states;
pub mod targets;
pub mod tokens;

use std::time::Duration;

use kernel::{fault::Code, jobs::Chore};

pub use self::{
    caller::{MachineToken, Managed, Warden},
    claims::{Act, MachineClaims},
    events::{MachineAct, MachineEvent},
    limit::{MachineLimit, Per, Then},
    limits::LimitView,
    model::{Kind, Machine, Rank, State, SuspendedBy},
};
pub(crate) use self::{events::EVENTS, mails::MAILS, states::GONE};
pub use crate::ids::MachineId;

/// The topic on which a change to a machine is told.
pub const TOPIC: &str = crate::ids::topic::MACHINE;

pub const AGENT_SUSPENDED: Code =
    Code::new(403, "agent_suspended", "This agent is suspended. Reactivate it to get tokens again.");
pub const AGENT_EXPIRED: Code = Code::new(403, "agent_expired", "This agent has expired. Register it again.");
pub const AGENT_LIMIT: Code =
    Code::new(429, "agent_limit", "The agent has used up one of its limits. Wait until it resets, or raise it.");
pub const SUSPENDED_BY_ADMIN: Code = Code::new(
    403,
    "suspended_by_admin",
    "An admin suspended this. Only a user of at least the same rank can reactivate it.",
);
pub const INVALID_SCOPE: Code = Code::new(400, "invalid_scope", "The scope exceeds what was granted.");
pub const INVALID_TARGET: Code = Code::new(400, "invalid_target", "The resource is unknown.");
pub const INVALID_CREDENTIALS: Code =
    Code::new(401, "invalid_credentials", "Unknown client ID, or wrong client credentials.");
pub const LIMIT_REACHED: Code =
    Code::new(409, "limit_reached", "The organization has as many machines as it may have. Delete one first.");

/// How many machines an organization has at the most.
pub const MOST_OF_ORG: i64 = 100;

/// Spendings and counters of windows that ended are kept this long.
const KEPT: Duration = Duration::from_hours(24 * 400);

/// Agents that did not prove their wallet in this time are deleted.
const CLAIMED: Duration = Duration::from_hours(7 * 24);

pub(crate) const CHORES: &[Chore] = &[
    Chore::sweep(
        "machine",
        "DELETE FROM machine WHERE id IN
             (SELECT id FROM machine WHERE kind = 'agent' AND state = 'pending' AND created_at < $1
              ORDER BY created_at LIMIT $2)",
        CLAIMED,
    ),
    Chore::sweep(
        "machine_meter",
        "DELETE FROM machine_meter WHERE (machine_id, meter, per, since) IN
             (SELECT machine_id, meter, per, since FROM machine_meter WHERE since < $1 ORDER BY since LIMIT $2)",
        KEPT,
    ),
    Chore::sweep(
        "machine_spending",
        "DELETE FROM machine_spending WHERE id IN (SELECT id FROM machine_spending WHERE at < $1 ORDER BY at LIMIT $2)",
        KEPT,
    ),
    Chore::sweep(
        "machine_secret",
        "DELETE FROM machine_secret WHERE hash IN
             (SELECT hash FROM machine_secret WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        Duration::ZERO,
    ),
];
