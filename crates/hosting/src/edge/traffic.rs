//! What the edge has served, by app: counted in memory, written once a minute.
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use db::{Db, Tx, lock, params};
use http_body_util::{BodyExt as _, Either};
use hyper::body::Body as _;
use kernel::{Janua, clock::Timestamp, transact};
use tenancy::{
    apps::{Application, ApplicationId},
    quotas::{self, Meter, Period},
};
use tokio::time::Instant;

use super::{Edge, hosts::Route, respond::EdgeResponse};

pub const SITE_REQUESTS: Meter = Meter::platform("site_requests", "requests", Period::Month);
pub const SITE_EGRESS: Meter = Meter::platform("site_egress_bytes", "bytes", Period::Month);

/// Bounds of answer times, in microseconds. What took longer is in the last bucket.
const BOUNDS: [u64; 9] = [100, 250, 1_000, 2_500, 10_000, 25_000, 100_000, 500_000, 2_000_000];
const BUCKETS: usize = BOUNDS.len() + 1;
const HOUR_MS: i64 = 60 * 60 * 1000;
/// How often counts are written.
pub const FLUSHED_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    times: [AtomicU64; BUCKETS],
}

/// Counts of all apps since they were last written.
#[derive(Default)]
pub struct Traffic {
    apps: Mutex<HashMap<ApplicationId, Arc<Counts>>>,
    /// The app that was served last, so that a busy site needs no lock.
    last: Mutex<Option<(ApplicationId, Arc<Counts>)>>,
}

/// What was served in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    pub requests: i64,
    pub errors: i64,
    pub bytes: i64,
    times: Vec<i64>,
}

impl Served {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.times.resize(BUCKETS, 0);
        for (sum, more) in self.times.iter_mut().zip(&other.times) {
            *sum += more;
        }
    }

    /// The time below which 95 of 100 requests were answered, in milliseconds; an upper bound of its bucket.
    pub fn percentile95_ms(&self) -> Option<f64> {
        let all: i64 = self.times.iter().sum();
        let mut seen = 0;
        for (count, bound) in self.times.iter().zip(BOUNDS.iter().chain([&BOUNDS[BOUNDS.len() - 1]])) {
            seen += count;
            if all > 0 && seen * 100 >= all * 95 {
                #[expect(clippy::cast_precision_loss, reason = "a bound of at most two seconds")]
                return Some(*bound as f64 / 1000.0);
            }
        }
        None
    }
}

impl Traffic {
    fn counts(&self, app: ApplicationId) -> Arc<Counts> {
        if let Some((last, counts)) = &*lock(&self.last)
            && *last == app
        {
            return counts.clone();
        }
        let counts = lock(&self.apps).entry(app).or_default().clone();
        *lock(&self.last) = Some((app, counts.clone()));
        counts
    }

    /// Counts one request. Bytes count when they are handed on: a visitor who leaves has not been sent the rest.
    pub async fn measure(
        &self,
        janua: &Janua,
        route: &Route,
        answer: impl Future<Output = EdgeResponse>,
    ) -> EdgeResponse {
        let begun = Instant::now();
        let response = answer.await;
        let counts = self.counts(route.app);
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| took <= *bound).unwrap_or(BUCKETS - 1);
        counts.requests.fetch_add(1, Relaxed);
        counts.times[bucket].fetch_add(1, Relaxed);
        if response.status().is_server_error() {
            counts.errors.fetch_add(1, Relaxed);
        }
        response.map(|body| match body {
            // One piece, which goes out at once; none for HEAD.
            Either::Left(whole) => {
                counts.bytes.fetch_add(whole.size_hint().lower(), Relaxed);
                Either::Left(whole)
            }
            Either::Right(pieces) => {
                let (janua, app) = (janua.clone(), route.app);
                let counted = pieces.map_frame(move |frame| {
                    let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                    // Looked up each time: counts are written while a long file is on its way.
                    janua.own::<Arc<Edge>>().traffic.counts(app).bytes.fetch_add(length, Relaxed);
                    frame
                });
                Either::Right(counted.boxed_unsync())
            }
        })
    }

    fn take(&self) -> Vec<(ApplicationId, Served)> {
        *lock(&self.last) = None;
        let taken = std::mem::take(&mut *lock(&self.apps));
        let number = |count: &AtomicU64| i64::try_from(count.load(Relaxed)).unwrap_or(i64::MAX);
        let served = taken.into_iter().map(|(app, counts)| {
            let times = counts.times.iter().map(number).collect();
            (
                app,
                Served {
                    requests: number(&counts.requests),
                    errors: number(&counts.errors),
                    bytes: number(&counts.bytes),
                    times,
                },
            )
        });
        served.collect()
    }

    /// Writes what was counted. What cannot be written now is counted again with the next.
    pub async fn flush(&self, janua: &Janua) {
        for (app, served) in self.take() {
            if let Err(error) = write(janua, app, &served).await {
                tracing::warn!(%error, "cannot write the traffic of a site");
                let counts = self.counts(app);
                let back = |count: &AtomicU64, n: i64| count.fetch_add(u64::try_from(n).unwrap_or_default(), Relaxed);
                back(&counts.requests, served.requests);
                back(&counts.errors, served.errors);
                back(&counts.bytes, served.bytes);
                for (count, n) in counts.times.iter().zip(&served.times) {
                    back(count, *n);
                }
            }
        }
    }
}

async fn write(janua: &Janua, app: ApplicationId, served: &Served) -> kernel::fault::Result<()> {
    let hour = janua.clock.now().0 / HOUR_MS * HOUR_MS;
    transact!(janua, async |tx| {
        // Locked, because two nodes may write the first row of an hour at once.
        let Some(app) = Application::hold(tx, app).await? else { return Ok(()) };
        let mut sum = read(tx, app.id, Timestamp(hour)).await?;
        sum.add(served);
        tx.exec(
            "INSERT INTO site_traffic (app_id, hour, requests, errors, bytes, times) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (app_id, hour) DO UPDATE SET requests = $3, errors = $4, bytes = $5, times = $6",
            params![app.id, Timestamp(hour), sum.requests, sum.errors, sum.bytes, &serde_json::json!(sum.times)],
        )
        .await?;
        quotas::spend_beyond(tx, janua, &app, &SITE_REQUESTS, served.requests).await?;
        Ok(quotas::spend_beyond(tx, janua, &app, &SITE_EGRESS, served.bytes).await?)
    })
}

struct TrafficRow {
    requests: i64,
    errors: i64,
    bytes: i64,
    times: serde_json::Value,
}
db::row!(TrafficRow { requests, errors, bytes, times });

impl From<TrafficRow> for Served {
    fn from(row: TrafficRow) -> Self {
        let times = serde_json::from_value(row.times).unwrap_or_default();
        Self { requests: row.requests, errors: row.errors, bytes: row.bytes, times }
    }
}

/// The sums of an hour.
async fn read(tx: &mut Tx, app: ApplicationId, hour: Timestamp) -> db::Result<Served> {
    let sql = "SELECT requests, errors, bytes, times FROM site_traffic WHERE app_id = $1 AND hour = $2";
    Ok(tx.opt::<TrafficRow>(sql, params![app, hour]).await?.map(Served::from).unwrap_or_default())
}

/// What the sites of some apps served since a moment.
pub async fn served_since(db: &Db, apps: &[ApplicationId], since: Timestamp) -> db::Result<Served> {
    let mut sum = Served::default();
    for app in apps {
        let sql =
            "SELECT requests, errors, bytes, times FROM site_traffic WHERE app_id = $1 AND hour >= $2 ORDER BY hour";
        let rows: Vec<TrafficRow> = db.all(sql, params![*app, Timestamp(since.0 / HOUR_MS * HOUR_MS)]).await?;
        for row in rows {
            sum.add(&row.into());
        }
    }
    Ok(sum)
}
