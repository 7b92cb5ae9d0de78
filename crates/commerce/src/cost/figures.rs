//! The figures of the report: revenue, costs and what has no price, by organization and app.
use std::collections::{BTreeMap, BTreeSet};

use db::{Db, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result};
use tenancy::{
    orgs::{Org, OrgId},
    quotas::{self, FIRST_PLAN, Meter, Period, UsedByOrg},
};

use crate::{
    payments::money::Exact,
    plans::{Cost, Plans},
    usage,
};

/// What a row of the report is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Of {
    pub org: String,
    pub app: String,
    pub currency: String,
}

impl Of {
    fn new(org: &str, app: &str, currency: &str) -> Self {
        Self { org: org.to_owned(), app: app.to_owned(), currency: currency.to_owned() }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub subscriptions: i64,
    pub overage: i64,
    pub merchant_fees: i64,
    pub refunds: i64,
    pub disputes: i64,
    pub metered: Exact,
    pub events: Exact,
    pub processor_fees: i64,
    pub fixed: Exact,
    /// Meter, quantity, unit cost and what they make together.
    pub lines: Vec<(String, i64, String, Exact)>,
    pub unpriced: BTreeSet<String>,
}

impl Figures {
    pub fn revenue(&self) -> Exact {
        Exact::whole(self.subscriptions + self.overage + self.merchant_fees - self.refunds - self.disputes)
    }

    pub fn cost(&self) -> Exact {
        self.metered + self.events + Exact::whole(self.processor_fees) + self.fixed
    }

    pub fn margin(&self) -> Exact {
        self.revenue().less(self.cost())
    }

    pub fn add(&mut self, other: &Self) {
        self.subscriptions += other.subscriptions;
        self.overage += other.overage;
        self.merchant_fees += other.merchant_fees;
        self.refunds += other.refunds;
        self.disputes += other.disputes;
        self.metered = self.metered + other.metered;
        self.events = self.events + other.events;
        self.processor_fees += other.processor_fees;
        self.fixed = self.fixed + other.fixed;
        self.unpriced.extend(other.unpriced.iter().cloned());
        for (meter, quantity, unit, amount) in &other.lines {
            match self.lines.iter_mut().find(|line| line.0 == *meter && line.2 == *unit) {
                Some(line) => {
                    line.1 = line.1.saturating_add(*quantity);
                    line.3 = line.3 + *amount;
                }
                None => self.lines.push((meter.clone(), *quantity, unit.clone(), *amount)),
            }
        }
    }
}

pub type Book = BTreeMap<Of, Figures>;

struct Invoiced {
    org_id: String,
    app_id: String,
    currency: String,
    paid: i64,
    overage: i64,
    refunded: i64,
    lost: i64,
    fee: i64,
}
row!(Invoiced { org_id, app_id, currency, paid, overage, refunded, lost, fee });

struct Shared {
    org_id: String,
    app_id: String,
    currency: String,
    fee: i64,
}
row!(Shared { org_id, app_id, currency, fee });

/// Everything from one moment to another. `by_app` keeps apps apart.
pub async fn collect(janua: &Janua, from: Timestamp, to: Timestamp, by_app: bool) -> Result<Book> {
    let mut book = Book::new();
    let of = |org: &str, app: &str, currency: &str| Of::new(org, if by_app { app } else { "" }, currency);
    for row in invoiced(&janua.db, from, to).await? {
        let figures = book.entry(of(&row.org_id, &row.app_id, &row.currency)).or_default();
        figures.subscriptions += row.paid - row.overage;
        figures.overage += row.overage;
        figures.refunds += row.refunded;
        figures.disputes += row.lost;
        figures.processor_fees += row.fee;
    }
    for row in shared(&janua.db, from, to).await? {
        book.entry(of(&row.org_id, &row.app_id, &row.currency)).or_default().merchant_fees += row.fee;
    }
    let plans = Plans::of(janua);
    for used in quantities(janua, from, to).await? {
        let figures = book.entry(of(&used.org, &used.app, &plans.currency)).or_default();
        match unit_cost(plans, &used.meter, used.at) {
            Some(unit) => {
                let amount = Exact::parse(unit).and_then(|unit| unit.times(used.quantity)).unwrap_or_default();
                let line = Figures {
                    metered: amount,
                    lines: vec![(used.meter, used.quantity, unit.to_owned(), amount)],
                    ..Figures::default()
                };
                figures.add(&line);
            }
            None => _ = figures.unpriced.insert(used.meter),
        }
    }
    for (app, org, cost, currency) in usage::event_costs(&janua.db, from, to).await? {
        let figures = book.entry(of(&org, &app, &currency)).or_default();
        figures.events = figures.events + cost;
    }
    spread(janua, from, to, &mut book).await?;
    Ok(book)
}

async fn invoiced(db: &Db, from: Timestamp, to: Timestamp) -> db::Result<Vec<Invoiced>> {
    db.all(
        "SELECT billing_subject.org_id, billing_subject.app_id, billing_invoice.currency,
                CAST(SUM(billing_invoice.paid) AS BIGINT) AS paid, CAST(SUM(billing_invoice.overage) AS BIGINT) AS overage,
                CAST(SUM(billing_invoice.refunded) AS BIGINT) AS refunded, CAST(SUM(billing_invoice.lost) AS BIGINT) AS lost,
                CAST(SUM(billing_invoice.fee) AS BIGINT) AS fee
         FROM billing_invoice JOIN billing_subject ON billing_subject.id = billing_invoice.subject_id
         WHERE billing_invoice.paid_at >= $1 AND billing_invoice.paid_at < $2 AND billing_invoice.paid_at IS NOT NULL
         GROUP BY billing_subject.org_id, billing_subject.app_id, billing_invoice.currency",
        params![from, to],
    )
    .await
}

async fn shared(db: &Db, from: Timestamp, to: Timestamp) -> db::Result<Vec<Shared>> {
    db.all(
        "SELECT merchant.org_id, merchant.app_id, merchant_payment.currency,
                CAST(SUM(merchant_payment.fee - merchant_payment.fee_refunded) AS BIGINT) AS fee
         FROM merchant_payment JOIN merchant ON merchant.id = merchant_payment.merchant_id
         WHERE merchant_payment.paid_at >= $1 AND merchant_payment.paid_at < $2 AND merchant_payment.paid_at IS NOT NULL
         GROUP BY merchant.org_id, merchant.app_id, merchant_payment.currency",
        params![from, to],
    )
    .await
}

/// What was used of a meter.
struct Consumption {
    org: String,
    app: String,
    meter: String,
    quantity: i64,
    /// A moment in the span it was used in: prices change with days.
    at: Timestamp,
}

/// The spans in which no cost of these meters changes.
fn spans(plans: &Plans, meters: &[&Meter], from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let starts = plans.costs.iter().filter_map(|cost| match cost {
        Cost::Metered { meter: of, from, .. } if meters.iter().any(|meter| *meter.name == **of) => day(from),
        _ => None,
    });
    let mut edges: BTreeSet<i64> = starts.filter(|at| *at > from && *at < to).map(|at| at.0).collect();
    edges.extend([from.0, to.0]);
    let edges: Vec<i64> = edges.into_iter().collect();
    edges.windows(2).map(|pair| (Timestamp(pair[0]), Timestamp(pair[1]))).collect()
}

fn day(text: &str) -> Option<Timestamp> {
    let date = text.parse::<jiff::civil::Date>().ok()?;
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

fn unit_cost<'a>(plans: &'a Plans, meter: &str, at: Timestamp) -> Option<&'a str> {
    let mut valid: Vec<(&str, &str)> = plans
        .costs
        .iter()
        .filter_map(|cost| match cost {
            Cost::Metered { meter: of, amount, from } if of == meter && day(from).is_some_and(|from| from <= at) => {
                Some((from.as_str(), amount.as_str()))
            }
            _ => None,
        })
        .collect();
    valid.sort_unstable();
    valid.last().map(|(_, amount)| *amount)
}

/// What every organization and app used. So many statements as there are meters and changes of their costs in the plans
/// file, however many organizations there are.
async fn quantities(janua: &Janua, from: Timestamp, to: Timestamp) -> Result<Vec<Consumption>> {
    let (plans, mut found) = (Plans::of(janua), vec![]);
    for tracked in plans.meters.values() {
        // Each meter by itself: the highest of a span is not the sum of its parts.
        for (from, to) in spans(plans, &[&tracked.meter], from, to) {
            for (app, org, quantity) in usage::totals_of_all(&janua.db, tracked, from, to).await? {
                let meter = tracked.meter.name.to_string();
                found.push(Consumption { org, app, meter, quantity, at: from });
            }
        }
    }
    let (gauges, counters): (Vec<&Meter>, Vec<&Meter>) =
        janua.declared::<Meter>().iter().partition(|meter| meter.period == Period::Gauge);
    let of_org = |used: UsedByOrg, at: Timestamp| Consumption {
        org: used.org_id.to_string(),
        app: String::new(),
        meter: used.meter,
        quantity: used.used,
        at,
    };
    for (from, to) in spans(plans, &counters, from, to) {
        let used = quotas::used_by_all(&janua.db, &counters, from, to).await?;
        found.extend(used.into_iter().map(|used| of_org(used, from)));
    }
    // What is there rather than used up costs by the month, and is taken as it is now.
    let priced: Vec<&Meter> =
        gauges.into_iter().filter(|meter| unit_cost(plans, &meter.name, to).is_some()).collect();
    for there in quotas::used_by_all(&janua.db, &priced, Timestamp(0), Timestamp(1)).await? {
        let there = of_org(there, to);
        found.push(Consumption { quantity: there.quantity.saturating_mul(months(from, to)), ..there });
    }
    found.retain(|used| used.quantity > 0);
    found.sort_by(|one, other| (&one.meter, one.at).cmp(&(&other.meter, other.at)));
    Ok(found)
}

fn months(from: Timestamp, to: Timestamp) -> i64 {
    (((to.0 - from.0) / Timestamp::DAY_MS + 15) / 30).max(1)
}

/// Fixed costs of the calendar months, each by how much of the month lies in the range, spread by a meter.
async fn spread(janua: &Janua, from: Timestamp, to: Timestamp, book: &mut Book) -> Result<()> {
    let plans = Plans::of(janua);
    for cost in &plans.costs {
        let Cost::Fixed { amount, spread } = cost else { continue };
        let (mut whole, mut at) = (Exact::default(), from);
        while at < to {
            let (start, end) = at.month();
            let part = end.0.min(to.0) - at.0;
            whole = whole + Exact::whole(*amount).share(part / 1000, (end.0 - start.0) / 1000);
            at = end;
        }
        let shares: Vec<(String, i64)> = match janua.declared::<Meter>().iter().find(|meter| *meter.name == **spread)
        {
            Some(meter) => {
                let (from, to) = match meter.period {
                    Period::Gauge => (Timestamp(0), Timestamp(1)),
                    Period::Month | Period::Day => (from, to),
                };
                let found = quotas::used_by_all(&janua.db, &[meter], from, to).await?;
                found.into_iter().map(|one| (one.org_id.to_string(), one.used)).collect()
            }
            None => match plans.meters.get(spread) {
                Some(meter) => {
                    let found = usage::totals_of_all(&janua.db, meter, from, to).await?;
                    found.into_iter().map(|(_, org, used)| (org, used)).collect()
                }
                None => vec![],
            },
        };
        let sum: i64 = shares.iter().map(|(_, used)| used).fold(0, |sum, used| sum.saturating_add(*used));
        for (org, used) in shares {
            let figures = book.entry(Of::new(&org, "", &plans.currency)).or_default();
            figures.fixed = figures.fixed + whole.share(used, sum);
        }
    }
    Ok(())
}

/// The plan of each organization that is not on the first one.
pub async fn plans_of(db: &Db) -> db::Result<BTreeMap<String, String>> {
    Ok(Org::on_paid_plans(db)
        .await?
        .into_iter()
        .map(|(org, plan): (OrgId, String)| (org.to_string(), plan))
        .collect())
}

pub fn plan_of<'a>(plans: &'a BTreeMap<String, String>, org: &str) -> &'a str {
    plans.get(org).map_or(FIRST_PLAN, String::as_str)
}
