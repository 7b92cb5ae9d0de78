//! The billing of an organization or an app, as it is shown.
use kernel::{Janua, clock::Timestamp, fault::Result, http::Key};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tenancy::{
    apps::{Application, ApplicationId},
    orgs::OrgId,
    quotas::{Limits, Meter, Period, UsedNow},
};

use super::{
    access::Payer,
    checkout::sells,
    model::{Checkout, CheckoutId, Subject},
};
use crate::{
    invoices::{Invoice, InvoiceId},
    payments::{Kind, Payments},
    plans::Plans,
};

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BillingView {
    pub org_id: OrgId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<ApplicationId>,
    /// Whether an app is connected to billing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// The payer for an app: its organization (`org`), or the app itself (`own`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payer: Option<String>,
    /// The plan that counts now.
    pub plan: String,
    pub plan_name: String,
    /// `none`, `incomplete`, `trialing`, `active`, `past_due`, `unpaid`, `paused`, `canceled` or `incomplete_expired`
    pub status: String,
    pub interval: Option<String>,
    /// Of one seat, in minor units.
    pub amount: Option<i64>,
    pub currency: String,
    pub seats: i64,
    pub current_period_start: Option<Timestamp>,
    pub current_period_end: Option<Timestamp>,
    pub trial_ends_at: Option<Timestamp>,
    pub cancel_at_period_end: bool,
    pub cancel_at: Option<Timestamp>,
    pub past_due_since: Option<Timestamp>,
    /// Until when a plan is kept though a payment is late.
    pub grace_ends_at: Option<Timestamp>,
    pub limits: Vec<LimitView>,
    pub pending_change: Option<PendingChange>,
    pub checkout: Option<OpenCheckout>,
    /// The last twelve.
    pub invoices: Vec<InvoiceView>,
    /// Those for sale.
    pub plans: Vec<PlanForSale>,
    /// sandbox, stripe, or null where nothing can be bought
    pub processor: Option<String>,
    pub livemode: bool,
    pub as_of: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitView {
    pub meter: String,
    pub unit: String,
    pub limit: Option<i64>,
    pub included: i64,
    pub used: i64,
    pub remaining: Option<i64>,
    pub hard: bool,
    pub resets_at: Option<Timestamp>,
    /// The price of each unit beyond, in minor units.
    pub overage: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct PendingChange {
    pub plan: String,
    pub at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenCheckout {
    pub checkout_id: CheckoutId,
    pub plan: String,
    pub url: Option<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvoiceView {
    pub id: InvoiceId,
    pub number: Option<String>,
    /// draft, open, paid, void or uncollectible
    pub status: String,
    pub total: i64,
    pub paid: i64,
    pub refunded: i64,
    pub disputed: bool,
    pub currency: String,
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    pub created_at: Timestamp,
    pub paid_at: Option<Timestamp>,
    pub url: Option<String>,
    /// A line for usage has `meter`, `used`, `included` and the range of `GET /usage` that shows its events.
    pub lines: Vec<serde_json::Map<String, Value>>,
    pub livemode: bool,
}

impl InvoiceView {
    pub fn of(invoice: Invoice) -> Self {
        let lines =
            invoice.lines.as_array().into_iter().flatten().filter_map(|line| line.as_object().cloned()).collect();
        Self {
            id: invoice.id,
            number: invoice.number,
            status: invoice.status,
            total: invoice.total,
            paid: invoice.paid,
            refunded: invoice.refunded,
            disputed: invoice.disputed,
            currency: invoice.currency,
            period_start: invoice.period_start,
            period_end: invoice.period_end,
            created_at: invoice.created_at,
            paid_at: invoice.paid_at,
            url: invoice.url,
            lines,
            livemode: invoice.livemode,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanForSale {
    pub plan: String,
    pub name: String,
    pub rank: i64,
    pub trial_days: Option<u64>,
    pub prices: Vec<PriceView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriceView {
    pub interval: String,
    pub amount: i64,
    pub currency: String,
    /// flat, or member for a price of each member
    pub per: String,
}

impl BillingView {
    pub async fn read(janua: &Janua, payer: &Payer) -> Result<Self> {
        let (plans, driver) = (Plans::of(janua), Payments::of(janua));
        let now = match driver {
            Some(driver) => driver.now(janua).await?,
            None => janua.clock.now(),
        };
        let subject = Subject::of(&janua.db, payer.org.id, &payer.app_key()).await?;
        // An app with a plan of its own spends from a pool of its own.
        let plan = match (&payer.app, &subject) {
            (Some(app), Some(_)) => Application::own_plan(&janua.db, app.id).await?,
            _ => None,
        };
        let has_own_plan = plan.is_some();
        let plan = plan.unwrap_or_else(|| payer.org.tier.clone());
        let (invoices, checkout) = match &subject {
            Some(subject) => (
                Invoice::page(&janua.db, subject.id, &Key::newest(), 12).await?,
                Checkout::open_of(&janua.db, subject.id).await?,
            ),
            None => (vec![], None),
        };
        let for_sale =
            driver.filter(|driver| sells(janua, driver)).map(|_| for_sale(plans, payer)).unwrap_or_default();
        let of = subject.as_ref();
        let is_app = payer.app.is_some();
        Ok(Self {
            org_id: payer.org.id,
            app_id: payer.app.as_ref().map(|app| app.id),
            connected: is_app.then(|| of.is_some_and(|subject| subject.connected_at.is_some())),
            payer: of.filter(|_| is_app).map(|subject| subject.payer.clone()),
            plan_name: plans.find(&plan).map_or_else(|| plan.clone(), |found| found.title.clone()),
            limits: limits(janua, payer, &plan, has_own_plan).await?,
            plan,
            status: of.map_or_else(|| "none".into(), |subject| subject.status.clone()),
            interval: of.and_then(|subject| subject.price_interval.clone()),
            amount: of.and_then(|subject| subject.amount),
            currency: of.and_then(|subject| subject.currency.clone()).unwrap_or_else(|| plans.currency.clone()),
            seats: of.map_or(1, |subject| subject.seats),
            current_period_start: of.and_then(|subject| subject.period_start),
            current_period_end: of.and_then(|subject| subject.period_end),
            trial_ends_at: of.and_then(|subject| subject.trial_ends_at),
            cancel_at_period_end: of.is_some_and(|subject| subject.cancel_at_period_end),
            cancel_at: of.and_then(|subject| subject.cancel_at),
            past_due_since: of.and_then(|subject| subject.past_due_since),
            grace_ends_at: of.and_then(|subject| subject.past_due_since).map(|since| since.plus(plans.grace)),
            pending_change: of.and_then(|subject| {
                subject.pending_plan.clone().map(|plan| PendingChange { plan, at: subject.pending_at })
            }),
            checkout: checkout.map(|checkout| OpenCheckout {
                checkout_id: checkout.id,
                plan: checkout.plan,
                url: checkout.url,
                expires_at: checkout.expires_at,
            }),
            invoices: invoices.into_iter().map(InvoiceView::of).collect(),
            plans: for_sale,
            processor: driver.map(|driver| driver.kind.name().to_owned()),
            livemode: driver.is_some_and(|driver| driver.livemode && driver.kind == Kind::Stripe),
            as_of: now,
        })
    }
}

fn for_sale(plans: &Plans, payer: &Payer) -> Vec<PlanForSale> {
    let fits = |plan: &crate::plans::Plan| if payer.app.is_some() { plan.for_app } else { plan.for_org };
    let sold = plans.plans.iter().filter(|(_, plan)| !plan.hidden && !plan.prices.is_empty() && fits(plan));
    let mut sold: Vec<PlanForSale> = sold
        .map(|(name, plan)| PlanForSale {
            plan: name.clone(),
            name: plan.title.clone(),
            rank: plan.rank,
            trial_days: plan.trial.map(|trial| trial.as_secs() / 86_400),
            prices: plan
                .prices
                .iter()
                .map(|price| PriceView {
                    interval: price.interval.clone(),
                    amount: price.amount,
                    currency: price.currency.clone(),
                    per: if price.per_member { "member" } else { "flat" }.to_owned(),
                })
                .collect(),
        })
        .collect();
    sold.sort_by_key(|plan| plan.rank);
    sold
}

/// What the plan limits. What is there at any time (gauges) counts for the organization, also beside an app's own plan.
async fn limits(janua: &Janua, payer: &Payer, plan: &str, has_own_plan: bool) -> Result<Vec<LimitView>> {
    let (own, now) = (payer.app.as_ref().filter(|_| has_own_plan), janua.clock.now());
    let tracked = Plans::of(janua).meters.values().map(|meter| &meter.meter);
    let meters: Vec<&Meter> = janua.declared::<Meter>().iter().chain(tracked).collect();
    let used_by_org = UsedNow::of_org(&janua.db, payer.org.id, &meters, now).await?;
    let used_by_app = match own {
        Some(app) => Some(UsedNow::of_app(&janua.db, app.id, &meters, now).await?),
        None => None,
    };
    let mut views = vec![];
    for meter in meters {
        let own = used_by_app.as_ref().filter(|_| meter.period != Period::Gauge);
        let plan = if has_own_plan && own.is_none() { &payer.org.tier } else { plan };
        let Some(limit) = janua.own::<Limits>().find(plan, &meter.name) else { continue };
        let used = own.unwrap_or(&used_by_org).of(meter);
        views.push(LimitView {
            meter: meter.name.to_string(),
            unit: meter.unit.to_string(),
            limit: limit.ceiling(),
            included: limit.included,
            used,
            remaining: limit.ceiling().map(|ceiling| (ceiling - used).max(0)),
            hard: limit.hard,
            resets_at: meter.period.resets_at(now),
            overage: limit.overage.clone(),
        });
    }
    Ok(views)
}
