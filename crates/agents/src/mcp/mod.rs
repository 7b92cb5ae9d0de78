//! MCP servers: registered under a domain, which must be proven before the server gets tokens or is listed.
mod change;
mod check;
pub mod lookup;
mod mails;
mod manage;
mod manifest;
mod metadata;
pub mod model;
mod proof;
mod register;
mod token;
mod verify;
mod view;

use kernel::{
    fault::{Code, FORBIDDEN, NOT_FOUND},
    http::Routes,
    jobs::Jobs,
    ports::dns::DNS_UNAVAILABLE,
};
use tenancy::{
    enter::{REAUTHENTICATION_REQUIRED, builders},
    machines::{
        AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, INVALID_CREDENTIALS, INVALID_SCOPE, INVALID_TARGET,
        LIMIT_REACHED, SUSPENDED_BY_ADMIN, states,
    },
};

use self::{
    change::{revoke_mcp, update_mcp},
    manage::{delete_mcp, get_mcp, list_mcp, mcp_logs},
    proof::{BAD_SIGNATURE, SITE_UNAVAILABLE},
    register::register_mcp,
    token::mcp_token,
    verify::verify_domain_of_mcp,
};
pub use self::{mails::MAILS, proof::Names};

pub const INVALID_DOMAIN: Code =
    Code::new(400, "invalid_domain", "This cannot be a domain here. Use a public name such as shop.example.com.");
const INVALID_NAME: Code = Code::new(
    400,
    "invalid_name",
    "A server's name has 1 to 100 lower case letters, digits, dots, hyphens and underscores.",
);
const URL_OUTSIDE_DOMAIN: Code = Code::new(
    400,
    "url_outside_domain",
    "The URLs of the server and of its remotes must be https URLs on its domain.",
);
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
        .fails(&[URL_OUTSIDE_DOMAIN, NOT_FOUND, SUSPENDED_BY_ADMIN])
        .post("/mcp/token", mcp_token, "exchange MCP server credentials for a Bearer token")
        .fails(&[INVALID_CREDENTIALS, NOT_VERIFIED, SERVER_REVOKED, AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED])
        .fails(&[INVALID_SCOPE, INVALID_TARGET, NOT_FOUND])
        .patch("/mcp/{id}", update_mcp, "update MCP server metadata")
        .fails(&[URL_OUTSIDE_DOMAIN, VERSION_EXISTS, NAME_TAKEN, REAUTHENTICATION_REQUIRED])
        .fails(states::REACTIVATE)
        .post("/mcp/{id}/revoke", revoke_mcp, "revoke the server's tokens and its secret")
        .get("/mcp/list", list_mcp, "MCP servers owned by the user, or all of an organization")
        .fails(&[FORBIDDEN, NOT_FOUND])
        .get("/mcp/{id}", get_mcp, "one MCP server")
        .delete("/mcp/{id}", delete_mcp, "delete an MCP server")
        .fails(&[SUSPENDED_BY_ADMIN])
        .get("/mcp/{id}/logs", mcp_logs, "activity logs")
        .get("/verify/mcp/{domain}", lookup::verify_mcp, "whether a domain is that of a verified MCP server")
        .fails(&[INVALID_DOMAIN])
        .answers::<lookup::McpLookup>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
}

pub fn jobs() -> Jobs {
    Jobs::new().every::<check::CheckServers>(check::EVERY)
}
