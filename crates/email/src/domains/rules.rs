//! What the records of a host mean for a sending domain: its state, and when it is looked at again.
use std::time::Duration;

use kernel::clock::Timestamp;

use super::model::{Domain, RecordState, RecordStatus};
use crate::words::DomainStatus;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// A domain whose records never show up is given up.
const PENDING: Duration = Duration::from_hours(14 * 24);
/// For so long a domain still sends without its records.
const GRACE: Duration = Duration::from_hours(72);

/// What a check changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    None,
    Verified,
    Failing,
    Failed,
    /// Another organization has proven the name, and sends from it now.
    Lost,
}

/// What the required records say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Stands,
    /// A name server said that there is none, or another one.
    Gone,
    /// Nobody answered.
    Unknown,
}

fn proof(records: &[RecordState]) -> Proof {
    let required: Vec<_> = records.iter().filter(|record| record.required).map(|record| record.status).collect();
    if required.iter().any(|status| matches!(status, RecordStatus::Missing | RecordStatus::Mismatch)) {
        Proof::Gone
    } else if required.contains(&RecordStatus::Unreachable) {
        Proof::Unknown
    } else {
        Proof::Stands
    }
}

/// Moves a domain to the state that its records mean. `is_taken` says that another organization has the host, and keeps it.
pub fn settle(domain: &mut Domain, records: &[RecordState], now: Timestamp, is_taken: bool) -> News {
    let proof = proof(records);
    domain.checks = domain.checks.saturating_add(1);
    domain.checked_at = Some(now);
    let news = match (domain.status, proof) {
        (DomainStatus::Pending | DomainStatus::Failed, Proof::Stands) if !is_taken => {
            domain.status = DomainStatus::Verified;
            domain.verified_at = Some(now);
            (domain.missing_since, domain.failing_since) = (None, None);
            News::Verified
        }
        (DomainStatus::Pending, _) if now.since(domain.pending_since.unwrap_or(domain.created_at)) >= PENDING => {
            domain.status = DomainStatus::Failed;
            News::Failed
        }
        (DomainStatus::Verified, Proof::Stands) => {
            domain.missing_since = None;
            News::None
        }
        (DomainStatus::Verified, Proof::Gone) => match domain.missing_since {
            // Twice, an hour apart: records are sometimes gone for a moment while they are changed.
            Some(since) if now.since(since) >= HOUR => {
                domain.status = DomainStatus::TemporaryFailure;
                domain.failing_since = Some(now);
                News::Failing
            }
            Some(_) => News::None,
            None => {
                domain.missing_since = Some(now);
                News::None
            }
        },
        (DomainStatus::TemporaryFailure, Proof::Stands) => {
            domain.status = DomainStatus::Verified;
            (domain.missing_since, domain.failing_since) = (None, None);
            News::Verified
        }
        (DomainStatus::TemporaryFailure, Proof::Gone)
            if domain.failing_since.is_some_and(|since| now.since(since) >= GRACE) =>
        {
            domain.status = DomainStatus::Failed;
            News::Failed
        }
        _ => News::None,
    };
    domain.next_check_at =
        next(domain, now).map(|at| if proof == Proof::Unknown { at.min(now.plus(HOUR)) } else { at });
    news
}

/// Another organization has proven the name: the domain sends no more.
pub fn lose(domain: &mut Domain) {
    domain.status = DomainStatus::Failed;
    (domain.verified_at, domain.next_check_at) = (None, None);
    (domain.missing_since, domain.failing_since) = (None, None);
}

/// When it is looked at next by itself.
fn next(domain: &Domain, now: Timestamp) -> Option<Timestamp> {
    let wait = match domain.status {
        DomainStatus::Pending => match domain.checks {
            0 => MINUTE,
            1 => 2 * MINUTE,
            2 => 5 * MINUTE,
            3 => 15 * MINUTE,
            4..=48 => HOUR,
            _ => DAY,
        },
        DomainStatus::Verified if domain.missing_since.is_some() => HOUR,
        DomainStatus::Verified => DAY,
        DomainStatus::TemporaryFailure => HOUR,
        DomainStatus::Failed => return None,
    };
    Some(now.plus(wait))
}

/// When a new domain is looked at first.
pub fn first_check(now: Timestamp) -> Timestamp {
    now.plus(MINUTE)
}

#[cfg(test)]
mod tests {
    use db::InJson;
    use kernel::{entropy::Entropy, id::Id};

    use super::*;

    const START: Timestamp = Timestamp(1_769_853_600_000);

    fn domain(status: DomainStatus) -> Domain {
        Domain {
            app_id: Id::new(&Entropy::seeded(1), START),
            hostname: "mail.example.com".into(),
            org_id: Id::new(&Entropy::seeded(2), START),
            subdomains: false,
            status,
            signing: 1,
            has_return_path: false,
            findings: InJson(vec![]),
            created_at: START,
            pending_since: None,
            checked_at: None,
            verified_at: None,
            next_check_at: None,
            checks: 0,
            missing_since: None,
            failing_since: None,
        }
    }

    fn record(status: RecordStatus) -> Vec<RecordState> {
        let text = String::new;
        let one = |purpose: &str, required, status| RecordState {
            purpose: purpose.into(),
            kind: text(),
            name: text(),
            value: text(),
            parts: vec![],
            required,
            status,
            found: vec![],
            hint: None,
        };
        vec![one("dkim", true, status), one("dmarc", false, RecordStatus::Missing)]
    }

    fn after(minutes: u64) -> Timestamp {
        START.plus(Duration::from_mins(minutes))
    }

    #[test]
    fn fc8_silence_of_name_servers_demotes_nobody() {
        let mut domain = domain(DomainStatus::Verified);
        for minute in 0..10_000 {
            let status = if minute % 2 == 0 { RecordStatus::Unreachable } else { RecordStatus::Ok };
            assert_eq!(settle(&mut domain, &record(status), after(minute), false), News::None);
        }
        assert_eq!(domain.status, DomainStatus::Verified);
    }

    #[test]
    fn fc8_a_record_that_comes_and_goes_each_minute_demotes_nobody() {
        let mut domain = domain(DomainStatus::Verified);
        for minute in 0..10_000 {
            let status = if minute % 2 == 0 { RecordStatus::Missing } else { RecordStatus::Ok };
            assert_eq!(settle(&mut domain, &record(status), after(minute), false), News::None);
        }
    }

    #[test]
    fn a_record_that_is_gone_for_good_ends_sending_after_72_hours() {
        let mut domain = domain(DomainStatus::Verified);
        let gone = record(RecordStatus::Mismatch);
        assert_eq!(settle(&mut domain, &gone, after(0), false), News::None);
        assert_eq!(settle(&mut domain, &gone, after(59), false), News::None, "seen twice, but not an hour apart");
        assert_eq!(settle(&mut domain, &gone, after(60), false), News::Failing);
        assert_eq!(settle(&mut domain, &gone, after(61), false), News::None, "told once");
        assert!(domain.status.may_send());
        assert_eq!(settle(&mut domain, &gone, after(60 + 72 * 60 - 1), false), News::None);
        assert_eq!(settle(&mut domain, &gone, after(60 + 72 * 60), false), News::Failed);
        assert_eq!((domain.status.may_send(), domain.next_check_at), (false, None));
        assert_eq!(settle(&mut domain, &record(RecordStatus::Ok), after(9000), false), News::Verified);
    }

    #[test]
    fn a_pending_domain_is_looked_at_less_and_less_and_given_up() {
        let (mut domain, mut now, mut looks) = (domain(DomainStatus::Pending), START, vec![]);
        domain.next_check_at = Some(first_check(now));
        while let Some(next) = domain.next_check_at {
            looks.push(next.since(now).as_secs() / 60);
            now = next;
            settle(&mut domain, &record(RecordStatus::Missing), now, false);
        }
        assert_eq!(looks[..5], [1, 2, 5, 15, 60]);
        assert!(domain.status == DomainStatus::Failed && now.since(START) >= PENDING);
    }

    #[test]
    fn a_domain_that_is_asked_for_anew_has_its_14_days_once_more() {
        let mut domain = domain(DomainStatus::Pending);
        let day = |days: u64| after(days * 24 * 60);
        domain.pending_since = Some(day(30));
        assert_eq!(settle(&mut domain, &record(RecordStatus::Missing), day(30), false), News::None);
        assert_eq!(settle(&mut domain, &record(RecordStatus::Missing), day(43), false), News::None);
        assert_eq!(settle(&mut domain, &record(RecordStatus::Missing), day(44), false), News::Failed);
    }

    #[test]
    fn pc23_a_host_of_another_organization_stays_pending() {
        let mut domain = domain(DomainStatus::Pending);
        assert_eq!(settle(&mut domain, &record(RecordStatus::Ok), after(1), true), News::None);
        assert_eq!(domain.status, DomainStatus::Pending);
    }
}
