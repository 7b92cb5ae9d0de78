//! MCP servers: registered under a domain, which must be proven before the server gets tokens or is listed.
mod check;
pub mod lookup;
mod mails;
mod manifest;
pub mod model;
mod proof;

use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Listed, MaybeJson, Page, Query, Routes},
    jobs::Jobs,
    ports::{dns::DNS_UNAVAILABLE, outgoing},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::{
    enter::{REAUTHENTICATION_REQUIRED, Session, builders},
    machines::{
        AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, INVALID_CREDENTIALS, INVALID_SCOPE, INVALID_TARGET, Kind,
        LIMIT_REACHED, MachineAct, MachineEvent, MachineId, Managed, State as MachineState, Warden,
        caller::OfMcp,
        refusals,
        secrets::{self, Purpose},
        states,
        targets::Wanted,
    },
    orgs::OrgId,
};

pub use self::{mails::MAILS, proof::Names};
use self::{
    model::{McpServer, Method, Proof, Visibility},
    proof::{BAD_SIGNATURE, SITE_UNAVAILABLE},
};
use crate::{
    agents::{delete, suspended_by},
    domains,
    frameworks::{Credentials, issue, refuse_stale},
    shared::{
        ListQuery, LogQuery, MachineLog, MachineView, Permissions, Selection, SuspendReason, TokenAnswer, draft,
        home, log,
    },
};

pub const INVALID_DOMAIN: Code =
    Code::new(400, "invalid_domain", "This cannot be a domain here. Use a public name such as shop.example.com.");
const INVALID_NAME: Code = Code::new(
    400,
    "invalid_name",
    "A server's name has 1 to 100 lower case letters, digits, dots, hyphens and underscores.",
);
const URL_OUTSIDE_DOMAIN: Code =
    Code::new(400, "url_outside_domain", "The server's URL must be an https URL on its domain.");
const NAME_TAKEN: Code = Code::new(409, "name_taken", "There is another server of this name on this domain.");
const PROOF_NOT_FOUND: Code =
    Code::new(409, "proof_not_found", "The proof of the domain was not found. Create it, then try again.");
const DOMAIN_TAKEN: Code =
    Code::new(409, "domain_taken", "Another organization has verified this domain, and its records still stand.");
const NOT_VERIFIED: Code = Code::new(403, "not_verified", "The domain of this server is not proven.");
const SERVER_REVOKED: Code =
    Code::new(403, "server_revoked", "The tokens of this server were revoked. Create a new secret first.");
const VERSION_EXISTS: Code =
    Code::new(409, "version_exists", "This version was published with other content. Use a new version.");

pub fn routes() -> Routes {
    Routes::new("mcp")
        .post("/mcp/register", register_mcp, "register an MCP server")
        .fails(&[INVALID_DOMAIN, INVALID_NAME, URL_OUTSIDE_DOMAIN, NAME_TAKEN, LIMIT_REACHED, VERSION_EXISTS])
        .fails(&[builders::BUILDERS_ONLY, REAUTHENTICATION_REQUIRED])
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED, tenancy::apps::slugs::SLUG_TAKEN])
        .post("/mcp/verify", verify_domain_of_mcp, "verify domain ownership of an MCP server")
        .fails(&[PROOF_NOT_FOUND, DOMAIN_TAKEN, NAME_TAKEN, DNS_UNAVAILABLE, SITE_UNAVAILABLE, BAD_SIGNATURE])
        .fails(&[URL_OUTSIDE_DOMAIN, NOT_FOUND])
        .post("/mcp/token", mcp_token, "exchange MCP server credentials for a Bearer token")
        .fails(&[INVALID_CREDENTIALS, NOT_VERIFIED, SERVER_REVOKED, AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED])
        .fails(&[INVALID_SCOPE, INVALID_TARGET, NOT_FOUND])
        .patch("/mcp/{id}", update_mcp, "update MCP server metadata")
        .fails(&[URL_OUTSIDE_DOMAIN, VERSION_EXISTS, REAUTHENTICATION_REQUIRED])
        .fails(states::REACTIVATE)
        .post("/mcp/{id}/revoke", revoke_mcp, "revoke the server's tokens and its secret")
        .get("/mcp/list", list_mcp, "MCP servers owned by the user, or all of an organization")
        .fails(&[FORBIDDEN, NOT_FOUND])
        .get("/mcp/{id}", get_mcp, "one MCP server")
        .delete("/mcp/{id}", delete_mcp, "delete an MCP server")
        .get("/mcp/{id}/logs", mcp_logs, "activity logs")
        .get("/verify/mcp/{domain}", lookup::verify_mcp, "is this domain a registered MCP server")
        .fails(&[INVALID_DOMAIN])
        .answers::<lookup::McpLookup>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
}

pub fn jobs() -> Jobs {
    Jobs::new().every::<check::CheckServers>(check::EVERY)
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TokenStatus {
    Active,
    Revoked,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpView {
    #[serde(flatten)]
    machine: MachineView,
    /// The name in the registry, such as `com.example/weather`.
    full_name: String,
    domain: String,
    url: Option<String>,
    title: Option<String>,
    version: Option<String>,
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    packages: Value,
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    remotes: Value,
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    repository: Option<Value>,
    visibility: Visibility,
    /// Whether the domain is proven.
    verification: Proof,
    method: Option<Method>,
    verified_at: Option<Timestamp>,
    checked_at: Option<Timestamp>,
    next_check_at: Option<Timestamp>,
    /// Since when the proof of a verified domain is gone. After three days it lapses.
    failing_since: Option<Timestamp>,
    token_status: TokenStatus,
    /// How to prove the domain.
    proof: ProofView,
}

/// Any one of these proves the domain.
#[derive(Serialize, JsonSchema)]
struct ProofView {
    dns: DnsProof,
    http: HttpProof,
    mcpv1: SignedProof,
}

/// A TXT record. It proves the domain and its subdomains.
#[derive(Serialize, JsonSchema)]
struct DnsProof {
    name: String,
    value: String,
}

/// A file. It proves this host alone.
#[derive(Serialize, JsonSchema)]
struct HttpProof {
    url: String,
    body: String,
}

/// A message to sign with the key of an existing `v=MCPv1` record.
#[derive(Serialize, JsonSchema)]
struct SignedProof {
    message: String,
}

impl McpView {
    async fn of(janua: &Janua, server: &McpServer) -> Result<Self> {
        let machine = &server.machine;
        let is_revoked = machine.state == MachineState::Suspended;
        Ok(Self {
            machine: MachineView::of(janua, &janua.db, machine).await?,
            full_name: server.full_name.clone(),
            domain: server.domain.clone(),
            url: server.url.clone(),
            title: server.title.clone(),
            version: server.version.clone(),
            packages: server.packages.clone(),
            remotes: server.remotes.clone(),
            repository: server.repository.clone(),
            visibility: server.visibility,
            verification: server.proof,
            method: server.method,
            verified_at: server.verified_at,
            checked_at: server.checked_at,
            next_check_at: server.next_check_at,
            failing_since: server.failing_since,
            token_status: if is_revoked { TokenStatus::Revoked } else { TokenStatus::Active },
            proof: ProofView {
                dns: DnsProof { name: proof::record_name(&server.domain), value: server.token.clone() },
                http: HttpProof { url: proof::file_url(&server.domain), body: server.token.clone() },
                mcpv1: SignedProof { message: proof::message(janua, server) },
            },
        })
    }

    async fn find(janua: &Janua, id: MachineId) -> Result<Self> {
        let server = McpServer::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        Self::of(janua, &server).await
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpAnswer {
    server: McpView,
    /// What stands where the proof was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Vec<String>>,
    /// A new secret. This is the only time it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
}

impl McpAnswer {
    async fn of(janua: &Janua, id: MachineId) -> Result<Self> {
        Ok(Self { server: McpView::find(janua, id).await?, found: None, client_secret: None })
    }
}

/// What a server says of itself in the registry. Fields that are left out stay as they are.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    /// Where clients connect to: an https URL on the domain.
    #[schemars(length(max = 2000))]
    url: Option<String>,
    #[schemars(length(min = 1, max = 100))]
    title: Option<String>,
    #[schemars(length(min = 1, max = 100))]
    description: Option<String>,
    /// Publishes this version in the registry. A published version never changes.
    #[schemars(regex(pattern = r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$"))]
    version: Option<String>,
    /// As in `server.json` of the MCP registry.
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(max = 20))]
    packages: Option<Value>,
    /// As in `server.json` of the MCP registry. Default: the URL, by streamable HTTP.
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(max = 20))]
    remotes: Option<Value>,
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    repository: Option<Value>,
    visibility: Option<Visibility>,
    #[serde(flatten)]
    permissions: Permissions,
}

const MOST_METADATA: usize = 16 * 1024;

impl Metadata {
    fn check(&self, now: Timestamp) -> Result<()> {
        self.permissions.check(now)?;
        let is_long =
            |value: &Option<Value>| value.as_ref().is_some_and(|value| value.to_string().len() > MOST_METADATA);
        if [&self.packages, &self.remotes, &self.repository].into_iter().any(is_long) {
            return Err(INVALID.at("packages", "too_long", "must be at most 16 kB"));
        }
        if self.version.as_deref().is_some_and(|version| !manifest::is_exact(version)) {
            return Err(INVALID.at("version", "wrong_form", "must be one version, not a range and not latest"));
        }
        manifest::check(self.packages.as_ref(), self.remotes.as_ref(), self.repository.as_ref())
    }

    /// Writes what was given; a URL outside of the domain is refused.
    fn apply(&self, server: &mut McpServer) -> Result<()> {
        if let Some(url) = &self.url {
            let host = outgoing::endpoint(url).ok().filter(|url| url.scheme() == "https");
            let host = host.and_then(|url| url.domain().map(str::to_owned)).ok_or(URL_OUTSIDE_DOMAIN)?;
            if !domains::covers(&server.domain, &host) {
                return Err(URL_OUTSIDE_DOMAIN.into());
            }
            server.url = Some(url.clone());
        }
        server.title = self.title.clone().or(server.title.take());
        server.machine.description = self.description.clone().or(server.machine.description.take());
        server.packages = self.packages.clone().unwrap_or(server.packages.take());
        server.remotes = self.remotes.clone().unwrap_or(server.remotes.take());
        server.repository = self.repository.clone().or(server.repository.take());
        server.visibility = self.visibility.unwrap_or(server.visibility);
        let Permissions { scopes, audiences, limits, expires_at } = &self.permissions;
        let (scopes, audiences, limits) = (scopes.clone(), audiences.clone(), limits.clone());
        Permissions { scopes, audiences, limits, expires_at: *expires_at }.apply(&mut server.machine);
        server.version = self.version.clone().or(server.version.take());
        if self.version.is_some() && server.machine.description.is_none() {
            return Err(INVALID.at("description", "required", "a published version needs a description"));
        }
        Ok(())
    }
}

/// The server as the registry describes it (`server.json`).
fn document(server: &McpServer, version: &str) -> Value {
    let mut remotes = server.remotes.clone();
    if let (Some(url), Some(true)) = (&server.url, remotes.as_array().map(Vec::is_empty)) {
        remotes = json!([{ "type": "streamable-http", "url": url }]);
    }
    let mut document = json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": server.full_name, "description": server.machine.description, "version": version,
    });
    let lists = [("packages", &server.packages), ("remotes", &remotes)];
    for (name, list) in lists.into_iter().filter(|(_, list)| list.as_array().is_some_and(|list| !list.is_empty())) {
        document[name] = list.clone();
    }
    if let Some(title) = &server.title {
        document["title"] = title.clone().into();
    }
    if let Some(repository) = &server.repository {
        document["repository"] = repository.clone();
    }
    document
}

async fn publish(tx: &mut db::Tx, janua: &Janua, server: &McpServer) -> Result<()> {
    let Some(version) = &server.version else { return Ok(()) };
    let document = document(server, version);
    let is_published = McpServer::publish(tx, server.machine.id, version, &document, janua.clock.now()).await?;
    if is_published { Ok(()) } else { Err(VERSION_EXISTS.into()) }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewMcpServer {
    /// Such as `weather`.
    #[schemars(length(max = 400))]
    name: String,
    /// Such as `example.com`.
    #[schemars(length(max = 300))]
    domain: String,
    org_id: Option<OrgId>,
    #[serde(flatten)]
    metadata: Metadata,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewMcpAnswer {
    server: McpView,
    client_id: MachineId,
    /// This is the only time it is shown.
    client_secret: String,
}

fn is_slug(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 100
        && name.chars().all(is_inner)
        && ends_well(name.chars().next())
        && ends_well(name.chars().last())
}

async fn register_mcp(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewMcpServer>,
) -> Result<Json<NewMcpAnswer>> {
    builders::refuse_others(&janua, &session).await?;
    let domain = domains::parse(&janua, &new.domain)
        .ok_or_else(|| INVALID_DOMAIN.at("domain", "wrong_form", "must be a domain such as example.com"))?;
    let full_name = format!("{}/{}", domains::reversed(&domain), new.name);
    if !is_slug(&new.name) || full_name.len() > 200 {
        return Err(INVALID_NAME.at("name", "wrong_form", "must be a name such as weather"));
    }
    new.metadata.check(janua.clock.now())?;
    refuse_stale(&janua, &session)?;
    let (org, account) = (OrgId::new(&janua.entropy, janua.clock.now()), session.account().id);
    let machine = draft(&janua, Kind::Mcp, org, account, new.name.clone(), MachineState::Pending);
    let id = machine.id;
    let mut server = McpServer {
        machine,
        slug: new.name.clone(),
        domain,
        full_name,
        url: None,
        title: None,
        version: None,
        packages: json!([]),
        remotes: json!([]),
        repository: None,
        visibility: Visibility::default(),
        proof: Proof::Pending,
        method: None,
        token: format!("janua-mcp={}", janua.entropy.token().expose()),
        nonce: janua.entropy.token().expose().to_owned(),
        public_key: None,
        verified_at: None,
        checked_at: None,
        seen: None,
        failing_since: None,
        failures: 0,
        next_check_at: None,
    };
    new.metadata.apply(&mut server)?;
    let secret = transact!(janua, async |tx| {
        let mut server = server.clone();
        server.machine.org_id = home(tx, &janua, &session, new.org_id).await?;
        if McpServer::is_named(tx, server.machine.org_id, &server.full_name, id).await? {
            return Err(NAME_TAKEN.into());
        }
        server.insert(tx).await?;
        publish(tx, &janua, &server).await?;
        let secret = secrets::issue(tx, &janua, &server.machine, Purpose::Mcp, None).await?;
        let details = json!({ "name": server.full_name, "domain": server.domain });
        let event = MachineEvent::new(Kind::Mcp, MachineAct::Registered, details);
        session.record_about(tx, &janua, server.machine.about(), &event).await?;
        Ok(secret)
    })?;
    let server = McpView::find(&janua, id).await?;
    Ok(Json(NewMcpAnswer { server, client_id: id, client_secret: secret.expose().to_owned() }))
}

#[derive(Deserialize, JsonSchema)]
struct Verification {
    id: MachineId,
    /// Default: the DNS record, an app of the organization, then the file.
    method: Option<Method>,
    /// For `mcpv1`: the message of `proof.mcpv1`, signed, in base64.
    #[schemars(length(max = 400))]
    signature: Option<String>,
}

async fn verify_domain_of_mcp(
    State(janua): State<Janua>,
    session: Session,
    Json(asked): Json<Verification>,
) -> Result<Json<McpAnswer>> {
    let caller = Managed::<OfMcp>::reach(&janua, session, asked.id).await?;
    let server = McpServer::find(&janua.db, asked.id).await?.ok_or(NOT_FOUND)?;
    let method = match (asked.method, &asked.signature) {
        (Some(Method::Mcpv1), None) => {
            return Err(BAD_SIGNATURE.because("Send the signature of proof.mcpv1.message."));
        }
        (Some(method), _) => Some(method),
        (None, Some(_)) => Some(Method::Mcpv1),
        (None, None) => None,
    };
    let (method, seen) = find_proof(&janua, &server, method, asked.signature.as_deref()).await?;
    if !seen.is_proven {
        return Err(Fault::from(PROOF_NOT_FOUND).with_extra("found", &seen.texts));
    }
    let is_on_host = server
        .url
        .as_deref()
        .and_then(|url| outgoing::endpoint(url).ok())
        .is_none_or(|url| url.domain() == Some(server.domain.as_str()));
    if method == Method::Http && !is_on_host {
        return Err(URL_OUTSIDE_DOMAIN.because("A file proves its own host alone. Use a DNS record."));
    }
    let lost = check::contested(&janua, &server).await?;
    transact!(janua, async |tx| check::verified(tx, &janua, &caller, &server, method, &seen, &lost).await)?;
    let answer = McpAnswer::of(&janua, asked.id).await?;
    Ok(Json(McpAnswer { found: Some(seen.texts), ..answer }))
}

/// The proof that was named, or the first that is found.
async fn find_proof(
    janua: &Janua,
    server: &McpServer,
    method: Option<Method>,
    signature: Option<&str>,
) -> Result<(Method, proof::Seen)> {
    if let Some(method) = method {
        return Ok((method, proof::look(janua, server, method, signature).await?));
    }
    let first = proof::look(janua, server, Method::Dns, None).await;
    if let Ok(seen) = &first
        && seen.is_proven
    {
        return first.map(|seen| (Method::Dns, seen));
    }
    for method in [Method::App, Method::Http] {
        if let Ok(seen) = proof::look(janua, server, method, None).await
            && seen.is_proven
        {
            return Ok((method, seen));
        }
    }
    first.map(|seen| (Method::Dns, seen))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpTokenRequest {
    #[serde(flatten)]
    credentials: Credentials,
    /// Default: all scopes of the server.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<String>>,
    /// The URL of the server that the token is for. Default: this service.
    #[schemars(length(max = 2000))]
    resource: Option<String>,
}

async fn mcp_token(
    State(janua): State<Janua>,
    session: Session,
    Json(asked): Json<McpTokenRequest>,
) -> Result<Json<TokenAnswer>> {
    let machine = asked.credentials.check(&janua, Kind::Mcp).await?;
    let caller = Managed::<OfMcp>::reach(&janua, session, machine.id).await?;
    let by = caller.session.by();
    let refused = match machine.state {
        MachineState::Suspended => Some(SERVER_REVOKED),
        MachineState::Pending => Some(NOT_VERIFIED),
        MachineState::Active | MachineState::Expired => None,
    };
    if let Some(code) = refused {
        refusals::note(&janua, &by, &machine, code).await?;
        return Err(code.into());
    }
    let wanted = Wanted { scopes: asked.scopes, resource: asked.resource };
    issue(&janua, &by, &machine, &wanted).await.map(Json)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpChange {
    /// Another domain must be proven again.
    #[schemars(length(max = 300))]
    domain: Option<String>,
    /// Creates a new secret, and activates a revoked server again.
    #[serde(default)]
    rotate_secret: bool,
    #[serde(flatten)]
    metadata: Metadata,
}

async fn update_mcp(
    State(janua): State<Janua>,
    caller: Managed<OfMcp>,
    Json(change): Json<McpChange>,
) -> Result<Json<McpAnswer>> {
    let (id, now) = (caller.machine.id, janua.clock.now());
    change.metadata.check(now)?;
    let domain = match &change.domain {
        Some(text) => Some(
            domains::parse(&janua, text)
                .ok_or_else(|| INVALID.at("domain", "wrong_form", "must be a domain such as example.com"))?,
        ),
        None => None,
    };
    if change.rotate_secret {
        refuse_stale(&janua, &caller.session)?;
    }
    let token = format!("janua-mcp={}", janua.entropy.token().expose());
    let secret = transact!(janua, async |tx| {
        let machine = caller.hold(tx).await?;
        let mut server = McpServer::find(&mut *tx, id).await?.ok_or(NOT_FOUND)?;
        server.machine = machine;
        if let Some(domain) = domain.as_ref().filter(|domain| **domain != server.domain) {
            server.domain.clone_from(domain);
            server.full_name = format!("{}/{}", domains::reversed(domain), server.slug);
            (server.url, server.remotes) = (None, json!([]));
            check::unprove(&mut server, Proof::Pending, now);
            server.token.clone_from(&token);
        }
        change.metadata.apply(&mut server)?;
        publish(tx, &janua, &server).await?;
        let secret = if change.rotate_secret {
            let who = (caller.session.account().id, caller.rank);
            states::reactivate(tx, &janua, &caller.session.by(), &mut server.machine, who).await?;
            server.machine.generation += 1;
            Some(secrets::issue(tx, &janua, &server.machine, Purpose::Mcp, None).await?)
        } else {
            None
        };
        server.machine.updated_at = now;
        server.machine.save(tx).await?;
        server.save(tx).await?;
        let details = json!({ "name": server.full_name, "version": server.version, "newSecret": secret.is_some() });
        let event = MachineEvent::new(Kind::Mcp, MachineAct::Updated, details);
        caller.record(tx, &janua, &event).await?;
        Ok(secret)
    })?;
    let answer = McpAnswer::of(&janua, id).await?;
    Ok(Json(McpAnswer { client_secret: secret.map(|secret| secret.expose().to_owned()), ..answer }))
}

async fn revoke_mcp(
    State(janua): State<Janua>,
    Warden(caller): Warden<OfMcp>,
    MaybeJson(body): MaybeJson<SuspendReason>,
) -> Result<Json<McpAnswer>> {
    let reason = body.and_then(|body| body.reason).filter(|reason| !reason.trim().is_empty());
    let id = caller.machine.id;
    transact!(janua, async |tx| {
        let mut machine = caller.hold(tx).await?;
        let why = suspended_by(&caller);
        states::suspend(tx, &janua, &caller.session.by(), &mut machine, why, reason.clone()).await?;
        Ok(secrets::end(tx, id, Purpose::Mcp).await?)
    })?;
    Ok(Json(McpAnswer::of(&janua, id).await?))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpList {
    servers: Vec<McpView>,
    next_cursor: Option<String>,
}

async fn list_mcp(
    State(janua): State<Janua>,
    session: Session,
    page: Page,
    Query(query): Query<ListQuery>,
) -> Result<Json<McpList>> {
    let chosen = Selection::of(&janua, &session, &query).await?;
    let now = janua.clock.now();
    let fetch = async |chosen: &Selection, below, most| McpServer::page(&janua.db, chosen, now, &below, most).await;
    let Listed { rows, next_cursor } =
        chosen.list(&janua, &page, "mcp-servers", fetch, |server| &server.machine).await?;
    let mut servers = vec![];
    for server in &rows {
        servers.push(McpView::of(&janua, server).await?);
    }
    Ok(Json(McpList { servers, next_cursor }))
}

async fn get_mcp(State(janua): State<Janua>, caller: Managed<OfMcp>) -> Result<Json<McpAnswer>> {
    McpAnswer::of(&janua, caller.machine.id).await.map(Json)
}

async fn delete_mcp(State(janua): State<Janua>, caller: Managed<OfMcp>) -> Result<NoContent> {
    delete(&janua, &caller).await?;
    Ok(NoContent)
}

async fn mcp_logs(
    State(janua): State<Janua>,
    caller: Managed<OfMcp>,
    page: Page,
    Query(query): Query<LogQuery>,
) -> Result<Json<MachineLog>> {
    log(&janua, &page, caller.machine.id, query).await
}
