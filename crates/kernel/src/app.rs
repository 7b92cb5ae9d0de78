//! Everything a request or a job may reach: the only context there is.
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use db::Db;

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

/// Cheap to clone; the same for every request and job of a node.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    pub config: Config,
    pub db: Db,
    pub clock: Clock,
    pub entropy: Entropy,
    pub vault: Vault,
    pub mail: Arc<dyn Mail>,
    pub sms: Arc<dyn Sms>,
    pub objects: Arc<dyn Objects>,
    /// The way to addresses that somebody else chose.
    pub outgoing: Outgoing,
    pub metrics: Metrics,
    /// The OpenAPI description, known once all routes are put together.
    pub description: Description,
    /// The interface itself, for pages to ask.
    pub inside: Inside,
    pub leaving: Leaving,
    pub own: Own,
}

/// Whether this node was told to stop: whoever sends it requests should look for another one.
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

/// What features keep for themselves, by type: rendered documents, caches. And what they declare, as a list for each type.
#[derive(Default)]
pub struct Own {
    parts: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    declared: HashMap<TypeId, Declared>,
}

/// The declarations of one type: a `Vec<T>`, and how to put two such lists together.
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
    /// What all features declared of this type, in their order.
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

/// A crate of features in the list of those a program is made of.
#[derive(Clone, Copy)]
pub struct Part {
    pub settings: &'static [Listed],
    pub feature: fn(&Config) -> Feature,
}

/// What one feature brings along.
pub struct Feature {
    pub routes: Routes,
    pub jobs: Jobs,
    pub own: Own,
    pub starts: Vec<Start>,
    pub releases: Vec<Start>,
    pub tasks: Vec<Task>,
}

/// What must be done before the door opens; the error stops the start and is for a person to read.
pub type Start = fn(App) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
/// What a node does for as long as it runs, beside requests and jobs.
pub type Task = fn(App) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl Feature {
    pub fn new(routes: Routes) -> Self {
        Self { routes, jobs: Jobs::new(), own: Own::default(), starts: vec![], releases: vec![], tasks: vec![] }
    }

    #[must_use]
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.jobs = self.jobs.and(jobs);
        self
    }

    /// Something the feature keeps for itself and asks for with [`App::own`].
    #[must_use]
    pub fn own<T: Any + Send + Sync>(mut self, part: T) -> Self {
        self.own = self.own.with(part);
        self
    }

    /// What others collect without knowing this feature: events, mails, chores, … `T` says what it is, and whoever made
    /// `T` asks for all of them with [`App::declared`].
    #[must_use]
    pub fn declares<T: Any + Clone + Send + Sync>(mut self, list: &[T]) -> Self {
        self.own.declare(list);
        self
    }

    /// Before the first request.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.starts.push(start);
        self
    }

    /// At the start of a node that is alone on its database: frees what the last one held when it ended.
    #[must_use]
    pub fn release(mut self, release: Start) -> Self {
        self.releases.push(release);
        self
    }

    #[must_use]
    pub fn task(mut self, task: Task) -> Self {
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

impl App {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// A feature's own part. A feature asks only for what its own `parts` put in.
    pub fn own<T: Any>(&self) -> &T {
        #[expect(clippy::expect_used, reason = "a feature that was not put together fails its first test")]
        self.find().expect("the feature's part is there")
    }

    /// What all features declared of a type.
    pub fn declared<T: Any>(&self) -> &[T] {
        self.0.own.declared()
    }

    /// A part that some feature may have put in.
    pub fn find<T: Any>(&self) -> Option<&T> {
        self.0.own.parts.get(&TypeId::of::<T>()).and_then(|part| part.downcast_ref())
    }
}

impl Deref for App {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
