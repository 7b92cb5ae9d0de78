//! What this node remembers of tokens, sessions, memberships and keys, so that the common request touches no database;
//! and how it hears what to forget.
use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use kernel::{
    App,
    crypto::{self, Secret},
    db::{self, Notice},
    http::AppOrigins,
};
use moka::sync::Cache;

use crate::{
    accounts::{Account, AccountId},
    apps::{self, Application, ApplicationId, Keyed},
    factors::{Factors, Whole},
    orgs::{self, Membership, OrgId},
    sessions::{self, SessionId},
    tokens::{self, Claims},
};

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

pub(super) async fn living(app: &App, id: SessionId) -> db::Result<Option<Arc<Living>>> {
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
