//! A new secret, while receivers still know the old one.
use super::*;

fn signatures(heard: &Heard) -> Vec<String> {
    heard
        .header("webhook-signature")
        .split(',')
        .filter_map(|part| part.strip_prefix("v1="))
        .map(str::to_owned)
        .collect()
}

/// What the specification says a receiver computes.
fn mac(secret: &Value, heard: &Heard) -> String {
    let seconds = heard.header("webhook-signature").split(',').next().unwrap().trim_start_matches("t=").to_owned();
    let signed = [format!("{seconds}.").as_bytes(), &heard.raw].concat();
    data_encoding::HEXLOWER
        .encode(&kernel::crypto::HmacKey::new(secret.as_str().unwrap().as_bytes()).sign(&[&signed]))
}

async fn sent(t: &TestJanua, shop: &Shop, webhook: &Value, receiver: &Receiver) -> Heard {
    shop.rehearse(t, webhook).await;
    deliver(t).await;
    receiver.heard().remove(0)
}

#[tokio::test]
async fn p64_both_secrets_sign_until_it_is_finalized() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    t.happened().await;
    let turned = shop.change(&t, &webhook, &json!({ "rotateSecret": true })).await;
    assert_eq!(turned.body["secret"].as_str().map(str::len), Some(64), "{}", turned.text);
    assert_ne!(turned.body["secret"], webhook["secret"]);
    assert_eq!(turned.body["rotationEndsAt"], "2026-02-07T10:00:00.000Z", "seven days");
    let both = sent(&t, &shop, &webhook, &receiver).await;
    assert_eq!(
        signatures(&both),
        [mac(&turned.body["secret"], &both), mac(&webhook["secret"], &both)],
        "the new one first"
    );
    let shown = shop.asks(t.get(&format!("/webhooks/{}", id(&webhook)))).await;
    assert!(shown.body.get("secret").is_none());

    let again = shop.change(&t, &webhook, &json!({ "rotateSecret": true })).await;
    let both = sent(&t, &shop, &webhook, &receiver).await;
    assert_eq!(
        signatures(&both),
        [mac(&again.body["secret"], &both), mac(&turned.body["secret"], &both)],
        "the one before the last is gone"
    );
    let over = shop.change(&t, &webhook, &json!({ "rotateSecret": "finalize" })).await;
    assert!(over.body.get("secret").is_none() && over.body["rotationEndsAt"].is_null(), "{}", over.text);
    let one = sent(&t, &shop, &webhook, &receiver).await;
    assert_eq!(signatures(&one), [mac(&again.body["secret"], &one)]);
    t.expects(&["WEBHOOK_SECRET_ROTATED", "WEBHOOK_SECRET_ROTATED", "WEBHOOK_SECRET_FINALIZED"]).await;
    done(t).await;
}

#[tokio::test]
async fn p64_the_grace_has_bounds_and_an_end_also_after_a_restart() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["user.created"]).await;
    for (grace, status) in [(59_999, 400), (2_592_000_001_i64, 400), (-1, 400), (2_592_000_000, 200), (60_000, 200)] {
        let turned = shop.change(&t, &webhook, &json!({ "rotateSecret": true, "rotationGraceMs": grace })).await;
        assert_eq!(turned.status, status, "{grace}: {}", turned.text);
    }
    for wrong in [
        json!({ "rotateSecret": false }),
        json!({ "rotateSecret": "finish" }),
        json!({ "rotateSecret": 1 }),
        json!({ "rotationGraceMs": 60_000 }),
        json!({ "rotateSecret": "finalize", "rotationGraceMs": 60_000 }),
    ] {
        assert_eq!(shop.change(&t, &webhook, &wrong).await.status, 400, "{wrong}");
    }
    t.advance(Duration::from_millis(59_999));
    assert_eq!(signatures(&sent(&t, &shop, &webhook, &receiver).await).len(), 2);
    t.run_jobs().await;
    let t = t.restart(feature).await;
    assert_eq!(signatures(&sent(&t, &shop, &webhook, &receiver).await).len(), 2, "a restart ends nothing");
    t.advance(Duration::from_millis(1));
    assert_eq!(signatures(&sent(&t, &shop, &webhook, &receiver).await).len(), 1, "to the millisecond");
    t.advance(Duration::from_mins(10));
    t.run_jobs().await;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM webhook WHERE retiring_secret IS NOT NULL";
    let (kept,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert_eq!(kept, 0, "the old secret is not kept either");
    done(t).await;
}

#[tokio::test]
async fn p66_no_secret_lies_about_in_the_database() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let webhook = shop.register(&t, &receiver.url, &["*"]).await;
    let turned = shop.change(&t, &webhook, &json!({ "rotateSecret": true })).await;
    deliver(&t).await;
    let records = shop.deliveries(&t, &webhook).await;
    assert!(!records.is_empty());
    let sent: String = receiver.heard().iter().map(|one| String::from_utf8_lossy(&one.raw).into_owned()).collect();
    let said = format!("{sent}{}", json!(records));
    let mut stored = vec![];
    if let Some(folder) = t.folder() {
        for file in std::fs::read_dir(folder).unwrap() {
            stored.extend(std::fs::read(file.unwrap().path()).unwrap());
        }
    }
    for secret in [&webhook["secret"], &turned.body["secret"]] {
        let secret = secret.as_str().unwrap();
        assert!(!said.contains(secret));
        assert!(!stored.windows(secret.len()).any(|window| window == secret.as_bytes()), "sealed on the disk");
    }
    assert!(!said.contains("v1=") && !said.contains(&shop.owner.access) && !said.contains("$argon2"));
    done(t).await;
}
