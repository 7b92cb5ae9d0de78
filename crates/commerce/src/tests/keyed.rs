//! Rows about an app, which a key of it can name.
use identity::testing::signed_in;
use serde_json::{Value, json};

use super::{Shop, billing::PLANS, id, make_app, start};
use kernel::testing::{Answer, TestJanua};

async fn get(t: &TestJanua, shop: &Shop, path: &str) -> Answer {
    shop.owner.asks(t.get(path)).header("x-service-app-key", &shop.key).await
}

async fn post(t: &TestJanua, shop: &Shop, path: &str, body: Value) -> Answer {
    shop.owner.asks(t.post(path).json(&body)).header("x-service-app-key", &shop.key).await
}

#[tokio::test]
async fn a_key_names_the_app_instead_of_its_id() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    let connected = post(&t, &shop, "/billing/app/connect", json!({ "payer": "own" })).await;
    assert_eq!(connected.status, 200, "{}", connected.text);
    let by_key = get(&t, &shop, "/billing/app").await;
    let by_id = shop.owner.asks(t.get(&format!("/billing/app?appId={}", shop.app))).await;
    assert_eq!((by_key.status, &by_key.body), (200, &by_id.body), "{}", by_key.text);
    let both = get(&t, &shop, &format!("/billing/app?appId={}", shop.app)).await;
    assert_eq!(both.body, by_id.body, "both, if they agree");
    let bought = post(&t, &shop, "/billing/app/checkout", json!({ "plan": "app_pro" })).await;
    assert_eq!(bought.status, 200, "{}", bought.text);
    let portal = post(&t, &shop, "/billing/app/portal", json!({})).await;
    assert_eq!(portal.status, 200, "{}", portal.text);
    let merchants = get(&t, &shop, "/connect/onboard/accounts").await;
    assert_eq!((merchants.status, &merchants.body["accounts"]), (200, &json!([])), "{}", merchants.text);
    let merchant = post(&t, &shop, "/connect/onboard/accounts", json!({ "country": "DE" })).await;
    assert_eq!(merchant.body["account"]["appId"], shop.app.as_str(), "{}", merchant.text);
    assert_eq!(get(&t, &shop, "/connect/checkout/sessions").await.status, 200);
    for path in ["/usage", "/usage/meters"] {
        let read = get(&t, &shop, path).await;
        assert_eq!(read.status, 200, "{path}: {}", read.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_key_opens_nothing_that_its_bearer_may_not() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    let other = id(&make_app(&t, &shop.owner, "Other").await.body);
    for path in ["/billing/app", "/connect/onboard/accounts", "/connect/checkout/sessions", "/usage"] {
        let refused = get(&t, &shop, &format!("{path}?appId={other}")).await;
        assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["appId"]), "{path}: {}", refused.text);
        let alone = t.get(path).header("x-service-app-key", &shop.key).await;
        assert!(matches!(alone.status, 401 | 403), "{path}: a key is no session: {}", alone.text);
        let unknown = shop.owner.asks(t.get(path)).header("x-service-app-key", "pk_live_unknown").await;
        assert_eq!(unknown.status, 401, "{path}: {}", unknown.text);
    }
    let body = json!({ "appId": other, "plan": "app_pro" });
    assert_eq!(post(&t, &shop, "/billing/app/checkout", body).await.status, 400);
    // A stranger gets a publishable key out of any page.
    let eve = Shop { owner: signed_in(&t, "eve@example.com").await, ..shop };
    for path in ["/billing/app", "/connect/onboard/accounts", "/connect/checkout/sessions", "/usage"] {
        assert_eq!(get(&t, &eve, path).await.refusal(), (404, "not_found"), "{path}");
    }
    assert_eq!(post(&t, &eve, "/billing/app/connect", json!({})).await.refusal(), (404, "not_found"));
    t.run_jobs().await;
    t.finish().await;
}
