//! Changes to a server: its metadata, domain and secret, and the end of its tokens.
use axum::extract::State;
use kernel::{
    Janua,
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, MaybeJson},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tenancy::machines::{
    Kind, MachineAct, MachineEvent, Managed, Warden,
    caller::OfMcp,
    limits,
    secrets::{self, Purpose},
    states,
};

use super::{
    NAME_TAKEN, check,
    metadata::{Metadata, publish},
    model::{McpServer, Method, Proof},
    view::McpAnswer,
};
use crate::{
    agents::{refuse_below, suspended_by},
    domains,
    frameworks::refuse_stale,
    shared::SuspendReason,
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpChange {
    /// Another domain must be proven again.
    #[schemars(length(max = 300))]
    domain: Option<String>,
    /// Creates a new secret, and activates a revoked server again.
    #[serde(default)]
    rotate_secret: bool,
    #[serde(flatten)]
    metadata: Metadata,
}

pub async fn update_mcp(
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
        let limits = machine.limits.clone();
        server.machine = machine;
        let mut is_unproven = false;
        if let Some(domain) = domain.as_ref().filter(|domain| **domain != server.domain) {
            tx.notify(db::Reach::EveryNode, super::lookup::TOPIC, server.domain.clone()).await?;
            server.domain.clone_from(domain);
            server.full_name = format!("{}/{}", domains::reversed(domain), server.slug);
            if McpServer::is_named(tx, server.machine.org_id, &server.full_name, id).await? {
                return Err(NAME_TAKEN.into());
            }
            (server.url, server.remotes) = (None, json!([]));
            is_unproven = true;
            server.token.clone_from(&token);
            // They carry the old name, which the new domain does not prove.
            McpServer::forget_versions(tx, id).await?;
        }
        change.metadata.apply(&mut server)?;
        let is_outside =
            server.proof == Proof::Verified && server.method == Some(Method::Http) && !server.is_on_host();
        if is_unproven || is_outside {
            // Under another name, or without its proof, the server would get around its suspension.
            refuse_below(&caller, &server.machine)?;
            check::unprove(&mut server, Proof::Pending, now);
        }
        publish(tx, &janua, &server).await?;
        limits::changed(tx, &limits, &server.machine).await?;
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

pub async fn revoke_mcp(
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
