//! Who may suspend a framework agent: a user who manages it, or its kill switch.
use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, Path, bearer, requires},
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
};

use crate::pace::Paces;

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
        janua.own::<Paces>().switches.refuse_too_many(janua, visitor.client.network())?;
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
