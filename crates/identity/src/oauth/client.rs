//! Which app is calling, and how far that is proven.
use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use data_encoding::BASE64;
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, Result},
    http::{GenContext, Operation, OperationInput, requires},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    apps::{ApplicationId, KeyKind, Keyed},
    enter::{Live, Visitor},
    machines::{
        Machine, assertion,
        secrets::{self, Purpose},
    },
    sessions::sign_in::Typed,
};

use super::{
    INVALID_CLIENT, INVALID_REQUEST,
    clients::{Client, Reach},
};

/// The headers by which a client may say who it is.
pub struct ClientHeaders(pub HeaderMap);

impl FromRequestParts<Janua> for ClientHeaders {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        Ok(Self(parts.headers.clone()))
    }
}

impl OperationInput for ClientHeaders {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["appKey"]);
        requires(operation, &["clientBasic"]);
        // Or in the body.
        requires(operation, &[]);
    }
}

/// Client credentials in the body.
#[derive(Deserialize, JsonSchema)]
pub struct Credentials {
    /// The client ID: the app's id, or the URL of the client.
    #[schemars(length(max = 2048))]
    pub client_id: Option<String>,
    /// A secret key of the app. Empty in a form counts as left out (RFC 6749, 3.2).
    #[schemars(with = "Option<String>", length(max = 8192), extend("format" = "password"))]
    pub client_secret: Option<Typed>,
    /// `urn:ietf:params:oauth:client-assertion-type:jwt-bearer`, with `client_assertion`.
    #[schemars(length(max = 200))]
    pub client_assertion_type: Option<String>,
    /// A JWT that a framework agent or an MCP server signed with its own key (RFC 7523).
    #[schemars(with = "Option<String>", length(max = 8192))]
    pub client_assertion: Option<Typed>,
}

/// The client that calls.
pub struct Caller {
    pub id: String,
    /// For an app; others have no keys.
    pub keyed: Option<Arc<Keyed>>,
}

impl Caller {
    /// Whether it proved a secret, which a program on a person's device cannot keep.
    pub fn is_confidential(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.key_id.is_some() && keyed.kind == KeyKind::Secret)
    }
}

/// A client says who it is in one way: by the header with its key, by a secret key in the usual places, or, where nothing
/// secret is needed, by its id alone.
pub async fn of(janua: &Janua, headers: &HeaderMap, visitor: &Visitor, said: &Credentials) -> Result<Caller> {
    let basic = headers.get(header::AUTHORIZATION).and_then(basic);
    let ways = [visitor.app.is_some(), basic.is_some(), said.client_secret.is_some()];
    if ways.into_iter().filter(|is_used| *is_used).count() > 1 {
        return Err(INVALID_REQUEST.because("Send client credentials in one way only."));
    }
    let (id, secret) = match (basic, &said.client_secret) {
        (Some((id, secret)), _) => (Some(id), Some(secret)),
        (None, secret) => (said.client_id.clone(), secret.as_ref().map(|typed| typed.0.clone())),
    };
    let known = match (&visitor.app, secret) {
        (Some(keyed), _) => Some(keyed.clone()),
        (None, Some(secret)) => {
            janua.own::<Arc<Live>>().keyed(janua, &secret).await?.filter(|keyed| keyed.kind == KeyKind::Secret)
        }
        (None, None) => return named(janua, id.as_deref()).await,
    };
    // Whatever else it says of itself must be true.
    let is_said = |keyed: &Arc<Keyed>| {
        let says = [id.as_deref(), said.client_id.as_deref()];
        says.into_iter().flatten().all(|id| id == keyed.app_id.to_string())
    };
    let keyed = known.filter(is_said).ok_or_else(unknown)?;
    Ok(Caller { id: keyed.app_id.to_string(), keyed: Some(keyed) })
}

/// The machine whose secret or assertion came along; nothing where neither did.
pub async fn machine_of(janua: &Janua, headers: &HeaderMap, said: &Credentials) -> Result<Option<Machine>> {
    let basic = headers.get(header::AUTHORIZATION).and_then(basic);
    let (id, secret) = match basic {
        Some((id, secret)) => (Some(id), Some(secret)),
        None => (said.client_id.clone(), said.client_secret.as_ref().map(|typed| typed.0.clone())),
    };
    let found = match (&said.client_assertion, secret) {
        (Some(text), _) => {
            if said.client_assertion_type.as_deref() != Some(assertion::TYPE) {
                return Err(INVALID_REQUEST.because("client_assertion_type is missing or unknown."));
            }
            assertion::verify(janua, &text.0).await?.ok_or_else(unknown)?
        }
        (None, Some(secret)) => {
            let is_of_machine = |purpose: &Purpose| purpose.fits(secret.expose());
            let Some(purpose) = [Purpose::Framework, Purpose::Mcp].into_iter().find(is_of_machine) else {
                return Ok(None);
            };
            let id = secrets::find(&janua.db, purpose, &secret, janua.clock.now()).await?.ok_or_else(unknown)?;
            Machine::find(&janua.db, id).await?.ok_or_else(unknown)?
        }
        (None, None) => return Ok(None),
    };
    let says = [id.as_deref(), said.client_id.as_deref()];
    if says.into_iter().flatten().all(|id| id == found.id.to_string()) { Ok(Some(found)) } else { Err(unknown()) }
}

/// One that proves nothing.
async fn named(janua: &Janua, id: Option<&str>) -> Result<Caller> {
    let id = id.ok_or_else(unknown)?;
    let keyed = match id.parse::<ApplicationId>() {
        Ok(id) => Some(Keyed::public(&janua.db, id).await?.map(Arc::new).ok_or_else(unknown)?),
        Err(_) => {
            Client::find(janua, Reach::Known, id).await?.ok_or_else(unknown)?;
            None
        }
    };
    let id = keyed.as_ref().map_or_else(|| id.to_owned(), |keyed| keyed.app_id.to_string());
    Ok(Caller { id, keyed })
}

/// As [`of`], for what nobody may do by an id alone.
pub async fn proven(janua: &Janua, headers: &HeaderMap, visitor: &Visitor, said: &Credentials) -> Result<Arc<Keyed>> {
    let keyed = of(janua, headers, visitor, said).await?.keyed;
    keyed.filter(|keyed| keyed.key_id.is_some()).ok_or_else(unknown)
}

fn unknown() -> Fault {
    Fault::from(INVALID_CLIENT)
        .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"oauth\""))
}

/// Both parts are form-encoded inside (RFC 6749, 2.3.1).
fn basic(value: &HeaderValue) -> Option<(String, Secret)> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64.decode(encoded.trim().as_bytes()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    let plain =
        |part: &str| url::form_urlencoded::parse(format!("x={part}").as_bytes()).next().map(|(_, x)| x.into_owned());
    Some((plain(id)?, plain(secret)?.into()))
}
