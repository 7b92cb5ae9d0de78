//! A signed-in person: the token is checked, the session lives, the account is at hand. The common request touches no
//! database: verified tokens and living sessions are remembered, and forgotten when anybody says so.
use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use kernel::{
    App,
    crypto::{self, Secret},
    db::{self, Notice},
    fault::{CROSS_SITE, Code, FORBIDDEN, Fault, Result, UNAUTHENTICATED},
    http::{AppOrigins, Client, GenContext, Operation, OperationInput, bearer, foreign_origin, may_answer, requires},
};
use moka::sync::Cache;

use super::{
    Delivery, Within,
    app::{INVALID_APP_KEY, presented as app_key},
    cookies,
};
use crate::{
    accounts::{Account, AccountId},
    apps::{self, Application, ApplicationId, Keyed},
    events::By,
    factors::{Factors, Whole},
    orgs::{self, Membership, OrgId},
    scim_tokens::{self, ScimToken},
    scopes::Scopes,
    sessions::{self, SessionId},
    tokens::{self, Claims},
};

pub const REAUTHENTICATION_REQUIRED: Code =
    Code::new(403, "reauthentication_required", "Sign in again first: this needs a fresh proof of who you are.");

pub const INSUFFICIENT_SCOPE: Code =
    Code::new(403, "insufficient_scope", "The person did not let this client do that.");

/// How long a proof of who somebody is counts as fresh.
const FRESH: Duration = Duration::from_mins(10);
/// Nothing is remembered longer than this, whatever nobody said.
const REMEMBERED: Duration = Duration::from_mins(1);
const MOST: u64 = 50_000;

/// A living session and whose it is.
pub struct Living {
    pub session: sessions::Session,
    pub account: Account,
    pub factors: Factors,
    /// The organization the session acts for.
    pub org: Option<Membership>,
}

/// What is remembered on this node.
pub struct Live {
    /// Counts what was forgotten: what was read before it is not remembered after it.
    forgotten: AtomicU64,
    /// By the digest of the token.
    tokens: Cache<[u8; 32], Arc<Claims>>,
    sessions: Cache<SessionId, Arc<Living>>,
    members: Cache<(OrgId, AccountId), Arc<Membership>>,
    /// By the digest of the key.
    keys: Cache<[u8; 32], Arc<Keyed>>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            forgotten: AtomicU64::new(0),
            tokens: Cache::builder().max_capacity(MOST).time_to_live(Duration::from_mins(15)).build(),
            sessions: short_lived(),
            members: short_lived(),
            keys: short_lived(),
        }
    }
}

fn short_lived<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static>() -> Cache<K, V> {
    Cache::builder().max_capacity(MOST).time_to_live(REMEMBERED).support_invalidation_closures().build()
}

/// Forgets what is so; all of it, should that fail.
fn forget<K, V>(cache: &Cache<K, V>, is_so: impl Fn(&K, &V) -> bool + Send + Sync + 'static)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    if cache.invalidate_entries_if(is_so).is_err() {
        cache.invalidate_all();
    }
}

impl Live {
    /// Forgets what a notice makes untrue.
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if topic == sessions::TOPIC => {
                self.forgotten.fetch_add(1, SeqCst);
                match body.parse::<SessionId>() {
                    Ok(id) => self.sessions.invalidate(&id),
                    Err(_) => self.sessions.invalidate_all(),
                }
            }
            Notice::News { topic, body } if topic == ACCOUNT_TOPIC => {
                self.forgotten.fetch_add(1, SeqCst);
                let id = body.parse::<AccountId>().ok();
                forget(&self.sessions, move |_, living| id.is_none_or(|id| living.account.id == id));
                forget(&self.members, move |(_, account), _| id.is_none_or(|id| *account == id));
            }
            Notice::News { topic, body } if topic == orgs::TOPIC => {
                self.forgotten.fetch_add(1, SeqCst);
                let id = body.parse::<OrgId>().ok();
                let is_it = move |org: OrgId| id.is_none_or(|id| org == id);
                forget(&self.sessions, move |_, living| living.org.as_ref().is_some_and(|org| is_it(org.org.id)));
                forget(&self.members, move |(org, _), _| is_it(*org));
                forget(&self.keys, move |_, keyed| is_it(keyed.org_id));
            }
            Notice::News { topic, body } if topic == apps::TOPIC => {
                self.forgotten.fetch_add(1, SeqCst);
                let id = body.parse::<ApplicationId>().ok();
                forget(&self.keys, move |_, keyed| id.is_none_or(|id| keyed.app_id == id));
            }
            Notice::News { .. } => {}
            Notice::StartOver => {
                self.forgotten.fetch_add(1, SeqCst);
                self.sessions.invalidate_all();
                self.members.invalidate_all();
                self.keys.invalidate_all();
            }
        }
    }

    /// Remembers what was read, unless something was forgotten since `before`.
    fn remember<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static>(
        &self,
        cache: &Cache<K, V>,
        key: &K,
        value: V,
        before: u64,
    ) {
        cache.insert(key.clone(), value);
        if self.forgotten.load(SeqCst) != before {
            cache.invalidate(key);
        }
    }

    /// What somebody is in an organization; nothing for strangers.
    pub(super) async fn membership(
        &self,
        app: &App,
        org: OrgId,
        account: AccountId,
    ) -> db::Result<Option<Arc<Membership>>> {
        let before = self.forgotten.load(SeqCst);
        if let Some(known) = self.members.get(&(org, account)) {
            return Ok(Some(known));
        }
        let found = Membership::of(&app.db, org, account).await?.map(Arc::new);
        if let Some(found) = &found {
            self.remember(&self.members, &(org, account), found.clone(), before);
        }
        Ok(found)
    }

    /// What an app's key stands for; nothing for one that is not ours. Its use is noted when it is looked up anew.
    pub async fn keyed(&self, app: &App, key: &Secret) -> db::Result<Option<Arc<Keyed>>> {
        let (before, digest) = (self.forgotten.load(SeqCst), crypto::digest(key.expose().as_bytes()));
        if let Some(known) = self.keys.get(&digest) {
            return Ok(Some(known));
        }
        let Some(found) = Keyed::find(&app.db, key).await?.map(Arc::new) else { return Ok(None) };
        found.note_use(&app.db, app.clock.now()).await?;
        self.remember(&self.keys, &digest, found.clone(), before);
        Ok(Some(found))
    }
}

/// The topic on which a change to an account is told.
pub const ACCOUNT_TOPIC: &str = "account";

/// Hears from all nodes when the signing keys changed; a command beside an embedded database is noticed within a minute.
/// The origins of apps are read again when an app changed.
pub async fn watch(app: App) {
    let mut notices = app.db.listen();
    loop {
        let (is_about_keys, is_about_apps) = match tokio::time::timeout(REMEMBERED, notices.next()).await {
            Ok(None) => return,
            Ok(Some(Notice::News { topic, .. })) => {
                (topic == crate::keys::TOPIC, topic == apps::TOPIC || topic == orgs::TOPIC)
            }
            Ok(Some(Notice::StartOver)) | Err(_) => (true, true),
        };
        if is_about_keys && let Err(error) = crate::keys::load(&app).await {
            tracing::error!(error, "cannot read the signing keys again; going on with those at hand");
        }
        if is_about_apps && let Err(error) = read_origins(&app).await {
            tracing::error!(%error, "cannot read the apps' origins again; going on with those at hand");
        }
    }
}

pub async fn read_origins(app: &App) -> db::Result<()> {
    app.own::<Arc<AppOrigins>>().set(Application::origins(&app.db).await?);
    Ok(())
}

/// Refuses a token or a key that no longer opens anything; who brings none is nobody's concern.
pub async fn is_still_good(app: &App, headers: &HeaderMap) -> Result<()> {
    app_key(app, headers).await?;
    let Some((token, delivery)) = presented(headers) else { return Ok(()) };
    if token.expose().starts_with(scim_tokens::START) {
        let found = ScimToken::recognise(&app.db, &token, app.clock.now()).await?;
        return found.map(drop).ok_or_else(|| UNAUTHENTICATED.into());
    }
    let (_, living) = recognise(app, &token).await?.ok_or(UNAUTHENTICATED)?;
    match delivery {
        Delivery::Cookie => may_use_cookie(app, headers, &living.session).await,
        Delivery::Body => Ok(()),
    }
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

/// Somebody who is signed in, by cookie or by bearer token.
pub struct Session {
    pub living: Arc<Living>,
    /// How the client keeps its tokens.
    pub delivery: Delivery,
    /// Whether the access token has run out and the refresh token stands in for it.
    pub is_due: bool,
    client: Client,
    user_agent: Option<HeaderValue>,
}

impl Session {
    pub fn account(&self) -> &Account {
        &self.living.account
    }

    pub fn factors(&self) -> &Factors {
        &self.living.factors
    }

    pub fn id(&self) -> SessionId {
        self.living.session.id
    }

    /// The organization this session acts for.
    pub fn org(&self) -> Option<&Membership> {
        self.living.org.as_ref()
    }

    /// Whether this session began with everything that is asked of the person today: one that is older than their
    /// second factor did not.
    pub fn passed_gate(&self) -> bool {
        !self.factors().is_on() || self.is_strong()
    }

    /// Whether a second factor was proven in it.
    pub fn is_strong(&self) -> bool {
        self.living.session.is_strong()
    }

    /// Who does what this request does, and from where.
    pub fn by(&self) -> By {
        let app = self.living.session.app_id;
        By { actor: Some(self.account().id), app, ..super::abuse::from_where(self.client, self.user_agent.as_ref()) }
    }

    /// Whether the person proved who they are not long ago. A device that was let in proved nothing itself, and who holds
    /// it need not be who let it in.
    pub fn is_fresh(&self, app: &App) -> bool {
        let session = &self.living.session;
        let was_let_in = session.methods.iter().any(|method| method == "device");
        !was_let_in && app.clock.now().since(session.authenticated_at) <= FRESH
    }
}

impl Session {
    /// Somebody, or a client that acts for them, whatever key of an app came along.
    async fn recognised(parts: &mut Parts, app: &App) -> Result<Self> {
        if let Some(Within(id)) = parts.extensions.get().copied() {
            let living = living(app, id).await?.ok_or(UNAUTHENTICATED)?;
            return Self::of(parts, app, living, Delivery::Cookie).await;
        }
        let (token, delivery) = presented(&parts.headers).ok_or(UNAUTHENTICATED)?;
        let (_, living) = recognise(app, &token).await?.ok_or(UNAUTHENTICATED)?;
        Self::of(parts, app, living, delivery).await
    }

    async fn of(parts: &mut Parts, app: &App, living: Arc<Living>, delivery: Delivery) -> Result<Self> {
        let client = Client::from_request_parts(parts, app).await?;
        if delivery == Delivery::Cookie {
            may_use_cookie(app, &parts.headers, &living.session).await?;
        }
        let user_agent = parts.headers.get(header::USER_AGENT).cloned();
        Ok(Self { living, delivery, client, user_agent, is_due: false })
    }
}

impl Session {
    /// The person's own, whatever key of an app came along: not that of a client within its scopes.
    pub(super) async fn beside_key(parts: &mut Parts, app: &App) -> Result<Self> {
        Self::recognised(parts, app).await?.without_scopes()
    }

    /// By the header alone, whatever cookies came along.
    async fn by_bearer(parts: &mut Parts, app: &App) -> Result<Self> {
        let token = bearer(&parts.headers).ok_or(UNAUTHENTICATED)?.to_owned().into();
        let (_, living) = recognise(app, &token).await?.ok_or(UNAUTHENTICATED)?;
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

    /// Whoever also says which app they are must be the one the session belongs to.
    async fn with_its_key(self, parts: &Parts, app: &App) -> Result<Self> {
        match app_key(app, &parts.headers).await? {
            Some(keyed) if self.living.session.app_id != Some(keyed.app_id) => Err(UNAUTHENTICATED.into()),
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

/// The cookie first, then the header.
fn presented(headers: &HeaderMap) -> Option<(Secret, Delivery)> {
    let in_header = || bearer(headers).map(|token| (token.to_owned().into(), Delivery::Body));
    cookies::read(headers, cookies::ACCESS).map(|token| (token, Delivery::Cookie)).or_else(in_header)
}

fn verified(app: &App, token: &Secret) -> Option<Arc<Claims>> {
    let live = app.own::<Arc<Live>>();
    let key = crypto::digest(token.expose().as_bytes());
    match live.tokens.get(&key) {
        Some(claims) => tokens::is_current(&claims, app.clock.now()).then_some(claims),
        None => {
            let claims = Arc::new(tokens::verify(app, token.expose())?);
            live.tokens.insert(key, claims.clone());
            Some(claims)
        }
    }
}

/// Whose access token this is, if it is good now.
pub async fn recognise(app: &App, token: &Secret) -> db::Result<Option<(Arc<Claims>, Arc<Living>)>> {
    let Some(claims) = verified(app, token) else { return Ok(None) };
    let found = living(app, claims.sid).await?.filter(|living| living.account.id == claims.sub);
    Ok(found.map(|living| (claims, living)))
}

async fn living(app: &App, id: SessionId) -> db::Result<Option<Arc<Living>>> {
    let (live, now) = (app.own::<Arc<Live>>(), app.clock.now());
    let before = live.forgotten.load(SeqCst);
    if let Some(living) = live.sessions.get(&id) {
        return Ok(Some(living).filter(|living| living.session.is_alive(now)));
    }
    let Some(session) = sessions::Session::find(&app.db, id).await?.filter(|found| found.is_alive(now)) else {
        return Ok(None);
    };
    let whole = Whole::find(&app.db, session.account_id).await?;
    let org = match session.org_id {
        Some(org) => Membership::of(&app.db, org, session.account_id).await?,
        None => None,
    };
    let living = whole.map(|Whole { account, factors }| Arc::new(Living { session, account, factors, org }));
    if let Some(living) = &living {
        live.remember(&live.sessions, &id, living.clone(), before);
    }
    Ok(living)
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
        if session.living.session.resource.is_some() { Err(UNAUTHENTICATED.into()) } else { Ok(Self(session)) }
    }
}

impl OperationInput for Granted {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY]);
    }
}

/// Whoever sits in front of a page. A person is known by the access token or, once that has run out, by the refresh
/// cookie, which is not turned over by looking at a page. Whose cookies are no longer good is nobody; a bearer token that
/// is not good is refused.
pub struct Browser(pub Option<Session>);

impl FromRequestParts<App> for Browser {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        if parts.extensions.get::<Within>().is_some() {
            return Session::from_request_parts(parts, app).await.map(|session| Self(Some(session)));
        }
        // By the strict names alone: a neighbouring host must not put somebody else in front of a page.
        let found = match cookies::read_strictly(app, &parts.headers, cookies::ACCESS) {
            Some(token) => recognise(app, &token).await?.map(|(_, living)| living),
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
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE]);
    }
}

/// The living session of which this is the present refresh token. That of an app's session is for the app alone, with its
/// key.
async fn refreshable(app: &App, token: &Secret) -> db::Result<Option<Arc<Living>>> {
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
        match presented(&parts.headers) {
            Some(_) => Session::from_request_parts(parts, app).await.map(|session| Self(Some(session))),
            None => Ok(Self(None)),
        }
    }
}

impl OperationInput for MaybeSession {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[UNAUTHENTICATED, INSUFFICIENT_SCOPE]);
    }
}

impl OperationInput for Session {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        requires(operation, &["bearer"]);
        requires(operation, &["cookie"]);
        may_answer(operation, &[UNAUTHENTICATED, INVALID_APP_KEY, INSUFFICIENT_SCOPE]);
    }
}

/// Whether this is one of those who run the platform: on the list in the settings with a verified address or, where there
/// is no list, whoever came first. No app acts for them.
pub fn is_platform_owner(app: &App, session: &Session) -> bool {
    let (account, owners) = (session.account(), &app.config.platform_owners);
    let mut listed = owners.iter().filter_map(|owner| crate::email::Email::parse(owner));
    let is_listed = account.email_key.as_deref().is_some_and(|key| listed.any(|owner| owner.key() == key));
    let is_owner = if owners.is_empty() { account.runs_platform } else { account.email_verified && is_listed };
    session.living.session.app_id.is_none() && is_owner
}

/// One of those who run the platform.
pub struct PlatformOwner(pub Session);

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
