//! Changes of a merchant: the audit log, the role at the moment of the change, and keys of apps.
use std::time::Duration;

use axum::http::Method;
use db::{params, row};
use kernel::testing::{Ask, TestJanua};
use serde_json::{Value, json};

use super::{Shop, billing::PLANS, id, make_app, make_key, start};

const ACCOUNTS: &str = "/connect/onboard/accounts";

async fn merchant(t: &TestJanua, shop: &Shop) -> String {
    let new = json!({ "appId": shop.app, "country": "DE", "businessName": "Berta's Bakery" });
    let made = shop.owner.asks(t.post(ACCOUNTS).json(&new)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    t.run_jobs().await;
    made.body["account"]["accountId"].as_str().unwrap().to_owned()
}

struct Changed {
    actor: String,
    details: Value,
}
row!(Changed { actor, details });

/// The fields of every change in the audit log, with who changed them.
async fn changes(t: &TestJanua) -> Vec<(String, Value)> {
    let sql = "SELECT actor, details FROM audit_event WHERE type = 'MERCHANT_UPDATED' ORDER BY at, id";
    let rows: Vec<Changed> = t.janua.db.all(sql, params![]).await.unwrap();
    rows.into_iter().map(|row| (row.actor, row.details["fields"].clone())).collect()
}

#[tokio::test]
async fn a_change_of_a_merchant_leaves_a_row_in_the_audit_log() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let id = merchant(&t, &shop).await;
    let path = format!("/connect/merchants/{id}");
    let change = async |method: Method, path: &str, body: Value| {
        let changed = shop.owner.asks(t.ask(method, path).json(&body)).await;
        assert_eq!(changed.status, 200, "{}", changed.text);
        changed.body
    };
    let now = change(Method::PATCH, &path, json!({ "displayName": "Berta", "defaultCurrency": "chf" })).await;
    assert_eq!((&now["displayName"], &now["defaultCurrency"]), (&json!("Berta"), &json!("chf")), "{now}");
    // What is the same as before is no change.
    change(Method::PUT, &path, json!({ "displayName": "Berta" })).await;
    change(Method::PUT, &path, json!({ "displayName": "Berta's", "defaultCurrency": "chf" })).await;
    change(Method::PATCH, ACCOUNTS, json!({ "accountId": id, "email": "berta@example.com" })).await;
    change(Method::PUT, ACCOUNTS, json!({ "accountId": id, "businessName": "Berta AG", "newLink": true })).await;
    let fields = [
        json!(["displayName", "defaultCurrency"]),
        json!(["displayName"]),
        json!(["email"]),
        json!(["businessName"]),
    ];
    let expected: Vec<(String, Value)> = fields.into_iter().map(|fields| (shop.owner.id.clone(), fields)).collect();
    assert_eq!(changes(&t).await, expected);
    t.run_jobs().await;
    t.finish().await;
}

/// The caller is an admin when the request is checked, and a member when it would write.
async fn demoted_meanwhile(t: &TestJanua, shop: &Shop, ask: Ask<'_>) {
    let role = async |tx: &mut db::Tx, role: &str| {
        let sql = "UPDATE org_member SET role = $2 WHERE account_id = $1";
        tx.exec(sql, params![shop.owner.id.as_str(), role]).await.unwrap();
    };
    let mut demoting = t.janua.db.begin().await.unwrap();
    demoting.exec("UPDATE org SET name = name WHERE id = $1", params![shop.org.as_str()]).await.unwrap();
    role(&mut demoting, "member").await;
    let mut asking = std::pin::pin!(shop.owner.asks(ask).into_future());
    let early = tokio::time::timeout(Duration::from_millis(500), &mut asking).await;
    assert!(early.is_err(), "the change waits for the transaction that holds the organization");
    demoting.commit().await.unwrap();
    let refused = asking.await;
    assert_eq!(refused.refusal(), (403, "forbidden"), "{}", refused.text);
    let mut again = t.janua.db.begin().await.unwrap();
    role(&mut again, "owner").await;
    again.commit().await.unwrap();
}

#[tokio::test]
async fn an_admin_who_is_a_member_meanwhile_changes_no_merchant() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let id = merchant(&t, &shop).await;
    let path = format!("/connect/merchants/{id}");
    demoted_meanwhile(&t, &shop, t.ask(Method::PATCH, &path).json(&json!({ "displayName": "Mine" }))).await;
    let body = json!({ "accountId": id, "businessName": "Mine" });
    demoted_meanwhile(&t, &shop, t.ask(Method::PATCH, ACCOUNTS).json(&body)).await;
    demoted_meanwhile(&t, &shop, t.ask(Method::DELETE, &path)).await;
    let now = shop.owner.asks(t.get(&path)).await;
    assert_eq!((&now.body["displayName"], &now.body["status"]), (&json!("Berta's Bakery"), &json!("onboarding")));
    assert_eq!(changes(&t).await, []);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_key_beside_a_session_names_the_app_of_the_merchant() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    let merchant = merchant(&t, &shop).await;
    let other = id(&make_app(&t, &shop.owner, "Other").await.body);
    let foreign = make_key(&t, &shop.owner, &other, "publishable", "live").await;
    let foreign = foreign.body["value"].as_str().unwrap().to_owned();
    let path = format!("/connect/merchants/{merchant}");
    let asks = || {
        [
            t.get(&path),
            t.post(&path).json(&json!({ "action": "refresh" })),
            t.ask(Method::PATCH, &path).json(&json!({ "displayName": "Berta" })),
            t.ask(Method::PUT, &path).json(&json!({ "displayName": "Berta's" })),
            t.ask(Method::PATCH, ACCOUNTS).json(&json!({ "accountId": merchant, "businessName": "Berta" })),
            t.post("/connect/onboard/done").json(&json!({ "accountId": merchant })),
            t.ask(Method::DELETE, &path),
        ]
    };
    for ask in asks() {
        let hidden = shop.owner.asks(ask).header("x-service-app-key", &foreign).await;
        assert_eq!(hidden.refusal(), (404, "not_found"), "the key of another app: {}", hidden.text);
    }
    for ask in asks() {
        let answer = shop.owner.asks(ask).header("x-service-app-key", &shop.key).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for ask in asks() {
        let alone = ask.header("x-service-app-key", &shop.key).await;
        assert_eq!(alone.status, 401, "a key is no session: {}", alone.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

/// The description names the header where it is read, and `PUT` under a name of its own.
#[tokio::test]
async fn the_description_names_the_key_and_both_ways_to_change() {
    let t = start(PLANS).await;
    let description = t.janua.description.get().expect("the description").value();
    let has_header = |operation: &Value| {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters.filter(|one| one["in"] == "header").any(|one| one["name"] == "X-Service-App-Key")
    };
    let paths = &description["paths"];
    for (path, methods) in [
        ("/connect/merchants/{accountId}", &["get", "post", "patch", "put", "delete"][..]),
        (ACCOUNTS, &["get", "post", "patch", "put", "delete"]),
        ("/billing/app", &["get"]),
        ("/usage", &["get"]),
    ] {
        for method in methods {
            assert!(has_header(&paths[path][method]), "{method} {path}: {}", paths[path][method]["parameters"]);
        }
    }
    let names = ["patch", "put"].map(|method| &paths["/connect/merchants/{accountId}"][method]["operationId"]);
    assert_eq!(names, [&json!("connect.change_merchant"), &json!("connect.put_merchant")]);
    t.finish().await;
}
