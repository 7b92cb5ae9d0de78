//! The Stripe driver against a stand-in in a process of its own (`scripts/peers/stripe_stand_in.py`): a processor with a state and
//! a clock, which keeps what it answered under a key, fails before and after it took effect, judges requests by the types of the
//! official library, and signs its events with it.
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use axum::http::Method;
use db::params;
use identity::testing::Person;
use kernel::{config::Config, testing::TestJanua};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use super::{
    PlansFile, Shop, again,
    billing::{DAY, PLANS, billing, buy, last, owner, recorded, track},
    feature, start,
};
use crate::{
    payments::{signature, wire::Wire},
    sandbox,
    settings::{PaymentsSetting, Settings},
    stripe::VERSION,
};

const SECRET: &str = "whsec_of_the_stand_in";
const CONNECT_SECRET: &str = "whsec_of_merchants";

/// The processor's process, which ends with the value.
pub struct StandIn {
    child: Child,
    base: String,
    client: reqwest::Client,
}

impl StandIn {
    fn start(at: i64) -> Self {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/stripe_stand_in.py");
        let mut command = Command::new(python);
        command.arg(script).arg("0").arg(at.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the stand-in starts");
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let base = format!("http://127.0.0.1:{}", port.trim());
        Self { child, base, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    /// Pulls one of its strings.
    async fn pull(&self, name: &str, given: Value) -> Value {
        let asked = self.client.post(format!("{}/_/{name}", self.base)).body(given.to_string());
        let answer = asked.send().await.expect("the stand-in answers");
        let (status, said) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{name}: {said}");
        serde_json::from_str(&said).unwrap()
    }

    async fn objects(&self, kind: &str) -> Vec<Value> {
        self.pull("objects", json!({ "kind": kind })).await["objects"].as_array().unwrap().clone()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service with Stripe, and the processor behind it.
struct World {
    t: TestJanua,
    bank: StandIn,
    sent: Mutex<u64>,
}

impl World {
    async fn start() -> Self {
        Self::start_with(PLANS).await
    }

    async fn start_with(plans: &str) -> Self {
        let bank = StandIn::start(0);
        let (api, file) = (bank.base.parse().unwrap(), PlansFile::new(plans));
        let config: Config = file.config().with(move |settings: &mut Settings| {
            settings.payments = PaymentsSetting::Stripe;
            settings.stripe_secret_key = Some("sk_test_stand_in".to_owned().into());
            settings.stripe_api_url = api;
            settings.billing_webhook_secrets = vec![SECRET.to_owned().into()];
            settings.connect_webhook_secrets = vec![CONNECT_SECRET.to_owned().into()];
        });
        let t = TestJanua::start_with(config, feature).await;
        let world = Self { t, bank, sent: Mutex::new(0) };
        world.set_clock().await;
        crate::commands::sync(&world.t.janua).await.unwrap();
        world
    }

    async fn set_clock(&self) {
        self.bank.pull("clock", json!({ "at": self.t.janua.clock.now().0 / 1000 })).await;
    }

    async fn fail(&self, faults: &[&str]) {
        self.bank.pull("faults", json!({ "faults": faults })).await;
    }

    /// The events that were not given out yet, in order: account, body and signature, made by the official library.
    async fn events(&self) -> Vec<(String, String, String)> {
        let (from, at) = (*self.sent.lock().unwrap(), self.t.janua.clock.now().0 / 1000);
        let own = self.bank.pull("events", json!({ "secret": SECRET, "at": at, "from": from })).await;
        let merchants = self.bank.pull("events", json!({ "secret": CONNECT_SECRET, "at": at, "from": from })).await;
        *self.sent.lock().unwrap() = own["next"].as_u64().unwrap();
        let both = own["events"].as_array().unwrap().iter().zip(merchants["events"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        both.map(|(own, merchants)| {
            let signed = if own["account"] == "" { own } else { merchants };
            (text(&signed["account"]), text(&signed["body"]), text(&signed["header"]))
        })
        .collect()
    }

    async fn deliver(&self, events: &[(String, String, String)]) {
        for (account, body, header) in events {
            let path = if account.is_empty() { "/billing/webhook" } else { "/connect/webhook/payments" };
            let answer = self.t.post(path).body(body.clone()).header("stripe-signature", header).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        self.t.run_jobs().await;
    }

    async fn deliver_all(&self) {
        // Handling an event makes further ones: lines of a draft, changes of a plan.
        for _ in 0..4 {
            let events = self.events().await;
            self.deliver(&events).await;
        }
    }

    async fn pass(&self, time: Duration) {
        self.t.advance(time);
        self.set_clock().await;
    }

    async fn pay(&self, url: &Value, card: &str) {
        self.bank.pull("pay", json!({ "session": last(url), "card": card })).await;
    }

    async fn subscribe(&self, person: &Person, plan: &str, card: &str) {
        let made = buy(&self.t, person, plan).await;
        assert_eq!(made.status, 200, "{}", made.text);
        self.pay(&made.body["url"], card).await;
        self.deliver_all().await;
    }

    async fn count(&self, kind: &str) -> u64 {
        self.bank.pull("count", json!({})).await[kind].as_u64().unwrap_or_default()
    }

    /// What the library's types say against what was asked and answered: nothing.
    async fn judge(&self, least: usize) {
        let judged = self.bank.pull("wrong", json!({})).await;
        assert_eq!(judged["wrong"], json!([]));
        assert_eq!(judged["version"], VERSION, "the version is the one the library was made for");
        assert!(judged["judged"].as_array().unwrap().len() >= least, "{}", judged["judged"]);
    }

    /// The rules about money that hold at any time.
    async fn invariants(&self) {
        let db = &self.t.janua.db;
        let none = async |sql: &'static str, rule: &str| {
            let (found,): (i64,) = db.one(sql, params![]).await.unwrap();
            assert_eq!(found, 0, "{rule}");
        };
        none(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM billing_invoice WHERE refunded + lost > paid",
            "what goes back is never more than what was paid",
        )
        .await;
        none(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM billing_subject a JOIN billing_subject b
             ON a.org_id = b.org_id AND a.app_id = b.app_id AND a.id <> b.id
             WHERE a.deleted_at IS NULL AND b.deleted_at IS NULL",
            "a subject is there once",
        )
        .await;
        let live = self.bank.objects("subscription").await;
        let live: Vec<&Value> = live.iter().filter(|one| one["status"] != "canceled").collect();
        assert!(live.len() <= 1, "one subscription for a subject: {live:?}");
        let items = self.bank.objects("invoiceitem").await;
        let mut keys: Vec<&Value> = items.iter().map(|item| &item["metadata"]["janua_item"]).collect();
        keys.sort_by_key(ToString::to_string);
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all, "usage is billed once");
        for intent in self.bank.objects("charge").await {
            assert!(intent["amount_refunded"].as_i64() <= intent["amount"].as_i64());
        }
    }

    /// Our record of money is the processor's, counted once.
    async fn books_agree(&self) {
        let theirs = self.bank.objects("invoice").await;
        let theirs: i64 = theirs.iter().map(|one| one["amount_paid"].as_i64().unwrap()).sum();
        let sql = "SELECT CAST(COALESCE(SUM(paid), 0) AS BIGINT) FROM billing_invoice";
        let (ours,): (i64,) = self.t.janua.db.one(sql, params![]).await.unwrap();
        assert_eq!(ours, theirs, "what was paid");
        let charges = self.bank.objects("charge").await;
        let back: i64 = charges.iter().map(|one| one["amount_refunded"].as_i64().unwrap()).sum();
        let sql = "SELECT CAST(COALESCE(SUM(refunded), 0) AS BIGINT) FROM billing_invoice";
        let (ours,): (i64,) = self.t.janua.db.one(sql, params![]).await.unwrap();
        assert_eq!(ours, back, "what went back");
    }

    async fn finish(self) {
        // Mails that another one of the same hour made wait.
        self.pass(Duration::from_hours(1)).await;
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

#[tokio::test]
async fn stripe_is_asked_as_its_library_would_and_answers_are_read_as_it_writes_them() {
    let world = World::start().await;
    let t = &world.t;
    let mut shop = Shop::open(t, "ada@example.com", "secret").await;
    world.subscribe(&shop.owner, "pro", "works").await;
    let now = billing(t, &shop.owner).await;
    assert_eq!(
        (&now["status"], &now["plan"], &now["processor"], &now["livemode"]),
        (&json!("trialing"), &json!("pro"), &json!("stripe"), &json!(false)),
        "{now}"
    );
    let canceled = shop.owner.asks(t.post("/billing/org/cancel")).await;
    assert_eq!(canceled.body["cancelAtPeriodEnd"], true, "{}", canceled.text);
    let undone = shop.owner.asks(t.post("/billing/org/cancel").json(&json!({ "undo": true }))).await;
    assert_eq!(undone.body["cancelAtPeriodEnd"], false, "{}", undone.text);
    assert_eq!(shop.owner.asks(t.post("/billing/org/portal")).await.status, 200);
    world.pass(15 * DAY).await;
    world.deliver_all().await;
    world.pass(Duration::from_hours(2)).await;
    world.deliver_all().await;
    shop.owner = again(t, "ada@example.com").await;
    // More than the plan includes: the line is on the next invoice, once.
    track(t, &shop, 2003).await;
    world.pass(28 * DAY).await;
    world.deliver_all().await;
    world.pass(Duration::from_hours(2)).await;
    world.deliver_all().await;
    shop.owner = again(t, "ada@example.com").await;
    let now = billing(t, &shop.owner).await;
    let invoice = &now["invoices"][0];
    assert_eq!((&invoice["status"], &invoice["paid"]), (&json!("paid"), &json!(2050)), "{now}");
    assert!(invoice["lines"].as_array().unwrap().iter().any(|line| line["used"] == 2003), "{invoice}");
    assert!(invoice["url"].as_str().unwrap().starts_with("https://invoice."), "{invoice}");
    // Up now, then refunded and disputed by the bank.
    let preview = json!({ "plan": "scale", "preview": true });
    let preview = shop.owner.asks(t.post("/billing/org/checkout").json(&preview)).await;
    assert!(preview.body["preview"]["amountDue"].as_i64().unwrap() > 7000, "{}", preview.text);
    assert_eq!(buy(t, &shop.owner, "scale").await.status, 200);
    world.deliver_all().await;
    let now = billing(t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{now}");
    let charge = world.bank.objects("charge").await.pop().unwrap();
    world.refund(&charge, 500).await;
    world.deliver_all().await;
    recorded(t, &["BILLING_REFUNDED"]).await;
    // A card that fails: late, then unpaid.
    let customer = world.bank.objects("customer").await.pop().unwrap();
    world.bank.pull("card", json!({ "customer": customer["id"], "card": "fails" })).await;
    world.pass(31 * DAY).await;
    world.deliver_all().await;
    world.pass(Duration::from_hours(2)).await;
    world.deliver_all().await;
    shop.owner = again(t, "ada@example.com").await;
    assert_eq!(billing(t, &shop.owner).await["status"], "past_due");
    world.pass(10 * DAY).await;
    world.deliver_all().await;
    shop.owner = again(t, "ada@example.com").await;
    let now = billing(t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("unpaid"), &json!("free")), "{now}");
    world.invariants().await;
    world.books_agree().await;
    world.judge(12).await;
    world.finish().await;
}

impl World {
    async fn refund(&self, charge: &Value, amount: i64) {
        let form = [("payment_intent", charge["payment_intent"].as_str().unwrap()), ("amount", &amount.to_string())];
        let asked = self.bank.client.post(format!("{}/v1/refunds", self.bank.base)).header("stripe-version", VERSION);
        let answer = asked.form(&form).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
}

#[tokio::test]
async fn merchants_are_onboarded_paid_and_refunded_at_stripe() {
    let world = World::start().await;
    let t = &world.t;
    let shop = Shop::open(t, "ada@example.com", "secret").await;
    let new =
        json!({ "appId": shop.app, "country": "DE", "businessName": "Berta's Bakery", "email": "berta@example.com" });
    let made = shop.owner.asks(t.post("/connect/onboard/accounts").json(&new)).await;
    assert_eq!((made.status, &made.body["account"]["status"]), (200, &json!("onboarding")), "{}", made.text);
    let merchant = made.body["account"]["accountId"].as_str().unwrap().to_owned();
    let account = world.bank.objects("account").await.pop().unwrap()["id"].clone();
    for (outcome, status) in [("review", "in_review"), ("restrict", "restricted"), ("complete", "enabled")] {
        world.bank.pull("onboard", json!({ "account": account, "outcome": outcome })).await;
        world.deliver_all().await;
        let now = shop.owner.asks(t.get(&format!("/connect/merchants/{merchant}"))).await;
        assert_eq!(now.body["status"], status, "{}", now.text);
    }
    let sale = json!({ "accountId": merchant, "currency": "usd", "items": [{ "name": "Bread", "amount": 500, "quantity": 2 }] });
    let sell = async |more: Value| {
        let mut sale = sale.clone();
        sale.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        again(t, "ada@example.com").await.asks(t.post("/connect/checkout/sessions").json(&sale)).await
    };
    let session = async |id: &Value| {
        let path = format!("/connect/checkout/sessions?id={}", id.as_str().unwrap());
        again(t, "ada@example.com").await.asks(t.get(&path)).await.body["sessions"][0].clone()
    };
    let direct = sell(json!({})).await;
    assert_eq!((direct.status, &direct.body["fee"]), (200, &json!(55)), "{}", direct.text);
    world.pay(&direct.body["url"], "works").await;
    world.deliver_all().await;
    assert_eq!(session(&direct.body["id"]).await["status"], "paid");
    // The answer to a refund is lost, or a failure that is kept under its key: it happens once.
    let refund = async |amount: i64, key: &str| {
        let body = json!({ "id": direct.body["id"], "action": "refund", "amount": amount });
        let asked = t.ask(Method::PATCH, "/connect/checkout/sessions").json(&body);
        shop.owner.asks(asked).header("idempotency-key", key).await
    };
    for (place, fault) in ["after", "reset", "before"].into_iter().enumerate() {
        // The first request looks what is there, the second refunds.
        world.fail(&["", fault]).await;
        let key = format!("refund {place}");
        let lost = refund(100, &key).await;
        assert_eq!(lost.refusal(), (503, "processor_unavailable"), "{fault}: {}", lost.text);
        world.pass(Duration::from_mins(2)).await;
        t.run_jobs().await;
        let said = refund(100, &key).await;
        let total = 100 * (i64::try_from(place).unwrap() + 1);
        assert_eq!((said.status, said.body["refunded"].as_i64()), (200, Some(total)), "{}", said.text);
    }
    assert_eq!(world.count("refund").await, 3);
    world.deliver_all().await;
    let now = session(&direct.body["id"]).await;
    assert_eq!((&now["refunded"], &now["feeRefunded"]), (&json!(300), &json!(16)), "{now}");
    // The event is lost: the payment is found paid at the hour.
    let lost = sell(json!({ "chargeType": "destination" })).await;
    world.pay(&lost.body["url"], "disputed").await;
    world.events().await;
    world.pass(Duration::from_mins(61)).await;
    t.run_jobs().await;
    let status = session(&lost.body["id"]).await["status"].clone();
    assert!(status == "paid" || status == "disputed", "{status}");
    world.deliver_all().await;
    let direct = sell(json!({})).await;
    world.pay(&direct.body["url"], "works").await;
    world.events().await;
    world.pass(Duration::from_mins(61)).await;
    t.run_jobs().await;
    assert_eq!(session(&direct.body["id"]).await["status"], "paid");
    world.judge(9).await;
    world.finish().await;
}

#[tokio::test]
async fn fc1_fc4_what_fails_before_or_after_it_took_effect_happens_once() {
    let world = World::start().await;
    let t = &world.t;
    let ada = owner(t, "ada@example.com").await;
    // The customer, then the session; the library's answer to a repeated key is the first one, also where that was a failure.
    for fault in ["before", "after", "busy", "reset"] {
        world.fail(&[fault]).await;
        let refused = buy(t, &ada, "scale").await;
        assert_eq!(refused.refusal(), (503, "processor_unavailable"), "{fault}");
        assert!(!refused.header("retry-after").is_empty());
        assert_eq!(ada.asks(t.get("/billing/org")).await.status, 200, "reads go on");
    }
    // Nobody asks again: a job goes on with it.
    world.pass(Duration::from_mins(2)).await;
    t.run_jobs().await;
    let now = billing(t, &ada).await;
    let url = now["checkout"]["url"].clone();
    assert!(url.is_string(), "{now}");
    assert_eq!(world.count("checkout.session").await, 1, "one of each, however often it was asked for");
    assert!(world.count("customer").await <= 2, "a failure that took effect is kept under its key");
    world.pay(&url, "works").await;
    // The webhook is lost, and the processor is away for a while when events are pulled.
    world.events().await;
    world.fail(&["before", "busy", "reset"]).await;
    for _ in 0..6 {
        world.pass(Duration::from_mins(31)).await;
        t.run_jobs().await;
    }
    let ada = again(t, "ada@example.com").await;
    let now = billing(t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{now}");
    // A change whose answer is lost, or a failure.
    for fault in ["reset", "after"] {
        let plan = if fault == "reset" { "team" } else { "pro" };
        world.fail(&["", fault]).await;
        let refused = buy(t, &ada, plan).await;
        assert_eq!(refused.status, 503, "{}", refused.text);
        world.pass(Duration::from_mins(2)).await;
        t.run_jobs().await;
        let now = billing(t, &ada).await;
        assert_eq!((&now["pendingChange"]["plan"], &now["checkout"]), (&json!(plan), &Value::Null), "{now}");
    }
    world.deliver_all().await;
    world.invariants().await;
    world.books_agree().await;
    world.judge(5).await;
    world.finish().await;
}

/// FC1: it takes the request and says nothing for a minute.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it took")]
async fn fc1_a_processor_that_hangs_costs_one_request_twelve_seconds_at_most() {
    let world = World::start().await;
    let t = &world.t;
    let ada = owner(t, "ada@example.com").await;
    world.fail(&["hang"]).await;
    let began = Instant::now();
    let (refused, read) = tokio::join!(buy(t, &ada, "scale"), ada.asks(t.get("/billing/org")));
    assert_eq!((refused.refusal(), read.status), ((503, "processor_unavailable"), 200));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(buy(t, &ada, "scale").await.status, 200, "and the next one goes on");
    world.finish().await;
}

/// FC11: the database is that of yesterday; what was frozen and sent since is not in it.
#[tokio::test]
async fn fc11_after_a_restore_everything_is_read_again_and_nothing_billed_twice() {
    let world = World::start().await;
    let t = &world.t;
    let shop = Shop::open(t, "ada@example.com", "secret").await;
    world.subscribe(&shop.owner, "pro", "works").await;
    world.pass(14 * DAY).await;
    world.deliver_all().await;
    track(t, &shop, 2003).await;
    // The mail about the limit goes out before it is too old for that.
    t.run_jobs().await;
    world.pass(29 * DAY).await;
    world.deliver_all().await;
    assert_eq!(world.count("invoiceitem").await, 1, "the draft has its line");
    // Everything since the trial began is gone.
    for sql in [
        "DELETE FROM billing_item",
        "DELETE FROM billing_invoice",
        "DELETE FROM processor_event",
        "UPDATE billing_subject SET status = 'trialing', applied = 0, period_end = 1, reads = 0",
    ] {
        t.janua.db.exec(sql, params![]).await.unwrap();
    }
    let sql = "UPDATE setting SET value = '0' WHERE name LIKE 'billing_events_pulled_until%'";
    t.janua.db.exec(sql, params![]).await.unwrap();
    t.advance(Duration::from_mins(59));
    t.run_jobs().await;
    world.pass(Duration::from_hours(25)).await;
    t.run_jobs().await;
    world.deliver_all().await;
    let ada = again(t, "ada@example.com").await;
    let now = billing(t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("pro")), "{now}");
    assert_eq!((&now["invoices"][0]["status"], &now["invoices"][0]["paid"]), (&json!("paid"), &json!(2050)), "{now}");
    assert_eq!(world.count("invoiceitem").await, 1);
    world.invariants().await;
    world.books_agree().await;
    world.finish().await;
}

/// Between the checkout that was paid and its subscription that is read lies a call, and a second checkout must not fit there.
#[tokio::test]
async fn fc4_a_paid_checkout_whose_subscription_was_not_read_yet_leaves_no_room_for_another() {
    let world = World::start().await;
    let t = &world.t;
    let ada = owner(t, "ada@example.com").await;
    let made = buy(t, &ada, "scale").await;
    world.pay(&made.body["url"], "works").await;
    let events = world.events().await;
    let completed: Vec<_> =
        events.into_iter().filter(|(_, body, _)| body.contains("checkout.session.completed")).collect();
    // The checkout is read, and the processor is away when its subscription is asked for.
    world.fail(&["", "reset", "reset", "reset", "reset"]).await;
    world.deliver(&completed).await;
    assert_eq!(billing(t, &ada).await["status"], "incomplete");
    let again = buy(t, &ada, "scale").await;
    assert!(matches!(again.status, 409 | 503), "{}", again.text);
    world.fail(&[]).await;
    // A processor that was away is asked again after a pause.
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(buy(t, &ada, "scale").await.refusal(), (409, "already_on_plan"), "it is read when it is asked for");
    assert_eq!(world.count("checkout.session").await, 1);
    world.pass(Duration::from_hours(1)).await;
    world.deliver_all().await;
    world.invariants().await;
    world.finish().await;
}

/// A second subscription is canceled and its money goes back, also when the process died between the two.
#[tokio::test]
async fn pc13_the_money_of_a_second_subscription_goes_back_whatever_fails() {
    let world = World::start().await;
    let t = &world.t;
    let ada = owner(t, "ada@example.com").await;
    let first = buy(t, &ada, "scale").await;
    let second = buy(t, &ada, "team").await;
    assert_eq!(second.status, 200, "{}", second.text);
    // The first page was open in another window: its session was paid in the moment it ended.
    let sessions = world.bank.objects("checkout.session").await;
    assert_eq!(sessions.iter().filter(|session| session["status"] == "open").count(), 1, "the other one is expired");
    world.pay(&second.body["url"], "works").await;
    world.deliver_all().await;
    let third = world.bank.objects("checkout.session").await;
    assert_eq!(third.len(), 2);
    let _ = first;
    // The processor says of a second session that it was paid.
    let sql = "SELECT subject_id FROM billing_checkout WHERE state = 'completed'";
    let (subject,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    let form = [
        ("mode", "subscription".to_owned()),
        ("customer", third[0]["customer"].as_str().unwrap().to_owned()),
        ("success_url", "https://a.example/".into()),
        ("cancel_url", "https://a.example/".into()),
        ("line_items[0][price]", world.bank.objects("price").await[1]["id"].as_str().unwrap().to_owned()),
        ("line_items[0][quantity]", "1".into()),
    ];
    let asked = world.bank.client.post(format!("{}/v1/checkout/sessions", world.bank.base));
    let made: Value = asked.header("stripe-version", VERSION).form(&form).send().await.unwrap().json().await.unwrap();
    let sql = "UPDATE billing_checkout SET state = 'open', processor_id = $2 WHERE subject_id = $1 AND state <> 'completed'";
    t.janua.db.exec(sql, params![&subject, made["id"].as_str().unwrap()]).await.unwrap();
    world.pay(&json!(format!("/{}", made["id"].as_str().unwrap())), "works").await;
    // Canceled, and the answer is lost; then the refund fails once.
    let events = world.events().await;
    let completed: Vec<_> =
        events.into_iter().filter(|(_, body, _)| body.contains("checkout.session.completed")).collect();
    world.fail(&["", "reset", "", "", "", "after"]).await;
    world.deliver(&completed).await;
    for _ in 0..8 {
        world.pass(Duration::from_mins(31)).await;
        t.run_jobs().await;
    }
    world.fail(&[]).await;
    world.deliver_all().await;
    let charges = world.bank.objects("charge").await;
    let back: Vec<bool> = charges.iter().map(|charge| charge["refunded"] == true).collect();
    assert_eq!(back.iter().filter(|is_back| **is_back).count(), 1, "{charges:?}");
    assert_eq!(world.count("refund").await, 1);
    world.invariants().await;
    world.finish().await;
}

/// One thing that happens to a subscription.
#[derive(Debug, Clone, Copy)]
enum Act {
    Buy(&'static str),
    Cancel,
    Undo,
    Use(i64),
    Card(&'static str),
    Refund(i64),
    Days(u64),
}

fn acts() -> impl Strategy<Value = Vec<(Act, u64)>> {
    let act = prop_oneof![
        4 => prop_oneof![Just("pro"), Just("scale"), Just("team")].prop_map(Act::Buy),
        1 => Just(Act::Cancel),
        1 => Just(Act::Undo),
        2 => (1..5_000_i64).prop_map(Act::Use),
        1 => prop_oneof![Just("works"), Just("fails"), Just("disputed")].prop_map(Act::Card),
        2 => (1..3_000_i64).prop_map(Act::Refund),
        4 => (1..40_u64).prop_map(Act::Days),
    ];
    proptest::collection::vec((act, any::<u64>()), 6..12)
}

/// Shuffles, doubles and loses events, and takes old ones in again, by a seed.
fn disorder(events: Vec<(String, String, String)>, seed: u64) -> Vec<(String, String, String)> {
    let mut order = vec![];
    for (place, event) in events.into_iter().enumerate() {
        let turn = |time: u64| kernel::crypto::hash(format!("{seed} {place} {time}").as_bytes());
        let times = match turn(9).as_bytes()[0] % 10 {
            0 => 0,
            1 | 2 => 2,
            _ => 1,
        };
        order.extend((0..times).map(|time| (turn(time), event.clone())));
    }
    order.sort();
    order.into_iter().map(|(_, event)| event).collect()
}

async fn live(world: &World, shop: &mut Shop, acts: &[(Act, u64)]) {
    let t = &world.t;
    for (act, seed) in acts {
        match act {
            Act::Buy(plan) => {
                let made = buy(t, &shop.owner, plan).await;
                assert!(matches!(made.status, 200 | 409), "{}", made.text);
                if made.status == 200 && made.body["kind"] == "new" {
                    world.pay(&made.body["url"], "works").await;
                }
            }
            Act::Cancel => drop(shop.owner.asks(t.post("/billing/org/cancel")).await),
            Act::Undo => drop(shop.owner.asks(t.post("/billing/org/cancel").json(&json!({ "undo": true }))).await),
            Act::Use(value) => track(t, shop, *value).await,
            Act::Card(card) => {
                for customer in world.bank.objects("customer").await {
                    world.bank.pull("card", json!({ "customer": customer["id"], "card": card })).await;
                }
            }
            Act::Refund(amount) => {
                let charges = world.bank.objects("charge").await;
                let left =
                    |charge: &Value| charge["amount"].as_i64().unwrap() - charge["amount_refunded"].as_i64().unwrap();
                let fits = charges.iter().find(|charge| charge["disputed"] == false && left(charge) >= *amount);
                if let Some(charge) = fits {
                    world.refund(charge, *amount).await;
                }
            }
            Act::Days(days) => {
                world.pass(u32::try_from(*days).unwrap() * DAY).await;
                shop.owner = again(t, "ada@example.com").await;
            }
        }
        let events = disorder(world.events().await, *seed);
        world.deliver(&events).await;
        world.invariants().await;
    }
}

/// FC3, M1: whatever happens, and in whatever order word of it comes, the end is what the processor says.
#[test]
fn fc3_m1_any_life_and_any_order_of_its_events_ends_as_the_processor_says() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let config =
        ProptestConfig { cases: 10, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&acts(), |acts| {
            runtime.block_on(async {
                let world = World::start().await;
                let t = &world.t;
                let mut shop = Shop::open(t, "ada@example.com", "secret").await;
                live(&world, &mut shop, &acts).await;
                // What was lost is pulled, and read again at night.
                for _ in 0..3 {
                    world.pass(Duration::from_hours(25)).await;
                    t.run_jobs().await;
                    let late = world.events().await;
                    world.deliver(&late).await;
                }
                shop.owner = again(t, "ada@example.com").await;
                let ours = billing(t, &shop.owner).await;
                let subscriptions = world.bank.objects("subscription").await;
                if let Some(theirs) = subscriptions.last() {
                    assert_eq!(ours["status"], theirs["status"], "{acts:?}");
                    assert_eq!(ours["seats"], theirs["items"]["data"][0]["quantity"]);
                } else {
                    assert_eq!(ours["status"], "none");
                }
                world.invariants().await;
                world.books_agree().await;
                let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM audit_event WHERE type = 'BILLING_PAYMENT_SUCCEEDED'";
                let (told,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
                let invoices = world.bank.objects("invoice").await;
                let paid = invoices.iter().filter(|one| one["amount_paid"].as_i64() > Some(0)).count();
                assert_eq!(usize::try_from(told).unwrap(), paid, "each payment is told of once");
                // A life in which nothing is bought asks for little.
                world.judge(if subscriptions.is_empty() { 1 } else { 3 }).await;
                world.finish().await;
            });
            Ok(())
        })
        .unwrap();
}

/// Both official libraries make the same signature, and so do we.
#[tokio::test]
async fn signatures_are_those_of_both_official_libraries() {
    let world = World::start().await;
    let t = &world.t;
    let body = json!({ "id": "evt_signed", "type": "customer.updated", "livemode": false, "data": { "object": { "id": "x" } } });
    let (body, at) = (body.to_string(), t.janua.clock.now());
    let ours = signature::sign(&SECRET.to_owned().into(), at, body.as_bytes());
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON");
    let node = std::env::var("TEST_NODE").expect("TEST_NODE names the folder with what scripts/setup installs");
    let work = json!({ "at": at.0 / 1000, "body": body, "secret": SECRET, "ours": ours });
    let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers");
    let run = |command: &mut Command, work: Value| -> Value {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(work.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let by_python = run(Command::new(python).arg(format!("{peers}/stripe_judge.py")), json!({ "sign": work }));
    let by_node = run(Command::new("node").arg(format!("{peers}/stripe_sign.mjs")).env("TEST_NODE", node), work);
    assert_eq!(by_node["ours"], true, "the library takes ours");
    for header in [&by_python["header"], &by_node["header"]] {
        let header = header.as_str().unwrap();
        let answer = t.post("/billing/webhook").body(body.clone()).header("stripe-signature", header).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    t.run_jobs().await;
    world.finish().await;
}

#[tokio::test]
async fn a_repeated_key_gets_its_first_answer_from_the_sandbox() {
    let bank = start(PLANS).await;
    let wire = Wire::post("/v1/customers", "k").with("name", "Ada");
    let (_, first) = sandbox::serve_once(&bank.janua, &wire).await.unwrap();
    let (_, second) = sandbox::serve_once(&bank.janua, &wire).await.unwrap();
    assert_eq!(first["id"], second["id"]);
    let other = Wire::post("/v1/customers", "k").with("name", "Eve");
    let (status, refused) = sandbox::serve_once(&bank.janua, &other).await.unwrap();
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("idempotency_error")));
    bank.finish().await;
}
