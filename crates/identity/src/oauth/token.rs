//! The token endpoint: something that stands for a person, or for the app itself, for tokens.
use axum::extract::State;
use kernel::{
    App, crypto,
    fault::{Fault, Result},
    http::{FormOrJson, Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{KeyKind, Keyed},
    enter::{Delivery, Visitor},
    sessions::{self, Turned, read_refresh_token},
    sign_in::{Entered, Person, Typed},
    tokens,
};

use super::{
    INVALID_CLIENT, INVALID_GRANT, INVALID_REQUEST, UNAUTHORIZED_CLIENT, UNSUPPORTED_GRANT,
    client::{self, ClientHeaders, Credentials},
};
use crate::{
    BODY,
    device::{self, Found},
    session,
};

pub fn routes() -> Routes {
    Routes::new("oauth")
        .body_limit(BODY)
        .post("/oauth/token", exchange_token, "tokens for a refresh token, a device code, or the app itself")
        .fails(&[INVALID_REQUEST, INVALID_CLIENT, INVALID_GRANT, UNAUTHORIZED_CLIENT, UNSUPPORTED_GRANT])
        .fails(&device::ANSWERS)
}

#[derive(Deserialize, JsonSchema)]
struct TokenRequest {
    /// `refresh_token`, `urn:ietf:params:oauth:grant-type:device_code` or `client_credentials`.
    #[schemars(length(max = 200))]
    grant_type: Option<String>,
    refresh_token: Option<Typed>,
    device_code: Option<Typed>,
    #[serde(flatten)]
    client: Credentials,
}

/// RFC 6749, 5.1.
#[derive(Serialize, JsonSchema)]
struct Tokens {
    access_token: String,
    /// `Bearer`.
    token_type: &'static str,
    /// Seconds.
    expires_in: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl Tokens {
    fn of(app: &App, person: &Person) -> Result<Json<Self>> {
        let (signed_in, _) = person.hand_out(app)?;
        Ok(Json(Self {
            access_token: signed_in.access_token,
            token_type: "Bearer",
            expires_in: signed_in.expires_in,
            refresh_token: signed_in.refresh_token,
        }))
    }
}

async fn exchange_token(
    State(app): State<App>,
    mut visitor: Visitor,
    ClientHeaders(headers): ClientHeaders,
    FormOrJson(body): FormOrJson<TokenRequest>,
) -> Result<Json<Tokens>> {
    visitor.admit(&app, None).await?;
    let client = client::of(&app, &headers, &visitor, &body.client).await?;
    // Whatever way the app said who it is, what begins now is its own.
    visitor.by.app = Some(client.app_id);
    visitor.app = Some(client.clone());
    match body.grant_type.as_deref().ok_or_else(|| INVALID_REQUEST.because("grant_type is missing."))? {
        "refresh_token" => by_refresh_token(&app, &visitor, &client, body.refresh_token).await,
        "urn:ietf:params:oauth:grant-type:device_code" => by_device_code(&app, &visitor, body.device_code).await,
        "client_credentials" => for_itself(&app, &client),
        _ => Err(UNSUPPORTED_GRANT.into()),
    }
}

async fn by_refresh_token(
    app: &App,
    visitor: &Visitor,
    client: &Keyed,
    token: Option<Typed>,
) -> Result<Json<Tokens>> {
    let token = token.ok_or_else(|| INVALID_REQUEST.because("refresh_token is missing."))?;
    let (id, generation) = read_refresh_token(app, &token.0).ok_or(INVALID_GRANT)?;
    let person = transact!(app.db, tx, {
        match sessions::turn(tx, app, id, generation, Some(client.app_id)).await? {
            Turned::On(session) => session::person(tx, *session, Delivery::Body).await,
            Turned::Reused(session) => {
                session::end_copied(tx, app, visitor, &session).await?;
                Ok(None)
            }
            Turned::Ended => Ok::<_, Fault>(None),
        }
    })?;
    Tokens::of(app, &person.ok_or(INVALID_GRANT)?)
}

async fn by_device_code(app: &App, visitor: &Visitor, code: Option<Typed>) -> Result<Json<Tokens>> {
    let code = code.ok_or_else(|| INVALID_REQUEST.because("device_code is missing."))?;
    let hash = crypto::hash(code.0.expose().as_bytes());
    match transact!(app.db, tx, { Ok::<_, Fault>(device::poll(tx, app, visitor, &hash).await?) })? {
        Found::In(entered) => match *entered {
            Entered::In(person) => Tokens::of(app, &person),
            // Whoever approved it passed the gate, so nobody waits here.
            Entered::Waiting(_) | Entered::Closed => Err(INVALID_GRANT.into()),
        },
        Found::Not(code) => Err(code.into()),
    }
}

/// A token that stands for the app and for nobody in it.
fn for_itself(app: &App, client: &Keyed) -> Result<Json<Tokens>> {
    if client.key_id.is_none() || client.kind != KeyKind::Secret {
        return Err(UNAUTHORIZED_CLIENT.into());
    }
    let (access_token, expires_in) = tokens::mint_for_app(app, client.app_id)?;
    Ok(Json(Tokens { access_token, token_type: "Bearer", expires_in, refresh_token: None }))
}
