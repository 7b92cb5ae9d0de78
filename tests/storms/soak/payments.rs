//! Organizations that buy plans, change and cancel them, and customers who pay a merchant of the app, all on the pages of the
//! sandbox. Nothing may be charged twice.
use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Area, Soak,
    ledger::{Buyer, Payment},
};
use crate::{one_node::Dice, support::people::text};

const AREA: Area = Area::Payments;
const CARD: &str = "4242 4242 4242 4242";
const SMALL: &str = "pro";
const LARGE: &str = "scale";
const NONE: &str = "free";
/// The organization of the other areas is on the free plan, which has no limits.
pub const PLANS: &str = r#"
currency = "usd"
[meters.api_calls]
aggregation = "sum"
unit = "calls"
[plans.pro]
rank = 10
[[plans.pro.prices]]
interval = "month"
amount = 2000
[plans.pro.limits]
apps = 1
[plans.scale]
rank = 20
[[plans.scale.prices]]
interval = "month"
amount = 10000
[plans.scale.limits]
apps = 3
[connect]
fee_percent = "2.5"
fee_fixed = 30
"#;
/// Organizations that buy. Each of them has so many invoices at most: the answer about its billing shows twelve.
const BUYERS: u64 = 60;
const MOST_INVOICES: u64 = 11;
const MOST_PAYMENTS: usize = 1000;
/// Events that come in the wrong order take a minute, so only a long run has them.
const LONG: u64 = 300;
/// A change whose node died is carried out by a job after two minutes.
const PATIENCE: Duration = Duration::from_mins(6);
/// An event that was on its way when a node ended comes again after a minute. What it is about can be read sooner.
const LATE: Duration = Duration::from_secs(5);

fn limit(plan: &str) -> Option<u64> {
    match plan {
        SMALL => Some(1),
        LARGE => Some(3),
        _ => None,
    }
}

fn last(url: &Value) -> String {
    text(url).rsplit('/').next().unwrap_or_default().to_owned()
}

impl Soak {
    pub fn buy_plans(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.change_plan(dice);
            Self::pause(dice, 800);
        }
    }

    fn buyer(&self, place: usize) -> Buyer {
        self.note(|ledger| ledger.buyers[place].clone())
    }

    fn note_buyer(&self, place: usize, change: impl FnOnce(&mut Buyer)) {
        self.note(|ledger| change(&mut ledger.buyers[place]));
    }

    /// The next thing that one of the organizations does.
    fn change_plan(&self, dice: &mut Dice) -> Option<()> {
        let there = self.note(|ledger| ledger.buyers.len()) as u64;
        let is_new = there == 0 || there < BUYERS && dice.roll(3) == 0;
        let place = if is_new { self.found_buyer(dice)? } else { usize::try_from(dice.roll(there)).unwrap() };
        let buyer = self.buyer(place);
        if buyer.perhaps.is_some() {
            return None;
        }
        match (buyer.plan, dice.roll(4)) {
            (NONE, _) if buyer.invoices < MOST_INVOICES => {
                let plan = if dice.roll(3) == 0 { LARGE } else { SMALL };
                self.buy(dice, place, plan)?;
                self.fill(dice, place)
            }
            (NONE, _) => None,
            (SMALL, 0 | 1) if !buyer.ends && buyer.invoices < MOST_INVOICES => {
                self.grow(dice, place)?;
                self.fill(dice, place)
            }
            (LARGE, 0) if !buyer.ends && !buyer.shrinks => self.shrink(dice, place),
            (_, 1 | 2) if !buyer.shrinks => self.end_with_period(dice, place, !buyer.ends),
            _ => self.end_now(dice, place),
        }
    }

    fn found_buyer(&self, dice: &mut Dice) -> Option<usize> {
        let wish = json!({ "name": format!("Buyer {}", self.number()) });
        let made = self.ask(AREA, dice, "POST /org", &self.bearer(), &wish, &[200, 201])?.json();
        let buyer = Buyer {
            org: text(&made["id"]),
            plan: NONE,
            perhaps: None,
            status: "none",
            ends: false,
            shrinks: false,
            subscriptions: 0,
            invoices: 0,
            apps: Some(0),
        };
        Some(self.note(|ledger| {
            ledger.buyers.push(buyer);
            ledger.buyers.len() - 1
        }))
    }

    /// Does something on a page of the sandbox, once: it is not open afterwards.
    fn on_page(&self, dice: &mut Dice, page: &str, act: &Value) -> Option<()> {
        let path = format!("/sandbox/sessions/{page}");
        let reply = self.ask(AREA, dice, &format!("POST {path}"), "", act, &[200, 404])?;
        if reply.status == 200 {
            return Some(());
        }
        let said = self.ask(AREA, dice, &format!("GET {path}"), "", &Value::Null, &[200])?.json();
        if reply.unanswered == 0 || said["status"] != "complete" {
            self.wrong(format!("a page that was never used is not open: {said}"));
            return None;
        }
        Some(())
    }

    /// A checkout, which is paid. From then on the plan is the organization's.
    fn buy(&self, dice: &mut Dice, place: usize, plan: &'static str) -> Option<()> {
        let org = self.buyer(place).org;
        let wish = json!({ "orgId": org, "plan": plan });
        let order = "POST /billing/org/checkout";
        // A lost answer is asked for again: there is one checkout.
        let offer = (0..20).find_map(|_| self.ask(AREA, dice, order, &self.bearer(), &wish, &[200]))?.json();
        if offer["kind"] != "new" {
            self.wrong(format!("a first checkout is {offer}"));
            return None;
        }
        let events = ["", "", "duplicate", "lose", "reorder"];
        let events = events[usize::try_from(dice.roll(if self.options.seconds > LONG { 5 } else { 4 })).unwrap()];
        let pay = json!({ "action": "pay", "card": CARD, "delivery": events });
        self.on_page(dice, &last(&offer["url"]), &pay)?;
        self.note_buyer(place, |buyer| {
            (buyer.plan, buyer.status) = (plan, "active");
            buyer.subscriptions += 1;
            buyer.invoices += 1;
        });
        let path = format!("GET /billing/org?orgId={org}");
        let began = Instant::now();
        loop {
            let said = self.ask(AREA, dice, &path, &self.bearer(), &Value::Null, &[200])?.json();
            if said["status"] == "active" && said["plan"] == plan {
                break;
            }
            if began.elapsed() > PATIENCE && !self.windows.paused() {
                self.wrong(format!("{plan} was paid and never comes: {said}"));
                return None;
            }
            // Where its events are lost or late, the next request about it reads it; a second one cannot be bought.
            if (events == "lose" || began.elapsed() > LATE)
                && let Some(again) = self.ask(AREA, dice, order, &self.bearer(), &wish, &[200, 409])
                && again.status == 200
            {
                self.wrong(format!("{plan} was paid and is offered again: {}", again.json()));
                return None;
            }
            thread::sleep(Duration::from_millis(100 + dice.roll(200)));
        }
        self.is_on_plan_everywhere(place);
        Some(())
    }

    /// Other nodes know of a plan within two seconds.
    fn is_on_plan_everywhere(&self, place: usize) {
        let (buyer, changed) = (self.buyer(place), Instant::now());
        thread::sleep(Duration::from_secs(2));
        for (node, at) in self.world.nodes.iter().enumerate() {
            let path = format!("GET /billing/org?orgId={}", buyer.org);
            let head = format!("{path} HTTP/1.1\r\nHost: localhost{}", self.bearer());
            let Some((status, said)) = self.once(AREA, Some(node), at.address, &head, b"") else { continue };
            let said: Value = serde_json::from_slice(&said).unwrap_or_default();
            let is_right = said["plan"] == buyer.plan && said["status"] == buyer.status;
            if !is_right && !self.windows.cut_off(changed) {
                self.wrong(format!(
                    "{} is on {} ({}), and node {node} says {status} {said}",
                    buyer.org, buyer.plan, buyer.status
                ));
            }
        }
    }

    /// Creates as many apps as the plan allows; one more is refused.
    fn fill(&self, dice: &mut Dice, place: usize) -> Option<()> {
        let buyer = self.buyer(place);
        let (limit, mut apps) = (limit(buyer.plan)?, buyer.apps?);
        loop {
            let wish = json!({ "name": format!("App {}", self.number()), "orgId": buyer.org });
            let Some(reply) = self.ask(AREA, dice, "POST /apps", &self.bearer(), &wish, &[200, 201, 402]) else {
                self.note_buyer(place, |buyer| buyer.apps = None);
                return None;
            };
            let is_refused = reply.status == 402;
            if is_refused != (apps >= limit) {
                let said = String::from_utf8_lossy(&reply.body);
                self.wrong(format!("app {} of {limit} on {}: {} {said}", apps + 1, buyer.plan, reply.status));
            }
            if is_refused {
                return Some(());
            }
            apps += 1;
            self.note_buyer(place, |buyer| buyer.apps = Some(apps));
            if apps > limit {
                return None;
            }
        }
    }

    /// Asks for a change until it is known to be done: `done` is the refusal that says so. A try without an answer may have
    /// been carried out, so a refusal may then be about the first try.
    fn until_done(&self, dice: &mut Dice, place: usize, path: &str, wish: &Value, done: &str) -> Option<()> {
        let (began, mut is_known) = (Instant::now(), true);
        for _ in 0..1000 {
            let request = format!("POST {path}");
            let Some(reply) = self.ask(AREA, dice, &request, &self.bearer(), wish, &[200, 409]) else {
                is_known = false;
                thread::sleep(Duration::from_secs(1));
                continue;
            };
            if reply.status == 200 {
                return Some(());
            }
            is_known &= reply.unanswered == 0;
            let said = reply.json();
            if is_known {
                self.wrong(format!("{request} {wish}: {said}"));
                return None;
            }
            if said["code"] == done {
                return Some(());
            }
            if self.is_over() {
                let plan = if wish["plan"] == LARGE { LARGE } else { SMALL };
                self.note_buyer(place, |buyer| buyer.perhaps = Some(plan));
                return None;
            }
            if began.elapsed() > PATIENCE && !self.windows.paused() {
                self.wrong(format!("{request} {wish} is never done: {said}"));
                return None;
            }
            thread::sleep(Duration::from_secs(1));
        }
        None
    }

    /// The larger plan at once: what is left of the month is charged.
    fn grow(&self, dice: &mut Dice, place: usize) -> Option<()> {
        let wish = json!({ "orgId": self.buyer(place).org, "plan": LARGE });
        self.until_done(dice, place, "/billing/org/checkout", &wish, "already_on_plan")?;
        self.note(|ledger| ledger.plan_changes += 1);
        self.note_buyer(place, |buyer| {
            buyer.plan = LARGE;
            buyer.invoices += 1;
        });
        self.is_on_plan_everywhere(place);
        Some(())
    }

    /// The smaller plan at the end of the month: nothing is charged now.
    fn shrink(&self, dice: &mut Dice, place: usize) -> Option<()> {
        let buyer = self.buyer(place);
        let wish = json!({ "orgId": buyer.org, "plan": SMALL });
        // More is there than the smaller plan allows.
        if buyer.apps.is_none_or(|apps| Some(apps) > limit(SMALL)) {
            let request = "POST /billing/org/checkout";
            let reply = self.ask(AREA, dice, request, &self.bearer(), &wish, &[409])?;
            if buyer.apps.is_some() && reply.json()["code"] != "downgrade_blocked" {
                self.wrong(format!("a smaller plan than what is there: {}", reply.json()));
            }
            return Some(());
        }
        self.until_done(dice, place, "/billing/org/checkout", &wish, "already_on_plan")?;
        self.note(|ledger| ledger.plan_changes += 1);
        self.note_buyer(place, |buyer| buyer.shrinks = true);
        Some(())
    }

    fn end_with_period(&self, dice: &mut Dice, place: usize, ends: bool) -> Option<()> {
        let wish = json!({ "orgId": self.buyer(place).org, "when": "period_end", "undo": !ends });
        self.until_done(dice, place, "/billing/org/cancel", &wish, "")?;
        self.note_buyer(place, |buyer| buyer.ends = ends);
        self.note(|ledger| ledger.cancellations += u64::from(ends));
        Some(())
    }

    fn end_now(&self, dice: &mut Dice, place: usize) -> Option<()> {
        let wish = json!({ "orgId": self.buyer(place).org, "when": "now" });
        self.until_done(dice, place, "/billing/org/cancel", &wish, "not_subscribed")?;
        self.note(|ledger| ledger.cancellations += 1);
        self.note_buyer(place, |buyer| {
            (buyer.plan, buyer.status, buyer.ends, buyer.shrinks) = (NONE, "canceled", false, false);
        });
        self.is_on_plan_everywhere(place);
        Some(())
    }

    /// Customers of the app pay its merchant.
    pub fn sell(&self, dice: &mut Dice) {
        let mut merchant = None;
        while !self.is_over() {
            match &merchant {
                None => merchant = self.found_merchant(dice),
                Some(merchant) if self.note(|ledger| ledger.payments.len()) < MOST_PAYMENTS => {
                    _ = self.sell_one(dice, merchant);
                }
                Some(_) => {}
            }
            Self::pause(dice, 1000);
        }
    }

    fn found_merchant(&self, dice: &mut Dice) -> Option<String> {
        let wish = json!({ "appId": self.app, "country": "DE", "businessName": "Bakery" });
        let accounts = "POST /connect/onboard/accounts";
        let made = self.ask(AREA, dice, accounts, &self.bearer(), &wish, &[200, 201])?.json();
        self.on_page(dice, &last(&made["onboardingUrl"]), &json!({ "action": "complete" }))?;
        let merchant = text(&made["account"]["accountId"]);
        let path = format!("GET /connect/merchants/{merchant}");
        let again = ("POST /connect/onboard/done", json!({ "accountId": merchant }));
        self.until_shown(dice, &path, &again, &self.bearer(), |said| said["status"] == "enabled")?;
        Some(merchant)
    }

    /// Asks until something is shown as it must be; `again` is the request by which it is read from the processor.
    fn until_shown(
        &self,
        dice: &mut Dice,
        path: &str,
        again: &(&str, Value),
        more: &str,
        is_done: impl Fn(&Value) -> bool,
    ) -> Option<()> {
        let began = Instant::now();
        loop {
            let said = self.ask(AREA, dice, path, more, &Value::Null, &[200])?.json();
            if is_done(&said) {
                return Some(());
            }
            if began.elapsed() > PATIENCE && !self.windows.paused() {
                self.wrong(format!("{path} never shows what it must: {said}"));
                return None;
            }
            if began.elapsed() > LATE {
                self.ask(AREA, dice, again.0, more, &again.1, &[200]);
            }
            thread::sleep(Duration::from_millis(100 + dice.roll(200)));
        }
    }

    /// One payment; some go back in part.
    fn sell_one(&self, dice: &mut Dice, merchant: &str) -> Option<()> {
        let (key, sessions) = (Self::key(&self.secret), "/connect/checkout/sessions");
        let amount = 100 + dice.roll(10_000);
        let wish = json!({ "accountId": merchant, "currency": "usd", "total": amount,
            "reference": format!("order-{}", self.number()) });
        let offer = self.ask(AREA, dice, &format!("POST {sessions}"), &key, &wish, &[200])?.json();
        let id = text(&offer["id"]);
        self.on_page(dice, &last(&offer["url"]), &json!({ "action": "pay", "card": CARD }))?;
        let place = self.note(|ledger| {
            ledger.payments.push(Payment { id: id.clone(), amount, refunded: 0 });
            ledger.payments.len() - 1
        });
        let (path, change) = (format!("GET {sessions}?id={id}"), format!("PATCH {sessions}"));
        // One that is paid cannot expire, and is read.
        let again = (&*change, json!({ "id": id, "action": "expire" }));
        self.until_shown(dice, &path, &again, &key, |said| said["sessions"][0]["status"] == "paid")?;
        if dice.roll(3) == 0 {
            let back = 1 + dice.roll(amount);
            let more = format!("{key}\r\nIdempotency-Key: refund-{id}");
            let wish = json!({ "id": id, "action": "refund", "amount": back });
            self.ask(AREA, dice, &change, &more, &wish, &[200])?;
            self.note(|ledger| ledger.payments[place].refunded = back);
        }
        Some(())
    }

    pub fn compare_payments(&self, dice: &mut Dice) {
        let (buyers, payments) = self.note(|ledger| (ledger.buyers.clone(), ledger.payments.clone()));
        for buyer in &buyers {
            self.compare_buyer(dice, buyer);
        }
        for node in 0..self.world.nodes.len() {
            let path = format!("/connect/checkout/sessions?appId={}&limit=200", self.app);
            let rows = self.rows_at(node, &path, "sessions");
            for payment in &payments {
                let row = rows.iter().find(|row| row["id"] == payment.id.as_str()).cloned().unwrap_or_default();
                let status = match payment.refunded {
                    0 => "paid",
                    all if all == payment.amount => "refunded",
                    _ => "partially_refunded",
                };
                let is_right = row["amount"] == payment.amount && row["refunded"] == payment.refunded;
                if !is_right || row["status"] != status {
                    self.lost(format!(
                        "payment {} of {}, of which {} went back: node {node} says {row}",
                        payment.id, payment.amount, payment.refunded
                    ));
                }
            }
        }
        // The processor's own book: each payment is one charge.
        let perhaps = buyers.iter().filter(|buyer| buyer.perhaps.is_some()).count() as u64;
        let refunds = payments.iter().filter(|payment| payment.refunded > 0).count() as u64;
        let invoices = buyers.iter().map(|buyer| buyer.invoices).sum::<u64>();
        let subscriptions = buyers.iter().map(|buyer| buyer.subscriptions).sum::<u64>();
        for (what, rows, least, most) in [
            ("charges for plans", "kind = 'charge' AND parent = ''", invoices, invoices + perhaps),
            ("subscriptions", "kind = 'subscription'", subscriptions, subscriptions),
            (
                "charges for the merchant",
                "kind = 'charge' AND parent <> ''",
                payments.len() as u64,
                payments.len() as u64,
            ),
            ("refunds", "kind = 'refund'", refunds, refunds),
        ] {
            let count = self.world.count(&format!("SELECT COUNT(*) FROM sandbox_object WHERE {rows}"));
            if !(least..=most).contains(&count) {
                self.wrong(format!("{count} {what} at the processor, and {least} to {most} were acknowledged"));
            }
        }
    }

    fn compare_buyer(&self, dice: &mut Dice, buyer: &Buyer) {
        let mut views = self.at_each(&format!("/billing/org?orgId={}", buyer.org));
        for view in &mut views {
            view.as_object_mut().map(|fields| fields.remove("asOf"));
        }
        if views.iter().any(|view| *view != views[0]) {
            self.wrong(format!("the nodes differ about {}: {views:?}", buyer.org));
        }
        if buyer.perhaps.is_some() {
            return;
        }
        let said = &views[0];
        let pending = if buyer.shrinks { json!(SMALL) } else { Value::Null };
        let is_right = said["plan"] == buyer.plan
            && said["status"] == buyer.status
            && said["cancelAtPeriodEnd"] == buyer.ends
            && said["pendingChange"]["plan"] == pending;
        if !is_right {
            let Buyer { org, plan, status, ends, shrinks, .. } = buyer;
            self.lost(format!("{org}: {plan}, {status}, ends: {ends}, smaller later: {shrinks}; it says {said}"));
        }
        let invoices = said["invoices"].as_array().cloned().unwrap_or_default();
        let is_paid = |invoice: &Value| {
            invoice["status"] == "paid" && invoice["paid"] == invoice["total"] && invoice["refunded"] == 0
        };
        if invoices.len() as u64 != buyer.invoices || !invoices.iter().all(is_paid) {
            self.wrong(format!("{} paid {} invoices, and has {}", buyer.org, buyer.invoices, said["invoices"]));
        }
        let apps = said["limits"].as_array().into_iter().flatten().find(|limit| limit["meter"] == "apps");
        let expected = (limit(buyer.plan), limit(buyer.plan).and(buyer.apps));
        let found = (apps.and_then(|apps| apps["limit"].as_u64()), apps.and_then(|apps| apps["used"].as_u64()));
        if found.0 != expected.0 || (buyer.apps.is_some() && found.1 != expected.1) {
            self.wrong(format!("{} may have {expected:?} apps, and has {found:?}", buyer.org));
        }
        self.compare_with_processor(dice, buyer);
    }

    /// What the portal shows: the subscriptions that live at the processor.
    fn compare_with_processor(&self, dice: &mut Dice, buyer: &Buyer) -> Option<()> {
        if buyer.subscriptions == 0 {
            return None;
        }
        let wish = json!({ "orgId": buyer.org });
        let portal = self.ask(AREA, dice, "POST /billing/org/portal", &self.bearer(), &wish, &[200])?.json();
        let path = format!("GET /sandbox/sessions/{}", last(&portal["url"]));
        let said = self.ask(AREA, dice, &path, "", &Value::Null, &[200])?.json();
        let living = said["items"].as_array().map_or(0, Vec::len);
        if living != usize::from(buyer.status == "active") {
            self.wrong(format!("{} has {living} subscriptions at the processor: {said}", buyer.org));
        }
        Some(())
    }
}
