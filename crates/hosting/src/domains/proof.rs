//! The proof of a domain: it is proven while its record stands, and goes to another app only when that one's record stands in
//! its place.
use std::time::Duration;

use db::Tx;
use kernel::{Janua, clock::Timestamp, fault::Result};
use tenancy::{
    apps::ApplicationId,
    events::{self, About, By},
    messages::mail,
    orgs,
};

use super::{
    check::Look,
    events::{DomainActive, DomainAttached, DomainMisconfigured, DomainMoved, DomainVerified},
    mails::{DomainMail, DomainNews},
    model::{Domain, ProofReason, Reason, Status},
    status::{self, Ground},
};
use crate::{certificates, settings::Settings};

const DAY: Duration = Duration::from_hours(24);
/// How long the record of another app must stand alone before the name moves. Always, also for a name that serves nothing:
/// tokens are meant for the places of whoever has proven a domain.
const CONTEST: Duration = DAY;
const SPREAD_MS: u64 = 60 * 60 * 1000;
/// How much of what stands at a name is kept.
const MOST_SEEN: usize = 20;
const LONGEST_SEEN: usize = 255;

/// What a check changed about the proof.
#[derive(Debug, PartialEq, Eq)]
enum News {
    None,
    /// It is the app's own.
    Verified,
    /// The holder's record is gone and this one stands: it will move unless that changes.
    Contested,
    /// It was another app's, and is this one's now.
    Moved,
}

fn stands(domain: &Domain, texts: &[String]) -> bool {
    texts.iter().any(|text| text.trim() == domain.token)
}

/// Notes on the row that has the name whether its proof stands.
fn note_holder(holder: &mut Domain, texts: &[String], now: Timestamp) -> bool {
    // What a name above proves needs no record here.
    let is_there = stands(holder, texts) || holder.proven_by.is_some();
    holder.missing_since = if is_there { None } else { holder.missing_since.or(Some(now)) };
    holder.reason = (!is_there).then(|| absence(texts));
    holder.checked_at = Some(now);
    holder.seen = Some(kept(texts));
    is_there
}

fn absence(texts: &[String]) -> ProofReason {
    if texts.is_empty() { ProofReason::TxtMissing } else { ProofReason::TxtWrong }
}

fn kept(texts: &[String]) -> Vec<String> {
    // A text column cannot keep NUL.
    let short = |text: &String| text.replace('\0', "\u{fffd}").chars().take(LONGEST_SEEN).collect();
    texts.iter().take(MOST_SEEN).map(short).collect()
}

/// What the records mean for a claim, and for the other app that has proven the name, if there is one.
fn settle(claim: &mut Domain, holder: Option<&mut Domain>, texts: &[String], now: Timestamp) -> News {
    if claim.verified_at.is_some() {
        note_holder(claim, texts, now);
        return News::None;
    }
    let is_there = stands(claim, texts);
    (claim.checked_at, claim.seen) = (Some(now), Some(kept(texts)));
    let Some(holder) = holder else {
        claim.contested_since = None;
        if is_there {
            prove(claim, now);
            return News::Verified;
        }
        claim.fruitless += 1;
        claim.reason = Some(absence(texts));
        return News::None;
    };
    let holder_is_there = note_holder(holder, texts, now);
    claim.reason = Some(ProofReason::Contested);
    if !is_there || holder_is_there {
        claim.contested_since = None;
        claim.fruitless += 1;
        return News::None;
    }
    claim.fruitless = 0;
    match claim.contested_since {
        None => {
            claim.contested_since = Some(now);
            News::Contested
        }
        Some(since) if now.since(since) < CONTEST => News::None,
        Some(_) => {
            lose(holder, now);
            prove(claim, now);
            News::Moved
        }
    }
}

fn prove(claim: &mut Domain, now: Timestamp) {
    claim.verified_at = Some(now);
    (claim.reason, claim.contested_since, claim.missing_since, claim.pending_since) = (None, None, None, None);
    (claim.fruitless, claim.looks) = (0, 0);
}

fn lose(holder: &mut Domain, now: Timestamp) {
    (holder.verified_at, holder.attached_at, holder.proven_by) = (None, None, None);
    holder.reason = Some(ProofReason::LostOwnership);
    (holder.next_check_at, holder.contested_since, holder.passkeys_at) = (None, None, None);
    status::set(holder, Status::Failed, Some(Reason::LostOwnership), now);
}

/// A claim whose record does not show up is given up.
fn give_up(claim: &mut Domain, now: Timestamp) {
    let is_over = now.since(claim.pending_since.unwrap_or(claim.created_at)) >= status::PATIENCE;
    if claim.verified_at.is_none() && claim.contested_since.is_none() && is_over {
        claim.reason = Some(ProofReason::TimedOut);
    }
}

/// A domain that was given up begins anew.
pub fn start_over(domain: &mut Domain, now: Timestamp) {
    (domain.pending_since, domain.fruitless, domain.looks) = (Some(now), 0, 0);
    domain.next_check_at = Some(now);
    if domain.status == Status::Failed {
        let status = if domain.verified_at.is_some() { Status::PendingDns } else { Status::PendingOwnership };
        (domain.status, domain.status_since) = (status, now);
    }
}

/// Whether the app has a site that a domain can lead to, and whether certificates are ordered here.
pub async fn ground(tx: &mut Tx, janua: &Janua, domain: &Domain) -> db::Result<Ground> {
    let settings = janua.config.of::<Settings>();
    Ok(Ground {
        orders_certificates: settings.orders_certificates(),
        has_certificate: certificates::is_live(tx, &domain.domain, janua.clock.now()).await?,
        has_site: super::has_site(tx, domain.app_id).await?,
    })
}

/// Notes what a check of a domain found, and does what follows from it. Answers the domain as it is then; none when it is
/// another one by now.
pub async fn note(tx: &mut Tx, janua: &Janua, by: &By, domain: &Domain, look: &Look) -> Result<Option<Domain>> {
    let Some((mut domain, mut holder)) = domain.hold(tx).await? else { return Ok(None) };
    let (now, before) = (janua.clock.now(), domain.status);
    // Whoever asks anew for one that was given up begins anew.
    if domain.next_check_at.is_none() {
        start_over(&mut domain, now);
    }
    domain.looks += 1;
    let mut news = settle(&mut domain, holder.as_mut(), &look.texts, now);
    if domain.verified_at.is_none()
        && holder.is_none()
        && let Some(above) = Domain::covering(tx, domain.org_id, &domain.domain).await?
    {
        prove(&mut domain, now);
        domain.proven_by = Some(above.id);
        news = News::Verified;
    } else if domain.proven_by.is_some() && stands(&domain, &look.texts) {
        // It has a record of its own by now, and needs the other one no more.
        domain.proven_by = None;
    }
    give_up(&mut domain, now);
    if let Some(seen) = &look.seen {
        domain.found = Some(seen.clone());
    }
    if news == News::Verified || news == News::Moved {
        status::set(&mut domain, Status::PendingDns, None, now);
    }
    let ground = ground(tx, janua, &domain).await?;
    let changes = status::advance(&mut domain, look.route, ground, now);
    let is_stuck = domain.status == Status::PendingDns && domain.is_listed && domain.status_reason.is_some();
    if domain.verified_at.is_some() {
        domain.fruitless = if is_stuck && domain.status == before { domain.fruitless + 1 } else { 0 };
    }
    status::plan(&mut domain, now, Duration::from_millis(janua.entropy.up_to(SPREAD_MS)));
    if let Some(holder) = &mut holder {
        if news == News::Contested && holder.warned_at.is_none_or(|at| now.since(at) >= DAY) {
            holder.warned_at = Some(now);
            tell(tx, janua, holder, DomainNews::Contested).await?;
        }
        // Before the other one has it: one at a time has proven a name.
        holder.save(tx, janua).await?;
        if news == News::Moved {
            release(tx, janua, holder).await?;
        }
    }
    let is_told = domain.status == Status::Misconfigured && domain.told_at.is_none_or(|at| now.since(at) >= DAY);
    if is_told {
        domain.told_at = Some(now);
        tell(tx, janua, &domain, DomainNews::Misconfigured).await?;
    }
    domain.save(tx, janua).await?;
    let proven = if domain.verified_at.is_some() { Some(&domain) } else { holder.as_ref() };
    if proven.is_some_and(|proven| proven.missing_since.is_none()) {
        Domain::end_contests(tx, &domain.domain).await?;
    }
    record(tx, janua, by, &domain, holder.as_ref(), &news).await?;
    record_changes(tx, janua, by, &domain, before, &changes).await?;
    if domain.status == Status::Issuing {
        certificates::order_for(tx, janua, &domain).await?;
    }
    Ok(Some(domain))
}

async fn record(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    domain: &Domain,
    holder: Option<&Domain>,
    news: &News,
) -> Result<()> {
    let name = domain.domain.clone();
    match (news, holder) {
        (News::Verified, _) => {
            let application = domain.application(tx).await?;
            events::record(tx, janua, by, About::app(&application), &DomainVerified { domain: name }).await?;
        }
        (News::Moved, Some(holder)) => {
            let (winner, loser) = (domain.application(tx).await?, holder.application(tx).await?);
            let gained = DomainMoved { domain: name.clone(), outcome: "gained" };
            events::record(tx, janua, by, About::app(&winner), &gained).await?;
            let lost = DomainMoved { domain: name, outcome: "lost" };
            events::record(tx, janua, &By::default(), About::app(&loser), &lost).await?;
            tell(tx, janua, domain, DomainNews::Gained).await?;
            tell(tx, janua, holder, DomainNews::Lost).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn record_changes(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    domain: &Domain,
    before: Status,
    changes: &[status::News],
) -> Result<()> {
    if changes.is_empty() && domain.status == before {
        return Ok(());
    }
    let (application, name) = (domain.application(tx).await?, domain.domain.clone());
    let about = About::app(&application);
    for change in changes {
        match change {
            status::News::Attached => {
                events::record(tx, janua, by, about, &DomainAttached { domain: name.clone() }).await?;
            }
            status::News::Active => {
                events::record(tx, janua, by, about, &DomainActive { domain: name.clone() }).await?;
            }
            status::News::Misconfigured => {
                let reason = domain.status_reason.map_or("points_elsewhere", Reason::name);
                events::record(tx, janua, by, about, &DomainMisconfigured { domain: name.clone(), reason }).await?;
            }
            status::News::Detached => certificates::destroy(tx, domain).await?,
        }
    }
    if domain.status != before && (domain.status == Status::Active || before == Status::Active) {
        origins_changed(tx, domain.app_id).await?;
    }
    Ok(())
}

/// The certificate of a domain was issued: it is served, if it was waiting for that.
pub async fn certified(tx: &mut Tx, janua: &Janua, domain: &Domain) -> Result<()> {
    let Some((mut domain, _)) = domain.hold(tx).await? else { return Ok(()) };
    if domain.status != Status::Issuing {
        return Ok(());
    }
    let ground = ground(tx, janua, &domain).await?;
    let changes = status::advance(&mut domain, Some(Ok(())), ground, janua.clock.now());
    status::plan(&mut domain, janua.clock.now(), Duration::from_millis(janua.entropy.up_to(SPREAD_MS)));
    domain.save(tx, janua).await?;
    record_changes(tx, janua, &By::default(), &domain, Status::Issuing, &changes).await
}

/// Pages of an active domain are the app's own: every node reads its origins anew.
pub async fn origins_changed(tx: &mut Tx, app: ApplicationId) -> db::Result<()> {
    tx.notify(db::Reach::EveryNode, tenancy::apps::TOPIC, app.to_string()).await
}

/// Ends what a proof was good for, in the transaction in which it is lost: the certificate's key, names below it, its origin.
pub async fn release(tx: &mut Tx, janua: &Janua, lost: &Domain) -> db::Result<()> {
    certificates::destroy(tx, lost).await?;
    for uncovered in Domain::uncover(tx, lost.id, janua.clock.now()).await? {
        certificates::destroy(tx, &uncovered).await?;
        uncovered.unroute(tx).await?;
        origins_changed(tx, uncovered.app_id).await?;
    }
    origins_changed(tx, lost.app_id).await
}

/// Writes to the admins of the app of a domain.
pub async fn tell(tx: &mut Tx, janua: &Janua, domain: &Domain, news: DomainNews) -> Result<()> {
    let application = domain.application(tx).await?;
    let page = format!("/console/apps/{}/domains", application.id);
    for reader in orgs::admins_to_mail(tx, application.org_id).await? {
        let (app_name, domain) = (application.name.clone(), domain.domain.clone());
        let letter = DomainMail { name: reader.name, app: app_name, domain, page: page.clone(), news };
        mail::send(tx, janua, &reader.email, &letter).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kernel::{entropy::Entropy, id::Id};

    use super::*;

    const START: Timestamp = Timestamp(1_769_853_600_000);

    fn claim(seed: u64, verified: bool) -> Domain {
        let entropy = Entropy::seeded(seed);
        let (id, app, org) = (Id::new(&entropy, START), Id::new(&entropy, START), Id::new(&entropy, START));
        let mut claim = Domain::new(id, (app, org), "example.com".into(), format!("token-{seed}"), START);
        claim.verified_at = verified.then_some(START);
        claim
    }

    const GROUND: Ground = Ground { orders_certificates: true, has_certificate: false, has_site: true };

    fn after(hours: u64) -> Timestamp {
        START.plus(Duration::from_hours(hours))
    }

    fn texts(tokens: &[&str]) -> Vec<String> {
        tokens.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_moves_when_the_new_record_stands_alone_twice_a_day_apart() {
        let (mut holder, mut other) = (claim(1, true), claim(2, false));
        let mut at = |hours: u64, tokens: &[&str]| {
            let news = settle(&mut other, Some(&mut holder), &texts(tokens), after(hours));
            (news, other.contested_since, holder.verified_at.is_some())
        };
        assert_eq!(at(0, &["token-2"]), (News::Contested, Some(after(0)), true));
        assert_eq!(at(23, &["token-2"]), (News::None, Some(after(0)), true), "not yet");
        assert_eq!(at(24, &["token-1", "token-2"]), (News::None, None, true), "the holder's is back");
        assert_eq!(at(25, &["token-2"]), (News::Contested, Some(after(25)), true), "from the start");
        assert_eq!(at(40, &[]), (News::None, None, true), "a dropped record alone loses nothing to a stranger");
        assert_eq!(at(50, &["token-2", "x"]), (News::Contested, Some(after(50)), true));
        assert_eq!(at(74, &["token-2"]), (News::Moved, None, false));
        assert_eq!((holder.reason, other.verified_at), (Some(ProofReason::LostOwnership), Some(after(74))));
        assert_eq!(holder.next_check_at, None);
    }

    #[test]
    fn a_proven_domain_stays_so_and_says_that_its_record_is_gone() {
        let mut holder = claim(1, true);
        for hours in 0..1000 {
            assert_eq!(settle(&mut holder, None, &texts(&["other"]), after(hours)), News::None);
        }
        assert_eq!((holder.reason, holder.missing_since), (Some(ProofReason::TxtWrong), Some(after(0))));
        assert_eq!(holder.verified_at, Some(START));
        settle(&mut holder, None, &texts(&[" token-1 "]), after(1000));
        assert_eq!((holder.reason, holder.missing_since), (None, None));
    }

    #[test]
    fn looks_become_rarer_and_end() {
        let mut waiting = claim(1, false);
        let (mut now, mut looks) = (START, 0);
        while let Some(next) = waiting.next_check_at {
            now = next;
            waiting.looks += 1;
            settle(&mut waiting, None, &[], now);
            give_up(&mut waiting, now);
            status::advance(&mut waiting, None, GROUND, now);
            status::plan(&mut waiting, now, Duration::ZERO);
            looks += 1;
        }
        assert_eq!(waiting.reason, Some(ProofReason::TimedOut));
        assert_eq!((waiting.status, waiting.status_reason), (Status::Failed, Some(Reason::TimedOut)));
        assert!(now >= START.plus(status::PATIENCE) && (60..80).contains(&looks), "{looks}");
        let mut proven = claim(2, true);
        status::advance(&mut proven, None, GROUND, START);
        status::plan(&mut proven, START, Duration::ZERO);
        assert_eq!(proven.next_check_at, Some(after(24)), "daily");
    }

    /// A proven name of a site that is switched on by itself.
    fn served() -> Domain {
        Domain { is_listed: true, is_automatic: true, ..claim(1, true) }
    }

    #[test]
    fn a_domain_becomes_active_by_what_checks_find() {
        let mut domain = served();
        let mut at = |minutes: u64, route, ground: Ground| {
            let news = status::advance(&mut domain, route, ground, START.plus(Duration::from_mins(minutes)));
            (domain.status, domain.status_reason, news)
        };
        let nx = Some(Err(Reason::Nxdomain));
        assert_eq!(at(0, nx, GROUND), (Status::PendingDns, Some(Reason::Nxdomain), vec![]));
        assert_eq!(at(1, None, GROUND).1, Some(Reason::DnsUnavailable));
        let here = Some(Ok(()));
        assert_eq!(at(2, here, GROUND), (Status::Issuing, None, vec![status::News::Attached]));
        assert_eq!(at(3, here, GROUND).0, Status::Issuing);
        assert_eq!(at(4, Some(Err(Reason::PointsElsewhere)), GROUND).0, Status::PendingDns, "no order for it");
        assert_eq!(at(5, here, GROUND).0, Status::Issuing);
        let certified = Ground { has_certificate: true, ..GROUND };
        assert_eq!(at(6, here, certified), (Status::Active, None, vec![status::News::Active]));
        assert_eq!(at(7, here, certified), (Status::Active, None, vec![]), "said once");
        let external = Ground { orders_certificates: false, ..GROUND };
        let mut behind_a_proxy = served();
        status::advance(&mut behind_a_proxy, here, external, START);
        assert_eq!(behind_a_proxy.status, Status::Active);
    }

    #[test]
    fn f_w8_an_active_domain_stays_so_while_dns_flaps() {
        let certified = Ground { has_certificate: true, ..GROUND };
        let mut domain = Domain { status: Status::Active, attached_at: Some(START), ..served() };
        let elsewhere = Some(Err(Reason::PointsElsewhere));
        for minute in 0..60 {
            // Nothing, half the answers, nothing, the right ones.
            let route = [None, Some(Err(Reason::MixedAnswers)), None, Some(Ok(()))][minute % 4];
            let now = START.plus(Duration::from_mins(minute as u64));
            assert_eq!(status::advance(&mut domain, route, certified, now), vec![]);
            assert_eq!(domain.status, Status::Active, "after {minute} minutes");
        }
        // Three checks within an hour are not enough, nor two over a day.
        for (minute, status) in [(100, Status::Active), (110, Status::Active), (130, Status::Active)] {
            status::advance(&mut domain, elsewhere, certified, START.plus(Duration::from_mins(minute)));
            assert_eq!(domain.status, status);
        }
        let news = status::advance(&mut domain, elsewhere, certified, after(3));
        assert_eq!((domain.status, news), (Status::Misconfigured, vec![status::News::Misconfigured]));
        assert!(domain.is_served(), "while its certificate lives");
        status::advance(&mut domain, Some(Ok(())), certified, after(4));
        assert_eq!(domain.status, Status::Active);
        for hours in [10, 12, 14, 16] {
            status::advance(&mut domain, elsewhere, certified, after(hours));
        }
        let news = status::advance(&mut domain, elsewhere, certified, after(16 + 7 * 24));
        assert_eq!((domain.status, domain.status_reason), (Status::Failed, Some(Reason::Moved)));
        assert!(news == vec![status::News::Detached] && !domain.is_served());
    }
}
