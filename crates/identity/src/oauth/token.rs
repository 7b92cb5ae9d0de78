//! The token endpoint: something that stands for a person, or for the app itself, for tokens.
use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    crypto::{self, Secret},
    fault::{Fault, Result},
    http::{FormOrJson, Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::Account,
    apps::{KeyKind, Keyed, scopes::Scopes},
    enter::{Delivery, ToAdmit, Visitor},
    machines::{AGENT_LIMIT, tokens::Issued},
    sessions::{
        self, SessionId, StoredSession,
        audience::Audience,
        id_tokens, read_refresh_token,
        sign_in::{self, ACCOUNT_DISABLED, BLOCKED_FROM_APP, CompletedSignIn, Entered, Grant, SignedIn, Typed},
        tokens,
    },
};

use super::{
    INVALID_CLIENT, INVALID_GRANT, INVALID_REQUEST, INVALID_SCOPE, INVALID_TARGET, UNAUTHORIZED_CLIENT,
    UNSUPPORTED_GRANT,
    client::{self, Caller, ClientHeaders, Credentials},
    codes::Code,
    machines::{self, Exchange},
};
use crate::{
    BODY,
    device::{self, Found},
    session,
};

pub fn routes() -> Routes {
    Routes::new("oauth")
        .body_limit(BODY)
        .post(
            "/oauth/token",
            exchange_token,
            "token endpoint: authorization code, refresh token, device code, client credentials or token exchange",
        )
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .fails(&[INVALID_REQUEST, INVALID_CLIENT, INVALID_GRANT, UNAUTHORIZED_CLIENT, UNSUPPORTED_GRANT])
        .fails(&[INVALID_TARGET, INVALID_SCOPE, AGENT_LIMIT])
        .fails(&device::ANSWERS)
        .for_any_origin()
}

#[derive(Deserialize, JsonSchema)]
struct TokenRequest {
    /// `authorization_code`, `refresh_token`, `urn:ietf:params:oauth:grant-type:device_code`, `client_credentials` or
    /// `urn:ietf:params:oauth:grant-type:token-exchange`.
    #[schemars(length(max = 200))]
    grant_type: Option<String>,
    code: Option<Typed>,
    /// As it was when the code was asked for.
    #[schemars(length(max = 2000))]
    redirect_uri: Option<String>,
    /// The PKCE code verifier.
    code_verifier: Option<Typed>,
    refresh_token: Option<Typed>,
    device_code: Option<Typed>,
    /// Not more than was granted.
    #[schemars(length(max = 2000))]
    scope: Option<String>,
    /// One or several of those that were granted: the access token counts there alone (RFC 8707).
    resource: Option<Audience>,
    #[serde(flatten)]
    exchange: Exchange,
    #[serde(flatten)]
    client: Credentials,
}

/// RFC 6749, 5.1.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tokens {
    access_token: String,
    /// `Bearer`.
    token_type: &'static str,
    /// Seconds.
    expires_in: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    /// The id token, with scope `openid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
    /// The granted scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// The type of the access token, of a token exchange (RFC 8693, 2.2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_token_type: Option<&'static str>,
}

impl Tokens {
    pub(super) fn of_machine(issued: Issued, issued_token_type: Option<&'static str>) -> Self {
        Self {
            access_token: issued.access_token,
            token_type: "Bearer",
            expires_in: issued.expires_in,
            refresh_token: None,
            id_token: None,
            scope: Some(issued.scope),
            issued_token_type,
        }
    }

    fn of(janua: &Janua, person: &CompletedSignIn, nonce: Option<String>) -> Result<Json<Self>> {
        let (signed_in, _) = person.hand_out(janua)?;
        Self::handed_out(janua, person, &signed_in, nonce).map(Json)
    }

    /// The names of the standard for what was handed out.
    pub(crate) fn handed_out(
        janua: &Janua,
        person: &CompletedSignIn,
        signed_in: &SignedIn,
        nonce: Option<String>,
    ) -> Result<Self> {
        let access_token = signed_in.access_token.clone();
        Ok(Self {
            id_token: id_tokens::mint(janua, &person.account, &person.session, &access_token, nonce)?,
            access_token,
            token_type: "Bearer",
            expires_in: signed_in.expires_in,
            refresh_token: signed_in.refresh_token.clone(),
            scope: person.session.scopes.as_ref().map(ToString::to_string),
            issued_token_type: None,
        })
    }
}

async fn exchange_token(
    State(janua): State<Janua>,
    ToAdmit(mut visitor): ToAdmit,
    ClientHeaders(headers): ClientHeaders,
    FormOrJson(body): FormOrJson<TokenRequest>,
) -> Result<Json<Tokens>> {
    if body.grant_type.as_deref() == Some(machines::EXCHANGE) {
        let wanted = machines::wanted(body.scope.as_deref(), body.resource.as_ref())?;
        return machines::exchange(&janua, &visitor, &body.exchange, &wanted).await;
    }
    let machine = client::machine_of(&janua, &headers, &body.client).await?;
    let client = match (&machine, body.grant_type.as_deref()) {
        (Some(machine), Some("client_credentials")) => {
            let wanted = machines::wanted(body.scope.as_deref(), body.resource.as_ref())?;
            return machines::for_itself(&janua, &visitor, machine, &wanted).await;
        }
        (Some(machine), Some("authorization_code" | "refresh_token")) => machines::client(&janua, machine)?,
        (Some(_), _) => return Err(UNAUTHORIZED_CLIENT.into()),
        (None, _) => client::of(&janua, &headers, &visitor, &body.client).await?,
    };
    // A server that proved who it is solves no riddles.
    if machine.is_none() && client.keyed.as_ref().is_none_or(|keyed| keyed.key_id.is_none()) {
        visitor.admit(&janua, None).await?;
    }
    // Whatever way the app said who it is, what begins now is its own.
    visitor.by.app = client.keyed.as_ref().map(|keyed| keyed.app_id);
    visitor.app.clone_from(&client.keyed);
    match body.grant_type.as_deref().ok_or_else(|| missing("grant_type"))? {
        "authorization_code" => by_code(&janua, &visitor, &client, body).await,
        "refresh_token" => by_refresh_token(&janua, &visitor, &client, body).await,
        "urn:ietf:params:oauth:grant-type:device_code" => by_device_code(&janua, &visitor, body.device_code).await,
        "client_credentials" => for_itself(&janua, client.keyed.as_deref()),
        _ => Err(UNSUPPORTED_GRANT.into()),
    }
}

fn missing(field: &str) -> Fault {
    INVALID_REQUEST.because(format!("{field} is missing."))
}

/// A code works once. A second time somebody has a copy, and what it gave is taken back.
async fn by_code(janua: &Janua, visitor: &Visitor, client: &Caller, body: TokenRequest) -> Result<Json<Tokens>> {
    let code = body.code.ok_or_else(|| missing("code"))?.0;
    let redirect_uri = body.redirect_uri.ok_or_else(|| missing("redirect_uri"))?;
    let verifier = body.code_verifier.map(|verifier| verifier.0);
    let now = janua.clock.now();
    let person = transact!(janua, async |tx| {
        let Some(found) = Code::find(tx, &code, &client.id).await? else { return Ok(None) };
        if found.used_at.is_none() {
            if found.needs_secret() && !client.is_confidential() {
                return Err(INVALID_CLIENT.into());
            }
            if !found.is_answered(&redirect_uri, verifier.as_ref(), now) {
                return Ok(None);
            }
            narrowed(found.resource.as_ref(), body.resource.as_ref())?;
            // Held before the code is: whoever takes a consent back does it in this order, too.
            if let Some(from) = StoredSession::find(&mut *tx, found.session_id).await? {
                Account::hold(tx, from.account_id).await?;
            }
            if Code::use_up(tx, &code, now).await? {
                return redeem(tx, janua, visitor, client, &code, found).await;
            }
        }
        // Read again: whoever was faster has a session by now.
        let gave = Code::find(tx, &code, &client.id).await?.and_then(|found| found.gave);
        if let Some(session) = gave {
            end_given(tx, janua, visitor, session).await?;
        }
        Ok(None)
    })?;
    let (entered, nonce) = person.ok_or(INVALID_GRANT)?;
    let mut person = granted(entered)?;
    person.session.resource = narrowed(person.session.resource.as_ref(), body.resource.as_ref())?;
    Tokens::of(janua, &person, nonce)
}

/// Where an access token counts: everywhere that was granted, or at those of it that the client asks for (RFC 8707, 2.2).
fn narrowed(granted: Option<&Audience>, asked: Option<&Audience>) -> Result<Option<Audience>> {
    let Some(asked) = asked else { return Ok(granted.cloned()) };
    if asked.iter().all(|resource| granted.is_some_and(|granted| granted.has(resource))) {
        Ok(Audience::of(asked.iter().map(str::to_owned).collect()))
    } else {
        Err(INVALID_TARGET.into())
    }
}

/// The session of the client, as long as the one is alive in which the person let it in.
async fn redeem(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    client: &Caller,
    code: &Secret,
    found: Code,
) -> Result<Option<(Entered, Option<String>)>> {
    let app_id = client.keyed.as_ref().map(|keyed| keyed.app_id);
    let named = Some(client.id.clone()).filter(|_| app_id.is_none());
    let grant = Grant { app_id, client: named, scopes: found.scopes, resource: found.resource };
    let Some(entered) = sign_in::grant(tx, janua, visitor, found.session_id, grant).await? else { return Ok(None) };
    if let Entered::In(person) = &entered {
        Code::note_gift(tx, code, person.session.id).await?;
    }
    Ok(Some((entered, found.nonce)))
}

/// The sign-in, or the standard's refusal with the reason in its description.
fn granted(entered: Entered) -> Result<CompletedSignIn> {
    match entered {
        Entered::In(person) => Ok(*person),
        Entered::Refused(code) => Err(not_granted(code)),
        // A person who lets a client in has passed the gate, so nobody waits here.
        Entered::Waiting(_) => Err(INVALID_GRANT.into()),
    }
}

fn not_granted(code: kernel::fault::Code) -> Fault {
    INVALID_GRANT.because(format!("{}: {}", code.name, code.says))
}

async fn end_given(tx: &mut Tx, janua: &Janua, visitor: &Visitor, id: SessionId) -> Result<()> {
    if let Some(session) = StoredSession::find(&mut *tx, id).await? {
        sessions::end(tx, janua, &visitor.by, session.account_id, id, "code_reused").await?;
    }
    Ok(())
}

async fn by_refresh_token(
    janua: &Janua,
    visitor: &Visitor,
    client: &Caller,
    body: TokenRequest,
) -> Result<Json<Tokens>> {
    let token = body.refresh_token.ok_or_else(|| missing("refresh_token"))?;
    let (id, generation) = read_refresh_token(janua, &token.0).ok_or(INVALID_GRANT)?;
    // Looked at before anything turns: a wish that cannot be granted costs nobody the token.
    if let Some(session) = StoredSession::find(&janua.db, id).await? {
        refuse_more(&session, body.scope.as_deref())?;
        narrowed(session.resource.as_ref(), body.resource.as_ref())?;
    }
    let turned = session::turn(janua, &visitor.by, (id, generation), Some(&client.id), Delivery::Body).await;
    let person = turned.map_err(|fault| match fault.code() {
        code if [ACCOUNT_DISABLED, BLOCKED_FROM_APP].contains(&code) => not_granted(code),
        _ => fault,
    })?;
    let mut person = person.ok_or(INVALID_GRANT)?;
    person.session.resource = narrowed(person.session.resource.as_ref(), body.resource.as_ref())?;
    Tokens::of(janua, &person, None)
}

/// A refresh brings what was granted: asking for less is answered with what there is, asking for more is refused. Scopes
/// that were unknown when the client asked first are left out again.
fn refuse_more(session: &StoredSession, scope: Option<&str>) -> Result<()> {
    let granted = session.scopes.clone().unwrap_or_else(Scopes::all);
    if scope.is_some_and(|scope| !granted.covers(&Scopes::standard(scope))) {
        return Err(INVALID_SCOPE.into());
    }
    Ok(())
}

async fn by_device_code(janua: &Janua, visitor: &Visitor, code: Option<Typed>) -> Result<Json<Tokens>> {
    let code = code.ok_or_else(|| missing("device_code"))?;
    // Codes are shown to apps alone; nobody else has one to redeem.
    if visitor.app.is_none() {
        return Err(UNAUTHORIZED_CLIENT.into());
    }
    let hash = crypto::hash(code.0.expose().as_bytes());
    match transact!(janua, async |tx| device::poll(tx, janua, visitor, &hash).await)? {
        Found::In(entered) => Tokens::of(janua, &granted(*entered)?, None),
        Found::Not(code) => Err(code.into()),
    }
}

/// A token that stands for the app and for nobody in it.
fn for_itself(janua: &Janua, client: Option<&Keyed>) -> Result<Json<Tokens>> {
    let is_secret = |client: &&Keyed| client.key_id.is_some() && client.kind == KeyKind::Secret;
    let client = client.filter(is_secret).ok_or(UNAUTHORIZED_CLIENT)?;
    let (access_token, expires_in) = tokens::mint_for_app(janua, client.app_id)?;
    Ok(Json(Tokens {
        access_token,
        token_type: "Bearer",
        expires_in,
        refresh_token: None,
        id_token: None,
        scope: None,
        issued_token_type: None,
    }))
}
