//! A new server.
use axum::extract::State;
use kernel::{Janua, fault::Result, http::Json, transact};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    enter::{Session, builders},
    machines::{
        Kind, MachineAct, MachineEvent, MachineId, State as MachineState,
        secrets::{self, Purpose},
    },
    orgs::OrgId,
};

use super::{
    INVALID_DOMAIN, INVALID_NAME, NAME_TAKEN,
    metadata::{Metadata, publish},
    model::{McpServer, Proof, Visibility},
    view::McpView,
};
use crate::{
    domains,
    frameworks::refuse_stale,
    shared::{draft, home},
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewMcpServer {
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
pub struct NewMcpAnswer {
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

pub async fn register_mcp(
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
