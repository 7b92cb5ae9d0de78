//! The proof of a server's domain, when its owner asks for a look.
use axum::extract::State;
use kernel::{
    Janua,
    fault::{Fault, NOT_FOUND, Result},
    http::Json,
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::Session,
    machines::{MachineId, Managed, caller::OfMcp},
};

use super::{
    PROOF_NOT_FOUND, check,
    model::{McpServer, Method},
    proof::{self, BAD_SIGNATURE},
    view::McpAnswer,
};

#[derive(Deserialize, JsonSchema)]
pub struct Verification {
    id: MachineId,
    /// Default: the DNS record, an app of the organization, then the file.
    method: Option<Method>,
    /// For `mcpv1`: the message of `proof.mcpv1`, signed, in base64.
    #[schemars(length(max = 400))]
    signature: Option<String>,
}

pub async fn verify_domain_of_mcp(
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
