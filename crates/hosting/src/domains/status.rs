//! Where a domain stands: one status of seven, and how it changes with what a check finds.
use std::time::Duration;

use kernel::clock::Timestamp;

use super::model::{Domain, Reason, Status};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// A domain that leads nowhere for so long is given up.
pub const PATIENCE: Duration = Duration::from_hours(7 * 24);
/// An active domain that leads elsewhere is misconfigured after so many checks over at least an hour.
const ASTRAY: u32 = 3;
/// The first check after a claim.
pub const FIRST_WAIT: Duration = Duration::from_mins(1);
pub const LONGEST_WAIT: Duration = Duration::from_hours(4);
const ACTIVE_WAIT: Duration = Duration::from_hours(6);
/// After so many checks the rest of the week is waited for.
const MOST_LOOKS: u32 = 75;

/// What else a change of status depends on.
#[derive(Debug, Clone, Copy)]
pub struct Ground {
    /// Certificates are ordered here, not by a proxy in front.
    pub orders_certificates: bool,
    /// A certificate of the name that has not expired.
    pub has_certificate: bool,
    /// The app has a site to serve.
    pub has_site: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    Attached,
    Active,
    Misconfigured,
    /// Given up after it was served: it is switched off.
    Detached,
}

/// Changes the status by where a proven domain leads; none for a check that nobody answered. The proof has been looked at.
pub fn advance(domain: &mut Domain, route: Option<Result<(), Reason>>, ground: Ground, now: Timestamp) -> Vec<News> {
    let mut news = vec![];
    if domain.status == Status::Suspended {
        return news;
    }
    let Some(_) = domain.verified_at else {
        wait_for_proof(domain, now);
        return news;
    };
    // What was given up stays so until somebody asks for a check.
    if domain.status == Status::Failed {
        return news;
    }
    if domain.status == Status::PendingOwnership {
        set(domain, Status::PendingDns, None, now);
    }
    if !domain.is_listed {
        domain.status_reason = None;
        return news;
    }
    match route {
        None if matches!(domain.status, Status::PendingDns) => domain.status_reason = Some(Reason::DnsUnavailable),
        None => {}
        Some(Ok(())) => leads_here(domain, ground, now, &mut news),
        Some(Err(reason)) => leads_elsewhere(domain, reason, now, &mut news),
    }
    news
}

fn wait_for_proof(domain: &mut Domain, now: Timestamp) {
    use super::model::ProofReason::{LostOwnership, TimedOut};
    let status = match domain.reason {
        Some(LostOwnership | TimedOut) => Status::Failed,
        _ => Status::PendingOwnership,
    };
    let reason = domain.reason.map(Into::into);
    set(domain, status, reason, now);
}

fn leads_here(domain: &mut Domain, ground: Ground, now: Timestamp, news: &mut Vec<News>) {
    (domain.astray_looks, domain.astray_since, domain.told_at) = (0, None, None);
    if domain.is_automatic && domain.attached_at.is_none() && ground.has_site {
        domain.attached_at = Some(now);
        news.push(News::Attached);
    }
    if domain.attached_at.is_none() {
        return set(domain, Status::PendingDns, None, now);
    }
    if !ground.orders_certificates || ground.has_certificate {
        if domain.status != Status::Active {
            domain.active_at = domain.active_at.or(Some(now));
            news.push(News::Active);
        }
        set(domain, Status::Active, None, now);
    } else if domain.status != Status::Issuing {
        set(domain, Status::Issuing, None, now);
    }
}

fn leads_elsewhere(domain: &mut Domain, reason: Reason, now: Timestamp, news: &mut Vec<News>) {
    let waited = now.since(domain.status_since);
    match domain.status {
        Status::Active => {
            domain.astray_looks += 1;
            let since = *domain.astray_since.get_or_insert(now);
            domain.status_reason = Some(reason);
            if domain.astray_looks >= ASTRAY && now.since(since) >= HOUR {
                set(domain, Status::Misconfigured, Some(reason), now);
                news.push(News::Misconfigured);
            }
        }
        Status::Misconfigured if waited >= PATIENCE => {
            domain.attached_at = None;
            set(domain, Status::Failed, Some(Reason::Moved), now);
            news.push(News::Detached);
        }
        Status::Misconfigured => domain.status_reason = Some(reason),
        Status::PendingDns if waited >= PATIENCE => set(domain, Status::Failed, Some(Reason::TimedOut), now),
        _ => set(domain, Status::PendingDns, Some(reason), now),
    }
}

pub fn set(domain: &mut Domain, status: Status, reason: Option<Reason>, now: Timestamp) {
    if domain.status != status {
        (domain.status, domain.status_since) = (status, now);
    }
    domain.status_reason = reason;
}

/// How long to wait after a check that found nothing new: the first hour or so in small steps, then in larger ones.
fn wait(fruitless: u32) -> Duration {
    let (small, large) = (fruitless.min(20), fruitless.saturating_sub(20).min(60));
    let factor = 1.05_f64.powi(small.try_into().unwrap_or(20)) * 1.15_f64.powi(large.try_into().unwrap_or(60));
    FIRST_WAIT.mul_f64(factor).min(LONGEST_WAIT)
}

/// When the domain is checked next by itself. `spread` keeps checks of many domains apart.
pub fn plan(domain: &mut Domain, now: Timestamp, spread: Duration) {
    let later = |length: Duration| Some(now.plus(length));
    domain.next_check_at = match (domain.status, domain.contested_since) {
        (Status::Failed, _) if domain.verified_at.is_none() => None,
        (Status::PendingOwnership, Some(since)) => {
            Some(now.plus(LONGEST_WAIT).min(since.plus(DAY)).max(now.plus(FIRST_WAIT)))
        }
        (Status::Active, _) if domain.astray_looks > 0 => later(Duration::from_mins(20)),
        (Status::Active, _) => later(ACTIVE_WAIT + spread),
        (Status::Failed | Status::Suspended, _) => later(DAY + spread),
        (Status::PendingDns, _) if !domain.is_listed => later(DAY + spread),
        (Status::PendingDns, _) if domain.status_reason.is_none() => later(ACTIVE_WAIT + spread),
        (Status::Misconfigured, _) => later(HOUR),
        (Status::Issuing, _) => later(Duration::from_mins(10)),
        _ if domain.looks >= MOST_LOOKS => Some(domain.status_since.plus(PATIENCE).max(now.plus(FIRST_WAIT))),
        _ => later(wait(domain.fruitless)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_become_rarer() {
        assert_eq!(wait(0), FIRST_WAIT);
        assert!((1..200).all(|n| wait(n) >= wait(n - 1)), "never sooner than before");
        assert_eq!(wait(500), LONGEST_WAIT);
        let first_day = (0..).scan(Duration::ZERO, |sum, n| {
            *sum += wait(n);
            Some(*sum)
        });
        let looks = first_day.take_while(|sum| *sum < DAY).count();
        assert!((45..60).contains(&looks), "{looks}");
    }
}
