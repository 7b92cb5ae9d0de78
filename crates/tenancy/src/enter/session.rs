//! Access of signed-in users: the token is checked, the session is alive, the account is loaded.
use std::time::Duration;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{CROSS_SITE, Code, FORBIDDEN, Fault, Result, UNAUTHENTICATED},
    http::{Client, GenContext, Operation, OperationInput, bearer, foreign_origin, may_answer, note_app, requires},
};

use super::{
    Delivery, Living, Within,
    app_key::{INVALID_APP_KEY, presented as app_key},
    cookies,
    live::{living, recognise},
};
use crate::{
    accounts::{Account, factors::Factors},
    apps::{Application, scopes::Scopes},
    events::{self, About, By, Event},
    ids::{ApplicationId, SessionId},
    orgs::Membership,
    sessions::{self, audience::Audience},
};

pub const REAUTHENTICATION_REQUIRED: Code =
    Code::new(403, "reauthentication_required", "Confirm that it is you to continue.");

pub const APP_SESSION: Code =
    Code::new(403, "app_session", "This session belongs to an app. Sign in to the service directly.");

pub const APP_KEY_MISMATCH: Code =
    Code::new(403, "app_key_mismatch", "The session does not belong to the app of this key.");

pub const INSUFFICIENT_SCOPE: Code =
    Code::new(403, "insufficient_scope", "The client does not have the scope for this.");

/// How long a proof of identity counts as fresh.
const FRESH: Duration = Duration::from_mins(10);

/// The recent proofs of a session, each with its own time. A mailed link or another provider is none of them.
#[derive(Debug, Clone, Copy)]
pub struct Freshly {
    pub password: bool,
    /// A code of a second factor.
    pub factor: bool,
    pub passkey: bool,
}

/// A cookie is accepted from pages of the service, and from those of the app that its session belongs to.
pub async fn may_use_cookie(janua: &Janua, headers: &HeaderMap, session: &sessions::StoredSession) -> Result<()> {
    let Some(origin) = foreign_origin(janua, headers) else { return Ok(()) };
    let is_its_own = match session.app_id {
        Some(id) => Application::allows(&janua.db, id, &origin).await?,
        None => false,
    };
    if is_its_own { Ok(()) } else { Err(CROSS_SITE.into()) }
}

/// A user who is signed in to the service itself, by cookie or bearer token. A session that belongs to an app is
/// refused; the few routes that apps need take [`AnySession`].
pub struct Session {
    pub living: Living,
    /// Where the client keeps its tokens: in cookies or in its own storage.
    pub delivery: Delivery,
    /// Whether the access token has expired and the refresh token was used instead.
    pub is_due: bool,
    client: Client,
    user_agent: Option<HeaderValue>,
}

impl Session {
    pub fn account(&self) -> &Account {
        &self.living.person.account
    }

    pub fn factors(&self) -> &Factors {
        &self.living.person.factors
    }

    pub fn id(&self) -> SessionId {
        self.living.session.id
    }

    /// The organization this session acts for.
    pub fn org(&self) -> Option<&Membership> {
        self.living.org.as_deref()
    }

    /// Whether the sign-in of this session met today's requirements. A session that is older than the user's second
    /// factor did not.
    pub fn passed_gate(&self) -> bool {
        !self.factors().is_on() || self.is_strong()
    }

    /// Whether a second factor was proven.
    pub fn is_strong(&self) -> bool {
        self.living.session.is_strong()
    }

    /// The actor and origin of this request, for events.
    pub fn by(&self) -> By {
        let app = self.living.session.app_id;
        By {
            actor: Some(self.account().id),
            app,
            ..super::visitor::from_where(self.client, self.user_agent.as_ref())
        }
    }

    /// Records something that happened to the person of this session.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.record_about(tx, janua, self.account().id, event).await
    }

    /// Records something that the person of this session did to `about`.
    pub async fn record_about(
        &self,
        tx: &mut Tx,
        janua: &Janua,
        about: impl Into<About> + Send,
        event: &dyn Event,
    ) -> db::Result<()> {
        events::record(tx, janua, &self.by(), about, event).await
    }

    /// The app that the session belongs to; none for a session of the service.
    pub fn of_app(&self) -> Option<ApplicationId> {
        self.living.session.app_id
    }

    /// Whether this session may authorize a client, for tokens that are valid at `resource` or, without one, at this
    /// service. Only a session of the service speaks for the user. A session of an app is controlled by the app, even
    /// as a cookie: it can authorize that same app, and no other resource.
    pub fn may_let_in(&self, client: Option<ApplicationId>, resource: Option<&Audience>) -> bool {
        self.of_app().is_none_or(|own| client == Some(own) && resource.is_none())
    }

    /// The user's recent proofs, if any. An approved device has none of its own, because its holder may not be the
    /// user who approved it; it counts after a proof on the device itself.
    pub fn fresh(&self, janua: &Janua) -> Option<Freshly> {
        let (session, now) = (&self.living.session, janua.clock.now());
        let is_fresh = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) <= FRESH);
        let was_let_in = session.methods.iter().any(|method| method == "device");
        let (password, factor, passkey) =
            (is_fresh(session.password_at), is_fresh(session.factor_at), is_fresh(session.passkey_at));
        let anything = password || factor || passkey || !was_let_in && is_fresh(Some(session.authenticated_at));
        anything.then_some(Freshly { password, factor, passkey })
    }
}

impl Session {
    /// Accepts a user or a client that acts for one. Ignores the app key.
    async fn recognised(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if let Some(Within { session, delivery }) = parts.extensions.get().copied() {
            let living = living(janua, session).await?.ok_or(UNAUTHENTICATED)?;
            return Self::of(parts, janua, living, delivery).await;
        }
        let (token, delivery) = presented(&parts.headers).ok_or(UNAUTHENTICATED)?;
        let (_, living) = recognise(janua, token).await?.ok_or_else(|| bad_token(delivery))?;
        Self::of(parts, janua, living, delivery).await
    }

    async fn of(parts: &mut Parts, janua: &Janua, living: Living, delivery: Delivery) -> Result<Self> {
        let client = Client::from_request_parts(parts, janua).await?;
        if delivery == Delivery::Cookie {
            may_use_cookie(janua, &parts.headers, &living.session).await?;
        }
        let user_agent = parts.headers.get(header::USER_AGENT).cloned();
        if let Some(app) = living.session.app_id {
            note_app(&parts.extensions, app);
        }
        Ok(Self { living, delivery, client, user_agent, is_due: false })
    }
}

impl Session {
    /// Accepts sessions of the service only. Ignores the app key.
    pub(super) async fn beside_key(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Self::recognised(parts, janua).await?.without_scopes()?.of_the_service(janua)
    }

    /// Accepts sessions of the service and of apps. Ignores the app key: the caller compares it.
    pub(super) async fn of_any_app(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Self::recognised(parts, janua).await?.without_scopes()
    }

    fn of_the_service(self, janua: &Janua) -> Result<Self> {
        match self.of_app() {
            None => Ok(self),
            Some(_) => Err(APP_SESSION.because(format!("Sign in at {}/sign-in.", janua.config.base_url()))),
        }
    }

    /// Reads the header only. Ignores cookies.
    async fn by_bearer(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let token = bearer(&parts.headers).ok_or(UNAUTHENTICATED)?;
        let (_, living) = recognise(janua, token).await?.ok_or(UNAUTHENTICATED)?;
        Self::of(parts, janua, living, Delivery::Body).await?.without_scopes()
    }

    fn without_scopes(self) -> Result<Self> {
        let session = self;
        if session.living.session.scopes.is_some() {
            let says = HeaderValue::from_static("Bearer error=\"insufficient_scope\"");
            return Err(Fault::from(INSUFFICIENT_SCOPE).with_header(header::WWW_AUTHENTICATE, says));
        }
        Ok(session)
    }

    /// If an app key came along, the session must belong to that app. So an app that forwards a token cannot mistake
    /// a session of another app for one of its own.
    async fn with_its_key(self, parts: &Parts, janua: &Janua) -> Result<Self> {
        match (app_key(janua, parts).await?, self.of_app()) {
            (Some(keyed), own) if own != Some(keyed.app_id) && self.living.session.holder().is_some() => {
                Err(APP_KEY_MISMATCH
                    .because("The session belongs to another app, not to the app whose key was sent."))
            }
            (Some(_), None) => Err(APP_KEY_MISMATCH.because(
                "The session belongs to the service itself, not to the app whose key was sent. Leave out \
                 X-Service-App-Key, or sign in with it.",
            )),
            _ => Ok(self),
        }
    }
}

impl FromRequestParts<Janua> for Session {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        Self::beside_key(parts, janua).await?.with_its_key(parts, janua).await
    }
}

/// A user who is signed in to the service or to an app. For routes that end users of an app need: their profile, and
/// the app's own sessions. The handler checks [`Session::of_app`] where the two differ.
pub struct AnySession(pub Session);

impl FromRequestParts<Janua> for AnySession {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::recognised(parts, janua).await?.without_scopes()?;
        session.with_its_key(parts, janua).await.map(Self)
    }
}

/// Says in the description whether sessions of apps are accepted.
pub(super) fn describe_session(operation: &mut Operation, takes_apps: bool) {
    operation.extensions.insert("x-app-session".into(), takes_apps.into());
    if !takes_apps {
        may_answer(operation, &[APP_SESSION]);
    }
}

impl OperationInput for AnySession {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE, APP_KEY_MISMATCH]);
        describe_session(operation, true);
    }
}

/// An invalid bearer token is answered differently from a missing one (RFC 6750, 3.1).
fn bad_token(delivery: Delivery) -> Fault {
    match delivery {
        Delivery::Cookie => UNAUTHENTICATED.into(),
        Delivery::Body => {
            let says = HeaderValue::from_static("Bearer error=\"invalid_token\"");
            Fault::from(UNAUTHENTICATED).with_header(header::WWW_AUTHENTICATE, says)
        }
    }
}

/// The cookie first, then the header.
fn presented(headers: &HeaderMap) -> Option<(&str, Delivery)> {
    let in_header = || bearer(headers).map(|token| (token, Delivery::Body));
    cookies::peek(headers, cookies::ACCESS).map(|token| (token, Delivery::Cookie)).or_else(in_header)
}

impl Within {
    pub fn of(session: &Session) -> Self {
        Self { session: session.id(), delivery: session.delivery }
    }
}

/// Whether a session came along, valid or not.
pub(super) fn presents_session(parts: &Parts) -> bool {
    parts.extensions.get::<Within>().is_some() || presented(&parts.headers).is_some()
}

/// A signed-in user, or a client that acts for one within its scopes. For the few routes that accept clients. Tokens
/// for another resource are refused.
pub struct Granted(pub Session);

impl Granted {
    /// The client's scopes; all scopes for a session of the user's own.
    pub fn scopes(&self) -> Scopes {
        self.0.living.session.scopes.clone().unwrap_or_else(Scopes::all)
    }
}

impl FromRequestParts<Janua> for Granted {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::recognised(parts, janua).await?.with_its_key(parts, janua).await?;
        if session.living.session.resource.is_some() { Err(bad_token(session.delivery)) } else { Ok(Self(session)) }
    }
}

impl OperationInput for Granted {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, APP_KEY_MISMATCH]);
        describe_session(operation, true);
    }
}

/// The visitor of a page. A user is recognized by the access token or, after it expired, by the refresh cookie, which
/// a page view does not rotate. A visitor with invalid cookies counts as signed out; an invalid bearer token is
/// refused.
pub struct Browser(pub Option<Session>);

impl Browser {
    /// The session, unless it belongs to an app: account pages and the console are not for apps.
    pub fn own(self) -> Option<Session> {
        self.0.filter(|session| session.of_app().is_none())
    }
}

impl FromRequestParts<Janua> for Browser {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if parts.extensions.get::<Within>().is_some() {
            return AnySession::from_request_parts(parts, janua).await.map(|AnySession(session)| Self(Some(session)));
        }
        // Reads the strict cookie names only, so that a neighbouring host cannot set another user's session.
        let found = match cookies::read_strictly(janua, &parts.headers, cookies::ACCESS) {
            Some(token) => recognise(janua, token.expose()).await?.map(|(_, living)| living),
            None => None,
        };
        let (found, is_due) = match (found, cookies::read_strictly(janua, &parts.headers, cookies::REFRESH)) {
            (None, Some(token)) => (refreshable(janua, &token).await?, true),
            (found, _) => (found, false),
        };
        match found.filter(|living| living.session.scopes.is_none()) {
            Some(living) => {
                let session = Session::of(parts, janua, living, Delivery::Cookie).await?;
                let session = session.with_its_key(parts, janua).await?;
                Ok(Self(Some(Session { is_due, ..session })))
            }
            None if bearer(&parts.headers).is_some() => {
                let session = Session::by_bearer(parts, janua).await?.with_its_key(parts, janua).await?;
                Ok(Self(Some(session)))
            }
            None => Ok(Self(None)),
        }
    }
}

impl OperationInput for Browser {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &[]);
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE, APP_KEY_MISMATCH]);
    }
}

/// The session whose current refresh token this is. A session of an app needs that app's key.
async fn refreshable(janua: &Janua, token: &Secret) -> db::Result<Option<Living>> {
    let Some((id, generation)) = sessions::read_refresh_token(janua, token) else { return Ok(None) };
    let present = sessions::StoredSession::find(&janua.db, id).await?;
    let present = present.filter(|session| session.generation == generation && session.holder().is_none());
    match present {
        Some(_) => living(janua, id).await,
        None => Ok(None),
    }
}

/// Any caller, with the session if there is one. An invalid token is still refused.
pub struct MaybeSession(pub Option<Session>);

impl FromRequestParts<Janua> for MaybeSession {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        if parts.extensions.get::<Within>().is_none() && presented(&parts.headers).is_none() {
            return Ok(Self(None));
        }
        Session::from_request_parts(parts, janua).await.map(|session| Self(Some(session)))
    }
}

impl OperationInput for MaybeSession {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[UNAUTHENTICATED, INSUFFICIENT_SCOPE, APP_KEY_MISMATCH]);
        describe_session(operation, false);
    }
}

impl OperationInput for Session {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE, APP_KEY_MISMATCH]);
        describe_session(operation, false);
    }
}

/// Whether this is a session of a platform owner. A session of an app never counts.
pub fn is_platform_owner(janua: &Janua, session: &Session) -> bool {
    session.living.session.app_id.is_none() && runs_platform(janua, session.account())
}

/// Whether an account is that of a platform owner: listed in the settings with a verified email or, without a list, made
/// an owner in the database.
pub fn runs_platform(janua: &Janua, account: &Account) -> bool {
    is_owner_by(janua, account.email_key.as_deref(), account.email_verified, account.runs_platform)
}

/// The same for what a list knows of an account.
pub fn is_owner_by(janua: &Janua, email_key: Option<&str>, is_verified: bool, is_entrusted: bool) -> bool {
    let owners = &janua.config.of::<crate::Settings>().platform_owners;
    let mut listed = owners.iter().filter_map(|owner| crate::email::Email::parse(owner));
    let is_listed = email_key.is_some_and(|key| listed.any(|owner| owner.key() == key));
    if owners.is_empty() { is_entrusted } else { is_verified && is_listed }
}

/// The accounts of all platform owners.
pub async fn platform_owners(tx: &mut Tx, janua: &Janua) -> db::Result<Vec<Account>> {
    let listed = &janua.config.of::<crate::Settings>().platform_owners;
    if listed.is_empty() {
        return Account::who_run_platform(&mut *tx).await;
    }
    let mut found = vec![];
    for email in listed.iter().filter_map(|owner| crate::email::Email::parse(owner)) {
        found.extend(Account::by_email(&mut *tx, &email).await?.filter(|account| account.email_verified));
    }
    Ok(found)
}

/// A platform owner.
pub struct PlatformOwner(pub Session);

impl PlatformOwner {
    /// Records something that happened to the platform itself.
    pub async fn record(&self, tx: &mut Tx, janua: &Janua, event: &dyn Event) -> db::Result<()> {
        self.0.record_about(tx, janua, About::default(), event).await
    }
}

impl FromRequestParts<Janua> for PlatformOwner {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        if is_platform_owner(janua, &session) { Ok(Self(session)) } else { Err(FORBIDDEN.into()) }
    }
}

impl OperationInput for PlatformOwner {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        may_answer(operation, &[FORBIDDEN]);
        operation.extensions.insert("x-role".into(), "platform-owner".into());
    }
}

/// A platform admin, who sees figures of the platform: listed in `platform_admins` with a verified email, or a platform
/// owner.
pub struct PlatformAdmin(pub Session);

/// Whether this is a session of a platform admin. Owners are admins, too.
pub fn is_platform_admin(janua: &Janua, session: &Session) -> bool {
    let account = session.account();
    let admins = &janua.config.of::<crate::Settings>().platform_admins;
    let mut listed = admins.iter().filter_map(|admin| crate::email::Email::parse(admin));
    let is_listed = account.email_key.as_deref().is_some_and(|key| listed.any(|admin| admin.key() == key));
    is_platform_owner(janua, session)
        || session.living.session.app_id.is_none() && account.email_verified && is_listed
}

impl FromRequestParts<Janua> for PlatformAdmin {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let session = Session::from_request_parts(parts, janua).await?;
        if is_platform_admin(janua, &session) { Ok(Self(session)) } else { Err(FORBIDDEN.into()) }
    }
}

impl OperationInput for PlatformAdmin {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        may_answer(operation, &[FORBIDDEN]);
        operation.extensions.insert("x-role".into(), "platform-admin".into());
    }
}

/// The refresh token of a browser. Programs send theirs in the body.
pub struct RefreshToken(pub Option<Secret>);

impl FromRequestParts<Janua> for RefreshToken {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        Ok(Self(cookies::read(&parts.headers, cookies::REFRESH)))
    }
}

impl OperationInput for RefreshToken {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["refreshCookie"]);
        may_answer(operation, &[UNAUTHENTICATED]);
    }
}
