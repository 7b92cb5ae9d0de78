//! The callers that read skills over MCP: users, and machines with tokens of their own.
use axum::{
    extract::FromRequestParts,
    http::{HeaderValue, header, request::Parts},
};
use kernel::{
    Janua,
    fault::{Fault, Result, UNAUTHENTICATED},
    http::{GenContext, Operation, OperationInput, bearer, requires},
};
use tenancy::{
    accounts::AccountId,
    apps::scopes::OwnResource,
    enter::{self, INSUFFICIENT_SCOPE, Living, Session},
    machines::tokens::{self, Recognised},
    orgs::{Membership, OrgId},
    sessions::tokens::Claims,
};

/// The scope that a machine needs to read the skills of a user it acts for.
const SCOPE: &str = "skills:read";

/// The endpoint, for clients that sign their user in by OAuth.
pub const RESOURCE: OwnResource = OwnResource {
    path: "/mcp",
    name: "Skills",
    scopes: &[(SCOPE, "Read the skills that you installed, and those of your organizations")],
};
pub const RESOURCES: &[OwnResource] = &[RESOURCE];

/// Where its metadata is (RFC 9728, 3.1).
pub const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

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

impl SkillReader {
    /// A client to which the user gave a token for this endpoint.
    fn of_client(janua: &Janua, claims: &Claims, living: &Living) -> Result<Self> {
        if !claims.aud.as_ref().is_some_and(|aud| aud.has(&RESOURCE.url(janua))) {
            return Err(UNAUTHENTICATED.because("This token is for another resource."));
        }
        let scope = claims.scope.as_deref().unwrap_or_default();
        if !scope.split(' ').any(|scope| scope == SCOPE) {
            return Err(INSUFFICIENT_SCOPE.into());
        }
        Ok(Self { account: living.person.account.id, org: None })
    }

    async fn read(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if let Some(token) = bearer(&parts.headers) {
            if let Some(found) = tokens::recognise(janua, token).await? {
                return Self::of_machine(janua, found);
            }
            if let Some((claims, living)) = enter::recognise(janua, token).await?
                && living.session.resource.is_some()
            {
                return Self::of_client(janua, &claims, &living);
            }
        }
        let session = Session::from_request_parts(parts, janua).await?;
        Ok(Self { account: session.account().id, org: None })
    }
}

/// Tells a client that is refused where to get a token.
fn challenge(janua: &Janua, fault: Fault, has_token: bool) -> Fault {
    let error = match fault.code() {
        code if code == INSUFFICIENT_SCOPE => "error=\"insufficient_scope\", ",
        code if code == UNAUTHENTICATED && has_token => "error=\"invalid_token\", ",
        code if code == UNAUTHENTICATED => "",
        _ => return fault,
    };
    let says =
        format!("Bearer {error}scope=\"{SCOPE}\", resource_metadata=\"{}{METADATA}\"", janua.config.base_url());
    match HeaderValue::try_from(says) {
        Ok(says) => fault.with_header(header::WWW_AUTHENTICATE, says),
        Err(_) => fault,
    }
}

impl FromRequestParts<Janua> for SkillReader {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let has_token = bearer(&parts.headers).is_some();
        Self::read(parts, janua).await.map_err(|fault| challenge(janua, fault, has_token))
    }
}

impl OperationInput for SkillReader {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        requires(operation, &["machineToken"]);
    }
}
