//! Buying a plan: a checkout for the first subscription, a change of one that lives.
use std::time::Duration;

use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Fault, INVALID, Result},
    transact,
};
use serde_json::json;
use tenancy::{
    apps::Application,
    enter::Session,
    orgs::OrgId,
    quotas::{self, Meter, Period, UsedNow},
};

use super::{
    access::Payer,
    apply::{self, hold},
    events::CheckoutStarted,
    model::{Checkout, CheckoutId, Subject, SubjectId},
    prices::{self, NOT_FOR_SALE},
    urls::checked,
};
use crate::{
    Settings,
    payments::{
        Driver, Kind, NoAnswer,
        calls::{Change, NewCheckout},
    },
    plans::{Plan, Plans, Price, UNKNOWN_PLAN},
};

pub const ALREADY_ON_PLAN: Code = Code::new(409, "already_on_plan", "This plan is the present one.");
pub const DOWNGRADE_BLOCKED: Code =
    Code::new(409, "downgrade_blocked", "More is in use than the smaller plan allows. Remove some of it first.");
pub const NOT_CONNECTED: Code =
    Code::new(409, "app_not_connected", "Connect the app to billing first, with POST /billing/app/connect.");
pub const CHECKOUT_OPEN: Code =
    Code::new(409, "checkout_open", "Another change of the plan is under way. Try again shortly.");
pub const UNKNOWN_PRICE: Code = Code::new(400, "unknown_price", "There is no price of this id.");

/// What is asked for.
pub struct Wish<'a> {
    pub plan: &'a str,
    pub interval: &'a str,
    pub seats: Option<i64>,
    pub success_url: Option<&'a str>,
    pub cancel_url: Option<&'a str>,
    /// Only tells what a change would cost.
    pub is_preview: bool,
}

/// What a change costs now.
pub struct Preview {
    pub amount_due: i64,
    pub currency: String,
    pub at: Timestamp,
}

/// What came of it.
pub struct Outcome {
    pub checkout: Option<Checkout>,
    pub kind: &'static str,
    pub url: String,
    pub preview: Option<Preview>,
}

/// Whether this installation sells anything: by a plans file, or the samples in the sandbox.
pub fn sells(janua: &Janua, driver: &Driver) -> bool {
    driver.kind == Kind::Sandbox || janua.config.of::<Settings>().plans_file.is_some()
}

fn price_of<'a>(janua: &'a Janua, driver: &Driver, payer: &Payer, wish: &Wish<'_>) -> Result<(&'a Plan, &'a Price)> {
    let plan = Plans::of(janua).find(wish.plan);
    let plan = plan.ok_or_else(|| UNKNOWN_PLAN.at("plan", "unknown", "is not the name of a plan"))?;
    let fits = if payer.app.is_some() { plan.for_app } else { plan.for_org };
    if plan.hidden || plan.prices.is_empty() || !fits || !sells(janua, driver) {
        return Err(NOT_FOR_SALE.into());
    }
    let price = plan.prices.iter().find(|price| price.interval == wish.interval);
    let price = price.ok_or_else(|| INVALID.at("interval", "unknown", "is not an interval of this plan"))?;
    Ok((plan, price))
}

/// How many seats are paid for: the members, or more if more are wanted.
async fn seats_of(janua: &Janua, org: OrgId, price: &Price, wanted: Option<i64>) -> Result<i64> {
    if !price.per_member {
        return Ok(1);
    }
    let members = quotas::used(&janua.db, org, &quotas::MEMBERS, janua.clock.now()).await?;
    Ok(members.max(wanted.unwrap_or(1)).max(1))
}

pub async fn buy(
    janua: &Janua,
    driver: &Driver,
    session: &Session,
    payer: &Payer,
    apps: &[Application],
    wish: &Wish<'_>,
) -> Result<Outcome> {
    let (plan, price) = price_of(janua, driver, payer, wish)?;
    let success = checked(janua, apps, "successUrl", wish.success_url, &format!("{}?checkout=done", payer.page()));
    let cancel = checked(janua, apps, "cancelUrl", wish.cancel_url, &format!("{}?checkout=canceled", payer.page()));
    let (success_url, cancel_url) = both(success, cancel)?;
    let subject = subject_now(janua, driver, payer).await?;
    if payer.app.is_some() && subject.as_ref().is_none_or(|subject| subject.connected_at.is_none()) {
        return Err(NOT_CONNECTED.into());
    }
    let seats = seats_of(janua, payer.org.id, price, wish.seats).await?;
    let price_id = prices::id_of(janua, driver, wish.plan, plan, price).await?;
    let order = Order { session, payer, wish, price_id, seats, success_url, cancel_url };
    match subject.filter(|subject| subject.is_subscribed() && subject.processor == driver.kind.name()) {
        Some(subject) => change(janua, driver, &order, subject).await,
        None if wish.is_preview => {
            let preview =
                Preview { amount_due: price.amount * seats, currency: price.currency.clone(), at: janua.clock.now() };
            Ok(Outcome { checkout: None, kind: "new", url: order.success_url, preview: Some(preview) })
        }
        None => begin(janua, driver, &order, plan).await,
    }
}

/// Whoever pays, as the processor knows them: a checkout that was paid and whose subscription was not read yet is read now.
async fn subject_now(janua: &Janua, driver: &Driver, payer: &Payer) -> Result<Option<Subject>> {
    let subject = Subject::of(&janua.db, payer.org.id, &payer.app_key()).await?;
    let Some(waiting) = subject.as_ref().filter(|subject| subject.is_incomplete()) else { return Ok(subject) };
    apply::sync(janua, driver, waiting.id).await?;
    Ok(Subject::of(&janua.db, payer.org.id, &payer.app_key()).await?)
}

fn both(success: Result<String>, cancel: Result<String>) -> Result<(String, String)> {
    match (success, cancel) {
        (Ok(success), Ok(cancel)) => Ok((success, cancel)),
        (Err(fault), Err(_)) => {
            Err(fault.and("cancelUrl", "not_allowed", "must lead to this service or to a registered origin"))
        }
        (Err(fault), _) | (_, Err(fault)) => Err(fault),
    }
}

struct Order<'a> {
    session: &'a Session,
    payer: &'a Payer,
    wish: &'a Wish<'a>,
    price_id: String,
    seats: i64,
    success_url: String,
    cancel_url: String,
}

impl Order<'_> {
    fn checkout(&self, janua: &Janua, subject: SubjectId, kind: &str, trial_days: i64) -> Checkout {
        let now = janua.clock.now();
        Checkout {
            id: CheckoutId::new(&janua.entropy, now),
            subject_id: subject,
            kind: kind.to_owned(),
            plan: self.wish.plan.to_owned(),
            price_interval: self.wish.interval.to_owned(),
            seats: self.seats,
            trial_days,
            price: self.price_id.clone(),
            state: "creating".into(),
            processor_id: None,
            url: None,
            success_url: self.success_url.clone(),
            cancel_url: self.cancel_url.clone(),
            expires_at: None,
            created_by: Some(self.session.account().id.to_string()),
            created_at: now,
        }
    }

    fn is_same(&self, checkout: &Checkout) -> bool {
        (checkout.kind.as_str(), checkout.price.as_str(), checkout.seats) == ("new", &self.price_id, self.seats)
            && (&checkout.success_url, &checkout.cancel_url) == (&self.success_url, &self.cancel_url)
    }
}

/// The first subscription. A checkout that is open already is answered again; one for another plan is ended first.
async fn begin(janua: &Janua, driver: &Driver, order: &Order<'_>, plan: &Plan) -> Result<Outcome> {
    let now = janua.clock.now();
    let (checkout, replaced) = transact!(janua, async |tx| {
        order.payer.hold(tx, order.session).await?;
        let subject = Subject::ensure(tx, janua, driver, order.payer.org.id, &order.payer.app_key()).await?;
        // A subscription whose first payment is not known yet is one: a second checkout would make a second one.
        if subject.is_subscribed() || subject.is_incomplete() {
            return Err(CHECKOUT_OPEN.into());
        }
        let had_trial =
            Subject::all_of(&mut *tx, order.payer.org.id).await?.iter().any(|one| one.trial_used_at.is_some());
        let trial_days =
            plan.trial.filter(|_| !had_trial).map_or(0, |trial| i64::try_from(trial.as_secs() / 86_400).unwrap_or(0));
        let mut replaced = None;
        if let Some(open) = Checkout::open_of(&mut *tx, subject.id).await? {
            let is_good = open.expires_at.is_none_or(|at| at > now) && open.trial_days == trial_days;
            if is_good && order.is_same(&open) {
                return Ok((open, None));
            }
            Checkout::end(tx, open.id, "expired", now).await?;
            replaced = Some(open);
        }
        let checkout = order.checkout(janua, subject.id, "new", trial_days);
        checkout.insert(tx).await?;
        let event = CheckoutStarted { plan: checkout.plan.clone(), interval: checkout.price_interval.clone() };
        order.session.record_about(tx, janua, subject.about(), &event).await?;
        Ok((checkout, replaced))
    })?;
    if let Some(open) = replaced
        && let Some(processor_id) = &open.processor_id
    {
        match driver.expire_checkout(janua, &format!("janua-{}-expire", open.id), None, processor_id).await {
            Ok(()) | Err(NoAnswer::Missing) => {}
            // One that was paid meanwhile cannot expire. Its event may be lost, so it is read now: a second checkout
            // would end in a second subscription.
            Err(NoAnswer::Refused { .. }) => {
                if apply::sync_checkout(janua, driver, &open).await? == "applied" {
                    transact!(janua, async |tx| Ok(Checkout::end(tx, checkout.id, "failed", now).await?))?;
                    return Err(CHECKOUT_OPEN.into());
                }
            }
            Err(why) => return Err(why.into()),
        }
    }
    // One that was open before may have been paid or have ended meanwhile, without word of it yet.
    if checkout.state == "open" {
        match apply::sync_checkout(janua, driver, &checkout).await? {
            "applied" | "second_subscription" | "judged_before" => return Err(CHECKOUT_OPEN.into()),
            "expired" => return Box::pin(begin(janua, driver, order, plan)).await,
            _ => {}
        }
    }
    let checkout = open(janua, driver, checkout).await?;
    let url = checkout.url.clone().unwrap_or_default();
    Ok(Outcome { checkout: Some(checkout), kind: "new", url, preview: None })
}

/// The second and third step: asks the processor, and notes its answer. May be repeated.
pub async fn open(janua: &Janua, driver: &Driver, checkout: Checkout) -> Result<Checkout> {
    if checkout.state != "creating" {
        return Ok(checkout);
    }
    let customer = customer(janua, driver, checkout.subject_id).await?;
    let new = NewCheckout {
        customer: &customer,
        price: &checkout.price,
        quantity: checkout.seats,
        trial_days: checkout.trial_days,
        success_url: &checkout.success_url,
        cancel_url: &checkout.cancel_url,
        reference: checkout.id.to_string(),
    };
    let made = match driver.create_checkout(janua, &format!("janua-{}-create", checkout.id), &new).await {
        Ok(made) => made,
        Err(why) => return refuse(janua, &checkout, why).await,
    };
    transact!(janua, async |tx| {
        Checkout::set_open(tx, checkout.id, &made.id, made.url.as_deref(), made.expires_at).await?;
        Ok(())
    })?;
    Ok(Checkout::find(&janua.db, checkout.id).await?.unwrap_or(checkout))
}

/// What is refused has failed; what is not known stays, and a job goes on with it.
async fn refuse<T>(janua: &Janua, checkout: &Checkout, why: NoAnswer) -> Result<T> {
    if !matches!(why, NoAnswer::Away { .. }) {
        transact!(janua, async |tx| Ok(Checkout::end(tx, checkout.id, "failed", janua.clock.now()).await?))?;
    }
    Err(why.into())
}

/// The processor's customer of a subject, created when there is none.
pub async fn customer(janua: &Janua, driver: &Driver, id: SubjectId) -> Result<String> {
    let subject = Subject::find(&janua.db, id).await?.ok_or(NOT_FOR_SALE)?;
    if let Some(customer) = subject.customer {
        return Ok(customer);
    }
    if subject.payer == "org" && !subject.app_id.is_empty() {
        let org = transact!(janua, async |tx| Ok(Subject::ensure(tx, janua, driver, subject.org_id, "").await?))?;
        let of_org = Box::pin(customer(janua, driver, org.id)).await?;
        transact!(janua, async |tx| Ok(Subject::set_customer(tx, id, &of_org).await?))?;
        return Ok(of_org);
    }
    let name = tenancy::orgs::Org::find(&janua.db, subject.org_id).await?.map(|org| org.name).unwrap_or_default();
    let key = format!("janua-{id}-customer-{}", subject.created_at.0);
    let made = driver.create_customer(janua, &key, &name, subject.email.as_deref()).await?;
    transact!(janua, async |tx| Ok(Subject::set_customer(tx, id, &made).await?))?;
    Ok(Subject::find(&janua.db, id).await?.and_then(|subject| subject.customer).unwrap_or(made))
}

/// A change of a subscription: up at once, with what is left of the period settled; down at the end of the period.
async fn change(janua: &Janua, driver: &Driver, order: &Order<'_>, subject: Subject) -> Result<Outcome> {
    let plans = Plans::of(janua);
    let rank = |plan: &str| plans.find(plan).map_or(0, |plan| plan.rank);
    let is_same_plan = subject.plan == order.wish.plan && subject.pending_plan.is_none();
    if is_same_plan && subject.price_interval.as_deref() == Some(order.wish.interval) && subject.seats == order.seats
    {
        return Err(ALREADY_ON_PLAN.into());
    }
    let is_down = rank(order.wish.plan) < rank(&subject.plan);
    if is_down {
        blocked(janua, order).await?;
        if subject.price_interval.as_deref() != Some(order.wish.interval) {
            return Err(INVALID.at("interval", "same", "must stay the same with a smaller plan"));
        }
    }
    let (Some(id), Some(item)) = (&subject.subscription, &subject.item) else { return Err(CHECKOUT_OPEN.into()) };
    let wanted = Change { item, price: &order.price_id, quantity: order.seats, prorates: !is_down };
    let (amount_due, currency) = driver.preview(janua, id, &wanted).await?;
    let preview = Preview { amount_due, currency, at: driver.now(janua).await? };
    if order.wish.is_preview {
        return Ok(Outcome {
            checkout: None,
            kind: "change",
            url: order.success_url.clone(),
            preview: Some(preview),
        });
    }
    let checkout = transact!(janua, async |tx| {
        order.payer.hold(tx, order.session).await?;
        let mut subject = Subject::hold(tx, subject.id).await?.ok_or(CHECKOUT_OPEN)?;
        if Checkout::open_of(&mut *tx, subject.id).await?.is_some() {
            return Err(CHECKOUT_OPEN.into());
        }
        let checkout = order.checkout(janua, subject.id, "change", 0);
        checkout.insert(tx).await?;
        // Before the processor knows of it: whoever reads its answer must know that the plan changes later.
        (subject.pending_plan, subject.pending_at) =
            if is_down { (Some(checkout.plan.clone()), subject.period_end) } else { (None, None) };
        subject.save(tx, janua.clock.now()).await?;
        let event = CheckoutStarted { plan: checkout.plan.clone(), interval: checkout.price_interval.clone() };
        order.session.record_about(tx, janua, subject.about(), &event).await?;
        Ok(checkout)
    })?;
    let checkout = finish_change(janua, driver, checkout).await?;
    Ok(Outcome { checkout: Some(checkout), kind: "change", url: order.success_url.clone(), preview: Some(preview) })
}

/// Asks the processor for a change, and applies its answer. May be repeated.
pub async fn finish_change(janua: &Janua, driver: &Driver, checkout: Checkout) -> Result<Checkout> {
    let subject = Subject::find(&janua.db, checkout.subject_id).await?.ok_or(CHECKOUT_OPEN)?;
    let (Some(id), Some(item)) = (&subject.subscription, &subject.item) else {
        return refuse(janua, &checkout, NoAnswer::Missing).await;
    };
    let wanted =
        Change { item, price: &checkout.price, quantity: checkout.seats, prorates: subject.pending_plan.is_none() };
    if let Err(why) = driver.change(janua, &format!("janua-{}-change", checkout.id), id, &wanted).await {
        if !matches!(why, NoAnswer::Away { .. }) {
            transact!(janua, async |tx| {
                let Some(mut subject) = hold(tx, checkout.subject_id).await? else { return Ok(()) };
                (subject.pending_plan, subject.pending_at) = (None, None);
                Ok(subject.save(tx, janua.clock.now()).await?)
            })?;
        }
        return refuse(janua, &checkout, why).await;
    }
    // A repeated request gets its first answer again, which may be old by now: what counts is read anew.
    apply::sync(janua, driver, subject.id).await?;
    transact!(janua, async |tx| Ok(Checkout::end(tx, checkout.id, "completed", janua.clock.now()).await?))?;
    Ok(Checkout::find(&janua.db, checkout.id).await?.unwrap_or(checkout))
}

/// Refuses an organization a smaller plan while more is there than it allows.
async fn blocked(janua: &Janua, order: &Order<'_>) -> Result<()> {
    let Some(plan) = Plans::of(janua).find(order.wish.plan) else { return Ok(()) };
    if order.payer.app.is_some() {
        return Ok(());
    }
    let gauges: Vec<&Meter> =
        janua.declared::<Meter>().iter().filter(|meter| meter.period == Period::Gauge).collect();
    let there = UsedNow::of_org(&janua.db, order.payer.org.id, &gauges, janua.clock.now()).await?;
    let mut over = vec![];
    for meter in gauges {
        let Some(limit) = plan.limits.get(&*meter.name).and_then(quotas::Limit::ceiling) else { continue };
        let used = there.of(meter);
        if used > limit {
            over.push(json!({ "meter": meter.name, "used": used, "limit": limit }));
        }
    }
    if over.is_empty() { Ok(()) } else { Err(Fault::from(DOWNGRADE_BLOCKED).with_extra("meters", &over)) }
}

/// How long a row that was begun is left to the request that began it.
pub const LEFT_ALONE: Duration = Duration::from_mins(1);
