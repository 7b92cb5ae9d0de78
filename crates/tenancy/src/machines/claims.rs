//! The claims of a machine's token.
use serde::{Deserialize, Serialize};

use super::Kind;
use crate::{
    ids::{AccountId, MachineId, OrgId, SessionId},
    sessions::audience::Audience,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineClaims {
    pub iss: String,
    /// The machine; in a delegated token the user it acts for.
    pub sub: String,
    pub aud: Audience,
    pub client_id: MachineId,
    pub jti: String,
    pub iat: i64,
    pub exp: i64,
    #[serde(rename = "type")]
    pub kind: Kind,
    #[serde(rename = "gen")]
    pub generation: i64,
    #[serde(default)]
    pub scope: String,
    #[serde(rename = "orgId")]
    pub org_id: OrgId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AccountId>,
    /// The session of the user, in a delegated token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<SessionId>,
    /// The machine that acts (RFC 8693, 4.1), in a delegated token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Act>,
}

/// A machine that acts for a user, and the one that it acts for in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Act {
    pub sub: MachineId,
    #[serde(rename = "type")]
    pub kind: Kind,
    #[serde(rename = "gen")]
    pub generation: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Act>>,
}

impl Act {
    /// This machine and those it acts for.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |act| act.act.as_deref())
    }
}
