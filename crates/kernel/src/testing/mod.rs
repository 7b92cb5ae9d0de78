//! A whole service in the test process: the real pipeline and routes on a fresh database of either engine, a manual
//! clock, seeded randomness, and ports that record what is sent.
//!
//! The database is SQLite, unless `TEST_DATABASE_URL` names a PostgreSQL server. A test ends with
//! [`TestJanua::finish`], which fails if jobs are left. A response that the OpenAPI description does not allow fails
//! the test at once. With `TEST_KEYS=1` each POST without an `Idempotency-Key` gets one of its own, so that the same
//! tests run every handler under a claim.
mod answer;
mod authority;
mod names;
mod ports;
mod s3;

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    panic::Location,
    sync::{
        Arc, LazyLock, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request},
};
use serde_json::Value;
use tokio::time::Instant;

pub use answer::Answer;
use answer::Described;
pub use authority::Authority;
use db::testing::TestDb;
pub use futures_util::future::join_all;
pub use names::NameServer;
pub use ports::{Mailbox, Phones};
pub use s3::{S3Server, SECRET_KEY};

use db::row;

use crate::{
    Janua,
    clock::{Clock, Timestamp},
    config::Config,
    crypto::{MasterKey, Vault},
    entropy::Entropy,
    feature::{Feature, Leaving, Parts},
    http::{Description, Door, Inside},
    jobs::{self, Jobs},
    ports::{objects, outgoing::Outgoing},
    telemetry::Metrics,
};

/// 2026-01-31T10:00:00.000Z: when every test begins.
pub const START: Timestamp = Timestamp(1_769_853_600_000);

pub struct TestJanua {
    pub janua: Janua,
    pub mailbox: Mailbox,
    pub phones: Phones,
    /// Where the objects lie, unless the settings name a server for them.
    pub folder: Arc<tempfile::TempDir>,
    door: Door,
    jobs: Jobs,
    database: TestDb,
    /// The ids of the events that were told of already.
    heard: Mutex<HashSet<String>>,
    described: OnceLock<Described>,
    finished: bool,
}

struct Happened {
    id: String,
    kind: String,
}
row!(Happened { id, kind });

impl TestJanua {
    pub async fn start(feature: impl FnOnce(&Config) -> Feature) -> Self {
        Self::start_with(Config::for_tests(), feature).await
    }

    /// What happened since this was last asked, by the types in the audit log, oldest first.
    pub async fn happened(&self) -> Vec<String> {
        let sql = "SELECT id, type AS kind FROM audit_event ORDER BY at, id";
        let all: Vec<Happened> = self.janua.db.all(sql, vec![]).await.expect("the audit log");
        let mut heard = self.heard.lock().expect("no test panicked here");
        all.into_iter().filter(|event| heard.insert(event.id.clone())).map(|event| event.kind).collect()
    }

    /// Fails unless just these events happened since this was last asked, in this order.
    #[track_caller]
    pub fn expects(&self, events: &'static [&'static str]) -> impl Future<Output = ()> + '_ {
        let place = Location::caller();
        async move { assert_eq!(self.happened().await, events, "events at {place}") }
    }

    /// With other settings than the defaults.
    pub async fn start_with(config: Config, feature: impl FnOnce(&Config) -> Feature) -> Self {
        let database = TestDb::migrated().await;
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::start_at(config, feature, database, Clock::manual(START), folder).await
    }

    async fn start_at(
        config: Config,
        feature: impl FnOnce(&Config) -> Feature,
        database: TestDb,
        clock: Clock,
        folder: Arc<tempfile::TempDir>,
    ) -> Self {
        let (mailbox, phones) = (Mailbox::default(), Phones::default());
        let feature = feature(&config);
        let vault = Vault::new(MasterKey::parse(&"11".repeat(32).into()).unwrap());
        vault.claim(&database.db).await.unwrap();
        let place = Config { data_dir: folder.path().to_owned(), ..config.clone() };
        let objects = objects::from_config(&place, &vault, &clock).unwrap();
        let janua = Janua::new(Parts {
            db: database.db.clone(),
            entropy: Entropy::seeded(next_seed()),
            clock,
            vault,
            mail: Arc::new(mailbox.clone()),
            sms: Arc::new(phones.clone()),
            objects,
            outgoing: Outgoing::from_config(&config, feature.own.declared()).unwrap(),
            metrics: Metrics::new("test", feature.own.declared()),
            description: Description::default(),
            inside: Inside::default(),
            leaving: Leaving::default(),
            own: feature.own,
            config,
        });
        for start in feature.starts {
            start(janua.clone()).await.unwrap();
        }
        let door = Door::new(janua.clone(), feature.routes, "test").unwrap();
        let (jobs, heard) = (feature.jobs, Mutex::default());
        Self {
            janua,
            mailbox,
            phones,
            folder,
            door,
            jobs,
            database,
            heard,
            described: OnceLock::new(),
            finished: false,
        }
    }

    /// The same service again on the same database, after the first one is gone.
    pub async fn restart(self, feature: impl FnOnce(&Config) -> Feature) -> Self {
        self.restart_with(|_| {}, feature).await
    }

    /// The same with other settings.
    pub async fn restart_with(
        mut self,
        change: impl FnOnce(&mut Config),
        feature: impl FnOnce(&Config) -> Feature,
    ) -> Self {
        self.finished = true;
        let (mut config, clock) = (self.janua.config.clone(), self.janua.clock.clone());
        change(&mut config);
        let database = self.database.again().await;
        Self::start_at(config, feature, database, clock, self.folder.clone()).await
    }

    /// A second node on the same database (PostgreSQL), with the same clock.
    pub async fn another_node(&self, feature: impl FnOnce(&Config) -> Feature) -> Self {
        let database = self.database.again().await;
        let (config, clock) = (self.janua.config.clone(), self.janua.clock.clone());
        let mut node = Self::start_at(config, feature, database, clock, self.folder.clone()).await;
        node.finished = true;
        node
    }

    pub fn get(&self, path: &str) -> Ask<'_> {
        self.ask(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> Ask<'_> {
        self.ask(Method::POST, path)
    }

    pub fn ask(&self, method: Method, path: &str) -> Ask<'_> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        Ask { test: self, request, peer: Ipv4Addr::LOCALHOST.into() }
    }

    /// Where the embedded database lies, if this run is on one.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.database.folder()
    }

    /// The door itself, for tests that bring their own sockets.
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    /// Runs every job that is due, and what that makes due; answers how many.
    pub async fn run_jobs(&self) -> usize {
        jobs::run_due(&self.janua, &self.jobs).await.unwrap()
    }

    /// Does `work` while somebody else writes again and again; answers how long the slowest of those writes took, too.
    /// Needs a runtime with several threads.
    pub async fn beside_a_writer<T>(&self, work: impl Future<Output = T>) -> (T, Duration) {
        let (db, done) = (self.janua.db.clone(), Arc::new(AtomicBool::new(false)));
        let is_done = done.clone();
        let writer = tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            while !is_done.load(Relaxed) {
                let started = Instant::now();
                let sql = "INSERT INTO setting (name, value) VALUES ('writer', '0')
                           ON CONFLICT (name) DO UPDATE SET value = '1'";
                db.exec(sql, vec![]).await.unwrap();
                slowest = slowest.max(started.elapsed());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            slowest
        });
        let outcome = work.await;
        done.store(true, Relaxed);
        (outcome, writer.await.unwrap())
    }

    pub fn advance(&self, by: Duration) {
        self.janua.clock.advance(by);
    }

    /// The end of a test: nothing may be left undone.
    pub async fn finish(mut self) {
        self.finished = true;
        let undone = jobs::undone(&self.janua.db).await.unwrap();
        assert!(undone.is_empty(), "jobs left undone: {undone:?}");
        self.database.remove().await;
    }
}

impl Drop for TestJanua {
    fn drop(&mut self) {
        assert!(self.finished || std::thread::panicking(), "a test ends with `finish().await`");
    }
}

/// A request in the making.
pub struct Ask<'a> {
    test: &'a TestJanua,
    request: Request<Body>,
    peer: std::net::IpAddr,
}

impl Ask<'_> {
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = (HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self.request.headers_mut().append(name, value);
        self
    }

    /// From another address than this machine's own.
    #[must_use]
    pub fn from(mut self, peer: &str) -> Self {
        self.peer = peer.parse().unwrap();
        self
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        *self.request.body_mut() = body.into();
        self
    }

    pub async fn send(mut self) -> Answer {
        static KEYS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TEST_KEYS").is_some());
        if *KEYS && self.request.method() == Method::POST && !self.request.headers().contains_key("idempotency-key") {
            self = self.header("idempotency-key", &format!("key {}", next_seed()));
        }
        let (method, path) = (self.request.method().clone(), self.request.uri().path().to_owned());
        let response = self.test.door.clone().handle(SocketAddr::new(self.peer, 40_000), self.request).await;
        let answer = Answer::read(response).await;
        let described = self.test.described.get_or_init(|| Described::of(&self.test.janua));
        answer.must_be_described(described, &method, &path);
        answer
    }
}

impl<'a> IntoFuture for Ask<'a> {
    type Output = Answer;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

    /// `t.get("/health").await`
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// How many rows a test with many of them makes: few enough to be quick, or as many as `TEST_ROWS` says.
pub fn many(otherwise: i64) -> i64 {
    std::env::var("TEST_ROWS").ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How long a write may wait for others in tests with [`many`] rows. The promise is a quarter of a second. It is held to
/// where `TEST_ROWS` is set and the machine has nothing else to do; beside other tests a busy processor adds its own part.
pub fn longest_wait() -> Duration {
    if std::env::var_os("TEST_ROWS").is_some() { Duration::from_millis(250) } else { Duration::from_secs(1) }
}

/// Another one for each service of a test, so that two on one database do not make the same ids.
fn next_seed() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(7);
    NEXT.fetch_add(1, Relaxed)
}
