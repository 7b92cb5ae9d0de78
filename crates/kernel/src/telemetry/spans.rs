//! Requests and jobs that ended, for the feature that keeps and exports them. They wait in a bounded queue; what finds no room
//! is dropped and counted, so that no request waits.
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use db::lock;
use prometheus_client::metrics::counter::Counter;

use super::about::{About, SpanPlace};
use crate::clock::Timestamp;

/// How many wait at the most.
const MOST: usize = 8192;

/// A request or a job that ended.
#[derive(Debug, Clone)]
pub struct Span {
    pub what: SpanOf,
    /// The ID of the request or the job.
    pub id: Arc<str>,
    /// The request at the beginning of the chain.
    pub request: Option<Arc<str>>,
    pub place: SpanPlace,
    pub started_at: Timestamp,
    pub took: Duration,
    /// Whether a stored row carries the ID of the request.
    pub is_kept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanOf {
    Request { method: &'static str, route: &'static str, status: u16 },
    Job { kind: &'static str, outcome: &'static str, tries: u32 },
}

impl Span {
    fn of(about: &About, what: SpanOf, started_at: Timestamp, took: Duration) -> Self {
        let (id, request) = (about.name().clone(), about.cause().cloned());
        Self { what, id, request, place: about.place(), started_at, took, is_kept: about.is_kept() }
    }
}

impl SpanOf {
    /// Whether a trace has to show it: rows refer to it, or it failed.
    fn is_worth_keeping(self, about: &About) -> bool {
        match self {
            Self::Request { status, .. } => about.is_kept() || status >= 500,
            Self::Job { .. } => false,
        }
    }
}

/// Which spans are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Requests that left something behind, and those that failed.
    Kept,
    /// All, because they are exported.
    All,
}

/// The queue. Nothing is put there until a feature asks for it.
#[derive(Default)]
pub struct Spans {
    waiting: Mutex<Vec<Span>>,
    wanted: AtomicU8,
    pub(super) dropped: Counter,
}

impl Spans {
    pub fn want(&self, wanted: Wanted) {
        self.wanted.store(if wanted == Wanted::All { 2 } else { 1 }, Relaxed);
    }

    pub(crate) fn record(&self, about: &About, what: SpanOf, started_at: Timestamp, took: Duration) {
        let wanted = self.wanted.load(Relaxed);
        if wanted == 2 || (wanted == 1 && what.is_worth_keeping(about)) {
            let span = Span::of(about, what, started_at, took);
            let mut waiting = lock(&self.waiting);
            if waiting.len() < MOST {
                waiting.push(span);
            } else {
                self.dropped.inc();
            }
        }
    }

    /// What ended since this was last asked.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// Counts spans that were dropped elsewhere.
    pub fn drop_more(&self, count: u64) {
        self.dropped.inc_by(count);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}
