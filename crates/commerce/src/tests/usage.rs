//! Tracking usage, and reading it again.
use std::{collections::BTreeMap, time::Duration};

use db::{params, row};
use identity::testing::signed_in;
use kernel::{
    telemetry::Traced,
    testing::{Answer, START, TestJanua},
};
use serde_json::{Value, json};

use super::{Shop, feature, make_key, start};

const PLANS: &str = r#"
[meters.calls]
aggregation = "sum"
unit = "calls"
group_by = ["model", "region"]
[meters.clicks]
aggregation = "count"
keys = "any"
[meters.peak]
aggregation = "max"
[meters.docs]
aggregation = "unique"
[meters.seats]
aggregation = "latest"
[meters.tokens]
[meters.points]
[plans.free.limits]
tokens = 10
points = { included = 10, overage = "0.5", cap = 20 }
"#;

async fn track(t: &TestJanua, key: &str, body: Value) -> Answer {
    t.post("/usage/track").json(&body).header("x-service-app-key", key).await
}

async fn usage(t: &TestJanua, shop: &Shop, query: &str) -> Answer {
    shop.owner.asks(t.get(&format!("/usage?appId={}&{query}", shop.app))).await
}

async fn total(t: &TestJanua, shop: &Shop, query: &str) -> i64 {
    let answer = usage(t, shop, query).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["usage"][0]["value"].as_i64().unwrap()
}

#[tokio::test]
async fn an_event_is_counted_once_and_read_at_once() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let event =
        json!({ "meter": "calls", "value": 7, "customer": "c1", "eventId": "e1", "properties": { "model": "s" } });
    let first = track(&t, &shop.key, event.clone()).await;
    assert_eq!((&first.body["accepted"], &first.body["livemode"]), (&json!(1), &json!(true)), "{}", first.text);
    // Found by the request that brought it.
    let mut found = vec![];
    for Traced(find) in t.janua.declared::<Traced>() {
        found.extend(find(t.janua.clone(), first.header("x-request-id").to_owned()).await.unwrap());
    }
    let found: Vec<_> = found.iter().map(|step| (step.name.as_str(), step.details["value"].as_str())).collect();
    assert_eq!(found, [("calls", "7")]);
    let again = track(&t, &shop.key, event.clone()).await;
    assert_eq!((&again.body["accepted"], &again.body["duplicates"]), (&json!(0), &json!(1)), "{}", again.text);
    let other = json!({ "meter": "calls", "value": 8, "customer": "c1", "eventId": "e1" });
    assert_eq!(track(&t, &shop.key, other).await.refusal(), (409, "event_conflict"));
    // Known for 40 days, and known no more when two generations are over.
    t.advance(Duration::from_hours(24 * 40));
    assert_eq!(track(&t, &shop.key, event.clone()).await.body["duplicates"], 1);
    let shop = Shop { owner: super::again(&t, "ada@example.com").await, ..shop };
    t.run_jobs().await;
    let query = "meter=calls&from=2026-01-01T00:00:00Z";
    assert_eq!(total(&t, &shop, query).await, 7);
    assert_eq!(total(&t, &shop, &format!("{query}&customer=c1")).await, 7);
    assert_eq!(total(&t, &shop, &format!("{query}&customer=c2")).await, 0);
    let grouped = usage(&t, &shop, &format!("{query}&groupBy=model")).await;
    assert_eq!((&grouped.body["usage"][0]["group"], &grouped.body["usage"][0]["value"]), (&json!("s"), &json!(7)));
    t.advance(Duration::from_hours(24 * 41));
    crate::usage::forget_old_ids(&t.janua).await.unwrap();
    assert_eq!(track(&t, &shop.key, event).await.body["accepted"], 1);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn pc15_values_and_moments_that_are_wrong_are_refused_and_named() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    for value in
        [json!(-1), json!(0), json!(0.5), json!("1"), json!(null), json!(1e308), json!(9_223_372_036_854_775_807_i64)]
    {
        let refused = track(&t, &shop.key, json!({ "meter": "calls", "value": value })).await;
        assert_eq!((refused.refusal(), refused.wrong_fields()), ((400, "invalid"), vec!["value"]), "{value}");
    }
    let long = "x".repeat(129);
    let all = json!({ "value": 0, "eventId": "a b", "customer": long, "properties": { "": "x" } });
    let wrong = track(&t, &shop.key, all).await;
    assert_eq!(wrong.wrong_fields(), ["value", "eventId", "customer", "properties", "meter"], "{}", wrong.text);
    for (event, code) in [
        (json!({ "meter": "rain" }), "unknown_meter"),
        (json!({ "value": 1 }), "invalid"),
        (json!({ "meter": "calls", "eventId": "a b" }), "invalid"),
        (json!({ "meter": "calls", "eventId": long }), "invalid"),
        (json!({ "meter": "calls", "customer": long }), "invalid"),
        (json!({ "meter": "calls", "properties": { "model": "x".repeat(257) } }), "invalid"),
        (json!({ "meter": "docs" }), "invalid"),
        (json!({ "meter": "calls", "timestamp": "2025-12-27T09:59:59Z" }), "timestamp_out_of_window"),
        (json!({ "meter": "calls", "timestamp": "2026-01-31T10:05:01Z" }), "timestamp_out_of_window"),
        (json!({ "meter": "calls", "cost": { "amount": "1", "currency": "eur" } }), "currency_mismatch"),
        (json!({ "meter": "calls", "cost": { "amount": "1e3", "currency": "usd" } }), "invalid"),
        (json!({ "correct": "nothing", "value": 3 }), "unknown_event"),
    ] {
        assert_eq!(track(&t, &shop.key, event.clone()).await.refusal(), (400, code), "{event}");
    }
    for event in [
        json!({ "meter": "calls", "timestamp": "2025-12-27T10:00:00Z" }),
        json!({ "meter": "calls", "timestamp": "2026-01-31T10:05:00Z" }),
        json!({ "meter": "calls", "cost": { "amount": "0.025", "currency": "usd" } }),
    ] {
        assert_eq!(track(&t, &shop.key, event.clone()).await.status, 200, "{event}");
    }
    // A batch takes what is good, says what is not, and may be repeated as a whole.
    let batch = json!({ "events": [
        { "meter": "calls", "eventId": "a", "value": 5 },
        { "meter": "rain", "eventId": "b" },
        { "meter": "calls", "eventId": "c", "value": -5 },
        { "meter": "calls", "eventId": "a", "value": 5 },
        { "meter": "clicks", "eventId": "d" },
    ] });
    let tracked = track(&t, &shop.key, batch.clone()).await;
    assert_eq!((&tracked.body["accepted"], &tracked.body["duplicates"]), (&json!(2), &json!(1)), "{}", tracked.text);
    let rejected: Vec<_> = tracked.body["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["index"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(rejected, [(1, "unknown_meter"), (2, "invalid")]);
    assert_eq!(track(&t, &shop.key, batch).await.body["duplicates"], 3);
    let many: Vec<Value> = (0..1001).map(|_| json!({ "meter": "calls" })).collect();
    assert_eq!(track(&t, &shop.key, json!({ "events": many })).await.status, 400);
    t.finish().await;
}

#[tokio::test]
async fn pc17_a_publishable_key_tracks_little_and_for_nobody_else() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    assert_eq!(track(&t, &shop.key, json!({ "meter": "clicks" })).await.status, 200);
    for event in [
        json!({ "meter": "calls" }),
        json!({ "meter": "clicks", "value": 1001 }),
        json!({ "meter": "clicks", "customer": "somebody" }),
        json!({ "meter": "clicks", "timestamp": "2026-01-31T09:54:00Z" }),
        json!({ "meter": "clicks", "cost": { "amount": "1", "currency": "usd" } }),
        json!({ "correct": "x", "value": 1 }),
        json!({ "meter": "clicks", "environment": "test" }),
    ] {
        assert_eq!(track(&t, &shop.key, event.clone()).await.refusal(), (403, "secret_key_required"), "{event}");
    }
    let bob = signed_in(&t, "bob@example.com").await;
    let body = json!({ "email": "bob@example.com", "password": identity::testing::PASSWORD,
        "options": { "tokenDelivery": "body" } });
    let inside = t.post("/auth/login").json(&body).header("x-service-app-key", &shop.key).await;
    let bearer = format!("Bearer {}", inside.body["accessToken"].as_str().unwrap());
    let asks = |body: Value| {
        t.post("/usage/track").json(&body).header("x-service-app-key", &shop.key).header("authorization", &bearer)
    };
    assert_eq!(asks(json!({ "meter": "clicks" })).await.status, 200);
    assert_eq!(asks(json!({ "meter": "clicks", "customer": bob.id })).await.status, 200);
    assert_eq!(
        asks(json!({ "meter": "clicks", "customer": shop.owner.id })).await.refusal(),
        (403, "secret_key_required")
    );
    assert_eq!(total(&t, &shop, &format!("meter=clicks&customer={}", bob.id)).await, 2);
    let foreign = t.post("/usage/track").json(&json!({ "meter": "clicks" })).header("x-service-app-key", &shop.key);
    assert_eq!(foreign.header("origin", "https://evil.example").await.refusal(), (403, "cross_site"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn hard_limits_refuse_and_soft_ones_say_that_more_was_used() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let first = track(&t, &shop.key, json!({ "meter": "tokens", "value": 9, "eventId": "a" })).await;
    let state = json!({ "used": 9, "limit": 10, "remaining": 1, "overage": false });
    assert_eq!(first.body["usage"]["tokens"], state, "{}", first.text);
    let over = json!({ "meter": "tokens", "value": 2, "eventId": "b" });
    let refused = track(&t, &shop.key, over.clone()).await;
    assert_eq!(refused.refusal(), (402, "quota_exceeded"));
    assert_eq!(
        (&refused.body["meter"], &refused.body["used"], &refused.body["limit"]),
        (&json!("tokens"), &json!(9), &json!(10))
    );
    assert_eq!(total(&t, &shop, "meter=tokens").await, 9, "what was refused is counted nowhere");
    let batch = json!({ "events": [over, { "meter": "tokens", "value": 1, "eventId": "c" }, over] });
    let tracked = track(&t, &shop.key, batch).await.body;
    assert_eq!((&tracked["accepted"], &tracked["duplicates"]), (&json!(1), &json!(0)), "{tracked}");
    let refused = |place: usize| (&tracked["rejected"][place]["index"], &tracked["rejected"][place]["code"]);
    assert_eq!(refused(0), (&json!(0), &json!("quota_exceeded")));
    assert_eq!(refused(1), (&json!(2), &json!("quota_exceeded")), "it is no duplicate of what was not counted");
    assert_eq!(total(&t, &shop, "meter=tokens").await, 10);
    // The next month there is room, and the event that was refused is no duplicate.
    t.advance(Duration::from_hours(24));
    let later = track(&t, &shop.key, json!({ "meter": "tokens", "value": 2, "eventId": "b" })).await;
    assert_eq!(later.body["accepted"], 1, "{}", later.text);
    let soft = track(&t, &shop.key, json!({ "meter": "points", "value": 15 })).await;
    assert_eq!(soft.body["usage"]["points"], json!({ "used": 15, "limit": 10, "remaining": 0, "overage": true }));
    assert_eq!(track(&t, &shop.key, json!({ "meter": "points", "value": 6 })).await.status, 402);
    // Test usage is apart.
    let test = track(&t, &shop.key, json!({ "meter": "points", "value": 600, "environment": "test" })).await;
    assert_eq!((test.status, &test.body["livemode"]), (200, &json!(false)));
    let owner = super::again(&t, "ada@example.com").await;
    let shop = Shop { owner, ..shop };
    assert_eq!(total(&t, &shop, "meter=points").await, 15);
    assert_eq!(total(&t, &shop, "meter=points&environment=test").await, 600);
    let meters = shop.owner.asks(t.get(&format!("/usage/meters?appId={}", shop.app))).await;
    let points = meters.body["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "points").unwrap();
    assert_eq!(
        (&points["used"], &points["limit"], &points["included"]),
        (&json!(15), &json!(20), &json!(10)),
        "{points}"
    );
    assert_eq!((&points["source"], &points["overage"]), (&json!("tracked"), &json!("0.5")));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_correction_stands_beside_the_event() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    t.happened().await;
    track(&t, &shop.key, json!({ "meter": "tokens", "value": 9, "eventId": "a", "customer": "c" })).await;
    t.expects(&["QUOTA_WARNING"]).await;
    for value in [4, 4, 6] {
        let body = json!({ "correct": "a", "value": value, "eventId": format!("fix-{value}") });
        let fixed = track(&t, &shop.key, body).await;
        assert_eq!(fixed.status, 200, "{}", fixed.text);
    }
    t.expects(&["USAGE_CORRECTED", "USAGE_CORRECTED"]).await;
    assert_eq!(total(&t, &shop, "meter=tokens&customer=c").await, 6);
    let meters = shop.owner.asks(t.get("/usage/meters")).await;
    let tokens = meters.body["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "tokens").unwrap();
    assert_eq!(tokens["used"], 6, "{tokens}");
    let events = usage(&t, &shop, "meter=tokens&groupBy=event").await;
    let values: i64 = events.body["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()).sum();
    assert_eq!((events.body["usage"].as_array().unwrap().len(), values), (3, 6), "{}", events.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn corrections_are_exact_whatever_comes_together_and_a_refused_one_leaves_nothing() {
    let file = super::PlansFile::new(PLANS);
    let t = TestJanua::start_with(file.config(), feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    track(&t, &shop.key, json!({ "meter": "tokens", "value": 5, "eventId": "a" })).await;
    t.happened().await;
    // Over the limit, alone and in a batch: nothing is counted, and nothing is said to have been corrected.
    let over = json!({ "correct": "a", "value": 11, "eventId": "fix" });
    let refused = track(&t, &shop.key, over.clone()).await;
    assert_eq!((refused.refusal(), &refused.body["meter"]), ((402, "quota_exceeded"), &json!("tokens")));
    let refused = track(&t, &shop.key, json!({ "events": [over] })).await;
    assert_eq!(refused.body["rejected"][0]["code"], "quota_exceeded", "{}", refused.text);
    t.expects(&[]).await;
    assert_eq!(total(&t, &shop, "meter=tokens").await, 5);
    // Twice in one batch is once.
    let twice = json!({ "events": [
        { "correct": "a", "value": 4, "eventId": "x" }, { "correct": "a", "value": 3, "eventId": "y" },
    ] });
    let fixed = track(&t, &shop.key, twice).await;
    assert_eq!((&fixed.body["accepted"], &fixed.body["rejected"][0]["index"]), (&json!(1), &json!(1)));
    assert_eq!(total(&t, &shop, "meter=tokens").await, 4);
    // Many at once, by whatever node: the last one holds.
    let other = if t.janua.db.engine() == "postgres" { Some(t.another_node(feature).await) } else { None };
    let (this, key) = (&t, &shop.key);
    let attempts = (1..=9).map(|value| {
        let node = other.as_ref().filter(|_| value % 2 == 1).unwrap_or(this);
        let body = json!({ "correct": "a", "value": value, "eventId": format!("fix-{value}") });
        async move { track(node, key, body).await.status }
    });
    let statuses = futures_util::future::join_all(attempts).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let sum = total(&t, &shop, "meter=tokens").await;
    assert!((1..=9).contains(&sum), "one of the values that were given, not {sum}");
    let events = usage(&t, &shop, "meter=tokens&groupBy=event").await;
    let values: i64 = events.body["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()).sum();
    assert_eq!(values, sum, "{}", events.text);
    drop(other);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn sums_that_are_too_large_stop_at_the_largest_number() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let huge = |n: usize| {
        let event = json!({ "meter": "calls", "value": (1_i64 << 53) - 1, "customer": "c" });
        json!({ "events": vec![event; n] })
    };
    for n in [1000, 1000, 1] {
        let tracked = track(&t, &shop.key, huge(n)).await;
        assert_eq!((tracked.status, &tracked.body["accepted"]), (200, &json!(n)), "{}", tracked.text);
        t.advance(Duration::from_mins(15));
    }
    let shop = Shop { owner: super::again(&t, "ada@example.com").await, ..shop };
    assert_eq!(total(&t, &shop, "meter=calls").await, i64::MAX);
    assert_eq!(total(&t, &shop, "meter=calls&customer=c").await, i64::MAX);
    let days = usage(&t, &shop, "meter=calls&window=day").await;
    assert_eq!(days.status, 200, "{}", days.text);
    assert_eq!(shop.owner.asks(t.get("/usage/meters")).await.status, 200);
    assert_eq!(track(&t, &shop.key, json!({ "meter": "clicks" })).await.status, 200, "others are not concerned");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn windows_are_filled_with_zeros_and_paged() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    for (at, customer) in
        [("2026-01-29T23:30:00Z", "a"), ("2026-01-31T09:00:00Z", "b"), ("2026-01-31T09:59:00Z", "c")]
    {
        track(&t, &shop.key, json!({ "meter": "calls", "value": 2, "timestamp": at, "customer": customer })).await;
    }
    let values = |answer: &Answer| -> Vec<i64> {
        answer.body["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()).collect()
    };
    let range = "meter=calls&from=2026-01-29T00:00:00Z&to=2026-02-01T00:00:00Z&window=day";
    assert_eq!(values(&usage(&t, &shop, range).await), [2, 0, 4]);
    let berlin = "meter=calls&from=2026-01-28T23:00:00Z&to=2026-01-31T23:00:00Z&window=day&tz=Europe/Berlin";
    assert_eq!(
        values(&usage(&t, &shop, berlin).await),
        [0, 2, 4],
        "half past eleven in London is another day in Berlin"
    );
    let mut query = format!("{range}&groupBy=customer&limit=2");
    let (mut all, mut pages) = (vec![], 0);
    loop {
        let page = usage(&t, &shop, &query).await;
        assert_eq!(page.status, 200, "{}", page.text);
        all.extend(values(&page));
        pages += 1;
        let Some(cursor) = page.body["nextCursor"].as_str() else { break };
        query = format!("{range}&groupBy=customer&limit=2&cursor={cursor}");
    }
    assert_eq!((all, pages), (vec![2, 0, 0, 0, 0, 2, 0, 0, 2], 5));
    let csv =
        shop.owner.asks(t.get(&format!("/usage?appId={}&{range}", shop.app))).header("accept", "text/csv").await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert!(csv.text.starts_with("appId,meter,") && csv.text.lines().count() == 4, "{}", csv.text);
    // Of others nothing is seen.
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&format!("/usage?appId={}", shop.app))).await.refusal(), (404, "not_found"));
    assert_eq!(eve.asks(t.get("/usage")).await.refusal(), (400, "org_required"));
    t.finish().await;
}

#[tokio::test]
async fn pc18_usage_of_others_is_not_there_by_whatever_it_is_asked_for() {
    let t = start(PLANS).await;
    let ada = Shop::open(&t, "ada@example.com", "secret").await;
    let eve = Shop::open(&t, "eve@example.com", "secret").await;
    for shop in [&ada, &eve] {
        for customer in ["c1", "c2", "c3"] {
            track(&t, &shop.key, json!({ "meter": "calls", "value": 2, "customer": customer })).await;
        }
    }
    for query in
        [format!("appId={}", ada.app), format!("orgId={}", ada.org), format!("appId={}&orgId={}", eve.app, ada.org)]
    {
        let refused = eve.owner.asks(t.get(&format!("/usage?{query}"))).await;
        assert_eq!(refused.refusal(), (404, "not_found"), "{query}");
        let meters = eve.owner.asks(t.get(&format!("/usage/meters?{query}"))).await;
        assert_eq!(meters.refusal(), (404, "not_found"), "{query}");
    }
    let any = usage(&t, &eve, "meter=calls&customer=*").await;
    assert_eq!(any.body["usage"][0]["value"], 0, "no customer is called *: {}", any.text);
    // A cursor is for the list that it came with.
    for group in ["customer", "event"] {
        let page = usage(&t, &ada, &format!("meter=calls&groupBy={group}&limit=1")).await;
        let cursor = page.body["nextCursor"].as_str().unwrap();
        let next = usage(&t, &ada, &format!("meter=calls&groupBy={group}&limit=1&cursor={cursor}")).await;
        assert_eq!(next.status, 200, "{}", next.text);
        let foreign = usage(&t, &eve, &format!("meter=calls&groupBy={group}&limit=1&cursor={cursor}")).await;
        assert_eq!((foreign.status, foreign.refusal().1), (400, "bad_cursor"), "{group}: {}", foreign.text);
        let narrowed = format!("meter=calls&groupBy={group}&customer=c1&limit=1&cursor={cursor}");
        assert_eq!(usage(&t, &ada, &narrowed).await.status, 400, "another list of the same app");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn each_aggregation_counts_in_its_way() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    // The one that happened last came first.
    for (at, value, key) in
        [("2026-01-31T09:50:00Z", 3, "x"), ("2026-01-30T08:00:00Z", 8, "y"), ("2026-01-31T01:00:00Z", 5, "x")]
    {
        for meter in ["peak", "docs", "seats", "clicks"] {
            let event = json!({ "meter": meter, "value": value, "timestamp": at, "properties": { "key": key } });
            assert_eq!(track(&t, &shop.key, event).await.status, 200);
        }
    }
    assert_eq!(total(&t, &shop, "meter=peak").await, 8);
    assert_eq!(total(&t, &shop, "meter=seats").await, 3);
    assert_eq!(total(&t, &shop, "meter=clicks").await, 3);
    assert_eq!(total(&t, &shop, "meter=docs").await, 2);
    let days = "from=2026-01-30T00:00:00Z&to=2026-02-01T00:00:00Z&window=day";
    let docs = usage(&t, &shop, &format!("meter=docs&{days}")).await;
    assert_eq!(
        (&docs.body["usage"][0]["value"], &docs.body["usage"][1]["value"]),
        (&json!(1), &json!(1)),
        "{}",
        docs.text
    );
    let whole = "meter=docs&from=2026-01-30T00:00:00Z&to=2026-02-01T00:00:00Z";
    assert_eq!(total(&t, &shop, whole).await, 2, "each key once over all days");
    assert_eq!(usage(&t, &shop, "meter=docs&window=hour").await.status, 400);
    t.finish().await;
}

#[tokio::test]
async fn unique_keys_are_exact_by_day_and_month_and_at_a_limit() {
    let plans = "[meters.docs]\naggregation = \"unique\"\n[meters.peak]\naggregation = \"max\"\n[meters.seats]\n\
                 aggregation = \"latest\"\n[plans.free.limits]\ndocs = 3\nseats = 50";
    let t = start(plans).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let doc = |at: &str, key: &str| json!({ "meter": "docs", "timestamp": at, "customer": "c", "properties": { "key": key } });
    let batch = json!({ "events": [
        doc("2026-01-30T01:00:00Z", "a"), doc("2026-01-30T23:00:00Z", "b"), doc("2026-01-31T01:00:00Z", "a"),
    ] });
    assert_eq!(track(&t, &shop.key, batch).await.body["accepted"], 3);
    let days = usage(&t, &shop, "meter=docs&from=2026-01-29T00:00:00Z&window=day").await;
    let values: Vec<i64> =
        days.body["usage"].as_array().unwrap().iter().map(|row| row["value"].as_i64().unwrap()).collect();
    assert_eq!(values, [0, 2, 1], "{}", days.text);
    assert_eq!(total(&t, &shop, "meter=docs&from=2026-01-30T00:00:00Z&to=2026-01-31T00:00:00Z").await, 2);
    assert_eq!(total(&t, &shop, "meter=docs&from=2026-01-30T00:00:00Z").await, 2);
    // Parts of days cannot be told apart.
    for (query, field) in [
        ("from=2026-01-30T12:00:00Z", "from"),
        ("from=2026-01-30T00:00:00Z&to=2026-01-30T12:00:00Z", "to"),
        ("window=hour&from=2026-01-31T00:00:00Z", "window"),
        ("tz=Europe/Berlin", "tz"),
    ] {
        let refused = usage(&t, &shop, &format!("meter=docs&{query}")).await;
        assert_eq!((refused.status, refused.wrong_fields()), (400, vec![field]), "{}", refused.text);
        let others = usage(&t, &shop, query).await;
        let has_docs = others.body["usage"].as_array().unwrap().iter().any(|row| row["meter"] == "docs");
        assert_eq!((others.status, has_docs), (200, false), "{}", others.text);
    }
    // One place is left: of two new keys one is counted, with all its events, and the other with none.
    let at = "2026-01-31T02:00:00Z";
    let batch = json!({ "events": [doc(at, "d"), doc(at, "d"), doc(at, "e"), doc(at, "e")] });
    let tracked = track(&t, &shop.key, batch).await;
    assert_eq!((&tracked.body["accepted"], tracked.body["rejected"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(total(&t, &shop, "meter=docs").await, 3);
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM usage_event WHERE meter = 'docs'";
    let (stored,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(stored, 5);
    // Meters of levels say how high they stand.
    for (meter, value) in [("peak", 8), ("peak", 3), ("seats", 12), ("seats", 7)] {
        t.advance(Duration::from_secs(1));
        assert_eq!(track(&t, &shop.key, json!({ "meter": meter, "value": value })).await.status, 200);
    }
    assert_eq!(
        track(&t, &shop.key, json!({ "meter": "seats", "value": 51 })).await.refusal(),
        (402, "quota_exceeded")
    );
    let meters = shop.owner.asks(t.get("/usage/meters")).await;
    let used = |name: &str| {
        let meters = meters.body["meters"].as_array().unwrap().clone();
        let meter = meters.into_iter().find(|meter| meter["name"] == name).unwrap();
        (meter["used"].clone(), meter["remaining"].clone())
    };
    assert_eq!((used("peak"), used("seats")), ((json!(8), Value::Null), (json!(7), json!(43))), "{}", meters.text);
    t.run_jobs().await;
    t.finish().await;
}

struct Raw {
    slot: i64,
    customer: String,
    model: String,
    total: i64,
}
row!(Raw { slot, customer, model, total });

/// P: whatever comes, how often and in whatever order, totals equal the sums of the events, and each event is there once.
#[tokio::test]
async fn totals_equal_the_sums_of_the_events() {
    let mut seed = 7_u64;
    let mut roll = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let mut sent: BTreeMap<String, (i64, String)> = BTreeMap::new();
    let mut events = vec![];
    for number in 0..300 {
        let (value, customer, model) = (1 + roll(1000), format!("c{}", roll(5)), format!("m{}", roll(130)));
        let at = kernel::clock::Timestamp(START.0 - i64::try_from(roll(30 * 86_400_000)).unwrap());
        let id = format!("e{number}");
        sent.insert(id.clone(), (i64::try_from(value).unwrap(), customer.clone()));
        events.push(json!({ "meter": "calls", "value": value, "customer": customer, "eventId": id,
            "timestamp": at.to_string(), "properties": { "model": model, "region": "eu" } }));
    }
    // Each comes once or twice, in any order, alone or with others.
    let mut queue: Vec<Value> =
        events.iter().cloned().chain(events.iter().filter(|_| roll(2) == 0).cloned()).collect();
    while !queue.is_empty() {
        let batch: Vec<Value> = (0..=roll(12))
            .filter_map(|_| {
                let len = u64::try_from(queue.len()).unwrap();
                (len > 0).then(|| queue.swap_remove(usize::try_from(roll(len)).unwrap()))
            })
            .collect();
        let tracked = track(&t, &shop.key, json!({ "events": batch })).await;
        assert_eq!((tracked.status, &tracked.body["rejected"]), (200, &json!([])), "{}", tracked.text);
    }
    let expected: i64 = sent.values().map(|(value, _)| value).sum();
    let range = "meter=calls&from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z";
    assert_eq!(total(&t, &shop, range).await, expected);
    for customer in 0..5 {
        let customer = format!("c{customer}");
        let theirs: i64 = sent.values().filter(|(_, of)| *of == customer).map(|(value, _)| value).sum();
        assert_eq!(total(&t, &shop, &format!("{range}&customer={customer}")).await, theirs);
    }
    let sum_of = async |query: &str| {
        let answer = usage(&t, &shop, query).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let rows = answer.body["usage"].as_array().unwrap();
        (rows.len(), rows.iter().map(|row| row["value"].as_i64().unwrap()).sum::<i64>())
    };
    assert_eq!(sum_of(&format!("{range}&window=day")).await, (31, expected));
    assert_eq!(sum_of(&format!("{range}&window=day&tz=Asia/Kolkata")).await, (32, expected));
    let (models, by_model) = sum_of(&format!("{range}&groupBy=model&limit=200")).await;
    assert_eq!((models, by_model), (101, expected), "a hundred values are kept apart, and the others together");
    let sql = "SELECT (at / 900000) * 900000 AS slot, customer, '' AS model, CAST(SUM(value) AS BIGINT) AS total
               FROM usage_event GROUP BY (at / 900000) * 900000, customer ORDER BY 1, 2";
    let raw: Vec<Raw> = t.janua.db.all(sql, params![]).await.unwrap();
    let sql = "SELECT slot, customer, choice AS model, total FROM usage_total
               WHERE span = 'q' AND property = '' AND customer <> '' ORDER BY slot, customer";
    let kept: Vec<Raw> = t.janua.db.all(sql, params![]).await.unwrap();
    let plain = |rows: Vec<Raw>| -> Vec<(i64, String, String, i64)> {
        rows.into_iter().map(|row| (row.slot, row.customer, row.model, row.total)).collect()
    };
    assert_eq!(plain(raw), plain(kept));
    t.finish().await;
}

/// At one below the limit one gets in, whatever node it comes by; ids are of one app.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pc14_pc16_of_many_at_one_below_a_limit_one_is_counted() {
    let file = super::PlansFile::new(PLANS);
    let t = TestJanua::start_with(file.config(), feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    track(&t, &shop.key, json!({ "meter": "tokens", "value": 9 })).await;
    let other = if t.janua.db.engine() == "postgres" { Some(t.another_node(feature).await) } else { None };
    let (this, key) = (&t, &shop.key);
    let attempts = (0..32).map(|number| {
        let node = other.as_ref().filter(|_| number % 2 == 1).unwrap_or(this);
        async move { track(node, key, json!({ "meter": "tokens", "eventId": format!("e{number}") })).await.status }
    });
    let statuses = futures_util::future::join_all(attempts).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 402].contains(status)), "{statuses:?}");
    assert_eq!(total(&t, &shop, "meter=tokens").await, 10);
    // The same event many times at once.
    let attempts = (0..32).map(|number| {
        let node = other.as_ref().filter(|_| number % 2 == 1).unwrap_or(this);
        async move { track(node, key, json!({ "meter": "calls", "value": 3, "eventId": "one" })).await.body }
    });
    let answers = futures_util::future::join_all(attempts).await;
    assert_eq!(answers.iter().filter(|answer| answer["accepted"] == 1).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer["duplicates"] == 1).count(), 31, "{answers:?}");
    assert_eq!(total(&t, &shop, "meter=calls").await, 3);
    let second = super::make_app(&t, &shop.owner, "Second").await;
    let second = make_key(&t, &shop.owner, &super::id(&second.body), "secret", "live").await;
    let second = second.body["value"].as_str().unwrap();
    assert_eq!(
        track(&t, second, json!({ "meter": "calls", "value": 3, "eventId": "one" })).await.body["accepted"],
        1
    );
    drop(other);
    t.run_jobs().await;
    t.finish().await;
}

/// A server that is full says when to come again, and what comes again is counted once.
#[tokio::test]
async fn a_full_server_asks_to_come_again_and_counts_once() {
    let file = super::PlansFile::new(PLANS);
    let config = kernel::config::Config { max_in_flight: 2, ..file.config() };
    let t = TestJanua::start_with(config, feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let mut waiting: Vec<usize> = (0..40).collect();
    let mut refused = 0;
    while !waiting.is_empty() {
        let attempts = waiting.iter().map(|number| {
            track(&t, &shop.key, json!({ "meter": "calls", "value": 2, "eventId": format!("e{number}") }))
        });
        let answers = futures_util::future::join_all(attempts).await;
        let tried = std::mem::take(&mut waiting);
        for (number, answer) in tried.into_iter().zip(answers) {
            if answer.status == 503 {
                assert_eq!((answer.refusal(), answer.header("retry-after")), ((503, "overloaded"), "1"));
                refused += 1;
                waiting.push(number);
            } else {
                assert_eq!(answer.body["accepted"], 1, "{}", answer.text);
            }
        }
    }
    assert!(refused > 0, "nobody was sent away");
    assert_eq!(total(&t, &shop, "meter=calls").await, 80);
    t.finish().await;
}

#[tokio::test]
async fn a_plan_says_how_many_events_a_second() {
    let t = start("[meters.calls]\n[plans.free.limits]\nusage_events_per_second = 3").await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    for _ in 0..3 {
        assert_eq!(track(&t, &shop.key, json!({ "meter": "calls" })).await.status, 200);
    }
    let refused = track(&t, &shop.key, json!({ "meter": "calls" })).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, "rate_limited"), "1"));
    t.advance(Duration::from_secs(1));
    assert_eq!(track(&t, &shop.key, json!({ "meter": "calls" })).await.status, 200);
    t.finish().await;
}

#[tokio::test]
async fn an_app_with_a_plan_of_its_own_has_the_pace_of_that_plan() {
    let file = "[meters.calls]\n[plans.free.limits]\nusage_events_per_second = 1\n\
                [plans.pro]\nfor = [\"org\", \"app\"]\n[plans.pro.limits]\nusage_events_per_second = 3";
    let t = start(file).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let second = super::make_app(&t, &shop.owner, "Second").await;
    let second = make_key(&t, &shop.owner, &super::id(&second.body), "secret", "live").await;
    let second = second.body["value"].as_str().unwrap();
    t.janua.db.exec("UPDATE app SET plan = 'pro' WHERE id = $1", params![shop.app.as_str()]).await.unwrap();
    for _ in 0..3 {
        assert_eq!(track(&t, &shop.key, json!({ "meter": "calls" })).await.status, 200);
    }
    assert_eq!(track(&t, &shop.key, json!({ "meter": "calls" })).await.refusal(), (429, "rate_limited"));
    let other = track(&t, second, json!({ "meter": "calls" })).await;
    assert_eq!(other.status, 200, "an app on the plan of the organization: {}", other.text);
    assert_eq!(track(&t, second, json!({ "meter": "calls" })).await.refusal(), (429, "rate_limited"));
    t.finish().await;
}

#[tokio::test]
async fn pc17_a_publishable_key_sends_small_batches() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    let batch = |n: usize| json!({ "events": vec![json!({ "meter": "clicks" }); n] });
    let refused = track(&t, &shop.key, batch(21)).await;
    assert_eq!((refused.refusal(), refused.wrong_fields()), ((400, "invalid"), vec!["events"]), "{}", refused.text);
    assert!(refused.text.contains("at most 20 events with a publishable key"), "{}", refused.text);
    assert_eq!(track(&t, &shop.key, batch(20)).await.body["accepted"], 20);
    t.finish().await;
}

#[tokio::test]
async fn a_correction_downward_counts_where_a_lowered_limit_refuses_the_rest() {
    let t = start(&format!("{PLANS}\n[plans.gold.limits]\ntokens = 100")).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let root = signed_in(&t, "root@example.com").await;
    let set_plan = async |plan: &str| {
        let change = t.ask(axum::http::Method::PATCH, &format!("/admin/orgs/{}", shop.org));
        assert_eq!(root.asks(change.json(&json!({ "plan": plan }))).await.status, 200);
    };
    set_plan("gold").await;
    let first = track(&t, &shop.key, json!({ "meter": "tokens", "value": 30, "eventId": "a" })).await;
    assert_eq!(first.status, 200, "{}", first.text);
    set_plan("free").await;
    let both = json!({ "events": [
        { "meter": "tokens", "value": 8, "eventId": "b" }, { "correct": "a", "value": 25, "eventId": "fix" },
    ] });
    let tracked = track(&t, &shop.key, both).await;
    assert_eq!(tracked.body["accepted"], 1, "{}", tracked.text);
    assert_eq!(
        (&tracked.body["rejected"][0]["index"], &tracked.body["rejected"][0]["code"]),
        (&json!(0), &json!("quota_exceeded"))
    );
    assert_eq!(total(&t, &shop, "meter=tokens").await, 25);
    let meters = shop.owner.asks(t.get("/usage/meters")).await.body;
    let tokens = meters["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "tokens").unwrap();
    assert_eq!(tokens["used"], 25);
    t.run_jobs().await;
    t.finish().await;
}

/// Which of two events with one key comes first follows from their ids, so there are eight pairs.
#[tokio::test]
async fn a_key_is_counted_though_another_event_with_it_is_refused_for_its_agent() {
    let t = start(PLANS).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let unknown = tenancy::machines::MachineId::new(&t.janua.entropy, t.janua.clock.now());
    let pairs = (0..8).flat_map(|pair| {
        let customer = format!("c{pair}");
        [
            json!({ "meter": "docs", "customer": customer, "eventId": format!("{pair}a"), "agentId": unknown }),
            json!({ "meter": "docs", "customer": customer, "eventId": format!("{pair}b") }),
        ]
    });
    let tracked = track(&t, &shop.key, json!({ "events": pairs.collect::<Vec<_>>() })).await;
    assert_eq!(tracked.body["accepted"], 8, "{}", tracked.text);
    let rejected = tracked.body["rejected"].as_array().unwrap();
    assert!(rejected.len() == 8 && rejected.iter().all(|one| one["code"] == "unknown_agent"), "{}", tracked.text);
    assert_eq!(total(&t, &shop, "meter=docs").await, 8);
    assert_eq!(total(&t, &shop, "meter=docs&customer=c3").await, 1);
    let meters = shop.owner.asks(t.get("/usage/meters")).await.body;
    let docs = meters["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "docs").unwrap();
    assert_eq!(docs["used"], 8);
    t.run_jobs().await;
    t.finish().await;
}
