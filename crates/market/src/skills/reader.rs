//! The callers that read skills over MCP: users, and machines with tokens of their own.
use axum::{extract::FromRequestParts, http::request::Parts};
use kernel::{
    Janua,
    fault::{Fault, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, bearer, requires},
};
use tenancy::{
    accounts::AccountId,
    enter::{INSUFFICIENT_SCOPE, Session},
    machines::tokens::{self, Recognised},
    orgs::{Membership, OrgId},
};

/// The scope that a machine needs to read the skills of a user it acts for.
const SCOPE: &str = "skills:read";

/// Whose skills a caller reads: what a user installed, and what organizations publish.
pub struct SkillReader {
    /// The user, or the owner of the machine.
    pub account: AccountId,
    /// The organization of a machine; none for a user, who has the skills of all organizations they belong to.
    org: Option<OrgId>,
}

impl SkillReader {
    /// The organizations whose skills the caller has without installing them.
    pub async fn orgs(&self, janua: &Janua) -> db::Result<Vec<OrgId>> {
        if let Some(org) = self.org {
            return Ok(vec![org]);
        }
        let memberships = Membership::all_of(&janua.db, self.account).await?;
        Ok(memberships.into_iter().map(|membership| membership.org.id).collect())
    }

    fn of_machine(janua: &Janua, Recognised { claims, machine, living }: Recognised) -> Result<Self> {
        let base = janua.config.base_url();
        // A server that machines call must not read their skills with the token they brought along.
        if !claims.aud.has(&base) && !claims.aud.has(&format!("{base}/mcp")) {
            return Err(UNAUTHENTICATED.because("This token is for another resource."));
        }
        match living {
            // The user may have agreed to something else, and the organizations are not those of the machine.
            Some(_) if !claims.scope.split(' ').any(|scope| scope == SCOPE) => Err(INSUFFICIENT_SCOPE.into()),
            Some(living) => Ok(Self { account: living.person.account.id, org: None }),
            None => Ok(Self { account: machine.owner_id.ok_or(UNAUTHENTICATED)?, org: Some(machine.org_id) }),
        }
    }
}

impl FromRequestParts<Janua> for SkillReader {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if let Some(token) = bearer(&parts.headers)
            && let Some(found) = tokens::recognise(janua, token).await?
        {
            return Self::of_machine(janua, found);
        }
        let session = Session::from_request_parts(parts, janua).await?;
        Ok(Self { account: session.account().id, org: None })
    }
}

impl OperationInput for SkillReader {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        requires(operation, &["machineToken"]);
    }
}
