//! The table of hosts: which site a host serves. It is filled as hosts are asked for, looked up by hash, and kept right by
//! notices between nodes. While the database is away, what was served goes on being served.
use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use db::Notice;
use kernel::{Janua, clock::Timestamp};
use quick_cache::sync::Cache;
use tenancy::{
    apps::{self, Application, ApplicationId},
    orgs::{self, OrgId},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    settings::EdgeUrl,
    site::{self, CustomHost, Site, SiteSettings, SiteStatus},
};
use crate::deployments::{Deployment, DeploymentId, LiveManifest};

/// How many hosts a node knows at once. One that it does not know costs two reads.
const MOST_HOSTS: usize = 100_000;
/// Upper bound on staleness if a notice was missed.
const CONFIRMED_FOR: Duration = Duration::from_mins(1);
/// How long a host is served without the database having confirmed it.
const SERVED_WITHOUT_DATABASE: Duration = Duration::from_hours(24);
/// How long a request waits for the database where the table has an older answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// After a failed read, older answers count for this long without asking again.
const PAUSE: Duration = Duration::from_secs(1);
/// How many hosts are read at once, so that a storm of unknown hosts leaves connections for the API.
const READS: usize = 8;
const GROUPS: usize = 4096;

/// What a host serves.
#[derive(Debug)]
pub struct Route {
    pub app: ApplicationId,
    pub org: OrgId,
    pub kind: RouteKind,
    pub settings: SiteSettings,
    /// What is served; none before the first deployment.
    pub live: Option<LiveManifest>,
    /// What was live before, newest first, with the moment until which its files stay reachable.
    pub grace: Vec<(LiveManifest, Timestamp)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteKind {
    Production,
    Preview(DeploymentId),
    /// The other host of the same site.
    Redirect(String),
}

/// What the table says of a host.
#[derive(Debug, Clone)]
pub enum Looked {
    Found(Arc<Route>),
    Unknown,
    /// The database is away, and this node has not served the host before.
    Away,
}

struct Entry {
    route: Option<Arc<Route>>,
    confirmed: Instant,
    /// The counts of its app and its organization, and that of changes to everything, when it was read.
    counts: [u64; 3],
    /// Milliseconds since the start of the table until which no other read is tried.
    paused_until: AtomicU64,
}

pub struct Hosts {
    known: Cache<Box<str>, Arc<Entry>>,
    /// Counts of changes, by groups of ids.
    changes: Box<[AtomicU64]>,
    /// Counts changes that may concern every host.
    all: AtomicU64,
    reads: Semaphore,
    begun: Instant,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            known: Cache::new(MOST_HOSTS),
            changes: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
            reads: Semaphore::new(READS),
            begun: Instant::now(),
        }
    }
}

/// Hosts that serve nothing are all in one group: a new site may be any of them.
const UNKNOWN_HOSTS: &str = "unknown hosts";

impl Hosts {
    fn group(id: impl Hash) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        usize::try_from(hasher.finish() % GROUPS as u64).unwrap_or_default()
    }

    fn forget(&self, id: impl Hash) {
        self.changes[Self::group(id)].fetch_add(1, SeqCst);
    }

    /// The groups whose changes concern a host with this route.
    fn groups(route: Option<&Route>) -> [usize; 2] {
        match route {
            Some(route) => [Self::group(route.app.to_string()), Self::group(route.org.to_string())],
            None => [Self::group(UNKNOWN_HOSTS); 2],
        }
    }

    fn counts(&self, route: Option<&Route>) -> [u64; 3] {
        let [app, org] = Self::groups(route);
        [self.changes[app].load(SeqCst), self.changes[org].load(SeqCst), self.all.load(SeqCst)]
    }

    /// Takes note of a change that this or another node made.
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if [site::TOPIC, apps::TOPIC, orgs::TOPIC].contains(&&**topic) => {
                self.forget(body);
                if *topic != orgs::TOPIC {
                    self.forget(UNKNOWN_HOSTS);
                }
            }
            Notice::News { .. } => {}
            Notice::StartOver => _ = self.all.fetch_add(1, SeqCst),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_current(&self, janua: &Janua, entry: &Entry) -> bool {
        janua.db.hears_others()
            && entry.counts == self.counts(entry.route.as_deref())
            && entry.confirmed.elapsed() < CONFIRMED_FOR
    }

    /// The route of a host, which is lower case and has neither port nor trailing dot.
    pub async fn look_up(&self, janua: &Janua, host: &str) -> Looked {
        let known = self.known.get(host);
        if let Some(entry) = &known
            && self.is_current(janua, entry)
        {
            return entry.looked();
        }
        Box::pin(self.read(janua, host, known)).await
    }

    async fn read(&self, janua: &Janua, host: &str, known: Option<Arc<Entry>>) -> Looked {
        let may_stand_in =
            known.filter(|entry| entry.route.is_some() && entry.confirmed.elapsed() < SERVED_WITHOUT_DATABASE);
        if let Some(entry) = &may_stand_in
            && entry.paused_until.load(SeqCst) > self.now_ms()
        {
            return entry.looked();
        }
        let patience = if may_stand_in.is_some() { PATIENCE } else { 10 * PATIENCE };
        match timeout(patience, self.read_shared(janua, host)).await {
            Ok(Ok(looked)) => looked,
            failed => {
                if let Ok(Err(error)) = failed {
                    tracing::warn!(%error, host, "cannot read the route of a host");
                }
                match may_stand_in {
                    Some(entry) => {
                        let pause = u64::try_from(PAUSE.as_millis()).unwrap_or_default();
                        entry.paused_until.store(self.now_ms() + pause, SeqCst);
                        entry.looked()
                    }
                    None => Looked::Away,
                }
            }
        }
    }

    async fn read_shared(&self, janua: &Janua, host: &str) -> db::Result<Looked> {
        let _place = self.reads.acquire().await;
        // Somebody else may have read it meanwhile.
        if let Some(entry) = self.known.get(host).filter(|entry| self.is_current(janua, entry)) {
            return Ok(entry.looked());
        }
        // Counts are taken before the read, so that a change during it makes the entry outdated at once. Which of them
        // matter is known only afterwards.
        let before: Vec<u64> = self.changes.iter().map(|count| count.load(SeqCst)).collect();
        let (all, confirmed) = (self.all.load(SeqCst), Instant::now());
        let route = find_route(janua, host).await?.map(Arc::new);
        let [app, org] = Self::groups(route.as_deref());
        let counts = [before[app], before[org], all];
        let entry = Arc::new(Entry { route, confirmed, counts, paused_until: AtomicU64::new(0) });
        self.known.insert(host.into(), entry.clone());
        Ok(entry.looked())
    }
}

impl Entry {
    fn looked(&self) -> Looked {
        self.route.clone().map_or(Looked::Unknown, Looked::Found)
    }
}

/// A host of the edge's own domain is that of a deployment (`label--slug`) or of an app (`slug`); others were attached.
async fn find_route(janua: &Janua, host: &str) -> db::Result<Option<Route>> {
    let own = EdgeUrl::of(&janua.config).domain;
    let Some(label) = host.strip_suffix(&own).and_then(|rest| rest.strip_suffix('.')) else {
        let Some(custom) = CustomHost::find(&janua.db, host).await? else { return Ok(None) };
        let Some(app) = Application::find(&janua.db, custom.app_id).await? else { return Ok(None) };
        let kind = custom.redirect_to.map_or(RouteKind::Production, RouteKind::Redirect);
        return production(janua, &app, kind).await;
    };
    match label.split_once("--") {
        Some((deployment, slug)) => preview(janua, deployment, slug).await,
        None if label.contains('.') => Ok(None),
        None => match Application::find_by_slug(&janua.db, label).await? {
            Some(app) => production(janua, &app, RouteKind::Production).await,
            None => Ok(None),
        },
    }
}

/// None where it was switched off.
async fn served_site(janua: &Janua, app: ApplicationId) -> db::Result<Option<Site>> {
    Ok(Site::find(&janua.db, app).await?.filter(|site| site.status != SiteStatus::Disabled))
}

async fn production(janua: &Janua, app: &Application, kind: RouteKind) -> db::Result<Option<Route>> {
    let Some(site) = served_site(janua, app.id).await? else { return Ok(None) };
    let live = match site.active_id {
        Some(id) => Deployment::find(&janua.db, id).await?.and_then(|deployment| deployment.live_manifest()),
        None => None,
    };
    let grace = if site.settings.asset_grace_hours == 0 {
        vec![]
    } else {
        let hours = Duration::from_hours(site.settings.asset_grace_hours.into());
        let since = janua.clock.now().minus(hours);
        let before = Deployment::replaced_since(&janua.db, app.id, since).await?;
        let with_end =
            before.into_iter().filter_map(|old| Some((old.live_manifest()?, old.deactivated_at?.plus(hours))));
        with_end.collect()
    };
    Ok(Some(Route { app: app.id, org: app.org_id, kind, settings: site.settings, live, grace }))
}

async fn preview(janua: &Janua, label: &str, slug: &str) -> db::Result<Option<Route>> {
    let Some(deployment) = Deployment::find_by_label(&janua.db, label).await? else { return Ok(None) };
    let Some(app) = Application::find(&janua.db, deployment.app_id).await?.filter(|app| app.slug == slug) else {
        return Ok(None);
    };
    let Some(site) = served_site(janua, app.id).await? else { return Ok(None) };
    let Some(live) = deployment.live_manifest() else { return Ok(None) };
    let kind = RouteKind::Preview(deployment.id);
    Ok(Some(Route { app: app.id, org: app.org_id, kind, settings: site.settings, live: Some(live), grace: vec![] }))
}
