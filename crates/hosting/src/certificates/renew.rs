//! Renewing certificates, asking their authority when to, and warning where that fails.
use std::time::Duration;

use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    jobs::{Chore, Job, Jobs, Later},
    transact,
};
use serde::{Deserialize, Serialize};

use super::{
    acme,
    model::Certificate,
    order::{self, OrderCertificate},
};
use crate::{
    domains::{self, Domain, DomainNews, Status},
    settings::Settings,
};

const EVERY: Duration = Duration::from_mins(1);
const BATCH: u32 = 100;
/// Questions to the authority in one run.
const QUESTIONS: u32 = 20;

pub fn jobs() -> Jobs {
    Jobs::new().on::<OrderCertificate>().every::<RenewCertificates>(EVERY)
}

pub const CHORES: &[Chore] = &[Chore::sweep(
    "acme_challenge",
    "DELETE FROM acme_challenge WHERE (name, token) IN
         (SELECT name, token FROM acme_challenge WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)",
    Duration::ZERO,
)];

/// Starts orders whose time has come.
#[derive(Default, Serialize, Deserialize)]
pub struct RenewCertificates {}

impl Job for RenewCertificates {
    const KIND: &'static str = "certificate.renew";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        if !janua.config.of::<Settings>().orders_certificates() {
            return Ok(());
        }
        let now = janua.clock.now();
        transact!(janua, async |tx| Ok(Certificate::start_renewals(tx, now, BATCH).await?))?;
        for (name,) in Certificate::due(&janua.db, now, BATCH).await? {
            transact!(janua, async |tx| Ok(order::enqueue(tx, &janua, &name).await?))?;
        }
        warn(&janua, now).await?;
        ask(&janua, now).await?;
        Ok(())
    }
}

/// Asks the authority when to renew (RFC 9773), once a day for each certificate. One that does not say is no reason to fail.
async fn ask(janua: &Janua, now: Timestamp) -> Result<()> {
    let unasked = Certificate::unasked(&janua.db, now, QUESTIONS).await?;
    if unasked.is_empty() {
        return Ok(());
    }
    let Ok((account, _)) = acme::account(janua).await else { return Ok(()) };
    for certificate in unasked {
        let Some(identifier) = certificate.chain.as_deref().and_then(order::identifier) else { continue };
        let renew_at = match account.renewal_info(&identifier).await {
            Ok((info, _)) => {
                let moment = |at: i128| Timestamp(i64::try_from(at / 1_000_000).unwrap_or(i64::MAX));
                let start = moment(info.suggested_window.start.unix_timestamp_nanos());
                let end = moment(info.suggested_window.end.unix_timestamp_nanos());
                let width = u64::try_from(end.0.saturating_sub(start.0)).unwrap_or_default().max(1);
                Some(start.plus(Duration::from_millis(janua.entropy.up_to(width))))
            }
            Err(error) => {
                tracing::debug!(%error, name = certificate.name, "the authority does not say when to renew");
                None
            }
        };
        Certificate::set_renewal(&janua.db, &certificate.name, renew_at, now).await?;
    }
    Ok(())
}

/// Says in the log that a certificate is not renewed when a quarter of its life is left, and to its admins when an eighth is.
async fn warn(janua: &Janua, now: Timestamp) -> Result<()> {
    for certificate in Certificate::overdue(&janua.db, now, BATCH).await? {
        let (Some(start), Some(end)) = (certificate.not_before, certificate.not_after) else { continue };
        let (life, left) = (end.since(start), end.since(now));
        if left > life / 4 {
            continue;
        }
        tracing::warn!(name = certificate.name, expires = %end, error = certificate.error, "a certificate is not renewed");
        transact!(janua, async |tx| {
            Certificate::note_warning(tx, &certificate.name, now).await?;
            let domain = Domain::proven(&mut *tx, &certificate.name).await?;
            match domain.filter(|domain| domain.status == Status::Active && left <= life / 8) {
                Some(domain) => domains::tell(tx, janua, &domain, DomainNews::Expiring).await,
                None => Ok(()),
            }
        })?;
    }
    Ok(())
}
