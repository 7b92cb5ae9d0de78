//! Answers of a sign-in: the user, the tokens, or the ticket for a second factor.
use std::time::Duration;

use axum::{
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Code, Result},
    http::Json,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StoredSession, refresh_token, tokens};
use crate::{
    accounts::{Account, factors::Factors, passkeys::Passkey, social::ProviderIds},
    apps::scopes::{Scope, Scopes},
    enter::{self, Delivery, cookies},
    ids::{AccountId, Factor},
    orgs::{Membership, OrgView},
};

/// The signed-in user.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserView {
    pub id: AccountId,
    pub email: Option<String>,
    pub name: String,
    pub bio: Option<String>,
    pub avatar_url: Option<String>,
    /// As in `Europe/Zurich`: the time zone of mails and pages.
    pub time_zone: Option<String>,
    pub email_verified: bool,
    /// How the account began: `email`, or a provider's name. Apps and clients do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_provider: Option<String>,
    /// The user's ids at linked providers.
    #[serde(flatten)]
    pub provider_ids: ProviderIds,
    /// Whether an authenticator app is asked for.
    pub mfa_enabled: bool,
    /// Whether a code is sent to a phone.
    pub mfa_sms_enabled: bool,
    /// In E.164 form.
    pub mfa_sms_phone: Option<String>,
    pub passkeys: Vec<Passkey>,
    pub created_at: Timestamp,
}

impl UserView {
    pub fn of(account: &Account, factors: &Factors) -> Self {
        Self {
            id: account.id,
            email: account.email.clone(),
            name: account.name.clone(),
            bio: account.bio.clone(),
            avatar_url: account.avatar_url.clone(),
            time_zone: account.time_zone.clone(),
            email_verified: account.email_verified,
            auth_provider: Some(account.auth_provider.clone()),
            provider_ids: ProviderIds::of(&account.linked),
            mfa_enabled: factors.totp,
            mfa_sms_enabled: factors.sms_phone.is_some(),
            mfa_sms_phone: factors.sms_phone.clone(),
            passkeys: factors.passkeys.clone(),
            created_at: account.created_at,
        }
    }

    /// The user as a session shows them: an app or a client gets the parts that it may know.
    pub fn seen_in(session: &StoredSession, account: &Account, factors: &Factors) -> Self {
        let view = Self::of(account, factors);
        match &session.scopes {
            Some(scopes) => view.within(scopes),
            None if session.app_id.is_some() => view.within(&Scopes::all()),
            None => view,
        }
    }

    /// The part that a client may know: without the user's ways to sign in.
    #[must_use]
    pub fn within(self, scopes: &Scopes) -> Self {
        let (profile, email) = (scopes.has(Scope::Profile), scopes.has(Scope::Email));
        Self {
            id: self.id,
            email: self.email.filter(|_| email),
            email_verified: email && self.email_verified,
            name: if profile { self.name } else { String::new() },
            bio: self.bio.filter(|_| profile),
            avatar_url: self.avatar_url.filter(|_| profile),
            time_zone: self.time_zone.filter(|_| profile),
            auth_provider: None,
            provider_ids: ProviderIds::default(),
            mfa_enabled: false,
            mfa_sms_enabled: false,
            mfa_sms_phone: None,
            passkeys: vec![],
            created_at: self.created_at,
        }
    }
}

/// The answer to a successful sign-in.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedIn {
    pub user: UserView,
    /// The active organization.
    pub org: Option<OrgView>,
    pub access_token: String,
    /// Lifetime of the access token in seconds.
    pub expires_in: i64,
    /// Only for clients that asked for it; browsers get a cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
}

/// The answer when a second factor is required.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MfaChallenge {
    pub requires_mfa: bool,
    /// Stands for this sign-in for ten minutes and five tries.
    pub mfa_ticket: String,
    /// The user's second factors.
    pub factors: Vec<Factor>,
    /// The end of the number a code can be sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms_phone_suffix: Option<String>,
}

/// The answer of a sign-in: the tokens, or a second-factor ticket.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum MayEnter {
    In(Box<SignedIn>),
    Waiting(MfaChallenge),
}

/// The outcome of the gate.
pub enum Entered {
    In(Box<CompletedSignIn>),
    /// Before the second factor.
    Waiting(MfaChallenge),
    /// The proof was right, and still no session begins.
    Refused(Code),
}

/// A completed sign-in: the account and its new session.
pub struct CompletedSignIn {
    pub account: Account,
    pub factors: Factors,
    pub session: StoredSession,
    /// The organization the session acts for.
    pub org: Option<Membership>,
    pub delivery: Delivery,
    /// The cookie of a device that was just trusted, and for how long.
    pub trusted: Option<(Secret, Duration)>,
}

impl Entered {
    pub fn answer(self, janua: &Janua) -> Result<Response> {
        match self {
            Self::In(person) => person.answer(janua),
            Self::Waiting(challenge) => Ok(Json(challenge).into_response()),
            Self::Refused(code) => Err(code.into()),
        }
    }
}

impl CompletedSignIn {
    pub fn answer(&self, janua: &Janua) -> Result<Response> {
        let (view, headers) = self.hand_out(janua)?;
        let mut response = Json(view).into_response();
        response.headers_mut().extend(headers);
        Ok(response)
    }

    /// Hands out the tokens of the session, in the way the client wants them.
    pub fn hand_out(&self, janua: &Janua) -> Result<(SignedIn, HeaderMap)> {
        let (access_token, expires_in) = tokens::mint(janua, &self.account, &self.session, self.org.as_ref())?;
        let refresh = refresh_token(janua, self.session.id, self.session.generation);
        let mut headers = HeaderMap::new();
        let in_body = match self.delivery {
            Delivery::Body => self.session.may_go_on().then(|| refresh.expose().to_owned()),
            Delivery::Cookie => {
                let left = self.session.expires_at.since(janua.clock.now()).as_secs();
                let seconds = i64::try_from(left).unwrap_or(i64::MAX);
                cookies::set_session(janua, &access_token, expires_in, &refresh, seconds, &mut headers);
                None
            }
        };
        if let Some((token, life)) = &self.trusted {
            cookies::set_trusted(janua, token, *life, &mut headers);
        }
        let user = UserView::seen_in(&self.session, &self.account, &self.factors);
        let mut org = self.org.as_ref().map(OrgView::of);
        if let Some(scopes) = &self.session.scopes {
            org = org.filter(|_| scopes.has(Scope::Profile));
        }
        Ok((SignedIn { user, org, access_token, expires_in, refresh_token: in_body }, headers))
    }
}

/// A new access token for a session that goes on as it is, for the organization it acts for now.
pub fn renew(janua: &Janua, session: &enter::Session, org: &Membership) -> Result<Response> {
    let living = &session.living;
    let (access_token, expires_in) = tokens::mint(janua, &living.person.account, &living.session, Some(org))?;
    let mut headers = HeaderMap::new();
    if session.delivery == Delivery::Cookie {
        cookies::set_access(janua, &access_token, expires_in, &mut headers);
    }
    let user = UserView::of(&living.person.account, &living.person.factors);
    let view = SignedIn { user, org: Some(OrgView::of(org)), access_token, expires_in, refresh_token: None };
    let mut response = Json(view).into_response();
    response.headers_mut().extend(headers);
    Ok(response)
}

/// A secret in a request body: read, never printed.
#[derive(Clone)]
pub struct Typed(pub Secret);

impl<'de> Deserialize<'de> for Typed {
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
