//! Five failed deliveries in a row, and what happens then; nothing is sent to a webhook that is off.
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Semaphore;

use super::*;

#[tokio::test]
async fn p65_the_fifth_failure_in_a_row_switches_it_off_once_and_tells() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let admin = signed_in(&t, "admin@example.com").await;
    let member = signed_in(&t, "member@example.com").await;
    put(&t, &shop.app, &admin, "admin").await;
    put(&t, &shop.app, &member, "member").await;
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    t.happened().await;
    t.run_jobs().await;
    let mails = t.mailbox.mails().len();
    receiver.always(400);
    for _ in 0..4 {
        shop.rehearse(&t, &webhook).await;
        deliver(&t).await;
    }
    receiver.says(200, "", None);
    shop.rehearse(&t, &webhook).await;
    deliver(&t).await;
    for round in 0..5 {
        let active = shop.asks(t.get(&format!("/webhooks/{}", id(&webhook)))).await;
        assert_eq!(active.body["isActive"], true, "after {round}: the success began the count anew");
        t.expects(&[]).await;
        shop.rehearse(&t, &webhook).await;
        deliver(&t).await;
    }
    t.expects(&["WEBHOOK_AUTO_DISABLED"]).await;
    let off = shop.asks(t.get(&format!("/webhooks/{}", id(&webhook)))).await;
    assert_eq!(off.body["isActive"], false);
    t.run_jobs().await;
    let told: Vec<String> = t.mailbox.mails()[mails..].to_vec();
    assert_eq!(told.len(), 2, "the owner and the admin");
    assert!(told.iter().all(|mail| mail.contains("A webhook was turned off") && !mail.contains("member@")));
    receiver.heard();
    let refused = shop.asks(t.post(&format!("/webhooks/{}/test", id(&webhook)))).await;
    assert_eq!(refused.refusal(), (409, "webhook_inactive"));

    // Switched on again it has all its tries again.
    receiver.always(200);
    shop.change(&t, &webhook, &json!({ "isActive": true })).await;
    receiver.says(400, "", None);
    shop.rehearse(&t, &webhook).await;
    deliver(&t).await;
    let on = shop.asks(t.get(&format!("/webhooks/{}", id(&webhook)))).await;
    assert_eq!(on.body["isActive"], true);
    done(t).await;
}

#[tokio::test]
async fn many_failures_at_once_switch_it_off_once() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    t.happened().await;
    receiver.always(404);
    for _ in 0..40 {
        shop.rehearse(&t, &webhook).await;
    }
    deliver(&t).await;
    t.expects(&["WEBHOOK_AUTO_DISABLED"]).await;
    let heard = receiver.heard().len();
    assert!((5..=21).contains(&heard), "{heard}: those under way end, and no other begins");
    t.run_jobs().await;
    deliver(&t).await;
    assert!(receiver.heard().is_empty());
    done(t).await;
}

#[tokio::test]
async fn nothing_is_sent_after_it_was_switched_off_or_deleted() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    receiver.always(500);
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 1, "and will be tried again");
    shop.change(&t, &webhook, &json!({ "isActive": false })).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    t.advance(Duration::from_secs(5));
    deliver(&t).await;
    assert!(receiver.heard().is_empty(), "neither the retry nor what happened since");
    t.run_jobs().await;
    let record = shop.deliveries(&t, &webhook).await.remove(0);
    assert_eq!(record["status"], "cancelled");
    receiver.always(200);
    shop.change(&t, &webhook, &json!({ "isActive": true })).await;
    deliver(&t).await;
    assert!(receiver.heard().is_empty(), "what was cancelled stays so until it is asked for");

    receiver.always(500);
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    assert_eq!(receiver.heard().len(), 1);
    assert_eq!(shop.asks(t.ask(Method::DELETE, &format!("/webhooks/{}", id(&webhook)))).await.status, 204);
    t.advance(Duration::from_secs(5));
    deliver(&t).await;
    assert!(receiver.heard().is_empty());
    t.run_jobs().await;
    let left: (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM webhook_delivery", vec![]).await.unwrap();
    assert_eq!(left.0, 0);
    login_with(&t, "ada@example.com", &shop.key).await;
    let told: (i64,) = t
        .janua
        .db
        .one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM app_event WHERE waits_since IS NOT NULL", vec![])
        .await
        .unwrap();
    assert_eq!(told.0, 0, "nobody listens, nothing is written");
    done(t).await;
}

/// Answers nobody until it is told to.
struct Gated {
    url: String,
    came: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Gated {
    async fn start() -> Self {
        let (came, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (counted, waits) = (came.clone(), gate.clone());
        let take = move || async move {
            counted.fetch_add(1, SeqCst);
            waits.acquire().await.unwrap().forget();
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
        Self { url, came, gate }
    }
}

#[tokio::test]
async fn a_change_in_the_midst_of_many_deliveries_counts_for_the_next_one() {
    const AT_ONCE: usize = 16;
    let patient = |config: &Config| feature(config).own(Pace { attempt: Duration::from_mins(1) });
    let t = TestJanua::start_with(config(), patient).await;
    let other = Receiver::start().await;
    for (number, change) in ["off", "deleted", "without its app", "moved"].into_iter().enumerate() {
        let owner = signed_in(&t, &format!("owner{number}@example.com")).await;
        let (shop, receiver) = (Shop::of(&t, owner).await, Gated::start().await);
        let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
        for _ in 0..AT_ONCE + 4 {
            shop.rehearse(&t, &webhook).await;
        }
        let meanwhile = async {
            while receiver.came.load(SeqCst) < AT_ONCE {
                tokio::task::yield_now().await;
            }
            let path = format!("/webhooks/{}", id(&webhook));
            let answer = match change {
                "off" => shop.change(&t, &webhook, &json!({ "isActive": false })).await,
                "deleted" => shop.asks(t.ask(Method::DELETE, &path)).await,
                "without its app" => {
                    shop.owner.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(&shop.app)))).await
                }
                _ => shop.change(&t, &webhook, &json!({ "url": other.url })).await,
            };
            assert!([200, 204].contains(&answer.status), "{change}: {}", answer.text);
            receiver.gate.add_permits(2 * AT_ONCE);
        };
        tokio::join!(deliver(&t), meanwhile);
        assert_eq!(receiver.came.load(SeqCst), AT_ONCE, "{change}");
        assert_eq!(other.heard().len(), if change == "moved" { 4 } else { 0 }, "{change}");
    }
    done(t).await;
}
