//! How often one caller may ask: a bucket for each network, with the standard headers (RateLimit, RateLimit-Policy).
use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
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
/// Past this many networks the ones that have a full bucket again are forgotten, and newcomers share the bucket of a
/// much larger network, so that memory stays bounded whoever calls.
const REMEMBERED: usize = 100_000;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_mins(1);

/// Monotonic, so that a jump of the wall clock opens no bucket; a test's clock where there is one.
#[derive(Clone)]
struct Ticks(Clock, Instant);

impl ticks::Clock for Ticks {
    type Instant = Nanos;
    fn now(&self) -> Nanos {
        match &self.0 {
            Clock::System | Clock::Database(_) => self.1.elapsed().into(),
            manual @ Clock::Manual(_) => Duration::from_millis(u64::try_from(manual.now().0).unwrap_or(0)).into(),
        }
    }
}

pub(super) struct Limit {
    buckets: RateLimiter<IpAddr, DashMapStateStore<IpAddr>, Ticks, StateInformationMiddleware>,
    clock: Ticks,
    /// When full buckets were last forgotten, in nanoseconds of the clock.
    swept: AtomicU64,
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
            swept: AtomicU64::new(0),
            policy: HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("")),
        }
    }

    /// How many more are left, or the refusal with the time to wait.
    pub(super) fn take(&self, client: Client) -> Result<u32, Fault> {
        let network = if self.buckets.len() > REMEMBERED { self.crowded(client) } else { client.network() };
        self.buckets.check_key(&network).map(|left| left.remaining_burst_capacity()).map_err(|until| {
            let wait = until.wait_time_from(ticks::Clock::now(&self.clock));
            let seconds = wait.as_secs() + 1;
            Fault::from(RATE_LIMITED)
                .retry_after(wait)
                .with_header(RATELIMIT, header(&format!("\"requests\";r=0;t={seconds}")))
                .with_header(RATELIMIT_POLICY, self.policy.clone())
        })
    }

    fn crowded(&self, client: Client) -> IpAddr {
        let now = ticks::Clock::now(&self.clock).as_u64();
        let last = self.swept.load(Relaxed);
        let due = now.saturating_sub(last) >= u64::try_from(SWEEP_EVERY.as_nanos()).unwrap_or(u64::MAX);
        if due && self.swept.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            self.buckets.retain_recent();
        }
        client.region()
    }

    pub(super) fn tell(&self, left: u32, out: &mut HeaderMap) {
        out.entry(RATELIMIT).or_insert_with(|| header(&format!("\"requests\";r={left}")));
        out.entry(RATELIMIT_POLICY).or_insert_with(|| self.policy.clone());
    }
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::testing::START;

    #[test]
    fn a_crowd_of_addresses_takes_a_bounded_place() {
        let limit = Limit::per_minute(NonZeroU32::MIN.saturating_add(9), &Clock::manual(START));
        for i in 0..400_000_u32 {
            let address = IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) | (u128::from(i) << 64)));
            let _ = limit.take(Client { address, by_our_proxy: false });
        }
        assert!(limit.buckets.len() <= REMEMBERED + 2, "{}", limit.buckets.len());
        let newcomer = Client { address: "198.51.100.1".parse().unwrap(), by_our_proxy: false };
        assert!(limit.take(newcomer).is_ok(), "a network of its own is still served");
    }
}
