//! Delivering again, and nodes that lost their lease.
use std::slice;

use kernel::transact;

use super::{
    super::{
        deliveries::{Delivery, Search},
        fan_out, lane,
        model::Held,
    },
    *,
};

#[tokio::test]
async fn a_delivery_is_sent_again_under_its_own_id() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    receiver.says(404, "who?", None);
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    let first = receiver.heard().remove(0);
    let path = format!("/webhooks/{}/deliveries/{}/redeliver", id(&webhook), first.header("webhook-id"));
    assert_eq!(shop.asks(t.post(&path)).await.status, 200);
    assert_eq!(shop.asks(t.post(&path)).await.refusal(), (409, "delivery_pending"));
    t.advance(Duration::from_secs(7));
    deliver(&t).await;
    let second = receiver.heard().remove(0);
    assert_eq!(second.raw, first.raw);
    assert_ne!(second.header("webhook-signature"), first.header("webhook-signature"), "signed anew");
    let record = shop.deliveries(&t, &webhook).await.remove(0);
    assert_eq!((&record["status"], &record["attemptCount"]), (&json!("delivered"), &json!(2)));
    let random = format!("/webhooks/{}/deliveries/019c137e-c107-7f36-aa03-c8508b253019/redeliver", id(&webhook));
    assert_eq!(shop.asks(t.post(&random)).await.refusal(), (404, "not_found"));
    done(t).await;
}

#[tokio::test]
async fn everything_since_a_moment_that_did_not_arrive_is_recovered() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    t.advance(Duration::from_mins(1));
    let since = t.janua.clock.now();
    receiver.says(404, "", None);
    login_with(&t, "ada@example.com", &shop.key).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    shop.change(&t, &webhook, &json!({ "isActive": false })).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    t.run_jobs().await;
    assert_eq!(receiver.heard().len(), 3, "one before, one that failed, one that arrived");
    let path = format!("/webhooks/{}/recover", id(&webhook));
    let ask = |since: &str| shop.asks(t.post(&path).json(&json!({ "since": since })));
    assert_eq!(ask(&since.to_string()).await.refusal(), (409, "webhook_inactive"));
    shop.change(&t, &webhook, &json!({ "isActive": true })).await;
    for wrong in ["2026-03-01T00:00:00.000Z", "2025-12-01T00:00:00.000Z"] {
        assert_eq!(ask(wrong).await.wrong_fields(), ["since"], "{wrong}");
    }
    assert_eq!(ask(&since.to_string()).await.status, 200);
    t.run_jobs().await;
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 2, "what failed, and what happened while it was off");
    assert_eq!(ask(&since.to_string()).await.status, 200);
    t.run_jobs().await;
    deliver(&t).await;
    assert!(receiver.heard().is_empty(), "everything has arrived");
    done(t).await;
}

#[tokio::test]
async fn a_rehearsal_says_that_it_is_one() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["audit.*", "user.passkey_added"]).await;
    deliver(&t).await;
    receiver.heard();
    let path = format!("/webhooks/{}/test", id(&webhook));
    let sent = shop.asks(t.post(&path)).await;
    assert_eq!(sent.body["event"], "user.passkey_added", "{}", sent.text);
    assert_eq!(shop.asks(t.post(&path).json(&json!({ "event": "session.revoked" }))).await.status, 200);
    assert_eq!(
        shop.asks(t.post(&path).json(&json!({ "event": "nope" }))).await.refusal(),
        (400, "unknown_event_types")
    );
    deliver(&t).await;
    let heard = receiver.heard();
    assert!(heard.iter().all(|one| one.body["test"] == true));
    let mut events: Vec<_> = heard.iter().map(|one| one.header("webhook-event-type").to_owned()).collect();
    events.sort();
    assert_eq!(events, ["session.revoked", "user.passkey_added"]);
    done(t).await;
}

#[tokio::test]
async fn a_node_that_lost_its_lease_ends_nothing() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    shop.rehearse(&t, &webhook).await;
    let now = t.janua.clock.now();
    let first = Held::claim(&t.janua.db, now, 10).await.unwrap().remove(0);
    assert!(Held::claim(&t.janua.db, now, 10).await.unwrap().is_empty(), "in one hand at a time");
    let search = Search { webhook: first.id, until: now, after: kernel::http::Key::oldest(), most: 10 };
    let delivery = Delivery::due(&t.janua.db, &search).await.unwrap().remove(0);
    // The node dies here: after its lease another one takes over.
    t.advance(Duration::from_secs(61));
    let second = Held::claim(&t.janua.db, t.janua.clock.now(), 10).await.unwrap().remove(0);
    assert!(first.look(&t.janua.db).await.unwrap().is_none() && second.look(&t.janua.db).await.unwrap().is_some());
    let late = Delivery { ready_at: None, state: super::super::deliveries::State::Delivered, ..delivery };
    let goes_on = transact!(t.janua, async |tx| lane::note(tx, &t.janua, first, slice::from_ref(&late)).await);
    assert!(!goes_on.unwrap(), "its word does not count any more");
    let released: db::Result<()> = db::transact!(t.janua.db, async |tx| first.release(tx).await);
    released.unwrap();
    assert!(second.look(&t.janua.db).await.unwrap().is_some(), "nor does it take the webhook from the other");
    assert!(Held::claim(&t.janua.db, t.janua.clock.now(), 10).await.unwrap().is_empty());
    lane::run(&t.janua, second).await;
    assert_eq!(receiver.events(), ["user.created"]);
    done(t).await;
}

#[tokio::test]
async fn f15_what_is_added_while_a_node_lets_go_of_a_webhook_is_not_forgotten() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    shop.rehearse(&t, &webhook).await;
    let held = Held::claim(&t.janua.db, t.janua.clock.now(), 10).await.unwrap().remove(0);
    login_with(&t, "ada@example.com", &shop.key).await;

    // Another one is being added; it is not there for others yet.
    let mut adding = t.janua.db.begin().await.unwrap();
    assert!(!fan_out::hand_out(&mut adding, &t.janua).await.unwrap(), "there is no more");
    let app = t.janua.clone();
    let mut letting_go = tokio::spawn(async move { lane::run(&app, held).await });
    let early = tokio::time::timeout(Duration::from_millis(500), &mut letting_go).await;
    assert!(early.is_err(), "whoever lets go of it waits for what is being added");
    adding.commit().await.unwrap();
    letting_go.await.unwrap();

    deliver(&t).await;
    assert_eq!(receiver.events(), ["user.signed_in", "user.signed_in"]);
    done(t).await;
}
