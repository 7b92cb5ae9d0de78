//! Limits of plans at the doors where rows are made, and counters that equal the rows.
use std::time::Duration;

use axum::http::Method;
use db::{params, row};
use identity::testing::{Person, mail_to, signed_in, token_in};
use kernel::testing::TestJanua;
use serde_json::{Value, json};

use super::{Shop, delete, feature, id, make_app, make_hook, make_key, start};

const SMALL: &str = "[plans.free.limits]\nmembers = 2\napps = 2\nkeys = 2\nwebhooks = 1\nmau = 2";

/// The token of an invite, unless one cannot be sent.
async fn invite(t: &TestJanua, shop: &Shop, email: &str) -> Option<String> {
    let body = json!({ "email": email, "role": "member" });
    let sent = shop.owner.asks(t.post(&format!("/org/{}/members", shop.org)).json(&body)).await;
    t.run_jobs().await;
    (sent.status < 300).then(|| token_in(&mail_to(t, email).expect("an invite")))
}

async fn join(t: &TestJanua, person: &Person, token: &str) -> kernel::testing::Answer {
    person.asks(t.post("/auth/accept-invite").json(&json!({ "token": token }))).await
}

#[tokio::test]
async fn each_limit_refuses_one_more_and_says_which() {
    let t = start(SMALL).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    assert_eq!(make_app(&t, &shop.owner, "Two").await.status, 200);
    let refused = make_app(&t, &shop.owner, "Three").await;
    assert_eq!(refused.refusal(), (402, "quota_exceeded"));
    let body = &refused.body;
    assert_eq!((&body["meter"], &body["limit"], &body["used"]), (&json!("apps"), &json!(2), &json!(2)));
    assert_eq!((&body["plan"], &body["resetsAt"]), (&json!("free"), &Value::Null), "{}", refused.text);
    assert_eq!(make_key(&t, &shop.owner, &shop.app, "publishable", "test").await.status, 200);
    assert_eq!(make_key(&t, &shop.owner, &shop.app, "publishable", "live").await.body["meter"], "keys");
    assert_eq!(make_hook(&t, &shop.owner, &shop.app).await.status, 200);
    let refused = make_hook(&t, &shop.owner, &shop.app).await;
    assert_eq!((refused.status, &refused.body["meter"]), (402, &json!("webhooks")), "{}", refused.text);
    let people = [signed_in(&t, "bob@example.com").await, signed_in(&t, "eve@example.com").await];
    let tokens =
        [invite(&t, &shop, "bob@example.com").await, invite(&t, &shop, "eve@example.com").await].map(Option::unwrap);
    assert_eq!(join(&t, &people[0], &tokens[0]).await.status, 200);
    let refused = join(&t, &people[1], &tokens[1]).await;
    assert_eq!((refused.status, &refused.body["meter"]), (402, &json!("members")), "{}", refused.text);
    // Room again, and the invite was not used up.
    let path = format!("/org/{}/members/{}", shop.org, people[0].id);
    assert_eq!(delete(&t, &shop.owner, &path).await.status, 204);
    assert_eq!(join(&t, &people[1], &tokens[1]).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn warnings_come_at_80_and_100_percent_once_with_a_mail() {
    let t = start("[plans.free.limits]\napps = 5").await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    for name in ["Two", "Three"] {
        make_app(&t, &shop.owner, name).await;
    }
    t.happened().await;
    let four = id(&make_app(&t, &shop.owner, "Four").await.body);
    t.expects(&["QUOTA_WARNING", "APP_CREATED"]).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").unwrap();
    assert!(mail.contains("apps: 4 of 5"), "{mail}");
    delete(&t, &shop.owner, &format!("/apps/{four}")).await;
    make_app(&t, &shop.owner, "Again").await;
    t.expects(&["APP_DELETED", "APP_CREATED"]).await;
    make_app(&t, &shop.owner, "Five").await;
    t.expects(&["QUOTA_REACHED", "APP_CREATED"]).await;
    assert_eq!(make_app(&t, &shop.owner, "Six").await.status, 402);
    t.expects(&[]).await;
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("apps: 5 of 5"));
    t.finish().await;
}

#[tokio::test]
async fn active_users_are_counted_once_a_month_and_only_new_ones_are_kept_out() {
    let t = start(SMALL).await;
    let shop = Shop::open(&t, "ada@example.com", "publishable").await;
    let login = async |email: &str| {
        let body = json!({ "email": email, "password": identity::testing::PASSWORD,
            "options": { "tokenDelivery": "body" } });
        t.post("/auth/login").json(&body).header("x-service-app-key", &shop.key).await
    };
    for name in ["bob", "eve", "mallory"] {
        identity::testing::member(&t, &format!("{name}@example.com")).await;
    }
    let used = async || {
        let sql = "SELECT used FROM quota WHERE meter = 'mau' ORDER BY period DESC LIMIT 1";
        let (used,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
        used
    };
    let bob = login("bob@example.com").await;
    assert_eq!((bob.status, login("bob@example.com").await.status, used().await), (200, 200, 1), "{}", bob.text);
    assert_eq!((login("eve@example.com").await.status, used().await), (200, 2));
    let refused = login("mallory@example.com").await;
    assert_eq!((refused.status, &refused.body["meter"]), (402, &json!("mau")), "{}", refused.text);
    assert!(refused.body["resetsAt"].as_str().is_some_and(|at| at.starts_with("2026-02-01")), "{}", refused.text);
    assert_eq!(login("bob@example.com").await.status, 200, "who is there already comes in");
    // The next month a renewed session counts, too, and everybody who was there comes in whatever the limit says.
    t.advance(Duration::from_hours(24));
    let renewed = t.post("/auth/refresh").header("x-service-app-key", &shop.key);
    let renewed = renewed.json(&json!({ "refreshToken": bob.body["refreshToken"] })).await;
    assert_eq!((renewed.status, used().await), (200, 1), "{}", renewed.text);
    assert_eq!((login("mallory@example.com").await.status, used().await), (200, 2));
    assert_eq!(
        (login("eve@example.com").await.status, used().await),
        (200, 3),
        "beyond the limit, and not locked out"
    );
    t.run_jobs().await;
    t.finish().await;
}

struct Difference {
    org_id: String,
    meter: String,
    used: i64,
    counted: i64,
}
row!(Difference { org_id, meter, used, counted });

/// The counters that do not equal the rows.
async fn differences(t: &TestJanua) -> Vec<String> {
    let sql = "SELECT org.id AS org_id, counted.meter, COALESCE(quota.used, 0) AS used, counted.counted
               FROM org JOIN (
                   SELECT org.id AS org_id, 'members' AS meter, (SELECT CAST(COUNT(*) AS BIGINT) FROM org_member
                       WHERE org_member.org_id = org.id) AS counted FROM org
                   UNION ALL SELECT org.id, 'apps', (SELECT CAST(COUNT(*) AS BIGINT) FROM app
                       WHERE app.org_id = org.id) FROM org
                   UNION ALL SELECT org.id, 'keys', (SELECT CAST(COUNT(*) AS BIGINT) FROM app
                       JOIN app_key ON app_key.app_id = app.id WHERE app.org_id = org.id) FROM org
                   UNION ALL SELECT org.id, 'webhooks', (SELECT CAST(COUNT(*) AS BIGINT) FROM app
                       JOIN webhook ON webhook.app_id = app.id WHERE app.org_id = org.id) FROM org
               ) AS counted ON counted.org_id = org.id
               LEFT JOIN quota ON quota.org_id = org.id AND quota.meter = counted.meter AND quota.period = 0";
    let all: Vec<Difference> = t.janua.db.all(sql, params![]).await.unwrap();
    let wrong = all.into_iter().filter(|row| row.used != row.counted);
    wrong.map(|row| format!("{} {}: {} counted as {}", row.org_id, row.meter, row.counted, row.used)).collect()
}

/// A small repeatable chance.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// P: whatever happens through the doors, in whatever order, counters equal the counted rows.
#[tokio::test]
async fn counters_equal_the_counted_rows_after_random_acts() {
    for (seed, plans) in [(1, "[plans.free.limits]\nmembers = 3\napps = 3\nkeys = 4\nwebhooks = 3"), (2, ""), (3, "")]
    {
        let t = start(plans).await;
        let shop = Shop::open(&t, "ada@example.com", "secret").await;
        let people = [signed_in(&t, "bob@example.com").await, signed_in(&t, "eve@example.com").await];
        let emails = ["bob@example.com", "eve@example.com"];
        let scim =
            shop.owner.asks(t.post(&format!("/org/{}/scim-tokens", shop.org)).json(&json!({ "name": "x" }))).await;
        let scim = format!("Bearer {}", scim.body["value"].as_str().unwrap());
        let mut persons = vec![];
        for email in emails {
            let body = json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": email,
                "emails": [{ "value": email, "primary": true }] });
            let made = t.post("/scim/v2/Users").json(&body).header("authorization", &scim).await;
            persons.push(id(&made.body));
            t.run_jobs().await;
        }
        let mut dice = Dice(seed);
        for step in 0..60 {
            let listed = shop.owner.asks(t.get("/apps")).await;
            let apps: Vec<String> = listed.body["apps"].as_array().unwrap().iter().map(id).collect();
            let app = apps.get(dice.roll(apps.len().max(1))).cloned().unwrap_or_default();
            let who = dice.roll(2);
            match dice.roll(10) {
                0 => _ = make_app(&t, &shop.owner, &format!("App {step}")).await,
                1 if apps.len() > 1 => _ = delete(&t, &shop.owner, &format!("/apps/{app}")).await,
                2 | 3 => _ = make_key(&t, &shop.owner, &app, "secret", "live").await,
                4 => {
                    let keys = shop.owner.asks(t.get(&format!("/apps/{app}/keys"))).await;
                    if let Some(key) = keys.body["keys"].get(0) {
                        delete(&t, &shop.owner, &format!("/apps/{app}/keys/{}", id(key))).await;
                    }
                }
                5 => _ = make_hook(&t, &shop.owner, &app).await,
                6 => {
                    let hooks = shop.owner.asks(t.get(&format!("/apps/{app}/webhooks"))).await;
                    if let Some(hook) = hooks.body["webhooks"].get(0) {
                        delete(&t, &shop.owner, &format!("/apps/{app}/webhooks/{}", id(hook))).await;
                    }
                }
                7 => {
                    if let Some(token) = invite(&t, &shop, emails[who]).await {
                        join(&t, &people[who], &token).await;
                    }
                }
                8 => _ = delete(&t, &shop.owner, &format!("/org/{}/members/{}", shop.org, people[who].id)).await,
                _ => {
                    let active = dice.roll(2) == 0;
                    let body = json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
                        "Operations": [{ "op": "replace", "path": "active", "value": active }] });
                    let path = format!("/scim/v2/Users/{}", persons[who]);
                    t.ask(Method::PATCH, &path).json(&body).header("authorization", &scim).await;
                }
            }
            t.run_jobs().await;
            t.advance(Duration::from_secs(10));
            let wrong = differences(&t).await;
            assert!(wrong.is_empty(), "seed {seed}, step {step}: {wrong:?}");
        }
        // Somebody who leaves the service leaves the organization, and an organization that ends takes its counters along.
        if let Some(token) = invite(&t, &shop, emails[0]).await {
            join(&t, &people[0], &token).await;
        }
        let bob = Person::of(&identity::testing::login(&t, emails[0], identity::testing::PASSWORD).await);
        assert_eq!(delete(&t, &bob, "/auth/me").await.status, 204);
        assert!(differences(&t).await.is_empty());
        t.run_jobs().await;
        let ended = delete(&t, &shop.owner, &format!("/org/{}", shop.org)).await;
        assert_eq!(ended.status, 204, "{}", ended.text);
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM quota WHERE org_id = $1";
        let (left,): (i64,) = t.janua.db.one(sql, params![&shop.org]).await.unwrap();
        assert_eq!((left, differences(&t).await), (0, vec![]));
        t.run_jobs().await;
        t.finish().await;
    }
}

/// Of many that come at one below the limit, one gets in. On PostgreSQL they come by two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pc14_of_many_at_one_below_the_limit_one_gets_in() {
    let file = super::PlansFile::new("[plans.free.limits]\napps = 3");
    let t = TestJanua::start_with(file.config(), feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    assert_eq!(make_app(&t, &shop.owner, "Two").await.status, 200);
    let other = if t.janua.db.engine() == "postgres" { Some(t.another_node(feature).await) } else { None };
    let (node_a, owner) = (&t, &shop.owner);
    let mut attempts: Vec<std::pin::Pin<Box<dyn Future<Output = u16> + '_>>> = vec![];
    for number in 0..32 {
        let node = other.as_ref().filter(|_| number % 2 == 1).unwrap_or(node_a);
        attempts.push(Box::pin(async move { make_app(node, owner, &format!("App {number}")).await.status }));
    }
    let statuses = futures_util::future::join_all(attempts).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 402].contains(status)), "{statuses:?}");
    assert!(differences(&t).await.is_empty());
    t.run_jobs().await;
    t.finish().await;
}

/// Of many invited users that accept at one below the limit, one becomes a member. On PostgreSQL they come by two
/// nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pc14_of_many_that_accept_at_one_below_the_limit_one_becomes_a_member() {
    let file = super::PlansFile::new("[plans.free.limits]\nmembers = 2");
    let t = TestJanua::start_with(file.config(), feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let mut invited = vec![];
    for number in 0..8 {
        let email = format!("user{number}@example.com");
        let person = signed_in(&t, &email).await;
        invited.push((person, invite(&t, &shop, &email).await.unwrap()));
    }
    let other = if t.janua.db.engine() == "postgres" { Some(t.another_node(feature).await) } else { None };
    let nodes = [&t, other.as_ref().unwrap_or(&t)];
    let attempts = invited.iter().enumerate().map(|(number, (person, token))| join(nodes[number % 2], person, token));
    let answers = futures_util::future::join_all(attempts).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 402].contains(status)), "{statuses:?}");
    assert!(differences(&t).await.is_empty());
    drop(other);
    t.run_jobs().await;
    t.finish().await;
}
