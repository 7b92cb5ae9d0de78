//! One delivery: what is sent, what is kept, what is tried again and when.
use std::collections::HashSet;

use db::params;

use super::{super::deliveries::DeliveryId, *};

#[tokio::test]
async fn a_delivery_is_what_the_specification_says() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    assert_eq!(deliver(&t).await, 1);
    let heard = receiver.heard();
    assert_eq!(heard.len(), 1);
    let one = &heard[0];
    assert_eq!(one.header("content-type"), "application/json");
    assert_eq!(one.header("user-agent"), "Service-Webhooks/1.0");
    assert_eq!(one.header("webhook-id"), one.body["deliveryId"].as_str().unwrap());
    assert_eq!(one.header("webhook-timestamp"), "1769853600000");
    assert_eq!(one.header("webhook-event-type"), "user.signed_in");
    assert_eq!(one.body["event"], "user.signed_in");
    assert_eq!(one.body["user"]["email"], "ada@example.com");
    assert_eq!(one.header("svix-id"), "", "only for whoever asked for them");
    // Computed anew, from the specification's words.
    let secret = webhook["secret"].as_str().unwrap();
    let signed = [b"1769853600.".as_slice(), &one.raw].concat();
    let mac = data_encoding::HEXLOWER.encode(&kernel::crypto::HmacKey::new(secret.as_bytes()).sign(&[&signed]));
    assert_eq!(one.header("webhook-signature"), format!("t=1769853600,v1={mac}"));

    let records = shop.deliveries(&t, &webhook).await;
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!((&record["webhookId"], &record["deliveryId"]), (&webhook["id"], &one.body["deliveryId"]));
    assert_eq!((&record["event"], &record["payload"]), (&json!("user.signed_in"), &one.body));
    assert_eq!((&record["statusCode"], &record["attemptCount"]), (&json!(200), &json!(1)));
    assert!(record.get("response").is_none(), "only on failure");
    assert_eq!(record["deliveredAt"], "2026-01-31T10:00:00.000Z");
    assert_eq!(record["ttl"], 1_769_853_600 + 30 * 86_400);
    assert_eq!(record["status"], "delivered");
    assert_eq!(deliver(&t).await, 0, "once is enough");
    done(t).await;
}

#[tokio::test]
async fn the_trace_of_the_request_goes_on_in_deliveries() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    let login = async |caller: &str| {
        let body = json!({ "email": "ada@example.com", "password": identity::testing::PASSWORD });
        let login = t.post("/auth/login").json(&body).header("x-service-app-key", &shop.key);
        let login = login.header("traceparent", caller).await;
        assert_eq!(login.status, 200, "{}", login.text);
        assert_eq!(deliver(&t).await, 1);
        let sent = receiver.heard().pop().unwrap().header("traceparent").to_owned();
        (sent, login.header("x-request-id").replace('-', ""))
    };
    let (sent, _) = login("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").await;
    assert!(sent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && sent.ends_with("-00"), "{sent}");
    assert!(!sent.contains("00f067aa0ba902b7"), "below a span of ours: {sent}");
    let (sent, id) = login("00-00000000000000000000000000000000-00f067aa0ba902b7-01").await;
    assert!(sent.starts_with(&format!("00-{id}-")) && sent.len() == 55, "what is no trace begins one: {sent}");
    done(t).await;
}

#[tokio::test]
async fn p65_what_may_change_is_tried_three_times_and_everything_else_once() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    for (status, attempts) in [(500, 3), (408, 3), (429, 3), (503, 3), (404, 1), (302, 1), (410, 1), (307, 1)] {
        shop.change(&t, &webhook, &json!({ "isActive": false })).await;
        shop.change(&t, &webhook, &json!({ "isActive": true })).await;
        receiver.always(status);
        shop.rehearse(&t, &webhook).await;
        deliver(&t).await;
        let mut heard = receiver.heard();
        for (wait_ms, least_ms) in [(1_500, 999), (2_500, 1_999)] {
            t.advance(Duration::from_millis(least_ms));
            deliver(&t).await;
            assert!(receiver.heard().is_empty(), "{status}: not before its time");
            t.advance(Duration::from_millis(wait_ms - least_ms));
            deliver(&t).await;
            heard.extend(receiver.heard());
        }
        t.advance(Duration::from_secs(30));
        deliver(&t).await;
        heard.extend(receiver.heard());
        assert_eq!(heard.len(), attempts, "{status}");
        assert!(heard.iter().all(|one| one.raw == heard[0].raw), "{status}: the same bytes each time");
        let record = shop.deliveries(&t, &webhook).await.remove(0);
        assert_eq!((&record["statusCode"], &record["status"]), (&json!(status), &json!("failed")));
        assert_eq!(record["attemptCount"], attempts);
        assert_eq!(record["attempts"].as_array().unwrap().len(), attempts);
    }
    done(t).await;
}

#[tokio::test]
async fn p65_a_receiver_says_when_to_come_back() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    for (header, wait_ms) in [("0", 500), ("5", 5_000), ("9999", 30_000)] {
        receiver.says(503, "not now", Some(header));
        shop.rehearse(&t, &webhook).await;
        deliver(&t).await;
        let record = shop.deliveries(&t, &webhook).await.remove(0);
        assert_eq!((&record["status"], &record["response"]), (&json!("pending"), &json!("not now")));
        t.advance(Duration::from_millis(wait_ms - 1));
        deliver(&t).await;
        assert_eq!(receiver.heard().len(), 1, "{header}: too early");
        t.advance(Duration::from_millis(1));
        deliver(&t).await;
        assert_eq!(receiver.heard().len(), 1, "{header}: now");
        let record = shop.deliveries(&t, &webhook).await.remove(0);
        assert_eq!((&record["status"], &record["attemptCount"]), (&json!("delivered"), &json!(2)));
        assert!(record.get("response").is_none(), "what failed before is in the attempts");
    }
    // A date: ten seconds from now.
    let at = httpdate::fmt_http_date(
        std::time::UNIX_EPOCH
            + Duration::from_millis(t.janua.clock.now().0.try_into().unwrap())
            + Duration::from_secs(10),
    );
    receiver.says(429, "", Some(&at));
    shop.rehearse(&t, &webhook).await;
    deliver(&t).await;
    t.advance(Duration::from_secs(8));
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 1);
    t.advance(Duration::from_secs(2));
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 1);
    done(t).await;
}

#[tokio::test]
async fn of_many_that_wait_each_is_sent_once_and_the_last_one_too() {
    const MANY: usize = 100;
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    for _ in 0..MANY {
        shop.rehearse(&t, &webhook).await;
    }
    assert_eq!(deliver(&t).await, 1, "in one turn of one webhook");
    let heard = receiver.heard();
    let ids: HashSet<_> = heard.iter().map(|heard| heard.header("webhook-id")).collect();
    assert_eq!((heard.len(), ids.len()), (MANY, MANY));
    let records = shop.deliveries(&t, &webhook).await;
    assert!(records.iter().all(|record| record["status"] == "delivered" && record["attemptCount"] == 1));
    done(t).await;
}

#[tokio::test]
async fn p63_bad_receivers_are_cut_off_and_delay_nobody() {
    let t = TestJanua::start_with(config(), impatient).await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging_url = format!("http://{}/", hanging.local_addr().unwrap());
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let healthy = shop.register(&t, &receiver.url, &["user.created"]).await;
    let slow = shop.register(&t, &hanging_url, &["user.created"]).await;
    let gone = shop.register(&t, &format!("http://{nobody}/"), &["user.created"]).await;
    let wordy = shop.register(&t, &format!("{}/wordy", receiver.url), &["user.created"]).await;
    for webhook in [&slow, &gone, &healthy, &wordy] {
        shop.rehearse(&t, webhook).await;
    }
    // The healthy one and the wordy one share a receiver: whoever comes first is answered so.
    receiver.always(400);
    receiver.says(400, &"ä\0".repeat(5_000), None);
    receiver.says(400, &"ä\0".repeat(5_000), None);
    deliver(&t).await;
    for (webhook, says) in [(&slow, "took too long"), (&gone, "")] {
        let record = shop.deliveries(&t, webhook).await.remove(0);
        assert_eq!((&record["statusCode"], &record["status"]), (&json!(0), &json!("pending")), "{record}");
        assert!(record["response"].as_str().unwrap().contains(says), "{record}");
        assert!(record["attempts"][0]["error"].as_str().is_some_and(|error| !error.is_empty()));
    }
    let kept = shop.deliveries(&t, &wordy).await.remove(0)["response"].as_str().unwrap().to_owned();
    assert_eq!(kept.chars().count(), 1024, "cut by characters, not by bytes");
    assert_eq!(receiver.heard().len(), 2);
    drop(hanging);
    for _ in 0..2 {
        t.advance(Duration::from_secs(30));
        deliver(&t).await;
    }
    done(t).await;
}

#[tokio::test]
async fn after_its_time_a_webhook_makes_way_and_goes_on_later() {
    const MANY: usize = 40;
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    for _ in 0..MANY {
        shop.rehearse(&t, &webhook).await;
    }
    let time_passes = async {
        while receiver.inner.lock().unwrap().heard.is_empty() {
            tokio::task::yield_now().await;
        }
        t.advance(Duration::from_secs(21));
    };
    let (turns, ()) = tokio::join!(deliver(&t), time_passes);
    assert_eq!((turns, receiver.heard().len()), (2, MANY));
    done(t).await;
}

#[tokio::test]
async fn an_attempt_that_hangs_does_not_hold_up_the_next_one_to_the_same_receiver() {
    let patient = |config: &Config| feature(config).own(Pace { attempt: Duration::from_mins(1) });
    let t = TestJanua::start_with(config(), patient).await;
    let shop = Shop::open(&t).await;
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", hanging.local_addr().unwrap());
    let webhook = shop.register(&t, &url, &["user.created"]).await;
    shop.rehearse(&t, &webhook).await;
    let happens = async {
        let _first = hanging.accept().await.unwrap();
        shop.rehearse(&t, &webhook).await;
        let second = tokio::time::timeout(Duration::from_secs(20), hanging.accept()).await;
        assert!(second.is_ok(), "it waits for the first");
        // A node whose clock is slow adds one that was due before the first, and a second passes.
        let sql =
            "INSERT INTO webhook_delivery (id, webhook_id, event_id, event, state, ready_at, tries, attempt_count,
                                                 status_code, attempts, created_at)
                   SELECT $1, webhook_id, event_id, 'user.deleted', state, ready_at - 60000, 0, 0, 0, '[]', created_at
                   FROM webhook_delivery ORDER BY id LIMIT 1";
        let id = DeliveryId::new(&t.janua.entropy, t.janua.clock.now());
        assert_eq!(t.janua.db.exec(sql, params![id]).await.unwrap(), 1);
        t.advance(Duration::from_secs(1));
        let third = tokio::time::timeout(Duration::from_secs(20), hanging.accept()).await;
        assert!(third.is_ok(), "it is not seen while others are under way");
        drop(hanging);
    };
    tokio::join!(deliver(&t), happens);
    assert_eq!(shop.deliveries(&t, &webhook).await.len(), 3);
    done(t).await;
}

#[tokio::test]
async fn a_payload_over_256_kb_is_dropped_and_records_are_kept_for_thirty_days() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    let sql = "UPDATE app_event SET facts = $1 WHERE waits_since IS NOT NULL";
    let large = json!({ "details": { "device": "x".repeat(256 * 1024) } });
    t.janua.db.exec(sql, db::params![&large]).await.unwrap();
    deliver(&t).await;
    assert!(receiver.heard().is_empty(), "dropped");
    assert!(shop.deliveries(&t, &webhook).await.is_empty());
    let fits = json!({ "details": { "device": "x".repeat(255 * 1024) } });
    login_with(&t, "ada@example.com", &shop.key).await;
    t.janua.db.exec(sql, db::params![&fits]).await.unwrap();
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 1);

    for _ in 0..60 {
        shop.rehearse(&t, &webhook).await;
        t.advance(Duration::from_millis(1));
    }
    deliver(&t).await;
    let records = shop.deliveries(&t, &webhook).await;
    assert_eq!(records.len(), 50, "the newest fifty");
    t.run_jobs().await;
    t.advance(Duration::from_hours(30 * 24) - Duration::from_mins(1));
    t.run_jobs().await;
    let again = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let again = Shop { owner: again, app: shop.app.clone(), key: shop.key.clone() };
    deliver(&t).await;
    assert_eq!(again.deliveries(&t, &webhook).await.len(), 50, "still there");
    t.advance(Duration::from_mins(12));
    t.run_jobs().await;
    assert_eq!(again.deliveries(&t, &webhook).await.len(), 1, "gone but the one of the last sign-in");
    let left: (i64,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM app_event", vec![]).await.unwrap();
    assert!(left.0 <= 3, "what it was made of went with it: {}", left.0);
    done(t).await;
}
