//! FC12: a meter with very many customers, and one with very many unique keys. `TEST_ROWS=1000000` makes as many as the case says:
//! a million customers and ten million keys.
use std::time::Duration;

use db::params;
use kernel::testing::{Answer, TestJanua, many};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Shop, start};

const PLANS: &str = "[meters.calls]\naggregation = \"sum\"\n[meters.docs]\naggregation = \"unique\"";
/// Reads that must cost the same for few and for many.
const READS: [&str; 4] =
    ["meter=calls", "meter=calls&customer=known", "meter=docs", "meter=calls&groupBy=customer&limit=50"];
const CHUNK: i64 = 20_000;

async fn read(t: &TestJanua, shop: &Shop, query: &str) -> Answer {
    let answer = shop.owner.asks(t.get(&format!("/usage?appId={}&{query}", shop.app))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// How long each of the reads takes, the median of some.
async fn times(t: &TestJanua, shop: &Shop) -> Vec<Duration> {
    let mut medians = vec![];
    for query in READS {
        let mut taken = vec![];
        for _ in 0..15 {
            let began = Instant::now();
            read(t, shop, query).await;
            taken.push(began.elapsed());
        }
        taken.sort();
        medians.push(taken[taken.len() / 2]);
    }
    medians
}

async fn track(t: &TestJanua, shop: &Shop, body: Value) {
    let tracked = t.post("/usage/track").json(&body).header("x-service-app-key", &shop.key).await;
    assert_eq!(tracked.status, 200, "{}", tracked.text);
}

/// As if customers with these numbers had used the meter of calls once each, in the quarter of an hour of `known`.
async fn add_customers(t: &TestJanua, shop: &Shop, first: i64, end: i64) {
    let sql = "INSERT INTO usage_total
               WITH RECURSIVE n (i) AS (SELECT CAST($2 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $3)
               SELECT app_id, environment, meter, span, property, 'c' || i, choice, slot, 1, 1, 1, latest, latest_at
               FROM usage_total, n WHERE app_id = $1 AND meter = 'calls' AND customer = 'known'";
    for from in (first..end).step_by(CHUNK.unsigned_abs().try_into().unwrap()) {
        t.janua.db.exec(sql, params![shop.app.as_str(), from, end.min(from + CHUNK)]).await.unwrap();
    }
    let sql = "UPDATE usage_total SET total = total + $2, events = events + $2
               WHERE app_id = $1 AND meter = 'calls' AND customer = ''";
    t.janua.db.exec(sql, params![shop.app.as_str(), end - first]).await.unwrap();
}

/// As if so many keys had been counted by the meter of documents, today.
async fn add_keys(t: &TestJanua, shop: &Shop, keys: i64) {
    let sql = "INSERT INTO usage_unique
               WITH RECURSIVE n (i) AS (SELECT CAST($2 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $3)
               SELECT app_id, environment, meter, span, property, customer, choice, slot, 'k' || i
               FROM usage_unique, n WHERE app_id = $1 AND meter = 'docs' AND customer = '' AND digest NOT LIKE 'k%'";
    for from in (0..keys).step_by(CHUNK.unsigned_abs().try_into().unwrap()) {
        t.janua.db.exec(sql, params![shop.app.as_str(), from, keys.min(from + CHUNK)]).await.unwrap();
    }
    let sql = "UPDATE usage_total SET total = total + $2, events = events + $2
               WHERE app_id = $1 AND meter = 'docs' AND customer = ''";
    t.janua.db.exec(sql, params![shop.app.as_str(), keys]).await.unwrap();
}

#[tokio::test]
async fn fc12_a_million_customers_and_their_keys_leave_reads_as_they_were() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let (customers, keys) = (many(30_000), 10 * many(30_000));
    let doc = |key: &str| json!({ "meter": "docs", "properties": { "key": key } });
    track(&t, &shop, json!({ "meter": "calls", "customer": "known", "value": 1 })).await;
    track(&t, &shop, doc("first")).await;
    // Enough for a page.
    add_customers(&t, &shop, 0, 100).await;
    let before = times(&t, &shop).await;
    add_customers(&t, &shop, 100, customers).await;
    add_keys(&t, &shop, keys).await;
    let after = times(&t, &shop).await;
    for ((query, before), after) in READS.iter().zip(&before).zip(&after) {
        // Flat, but for a machine that does something else beside.
        assert!(*after <= *before * 4 + Duration::from_millis(20), "{query}: {before:?}, then {after:?}");
    }
    // Exact all the same: a new key counts, and one that was there does not.
    track(&t, &shop, doc("second")).await;
    track(&t, &shop, doc("first")).await;
    let value = async |query: &str| read(&t, &shop, query).await.body["usage"][0]["value"].as_i64();
    assert_eq!(value("meter=calls").await, Some(customers + 1));
    assert_eq!(value("meter=calls&customer=known").await, Some(1));
    assert_eq!(value("meter=docs").await, Some(keys + 2));
    // A list is a page, however many there are.
    let page = read(&t, &shop, READS[3]).await;
    assert_eq!(page.body["usage"].as_array().unwrap().len(), 50);
    assert!(page.body["nextCursor"].is_string(), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}
