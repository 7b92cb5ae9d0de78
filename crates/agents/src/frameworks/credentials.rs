//! Client credentials of framework agents and MCP servers, and the tokens they get for them.
use kernel::{
    Janua,
    fault::{Fault, Result},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    events::By,
    machines::{
        AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, INVALID_CREDENTIALS, Kind, Machine, MachineId, assertion,
        limits::Outcome,
        refusals,
        secrets::{self, Purpose},
        targets::{self, Wanted},
        tokens,
    },
    sessions::sign_in::Typed,
};

use crate::shared::TokenAnswer;

/// A secret, or a JWT that was signed with a key of the machine (RFC 7523).
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names of the standard")]
pub struct Credentials {
    client_id: Option<MachineId>,
    #[schemars(with = "Option<String>", length(max = 200), extend("format" = "password"))]
    client_secret: Option<Typed>,
    #[schemars(with = "Option<String>", length(max = 8192))]
    client_assertion: Option<Typed>,
}

impl Credentials {
    /// The machine that these prove.
    pub async fn check(&self, janua: &Janua, kind: Kind) -> Result<Machine> {
        let found = match (&self.client_secret, &self.client_assertion) {
            (Some(secret), None) => {
                let purpose = if kind == Kind::Mcp { Purpose::Mcp } else { Purpose::Framework };
                match secrets::find(&janua.db, purpose, &secret.0, janua.clock.now()).await? {
                    Some(id) => Machine::find(&janua.db, id).await?,
                    None => None,
                }
            }
            (None, Some(assertion)) => assertion::verify(janua, &assertion.0).await?,
            _ => None,
        };
        let is_meant =
            |machine: &Machine| machine.kind == kind && self.client_id.is_none_or(|said| said == machine.id);
        found.filter(is_meant).ok_or_else(|| INVALID_CREDENTIALS.into())
    }
}

/// A token for a machine that proved its credentials.
pub async fn issue(janua: &Janua, by: &By, machine: &Machine, wanted: &Wanted) -> Result<TokenAnswer> {
    match try_issue(janua, by, machine, wanted).await {
        Ok(issued) => Ok(issued.into()),
        Err(fault) => Err(noted(janua, by, machine, fault).await?),
    }
}

async fn try_issue(janua: &Janua, by: &By, machine: &Machine, wanted: &Wanted) -> Result<tokens::Issued> {
    tokens::refuse_inactive(machine, janua.clock.now())?;
    let granted = targets::grant(janua, machine, wanted)?;
    let outcome = transact!(janua, async |tx| Ok(tokens::record(tx, janua, by, machine, &granted, None).await?))?;
    match outcome {
        Outcome::Counted(_) => tokens::sign(janua, machine, &granted, None),
        Outcome::Refused(left) => Err(left.fault()),
    }
}

/// Writes a refusal into the log of the machine, and hands it back.
pub async fn noted(janua: &Janua, by: &By, machine: &Machine, fault: Fault) -> Result<Fault> {
    if [AGENT_SUSPENDED, AGENT_EXPIRED, AGENT_LIMIT].contains(&fault.code()) {
        refusals::note(janua, by, machine, fault.code()).await?;
    }
    Ok(fault)
}
