//! Who may suspend a framework agent: a user who manages it, or its kill switch.
use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, NOT_FOUND, RATE_LIMITED, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, Path, bearer, requires},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::NotAdmitted,
    events::By,
    machines::{
        MachineId, Managed, Warden,
        caller::OfFramework,
        secrets::{self, Purpose},
    },
    messages::budget,
};

/// How often a network may try kill switches in an hour.
const MOST_TRIES: u32 = 600;

pub enum SessionOrSwitch {
    Session(Box<Managed<OfFramework>>),
    Switch { id: MachineId, by: By },
}

impl SessionOrSwitch {
    pub fn id(&self) -> MachineId {
        match self {
            Self::Session(caller) => caller.machine.id,
            Self::Switch { id, .. } => *id,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct SwitchPath {
    id: MachineId,
}

impl FromRequestParts<Janua> for SessionOrSwitch {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let given = bearer(&parts.headers).filter(|token| token.starts_with(Purpose::KillSwitch.prefix()));
        let Some(token) = given.map(|token| Secret::from(token.to_owned())) else {
            let Warden(caller) = Warden::<OfFramework>::from_request_parts(parts, janua).await?;
            return Ok(Self::Session(Box::new(caller)));
        };
        let NotAdmitted(visitor) = NotAdmitted::from_request_parts(parts, janua).await?;
        let client = visitor.client;
        let is_within = db::aside(async {
            transact!(janua, async |tx| {
                Ok(budget::spend_by_network(tx, janua, "kill-switch", client, MOST_TRIES).await?)
            })
        })
        .await?;
        if !is_within {
            return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
        }
        let found = secrets::find(&janua.db, Purpose::KillSwitch, &token, janua.clock.now()).await?;
        let found = found.ok_or(UNAUTHENTICATED)?;
        let Path(SwitchPath { id }) = Path::from_request_parts(parts, janua).await?;
        // That of another agent opens nothing, and tells nothing.
        if id == found { Ok(Self::Switch { id, by: visitor.by }) } else { Err(NOT_FOUND.into()) }
    }
}

impl OperationInput for SessionOrSwitch {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Warden::<OfFramework>::operation_input(ctx, operation);
        requires(operation, &["killSwitch"]);
    }
}
