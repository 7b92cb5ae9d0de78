//! Looking at the records of a name, and what is to be made of them: a domain is proven while its record stands, and goes to
//! another app only when that one's record stands in its place.
use std::time::Duration;

use db::Tx;
use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    jobs::{Job, Later},
    ports::dns::Resolver,
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    events::{self, About, By},
    messages::mail,
    orgs,
};

use super::{
    claim::{Claim, Reason},
    mails::{DomainMail, DomainNews},
};
use crate::events::{DomainMoved, DomainVerified};

const DAY: Duration = Duration::from_hours(24);
/// How long the record of another app must stand alone before the name moves. Always, though no name serves anything yet:
/// tokens are meant for the places of whoever has proven a domain.
const CONTEST: Duration = DAY;
/// A claim whose record never shows up is given up.
const PENDING: Duration = Duration::from_hours(7 * 24);
/// The first look after a claim; each fruitless one doubles the wait.
pub const FIRST_WAIT: Duration = Duration::from_mins(1);
const LONGEST_WAIT: Duration = Duration::from_hours(4);
const SPREAD_MS: u64 = 60 * 60 * 1000;
/// How much of what stands at a name is kept.
const MOST_SEEN: usize = 20;
const LONGEST_SEEN: usize = 255;

/// What a look changed, beside being noted.
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

fn stands(claim: &Claim, texts: &[String]) -> bool {
    texts.iter().any(|text| text.trim() == claim.token)
}

/// Notes on the claim that has the name whether its proof stands.
fn note_holder(holder: &mut Claim, texts: &[String], now: Timestamp) -> bool {
    let is_there = stands(holder, texts);
    holder.missing_since = if is_there { None } else { holder.missing_since.or(Some(now)) };
    holder.reason = (!is_there).then(|| absence(texts));
    holder.checked_at = Some(now);
    holder.seen = Some(kept(texts));
    is_there
}

fn absence(texts: &[String]) -> Reason {
    if texts.is_empty() { Reason::TxtMissing } else { Reason::TxtWrong }
}

fn kept(texts: &[String]) -> Vec<String> {
    // A text column cannot keep NUL.
    let short = |text: &String| text.replace('\0', "\u{fffd}").chars().take(LONGEST_SEEN).collect();
    texts.iter().take(MOST_SEEN).map(short).collect()
}

/// What the records mean for a claim, and for the other app that has proven the name, if there is one.
fn settle(claim: &mut Claim, holder: Option<&mut Claim>, texts: &[String], now: Timestamp) -> News {
    if claim.verified_at.is_some() {
        note_holder(claim, texts, now);
        claim.fruitless = 0;
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
    claim.reason = Some(Reason::Contested);
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
            holder.verified_at = None;
            holder.reason = Some(Reason::LostOwnership);
            (holder.next_check_at, holder.contested_since) = (None, None);
            prove(claim, now);
            News::Moved
        }
    }
}

fn prove(claim: &mut Claim, now: Timestamp) {
    claim.verified_at = Some(now);
    (claim.reason, claim.contested_since, claim.missing_since, claim.pending_since) = (None, None, None, None);
    claim.fruitless = 0;
}

/// When it is looked at next, by itself.
fn plan(claim: &mut Claim, now: Timestamp, spread: Duration) {
    let wait = FIRST_WAIT.saturating_mul(1 << claim.fruitless.min(16)).min(LONGEST_WAIT);
    let is_over = now.since(claim.pending_since.unwrap_or(claim.created_at)) >= PENDING;
    claim.next_check_at = match (claim.verified_at, claim.contested_since) {
        (Some(_), _) => Some(now.plus(DAY + spread)),
        (None, Some(since)) => Some(now.plus(LONGEST_WAIT).min(since.plus(CONTEST)).max(now.plus(FIRST_WAIT))),
        (None, None) if is_over => {
            claim.reason = Some(Reason::TimedOut);
            None
        }
        (None, None) => Some(now.plus(wait)),
    };
}

/// Notes what stands at the name of a claim, and does what follows from it. Answers the claim as it is then; nothing when it
/// is another one by now.
pub async fn note(tx: &mut Tx, janua: &Janua, by: &By, claim: &Claim, texts: &[String]) -> Result<Option<Claim>> {
    let Some((mut claim, mut holder)) = claim.hold(tx).await? else { return Ok(None) };
    let now = janua.clock.now();
    // Whoever asks anew for one that was given up begins anew.
    if claim.next_check_at.is_none() {
        (claim.pending_since, claim.fruitless) = (Some(now), 0);
    }
    let news = settle(&mut claim, holder.as_mut(), texts, now);
    plan(&mut claim, now, Duration::from_millis(janua.entropy.up_to(SPREAD_MS)));
    if let Some(holder) = &mut holder {
        if news == News::Contested && holder.warned_at.is_none_or(|at| now.since(at) >= DAY) {
            holder.warned_at = Some(now);
            tell(tx, janua, holder, DomainNews::Contested).await?;
        }
        // Before the other one has it: one at a time has proven a name.
        holder.save(tx).await?;
    }
    claim.save(tx).await?;
    let proven = if claim.verified_at.is_some() { Some(&claim) } else { holder.as_ref() };
    if proven.is_some_and(|proven| proven.missing_since.is_none()) {
        Claim::end_contests(tx, &claim.domain).await?;
    }
    let domain = claim.domain.clone();
    match (news, &holder) {
        (News::Verified, _) => {
            let application = claim.application(tx).await?;
            events::record(tx, janua, by, About::app(&application), &DomainVerified { domain }).await?;
        }
        (News::Moved, Some(holder)) => {
            let (winner, loser) = (claim.application(tx).await?, holder.application(tx).await?);
            let gained = DomainMoved { domain: domain.clone(), outcome: "gained" };
            events::record(tx, janua, by, About::app(&winner), &gained).await?;
            let lost = DomainMoved { domain, outcome: "lost" };
            events::record(tx, janua, &By::default(), About::app(&loser), &lost).await?;
            tell(tx, janua, &claim, DomainNews::Gained).await?;
            tell(tx, janua, holder, DomainNews::Lost).await?;
        }
        _ => {}
    }
    Ok(Some(claim))
}

/// Writes to those who look after the app of a claim.
async fn tell(tx: &mut Tx, janua: &Janua, claim: &Claim, news: DomainNews) -> Result<()> {
    let application = claim.application(tx).await?;
    let page = format!("/console/apps/{}/domain", application.id);
    for reader in orgs::admins_to_mail(tx, application.org_id).await? {
        let (app_name, domain) = (application.name.clone(), claim.domain.clone());
        let letter = DomainMail { name: reader.name, app: app_name, domain, page: page.clone(), news };
        mail::send(tx, janua, &reader.email, &letter).await?;
    }
    Ok(())
}

/// Looks at every domain whose time has come.
#[derive(Default, Serialize, Deserialize)]
pub struct LookAtDomains {}

/// How often that is.
pub const EVERY: Duration = Duration::from_mins(5);
const BATCH: u32 = 100;
/// The rest waits for the next time.
const MOST_BATCHES: usize = 20;
const AT_ONCE: usize = 8;

impl Job for LookAtDomains {
    const KIND: &'static str = "domain.look";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for _ in 0..MOST_BATCHES {
            let due = Claim::due(&janua.db, janua.clock.now(), BATCH).await?;
            let is_last = due.len() < BATCH as usize;
            let looks = stream::iter(due).map(|claim| look(&janua, claim)).buffer_unordered(AT_ONCE);
            let failed = looks.filter_map(async |outcome| outcome.err()).collect::<Vec<_>>().await;
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

async fn look(janua: &Janua, claim: Claim) -> Result<()> {
    match janua.own::<Resolver>().texts(&super::record_name(&claim.domain)).await {
        Ok(texts) => {
            transact!(janua, async |tx| note(tx, janua, &By::default(), &claim, &texts).await)?;
        }
        Err(error) => {
            tracing::debug!(%error, domain = claim.domain, "no name server answers for a domain; looking again later");
            let longest = if claim.verified_at.is_some() { DAY } else { LONGEST_WAIT };
            let wait = (10 * FIRST_WAIT).saturating_mul(1 << claim.fruitless.min(16)).min(longest);
            claim.postpone(&janua.db, janua.clock.now().plus(wait)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kernel::{entropy::Entropy, id::Id};

    use super::*;

    const START: Timestamp = Timestamp(1_769_853_600_000);

    fn claim(seed: u64, verified: bool) -> Claim {
        let id = Id::new(&Entropy::seeded(seed), START);
        let token = format!("token-{seed}");
        let mut claim = Claim::new(id, "example.com".into(), token, START, START);
        claim.verified_at = verified.then_some(START);
        claim
    }

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
        assert_eq!((holder.reason, other.verified_at), (Some(Reason::LostOwnership), Some(after(74))));
        assert_eq!(holder.next_check_at, None);
    }

    #[test]
    fn a_proven_domain_stays_so_and_says_that_its_record_is_gone() {
        let mut holder = claim(1, true);
        for hours in 0..1000 {
            assert_eq!(settle(&mut holder, None, &texts(&["other"]), after(hours)), News::None);
        }
        assert_eq!((holder.reason, holder.missing_since), (Some(Reason::TxtWrong), Some(after(0))));
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
            settle(&mut waiting, None, &[], now);
            plan(&mut waiting, now, Duration::ZERO);
            looks += 1;
        }
        assert_eq!(waiting.reason, Some(Reason::TimedOut));
        assert!(now >= START.plus(PENDING) && (20..75).contains(&looks), "{looks}");
        let mut proven = claim(2, true);
        plan(&mut proven, START, Duration::ZERO);
        assert_eq!(proven.next_check_at, Some(after(24)), "daily");
    }
}
