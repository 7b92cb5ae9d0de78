//! Ordering a certificate: one order per name over all nodes, resumed by whoever works on it next.
//!
//! Each step is kept before the next one begins: that a name wants a certificate, the order's URL with the key it is for, the
//! answers to the authority's challenges, and the certificate. A node that dies leaves the order to the next one.
use std::time::Duration;

use db::Tx;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewOrder, Order,
    OrderStatus,
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    installation,
    jobs::{self, Job, Later},
    ports::dns::Resolver,
    transact,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};
use tenancy::events::{self, About, By};

use super::{
    acme::{self, Patience},
    events::{CertificateFailed, CertificateIssued, CertificateRenewed},
    leaf,
    model::{Certificate, Failure, Issued, StoredChallenge, seal},
    own,
    zone::Zone,
};
use crate::{
    domains::{self, Domain, Reason, Status},
    settings::{Challenge, Settings},
};

/// Budgets below those of the authority: orders in three hours, orders of one registered domain in a week, failures of one name
/// in an hour, open orders of one organization.
const ORDERS: (Duration, i64) = (Duration::from_hours(3), 250);
const OF_DOMAIN: (Duration, i64) = (Duration::from_hours(7 * 24), 45);
const FAILURES: (Duration, i64) = (Duration::from_hours(1), 4);
const OPEN_PER_ORG: i64 = 10;
/// One budget at a time is looked at.
const BUDGET: &str = "acme_budget";
const FIRST_WAIT: Duration = Duration::from_mins(10);
const LONGEST_WAIT: Duration = Duration::from_hours(24);
/// An order that the authority has not finished by then is given up.
const OLDEST_ORDER: Duration = Duration::from_hours(24);
/// How often a node looks at an order before it lets go of it for a while.
const ROUNDS: u32 = 40;
const DNS: &str = "dns-01";
/// Between two looks at whether all servers of a zone have a record.
const ZONE_WAIT: Duration = Duration::from_secs(2);
const CHALLENGE_LIFE: Duration = Duration::from_hours(24);

/// Works on the order of a name.
#[derive(Serialize, Deserialize)]
pub struct OrderCertificate {
    pub name: String,
}

pub async fn enqueue(tx: &mut Tx, janua: &Janua, name: &str) -> db::Result<()> {
    let (now, unique) = (janua.clock.now(), format!("certificate:{name}"));
    jobs::enqueue_at(tx, janua, now, now, Some(&unique), &OrderCertificate { name: name.to_owned() }).await
}

/// What came of working on an order.
enum Outcome {
    Issued(Box<Issued>),
    /// The authority is not done yet.
    Waiting,
    /// Nobody wants it any more.
    Unwanted,
}

impl Job for OrderCertificate {
    const KIND: &'static str = "certificate.order";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let now = janua.clock.now();
        let Some(certificate) = Certificate::claim(&janua.db, &self.name, now).await? else { return Ok(()) };
        let outcome = work(&janua, &certificate).await;
        finish(&janua, &certificate, outcome).await?;
        Ok(())
    }
}

async fn work(janua: &Janua, certificate: &Certificate) -> Result<Outcome, Failed> {
    if !is_wanted(janua, certificate).await? {
        return Ok(Outcome::Unwanted);
    }
    // First of all the authority must answer: while it is away no budget is spent.
    let (account, patience) = acme::account(janua).await.map_err(|error| Failed::of(&error, &Patience::default()))?;
    if certificate.order_url.is_none() {
        may_order(janua, certificate).await?;
    }
    let driven = drive(janua, certificate, &account).await;
    if let Err(Driven::Acme(Error::Api(problem))) = &driven
        && problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
    {
        acme::forget_account(janua).await?;
    }
    driven.map_err(|error| match error {
        Driven::Acme(error) => Failed::of(&error, &patience),
        Driven::Failed(failed) => failed,
    })
}

/// Why an order did not get further, and whether it can be resumed.
struct Failed {
    failure: Failure,
    keeps_order: bool,
}

impl Failed {
    fn of(error: &Error, patience: &Patience) -> Self {
        let failure = acme::failure(error, patience);
        let is_gone = matches!(error, Error::Api(problem) if [Some(404), Some(403)].contains(&problem.status));
        Self { keeps_order: !failure.counts && !is_gone, failure }
    }

    fn here(reason: Reason, text: &str, wait: Option<Duration>) -> Self {
        let failure = Failure { reason, text: text.to_owned(), counts: false, wait };
        Self { failure, keeps_order: false }
    }
}

impl From<db::Error> for Failed {
    fn from(error: db::Error) -> Self {
        Self { failure: internal(&error), keeps_order: true }
    }
}

impl From<kernel::fault::Fault> for Failed {
    fn from(fault: kernel::fault::Fault) -> Self {
        Self { failure: internal(&fault), keeps_order: true }
    }
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    tracing::warn!(%error, "an order for a certificate was interrupted");
    let text = "the order was interrupted; it is resumed".to_owned();
    Failure { reason: Reason::CaUnavailable, text, counts: false, wait: Some(Duration::from_mins(1)) }
}

enum Driven {
    Acme(Error),
    Failed(Failed),
}

impl From<Error> for Driven {
    fn from(error: Error) -> Self {
        Self::Acme(error)
    }
}

impl From<Failed> for Driven {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<db::Error> for Driven {
    fn from(error: db::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<kernel::fault::Fault> for Driven {
    fn from(fault: kernel::fault::Fault) -> Self {
        Self::Failed(fault.into())
    }
}

/// The row of the domain that the certificate is for, if the app still has it.
async fn domain_of(janua: &Janua, certificate: &Certificate) -> db::Result<Option<Domain>> {
    let found = Domain::proven(&janua.db, &certificate.name).await?;
    Ok(found.filter(|domain| Some(domain.app_id) == certificate.app_id))
}

async fn is_wanted(janua: &Janua, certificate: &Certificate) -> db::Result<bool> {
    if certificate.app_id.is_none() {
        return Ok(own::is_ordered(janua, &certificate.name));
    }
    let found = domain_of(janua, certificate).await?;
    Ok(found.is_some_and(|domain| domain.is_served() && domain.status != Status::Misconfigured))
}

/// An order is made only for a name that leads here by every answer, whose records allow it, and to which a request of ours came
/// through; and only within the budgets.
async fn may_order(janua: &Janua, certificate: &Certificate) -> Result<(), Failed> {
    if let (Some(app), Some(_)) = (certificate.app_id, certificate.org_id) {
        let resolver = janua.own::<Resolver>();
        let unanswered = || Failed::here(Reason::DnsUnavailable, "no name server answered", None);
        let trace = resolver.trace(&certificate.name).await.map_err(|_| unanswered())?;
        let target = domains::target(janua, app).await?;
        if trace.is_cut_off {
            return Err(unanswered());
        }
        target.is_reached_by(&trace).map_err(|reason| Failed::here(reason, "the domain does not lead here", None))?;
        let caa = resolver.authorities(&certificate.name).await.map_err(|_| unanswered())?;
        if !domains::caa_allows(&caa, &janua.config.of::<Settings>().caa_identity()) {
            return Err(Failed::here(Reason::CaaForbids, "CAA records do not allow the certificate authority", None));
        }
        let is_http = janua.config.of::<Settings>().acme_challenge == Challenge::Http01;
        if is_http && !domains::reaches_us(janua, &certificate.name, &trace.addresses, &target).await {
            return Err(Failed::here(Reason::NotReachingUs, "a request to the domain did not arrive here", None));
        }
    }
    let now = janua.clock.now();
    let budget = transact!(janua, async |tx| {
        installation::write_once(tx, BUDGET, "").await?;
        installation::lock(tx, BUDGET).await?;
        let failures = format!("failures:{}", certificate.name);
        if domains::spent(&mut *tx, &failures, now, FAILURES.0).await? >= FAILURES.1 {
            return Ok(Some("this name failed often within the hour"));
        }
        if certificate.org_id.is_some() && Certificate::open_orders(tx, certificate.org_id).await? >= OPEN_PER_ORG {
            return Ok(Some("the organization has many orders open"));
        }
        let registered = domains::registrable(&certificate.name).unwrap_or(&certificate.name);
        let of_domain = format!("orders:{registered}");
        if domains::spent(&mut *tx, &of_domain, now, OF_DOMAIN.0).await? >= OF_DOMAIN.1 {
            return Ok(Some("the registered domain had many certificates within the week"));
        }
        if !domains::spend(tx, "orders", now, ORDERS.0, ORDERS.1).await? {
            return Ok(Some("this installation made many orders within three hours"));
        }
        domains::spend(tx, &of_domain, now, OF_DOMAIN.0, OF_DOMAIN.1).await?;
        Ok(None)
    })?;
    match budget {
        None => Ok(()),
        Some(text) => Err(Failed::here(Reason::CaRateLimited, text, Some(FIRST_WAIT))),
    }
}

/// Moves the order on until it is finished, or has to wait.
async fn drive(janua: &Janua, certificate: &Certificate, account: &Account) -> Result<Outcome, Driven> {
    let (mut order, key) = open(janua, certificate, account).await?;
    let mut is_answered = false;
    for round in 0..ROUNDS {
        match order.state().status {
            OrderStatus::Pending => {
                if !is_answered {
                    answer_challenges(janua, certificate, &mut order).await?;
                    is_answered = true;
                }
            }
            OrderStatus::Ready => {
                let csr = request(&certificate.name, &key)?;
                order.finalize_csr(&csr).await?;
                continue;
            }
            OrderStatus::Processing => {}
            OrderStatus::Valid => {
                tidy_zone(janua, certificate).await;
                let chain = order.certificate().await?.ok_or(Error::Str("the order has no certificate"))?;
                let issued = leaf::read(janua, &certificate.name, chain, &key);
                return Ok(Outcome::Issued(Box::new(issued.map_err(|text| {
                    Driven::Failed(Failed {
                        failure: Failure { reason: Reason::ValidationFailed, text, counts: true, wait: None },
                        keeps_order: false,
                    })
                })?)));
            }
            OrderStatus::Invalid => {
                tidy_zone(janua, certificate).await;
                return Err(Driven::Failed(invalid(&mut order).await));
            }
        }
        tokio::time::sleep(Duration::from_millis(100 << round.min(4))).await;
        // Another node has taken over: what it does counts.
        if !certificate.renew_lease(&janua.db, janua.clock.now()).await? {
            return Ok(Outcome::Waiting);
        }
        order.refresh().await?;
    }
    Ok(Outcome::Waiting)
}

/// The order that is open, or a new one.
async fn open(
    janua: &Janua,
    certificate: &Certificate,
    account: &Account,
) -> Result<(Order, zeroize::Zeroizing<Vec<u8>>), Driven> {
    if let (Some(url), Some(key)) = (&certificate.order_url, certificate.pending_key(janua)?) {
        return Ok((account.order(url.clone()).await?, key));
    }
    let identifiers = [Identifier::Dns(certificate.name.clone())];
    let settings = janua.config.of::<Settings>();
    let wanted = || {
        let order = NewOrder::new(&identifiers);
        if settings.acme_profile.is_empty() { order } else { order.profile(&settings.acme_profile) }
    };
    let replaced = certificate.chain.as_deref().and_then(identifier);
    let order = match replaced {
        Some(replaced) => match account.new_order(&wanted().replaces(replaced)).await {
            // An authority without ARI, or one that has seen it replaced already.
            Err(Error::Unsupported(_) | Error::Api(_)) => account.new_order(&wanted()).await?,
            outcome => outcome?,
        },
        None => account.new_order(&wanted()).await?,
    };
    let key = KeyPair::generate().map_err(|error| Error::Other(Box::new(error)))?;
    let key = zeroize::Zeroizing::new(key.serialize_der());
    let sealed = seal(janua, &certificate.name, &key);
    if !certificate.save_order(&janua.db, order.url(), &sealed, janua.clock.now()).await? {
        return Err(Failed::here(Reason::CaUnavailable, "another node has taken over", None).into());
    }
    Ok((order, key))
}

/// The certificate as ARI names it.
pub fn identifier(chain: &str) -> Option<CertificateIdentifier<'static>> {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
    CertificateIdentifier::try_from(&leaf).ok().map(CertificateIdentifier::into_owned)
}

fn request(name: &str, key: &[u8]) -> Result<Vec<u8>, Error> {
    let failed = |error: rcgen::Error| Error::Other(Box::new(error));
    let key = KeyPair::try_from(key).map_err(failed)?;
    let mut wanted = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    wanted.distinguished_name = DistinguishedName::new();
    Ok(wanted.serialize_request(&key).map_err(failed)?.der().to_vec())
}

/// Keeps an answer for each name that is not authorized yet, on every node, and tells the authority that it may look.
async fn answer_challenges(janua: &Janua, certificate: &Certificate, order: &mut Order) -> Result<(), Driven> {
    let wanted = match janua.config.of::<Settings>().acme_challenge {
        _ if certificate.name.starts_with("*.") => (ChallengeType::Dns01, DNS),
        Challenge::Http01 => (ChallengeType::Http01, "http-01"),
        Challenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "tls-alpn-01"),
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let Some(mut challenge) = authorization.challenge(wanted.0.clone()) else {
            return Err(Error::Str("the certificate authority does not offer the configured challenge").into());
        };
        let stored = StoredChallenge {
            token: challenge.token.clone(),
            name: certificate.name.clone(),
            kind: wanted.1.to_owned(),
            answer: match wanted.1 {
                DNS => challenge.key_authorization().dns_value(),
                _ => challenge.key_authorization().as_str().to_owned(),
            },
        };
        let ends_at = janua.clock.now().plus(CHALLENGE_LIFE);
        transact!(janua, async |tx| Ok(stored.save(tx, ends_at).await?))?;
        if wanted.1 == DNS {
            write_to_zone(janua, certificate, &stored.answer).await?;
        }
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Where an authority looks for the answer of a name.
fn record_name(name: &str) -> String {
    format!("_acme-challenge.{}", name.trim_start_matches("*."))
}

/// Puts the answer into the zone, and waits until all of its servers have it: an authority that looks too early finds nothing,
/// and counts that as a failure.
async fn write_to_zone(janua: &Janua, certificate: &Certificate, answer: &str) -> Result<(), Driven> {
    let failed = |text: String| {
        let wait = Some(Duration::from_mins(1));
        let failure =
            Failure { reason: Reason::DnsUnavailable, text: format!("the zone: {text}"), counts: false, wait };
        Driven::Failed(Failed { failure, keeps_order: true })
    };
    let zone = Zone::of(janua).map_err(failed)?.ok_or_else(|| failed("none is configured".into()))?;
    let change = zone.put(&record_name(&certificate.name), answer).await.map_err(failed)?;
    for _ in 0..ROUNDS {
        if zone.is_everywhere(&change).await.map_err(failed)? {
            return Ok(());
        }
        tokio::time::sleep(ZONE_WAIT).await;
        if !certificate.renew_lease(&janua.db, janua.clock.now()).await? {
            return Err(failed("another node has taken over".into()));
        }
    }
    Err(failed("the record has not reached all of its servers".into()))
}

/// Takes the answer out of the zone again. One that stays because a node died is replaced by the next order.
async fn tidy_zone(janua: &Janua, certificate: &Certificate) {
    if !certificate.name.starts_with("*.") {
        return;
    }
    let Ok(Some(zone)) = Zone::of(janua) else { return };
    let Ok(Some(stored)) = StoredChallenge::in_zone(&janua.db, &certificate.name).await else { return };
    if let Err(error) = zone.remove(&record_name(&certificate.name), &stored.answer).await {
        tracing::warn!(error, name = certificate.name, "a record for the certificate authority stays in the zone");
    }
}

/// What the authority says about a name that it could not check.
async fn invalid(order: &mut Order) -> Failed {
    let mut said = order.state().error.clone();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let _ = authorization.refresh().await;
        let problem = authorization.challenges.iter().find_map(|challenge| challenge.error.clone());
        said = problem.or(said);
    }
    let failure = match said {
        Some(problem) => acme::refusal(&problem, None),
        None => Failure {
            reason: Reason::ValidationFailed,
            text: "the certificate authority refused the order".into(),
            counts: true,
            wait: None,
        },
    };
    Failed { failure: Failure { counts: true, ..failure }, keeps_order: false }
}

/// How long to wait after so many failures.
fn wait(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << failures.min(12)).min(LONGEST_WAIT)
}

/// Keeps what came of it, and what follows for the domain, in one transaction.
async fn finish(janua: &Janua, certificate: &Certificate, outcome: Result<Outcome, Failed>) -> Result<()> {
    let now = janua.clock.now();
    match outcome {
        Ok(Outcome::Unwanted) => {
            transact!(janua, async |tx| Ok(certificate.release(tx, None).await?))?;
        }
        Ok(Outcome::Waiting) => {
            let is_old = certificate.ordered_at.is_some_and(|at| now.since(at) > OLDEST_ORDER);
            let text = "the certificate authority has not finished the order".to_owned();
            let wait = Some(Duration::from_mins(1));
            let failure = Failure { reason: Reason::CaUnavailable, text, counts: false, wait };
            note_failure(janua, certificate, &Failed { failure, keeps_order: !is_old }, now).await?;
        }
        Err(failed) => note_failure(janua, certificate, &failed, now).await?,
        Ok(Outcome::Issued(issued)) => note_success(janua, certificate, &issued).await?,
    }
    Ok(())
}

async fn note_failure(janua: &Janua, certificate: &Certificate, failed: &Failed, now: Timestamp) -> Result<()> {
    let Failed { failure, keeps_order } = failed;
    let domain = domain_of(janua, certificate).await?;
    let next = now.plus(failure.wait.unwrap_or_else(|| wait(certificate.failures)));
    tracing::info!(
        name = certificate.name,
        reason = failure.reason.name(),
        said = failure.text,
        next_try = %next,
        "a certificate was not issued"
    );
    let failure = Failure { text: failure.text.replace('\0', "\u{fffd}"), ..failure.clone() };
    transact!(janua, async |tx| {
        if !certificate.fail(tx, &failure, next, *keeps_order).await? {
            return Ok(());
        }
        if failure.counts {
            let subject = format!("failures:{}", certificate.name);
            domains::spend(tx, &subject, now, FAILURES.0, i64::MAX).await?;
        }
        let Some(domain) = &domain else { return Ok(()) };
        let Some((mut domain, _)) = domain.hold(tx).await? else { return Ok(()) };
        if domain.status == Status::Issuing {
            domain.status_reason = Some(failure.reason);
            domain.save(tx, janua).await?;
        }
        if failure.counts {
            let application = domain.application(tx).await?;
            let event = CertificateFailed { domain: domain.domain, reason: failure.reason.name() };
            events::record(tx, janua, &By::default(), About::app(&application), &event).await?;
        }
        Ok(())
    })
}

async fn note_success(janua: &Janua, certificate: &Certificate, issued: &Issued) -> Result<()> {
    let domain = domain_of(janua, certificate).await?;
    let (name, expires_at) = (certificate.name.clone(), issued.not_after.to_string());
    transact!(janua, async |tx| {
        // The name may have gone to somebody else meanwhile: then so has this row, and the certificate with it.
        if !certificate.succeed(tx, issued).await? {
            return Ok(());
        }
        let Some(domain) = &domain else { return Ok(()) };
        let application = domain.application(tx).await?;
        let (by, about) = (By::default(), About::app(&application));
        if certificate.chain.is_none() {
            let event = CertificateIssued { domain: name.clone(), expires_at: expires_at.clone() };
            events::record(tx, janua, &by, about, &event).await?;
        } else {
            let event = CertificateRenewed { domain: name.clone(), expires_at: expires_at.clone() };
            events::record(tx, janua, &by, about, &event).await?;
        }
        domains::certified(tx, janua, domain).await
    })
}
