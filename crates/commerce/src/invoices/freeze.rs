//! Freezes the usage of a period into lines of its invoice. We count ourselves: what is billed can be recomputed from events.
use std::time::Duration;

use kernel::{Janua, clock::Timestamp, fault::Result, jobs::Later, transact};
use tenancy::apps::{Application, ApplicationId, Environment};

use super::model::{Item, ItemId, quarter_at};
use crate::{
    billing::model::Subject,
    payments::{Driver, NoAnswer, money, read::Invoice},
    plans::{Plans, TrackedMeter},
    usage,
};

/// Usage can come this late; older periods do not change any more.
const LATE: Duration = Duration::from_hours(24 * 100);

/// What a meter counted in a period, all apps of a subject together.
pub async fn quantity(
    janua: &Janua,
    apps: &[ApplicationId],
    meter: &TrackedMeter,
    from: Timestamp,
    to: Timestamp,
) -> Result<i64> {
    let (from, to) = (quarter_at(from), quarter_at(to));
    let mut sum = 0_i64;
    for app in apps {
        sum = sum.saturating_add(usage::total_of(janua, *app, Environment::Live, meter, from, to).await?);
    }
    Ok(sum)
}

/// The apps whose usage a subject pays for: its own, or those of the organization without a plan of their own.
pub async fn apps_of(janua: &Janua, subject: &Subject) -> Result<Vec<ApplicationId>> {
    if let Some(app) = subject.app() {
        return Ok(vec![app]);
    }
    let others = Subject::all_of(&janua.db, subject.org_id).await?;
    let pays_itself =
        |app: &Application| others.iter().any(|other| other.app_id == app.id.to_string() && other.is_subscribed());
    let apps = Application::of_org(&janua.db, subject.org_id).await?;
    Ok(apps.iter().filter(|app| !pays_itself(app)).map(|app| app.id).collect())
}

/// How many months a period has: what a plan includes is for each of them.
fn months(from: Timestamp, to: Timestamp) -> i64 {
    let days = (to.0 - from.0) / Timestamp::DAY_MS;
    ((days + 15) / 30).max(1)
}

/// Freezes the period that an invoice closes, and what came late for earlier ones.
pub async fn freeze(janua: &Janua, subject: &Subject, invoice: &Invoice) -> Result<()> {
    let Some(subscription) = &invoice.subscription else { return Ok(()) };
    let plans = Plans::of(janua);
    let was_before = subject.last_plan_until.is_some_and(|until| invoice.period_end <= until);
    let name = subject.last_plan.as_deref().filter(|_| was_before).unwrap_or(&subject.plan);
    let Some(plan) = plans.find(name) else { return Ok(()) };
    let apps = apps_of(janua, subject).await?;
    let (mut items, now) = (vec![], janua.clock.now());
    let since = invoice.period_start.minus(LATE);
    let frozen = Item::since(&janua.db, subscription, since).await?;
    for (meter, limit) in plan.limits.iter().filter_map(|(meter, limit)| Some((plans.meters.get(meter)?, limit))) {
        let Some(unit_price) = &limit.overage else { continue };
        let make = |period: (Timestamp, Timestamp),
                    revision: i64,
                    used: i64,
                    included: i64,
                    quantity: i64,
                    label: String| {
            let amount = money::line(quantity, unit_price)?;
            Some(Item {
                id: ItemId::new(&janua.entropy, now),
                subject_id: subject.id,
                subscription: subscription.clone(),
                meter: meter.meter.name.to_string(),
                period_start: period.0,
                period_end: period.1,
                revision,
                used,
                included,
                quantity,
                unit_price: unit_price.clone(),
                amount,
                currency: invoice.currency.clone(),
                label,
                invoice: invoice.id.clone(),
                // What costs nothing is written down, and not sent.
                processor_id: (amount == 0).then(String::new),
                created_at: now,
            })
        };
        let (from, to) = (invoice.period_start, invoice.period_end);
        let used = quantity(janua, &apps, meter, from, to).await?;
        let included = limit.included.saturating_mul(months(from, to));
        let over = (used - included).max(0);
        let label = format!("{}: {over} {} beyond {included}", meter.meter.name, meter.meter.unit);
        items.extend(make((from, to), 0, used, included, over, label));
        if !plans.bills_late_usage {
            continue;
        }
        let mut periods: Vec<&Item> = vec![];
        for item in frozen.iter().filter(|item| *item.meter == *meter.meter.name && item.period_start != from) {
            match periods.last_mut() {
                Some(last) if last.period_start == item.period_start => *last = item,
                _ => periods.push(item),
            }
        }
        for last in periods {
            let period = (last.period_start, last.period_end);
            let used = quantity(janua, &apps, meter, period.0, period.1).await?;
            let late = (used - last.included).max(0) - (last.used - last.included).max(0);
            if used != last.used {
                let label = format!("late: {} {}", &period.0.to_string()[..7], meter.meter.name);
                items.extend(make(period, last.revision + 1, used, last.included, late, label));
            }
        }
    }
    transact!(janua, async |tx| {
        Item::carry_over(tx, subscription, &invoice.id).await?;
        for item in &items {
            item.insert(tx).await?;
        }
        Ok(())
    })
}

/// Adds the frozen lines to the draft, each once: by its key at the processor, and by looking what is there.
pub async fn add_items(janua: &Janua, driver: &Driver, subject: &Subject, invoice: &str) -> Result<()> {
    let items: Vec<_> = Item::of_invoice(&janua.db, invoice).await?;
    let waiting: Vec<_> = items.into_iter().filter(|item| item.processor_id.is_none()).collect();
    let Some(customer) = subject.customer.as_deref().filter(|_| !waiting.is_empty()) else { return Ok(()) };
    let there = driver.invoice_items(janua, invoice).await?;
    for item in waiting {
        let known = there.iter().find(|(key, _)| *key == item.key()).map(|(_, id)| id.clone());
        let added = match known {
            Some(id) => id,
            None => {
                let key = format!("janua-{}-{}-{invoice}", item.subscription, item.key());
                match driver.add_invoice_item(janua, &key, customer, &item).await {
                    Ok(id) => id,
                    // The draft became an invoice meanwhile: the next one takes the line.
                    Err(NoAnswer::Refused { .. } | NoAnswer::Missing) => continue,
                    Err(why) => return Err(why.into()),
                }
            }
        };
        transact!(janua, async |tx| Ok(Item::set_added(tx, item.id, &added).await?))?;
    }
    Ok(())
}

/// Goes on with lines that a dead process left.
pub async fn add_waiting(janua: &Janua, driver: &Driver, before: Timestamp) -> Result<(), Later> {
    let mut invoices: Vec<_> =
        Item::waiting(&janua.db, before).await?.into_iter().map(|item| (item.invoice, item.subject_id)).collect();
    invoices.sort();
    invoices.dedup();
    for (invoice, subject) in invoices {
        if let Some(subject) = Subject::find(&janua.db, subject).await? {
            add_items(janua, driver, &subject, &invoice).await?;
        }
    }
    Ok(())
}
