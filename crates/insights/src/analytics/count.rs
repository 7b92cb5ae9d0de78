//! From what happened to the counters: a tally in the transaction of the act, and counting in one of its own.
use std::collections::{BTreeMap, BTreeSet};

use db::Tx;
use kernel::{Janua, fault::Result, transact};
use serde_json::Value;
use tenancy::{
    apps::Application,
    events::watch::{self, Occurrence, What},
    ids::{AccountId, ApplicationId, EventId, OrgId},
};

use super::{
    days::Seen,
    funnels::{self, Reached, SECOND_ASKED, SEEN},
    model::{self, Counters, Tally},
    zones::{KnownZones, Zones, month_of, week_of},
};

/// How many tallies one transaction counts: on SQLite other writers wait for it.
const AT_ONCE: u32 = 500;

/// Leaves a tally of what happened, in its transaction.
pub async fn note(
    tx: &mut Tx,
    janua: &Janua,
    Occurrence { app, person, at, what }: Occurrence<'_>,
) -> db::Result<()> {
    let (id, kind, method) = match what {
        What::Event { id, kind, details } => (id, kind, method_in(details)),
        What::SecondFactorAsked => (EventId::new(&janua.entropy, at), SECOND_ASKED, String::new()),
        What::Refreshed { before } => {
            // The first refresh of a day says that the person was there; the others add nothing.
            let zones = janua.own::<KnownZones>().of_app(tx, app).await?;
            if zones.day_of(before) == zones.day_of(at) {
                return Ok(());
            }
            (EventId::new(&janua.entropy, at), SEEN, String::new())
        }
    };
    let (id, kind) = (id.to_string(), kind.to_owned());
    Tally { id, app_id: app, kind, method, account_id: person, at }.insert(tx).await
}

/// How a person signed in: the first of the methods.
fn method_in(details: &Value) -> String {
    details["methods"][0].as_str().unwrap_or_default().to_owned()
}

/// Counts what waits, the oldest first; answers how many tallies there were.
pub async fn count_some(janua: &Janua) -> Result<usize> {
    if !model::is_waiting(&janua.db).await? {
        return Ok(0);
    }
    janua.carry(janua.clone(), |tx, janua| Box::pin(take_and_count(tx, janua))).await
}

async fn take_and_count(tx: &mut Tx, _: &Janua) -> Result<usize> {
    model::take_turn(tx).await?;
    let tallies = Tally::take(tx, AT_ONCE).await?;
    let count = tallies.len();
    count_all(tx, tallies).await?;
    Ok(count)
}

/// Counts what waits before figures are read: all of it, since figures are never late. A batch that is not full was the last
/// one. A reader that is cut off in a large backlog leaves what it counted to the next.
pub async fn catch_up(janua: &Janua) -> Result<()> {
    while count_some(janua).await? >= AT_ONCE as usize {}
    Ok(())
}

/// Counts events from before there was analytics, the oldest first; answers how many there were.
pub async fn count_past(janua: &Janua) -> Result<usize> {
    transact!(janua, async |tx| {
        model::take_turn(tx).await?;
        let past = watch::take_past(tx, AT_ONCE).await?;
        let count = past.len();
        let tallies = past.into_iter().map(|event| Tally {
            id: event.id,
            app_id: event.app,
            kind: event.kind,
            method: method_in(&event.details),
            account_id: event.person,
            at: event.at,
        });
        count_all(tx, tallies.collect()).await?;
        Ok(count)
    })
}

/// Counts what a person left, and forgets the person: only counts stay.
pub async fn forget_person(tx: &mut Tx, _: &Janua, account: AccountId) -> db::Result<()> {
    model::take_turn(tx).await?;
    let tallies = Tally::take_of(tx, account).await?;
    count_all(tx, tallies).await?;
    model::forget_person(tx, account).await
}

/// The organization and the days of an app.
struct Place {
    org: OrgId,
    zones: Zones,
}

async fn count_all(tx: &mut Tx, mut tallies: Vec<Tally>) -> db::Result<()> {
    tallies.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    let mut places: BTreeMap<ApplicationId, Option<Place>> = BTreeMap::new();
    let mut counters = Counters::default();
    let mut seen: BTreeMap<(String, AccountId), BTreeSet<i64>> = BTreeMap::new();
    let mut steps: BTreeMap<(ApplicationId, AccountId), Vec<(Tally, i64)>> = BTreeMap::new();
    for tally in tallies {
        if let std::collections::btree_map::Entry::Vacant(vacant) = places.entry(tally.app_id) {
            let place = match Application::find(&mut *tx, tally.app_id).await? {
                Some(app) => Some(Place { org: app.org_id, zones: Zones::of_org(&mut *tx, app.org_id).await? }),
                None => None,
            };
            vacant.insert(place);
        }
        // What happened in an app that is gone went with it.
        let Some(Some(Place { org, zones })) = places.get(&tally.app_id) else { continue };
        let day = zones.day_of(tally.at);
        let scopes = [tally.app_id.to_string(), org.to_string()];
        if tally.is_event() {
            counters.event(&tally, &scopes, day);
        }
        let Some(account) = tally.account_id else { continue };
        if tally.shows_a_person() {
            for scope in scopes {
                seen.entry((scope, account)).or_default().insert(day);
            }
        }
        if tally.is_event() {
            counters.of_person(&tally, account, [("d", day), ("w", week_of(day)), ("m", month_of(day))]);
        }
        if funnels::concerns(&tally.kind, &tally.method) {
            steps.entry((tally.app_id, account)).or_default().push((tally, day));
        }
    }
    for ((scope, account), days) in seen {
        // Nothing of a person who is gone comes back.
        let Some(known) = model::seen(tx, &scope, account).await? else { continue };
        let (mut now, is_new) = (known, known.is_none());
        for day in days {
            let (with, changes) = Seen::add(now, day);
            for change in changes {
                counters.gap(&scope, change);
            }
            now = Some(with);
        }
        if let Some(now) = now.filter(|now| Some(*now) != known) {
            model::save_seen(tx, &scope, account, now).await?;
        }
        if is_new {
            counters.person(&scope, 1);
        }
    }
    for ((app, account), tallies) in steps {
        let mut reached = model::steps_of(tx, app, account).await?;
        for (tally, day) in tallies {
            let new = funnels::advance(&reached, &tally.kind, &tally.method, day, tally.at);
            reached.extend(&new);
            for step in new {
                model::save_step(tx, app, account, step).await?;
                let began = reached.iter().find(|one| Reached { step: 0, at: one.at, ..step } == **one);
                if let Some(within) = began.and_then(|began| funnels::within(began.at, step.at)) {
                    counters.step(app, step, within);
                }
            }
        }
    }
    counters.save(tx).await
}
