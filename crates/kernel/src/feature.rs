//! The context of requests and jobs, and the parts that features add to it.
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    ops::Deref,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use db::Db;
use futures_util::FutureExt as _;

use crate::{
    clock::Clock,
    config::{Config, Listed},
    crypto::Vault,
    entropy::Entropy,
    http::{Description, Inside, Routes},
    jobs::Jobs,
    ports::{mail::Mail, objects::Objects, outgoing::Outgoing, sms::Sms},
    telemetry::Metrics,
};

/// The running node: settings, database, clock, ports and the parts of features. Cheap to clone; the same for every
/// request and job.
#[derive(Clone)]
pub struct Janua(Arc<Parts>);

pub struct Parts {
    pub config: Config,
    pub db: Db,
    pub clock: Clock,
    pub entropy: Entropy,
    pub vault: Vault,
    pub mail: Arc<dyn Mail>,
    pub sms: Arc<dyn Sms>,
    pub objects: Arc<dyn Objects>,
    /// The client for URLs that users chose.
    pub outgoing: Outgoing,
    pub metrics: Metrics,
    /// The OpenAPI description, available once all routes are collected.
    pub description: Description,
    /// Calls the node's own interface. Used by pages.
    pub inside: Inside,
    pub leaving: Leaving,
    pub own: Own,
}

/// Whether this node is shutting down. A load balancer should then send requests to another node.
#[derive(Debug, Default)]
pub struct Leaving(AtomicBool);

impl Leaving {
    pub fn begin(&self) {
        self.0.store(true, Relaxed);
    }

    pub fn is_so(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The parts of features, one of each type (rendered documents, caches), and their declarations, a list of each type.
#[derive(Default)]
pub struct Own {
    parts: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    declared: HashMap<TypeId, Declared>,
}

/// The declarations of one type: a `Vec<T>`, and a function that appends another such list.
struct Declared {
    list: Box<dyn Any + Send + Sync>,
    join: fn(&mut (dyn Any + Send + Sync), &(dyn Any + Send + Sync)),
}

fn join<T: Any + Clone>(list: &mut (dyn Any + Send + Sync), more: &(dyn Any + Send + Sync)) {
    if let (Some(list), Some(more)) = (list.downcast_mut::<Vec<T>>(), more.downcast_ref::<Vec<T>>()) {
        list.extend_from_slice(more);
    }
}

impl Own {
    /// All declarations of a type, in the order of the features.
    pub fn declared<T: Any>(&self) -> &[T] {
        let declared =
            self.declared.get(&TypeId::of::<T>()).and_then(|declared| declared.list.downcast_ref::<Vec<T>>());
        declared.map(Vec::as_slice).unwrap_or_default()
    }

    fn declare<T: Any + Clone + Send + Sync>(&mut self, list: &[T]) {
        let declared = Declared { list: Box::new(list.to_vec()), join: join::<T> };
        self.extend(Self { declared: HashMap::from([(TypeId::of::<T>(), declared)]), ..Self::default() });
    }

    fn extend(&mut self, other: Self) {
        self.parts.extend(other.parts);
        for (kind, more) in other.declared {
            match self.declared.get_mut(&kind) {
                Some(known) => (known.join)(&mut *known.list, &*more.list),
                None => _ = self.declared.insert(kind, more),
            }
        }
    }

    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, part: T) -> Self {
        self.parts.insert(TypeId::of::<T>(), Box::new(part));
        self
    }
}

/// A crate of features, as the list in `server` names it.
#[derive(Clone, Copy)]
pub struct Part {
    pub settings: &'static [Listed],
    pub feature: fn(&Config) -> Feature,
}

/// One feature: its routes, jobs, parts, declarations and tasks.
pub struct Feature {
    pub routes: Routes,
    pub jobs: Jobs,
    pub own: Own,
    pub starts: Vec<Start>,
    pub releases: Vec<Start>,
    pub tasks: Vec<Task>,
}

/// Runs before the node accepts requests. An error stops the start and is printed for the operator.
pub type Start = fn(Janua) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Runs in the background for as long as the node does, or until it has nothing to do.
#[derive(Clone, Copy)]
pub struct Task {
    /// Such as `webhooks.dispatch`.
    pub name: &'static str,
    run: fn(Janua) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How long after a panic a task is started again.
const PAUSE: Duration = Duration::from_secs(5);

impl Task {
    /// Runs the task and counts how it fares. One that panicked is started again: without it, the node would look alive and
    /// send no mail.
    pub async fn supervise(self, janua: Janua) {
        loop {
            janua.metrics.task_started(self.name, janua.clock.now());
            let ended = AssertUnwindSafe((self.run)(janua.clone())).catch_unwind().await;
            janua.metrics.task_ended(self.name, ended.is_err());
            if ended.is_ok() {
                return;
            }
            tracing::error!(task = self.name, "a background task panicked; starting it again");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Feature {
    pub fn new(routes: Routes) -> Self {
        Self { routes, jobs: Jobs::new(), own: Own::default(), starts: vec![], releases: vec![], tasks: vec![] }
    }

    #[must_use]
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.own.declare(&jobs.known());
        self.jobs = self.jobs.and(jobs);
        self
    }

    /// Adds a part of the feature's own, to be read with [`Janua::own`].
    #[must_use]
    pub fn own<T: Any + Send + Sync>(mut self, part: T) -> Self {
        self.own = self.own.with(part);
        self
    }

    /// Declares events, mails, chores and the like. The crate that defines `T` collects them from all features with
    /// [`Janua::declared`], without knowing the features.
    #[must_use]
    pub fn declares<T: Any + Clone + Send + Sync>(mut self, list: &[T]) -> Self {
        self.own.declare(list);
        self
    }

    /// Runs `start` before the first request.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.starts.push(start);
        self
    }

    /// Runs at the start of a node that is alone on its database. It releases what the previous process still held.
    #[must_use]
    pub fn release(mut self, release: Start) -> Self {
        self.releases.push(release);
        self
    }

    #[must_use]
    pub fn task(mut self, name: &'static str, run: fn(Janua) -> Pin<Box<dyn Future<Output = ()> + Send>>) -> Self {
        let task = Task { name, run };
        self.own.declare(&[task]);
        self.tasks.push(task);
        self
    }

    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.routes = self.routes.and(other.routes);
        self.jobs = self.jobs.and(other.jobs);
        self.own.extend(other.own);
        self.starts.extend(other.starts);
        self.releases.extend(other.releases);
        self.tasks.extend(other.tasks);
        self
    }
}

impl Janua {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// A part that was added with [`Feature::own`]. A feature reads only its own parts.
    pub fn own<T: Any>(&self) -> &T {
        #[expect(clippy::expect_used, reason = "a feature that was not put together fails its first test")]
        self.find().expect("the feature's part is there")
    }

    /// All declarations of a type, in the order of the features.
    pub fn declared<T: Any>(&self) -> &[T] {
        self.0.own.declared()
    }

    /// A part that a feature may have added.
    pub fn find<T: Any>(&self) -> Option<&T> {
        self.0.own.parts.get(&TypeId::of::<T>()).and_then(|part| part.downcast_ref())
    }
}

impl Deref for Janua {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
