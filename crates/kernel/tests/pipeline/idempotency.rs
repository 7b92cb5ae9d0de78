//! Requests that are sent again under the same key.
use super::*;

fn made(t: &TestApp) -> usize {
    t.app.own::<Counter>().0.load(SeqCst)
}

#[tokio::test]
async fn the_same_key_gets_the_first_answer_again_for_a_day() {
    let t = TestApp::start(feature).await;
    let send = |key: &str| t.post("/make").json(&ada()).header("idempotency-key", key).send();
    let first = send("k1").await;
    t.advance(Duration::from_hours(23));
    let again = send("k1").await;
    assert_eq!((first.status, again.status, made(&t)), (200, 200, 1));
    assert_eq!(first.body, again.body, "the secret that is shown once comes back to who asked first");
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
    assert_ne!(send("k2").await.body["secret"], first.body["secret"]);
    t.advance(Duration::from_hours(2));
    assert_ne!(send("k1").await.body["secret"], first.body["secret"], "after a day the key is new again");
    t.finish().await;
}

#[tokio::test]
async fn a_key_belongs_to_one_request_of_one_caller() {
    let t = TestApp::start(feature).await;
    let send = |body: &Value| t.post("/make").json(body).header("idempotency-key", "k");
    let first = send(&ada()).header("authorization", "Bearer a").await;
    let other_body = send(&json!({ "name": "Eve", "age": 1 })).header("authorization", "Bearer a").await;
    assert_eq!(other_body.refusal(), (409, "idempotency_mismatch"));
    let other_path = t.post("/echo").json(&ada()).header("idempotency-key", "k");
    assert_eq!(other_path.header("authorization", "Bearer a").await.refusal(), (409, "idempotency_mismatch"));
    for stranger in [
        send(&ada()).header("authorization", "Bearer b"),
        send(&ada()).header("x-service-app-key", "pk"),
        send(&ada()).from("192.0.2.1"),
    ] {
        let answer = stranger.await;
        assert_eq!(answer.status, 200);
        assert_ne!(answer.body["secret"], first.body["secret"], "nobody fetches another one's answer");
    }
    assert_eq!(send(&ada()).header("idempotency-key", "").await.status, 200, "the first of two headers counts");
    let empty = t.post("/make").json(&ada()).header("idempotency-key", "").await;
    assert_eq!((empty.refusal(), empty.wrong_fields()), ((400, "invalid"), vec!["Idempotency-Key"]));
    t.finish().await;
}

#[tokio::test]
async fn what_failed_for_now_may_be_tried_again_and_what_was_refused_stays_refused() {
    let t = TestApp::start(feature).await;
    let send = || t.post("/fail-once").header("idempotency-key", "k").send();
    assert_eq!(send().await.refusal(), (503, "unavailable"));
    assert_eq!(send().await.body, "second");
    assert_eq!(send().await.header("idempotency-replayed"), "true");
    let bad = || t.post("/make").json(&json!({})).header("idempotency-key", "b").send();
    let (first, again) = (bad().await, bad().await);
    assert_eq!((again.status, again.header("idempotency-replayed")), (400, "true"));
    assert_eq!(first.body["requestId"], again.body["requestId"], "the first answer, whole");
    t.finish().await;
}

#[tokio::test]
async fn a_route_that_does_not_exist_keeps_nothing() {
    let t = TestApp::start(feature).await;
    for path in ["/nowhere", "/whoami"] {
        let answer = t.post(path).json(&ada()).header("idempotency-key", "k").await;
        assert!(matches!(answer.status, 404 | 405), "{path}: {answer:?}");
    }
    let kept: Vec<(String,)> = t.app.db.all("SELECT scope FROM idempotent_reply", params![]).await.unwrap();
    assert!(kept.is_empty());
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_is_worked_on() {
    let t = TestApp::start(feature).await;
    let sends = (0..32).map(|_| t.post("/make").json(&ada()).header("idempotency-key", "k").send());
    let answers = futures_util::future::join_all(sends).await;
    assert_eq!(made(&t), 1);
    for answer in &answers {
        let fine = answer.status == 200 || answer.refusal() == (409, "idempotency_in_progress");
        assert!(fine, "{answer:?}");
    }
    t.finish().await;
}

#[tokio::test]
async fn answers_are_sealed_and_forgotten_in_time() {
    let t = TestApp::start(feature).await;
    let made = t.post("/make").json(&ada()).header("idempotency-key", "k").await;
    let kept: (Vec<u8>,) = t.app.db.one("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
    let secret = made.body["secret"].as_str().unwrap().as_bytes();
    assert!(!kept.0.windows(secret.len()).any(|bytes| bytes == secret), "the secret is not in the database");
    t.advance(Duration::from_hours(25));
    let mut tx = t.app.db.begin().await.unwrap();
    kernel::jobs::enqueue(&mut tx, &t.app, t.app.clock.now(), &ForgetReplies::default()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(t.run_jobs().await, 1);
    let left: Vec<(Vec<u8>,)> = t.app.db.all("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
    assert!(left.is_empty());
    t.finish().await;
}
