//! How many recipients an organization may write to in a second.
use std::{collections::HashMap, sync::Mutex, time::Duration};

use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, RATE_LIMITED, Result},
};
use tenancy::orgs::OrgId;

use crate::Settings;

/// Organizations are forgotten when there are so many.
const MANY: usize = 10_000;
/// How many seconds' worth may come at once.
const BURST: i64 = 10;

/// For each organization the moment up to which its allowance is used.
#[derive(Default)]
pub struct Pace(Mutex<HashMap<OrgId, Timestamp>>);

impl Pace {
    pub fn take(&self, janua: &Janua, org: OrgId, recipients: usize) -> Result<()> {
        if !janua.config.rate_limits.is_on() {
            return Ok(());
        }
        let a_second = i64::from(janua.config.of::<Settings>().email_per_second.max(1));
        let now = janua.clock.now();
        let mut used = db::lock(&self.0);
        if used.len() >= MANY {
            used.retain(|_, until| *until > now);
        }
        let until = used.entry(org).or_insert(now);
        let start = (*until).max(now);
        if start.0 - now.0 >= BURST * 1000 {
            let wait = u64::try_from(start.0 - now.0 - BURST * 1000 + 1000).unwrap_or(1000);
            return Err(Fault::from(RATE_LIMITED).retry_after(Duration::from_millis(wait)));
        }
        let cost = i64::try_from(recipients).unwrap_or(1) * 1000 / a_second;
        *until = Timestamp(start.0 + cost);
        Ok(())
    }
}
