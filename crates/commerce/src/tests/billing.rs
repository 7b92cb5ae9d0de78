//! Billing in the sandbox, through the front door.
use std::time::Duration;

use axum::http::Method;
use db::params;
use futures_util::future::join_all;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

use super::{Shop, again, feature, id, make_app, make_key, start};
use crate::{
    billing::{apply, model::Checkout},
    payments::{
        Payments, Source, sandbox_secret, signature,
        wire::{Verb, Wire},
    },
    settings::{PaymentsSetting, Settings},
};

pub const DAY: Duration = Duration::from_hours(24);

/// Two paid plans, one of them with overage and a trial, one for apps, one by member.
pub const PLANS: &str = r#"
currency = "usd"
grace = "7d"
[meters.api_calls]
aggregation = "sum"
unit = "calls"
[plans.pro]
name = "Pro"
rank = 10
trial = "14d"
[[plans.pro.prices]]
interval = "month"
amount = 2000
[[plans.pro.prices]]
interval = "year"
amount = 20000
[plans.pro.limits]
apps = 2
api_calls = { included = 1000, overage = "0.05" }
[plans.scale]
name = "Scale"
rank = 20
[[plans.scale.prices]]
interval = "month"
amount = 10000
[plans.scale.limits]
api_calls = { included = 100000, overage = "0.01" }
[plans.team]
name = "Team"
rank = 15
[[plans.team.prices]]
interval = "month"
amount = 500
per = "member"
[plans.app_pro]
name = "App Pro"
for = "app"
rank = 5
[[plans.app_pro.prices]]
interval = "month"
amount = 900
[plans.old]
hidden = true
[[plans.old.prices]]
interval = "month"
amount = 1
[[costs]]
meter = "api_calls"
amount = "0.001"
from = "2020-01-01"
[[costs]]
fixed = 1200
spread = "members"
[connect]
fee_percent = "2.5"
fee_fixed = 30
destination = true
"#;

pub const CARD: &str = "4242 4242 4242 4242";

pub async fn billing(t: &TestJanua, person: &Person) -> Value {
    let answer = person.asks(t.get("/billing/org")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

pub async fn buy(t: &TestJanua, person: &Person, plan: &str) -> Answer {
    person.asks(t.post("/billing/org/checkout").json(&json!({ "plan": plan }))).await
}

/// Fails unless these events are among those that happened since this was last asked.
pub async fn recorded(t: &TestJanua, kinds: &[&str]) {
    let all = t.happened().await;
    for kind in kinds {
        assert!(all.iter().any(|one| one == kind), "{kind} is not in {all:?}");
    }
}

/// An owner of an organization, who is signed in.
pub async fn owner(t: &TestJanua, email: &str) -> Person {
    Shop::open(t, email, "secret").await.owner
}

/// The last part of a page's URL.
pub fn last(url: &Value) -> String {
    url.as_str().expect("a URL").rsplit('/').next().unwrap().to_owned()
}

pub async fn act(t: &TestJanua, session: &str, body: Value) -> Answer {
    t.post(&format!("/sandbox/sessions/{session}")).json(&body).await
}

pub async fn pay(t: &TestJanua, url: &Value, card: &str) {
    let paid = act(t, &last(url), json!({ "action": "pay", "card": card })).await;
    assert_eq!(paid.status, 200, "{}", paid.text);
    t.run_jobs().await;
}

pub async fn subscribe(t: &TestJanua, person: &Person, plan: &str, card: &str) {
    let made = buy(t, person, plan).await;
    assert_eq!(made.status, 200, "{}", made.text);
    pay(t, &made.body["url"], card).await;
}

/// Moves time on, and lets what is due happen.
pub async fn pass(t: &TestJanua, time: Duration) {
    t.advance(time);
    t.run_jobs().await;
}

pub async fn track(t: &TestJanua, shop: &Shop, value: i64) {
    let tracked = t.post("/usage/track").json(&json!({ "meter": "api_calls", "value": value }));
    let tracked = tracked.header("x-service-app-key", &shop.key).await;
    assert_eq!(tracked.status, 200, "{}", tracked.text);
}

async fn portal(t: &TestJanua, person: &Person) -> String {
    let opened = person.asks(t.post("/billing/org/portal")).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    last(&opened.body["url"])
}

/// Everything that must hold at any time.
async fn invariants(t: &TestJanua) {
    let db = &t.janua.db;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM billing_invoice WHERE refunded + lost > paid";
    let (over,): (i64,) = db.one(sql, params![]).await.unwrap();
    assert_eq!(over, 0, "what goes back is never more than what was paid");
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM billing_item a JOIN billing_item b
               ON a.subscription = b.subscription AND a.meter = b.meter AND a.period_start = b.period_start
                  AND a.revision = b.revision AND a.id <> b.id";
    let (twice,): (i64,) = db.one(sql, params![]).await.unwrap();
    assert_eq!(twice, 0, "usage is billed once");
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a year is one story")]
async fn a_year_in_the_sandbox() {
    let t = start(PLANS).await;
    let mut shop = Shop::open(&t, "ada@example.com", "secret").await;
    let none = billing(&t, &shop.owner).await;
    assert_eq!((&none["status"], &none["plan"], &none["livemode"]), (&json!("none"), &json!("free"), &json!(false)));
    assert_eq!(none["plans"].as_array().unwrap().len(), 3, "hidden plans and those of apps are not for sale: {none}");

    // A trial, once.
    subscribe(&t, &shop.owner, "pro", CARD).await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("trialing"), &json!("pro")), "{now}");
    recorded(&t, &["BILLING_CHECKOUT_STARTED", "BILLING_TRIAL_STARTED", "BILLING_PLAN_CHANGED"]).await;

    // The trial ends, and the first month is paid.
    pass(&t, 14 * DAY).await;
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!(now["status"], "active", "{now}");
    assert_eq!((&now["invoices"][0]["status"], &now["invoices"][0]["paid"]), (&json!("paid"), &json!(2000)), "{now}");
    assert_eq!(now["livemode"], false);

    // More than the plan includes, in the second month.
    track(&t, &shop, 1500).await;
    track(&t, &shop, 503).await;
    let end = now["currentPeriodEnd"].clone();
    pass(&t, 31 * DAY).await;
    let draft = {
        shop.owner = again(&t, "ada@example.com").await;
        billing(&t, &shop.owner).await
    };
    assert_eq!(draft["invoices"][0]["status"], "draft", "{draft}");
    assert_ne!(draft["currentPeriodEnd"], end);
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    let invoice = &now["invoices"][0];
    assert_eq!(
        (&invoice["status"], &invoice["total"]),
        (&json!("paid"), &json!(2050)),
        "1003 calls beyond at 0.05: {invoice}"
    );
    let line = invoice["lines"].as_array().unwrap().iter().find(|line| line["meter"] == "api_calls").unwrap().clone();
    assert_eq!(
        (&line["used"], &line["included"], &line["quantity"], &line["amount"]),
        (&json!(2003), &json!(1000), &json!(1003), &json!(50))
    );
    let of_line = format!(
        "/usage?appId={}&meter=api_calls&groupBy=event&from={}&to={}",
        shop.app,
        line["from"].as_str().unwrap(),
        line["to"].as_str().unwrap()
    );
    let events = shop.owner.asks(t.get(&of_line)).await;
    let sum: i64 = events.body["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()).sum();
    assert_eq!(sum, 2003, "a line leads to its events: {}", events.text);
    let of_invoice = format!("/usage?invoice={}", invoice["id"].as_str().unwrap());
    let totals = shop.owner.asks(t.get(&of_invoice)).await;
    let row = &totals.body["usage"][0];
    assert_eq!(
        (&row["meter"], &row["value"], &row["from"], &row["to"]),
        (&json!("api_calls"), &json!(2003), &line["from"], &line["to"]),
        "{}",
        totals.text
    );
    let mut page = shop.owner.asks(t.get(&format!("{of_invoice}&groupBy=event&limit=1"))).await.body;
    let mut values = vec![page["usage"][0]["value"].as_i64().unwrap()];
    while let Some(cursor) = page["nextCursor"].as_str() {
        page = shop.owner.asks(t.get(&format!("{of_invoice}&groupBy=event&limit=1&cursor={cursor}"))).await.body;
        values.extend(page["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()));
    }
    assert_eq!(values, [503, 1500], "page by page, newest first");
    let both = shop.owner.asks(t.get(&format!("{of_invoice}&window=day&tz=UTC"))).await;
    assert_eq!((both.status, both.body["errors"].as_array().map(Vec::len)), (400, Some(2)), "{}", both.text);
    let eve = owner(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&of_invoice)).await.refusal(), (404, "not_found"));
    let unknown = "/usage?invoice=01900000-0000-7000-8000-000000000000";
    assert_eq!(shop.owner.asks(t.get(unknown)).await.refusal(), (404, "not_found"));

    // Usage that came late is on the next invoice.
    let late = json!({ "meter": "api_calls", "value": 100, "timestamp": t.janua.clock.now().minus(10 * DAY) });
    let tracked = t.post("/usage/track").json(&late).header("x-service-app-key", &shop.key).await;
    assert_eq!(tracked.status, 200, "{}", tracked.text);
    pass(&t, 31 * DAY).await;
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    let late = now["invoices"][0]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["description"].as_str().unwrap().starts_with("late:"));
    assert_eq!(late.unwrap()["amount"], 5, "{}", now["invoices"][0]);

    // Up at once, with what is left settled.
    let preview =
        shop.owner.asks(t.post("/billing/org/checkout").json(&json!({ "plan": "scale", "preview": true }))).await;
    assert!(preview.body["preview"]["amountDue"].as_i64().unwrap() > 7000, "{}", preview.text);
    assert_eq!(billing(&t, &shop.owner).await["plan"], "pro", "a preview changes nothing");
    let changed = buy(&t, &shop.owner, "scale").await;
    assert_eq!((changed.status, &changed.body["kind"]), (200, &json!("change")), "{}", changed.text);
    t.run_jobs().await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["plan"], &now["status"]), (&json!("scale"), &json!("active")));
    let same = buy(&t, &shop.owner, "scale").await;
    assert_eq!(same.refusal(), (409, "already_on_plan"));

    // Down at the end of the period.
    let down = buy(&t, &shop.owner, "pro").await;
    assert_eq!(down.status, 200, "{}", down.text);
    t.run_jobs().await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["plan"], &now["pendingChange"]["plan"]), (&json!("scale"), &json!("pro")), "{now}");
    pass(&t, 31 * DAY).await;
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["plan"], &now["pendingChange"]), (&json!("pro"), &Value::Null), "{now}");

    // A card that fails at renewal: the plan is kept for the grace, then free; another card, and it is back.
    let page = portal(&t, &shop.owner).await;
    let changed = act(&t, &page, json!({ "action": "card", "card": "4000000000000341" })).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    t.run_jobs().await;
    pass(&t, 31 * DAY).await;
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("past_due"), &json!("pro")), "{now}");
    assert!(identity::testing::mail_to(&t, "ada@example.com").unwrap().contains("Payment failed"));
    pass(&t, 7 * DAY).await;
    pass(&t, Duration::from_mins(61)).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("past_due"), &json!("free")), "the grace is over: {now}");
    let page = portal(&t, &shop.owner).await;
    act(&t, &page, json!({ "action": "card", "card": CARD })).await;
    t.run_jobs().await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("pro")), "{now}");

    // Canceled at the end of the period, undone, and canceled again.
    let cancel = shop.owner.asks(t.post("/billing/org/cancel").json(&json!({}))).await;
    assert_eq!((cancel.status, &cancel.body["cancelAtPeriodEnd"]), (200, &json!(true)), "{}", cancel.text);
    let undone = shop.owner.asks(t.post("/billing/org/cancel").json(&json!({ "undo": true }))).await;
    assert_eq!(undone.body["cancelAtPeriodEnd"], false);
    shop.owner
        .asks(t.post("/billing/org/cancel").json(&json!({ "when": "period_end", "reason": "too large" })))
        .await;
    pass(&t, 32 * DAY).await;
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("canceled"), &json!("free")), "{now}");
    let gone = shop.owner.asks(t.post("/billing/org/cancel").json(&json!({}))).await;
    assert_eq!(gone.refusal(), (409, "not_subscribed"));

    // Again, without a second trial; disputed, and lost.
    subscribe(&t, &shop.owner, "pro", "4000 0000 0000 0259").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("pro")), "no second trial: {now}");
    pass(&t, Duration::from_mins(2)).await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!(now["invoices"][0]["disputed"], true, "{now}");
    pass(&t, 8 * DAY).await;
    invariants(&t).await;

    // The year passes; everything is renewed on time.
    for _ in 0..4 {
        pass(&t, 31 * DAY).await;
        pass(&t, Duration::from_mins(61)).await;
    }
    shop.owner = again(&t, "ada@example.com").await;
    let now = billing(&t, &shop.owner).await;
    assert_eq!(now["status"], "active", "{now}");
    invariants(&t).await;

    // The organization is deleted, and its subscription with it.
    let deleted = shop.owner.asks(t.ask(Method::DELETE, &format!("/org/{}", shop.org))).await;
    assert!(deleted.status < 300, "{}", deleted.text);
    t.run_jobs().await;
    let sql = "SELECT status FROM billing_subject WHERE org_id = $1";
    let (status,): (String,) = t.janua.db.one(sql, params![&shop.org]).await.unwrap();
    assert_eq!(status, "canceled");
    t.finish().await;
}

#[tokio::test]
async fn a_plan_that_was_to_end_later_and_ended_at_once_is_over() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    subscribe(&t, &ada, "scale", CARD).await;
    let later = ada.asks(t.post("/billing/org/cancel").json(&json!({ "when": "period_end" }))).await;
    assert_eq!((later.status, &later.body["cancelAtPeriodEnd"]), (200, &json!(true)), "{}", later.text);
    let ended = ada.asks(t.post("/billing/org/cancel").json(&json!({ "when": "now" }))).await;
    assert_eq!((ended.status, &ended.body["status"]), (200, &json!("canceled")), "{}", ended.text);
    // The event about it leads to another read.
    t.run_jobs().await;
    let now = billing(&t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("canceled"), &json!("free")), "{now}");
    assert_eq!((&now["cancelAtPeriodEnd"], &now["cancelAt"]), (&json!(false), &Value::Null), "{now}");
    t.finish().await;
}

#[tokio::test]
async fn a_late_event_about_an_earlier_checkout_gives_no_money_back() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    subscribe(&t, &ada, "scale", CARD).await;
    let sql = "SELECT processor_id FROM billing_checkout WHERE state = 'completed'";
    let (first,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    let ended = ada.asks(t.post("/billing/org/cancel").json(&json!({ "when": "now" }))).await;
    assert_eq!(ended.status, 200, "{}", ended.text);
    subscribe(&t, &ada, "scale", CARD).await;
    let checkout = Checkout::of_processor(&t.janua.db, &first).await.unwrap().expect("the first checkout");
    let driver = Payments::of(&t.janua).expect("the sandbox");
    assert_eq!(apply::sync_checkout(&t.janua, driver, &checkout).await.unwrap(), "judged_before");
    // Nor where the processor did not know it for a while.
    let now = t.janua.clock.now();
    db::transact!(t.janua.db, async |tx| Checkout::end(tx, checkout.id, "expired", now).await).unwrap();
    assert_eq!(apply::sync_checkout(&t.janua, driver, &checkout).await.unwrap(), "judged_before");
    t.run_jobs().await;
    let now = billing(&t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{now}");
    let refunded: Vec<_> = now["invoices"].as_array().unwrap().iter().map(|one| &one["refunded"]).collect();
    assert_eq!(refunded, [&json!(0), &json!(0)], "{now}");
    t.finish().await;
}

#[tokio::test]
async fn pc07_fc2_order_doubles_delays_and_losses_end_in_the_same_state() {
    for delivery in ["", "duplicate", "reorder", "delay", "lose"] {
        let t = start(PLANS).await;
        let ada = owner(&t, "ada@example.com").await;
        let made = buy(&t, &ada, "scale").await;
        let paid =
            act(&t, &last(&made.body["url"]), json!({ "action": "pay", "card": CARD, "delivery": delivery })).await;
        assert_eq!(paid.status, 200, "{}", paid.text);
        t.run_jobs().await;
        for _ in 0..3 {
            pass(&t, Duration::from_mins(31)).await;
        }
        let ada = again(&t, "ada@example.com").await;
        let now = billing(&t, &ada).await;
        assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{delivery}: {now}");
        assert_eq!(now["invoices"].as_array().unwrap().len(), 1, "{delivery}: {now}");
        assert_eq!(now["invoices"][0]["paid"], 10_000, "{delivery}");
        let root = signed_in(&t, "root@example.com").await;
        let events = root.asks(t.get("/billing/admin/events")).await;
        let by = if delivery == "lose" { "pulled" } else { "received" };
        assert!(
            events.body["events"].as_array().unwrap().iter().all(|event| event["cameBy"] == by),
            "{}",
            events.text
        );
        let replayed = format!("/billing/admin/events/{}/replay", events.body["events"][0]["id"].as_str().unwrap());
        assert_eq!(root.asks(t.post(&replayed)).await.status, 200);
        t.run_jobs().await;
        let after = billing(&t, &ada).await;
        assert_eq!(
            (&after["status"], &after["invoices"]),
            (&now["status"], &now["invoices"]),
            "a replay changes nothing"
        );
        assert_eq!(ada.asks(t.get("/billing/admin/events")).await.refusal(), (403, "forbidden"));
        t.finish().await;
    }
}

fn signed(t: &TestJanua, body: &str) -> String {
    signature::sign(&sandbox_secret(&t.janua, Source::Billing), t.janua.clock.now(), body.as_bytes())
}

fn event(id: &str, kind: &str, object: &str) -> String {
    json!({ "id": id, "object": "event", "type": kind, "created": 1, "livemode": false, "data": { "object": { "id": object } } })
        .to_string()
}

#[tokio::test]
async fn pc01_pc02_only_a_right_and_recent_signature_is_taken() {
    let t = start(PLANS).await;
    let body = event("evt_1", "customer.updated", "cus_1");
    let send = async |body: &str, header: Option<&str>| {
        let ask = t.post("/billing/webhook").header("content-type", "application/json").body(body.to_owned());
        match header {
            Some(header) => ask.header("processor-signature", header).await,
            None => ask.await,
        }
    };
    let right = signed(&t, &body);
    let (at, mac) = right.split_once(",v1=").unwrap();
    let seconds: i64 = at[2..].parse().unwrap();
    assert_eq!(send(&body, None).await.refusal(), (400, "malformed_header"));
    for wrong in [
        format!("v1={mac}"),
        at.to_owned(),
        format!("{at},v0={mac}"),
        format!("{at},{at},v1={mac}"),
        format!("t=x,{at},v1={mac}"),
        format!("t=-{seconds},v1={mac}"),
        format!("t=1e9,v1={mac}"),
        format!("t=100000000000000000000,v1={mac}"),
        format!("{at}{}", format!(",v1={mac}").repeat(100)),
    ] {
        assert_eq!(send(&body, Some(&wrong)).await.refusal(), (400, "malformed_header"), "{wrong}");
    }
    for wrong in [format!("{at},v1={}", "0".repeat(64)), format!("{at},v1={}", mac.to_uppercase())] {
        assert_eq!(send(&body, Some(&wrong)).await.refusal(), (400, "signature_mismatch"), "{wrong}");
    }
    assert_eq!(send(&format!("{body} "), Some(&right)).await.refusal(), (400, "signature_mismatch"));
    let other = signature::sign(&sandbox_secret(&t.janua, Source::Connect), t.janua.clock.now(), body.as_bytes());
    assert_eq!(send(&body, Some(&other)).await.refusal(), (400, "signature_mismatch"), "PC03: the other secret");
    let secret = sandbox_secret(&t.janua, Source::Billing);
    for (off, is_good) in [(-301, false), (301, false), (-299, true), (299, true)] {
        let at = kernel::clock::Timestamp(t.janua.clock.now().0 + off * 1000);
        let body = event(&format!("evt_{off}"), "customer.updated", "cus_1");
        let answer = send(&body, Some(&signature::sign(&secret, at, body.as_bytes()))).await;
        assert_eq!(answer.status == 200, is_good, "{off}: {}", answer.text);
    }
    // One right signature among several, and both headers when they are the same.
    let several = format!("{at},v1={},v1={mac}", "0".repeat(64));
    let both = t.post("/billing/webhook").body(body.clone()).header("processor-signature", &several);
    assert_eq!(
        both.header("stripe-signature", &right).await.refusal(),
        (400, "malformed_header"),
        "both and different"
    );
    let both = t.post("/billing/webhook").body(body.clone()).header("processor-signature", &several);
    let both = both.header("stripe-signature", &several).await;
    assert_eq!((both.status, &both.body), (200, &json!({ "received": true })), "{}", both.text);

    // PC04: fifty times at once, and the same id with another content.
    let again = join_all((0..50).map(|_| send(&body, Some(&right)))).await;
    assert!(again.iter().all(|answer| answer.body == json!({ "received": true, "duplicate": true })));
    let other = event("evt_1", "customer.updated", "cus_2");
    assert_eq!(send(&other, Some(&signed(&t, &other))).await.refusal(), (400, "event_mismatch"));
    recorded(&t, &["BILLING_EVENT_REJECTED"]).await;

    // PC05: live events have no effect on a test installation, and are written down.
    let live = body.replace("\"livemode\":false", "\"livemode\":true").replace("evt_1", "evt_live");
    assert_eq!(send(&live, Some(&signed(&t, &live))).await.status, 200);
    t.run_jobs().await;
    let sql = "SELECT outcome FROM processor_event WHERE event_id = 'evt_live'";
    let (outcome,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(outcome, "wrong_mode");
    t.finish().await;
}

#[tokio::test]
async fn pc06_what_is_written_into_an_event_chooses_no_tenant() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    subscribe(&t, &ada, "scale", CARD).await;
    let (subject,): (String,) = t.janua.db.one("SELECT id FROM billing_subject", params![]).await.unwrap();
    let (customer,): (String,) = t.janua.db.one("SELECT customer FROM billing_subject", params![]).await.unwrap();
    let bob = owner(&t, "bob@example.com").await;
    let before = billing(&t, &bob).await;
    for (kind, object) in [
        (
            "customer.subscription.updated",
            json!({ "id": "sub_foreign", "status": "active", "customer": customer, "metadata": { "janua": subject } }),
        ),
        (
            "checkout.session.completed",
            json!({ "id": "cs_foreign", "client_reference_id": subject, "subscription": "sub_foreign" }),
        ),
        ("invoice.paid", json!({ "id": "in_foreign", "customer": customer, "amount_paid": 1 })),
        ("charge.refunded", json!({ "id": "ch_foreign", "payment_intent": "pi_foreign" })),
    ] {
        let body =
            json!({ "id": format!("evt_{kind}"), "type": kind, "livemode": false, "data": { "object": object } })
                .to_string();
        let sent =
            t.post("/billing/webhook").body(body.clone()).header("processor-signature", &signed(&t, &body)).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    let ours = billing(&t, &ada).await;
    t.run_jobs().await;
    let after = billing(&t, &ada).await;
    assert_eq!((&after["status"], &after["invoices"]), (&ours["status"], &ours["invoices"]));
    assert_eq!(billing(&t, &bob).await["status"], before["status"]);
    let sql =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM processor_event WHERE event_id LIKE 'evt_%.%' AND outcome = 'unknown'";
    let (unknown,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(unknown, 4);
    t.finish().await;
}

#[tokio::test]
async fn pc08_to_pc12_a_checkout_names_a_plan_and_nothing_else() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    let shop = Shop::open(&t, "eve@example.com", "secret").await;
    let ask = async |body: Value| ada.asks(t.post("/billing/org/checkout").json(&body)).await;
    for (body, refusal) in [
        (json!({ "plan": "enterprise" }), (409, "plan_not_for_sale")),
        (json!({ "plan": "free" }), (409, "plan_not_for_sale")),
        (json!({ "plan": "old" }), (409, "plan_not_for_sale")),
        (json!({ "plan": "app_pro" }), (409, "plan_not_for_sale")),
        (json!({ "plan": "nope" }), (400, "unknown_plan")),
        (json!({ "plan": "scale", "interval": "year" }), (400, "invalid")),
        (json!({ "plan": "team", "seats": 0 }), (400, "invalid")),
        (json!({ "plan": "team", "seats": -1 }), (400, "invalid")),
        (json!({ "plan": "team", "seats": 1_000_000_000 }), (400, "invalid")),
    ] {
        assert_eq!(ask(body.clone()).await.refusal(), refusal, "{body}");
    }
    for url in [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "http://localhost@evil.example/",
        "http://localhost.evil.example/",
        "http://evil.example/",
        "http://localhost:1/#x",
        "HTTPS://EVIL.example",
    ] {
        for field in ["successUrl", "cancelUrl"] {
            let refused = ask(json!({ "plan": "pro", (field): url })).await;
            assert_eq!(refused.refusal(), (400, "redirect_not_allowed"), "{field} {url}");
            assert_eq!(refused.wrong_fields(), [field]);
        }
    }
    // What says more than the plan is left out: the processor sees our price.
    let made = ask(json!({ "plan": "scale", "amount": 1, "price": "price_1", "unitAmount": 1, "currency": "jpy", "trialDays": 900,
                           "coupon": "FREE", "customer": "cus_other", "quantity": 99, "metadata": { "plan": "enterprise" } })).await;
    let shown = t.get(&format!("/sandbox/sessions/{}", last(&made.body["url"]))).await;
    assert_eq!(
        (&shown.body["object"]["amount_total"], &shown.body["object"]["currency"]),
        (&json!(10_000), &json!("usd"))
    );
    assert_eq!(shown.body["trialDays"], 0);
    // PC09, PC11
    assert_eq!(ada.asks(t.get(&format!("/billing/org?orgId={}", shop.org))).await.refusal(), (404, "not_found"));
    let foreign = json!({ "plan": "pro", "orgId": shop.org });
    assert_eq!(ada.asks(t.post("/billing/org/checkout").json(&foreign)).await.refusal(), (404, "not_found"));
    let legacy = json!({ "priceId": "price_of_somebody" });
    assert_eq!(ada.asks(t.post("/billing/checkout-session").json(&legacy)).await.refusal(), (400, "unknown_price"));
    let legacy = ada
        .asks(
            t.post("/billing/checkout-session")
                .json(&json!({ "plan": "pro", "success_url": "http://evil.example/x" })),
        )
        .await;
    assert_eq!(legacy.refusal(), (400, "redirect_not_allowed"));
    let legacy = ada.asks(t.post("/billing/checkout-session").json(&json!({ "plan": "pro" }))).await;
    assert_eq!(legacy.status, 200, "{}", legacy.text);
    assert!(!legacy.header("deprecation").is_empty() && legacy.header("link").contains("/billing/org/checkout"));
    assert_eq!(legacy.body["sessionId"], legacy.body["id"]);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn pc13_twenty_checkouts_at_once_end_in_one_subscription() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    let made = join_all((0..20).map(|_| buy(&t, &ada, "scale"))).await;
    let urls: std::collections::BTreeSet<String> = made.iter().map(|answer| answer.body["url"].to_string()).collect();
    assert!(made.iter().all(|answer| answer.status == 200));
    assert_eq!(urls.len(), 1, "the same checkout: {urls:?}");
    // Another plan ends the first checkout; somebody pays the first one before the processor knows.
    let first = last(&made[0].body["url"]);
    let second = buy(&t, &ada, "team").await;
    assert_eq!(act(&t, &first, json!({ "action": "pay", "card": CARD })).await.status, 404, "it has expired");
    pay(&t, &second.body["url"], CARD).await;
    assert_eq!(billing(&t, &ada).await["plan"], "team");
    // A second subscription that was paid for all the same is canceled and goes back.
    let sql = "SELECT id FROM billing_checkout WHERE plan = 'scale'";
    let (checkout,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    let sql = "UPDATE sandbox_object SET body = REPLACE(body, '\"status\":\"expired\"', '\"status\":\"open\"') WHERE id = $1";
    t.janua.db.exec(sql, params![&first]).await.unwrap();
    let paid = act(&t, &first, json!({ "action": "pay", "card": CARD })).await;
    assert_eq!(paid.status, 200, "{}", paid.text);
    t.run_jobs().await;
    assert_eq!(billing(&t, &ada).await["plan"], "team", "{checkout}");
    let sql = "SELECT body FROM sandbox_object WHERE kind = 'refund'";
    let refunds: Vec<(Value,)> = t.janua.db.all(sql, params![]).await.unwrap();
    assert_eq!(refunds.len(), 1);
    assert_eq!(refunds[0].0["amount"], 10_000);
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM sandbox_object WHERE kind = 'subscription' AND body LIKE '%\"status\":\"active\"%'";
    let (live,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(live, 1, "one live subscription");
    t.finish().await;
}

#[tokio::test]
async fn seats_follow_the_members() {
    let t = start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    subscribe(&t, &ada, "team", CARD).await;
    assert_eq!(billing(&t, &ada).await["seats"], 1);
    let org = billing(&t, &ada).await["orgId"].as_str().unwrap().to_owned();
    let sql = "UPDATE quota SET used = 3 WHERE org_id = $1 AND meter = 'members'";
    t.janua.db.exec(sql, params![&org]).await.unwrap();
    pass(&t, Duration::from_mins(6)).await;
    let now = billing(&t, &ada).await;
    assert_eq!(now["seats"], 3, "{now}");
    t.finish().await;
}

#[tokio::test]
async fn apps_subscribe_on_their_own() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let path = format!("/billing/app?appId={}", shop.app);
    let before = shop.owner.asks(t.get(&path)).await;
    assert_eq!((&before.body["connected"], &before.body["plan"]), (&json!(false), &json!("free")), "{}", before.text);
    let wish = json!({ "appId": shop.app, "plan": "app_pro" });
    assert_eq!(
        shop.owner.asks(t.post("/billing/app/checkout").json(&wish)).await.refusal(),
        (409, "app_not_connected")
    );
    let connect = json!({ "appId": shop.app, "payer": "own", "billingEmail": "money@example.com" });
    let connected = shop.owner.asks(t.post("/billing/app/connect").json(&connect)).await;
    assert_eq!((connected.status, &connected.body["connected"]), (200, &json!(true)), "{}", connected.text);
    let again = shop.owner.asks(t.post("/billing/app/connect").json(&connect)).await;
    assert_eq!(again.body["payer"], connected.body["payer"]);
    recorded(&t, &["APP_BILLING_CONNECTED"]).await;
    let org_plan = json!({ "appId": shop.app, "plan": "scale" });
    assert_eq!(
        shop.owner.asks(t.post("/billing/app/checkout").json(&org_plan)).await.refusal(),
        (409, "plan_not_for_sale")
    );
    let made = shop.owner.asks(t.post("/billing/app/checkout").json(&wish)).await;
    pay(&t, &made.body["url"], CARD).await;
    let now = shop.owner.asks(t.get(&path)).await.body;
    assert_eq!((&now["plan"], &now["status"]), (&json!("app_pro"), &json!("active")), "{now}");
    assert_eq!(billing(&t, &shop.owner).await["plan"], "free", "the organization's plan is its own");
    let opened = shop.owner.asks(t.post("/billing/app/portal").json(&json!({ "appId": shop.app }))).await;
    assert_eq!(opened.status, 200, "{}", opened.text);
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    let deleted = shop.owner.asks(t.ask(Method::DELETE, &format!("/apps/{}", shop.app))).await;
    assert!(deleted.status < 300, "{}", deleted.text);
    t.run_jobs().await;
    let (status,): (String,) =
        t.janua.db.one("SELECT status FROM billing_subject WHERE app_id <> ''", params![]).await.unwrap();
    assert_eq!(status, "canceled");
    t.finish().await;
}

/// Two apps of one organization; one of them buys a plan.
#[tokio::test]
async fn an_app_with_a_plan_of_its_own_spends_from_a_pool_of_its_own() {
    let limits = "[plans.free.limits]\napi_calls = 100\n[plans.app_pro.limits]\napi_calls = 1000\nkeys = 1\n";
    let plans = format!("{PLANS}\n[plans.free]\nname = \"Free\"\n{limits}");
    let t = start(&plans).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let other = id(&make_app(&t, &shop.owner, "Other").await.body);
    let other_key =
        make_key(&t, &shop.owner, &other, "secret", "live").await.body["value"].as_str().unwrap().to_owned();
    let spend = async |key: &str, value: i64| {
        let event = json!({ "meter": "api_calls", "value": value });
        t.post("/usage/track").json(&event).header("x-service-app-key", key).await
    };
    assert_eq!(spend(&shop.key, 60).await.status, 200);
    assert_eq!(spend(&other_key, 41).await.refusal(), (402, "quota_exceeded"), "the two share the organization's");
    let connect = json!({ "appId": shop.app });
    assert_eq!(shop.owner.asks(t.post("/billing/app/connect").json(&connect)).await.status, 200);
    let wish = json!({ "appId": shop.app, "plan": "app_pro" });
    let made = shop.owner.asks(t.post("/billing/app/checkout").json(&wish)).await;
    pay(&t, &made.body["url"], CARD).await;
    let own = spend(&shop.key, 800).await;
    assert_eq!(own.status, 200, "{}", own.text);
    assert_eq!(
        own.body["usage"]["api_calls"],
        json!({ "used": 800, "limit": 1000, "remaining": 200, "overage": false })
    );
    let warned = t.happened().await;
    assert_eq!(warned.iter().filter(|one| *one == "QUOTA_WARNING").count(), 1, "{warned:?}");
    let over = spend(&shop.key, 201).await;
    assert_eq!(
        (over.refusal(), &over.body["plan"], &over.body["used"]),
        ((402, "quota_exceeded"), &json!("app_pro"), &json!(800))
    );
    assert_eq!(spend(&other_key, 40).await.status, 200, "the others go on with the organization's");
    assert_eq!(spend(&other_key, 1).await.status, 402);
    let many = join_all((0..8).map(|_| spend(&shop.key, 199))).await;
    assert_eq!(many.iter().filter(|one| one.status == 200).count(), 1, "also of many at once");
    let view = shop.owner.asks(t.get(&format!("/billing/app?appId={}", shop.app))).await.body;
    let calls = view["limits"].as_array().unwrap().iter().find(|limit| limit["meter"] == "api_calls").unwrap();
    assert_eq!((&view["plan"], &calls["used"], &calls["limit"]), (&json!("app_pro"), &json!(999), &json!(1000)));
    let meters = shop.owner.asks(t.get(&format!("/usage/meters?appId={}", shop.app))).await.body;
    let calls = meters["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "api_calls").unwrap();
    assert_eq!((&meters["plan"], &calls["used"]), (&json!("app_pro"), &json!(999)));
    // What is there at any time counts for the organization, whatever the app's plan says.
    assert_eq!(make_key(&t, &shop.owner, &shop.app, "secret", "live").await.status, 200);
    // When the plan ends, the app shares the organization's again.
    let sql = "SELECT subscription FROM billing_subject WHERE app_id = $1";
    let (subscription,): (String,) = t.janua.db.one(sql, params![&shop.app]).await.unwrap();
    let gone = Wire::new(Verb::Delete, format!("/v1/subscriptions/{subscription}"));
    crate::sandbox::serve_once(&t.janua, &gone).await.unwrap();
    pass(&t, Duration::from_hours(2)).await;
    let refused = spend(&shop.key, 1).await;
    assert_eq!((refused.refusal(), &refused.body["plan"]), ((402, "quota_exceeded"), &json!("free")));
    t.finish().await;
}

#[tokio::test]
async fn pc26_the_sandbox_is_not_there_where_it_must_not_be() {
    let start = |change: fn(&mut Settings), base: &'static str| {
        let config = Config { base_url: Some(base.parse().unwrap()), ..Config::for_tests() }.with(change);
        Payments::from_config(&config).wrong().map(str::to_owned)
    };
    let public = "https://id.example.com";
    let wrong = start(|settings| settings.payments = PaymentsSetting::Sandbox, public).unwrap();
    assert!(wrong.contains("sandbox_is_not_money"), "{wrong}");
    assert_eq!(start(|settings| settings.payments = PaymentsSetting::Sandbox, "http://localhost:8080"), None);
    assert!(
        start(|settings| settings.payments = PaymentsSetting::Stripe, public).unwrap().contains("stripe_secret_key")
    );
    let config = Config { base_url: Some(public.parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    assert_eq!(t.get("/sandbox/sessions/sbx_cs_1").await.refusal(), (404, "not_found"));
    assert_eq!(t.post("/billing/webhook").body("{}").await.refusal(), (503, "payments_not_configured"));
    let ada = owner(&t, "ada@example.com").await;
    assert_eq!(buy(&t, &ada, "pro").await.refusal(), (503, "payments_not_configured"));
    assert_eq!(billing(&t, &ada).await["processor"], Value::Null);
    t.finish().await;

    let t = super::start(PLANS).await;
    let ada = owner(&t, "ada@example.com").await;
    let made = buy(&t, &ada, "scale").await;
    let real = "5555 5555 5555 4444";
    let session = last(&made.body["url"]);
    let refused = act(&t, &session, json!({ "action": "pay", "card": real })).await;
    assert_eq!(refused.refusal(), (400, "not_a_test_card"));
    assert!(!refused.text.contains("5555"));
    for card in ["4000000000000002", "4000000000009995"] {
        assert_eq!(
            act(&t, &session, json!({ "action": "pay", "card": card })).await.refusal(),
            (402, "card_refused")
        );
    }
    let asks = act(&t, &session, json!({ "action": "pay", "card": "4000002500003155" })).await;
    assert_eq!(asks.refusal(), (402, "confirmation_required"));
    let paid = act(&t, &session, json!({ "action": "pay", "card": "4000002500003155", "confirmed": true })).await;
    assert_eq!(paid.status, 200, "{}", paid.text);
    t.run_jobs().await;
    assert_eq!(billing(&t, &ada).await["plan"], "scale");
    t.finish().await;
}

#[tokio::test]
async fn a_live_database_refuses_the_sandbox_and_a_card_has_one_trial() {
    let t = start(PLANS).await;
    for (email, status) in [("ada@example.com", "trialing"), ("bob@example.com", "active")] {
        let person = owner(&t, email).await;
        subscribe(&t, &person, "pro", "4000 0000 0000 0341").await;
        let now = billing(&t, &person).await;
        assert_eq!(now["status"], status, "{email}: {now}");
    }
    db::transact!(t.janua.db, async |tx| kernel::installation::write_once(tx, apply::HAS_LIVE, "1").await).unwrap();
    let started = crate::billing::start(&t.janua).await;
    assert!(started.unwrap_err().contains("real money"));
    t.finish().await;
}
