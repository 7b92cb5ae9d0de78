//! Checking domains by themselves.
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    fault::Result,
    jobs::{Chore, Job, Jobs, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{events::By, gone::Gone, quotas};

use super::{
    api, check,
    model::{Domain, Status},
    proof, status,
};

/// Checks every domain whose time has come.
#[derive(Default, Serialize, Deserialize)]
pub struct CheckDomains {}

const EVERY: Duration = Duration::from_mins(1);
const BATCH: u32 = 100;
/// The rest waits for the next time.
const MOST_BATCHES: usize = 20;
const AT_ONCE: usize = 8;

pub fn jobs() -> Jobs {
    Jobs::new().every::<CheckDomains>(EVERY)
}

pub const CHORES: &[Chore] = &[Chore::sweep(
    "domain_budget",
    "DELETE FROM domain_budget WHERE (subject, bucket) IN
         (SELECT subject, bucket FROM domain_budget WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)",
    Duration::ZERO,
)];

/// Names that a proof of the app covers elsewhere in its organization need another one, and what was counted is given back.
pub const GONE: &[Gone] = &[Gone::App(|tx, janua, app| {
    Box::pin(async move {
        for domain in Domain::all_of(tx, app).await? {
            proof::release(tx, janua, &domain).await?;
            domain.unroute(tx).await?;
            if domain.is_listed {
                quotas::give_back(tx, domain.org_id, &api::DOMAINS, 1).await?;
            }
        }
        Ok(())
    })
})];

impl Job for CheckDomains {
    const KIND: &'static str = "domain.look";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for _ in 0..MOST_BATCHES {
            let due = Domain::due(&janua.db, janua.clock.now(), BATCH).await?;
            let is_last = due.len() < BATCH as usize;
            let checks = stream::iter(due).map(|domain| check_one(&janua, domain)).buffer_unordered(AT_ONCE);
            let failed = checks.filter_map(async |outcome| outcome.err()).collect::<Vec<_>>().await;
            if let Some(fault) = failed.into_iter().next() {
                return Err(fault.into());
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

async fn check_one(janua: &Janua, domain: Domain) -> Result<()> {
    let target = api::target(janua, domain.app_id).await?;
    match check::look(janua, &domain, &target).await {
        Ok(look) => {
            transact!(janua, async |tx| proof::note(tx, janua, &By::default(), &domain, &look).await)?;
        }
        Err(error) => {
            tracing::debug!(%error, domain = domain.domain, "no name server answers for a domain; checking again later");
            let is_settled = domain.verified_at.is_some() && domain.status != Status::PendingDns;
            let longest = if is_settled { Duration::from_hours(24) } else { status::LONGEST_WAIT };
            let wait = (10 * status::FIRST_WAIT).saturating_mul(1 << domain.fruitless.min(16)).min(longest);
            domain.postpone(&janua.db, janua.clock.now().plus(wait)).await?;
        }
    }
    Ok(())
}
