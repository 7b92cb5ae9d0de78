//! Looking at a token (RFC 7662) and taking one back (RFC 7009), each app its own and no other's.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, Result},
    http::{FormOrJson, Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{self, ApplicationId, KeyKind, Keyed},
    enter::{self, NotAdmitted},
    events::By,
    machines::{
        Act, Kind, Machine, State as MachineState,
        limits::{self, Outcome},
        tokens::{self as machine_tokens, Recognised},
    },
    sessions::{self, StoredSession, audience::Audience, read_refresh_token, sign_in::Typed, tokens},
};

use super::{
    INVALID_CLIENT, INVALID_REQUEST,
    client::{self, ClientHeaders, Credentials},
};
use crate::BODY;

pub fn routes() -> Routes {
    Routes::new("oauth")
        .body_limit(BODY)
        .post("/oauth/introspect", introspect_token, "inspect a token (RFC 7662)")
        .fails(&[INVALID_REQUEST, INVALID_CLIENT])
        .post("/oauth/revoke", revoke_token, "revoke a token and its session (RFC 7009)")
        .fails(&[INVALID_REQUEST, INVALID_CLIENT])
        .for_any_origin()
}

#[derive(Deserialize, JsonSchema)]
struct OneToken {
    token: Option<Typed>,
    /// A hint about the type of the token.
    #[serde(default, rename = "token_type_hint")]
    #[schemars(length(max = 200))]
    _hint: Option<String>,
    #[serde(flatten)]
    client: Credentials,
}

/// `{"active": false}` for an invalid token and for a token of another client.
#[derive(Default, Serialize, JsonSchema)]
struct Introspection {
    active: bool,
    #[serde(flatten)]
    found: Option<Found>,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    iss: String,
    sub: String,
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// The user's email.
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
    /// `Bearer` or `refresh_token`.
    token_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<Audience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<i64>,
    exp: i64,
    #[serde(flatten)]
    machine: Option<FoundMachine>,
}

/// What a token of a machine says besides.
#[derive(Serialize, JsonSchema)]
struct FoundMachine {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(rename = "gen")]
    generation: i64,
    agent_state: MachineState,
    #[serde(rename = "orgId")]
    org_id: String,
    /// The machine that acts, and the one it acts for in turn (RFC 8693, 4.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    act: Option<Act>,
}

async fn introspect_token(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    ClientHeaders(headers): ClientHeaders,
    FormOrJson(body): FormOrJson<OneToken>,
) -> Result<Json<Introspection>> {
    let client = client::proven(&janua, &headers, &visitor, &body.client).await?;
    let token = body.token.ok_or_else(missing)?;
    let found = match machine_tokens::recognise(&janua, token.0.expose()).await? {
        Some(found) => look_at_machine(&janua, &client, found).await?,
        None => look(&janua, &token, client.app_id).await?,
    };
    Ok(Json(Introspection { active: found.is_some(), found }))
}

fn missing() -> Fault {
    INVALID_REQUEST.because("token is missing.")
}

/// What a token of a machine says, for the app that runs the server it is for and for apps of the machine's organization.
async fn look_at_machine(janua: &Janua, client: &Keyed, found: Recognised) -> Result<Option<Found>> {
    // A publishable key is no secret: anybody could ask with it.
    if client.kind != KeyKind::Secret {
        return Ok(None);
    }
    let Recognised { claims, machine, .. } = found;
    let is_theirs = client.org_id == machine.org_id || is_meant_for(janua, Some(&claims.aud), client.app_id).await?;
    if !is_theirs || !counts(janua, client, &machine, claims.generation).await? {
        return Ok(None);
    }
    Ok(Some(Found {
        iss: claims.iss.clone(),
        sub: claims.sub.clone(),
        client_id: claims.client_id.to_string(),
        scope: Some(claims.scope.clone()),
        username: None,
        token_type: "Bearer",
        aud: Some(claims.aud.clone()),
        jti: Some(claims.jti.clone()),
        sid: claims.sid.map(|sid| sid.to_string()),
        iat: Some(claims.iat),
        exp: claims.exp,
        machine: Some(FoundMachine {
            kind: claims.kind,
            generation: claims.generation,
            agent_state: machine.state_at(janua.clock.now()),
            org_id: claims.org_id.to_string(),
            act: claims.act.clone(),
        }),
    }))
}

/// Counts an introspection against the machine's limit on requests, if it has one.
async fn counts(janua: &Janua, client: &Keyed, machine: &Machine, generation: i64) -> Result<bool> {
    if machine.limits.iter().all(|limit| limit.meter != limits::REQUESTS) {
        return Ok(true);
    }
    let by = By { app: Some(client.app_id), ..By::default() };
    transact!(janua, async |tx| {
        let held = Machine::hold(tx, machine.id).await?;
        let Some(mut held) = held.filter(|held| held.accepts(generation, janua.clock.now())) else {
            return Ok(false);
        };
        let outcome = limits::count(tx, janua, &by, &mut held, limits::REQUESTS, 1).await?;
        Ok(matches!(outcome, Outcome::Counted(_)))
    })
}

/// What the token says, if it is good now and this app's.
async fn look(janua: &Janua, token: &Typed, client: ApplicationId) -> Result<Option<Found>> {
    let iss = janua.config.base_url();
    if let Some((claims, living)) = enter::recognise(janua, token.0.expose()).await? {
        // The app it was made for may look at it, and each app that runs a server it counts at.
        let is_theirs =
            living.session.app_id == Some(client) || is_meant_for(janua, claims.aud.as_ref(), client).await?;
        return Ok(is_theirs.then(|| Found {
            iss,
            sub: claims.sub.to_string(),
            client_id: living.session.holder().unwrap_or_default(),
            scope: claims.scope.clone(),
            username: claims.email.clone(),
            token_type: "Bearer",
            aud: claims.aud.clone(),
            jti: Some(claims.jti.clone()),
            sid: Some(claims.sid.to_string()),
            iat: Some(claims.iat),
            exp: claims.exp,
            machine: None,
        }));
    }
    if let Some(claims) = tokens::verify_for_app(janua, token.0.expose()).filter(|claims| claims.sub == client) {
        return Ok(Some(Found {
            iss,
            sub: client.to_string(),
            client_id: client.to_string(),
            scope: None,
            username: None,
            token_type: "Bearer",
            aud: Some(Audience::one(client.to_string())),
            jti: Some(claims.jti),
            sid: None,
            iat: Some(claims.iat),
            exp: claims.exp,
            machine: None,
        }));
    }
    let Some(session) = refreshable(janua, token, &client.to_string()).await? else { return Ok(None) };
    let seconds = |at: Timestamp| at.0.div_euclid(1000);
    Ok(Some(Found {
        iss,
        sub: session.account_id.to_string(),
        client_id: client.to_string(),
        scope: session.scopes.as_ref().map(ToString::to_string),
        username: None,
        token_type: "refresh_token",
        aud: None,
        jti: None,
        sid: Some(session.id.to_string()),
        iat: Some(seconds(session.rotated_at)),
        exp: seconds(session.expires_at.min(session.ends_at)),
        machine: None,
    }))
}

async fn is_meant_for(janua: &Janua, audience: Option<&Audience>, client: ApplicationId) -> Result<bool> {
    match audience {
        Some(audience) => Ok(apps::counts_at(&janua.db, audience, client).await?),
        None => Ok(false),
    }
}

/// The session this is the present refresh token of, if it is the client's.
async fn refreshable(janua: &Janua, token: &Typed, client: &str) -> Result<Option<StoredSession>> {
    let Some((id, generation)) = read_refresh_token(janua, &token.0) else { return Ok(None) };
    let session = StoredSession::find(&janua.db, id).await?;
    Ok(session.filter(|session| {
        session.holder().as_deref() == Some(client)
            && session.generation == generation
            && session.is_alive(janua.clock.now())
    }))
}

/// With either of its tokens a session ends. What is nobody's, or somebody else's, is answered alike.
async fn revoke_token(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    ClientHeaders(headers): ClientHeaders,
    FormOrJson(body): FormOrJson<OneToken>,
) -> Result<()> {
    let client = client::of(&janua, &headers, &visitor, &body.client).await?;
    let token = body.token.ok_or_else(missing)?;
    let session = match enter::recognise(&janua, token.0.expose()).await? {
        Some((_, living)) => {
            Some((*living.session).clone()).filter(|session| session.holder().as_ref() == Some(&client.id))
        }
        None => refreshable(&janua, &token, &client.id).await?,
    };
    let Some(session) = session else { return Ok(()) };
    transact!(janua, async |tx| {
        sessions::end(tx, &janua, &visitor.by, session.account_id, session.id, "revoked_by_app").await?;
        Ok(())
    })
}
