//! Looking at the records of a sending domain.
use std::time::Duration;

use db::Tx;
use futures_util::{StreamExt as _, future::join_all, stream};
use kernel::{
    Janua,
    fault::Result,
    jobs::{Job, Later},
    ports::dns::{NoAnswer, Resolver},
    transact,
};
use public_suffix::{DEFAULT_PROVIDER, EffectiveTLDProvider as _};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::Application,
    events::{self, About, By},
    orgs::OrgId,
};

use super::{
    MailDns,
    model::{self, Domain, DomainKey, RecordState, RecordStatus},
    rules::{self, News},
};
use crate::{
    Settings,
    events::{DomainFailed, DomainFailing, DomainVerified},
    health,
    mails::EmailNews,
    words::Algorithm,
};

/// The name below a host that bounces come to.
const RETURN_PATH: &str = "bounce";
const MOST_FOUND: usize = 10;
const LONGEST_FOUND: usize = 600;
/// Mail in flight is checked with the old key for a while after another one signs.
const OLD_KEYS_KEPT: Duration = Duration::from_hours(7 * 24);

/// The records that a domain wants, as they are before anybody has looked.
pub fn wanted(janua: &Janua, hostname: &str, keys: &[DomainKey], signing: i64) -> Vec<RecordState> {
    let record = |purpose: &str, kind: &str, name: String, value: String, required: bool| RecordState {
        purpose: purpose.to_owned(),
        kind: kind.to_owned(),
        parts: pieces(&value),
        name,
        value,
        required,
        status: RecordStatus::Missing,
        found: vec![],
        hint: None,
    };
    let mut records: Vec<RecordState> = keys
        .iter()
        .map(|key| {
            let (purpose, kind) = match key.algorithm {
                Algorithm::Rsa => ("dkim", "rsa"),
                Algorithm::Ed25519 => ("dkim_ed25519", "ed25519"),
            };
            let name = format!("{}._domainkey.{hostname}", key.selector);
            let value = format!("v=DKIM1; k={kind}; p={}", key.public_key);
            // A new key waits beside the one that signs; only that one is required.
            record(purpose, "TXT", name, value, key.algorithm == Algorithm::Rsa && key.generation == signing)
        })
        .collect();
    if let Some(bounces) = &janua.config.of::<Settings>().bounce_domain {
        let (name, target) = (format!("{RETURN_PATH}.{hostname}"), format!("{RETURN_PATH}.{bounces}"));
        records.push(record("return_path", "CNAME", name, target, true));
    }
    records.push(record("spf", "TXT", hostname.to_owned(), "v=spf1 include:YOUR-RELAY ~all".to_owned(), false));
    records.push(record("dmarc", "TXT", format!("_dmarc.{hostname}"), "v=DMARC1; p=none".to_owned(), false));
    records
}

/// A long text in pieces that fit into one string of a TXT record.
fn pieces(value: &str) -> Vec<String> {
    if value.len() <= 255 {
        return vec![];
    }
    value.as_bytes().chunks(255).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
}

/// Looks at every record.
async fn look(dns: &Resolver, hostname: &str, records: Vec<RecordState>) -> Vec<RecordState> {
    let looks = records.into_iter().map(|mut record| async move {
        match record.purpose.as_str() {
            "return_path" => look_at_return_path(dns, &mut record).await,
            "spf" => look_at_spf(dns, &mut record).await,
            "dmarc" => look_at_dmarc(dns, hostname, &mut record).await,
            _ => look_at_key(dns, &mut record).await,
        }
        record
    });
    join_all(looks).await
}

fn as_wanted(mut records: Vec<RecordState>) -> Vec<RecordState> {
    for record in &mut records {
        let value = record.value.clone();
        note(record, vec![value], RecordStatus::Ok, None);
    }
    records
}

fn note(record: &mut RecordState, found: Vec<String>, status: RecordStatus, hint: Option<&str>) {
    let short = |text: String| text.replace('\0', "\u{fffd}").chars().take(LONGEST_FOUND).collect();
    record.found = found.into_iter().take(MOST_FOUND).map(short).collect();
    (record.status, record.hint) = (status, hint.map(str::to_owned));
}

fn unreachable(record: &mut RecordState, error: &NoAnswer) {
    tracing::debug!(%error, name = record.name, "no name server answers for a sending domain");
    note(record, vec![], RecordStatus::Unreachable, Some("No name server answered. It is asked again."));
}

/// The public key, however the tags are spaced.
fn key_in(text: &str) -> Option<String> {
    let tags = text.split(';').filter_map(|tag| tag.split_once('='));
    let value = tags.map(|(name, value)| (name.trim(), value)).find(|(name, _)| *name == "p")?.1;
    Some(value.chars().filter(|c| !c.is_whitespace()).collect())
}

async fn look_at_key(dns: &Resolver, record: &mut RecordState) {
    let found = match dns.texts(&record.name).await {
        Ok(found) => found,
        Err(error) => return unreachable(record, &error),
    };
    let own = key_in(&record.value);
    let (status, hint) = if found.iter().any(|text| key_in(text) == own) {
        (RecordStatus::Ok, None)
    } else if found.is_empty() {
        (RecordStatus::Missing, Some("Create this record at your DNS provider."))
    } else {
        (RecordStatus::Mismatch, Some("There is a record with another value. Check that it is copied as a whole."))
    };
    note(record, found, status, hint);
}

async fn look_at_return_path(dns: &Resolver, record: &mut RecordState) {
    match dns.canonical_name(&record.name).await {
        Ok(Some(target)) if target.eq_ignore_ascii_case(&record.value) => {
            note(record, vec![target], RecordStatus::Ok, None);
        }
        Ok(Some(target)) => note(record, vec![target], RecordStatus::Mismatch, Some("The CNAME leads elsewhere.")),
        Ok(None) => {
            note(record, vec![], RecordStatus::Missing, Some("Create this CNAME, so that bounces are received."));
        }
        Err(error) => unreachable(record, &error),
    }
}

async fn look_at_spf(dns: &Resolver, record: &mut RecordState) {
    let found = match dns.texts(&record.name).await {
        Ok(found) => found,
        Err(error) => return unreachable(record, &error),
    };
    let policies: Vec<String> =
        found.into_iter().filter(|text| text.trim_start().to_ascii_lowercase().starts_with("v=spf1")).collect();
    let lower = policies.join(" ").to_ascii_lowercase();
    let lookups = ["include:", "redirect=", " a ", " a:", " mx", "exists:", "ptr"];
    let lookups: usize = lookups.iter().map(|word| lower.matches(word).count()).sum();
    let (status, hint) = match policies.len() {
        0 => (RecordStatus::Missing, Some("Name the servers that send for this host, as your relay describes.")),
        1 if lower.contains("+all") => (RecordStatus::Mismatch, Some("+all lets every server send for this host.")),
        1 if lookups > 10 => (RecordStatus::Mismatch, Some("The record needs more than 10 lookups and is ignored.")),
        1 => (RecordStatus::Ok, None),
        _ => (RecordStatus::Mismatch, Some("There are two SPF records; both are ignored. Keep one.")),
    };
    note(record, policies, status, hint);
}

/// At the host, or at the organizational domain above it.
async fn look_at_dmarc(dns: &Resolver, hostname: &str, record: &mut RecordState) {
    let above = DEFAULT_PROVIDER.effective_tld_plus_one(hostname).ok().filter(|above| *above != hostname);
    let names = [Some(record.name.clone()), above.map(|above| format!("_dmarc.{above}"))];
    let mut found = vec![];
    for name in names.into_iter().flatten() {
        match dns.texts(&name).await {
            Ok(texts) => found = texts.into_iter().filter(|text| text.trim_start().starts_with("v=DMARC1")).collect(),
            Err(error) => return unreachable(record, &error),
        }
        if !found.is_empty() {
            break;
        }
    }
    let (status, hint) = match found.len() {
        0 => (
            RecordStatus::Missing,
            Some("Large providers want a DMARC policy, at least p=none, and require it from 5,000 emails a day."),
        ),
        1 => (RecordStatus::Ok, None),
        _ => (RecordStatus::Mismatch, Some("There are two DMARC records; both are ignored. Keep one.")),
    };
    note(record, found, status, hint);
}

/// Looks at a domain and notes what that means. Answers it as it is then; nothing when it was removed meanwhile.
pub async fn check(janua: &Janua, by: &By, domain: &Domain) -> Result<Option<Domain>> {
    let keys = DomainKey::of(&janua.db, domain.app_id, &domain.hostname).await?;
    let records = wanted(janua, &domain.hostname, &keys, domain.signing);
    let dns = janua.own::<MailDns>();
    let records = if dns.taken_for_proven.get() == Some(&domain.hostname) {
        as_wanted(records)
    } else {
        look(&dns.resolver, &domain.hostname, records).await
    };
    transact!(janua, async |tx| settle(tx, janua, by, domain, &keys, &records).await)
}

async fn settle(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    domain: &Domain,
    keys: &[DomainKey],
    looked: &[RecordState],
) -> Result<Option<Domain>> {
    let mut records = looked.to_vec();
    let Some(mut domain) = Domain::hold(tx, domain.app_id, &domain.hostname).await? else { return Ok(None) };
    let now = janua.clock.now();
    let dkim = |key: &DomainKey| {
        let start = format!("{}._domainkey.", key.selector);
        looked.iter().find(|record| record.name.starts_with(&start)).map(|record| record.status)
    };
    for key in keys {
        let is_seen = match dkim(key) {
            Some(RecordStatus::Ok) => true,
            Some(RecordStatus::Missing | RecordStatus::Mismatch) => false,
            _ => key.is_seen,
        };
        // The key that signs goes on doing so while a domain may send without its records.
        let signs = key.generation == domain.signing && key.algorithm == Algorithm::Rsa && domain.status.may_send();
        if is_seen != key.is_seen && !(signs && key.is_seen) {
            key.set_seen(tx, domain.app_id, &domain.hostname, is_seen).await?;
        }
        // A rotated key signs as soon as everybody can see it.
        if is_seen && key.algorithm == Algorithm::Rsa && key.generation > domain.signing {
            domain.signing = key.generation;
        }
    }
    for (key, record) in keys.iter().zip(&mut records) {
        record.required = key.algorithm == Algorithm::Rsa && key.generation == domain.signing;
    }
    let newest = keys.iter().find(|key| key.generation == domain.signing);
    if newest.is_some_and(|key| now.since(key.created_at) >= OLD_KEYS_KEPT) {
        DomainKey::forget_before(tx, domain.app_id, &domain.hostname, domain.signing).await?;
    }
    let status_of =
        |purpose: &str| looked.iter().find(|record| record.purpose == purpose).map(|record| record.status);
    match status_of("return_path") {
        Some(RecordStatus::Ok) => domain.has_return_path = true,
        Some(RecordStatus::Unreachable) => {}
        _ => domain.has_return_path = false,
    }
    let other = model::holder(tx, &domain.hostname).await?.filter(|org| *org != domain.org_id);
    let takes_over = other.is_some() && has_proof(tx, &domain.hostname, domain.org_id).await?;
    let news = rules::settle(&mut domain, &records, now, other.is_some() && !takes_over);
    if news == News::Verified && takes_over {
        for mut loser in model::move_host(tx, &domain.hostname, domain.org_id).await? {
            rules::lose(&mut loser);
            loser.save(tx).await?;
            tell(tx, janua, &By::default(), &loser, News::Lost).await?;
        }
    } else if news == News::Verified && !model::take_host(tx, &domain.hostname, domain.org_id).await? {
        // Another organization was faster.
        return Ok(Domain::find(&mut *tx, domain.app_id, &domain.hostname).await?);
    }
    domain.findings = db::InJson(records);
    domain.save(tx).await?;
    if news == News::Failed {
        model::free_host(tx, &domain.hostname, domain.org_id).await?;
    }
    tell(tx, janua, by, &domain, news).await?;
    Ok(Some(domain))
}

/// Whether the organization has proven the name itself, or one above it, by a TXT record that stands. That proof weighs more than
/// email records, which an owner before may have left behind.
pub async fn has_proof(tx: &mut Tx, hostname: &str, org: OrgId) -> db::Result<bool> {
    Ok(Application::org_of_domain(&mut *tx, hostname).await? == Some(org))
}

async fn tell(tx: &mut Tx, janua: &Janua, by: &By, domain: &Domain, news: News) -> Result<()> {
    let hostname = domain.hostname.clone();
    let Some(application) = Application::find(&mut *tx, domain.app_id).await? else { return Ok(()) };
    let about = About::app(&application);
    let letter = match news {
        News::None => return Ok(()),
        News::Verified => return Ok(events::record(tx, janua, by, about, &DomainVerified { hostname }).await?),
        News::Failing => {
            events::record(tx, janua, by, about, &DomainFailing { hostname }).await?;
            EmailNews::DomainFailing
        }
        News::Failed => {
            events::record(tx, janua, by, about, &DomainFailed { hostname }).await?;
            EmailNews::DomainFailed
        }
        News::Lost => {
            events::record(tx, janua, by, about, &DomainFailed { hostname }).await?;
            EmailNews::DomainLost
        }
    };
    health::tell(tx, janua, &application, letter, &domain.hostname).await
}

/// Looks at every domain whose time has come.
#[derive(Default, Serialize, Deserialize)]
pub struct CheckDomains {}

pub const EVERY: Duration = Duration::from_mins(1);
const BATCH: u32 = 100;
const AT_ONCE: usize = 8;

impl Job for CheckDomains {
    const KIND: &'static str = "email.check_domains";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let due = Domain::due(&janua.db, janua.clock.now(), BATCH).await?;
        let by = By::default();
        let checks = stream::iter(due).map(|domain| {
            let (janua, by) = (janua.clone(), by.clone());
            async move { check(&janua, &by, &domain).await }
        });
        let outcomes: Vec<_> = checks.buffer_unordered(AT_ONCE).collect().await;
        match outcomes.into_iter().find_map(Result::err) {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_however_its_record_is_spaced() {
        assert_eq!(key_in("v=DKIM1; k=rsa; p=AB CD"), Some("ABCD".into()));
        assert_eq!(key_in("v=DKIM1;k=rsa;p=ABCD;"), Some("ABCD".into()));
        assert_eq!(key_in("v=spf1 -all"), None);
        assert_eq!(pieces(&"x".repeat(392)).iter().map(String::len).collect::<Vec<_>>(), [255, 137]);
    }
}
