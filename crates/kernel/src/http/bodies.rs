//! Bodies on their way in. A request has its body before it takes a place among those that are worked on, so that one
//! whose body never comes holds up nobody. What bodies that are not whole yet hold in memory is bounded, in all and for
//! each network.
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::input::SLOW_BODY;
use crate::fault::{Fault, MALFORMED, OVERLOADED, Result, TOO_LARGE};

/// What all bodies that are not whole yet may hold together, in bytes, and what those of one network may.
const MEMORY: usize = 64 * 1024 * 1024;
const SHARE: usize = MEMORY / 4;
/// The last part of it is for bodies that are not longer than this: a sign-in has room while files fill the rest.
const SMALL: usize = 16 * 1024;
const FOR_SMALL: usize = MEMORY / 4;
/// How long a client may take to send its body.
const PATIENCE: Duration = Duration::from_secs(15);
/// A file is longer than a form.
const LONG_PATIENCE: Duration = Duration::from_secs(25);
const LONG: usize = 1024 * 1024;
/// How much of an unwanted body is read all the same, and for how long, to keep the connection.
const MOST_UNWANTED: usize = 64 * 1024;
const UNWANTED_PATIENCE: Duration = Duration::from_millis(500);

/// So many networks are told apart; two that fall together share what is one's.
const NETWORKS: usize = 1024;

/// A count for each network, without a lock and without memory that grows.
pub(super) struct ByNetwork {
    counts: Box<[AtomicUsize]>,
    /// A client cannot tell which networks fall together.
    hash: RandomState,
}

impl ByNetwork {
    pub(super) fn new() -> Self {
        Self { counts: (0..NETWORKS).map(|_| AtomicUsize::new(0)).collect(), hash: RandomState::new() }
    }

    pub(super) fn of(&self, network: IpAddr) -> usize {
        let hash = self.hash.hash_one(network);
        usize::try_from(hash % NETWORKS as u64).unwrap_or(0)
    }

    /// Adds to a count unless that would be more than `most`.
    pub(super) fn add(&self, place: usize, more: usize, most: usize) -> bool {
        add(&self.counts[place], more, most)
    }

    pub(super) fn take_off(&self, place: usize, less: usize) {
        self.counts[place].fetch_sub(less, Relaxed);
    }
}

fn add(count: &AtomicUsize, more: usize, most: usize) -> bool {
    let fits = count.fetch_add(more, Relaxed).saturating_add(more) <= most;
    if !fits {
        count.fetch_sub(more, Relaxed);
    }
    fits
}

pub(super) struct Bodies {
    held: AtomicUsize,
    by_network: ByNetwork,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { held: AtomicUsize::new(0), by_network: ByNetwork::new() }
    }

    /// The whole body, within its limit and in good time.
    pub(super) async fn read(&self, network: IpAddr, body: Body, limit: usize) -> Result<Bytes> {
        let patience = if limit > LONG { LONG_PATIENCE } else { PATIENCE };
        timeout(patience, self.collect(network, body, limit)).await.map_err(|_| SLOW_BODY)?
    }

    async fn collect(&self, network: IpAddr, mut body: Body, limit: usize) -> Result<Bytes> {
        let mut held = Held { bodies: self, network: self.by_network.of(network), bytes: 0 };
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| MALFORMED.because("The body ended early."))?;
            let Ok(piece) = frame.into_data() else { continue };
            let length = first.len() + whole.len() + piece.len();
            if length > limit {
                return Err(TOO_LARGE.into());
            }
            // Most bodies come in one piece, which is handed on as it is, and held by nobody.
            if length == piece.len() && body.is_end_stream() {
                return Ok(piece);
            }
            if !held.more(piece.len(), length) {
                return Err(Fault::from(OVERLOADED).retry_after(Duration::from_secs(1)));
            }
            if length == piece.len() {
                first = piece;
                continue;
            }
            if whole.is_empty() {
                whole.reserve(announced(&body).saturating_add(length).min(limit));
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    }
}

/// How much more is announced; an announcement counts only when the bytes are there.
fn announced(body: &Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(0).min(SMALL)
}

/// What one body holds.
struct Held<'a> {
    bodies: &'a Bodies,
    network: usize,
    bytes: usize,
}

impl Held<'_> {
    fn more(&mut self, more: usize, length: usize) -> bool {
        let most = if length > SMALL { MEMORY - FOR_SMALL } else { MEMORY };
        if !add(&self.bodies.held, more, most) {
            return false;
        }
        let share = if length > SMALL { SHARE } else { SHARE + SHARE / 4 };
        if !self.bodies.by_network.add(self.network, more, share) {
            self.bodies.held.fetch_sub(more, Relaxed);
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bodies.held.fetch_sub(self.bytes, Relaxed);
        self.bodies.by_network.take_off(self.network, self.bytes);
    }
}

/// The outcome for the rest of a body that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// There is none: the next request may follow.
    Read,
    /// Some of it may still come, so that nothing else can.
    Open,
}

/// Reads the rest of an unwanted body, if it is short and comes soon.
pub(super) async fn discard(mut body: Body) -> Rest {
    if body.size_hint().lower() > MOST_UNWANTED as u64 {
        return Rest::Open;
    }
    let read = async {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.ok()?.into_data().map_or(0, |piece| piece.len());
            if length > MOST_UNWANTED {
                return None;
            }
        }
        Some(())
    };
    match timeout(UNWANTED_PATIENCE, read).await {
        Ok(Some(())) => Rest::Read,
        _ => Rest::Open,
    }
}
