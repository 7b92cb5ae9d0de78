//! Clients that register themselves (RFC 7591). Off unless whoever runs the service wants it: anybody can make one.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};

use kernel::{
    Janua,
    fault::{Code, Fault, FieldError, INVALID, RATE_LIMITED, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{apps::redirects, enter::Admitted, messages::budget};

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
        .for_any_origin()
}

const INVALID_REDIRECT_URI: Code =
    Code::new(400, "invalid_redirect_uri", "redirect_uris is missing or contains an invalid redirect URI.");
const INVALID_CLIENT_METADATA: Code =
    Code::new(400, "invalid_client_metadata", "The client metadata is invalid or lists no supported grant type.");

/// By one network.
const MOST_AN_HOUR: u32 = 20;
/// What a client can have that registered itself. Device codes are for apps: a device shows no redirect URI that would
/// tell one client from another.
const GRANTS: [&str; 2] = ["authorization_code", "refresh_token"];

#[derive(Deserialize, JsonSchema)]
struct NewClient {
    #[schemars(length(min = 1, max = 50))]
    redirect_uris: Vec<String>,
    #[schemars(length(max = 2000))]
    client_name: Option<String>,
    /// Registered as `none`, whatever is asked for: a client that registers itself has no secret.
    #[serde(rename = "token_endpoint_auth_method")]
    #[schemars(length(max = 200))]
    _auth_method: Option<String>,
    /// Those that are offered are registered: `authorization_code` and `refresh_token`.
    #[schemars(length(max = 50))]
    grant_types: Option<Vec<String>>,
    /// Registered as `code`, whatever is asked for.
    #[serde(rename = "response_types")]
    #[schemars(length(max = 50))]
    _response_types: Option<Vec<String>>,
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

/// What cannot be read, in the words of the standard (RFC 7591, 3.2.2).
fn unreadable(fault: Fault) -> Fault {
    if fault.code() != INVALID {
        return fault;
    }
    let problem = fault.problem("");
    let is_about_redirects = |wrong: &&FieldError| wrong.field.starts_with("redirect_uris");
    match (problem.errors.iter().find(is_about_redirects), problem.errors.first()) {
        (Some(wrong), _) => INVALID_REDIRECT_URI.because(format!("{} {}.", wrong.field, wrong.message)),
        (None, Some(wrong)) => INVALID_CLIENT_METADATA.because(format!("{} {}.", wrong.field, wrong.message)),
        (None, None) => INVALID_CLIENT_METADATA.into(),
    }
}

/// What is not supported is substituted, and the answer says what was registered (RFC 7591, 3.2.1).
async fn register_client(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    new: Result<Json<NewClient>>,
) -> Result<Response> {
    let Json(new) = new.map_err(unreadable)?;
    if let Some(why) = new.redirect_uris.iter().find_map(|uri| redirects::wrong_redirect(uri)) {
        return Err(INVALID_REDIRECT_URI.because(format!("A redirect URI {why}.")));
    }
    let wanted = new.grant_types.unwrap_or_default();
    let is_wanted = |grant: &&str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == grant);
    let grant_types: Vec<_> = GRANTS.into_iter().filter(is_wanted).collect();
    if !grant_types.contains(&GRANTS[0]) {
        return Err(INVALID_CLIENT_METADATA.because("Self-registered clients use authorization_code."));
    }
    let now = janua.clock.now();
    let is_within = transact!(janua, async |tx| {
        Ok(budget::spend_by_network(tx, &janua, "client", visitor.client, MOST_AN_HOUR).await?)
    })?;
    if !is_within {
        return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
    }
    let name = new.client_name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("A program");
    let client = Described {
        id: format!("client_{}", janua.entropy.uuid(now).simple()),
        name: shown_name(name),
        redirect_uris: new.redirect_uris,
        created_at: now,
        read_until: None,
    };
    client.keep(&janua.db).await?;
    let registered = Registered {
        client_id: client.id,
        client_id_issued_at: now.0.div_euclid(1000),
        client_name: client.name,
        redirect_uris: client.redirect_uris,
        token_endpoint_auth_method: "none",
        grant_types,
        response_types: vec!["code"],
    };
    Ok((StatusCode::CREATED, Json(registered)).into_response())
}
