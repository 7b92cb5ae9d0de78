//! Events of machines, for audit logs and webhooks.
use serde_json::Value;

use super::Kind;
use crate::events::{self, Event};

crate::events! {
    /// An agent was registered.
    AgentRegistered = "AGENT_REGISTERED";
    /// An agent proved its wallet.
    AgentProven = "AGENT_PROVEN";
    /// The name, scopes, audiences or limits of an agent were changed.
    AgentUpdated = "AGENT_UPDATED";
    /// An agent got a token.
    AgentTokenIssued = "AGENT_TOKEN_ISSUED";
    /// An agent was refused a token. `count` has those of the last minute.
    AgentTokenRefused = "AGENT_TOKEN_REFUSED";
    /// An agent was suspended.
    AgentSuspended = "AGENT_SUSPENDED";
    /// An agent was reactivated.
    AgentReactivated = "AGENT_REACTIVATED";
    /// An agent used up one of its limits.
    AgentLimitReached = "AGENT_LIMIT_REACHED";
    /// An agent was deleted.
    AgentDeleted = "AGENT_DELETED";
    /// A framework agent was registered.
    FrameworkAgentRegistered = "FRAMEWORK_AGENT_REGISTERED";
    /// The name, scopes, audiences, limits or keys of a framework agent were changed.
    FrameworkAgentUpdated = "FRAMEWORK_AGENT_UPDATED";
    /// A framework agent got a token.
    FrameworkAgentTokenIssued = "FRAMEWORK_AGENT_TOKEN_ISSUED";
    /// A framework agent was refused a token. `count` has those of the last minute.
    FrameworkAgentTokenRefused = "FRAMEWORK_AGENT_TOKEN_REFUSED";
    /// A framework agent was suspended.
    FrameworkAgentSuspended = "FRAMEWORK_AGENT_SUSPENDED";
    /// A framework agent was reactivated.
    FrameworkAgentReactivated = "FRAMEWORK_AGENT_REACTIVATED";
    /// A framework agent used up one of its limits.
    FrameworkAgentLimitReached = "FRAMEWORK_AGENT_LIMIT_REACHED";
    /// A framework agent was deleted.
    FrameworkAgentDeleted = "FRAMEWORK_AGENT_DELETED";
    /// The secret or the kill switch of a framework agent was replaced.
    FrameworkAgentSecretRotated = "FRAMEWORK_AGENT_SECRET_ROTATED";
    /// A framework agent was suspended by its kill switch.
    KillSwitchUsed = "KILL_SWITCH_USED";
    /// An MCP server was registered.
    McpRegistered = "MCP_REGISTERED";
    /// An MCP server proved its domain.
    McpVerified = "MCP_VERIFIED";
    /// The proof of an MCP server's domain is gone, or another server has proven its name.
    McpLapsed = "MCP_LAPSED";
    /// The metadata of an MCP server was changed.
    McpUpdated = "MCP_UPDATED";
    /// An MCP server got a token.
    McpTokenIssued = "MCP_TOKEN_ISSUED";
    /// An MCP server was refused a token. `count` has those of the last minute.
    McpTokenRefused = "MCP_TOKEN_REFUSED";
    /// The tokens and the secret of an MCP server were revoked.
    McpRevoked = "MCP_REVOKED";
    /// An MCP server has a new secret after it was revoked.
    McpReactivated = "MCP_REACTIVATED";
    /// An MCP server used up one of its limits.
    McpLimitReached = "MCP_LIMIT_REACHED";
    /// An MCP server was deleted.
    McpDeleted = "MCP_DELETED";
    /// A machine got a token to act for a user.
    DelegationGranted = "DELEGATION_GRANTED";
    /// A user took the permission to act for them back from a machine.
    DelegationRevoked = "DELEGATION_REVOKED";
}

/// An event of a machine of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineAct {
    Registered,
    /// The wallet of an agent, the domain of an MCP server.
    Proven,
    Updated,
    TokenIssued,
    TokenRefused,
    Suspended,
    Reactivated,
    LimitReached,
    SecretRotated,
    Deleted,
}

/// An event of a machine, under the name that its kind has for it.
pub struct MachineEvent {
    kind: events::Kind,
    details: Value,
}

impl MachineEvent {
    pub fn new(of: Kind, act: MachineAct, details: Value) -> Self {
        use MachineAct as A;
        let kind = match (of, act) {
            (Kind::Agent, A::Registered) => AgentRegistered::KIND,
            (Kind::Agent, A::Proven) => AgentProven::KIND,
            (Kind::Agent, A::Updated | A::SecretRotated) => AgentUpdated::KIND,
            (Kind::Agent, A::TokenIssued) => AgentTokenIssued::KIND,
            (Kind::Agent, A::TokenRefused) => AgentTokenRefused::KIND,
            (Kind::Agent, A::Suspended) => AgentSuspended::KIND,
            (Kind::Agent, A::Reactivated) => AgentReactivated::KIND,
            (Kind::Agent, A::LimitReached) => AgentLimitReached::KIND,
            (Kind::Agent, A::Deleted) => AgentDeleted::KIND,
            (Kind::Framework, A::Registered) => FrameworkAgentRegistered::KIND,
            (Kind::Framework, A::Updated | A::Proven) => FrameworkAgentUpdated::KIND,
            (Kind::Framework, A::SecretRotated) => FrameworkAgentSecretRotated::KIND,
            (Kind::Framework, A::TokenIssued) => FrameworkAgentTokenIssued::KIND,
            (Kind::Framework, A::TokenRefused) => FrameworkAgentTokenRefused::KIND,
            (Kind::Framework, A::Suspended) => FrameworkAgentSuspended::KIND,
            (Kind::Framework, A::Reactivated) => FrameworkAgentReactivated::KIND,
            (Kind::Framework, A::LimitReached) => FrameworkAgentLimitReached::KIND,
            (Kind::Framework, A::Deleted) => FrameworkAgentDeleted::KIND,
            (Kind::Mcp, A::Registered) => McpRegistered::KIND,
            (Kind::Mcp, A::Proven) => McpVerified::KIND,
            (Kind::Mcp, A::Updated | A::SecretRotated) => McpUpdated::KIND,
            (Kind::Mcp, A::TokenIssued) => McpTokenIssued::KIND,
            (Kind::Mcp, A::TokenRefused) => McpTokenRefused::KIND,
            (Kind::Mcp, A::Suspended) => McpRevoked::KIND,
            (Kind::Mcp, A::Reactivated) => McpReactivated::KIND,
            (Kind::Mcp, A::LimitReached) => McpLimitReached::KIND,
            (Kind::Mcp, A::Deleted) => McpDeleted::KIND,
        };
        Self { kind, details }
    }

    /// The proof of an MCP server is gone.
    pub fn lapsed(details: Value) -> Self {
        Self { kind: McpLapsed::KIND, details }
    }

    pub fn kill_switch(details: Value) -> Self {
        Self { kind: KillSwitchUsed::KIND, details }
    }

    pub fn delegated(details: Value) -> Self {
        Self { kind: DelegationGranted::KIND, details }
    }

    pub fn delegation_revoked(details: Value) -> Self {
        Self { kind: DelegationRevoked::KIND, details }
    }
}

impl Event for MachineEvent {
    fn kind(&self) -> events::Kind {
        self.kind
    }

    fn details(&self) -> Value {
        self.details.clone()
    }
}
