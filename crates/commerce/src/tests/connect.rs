//! Merchants in the sandbox, and the report of costs.
use std::time::Duration;

use axum::http::Method;
use db::params;
use futures_util::future::join_all;
use identity::testing::{Person, signed_in};
use kernel::testing::{Answer, TestJanua};
use serde_json::{Value, json};

use super::{
    Shop, again,
    billing::{CARD, DAY, PLANS, act, last, pass, pay, recorded, subscribe, track},
    id, make_app, make_key, start,
};

const ACCOUNTS: &str = "/connect/onboard/accounts";
const SESSIONS: &str = "/connect/checkout/sessions";

/// A merchant of the shop who can be paid.
async fn merchant(t: &TestJanua, shop: &Shop) -> String {
    let new = json!({ "appId": shop.app, "country": "DE", "businessName": "Berta's Bakery" });
    let made = shop.owner.asks(t.post(ACCOUNTS).json(&new)).await;
    assert_eq!((made.status, &made.body["account"]["status"]), (200, &json!("onboarding")), "{}", made.text);
    let onboarded = act(t, &last(&made.body["onboardingUrl"]), json!({ "action": "complete" })).await;
    assert_eq!(onboarded.status, 200, "{}", onboarded.text);
    t.run_jobs().await;
    made.body["account"]["accountId"].as_str().unwrap().to_owned()
}

async fn sell(t: &TestJanua, shop: &Shop, merchant: &str, more: &Value) -> Answer {
    let mut new = json!({ "accountId": merchant, "currency": "usd", "items": [{ "name": "Bread", "amount": 500, "quantity": 2 }] });
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    shop.owner.asks(t.post(SESSIONS).json(&new)).await
}

async fn refund(t: &TestJanua, shop: &Shop, id: &Value, amount: Option<i64>, key: &str) -> Answer {
    let body = json!({ "id": id, "action": "refund", "amount": amount });
    shop.owner.asks(t.ask(Method::PATCH, SESSIONS).json(&body)).header("idempotency-key", key).await
}

#[tokio::test]
async fn a_merchant_is_onboarded_paid_and_refunds() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let merchant = merchant(&t, &shop).await;
    recorded(&t, &["MERCHANT_CREATED", "MERCHANT_ENABLED"]).await;
    let details = shop.owner.asks(t.get(&format!("/connect/merchants/{merchant}"))).await;
    assert_eq!(
        (&details.body["status"], &details.body["feePercent"]),
        (&json!("enabled"), &json!("2.5")),
        "{}",
        details.text
    );
    let made = sell(&t, &shop, &merchant, &json!({})).await;
    assert_eq!(
        (made.status, &made.body["amount"], &made.body["fee"]),
        (200, &json!(1000), &json!(55)),
        "{}",
        made.text
    );
    pay(&t, &made.body["url"], CARD).await;
    recorded(&t, &["MERCHANT_PAID"]).await;
    let id = &made.body["id"];
    let one = async || {
        let found = shop.owner.asks(t.get(&format!("{SESSIONS}?id={}", id.as_str().unwrap()))).await;
        found.body["sessions"][0].clone()
    };
    assert_eq!(one().await["status"], "paid");
    // PC25
    let unkeyed = json!({ "id": id, "action": "refund" });
    let unkeyed = shop.owner.asks(t.ask(Method::PATCH, SESSIONS).json(&unkeyed)).await;
    assert_eq!(unkeyed.refusal(), (400, "idempotency_key_required"));
    assert_eq!(refund(&t, &shop, id, Some(1001), "a").await.refusal(), (409, "not_refundable"));
    assert_eq!(refund(&t, &shop, id, Some(-1), "a").await.refusal(), (400, "invalid"));
    let part = refund(&t, &shop, id, Some(400), "b").await;
    assert_eq!(
        (part.status, &part.body["refunded"], &part.body["status"]),
        (200, &json!(400), &json!("partially_refunded")),
        "{}",
        part.text
    );
    assert_eq!(part.body["feeRefunded"], 22);
    let same = refund(&t, &shop, id, Some(400), "b").await;
    assert_eq!(same.body["refunded"], 400, "the same key takes effect once");
    let keys: Vec<String> = (0..8).map(|n| format!("parallel {n}")).collect();
    let many = join_all(keys.iter().map(|key| refund(&t, &shop, id, Some(200), key))).await;
    assert_eq!(many.iter().filter(|answer| answer.status == 200).count(), 3, "three times 200 are left of 600");
    t.run_jobs().await;
    let now = one().await;
    assert_eq!(
        (&now["refunded"], &now["status"], &now["feeRefunded"]),
        (&json!(1000), &json!("refunded"), &json!(55)),
        "{now}"
    );
    pass(&t, 3 * DAY).await;
    let owner = again(&t, "ada@example.com").await;
    let details = owner.asks(t.get(&format!("/connect/merchants/{merchant}"))).await;
    assert_eq!(details.body["payouts"][0]["status"], "paid", "{}", details.text);
    let ended = owner.asks(t.ask(Method::DELETE, &format!("/connect/merchants/{merchant}"))).await;
    assert_eq!(ended.body["status"], "disconnected", "{}", ended.text);
    t.finish().await;
}

#[tokio::test]
async fn pc24_merchants_of_others_are_not_there_and_amounts_come_from_who_may_say_them() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let merchant = merchant(&t, &shop).await;
    let eve = Shop::open(&t, "eve@example.com", "publishable").await;
    let (account,): (String,) = t.janua.db.one("SELECT account FROM merchant", params![]).await.unwrap();
    let path = format!("/connect/merchants/{merchant}");
    for ask in [
        t.get(&path),
        t.post(&path).json(&json!({ "action": "refresh" })),
        t.ask(Method::PATCH, &path).json(&json!({ "displayName": "Mine" })),
        t.ask(Method::DELETE, &path),
        t.get(&format!("{ACCOUNTS}?accountId={merchant}")),
        t.get(&format!("{ACCOUNTS}?appId={}", shop.app)),
        t.ask(Method::PATCH, ACCOUNTS).json(&json!({ "accountId": merchant, "newLink": true })),
        t.ask(Method::DELETE, &format!("{ACCOUNTS}?accountId={merchant}")),
        t.post("/connect/onboard/done").json(&json!({ "accountId": merchant })),
        t.post(SESSIONS).json(&json!({ "accountId": merchant, "currency": "usd", "total": 100 })),
        t.get(&format!("{SESSIONS}?appId={}", shop.app)),
        t.get(&format!("/connect/merchants/{account}")),
    ] {
        let answer = eve.owner.asks(ask).await;
        assert_eq!(answer.refusal(), (404, "not_found"), "{}", answer.text);
    }
    let by_key = async |key: &str, id: &str| {
        t.post(SESSIONS)
            .json(&json!({ "accountId": id, "currency": "usd", "total": 100 }))
            .header("x-service-app-key", key)
            .await
    };
    assert_eq!(by_key(&eve.key, &merchant).await.refusal(), (403, "secret_key_required"));
    let secret =
        make_key(&t, &eve.owner, &eve.app, "secret", "live").await.body["value"].as_str().unwrap().to_owned();
    assert_eq!(by_key(&secret, &merchant).await.refusal(), (404, "not_found"), "a secret key is of one app");
    assert_eq!(by_key(&shop.key, &merchant).await.status, 200);
    // A cursor counts in the lists of its own app alone.
    let new = json!({ "appId": shop.app, "country": "FR" });
    assert_eq!(shop.owner.asks(t.post(ACCOUNTS).json(&new)).await.status, 200);
    assert_eq!(by_key(&shop.key, &merchant).await.status, 200);
    for list in [ACCOUNTS, SESSIONS] {
        let first = shop.owner.asks(t.get(&format!("{list}?appId={}&limit=1", shop.app))).await;
        let cursor = first.body["nextCursor"].as_str().expect("a second page").to_owned();
        let next = shop.owner.asks(t.get(&format!("{list}?appId={}&cursor={cursor}", shop.app))).await;
        assert_eq!(next.status, 200, "{}", next.text);
        let other = eve.owner.asks(t.get(&format!("{list}?appId={}&cursor={cursor}", eve.app))).await;
        assert_eq!(other.refusal(), (400, "bad_cursor"), "{list}");
    }
    // The way back works once, and for who went.
    let link = json!({ "accountId": merchant, "newLink": true });
    shop.owner.asks(t.ask(Method::PATCH, ACCOUNTS).json(&link)).await;
    let sql = "SELECT body FROM sandbox_object WHERE kind = 'link' ORDER BY created_at DESC, id DESC";
    let links: Vec<(Value,)> = t.janua.db.all(sql, params![]).await.unwrap();
    let (link,) = links.iter().find(|(link,)| link["_account"] == account.as_str()).unwrap();
    let back = format!("/connect{}", link["_back"].as_str().unwrap().split_once("/connect").unwrap().1);
    assert_eq!(eve.owner.asks(t.get(&back)).await.refusal(), (410, "token_spent"));
    let returned = shop.owner.asks(t.get(&back)).await;
    assert_eq!(returned.status, 303, "{}", returned.text);
    assert!(returned.header("location").ends_with("status=enabled"), "{}", returned.header("location"));
    assert_eq!(shop.owner.asks(t.get(&back)).await.refusal(), (410, "token_spent"));
    let wrong = t.ask(Method::DELETE, "/connect/onboard/done").await;
    assert_eq!(wrong.status, 405);
    assert!(
        wrong.header("allow").contains("GET") && wrong.header("allow").contains("POST"),
        "{}",
        wrong.header("allow")
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn destination_charges_disputes_and_a_merchant_who_is_not_ready() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let new = json!({ "appId": shop.app, "country": "DE" });
    let made = shop.owner.asks(t.post(ACCOUNTS).json(&new)).await;
    let early = made.body["account"]["accountId"].as_str().unwrap().to_owned();
    assert_eq!(sell(&t, &shop, &early, &json!({})).await.refusal(), (409, "merchant_not_ready"));
    for (action, status) in [("review", "in_review"), ("restrict", "restricted"), ("reject", "disabled")] {
        let link = shop
            .owner
            .asks(t.ask(Method::PATCH, ACCOUNTS).json(&json!({ "accountId": early, "newLink": true })))
            .await;
        act(&t, &last(&link.body["onboardingUrl"]), json!({ "action": action })).await;
        t.run_jobs().await;
        let now = shop.owner.asks(t.get(&format!("/connect/merchants/{early}"))).await;
        assert_eq!(now.body["status"], status, "{}", now.text);
    }
    let merchant = merchant(&t, &shop).await;
    let made = sell(&t, &shop, &merchant, &json!({ "chargeType": "destination" })).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let busy = shop.owner.asks(t.ask(Method::DELETE, &format!("/connect/merchants/{merchant}"))).await;
    assert_eq!(busy.refusal(), (409, "merchant_busy"));
    pay(&t, &made.body["url"], "4000000000000259").await;
    pass(&t, Duration::from_mins(2)).await;
    let path = format!("{SESSIONS}?id={}", made.body["id"].as_str().unwrap());
    let found = shop.owner.asks(t.get(&path)).await;
    assert_eq!(found.body["sessions"][0]["status"], "disputed", "{}", found.text);
    let expiring = sell(&t, &shop, &merchant, &json!({})).await;
    let expired = shop
        .owner
        .asks(t.ask(Method::DELETE, &format!("{SESSIONS}?id={}", expiring.body["id"].as_str().unwrap())))
        .await;
    assert_eq!(expired.body["status"], "expired", "{}", expired.text);
    t.run_jobs().await;
    pass(&t, 8 * DAY).await;
    t.finish().await;
}

#[tokio::test]
async fn the_report_adds_revenue_and_costs_exactly() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    subscribe(&t, &shop.owner, "scale", CARD).await;
    track(&t, &shop, 1234).await;
    let costly = json!({ "meter": "api_calls", "value": 1, "cost": { "amount": "0.025", "currency": "usd" } });
    t.post("/usage/track").json(&costly).header("x-service-app-key", &shop.key).await;
    let merchant = merchant(&t, &shop).await;
    let sold = sell(&t, &shop, &merchant, &json!({})).await;
    pay(&t, &sold.body["url"], CARD).await;
    let root = signed_in(&t, "root@example.com").await;
    let report = root.asks(t.get("/billing/admin/cost")).await;
    let row =
        report.body["rows"].as_array().unwrap().iter().find(|row| row["orgId"] == shop.org.as_str()).unwrap().clone();
    assert_eq!(row["revenue"]["subscriptions"], 10_000, "{row}");
    assert_eq!(row["revenue"]["merchantFees"], 55);
    assert_eq!(row["cost"]["metered"], "1.235", "1235 calls at 0.001");
    assert_eq!(row["cost"]["events"], "0.025");
    assert_eq!(row["cost"]["processorFees"], 320, "2.9 % + 30");
    assert_eq!(row["lines"][0]["quantity"], 1235);
    assert_eq!(row["plan"], "scale");
    let revenue: i64 = row["revenue"]["total"].as_str().unwrap().parse().unwrap();
    assert_eq!(revenue, 10_055);
    assert_eq!(report.body["totals"][0]["currency"], "usd");
    let csv = root.asks(t.get("/billing/admin/cost?groupBy=plan")).header("accept", "text/csv").await;
    assert!(csv.text.starts_with("orgId,") && csv.text.contains("scale"), "{}", csv.text);
    assert_eq!(shop.owner.asks(t.get("/billing/admin/cost")).await.refusal(), (403, "forbidden"));
    t.run_jobs().await;
    t.finish().await;
}

/// In one currency and with what an event said it cost.
async fn cost(t: &TestJanua, shop: &Shop, cost: &str) {
    let costly = json!({ "meter": "api_calls", "value": 1, "cost": { "amount": cost, "currency": "usd" } });
    let tracked = t.post("/usage/track").json(&costly).header("x-service-app-key", &shop.key).await;
    assert_eq!(tracked.status, 200, "{}", tracked.text);
}

#[tokio::test]
async fn the_report_keeps_organizations_and_apps_apart() {
    let t = start(PLANS).await;
    let (ada, bob) =
        (Shop::open(&t, "ada@example.com", "secret").await, Shop::open(&t, "bob@example.com", "secret").await);
    let renamed = t.ask(Method::PATCH, &format!("/org/{}", bob.org)).json(&json!({ "name": "Bakery" }));
    assert_eq!(bob.owner.asks(renamed).await.status, 200);
    let second = id(&make_app(&t, &ada.owner, "Second").await.body);
    let key = make_key(&t, &ada.owner, &second, "secret", "live").await.body["value"].as_str().unwrap().to_owned();
    let other = Shop { owner: again(&t, "ada@example.com").await, org: ada.org.clone(), app: second, key };
    for (shop, calls, cents) in [(&ada, 10, "0.5"), (&other, 20, "0.25"), (&bob, 400, "1")] {
        track(&t, shop, calls).await;
        track(&t, shop, calls).await;
        cost(&t, shop, cents).await;
    }
    let root = signed_in(&t, "root@example.com").await;
    let report = async |root: &Person, query: &str| root.asks(t.get(&format!("/billing/admin/cost?{query}"))).await;
    let rows = |report: &Answer, name: &str, of: &str| -> Vec<(String, i64, String)> {
        let rows = report.body["rows"].as_array().unwrap().iter().filter(|row| row[name] == of);
        let figures = rows.map(|row| {
            let calls = row["lines"].as_array().unwrap().iter().find(|line| line["meter"] == "api_calls");
            let events = row["cost"]["events"].as_str().unwrap().to_owned();
            let org = row["orgName"].as_str().unwrap_or_default().to_owned();
            (org, calls.map_or(0, |line| line["quantity"].as_i64().unwrap()), events)
        });
        figures.collect()
    };
    let orgs = report(&root, "").await;
    let name = |shop: &Shop| rows(&orgs, "orgId", &shop.org)[0].0.clone();
    assert_eq!(rows(&orgs, "orgId", &ada.org), [(name(&ada), 62, "0.75".to_owned())], "{}", orgs.text);
    assert_eq!(rows(&orgs, "orgId", &bob.org), [(name(&bob), 801, "1".to_owned())]);
    assert!(name(&bob) == "Bakery" && !["", "Bakery"].contains(&name(&ada).as_str()), "each has its name");
    let apps = report(&root, "groupBy=app").await;
    for (shop, calls, cents) in [(&ada, 21, "0.5"), (&other, 41, "0.25"), (&bob, 801, "1")] {
        let found = rows(&apps, "appId", &shop.app);
        assert_eq!(found, [(name(shop), calls, cents.to_owned())], "{}", apps.text);
    }
    // What an app counts up to the end of all numbers does not keep the others from the report.
    let most = 9_007_199_254_740_991_i64 << 10;
    t.janua
        .db
        .exec("UPDATE usage_total SET total = $1 WHERE app_id = $2", params![most, bob.app.as_str()])
        .await
        .unwrap();
    pass(&t, Duration::from_mins(16)).await;
    track(&t, &bob, 9_007_199_254_740_991).await;
    let orgs = report(&again(&t, "root@example.com").await, "").await;
    assert_eq!(rows(&orgs, "orgId", &ada.org)[0].1, 62, "{}", orgs.text);
    t.run_jobs().await;
    t.finish().await;
}
