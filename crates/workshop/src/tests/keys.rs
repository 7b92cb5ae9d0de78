//! Keys, and the people who come in with one.
use std::time::Duration;

use db::testing::TestDb;
use identity::testing::member;

use super::*;

fn claims(token: &Value) -> Value {
    let middle = token.as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    serde_json::from_slice(&data_encoding::BASE64URL_NOPAD.decode(middle.as_bytes()).unwrap()).unwrap()
}

#[tokio::test]
async fn p55_a_key_is_shown_once_and_gone_at_once() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "App").await;
    t.happened().await;
    let live = make_key(&t, &ada, id(&app), "publishable", "live").await;
    let test = make_key(&t, &ada, id(&app), "publishable", "test").await;
    let secret = make_key(&t, &ada, id(&app), "secret", "live").await;
    for (key, start) in [(&live, "pk_live_"), (&test, "pk_test_"), (&secret, "sk_live_")] {
        let value = key["value"].as_str().unwrap();
        assert!(value.starts_with(start) && value.len() >= start.len() + 40, "{value}");
        assert_eq!(key["prefix"].as_str().unwrap(), &value[..start.len() + 4]);
    }
    let wrong = json!({ "type": "secret", "environment": "test" });
    let path = format!("/apps/{}/keys", id(&app));
    assert_eq!(ada.asks(t.post(&path).json(&wrong)).await.wrong_fields(), ["environment"]);
    let unknown = json!({ "type": "root", "environment": "moon" });
    let refused = ada.asks(t.post(&path).json(&unknown)).await;
    assert_eq!(refused.wrong_fields(), ["environment", "type"], "each once");
    assert!(refused.text.contains(r#"must be one of [\"publishable\",\"secret\"]"#), "{}", refused.text);
    let listed = ada.asks(t.get(&path)).await;
    assert_eq!(listed.body["keys"].as_array().unwrap().len(), 3);
    for key in [&live, &test, &secret] {
        assert!(!listed.text.contains(key["value"].as_str().unwrap()), "never again");
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM app_key WHERE hash = $1";
        let plain: (i64,) = t.janua.db.one(sql, db::params![key["value"].as_str().unwrap()]).await.unwrap();
        assert_eq!(plain, (0,));
    }
    member(&t, "bob@example.com").await;
    let value = live["value"].as_str().unwrap();
    assert_eq!(login_with(&t, "bob@example.com", value).await.status, 200);
    let used = ada.asks(t.get(&path)).await;
    let used = used.body["keys"].as_array().unwrap().iter().find(|key| key["id"] == live["id"]).unwrap().clone();
    assert!(used["lastUsedAt"].is_string(), "{used}");
    let one = format!("{path}/{}", id(&live));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &one)).await.status, 204);
    let gone = login_with(&t, "bob@example.com", value).await;
    assert_eq!(gone.refusal(), (401, "invalid_app_key"), "the next request");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &one)).await.refusal(), (404, "not_found"));
    assert_eq!(login_with(&t, "bob@example.com", "pk_live_made-up").await.refusal(), (401, "invalid_app_key"));
    let events = t.happened().await;
    assert_eq!(events.iter().filter(|event| *event == "APP_KEY_CREATED").count(), 3);
    assert_eq!(events.last().unwrap(), "APP_KEY_DELETED");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_with_a_key_belongs_to_the_app() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "App").await;
    let key = make_key(&t, &ada, id(&app), "publishable", "live").await["value"].as_str().unwrap().to_owned();
    for (email, name) in [("bob@example.com", "Bob"), ("cyd_x@example.com", "Cyd")] {
        member(&t, email).await;
        let sql = "UPDATE account SET name = $2 WHERE email = $1";
        t.janua.db.exec(sql, db::params![email, name]).await.unwrap();
        t.advance(Duration::from_secs(1));
        let entered = login_with(&t, email, &key).await;
        let said = claims(&entered.body["accessToken"]);
        assert_eq!((&said["aud"], &said["appId"]), (&app["id"], &app["id"]));
        let renewed = refresh_with(&t, &entered.body["refreshToken"], Some(&key)).await;
        assert_eq!(claims(&renewed.body["accessToken"])["aud"], app["id"], "and stays so");
    }
    let path = format!("/apps/{}/users", id(&app));
    let users = ada.asks(t.get(&path)).await;
    let emails = |answer: &Answer| -> Vec<String> {
        answer.body["users"].as_array().unwrap().iter().map(|u| u["email"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(emails(&users), ["cyd_x@example.com", "bob@example.com"], "who came last is first");
    assert!(users.body["users"][0]["firstSignInAt"].is_string());
    for (search, found) in
        [("BOB", vec!["bob@example.com"]), ("cy", vec!["cyd_x@example.com"]), ("cyd_", vec!["cyd_x@example.com"])]
    {
        assert_eq!(emails(&ada.asks(t.get(&format!("{path}?search={search}"))).await), found, "{search}");
    }
    for nothing in ["%25", "_ob", "example", "%5C", "yd", "bob%20cyd"] {
        assert_eq!(emails(&ada.asks(t.get(&format!("{path}?search={nothing}"))).await), [""; 0], "{nothing}");
    }
    let log = ada.asks(t.get(&format!("/org/{}/export", app["orgId"].as_str().unwrap()))).await;
    assert_eq!(log.status, 200);
    let bob = Person::of(&identity::testing::login(&t, "bob@example.com", identity::testing::PASSWORD).await);
    let kept = bob.asks(t.get("/auth/export")).await;
    assert_eq!(kept.body["usedApps"][0]["appId"], app["id"], "{}", kept.text);
    let kept = ada.asks(t.get("/auth/export")).await;
    assert_eq!(kept.body["orgs"][0]["id"], app["orgId"], "{}", kept.text);
    // P21: a device's code is for the app that asked for it.
    let begun = t.post("/auth/device/code").header("x-service-app-key", &key).await.body;
    let approve = json!({ "user_code": begun["user_code"] });
    assert_eq!(ada.asks(t.post("/auth/device/verify").json(&approve)).await.status, 200);
    let poll = json!({ "device_code": begun["device_code"] });
    assert_eq!(t.post("/auth/device/token").json(&poll).await.refusal(), (400, "invalid_grant"));
    let second = make_app(&t, &ada, "Second").await;
    let other = make_key(&t, &ada, id(&second), "publishable", "live").await["value"].as_str().unwrap().to_owned();
    let answer = t.post("/auth/device/token").json(&poll).header("x-service-app-key", &other).await;
    assert_eq!(answer.refusal(), (400, "invalid_grant"));
    let answer = t.post("/auth/device/token").json(&poll).header("x-service-app-key", &key).await;
    assert_eq!(claims(&answer.body["accessToken"])["aud"], app["id"], "{}", answer.text);
    // With the app its sessions go.
    let device = Person::of(&answer);
    assert_eq!(device.asks(t.get("/auth/me")).await.status, 200);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&app)))).await.status, 204);
    assert_eq!(device.asks(t.get("/auth/me")).await.status, 401);
    t.run_jobs().await;
    t.finish().await;
}

async fn refresh_with(t: &TestJanua, token: &Value, key: Option<&str>) -> Answer {
    let ask = t.post("/auth/refresh").json(&json!({ "refreshToken": token }));
    match key {
        Some(key) => ask.header("x-service-app-key", key).await,
        None => ask.await,
    }
}

#[tokio::test]
async fn p14_a_refresh_token_is_its_apps() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let key = |app: Value| make_key_value(&t, &ada, app);
    let (first, second) = (key(one.clone()).await, key(two).await);
    let entered = login_with(&t, "ada@example.com", &first).await;
    let token = &entered.body["refreshToken"];
    for wrong in [None, Some(second.as_str())] {
        assert_eq!(refresh_with(&t, token, wrong).await.refusal(), (401, "unauthenticated"));
    }
    t.advance(Duration::from_mins(1));
    assert_eq!(refresh_with(&t, token, Some(&first)).await.status, 200, "it still works for its app");
    t.advance(Duration::from_mins(1));
    for wrong in [None, Some(second.as_str())] {
        assert_eq!(refresh_with(&t, token, wrong).await.status, 401, "an old one in the wrong hands ends nothing");
    }
    let own = json!(ada.refresh);
    assert_eq!(refresh_with(&t, &own, Some(&first)).await.status, 401, "the service's own is no app's");
    assert_eq!(refresh_with(&t, &own, None).await.status, 200);
    // Another key of the same app is the same app.
    let other = make_key_value(&t, &ada, one).await;
    let entered = login_with(&t, "ada@example.com", &first).await;
    assert_eq!(refresh_with(&t, &entered.body["refreshToken"], Some(&other)).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

async fn make_key_value(t: &TestJanua, person: &Person, app: Value) -> String {
    make_key(t, person, id(&app), "publishable", "live").await["value"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn p55_a_deleted_key_is_gone_on_every_node() {
    if !TestDb::on_postgres() {
        // An embedded database has one node.
        return;
    }
    let t = start().await;
    let other = t.another_node(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "App").await;
    let key = make_key(&t, &ada, id(&app), "publishable", "live").await;
    let value = key["value"].as_str().unwrap();
    let ask = || other.post("/auth/device/code").header("x-service-app-key", value).send();
    assert_eq!(ask().await.status, 200, "the other node remembers it");
    let path = format!("/apps/{}/keys/{}", id(&app), id(&key));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    let gone = async {
        while ask().await.status != 401 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.expect("there within a second");
    drop(other);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_of_an_app_builds_nothing_and_goes_with_its_own_key() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let (first, second) = (make_key_value(&t, &ada, one.clone()).await, make_key_value(&t, &ada, two).await);
    let through = Person::of(&login_with(&t, "ada@example.com", &first).await);
    let (app, org) = (format!("/apps/{}", id(&one)), format!("/org/{}", one["orgId"].as_str().unwrap()));
    for ask in [t.get(&org), t.get(&app), t.ask(Method::DELETE, &app), t.ask(Method::DELETE, &org)] {
        assert_eq!(through.asks(ask).await.refusal(), (403, "app_session"));
    }
    let me = |key: &str| through.asks(t.get("/auth/me")).header("x-service-app-key", key).send();
    assert_eq!(me(&first).await.status, 200);
    assert_eq!(me(&second).await.refusal(), (403, "app_key_mismatch"), "another app's key");
    // What it lets in is its own app's.
    let begun = t.post("/auth/device/code").await.body;
    let body = json!({ "user_code": begun["user_code"] });
    assert_eq!(through.asks(t.post("/auth/device/verify").json(&body)).await.refusal(), (404, "no_such_code"));
    // A page calls with its own app's key.
    let change = json!({ "allowedOrigins": ["https://one.example.com"] });
    assert_eq!(ada.asks(t.ask(Method::PATCH, &app).json(&change)).await.status, 200);
    let ask = |origin: &str, key: &str| {
        t.post("/auth/device/code").header("origin", origin).header("x-service-app-key", key).send()
    };
    assert_eq!(ask("https://one.example.com", &first).await.status, 200);
    assert_eq!(ask("https://one.example.com", &second).await.refusal(), (403, "cross_site"));
    assert_eq!(ask("https://evil.example.com", &first).await.refusal(), (403, "cross_site"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p06_who_may_not_ask_any_more_does_not_get_the_answer_again() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "App").await;
    let body = json!({ "type": "secret", "environment": "live" });
    let path = format!("/apps/{}/keys", id(&app));
    let make = || ada.asks(t.post(&path).json(&body)).header("idempotency-key", "once").send();
    let (made, again) = (make().await, make().await);
    assert_eq!((made.status, &made.body["value"]), (200, &again.body["value"]), "a repeated request gets the same");
    assert_eq!(ada.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(make().await.refusal(), (401, "unauthenticated"));
    t.run_jobs().await;
    t.finish().await;
}
