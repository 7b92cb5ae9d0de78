//! A signed-in person: the token is checked, the session lives, the account is at hand.
use std::time::Duration;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use db::Tx;
use kernel::{
    App,
    clock::Timestamp,
    crypto::Secret,
    fault::{CROSS_SITE, Code, FORBIDDEN, Fault, Result, UNAUTHENTICATED},
    http::{Client, GenContext, Operation, OperationInput, bearer, foreign_origin, may_answer, requires},
};

use super::{
    Delivery, Living, Within,
    app::{INVALID_APP_KEY, presented as app_key},
    cookies,
    live::{living, recognise},
};
use crate::{
    accounts::Account,
    apps::{Application, ApplicationId},
    audience::Audience,
    events::{self, About, By, Event},
    factors::Factors,
    orgs::Membership,
    scopes::Scopes,
    sessions::{self, SessionId},
};

pub const REAUTHENTICATION_REQUIRED: Code =
    Code::new(403, "reauthentication_required", "Sign in again first: this needs a fresh proof of who you are.");

pub const APP_SESSION: Code =
    Code::new(403, "app_session", "This session belongs to an app. Sign in to the service directly.");

pub const APP_KEY_MISMATCH: Code =
    Code::new(403, "app_key_mismatch", "The session and the app key do not belong together.");

pub const INSUFFICIENT_SCOPE: Code =
    Code::new(403, "insufficient_scope", "The person did not let this client do that.");

/// How long a proof of who somebody is counts as fresh.
const FRESH: Duration = Duration::from_mins(10);

/// What was proven in a session not long ago, each kind by its own time; none of them for a mailed link or a provider.
#[derive(Debug, Clone, Copy)]
pub struct Freshly {
    pub password: bool,
    /// A code of a second factor.
    pub factor: bool,
    pub passkey: bool,
}

/// A cookie counts on pages of the service, and on those of the app its session belongs to.
pub async fn may_use_cookie(app: &App, headers: &HeaderMap, session: &sessions::Session) -> Result<()> {
    let Some(origin) = foreign_origin(app, headers) else { return Ok(()) };
    let is_its_own = match session.app_id {
        Some(id) => Application::allows(&app.db, id, &origin).await?,
        None => false,
    };
    if is_its_own { Ok(()) } else { Err(CROSS_SITE.into()) }
}

/// Somebody who is signed in to the service itself, by cookie or by bearer token. A session that belongs to an app is
/// refused: it is for [`AnySession`], in the few places that an app needs.
pub struct Session {
    pub living: Living,
    /// How the client keeps its tokens.
    pub delivery: Delivery,
    /// Whether the access token has run out and the refresh token stands in for it.
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

    /// Whether this session began with everything that is asked of the person today: one that is older than their
    /// second factor did not.
    pub fn passed_gate(&self) -> bool {
        !self.factors().is_on() || self.is_strong()
    }

    /// Whether it is behind the gate of the second factor.
    pub fn is_strong(&self) -> bool {
        self.living.session.is_strong()
    }

    /// Who does what this request does, and from where.
    pub fn by(&self) -> By {
        let app = self.living.session.app_id;
        By { actor: Some(self.account().id), app, ..super::abuse::from_where(self.client, self.user_agent.as_ref()) }
    }

    /// Records something that happened to the person of this session.
    pub async fn record(&self, tx: &mut Tx, app: &App, event: &dyn Event) -> db::Result<()> {
        self.record_about(tx, app, self.account().id, event).await
    }

    /// Records something that the person of this session did to `about`.
    pub async fn record_about(
        &self,
        tx: &mut Tx,
        app: &App,
        about: impl Into<About> + Send,
        event: &dyn Event,
    ) -> db::Result<()> {
        events::record(tx, app, &self.by(), about, event).await
    }

    /// The app it belongs to, if it is not the service's own.
    pub fn of_app(&self) -> Option<ApplicationId> {
        self.living.session.app_id
    }

    /// Whether this session may let a client in, for tokens that count at `resource` or, without one, at this service. Only a
    /// session of the service is the person's own word. One that belongs to an app is in the app's hands, also where it came
    /// as a cookie: it lets in this very app, and never at somebody's server.
    pub fn may_let_in(&self, client: Option<ApplicationId>, resource: Option<&Audience>) -> bool {
        self.of_app().is_none_or(|own| client == Some(own) && resource.is_none())
    }

    /// What the person proved not long ago, if anything. A device that was let in proved nothing itself, and who holds it
    /// need not be who let it in; it counts once something was proven on it.
    pub fn fresh(&self, app: &App) -> Option<Freshly> {
        let (session, now) = (&self.living.session, app.clock.now());
        let is_fresh = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) <= FRESH);
        let was_let_in = session.methods.iter().any(|method| method == "device");
        let (password, factor, passkey) =
            (is_fresh(session.password_at), is_fresh(session.factor_at), is_fresh(session.passkey_at));
        let anything = password || factor || passkey || !was_let_in && is_fresh(Some(session.authenticated_at));
        anything.then_some(Freshly { password, factor, passkey })
    }
}

impl Session {
    /// Somebody, or a client that acts for them, whatever key of an app came along.
    async fn recognised(parts: &mut Parts, app: &App) -> Result<Self> {
        if let Some(Within { session, delivery }) = parts.extensions.get().copied() {
            let living = living(app, session).await?.ok_or(UNAUTHENTICATED)?;
            return Self::of(parts, app, living, delivery).await;
        }
        let (token, delivery) = presented(&parts.headers).ok_or(UNAUTHENTICATED)?;
        let (_, living) = recognise(app, token).await?.ok_or_else(|| bad_token(delivery))?;
        Self::of(parts, app, living, delivery).await
    }

    async fn of(parts: &mut Parts, app: &App, living: Living, delivery: Delivery) -> Result<Self> {
        let client = Client::from_request_parts(parts, app).await?;
        if delivery == Delivery::Cookie {
            may_use_cookie(app, &parts.headers, &living.session).await?;
        }
        let user_agent = parts.headers.get(header::USER_AGENT).cloned();
        Ok(Self { living, delivery, client, user_agent, is_due: false })
    }
}

impl Session {
    /// The service's own, whatever key of an app came along.
    pub(super) async fn beside_key(parts: &mut Parts, app: &App) -> Result<Self> {
        Self::recognised(parts, app).await?.without_scopes()?.of_the_service(app)
    }

    fn of_the_service(self, app: &App) -> Result<Self> {
        match self.of_app() {
            None => Ok(self),
            Some(_) => Err(APP_SESSION.because(format!("Sign in at {}/sign-in.", app.config.base_url()))),
        }
    }

    /// By the header alone, whatever cookies came along.
    async fn by_bearer(parts: &mut Parts, app: &App) -> Result<Self> {
        let token = bearer(&parts.headers).ok_or(UNAUTHENTICATED)?;
        let (_, living) = recognise(app, token).await?.ok_or(UNAUTHENTICATED)?;
        Self::of(parts, app, living, Delivery::Body).await?.without_scopes()
    }

    fn without_scopes(self) -> Result<Self> {
        let session = self;
        if session.living.session.scopes.is_some() {
            let says = HeaderValue::from_static("Bearer error=\"insufficient_scope\"");
            return Err(Fault::from(INSUFFICIENT_SCOPE).with_header(header::WWW_AUTHENTICATE, says));
        }
        Ok(session)
    }

    /// Whoever also says which app they are must be the one the session belongs to: an app that hands on what its people
    /// bring must not take somebody else's session for one of its own.
    async fn with_its_key(self, parts: &Parts, app: &App) -> Result<Self> {
        match (app_key(app, &parts.headers).await?, self.of_app()) {
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

impl FromRequestParts<App> for Session {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        Self::beside_key(parts, app).await?.with_its_key(parts, app).await
    }
}

/// Somebody who is signed in, to the service itself or to an app. For what an app's people do in it: their profile, and the
/// app's own sessions. A handler that takes this looks at [`Session::of_app`] where the two differ.
pub struct AnySession(pub Session);

impl FromRequestParts<App> for AnySession {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let session = Session::recognised(parts, app).await?.without_scopes()?;
        session.with_its_key(parts, app).await.map(Self)
    }
}

/// Says in the description whether a session that belongs to an app is taken.
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

/// A bearer token that opens nothing is told apart from none at all (RFC 6750, 3.1).
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

/// Somebody who is signed in, or a client that acts for them within its scopes. For the few routes where a client may
/// come, too. Tokens that count elsewhere do not count here.
pub struct Granted(pub Session);

impl Granted {
    /// Everything, for a person's own session.
    pub fn scopes(&self) -> Scopes {
        self.0.living.session.scopes.clone().unwrap_or_else(Scopes::all)
    }
}

impl FromRequestParts<App> for Granted {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let session = Session::recognised(parts, app).await?.with_its_key(parts, app).await?;
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

/// Whoever sits in front of a page. A person is known by the access token or, once that has run out, by the refresh
/// cookie, which is not turned over by looking at a page. Whose cookies are no longer good is nobody; a bearer token that
/// is not good is refused.
pub struct Browser(pub Option<Session>);

impl Browser {
    /// Nobody, where the session belongs to an app: the pages of the account and the console are not the app's.
    pub fn own(self) -> Option<Session> {
        self.0.filter(|session| session.of_app().is_none())
    }
}

impl FromRequestParts<App> for Browser {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        if parts.extensions.get::<Within>().is_some() {
            return AnySession::from_request_parts(parts, app).await.map(|AnySession(session)| Self(Some(session)));
        }
        // By the strict names alone: a neighbouring host must not put somebody else in front of a page.
        let found = match cookies::read_strictly(app, &parts.headers, cookies::ACCESS) {
            Some(token) => recognise(app, token.expose()).await?.map(|(_, living)| living),
            None => None,
        };
        let (found, is_due) = match (found, cookies::read_strictly(app, &parts.headers, cookies::REFRESH)) {
            (None, Some(token)) => (refreshable(app, &token).await?, true),
            (found, _) => (found, false),
        };
        match found.filter(|living| living.session.scopes.is_none()) {
            Some(living) => {
                let session = Session::of(parts, app, living, Delivery::Cookie).await?;
                let session = session.with_its_key(parts, app).await?;
                Ok(Self(Some(Session { is_due, ..session })))
            }
            None if bearer(&parts.headers).is_some() => {
                let session = Session::by_bearer(parts, app).await?.with_its_key(parts, app).await?;
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

/// The living session of which this is the present refresh token. That of an app's session is for the app alone, with its
/// key.
async fn refreshable(app: &App, token: &Secret) -> db::Result<Option<Living>> {
    let Some((id, generation)) = sessions::read_refresh_token(app, token) else { return Ok(None) };
    let present = sessions::Session::find(&app.db, id).await?;
    let present = present.filter(|session| session.generation == generation && session.holder().is_none());
    match present {
        Some(_) => living(app, id).await,
        None => Ok(None),
    }
}

/// Anybody; whoever is signed in is known. A token that is not good is still refused.
pub struct MaybeSession(pub Option<Session>);

impl FromRequestParts<App> for MaybeSession {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        if parts.extensions.get::<Within>().is_none() && presented(&parts.headers).is_none() {
            return Ok(Self(None));
        }
        Session::from_request_parts(parts, app).await.map(|session| Self(Some(session)))
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

/// Whether this is one of those who run the platform: on the list in the settings with a verified address or, where there
/// is no list, whoever came first. No app acts for them.
pub fn is_platform_owner(app: &App, session: &Session) -> bool {
    let (account, owners) = (session.account(), &app.config.of::<crate::Settings>().platform_owners);
    let mut listed = owners.iter().filter_map(|owner| crate::email::Email::parse(owner));
    let is_listed = account.email_key.as_deref().is_some_and(|key| listed.any(|owner| owner.key() == key));
    let is_owner = if owners.is_empty() { account.runs_platform } else { account.email_verified && is_listed };
    session.living.session.app_id.is_none() && is_owner
}

/// One of those who run the platform.
pub struct PlatformOwner(pub Session);

impl PlatformOwner {
    /// Records something that happened to the platform itself.
    pub async fn record(&self, tx: &mut Tx, app: &App, event: &dyn Event) -> db::Result<()> {
        self.0.record_about(tx, app, About::default(), event).await
    }
}

impl FromRequestParts<App> for PlatformOwner {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let session = Session::from_request_parts(parts, app).await?;
        if is_platform_owner(app, &session) { Ok(Self(session)) } else { Err(FORBIDDEN.into()) }
    }
}

impl OperationInput for PlatformOwner {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        may_answer(operation, &[FORBIDDEN]);
        operation.extensions.insert("x-role".into(), "platform-owner".into());
    }
}

/// The refresh token of a browser. Programs send theirs in the body.
pub struct RefreshToken(pub Option<Secret>);

impl FromRequestParts<App> for RefreshToken {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        Ok(Self(cookies::read(&parts.headers, cookies::REFRESH)))
    }
}

impl OperationInput for RefreshToken {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["refreshCookie"]);
        may_answer(operation, &[UNAUTHENTICATED]);
    }
}
