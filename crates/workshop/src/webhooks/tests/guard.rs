//! P54: the app key and a session, a member to read, an admin to write.
use super::*;

/// Method, path, body, and the least role: 0 for members, 1 for admins.
fn table(webhook: &str, delivery: &str, url: &str) -> Vec<(&'static str, String, Value, usize)> {
    let since = json!({ "since": "2026-01-31T09:00:00.000Z" });
    vec![
        ("GET", "/webhooks".into(), Value::Null, 0),
        ("GET", format!("/webhooks/{webhook}"), Value::Null, 0),
        ("GET", format!("/webhooks/{webhook}/deliveries"), Value::Null, 0),
        ("POST", "/webhooks".into(), json!({ "url": url, "events": ["session.revoked"] }), 1),
        ("PATCH", format!("/webhooks/{webhook}"), json!({ "events": ["session.revoked"] }), 1),
        ("POST", format!("/webhooks/{webhook}/test"), Value::Null, 1),
        ("POST", format!("/webhooks/{webhook}/deliveries/{delivery}/redeliver"), Value::Null, 1),
        ("POST", format!("/webhooks/{webhook}/recover"), since, 1),
        ("DELETE", format!("/webhooks/{webhook}"), Value::Null, 1),
    ]
}

fn keyed<'a>(ask: Ask<'a>, key: &str) -> Ask<'a> {
    ask.header("x-service-app-key", key)
}

#[tokio::test]
async fn p54_both_the_key_and_a_session_of_somebody_who_may() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let member = signed_in(&t, "member@example.com").await;
    let eve = signed_in(&t, "eve@example.com").await;
    put(&t, &shop.app, &member, "member").await;
    let evil = Shop::of(&t, eve).await;
    let webhook = shop.register(&t, &receiver.url, &["session.revoked"]).await;
    shop.rehearse(&t, &webhook).await;
    deliver(&t).await;
    let delivery = shop.deliveries(&t, &webhook).await[0]["deliveryId"].as_str().unwrap().to_owned();
    for (method, path, body, least) in table(id(&webhook), &delivery, &receiver.url) {
        let what = format!("{method} {path}");
        let ask = || {
            let ask = t.ask(method.parse().unwrap(), &path);
            if body.is_null() { ask } else { ask.json(&body) }
        };
        assert_eq!(keyed(ask(), &shop.key).await.refusal(), (401, "unauthenticated"), "{what}: the key alone");
        assert_eq!(shop.owner.asks(ask()).await.refusal(), (401, "unauthenticated"), "{what}: the session alone");
        let wrong = shop.owner.asks(ask()).header("x-service-app-key", "pk_live_nothing").await;
        assert_eq!(wrong.refusal(), (401, "invalid_app_key"), "{what}: no such key");
        let stranger = evil.owner.asks(keyed(ask(), &shop.key)).await;
        assert_eq!(stranger.refusal(), (404, "not_found"), "{what}: somebody of another organization");
        if path != "/webhooks" {
            let other_app = evil.asks(ask()).await;
            assert_eq!(other_app.refusal(), (404, "not_found"), "{what}: another app's webhook");
        }
        let low = member.asks(keyed(ask(), &shop.key)).await;
        if least == 1 {
            assert_eq!(low.refusal(), (403, "forbidden"), "{what}: a member");
            let owner = shop.asks(ask()).await;
            assert!(owner.status < 300, "{what}: the owner: {}", owner.text);
        } else {
            assert_eq!(low.status, 200, "{what}: a member");
        }
    }
    t.run_jobs().await;
    deliver(&t).await;
    done(t).await;
}

#[tokio::test]
async fn p54_an_apps_session_manages_no_webhooks() {
    let t = start().await;
    let shop = Shop::open(&t).await;
    let other =
        Shop::of(&t, Person { access: shop.owner.access.clone(), refresh: String::new(), id: shop.owner.id.clone() })
            .await;
    let inside = Person::of(&login_with(&t, "ada@example.com", &shop.key).await);
    let ask = |key: &str| inside.asks(t.get("/webhooks")).header("x-service-app-key", key);
    assert_eq!(ask(&shop.key).await.refusal(), (403, "app_session"), "its own app");
    assert_eq!(ask(&other.key).await.refusal(), (403, "app_session"), "another app of the same organization");
    let dashboard = inside.asks(t.get(&format!("/apps/{}/webhooks", id(&shop.app)))).await;
    assert_eq!(dashboard.refusal(), (403, "app_session"), "the dashboard is for the service's own pages");
    done(t).await;
}
