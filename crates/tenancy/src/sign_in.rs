//! The one place where a session begins, whatever way somebody came in by.
use axum::{
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use kernel::{
    App,
    crypto::Secret,
    db::{self, Tx},
    fault::Result,
    http::Json,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    accounts::Account,
    enter::{Delivery, Visitor, cookies},
    events::{self, Event},
    mail,
    sessions::{Session, SessionId, device_name, refresh_token},
    tokens,
};

/// The signed-in person as everybody sees them.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserView {
    pub id: crate::accounts::AccountId,
    pub email: Option<String>,
    pub name: String,
    pub bio: Option<String>,
    pub avatar_url: Option<String>,
    pub email_verified: bool,
    pub auth_provider: &'static str,
    pub created_at: kernel::clock::Timestamp,
}

impl From<&Account> for UserView {
    fn from(account: &Account) -> Self {
        Self {
            id: account.id,
            email: account.email.clone(),
            name: account.name.clone(),
            bio: account.bio.clone(),
            avatar_url: account.avatar_url.clone(),
            email_verified: account.email_verified,
            auth_provider: "email",
            created_at: account.created_at,
        }
    }
}

/// What a client gets when somebody has signed in.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedIn {
    pub user: UserView,
    /// The active organization.
    pub org: Option<serde_json::Map<String, serde_json::Value>>,
    pub access_token: String,
    /// Seconds the access token is good for.
    pub expires_in: i64,
    /// Only for clients that asked for it; browsers get a cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
}

/// Makes the session, writes down that somebody signed in, and tells them when the device is new.
pub async fn begin(
    tx: &mut Tx,
    app: &App,
    visitor: &Visitor,
    account: &Account,
    methods: &[&str],
) -> db::Result<Session> {
    let now = app.clock.now();
    let device = device_name(&visitor.user_agent);
    let session = Session {
        id: SessionId::new(&app.entropy, now),
        account_id: account.id,
        generation: 0,
        rotated_at: now,
        created_at: now,
        authenticated_at: now,
        last_seen_at: now,
        expires_at: now.plus(app.config.session_idle_life),
        ends_at: now.plus(app.config.session_life),
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
        device: device.clone(),
        user_agent: visitor.user_agent.clone(),
        ip: visitor.client.address.to_string(),
        revoked_at: None,
    };
    let (was_here, on_this_device) = Session::knows_device(tx, account.id, &device).await?;
    session.insert(tx).await?;
    let by = events::By { actor: Some(account.id), ..visitor.by.clone() };
    let event = Event::SignedIn { session: session.id, methods: session.methods.clone(), device: device.clone() };
    events::record(tx, app, &by, Some(account.id), &event).await?;
    if let Some(email) = account.email.as_deref().filter(|_| was_here && !on_this_device) {
        let kind =
            mail::Kind::NewDevice { name: account.name.clone(), device, ip: session.ip.clone(), at: now.to_string() };
        mail::send(tx, app, email, &kind).await?;
    }
    Ok(session)
}

/// The answer that hands out the tokens of a session, in the way the client wants them.
pub fn answer(app: &App, account: &Account, session: &Session, delivery: Delivery) -> Result<Response> {
    let (access_token, expires_in) = tokens::mint(app, account, session.id)?;
    let refresh = refresh_token(app, session.id, session.generation);
    let mut headers = HeaderMap::new();
    let in_body = match delivery {
        Delivery::Body => Some(refresh.expose().to_owned()),
        Delivery::Cookie => {
            let left = session.expires_at.since(app.clock.now()).as_secs();
            let seconds = i64::try_from(left).unwrap_or(i64::MAX);
            cookies::set_session(app, &access_token, expires_in, &refresh, seconds, &mut headers);
            None
        }
    };
    let view = SignedIn { user: account.into(), org: None, access_token, expires_in, refresh_token: in_body };
    let mut response = Json(view).into_response();
    response.headers_mut().extend(headers);
    Ok(response)
}

/// A secret in a request body: read, never printed.
#[derive(Clone)]
pub struct Typed(pub Secret);

impl<'de> serde::Deserialize<'de> for Typed {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| Self(text.into()))
    }
}

impl JsonSchema for Typed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "maxLength": 8192, "format": "password" })
    }
    fn inline_schema() -> bool {
        true
    }
}
