//! How often one caller may ask: a bucket for each network, with the standard headers (RateLimit, RateLimit-Policy).
use std::{
    net::IpAddr,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use governor::{
    Quota, RateLimiter, clock as ticks, middleware::StateInformationMiddleware, nanos::Nanos,
    state::keyed::DashMapStateStore,
};

use super::client::Client;
use crate::{
    clock::Clock,
    fault::{Fault, RATE_LIMITED},
};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Past this many networks the ones that have a full bucket again are forgotten.
const REMEMBERED: usize = 100_000;
const WINDOW: Duration = Duration::from_mins(1);

/// Monotonic, so that a jump of the wall clock opens no bucket; a test's clock where there is one.
#[derive(Clone)]
struct Ticks(Clock, Instant);

impl ticks::Clock for Ticks {
    type Instant = Nanos;
    fn now(&self) -> Nanos {
        match &self.0 {
            Clock::System => self.1.elapsed().into(),
            manual @ Clock::Manual(_) => Duration::from_millis(u64::try_from(manual.now().0).unwrap_or(0)).into(),
        }
    }
}

pub(super) struct Limit {
    buckets: RateLimiter<IpAddr, DashMapStateStore<IpAddr>, Ticks, StateInformationMiddleware>,
    clock: Ticks,
    policy: HeaderValue,
}

impl Limit {
    pub(super) fn per_minute(requests: NonZeroU32, clock: &Clock) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the start of a monotonic count that nobody sees")]
        let clock = Ticks(clock.clone(), Instant::now());
        let policy = format!("\"requests\";q={requests};w={}", WINDOW.as_secs());
        Self {
            buckets: RateLimiter::new(Quota::per_minute(requests), DashMapStateStore::default(), clock.clone()),
            clock,
            policy: HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("")),
        }
    }

    /// How many more are left, or the refusal with the time to wait.
    pub(super) fn take(&self, client: Client) -> Result<u32, Fault> {
        if self.buckets.len() > REMEMBERED {
            self.buckets.retain_recent();
        }
        self.buckets.check_key(&client.network()).map(|left| left.remaining_burst_capacity()).map_err(|until| {
            let wait = until.wait_time_from(ticks::Clock::now(&self.clock));
            let seconds = wait.as_secs() + 1;
            Fault::from(RATE_LIMITED)
                .retry_after(wait)
                .with_header(RATELIMIT, header(&format!("\"requests\";r=0;t={seconds}")))
                .with_header(RATELIMIT_POLICY, self.policy.clone())
        })
    }

    pub(super) fn tell(&self, left: u32, out: &mut HeaderMap) {
        out.entry(RATELIMIT).or_insert_with(|| header(&format!("\"requests\";r={left}")));
        out.entry(RATELIMIT_POLICY).or_insert_with(|| self.policy.clone());
    }
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}
