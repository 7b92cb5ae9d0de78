//! A domain as it is shown: its status, why, what to do, and each record to add beside what was found.
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::apps::ApplicationId;

use super::{
    check::Target,
    model::{Domain, DomainId, Reason, Status},
    names,
};
use crate::certificates::CertificateView;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainView {
    pub id: DomainId,
    pub app_id: ApplicationId,
    /// As it is written in DNS.
    pub domain: String,
    /// As people write it.
    pub unicode: String,
    pub status: Status,
    /// Why it is not served, or may not stay so.
    pub reason: Option<Reason>,
    /// The next step, in a sentence.
    pub hint: Option<String>,
    pub ownership: Ownership,
    /// The DNS records to add.
    pub records: Vec<RecordView>,
    /// Whether requests to it are answered with the app's site.
    pub attached: bool,
    /// Requests are redirected to this domain.
    pub redirect_to: Option<String>,
    pub certificate: Option<CertificateView>,
    pub checks: Checks,
    pub created_at: Timestamp,
    /// When it was served for the first time.
    pub active_at: Option<Timestamp>,
    pub uses: DomainUses,
}

/// The present uses of the domain. All of them end with the proof.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "one for each use, as they are shown")]
pub struct DomainUses {
    /// Requests to it are answered with the app's site.
    pub site: bool,
    /// It has a certificate of ours.
    pub certificate: bool,
    /// Its pages may call the API with a key of the app.
    pub origin: bool,
    /// Tokens can be requested for servers at and below it, and MCP servers can have its name.
    pub resources: bool,
    /// Its pages may ask for passkeys of this service.
    pub passkeys: bool,
    /// Users with a verified email at it become members of the organization.
    pub members: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    pub status: OwnershipStatus,
    pub checked_at: Option<Timestamp>,
    pub verified_at: Option<Timestamp>,
    /// Whether a verified domain above it is the proof.
    pub inherited: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnershipStatus {
    Pending,
    Verified,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    pub count: u32,
    pub last_at: Option<Timestamp>,
    /// Time of the next automatic check; `null` for none.
    pub next_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordView {
    /// `TXT`, `CNAME`, `A`, `AAAA`, `ALIAS` or `CAA`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub name: String,
    pub value: String,
    pub purpose: Purpose,
    /// One that is not required is another way to the same end.
    pub required: bool,
    pub status: RecordStatus,
    /// The records that were found.
    pub seen: Vec<String>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Ownership,
    Routing,
    Caa,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordStatus {
    Missing,
    Wrong,
    Ok,
}

/// What the domains of an app are shown with.
pub struct Shown {
    pub target: Target,
    /// The certificate authority's name in CAA records.
    pub authority: String,
    /// Whether the organization takes in users by their email's domain.
    pub auto_join: bool,
}

impl DomainView {
    pub fn new(domain: Domain, certificate: Option<CertificateView>, ground: &Shown) -> Self {
        let Shown { target, authority, auto_join } = ground;
        let verified = domain.verified_at.is_some();
        let is_active = domain.status == Status::Active;
        let has_certificate = |one: &CertificateView| one.not_after.is_some();
        let uses = DomainUses {
            site: domain.is_served(),
            certificate: certificate.as_ref().is_some_and(has_certificate),
            origin: is_active,
            resources: verified,
            passkeys: is_active && domain.passkeys_at.is_some(),
            members: verified && domain.missing_since.is_none() && *auto_join,
        };
        Self {
            id: domain.id,
            app_id: domain.app_id,
            unicode: names::unicode(&domain.domain),
            status: domain.status,
            reason: domain.status_reason,
            hint: hint(&domain, target, certificate.as_ref()),
            ownership: Ownership {
                status: if verified { OwnershipStatus::Verified } else { OwnershipStatus::Pending },
                checked_at: domain.checked_at,
                verified_at: domain.verified_at,
                inherited: domain.proven_by.is_some(),
            },
            records: records(&domain, target, authority),
            attached: domain.attached_at.is_some(),
            redirect_to: domain.redirect_to,
            certificate,
            checks: Checks { count: domain.looks, last_at: domain.checked_at, next_at: domain.next_check_at },
            created_at: domain.created_at,
            active_at: domain.active_at,
            uses,
            domain: domain.domain,
        }
    }
}

fn records(domain: &Domain, target: &Target, authority: &str) -> Vec<RecordView> {
    let mut records = vec![ownership(domain)];
    if domain.is_listed {
        records.extend(routing(domain, target));
        records.extend(caa(domain, authority));
    }
    records
}

fn ownership(domain: &Domain) -> RecordView {
    let seen = domain.seen.clone().unwrap_or_default();
    let is_there = seen.iter().any(|text| text.trim() == domain.token);
    let status = match (is_there, seen.is_empty()) {
        (true, _) => RecordStatus::Ok,
        (false, true) => RecordStatus::Missing,
        (false, false) => RecordStatus::Wrong,
    };
    let covered = domain.proven_by.is_some();
    RecordView {
        kind: "TXT",
        name: names::record_name(&domain.domain),
        value: domain.token.clone(),
        purpose: Purpose::Ownership,
        required: !covered,
        status,
        seen,
    }
}

fn routing(domain: &Domain, target: &Target) -> Vec<RecordView> {
    let found = domain.found.clone().unwrap_or_default();
    let leads_here = found.aliases.contains(&target.name)
        || !found.addresses.is_empty() && found.addresses.iter().all(|address| target.addresses.contains(address));
    let row = |kind, value: String, required, status, seen| RecordView {
        kind,
        name: domain.domain.clone(),
        value,
        purpose: Purpose::Routing,
        required,
        status,
        seen,
    };
    let texts =
        |addresses: Vec<&std::net::IpAddr>| addresses.into_iter().map(ToString::to_string).collect::<Vec<_>>();
    let whole = |seen: &[String]| match (leads_here, seen.is_empty()) {
        (true, _) => RecordStatus::Ok,
        (false, true) => RecordStatus::Missing,
        (false, false) => RecordStatus::Wrong,
    };
    if !names::is_apex(&domain.domain) || target.addresses.is_empty() {
        let seen =
            if found.aliases.is_empty() { texts(found.addresses.iter().collect()) } else { found.aliases.clone() };
        let kind = if names::is_apex(&domain.domain) { "ALIAS" } else { "CNAME" };
        return vec![row(kind, target.name.clone(), true, whole(&seen), seen)];
    }
    // A registered name cannot have an alias, other than by servers that look it up themselves.
    let mut rows: Vec<RecordView> = target
        .addresses
        .iter()
        .map(|address| {
            let seen = texts(found.addresses.iter().filter(|seen| seen.is_ipv4() == address.is_ipv4()).collect());
            let status = match (found.addresses.contains(address), seen.is_empty()) {
                (true, _) => RecordStatus::Ok,
                (false, true) => RecordStatus::Missing,
                (false, false) => RecordStatus::Wrong,
            };
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            row(kind, address.to_string(), address.is_ipv4(), status, seen)
        })
        .collect();
    let seen = found.aliases.clone();
    rows.push(row("ALIAS", target.name.clone(), false, whole(&seen), seen));
    rows
}

/// Shown only where records forbid our authority, or name it.
fn caa(domain: &Domain, authority: &str) -> Option<RecordView> {
    let found = domain.found.as_ref().filter(|found| !found.caa.is_empty() && !authority.is_empty())?;
    Some(RecordView {
        kind: "CAA",
        name: domain.domain.clone(),
        value: format!("0 issue \"{authority}\""),
        purpose: Purpose::Caa,
        required: !found.caa_allows,
        status: if found.caa_allows { RecordStatus::Ok } else { RecordStatus::Wrong },
        seen: found.caa.clone(),
    })
}

fn hint(domain: &Domain, target: &Target, certificate: Option<&CertificateView>) -> Option<String> {
    let name = &domain.domain;
    if domain.status == Status::PendingDns && domain.status_reason.is_none() {
        return Some(if !domain.is_listed {
            format!("{name} is proven. Add it to the app's site to serve it.")
        } else if domain.attached_at.is_none() {
            format!("{name} leads here. Switch it on with POST /apps/{}/domains/attach.", domain.app_id)
        } else {
            format!("{name} is switched on and will be checked shortly.")
        });
    }
    let challenge = names::record_name(name);
    let said = certificate.and_then(|certificate| certificate.error.clone());
    Some(match domain.status_reason? {
        Reason::TxtMissing => format!("Add the TXT record at {challenge}. DNS changes can take up to an hour."),
        Reason::TxtWrong => format!("There is a TXT record at {challenge}, but not with this app's value. Add it."),
        Reason::Contested => format!(
            "Another app has proven {name}. It moves here when your TXT record stands and the other one does not, seen \
             twice at least 24 hours apart."
        ),
        Reason::Nxdomain => format!("There is no name {name} in DNS. Add the records shown."),
        Reason::NoRecords => format!("{name} exists in DNS, but leads nowhere. Add the records shown."),
        Reason::PointsElsewhere => {
            let found = domain.found.clone().unwrap_or_default();
            let there = found.aliases.last().cloned();
            let there = there.or_else(|| found.addresses.first().map(ToString::to_string)).unwrap_or_default();
            format!("{name} leads to {there}. Point it at {} instead.", target.name)
        }
        Reason::MixedAnswers => format!("Some IP addresses of {name} are not ours. Remove them; keep those shown."),
        Reason::Ipv6Elsewhere => {
            format!("The IPv6 address of {name} is not ours. Remove its AAAA records, or use those shown.")
        }
        Reason::DnsUnavailable => "No name server answered. It is checked again by itself.".into(),
        Reason::DnssecFailed => format!("The DNSSEC signatures of {name} are wrong. Repair them at its registrar."),
        Reason::CaaForbids => {
            format!("CAA records of {name} do not allow our certificate authority. Add the one shown.")
        }
        Reason::NotReachingUs => format!(
            "{name} leads here by DNS, but a request to http://{name}/ did not arrive. Check firewalls and proxies: port 80 \
             must be open."
        ),
        Reason::CaUnavailable => "The certificate authority does not answer. It is tried again by itself.".into(),
        Reason::CaRateLimited => {
            "The certificate authority allows no more orders for now. It is tried again later.".into()
        }
        Reason::ValidationFailed => {
            format!("The certificate authority could not check {name}: {}", said.unwrap_or_default())
        }
        Reason::TimedOut => "The records were not found for seven days. Add them, then check again.".into(),
        Reason::Moved => format!("{name} led elsewhere for seven days and was switched off. Check it to start over."),
        Reason::LostOwnership => {
            format!("Another app has proven {name}. Add the TXT record and check again to claim it back.")
        }
    })
}
