//! Clients that register themselves (RFC 7591). Off unless whoever runs the service wants it: anybody can make one.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use kernel::{
    App,
    fault::{Code, Fault, RATE_LIMITED, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{budget, enter::Visitor, redirects};

use super::clients::{Described, shown_name};
use crate::BODY;

/// Only where it is wanted; otherwise the address leads nowhere.
pub fn routes(is_wanted: bool) -> Routes {
    let routes = Routes::new("oauth");
    if !is_wanted {
        return routes;
    }
    routes
        .body_limit(BODY)
        .post("/oauth/register", register_client, "register a public client (RFC 7591)")
        .answers::<Registered>(201, "application/json")
        .fails(&[INVALID_REDIRECT_URI, INVALID_CLIENT_METADATA])
}

const INVALID_REDIRECT_URI: Code =
    Code::new(400, "invalid_redirect_uri", "Nobody can be sent to one of these addresses.");
const INVALID_CLIENT_METADATA: Code =
    Code::new(400, "invalid_client_metadata", "A client that registers itself is public and uses codes.");

/// By one network.
const MOST_AN_HOUR: u32 = 20;
const GRANTS: [&str; 2] = ["authorization_code", "refresh_token"];

#[derive(Deserialize, JsonSchema)]
struct NewClient {
    #[schemars(length(min = 1, max = 50))]
    redirect_uris: Vec<String>,
    #[schemars(length(max = 200))]
    client_name: Option<String>,
    /// `none`.
    #[schemars(length(max = 200))]
    token_endpoint_auth_method: Option<String>,
    #[schemars(length(max = 10))]
    grant_types: Option<Vec<String>>,
    #[schemars(length(max = 10))]
    response_types: Option<Vec<String>>,
}

#[derive(Serialize, JsonSchema)]
struct Registered {
    client_id: String,
    /// Seconds since 1970.
    client_id_issued_at: i64,
    client_name: String,
    redirect_uris: Vec<String>,
    /// `none`: it has no secret.
    token_endpoint_auth_method: &'static str,
    grant_types: Vec<&'static str>,
    response_types: Vec<&'static str>,
}

async fn register_client(State(app): State<App>, visitor: Visitor, Json(new): Json<NewClient>) -> Result<Response> {
    visitor.admit(&app, None).await?;
    if let Some(why) = new.redirect_uris.iter().find_map(|uri| redirects::wrong_redirect(uri)) {
        return Err(INVALID_REDIRECT_URI.because(format!("A redirect URI {why}.")));
    }
    let is_public = new.token_endpoint_auth_method.as_deref().is_none_or(|method| method == "none");
    let grants = new.grant_types.unwrap_or_default();
    let uses_codes = grants.iter().all(|grant| GRANTS.contains(&grant.as_str()));
    if !is_public || !uses_codes || new.response_types.unwrap_or_default().iter().any(|kind| kind != "code") {
        return Err(INVALID_CLIENT_METADATA.into());
    }
    let (now, network) = (app.clock.now(), visitor.client.network().to_string());
    let is_within =
        transact!(app.db, tx, { Ok::<_, Fault>(budget::spend(tx, &app, "client", &network, MOST_AN_HOUR).await?) })?;
    if !is_within {
        return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
    }
    let name = new.client_name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("A program");
    let client = Described {
        id: format!("client_{}", app.entropy.uuid(now).simple()),
        name: shown_name(name),
        redirect_uris: new.redirect_uris,
        created_at: now,
        read_until: None,
    };
    client.keep(&app.db).await?;
    let registered = Registered {
        client_id: client.id,
        client_id_issued_at: now.0.div_euclid(1000),
        client_name: client.name,
        redirect_uris: client.redirect_uris,
        token_endpoint_auth_method: "none",
        grant_types: GRANTS.to_vec(),
        response_types: vec!["code"],
    };
    Ok((StatusCode::CREATED, Json(registered)).into_response())
}
