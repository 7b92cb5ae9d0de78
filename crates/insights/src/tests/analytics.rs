//! Analytics: exact, for admins, and without anybody who is gone.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use db::params;
use identity::testing::{login, signed_in};
use kernel::{
    clock::{Clock, Timestamp},
    transact,
};
use tenancy::{
    events::watch::{Occurrence, What},
    ids::{AccountId, ApplicationId, EventId},
};

use super::*;
use crate::analytics::{
    count, model,
    zones::{KnownZones, Zones},
};

const ADA: &str = "ada@example.com";
const BOB: &str = "bob@example.com";
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

async fn overview(t: &TestJanua, who: &Person, app: &App, query: &str) -> Value {
    let answer = who.asks(t.get(&format!("/analytics/app/{}/overview{query}", app.id))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

async fn again(t: &TestJanua, email: &str) -> Person {
    Person::of(&login(t, email, PASSWORD).await)
}

/// How many rows of the tables of analytics name this id.
async fn rows_of(t: &TestJanua, id: &str) -> i64 {
    let sql = "SELECT (SELECT COUNT(*) FROM event_tally WHERE account_id = $1 OR app_id = $1)
                    + (SELECT COUNT(*) FROM event_hour WHERE app_id = $1)
                    + (SELECT COUNT(*) FROM event_day WHERE scope = $1)
                    + (SELECT COUNT(*) FROM active_user WHERE scope = $1 OR account_id = $1)
                    + (SELECT COUNT(*) FROM active_gap WHERE scope = $1)
                    + (SELECT COUNT(*) FROM active_day WHERE scope = $1)
                    + (SELECT COUNT(*) FROM active_block WHERE scope = $1)
                    + (SELECT COUNT(*) FROM active_total WHERE scope = $1)
                    + (SELECT COUNT(*) FROM user_period WHERE app_id = $1 OR account_id = $1)
                    + (SELECT COUNT(*) FROM funnel_step WHERE app_id = $1 OR account_id = $1)
                    + (SELECT COUNT(*) FROM funnel_day WHERE app_id = $1)";
    let (n,): (i64,) = t.janua.db.one(sql, params![id]).await.unwrap();
    n
}

#[tokio::test]
async fn an_overview_counts_what_just_happened() {
    let t = start().await;
    let (ada, _bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    assert_eq!(login_to(&t, &app, BOB).await.status, 200);
    assert_eq!(login_to(&t, &app, ADA).await.status, 200);
    let wrong = json!({ "email": BOB, "password": "wrong horse battery staple" });
    assert_eq!(t.post("/auth/login").json(&wrong).header("x-service-app-key", &app.key).await.status, 401);
    // A failed sign-in is written down after its answer.
    t.run_jobs().await;
    let seen = overview(&t, &ada, &app, "").await;
    assert_eq!((&seen["appId"], &seen["timeZone"]), (&json!(app.id), &json!("UTC")));
    assert_eq!((&seen["events"]["signIns"], &seen["events"]["signInFailures"]), (&json!(2), &json!(1)));
    assert_eq!(seen["methods"], json!({ "pwd": 2 }));
    assert_eq!(seen["activeUsers"], json!({ "daily": 2, "weekly": 2, "monthly": 2 }));
    assert_eq!((&seen["newUsers"], &seen["returningUsers"], &seen["users"]), (&json!(2), &json!(0), &json!(2)));
    assert_eq!(seen["previous"]["events"]["signIns"], 0);
    // Every event of the app in the audit log is counted.
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM audit_event WHERE app_id = $1";
    let (all,): (i64,) = t.janua.db.one(sql, params![&app.id]).await.unwrap();
    assert_eq!(seen["events"]["total"], all);
    t.advance(Duration::from_hours(24 * 30));
    let ada = again(&t, ADA).await;
    let later = overview(&t, &ada, &app, "").await;
    assert_eq!((&later["events"]["signIns"], &later["activeUsers"]["monthly"]), (&json!(0), &json!(0)));
    assert_eq!((&later["previous"]["events"]["signIns"], &later["users"]), (&json!(2), &json!(2)));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_refresh_counts_a_person_once_a_day_and_is_no_event() {
    let t = start().await;
    let (ada, _bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let mut token = text(&login_to(&t, &app, BOB).await.body["refreshToken"]);
    let mut waiting = vec![];
    for _ in 0..4 {
        t.advance(Duration::from_hours(10));
        let body = json!({ "refreshToken": token });
        let answer = t.post("/auth/refresh").json(&body).header("x-service-app-key", &app.key).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        token = text(&answer.body["refreshToken"]);
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM event_tally WHERE kind = 'seen'";
        waiting.push(t.janua.db.one::<(i64,)>(sql, params![]).await.unwrap().0);
    }
    // The clock starts at ten in the morning: 20:00, 6:00, 16:00, 2:00.
    assert_eq!(waiting, [0, 1, 1, 2]);
    let ada = again(&t, ADA).await;
    let seen = overview(&t, &ada, &app, "").await;
    assert_eq!((&seen["events"]["signIns"], &seen["activeUsers"]["monthly"]), (&json!(1), &json!(1)));
    assert_eq!(seen["activeUsers"]["daily"], 1);
    let path = format!("/analytics/app/{}/timeseries?metric=active_users,sign_ins,new_users,total", app.id);
    let series = ada.asks(t.get(&path)).await.body;
    let tail = |at: usize| -> Vec<i64> {
        let points = series["series"][at]["points"].as_array().unwrap();
        assert_eq!(points.len(), 30, "zero-filled");
        assert_eq!(points[29]["partial"], true);
        points[26..].iter().map(|point| point["value"].as_i64().unwrap()).collect()
    };
    assert_eq!((tail(0), tail(1), tail(2)), (vec![0, 1, 1, 1], vec![0, 1, 0, 0], vec![0, 1, 0, 0]));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m26_admins_see_figures_and_nobody_else() {
    let t = start().await;
    let (ada, bob, eve) =
        (signed_in(&t, ADA).await, signed_in(&t, BOB).await, signed_in(&t, "eve@example.com").await);
    let app = make_app(&t, &ada, "Shop").await;
    let paths = [
        format!("/analytics/app/{}/overview", app.id),
        format!("/analytics/app/{}/timeseries", app.id),
        format!("/analytics/app/{}/top-users", app.id),
        format!("/analytics/app/{}/funnels", app.id),
        format!("/analytics/org/{}/overview", app.org),
        format!("/analytics/org/{}/timeseries", app.org),
    ];
    put(&t, &app, &bob, "member").await;
    for path in &paths {
        assert_eq!(t.get(path).await.status, 401, "{path}");
        assert_eq!(bob.asks(t.get(path)).await.refusal(), (403, "forbidden"), "a member: {path}");
        assert_eq!(eve.asks(t.get(path)).await.refusal(), (404, "not_found"), "a stranger: {path}");
        assert_eq!(ada.asks(t.get(path)).await.status, 200, "{path}");
    }
    let zone = t.ask(axum::http::Method::PUT, &format!("/analytics/org/{}/time-zone", app.org));
    assert_eq!(bob.asks(zone.json(&json!({ "timeZone": "Asia/Kolkata" }))).await.refusal(), (403, "forbidden"));
    // An admin who is made a member again sees nothing from the next request on.
    let member = format!("/org/{}/members/{}", app.org, bob.id);
    let change = |role: &str| ada.asks(t.ask(axum::http::Method::PATCH, &member).json(&json!({ "role": role })));
    assert_eq!(change("admin").await.status, 200);
    for path in &paths {
        assert_eq!(bob.asks(t.get(path)).await.status, 200, "an admin: {path}");
    }
    assert_eq!(change("member").await.status, 200);
    for path in &paths {
        assert_eq!(bob.asks(t.get(path)).await.refusal(), (403, "forbidden"), "after demotion: {path}");
    }
    // Names that a spreadsheet would take for a formula.
    let answer = login_to(&t, &app, BOB).await;
    let bob = Person::of(&login(&t, BOB, PASSWORD).await);
    assert_eq!(answer.status, 200);
    let named = t.ask(axum::http::Method::PATCH, "/user/profile").json(&json!({ "name": "=1+1" }));
    assert_eq!(bob.asks(named).await.status, 200);
    let csv = ada.asks(t.get(&paths[2])).header("accept", "text/csv").await;
    assert!(csv.text.contains("\"'=1+1\"") && csv.text.starts_with("\"id\",\"email\""), "{}", csv.text);
    let csv = ada.asks(t.get(&format!("{}?format=csv", paths[0]))).await;
    assert!(csv.text.contains("\"signIns\",\"1\",\"0\"\r\n"), "{}", csv.text);
    let gone = ada.asks(t.ask(axum::http::Method::DELETE, &format!("/apps/{}", app.id))).await;
    assert_eq!(gone.status, 204);
    assert_eq!(ada.asks(t.get(&paths[0])).await.refusal(), (404, "not_found"), "a deleted app");
    // What was recorded of its end goes the same way.
    count::catch_up(&t.janua).await.unwrap();
    assert_eq!(rows_of(&t, &app.id).await, 0, "nothing is left of it");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn figures_are_not_late_however_much_waits() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let app = make_app(&t, &ada, "Shop").await;
    let now = t.janua.clock.now();
    let waiting = 10_600_i64;
    let sql = "WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < $3)
               INSERT INTO event_tally (id, app_id, kind, method, account_id, at)
               SELECT 'waiting' || n, $1, 'SIGN_IN_FAILED', '', NULL, $2 FROM many";
    t.janua.db.exec(sql, params![&app.id, now, waiting]).await.unwrap();
    let seen = overview(&t, &ada, &app, "").await;
    assert_eq!(seen["events"]["signInFailures"], waiting);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_file_of_top_users_has_all_of_them() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let app = make_app(&t, &ada, "Shop").await;
    for number in 0..3 {
        let email = format!("user{number}@example.com");
        signed_in(&t, &email).await;
        assert_eq!(login_to(&t, &app, &email).await.status, 200);
    }
    let csv = ada.asks(t.get(&format!("/analytics/app/{}/top-users?format=csv&limit=1", app.id))).await;
    for number in 0..3 {
        assert!(csv.text.contains(&format!("user{number}@example.com")), "{}", csv.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn ranges_and_metrics_are_checked() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let app = make_app(&t, &ada, "Shop").await;
    let root = format!("/analytics/app/{}", app.id);
    for (path, expected) in [
        ("/overview?from=yesterday", "invalid"),
        ("/overview?from=2026-01-31&to=2026-01-30", "invalid"),
        ("/overview?from=2024-01-01&to=2026-01-30", "range_too_long"),
        ("/timeseries?metric=weather", "invalid"),
        ("/timeseries?metric=sign_ins,sign_ups,total,consents,magic_links,mfa_enabled", "invalid"),
        ("/timeseries?metric=active_users&interval=hour", "invalid"),
        ("/timeseries?interval=day&from=2020-01-01&to=2026-01-01", "too_many_points"),
        ("/timeseries?interval=hour&from=2025-12-01&to=2026-01-31", "too_many_points"),
        ("/timeseries?interval=hour&from=2025-01-01&to=2025-01-02", "invalid"),
        ("/funnels?funnel=sales", "invalid"),
    ] {
        let answer = ada.asks(t.get(&format!("{root}{path}"))).await;
        assert_eq!(answer.refusal(), (400, expected), "{path}: {}", answer.text);
    }
    let weeks = ada.asks(t.get(&format!("{root}/timeseries?interval=week&from=2026-01-01&to=2026-01-31"))).await.body;
    let starts: Vec<&str> =
        weeks["series"][0]["points"].as_array().unwrap().iter().map(|p| p["start"].as_str().unwrap()).collect();
    assert_eq!(starts, ["2025-12-29", "2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26"]);
    let hours = ada.asks(t.get(&format!("{root}/timeseries?interval=hour&from=2026-01-31&to=2026-01-31"))).await.body;
    assert_eq!(hours["series"][0]["points"].as_array().unwrap().len(), 24);
    t.finish().await;
}

#[tokio::test]
async fn funnels_and_top_users_follow_people() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    for _ in 0..3 {
        assert_eq!(login_to(&t, &app, BOB).await.status, 200);
    }
    assert_eq!(login_to(&t, &app, ADA).await.status, 200);
    let body = json!({ "email": "zoe@example.com", "password": PASSWORD, "name": "Zoe" });
    let made = t.post("/auth/register").json(&body).header("x-service-app-key", &app.key).await;
    assert!(made.status < 300, "{}", made.text);
    t.run_jobs().await;
    let root = format!("/analytics/app/{}", app.id);
    let sign_in = ada.asks(t.get(&format!("{root}/funnels?funnel=sign_in&window=1h"))).await.body;
    let users: Vec<i64> =
        sign_in["steps"].as_array().unwrap().iter().map(|step| step["users"].as_i64().unwrap()).collect();
    assert_eq!(users, [2, 2, 0, 2], "{sign_in}");
    assert_eq!(sign_in["steps"][3]["ofPrevious"], 1.0, "of those who proved a first factor");
    let sign_up = ada.asks(t.get(&format!("{root}/funnels"))).await.body;
    assert_eq!((&sign_up["funnel"], &sign_up["window"]), (&json!("sign_up"), &json!("7d")));
    assert_eq!(sign_up["steps"][0]["users"], 1, "{sign_up}");
    let top = ada.asks(t.get(&format!("{root}/top-users?period=day&limit=1"))).await.body;
    assert_eq!((&top["users"][0]["id"], &top["users"][0]["events"]), (&json!(bob.id), &json!(3)));
    assert_eq!(top["users"][0]["email"], BOB);
    let cursor = top["nextCursor"].as_str().unwrap();
    let next = ada.asks(t.get(&format!("{root}/top-users?period=day&limit=1&cursor={cursor}"))).await.body;
    assert_eq!((&next["users"][0]["id"], &next["nextCursor"]), (&json!(ada.id), &Value::Null));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn only_counts_outlive_a_person() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    assert_eq!(login_to(&t, &app, BOB).await.status, 200);
    t.advance(Duration::from_mins(1));
    t.run_jobs().await;
    // One sign-in is counted, and one still waits.
    assert_eq!(login_to(&t, &app, BOB).await.status, 200);
    assert!(rows_of(&t, &bob.id).await > 4);
    let body = json!({ "password": PASSWORD });
    let gone = bob.asks(t.ask(axum::http::Method::DELETE, "/auth/me").json(&body)).await;
    assert!(gone.status < 300, "{}", gone.text);
    assert_eq!(rows_of(&t, &bob.id).await, 0);
    let seen = overview(&t, &ada, &app, "").await;
    assert_eq!((&seen["events"]["signIns"], &seen["activeUsers"]["daily"]), (&json!(2), &json!(1)));
    assert_eq!(seen["users"], 0, "who is gone is not one of its users");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn events_from_before_are_counted_by_a_job() {
    let without = |config: &Config| {
        identity::testing::feature(config).and(directory::feature(config)).and(workshop::feature(config))
    };
    let t = TestJanua::start(without).await;
    let (ada, _bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    for _ in 0..3 {
        assert_eq!(login_to(&t, &app, BOB).await.status, 200);
        t.run_jobs().await;
        t.advance(DAY);
    }
    let t = t.restart(feature).await;
    assert_eq!(login_to(&t, &app, BOB).await.status, 200);
    let ada = again(&t, ADA).await;
    assert_eq!(overview(&t, &ada, &app, "").await["activeUsers"], json!({ "daily": 1, "weekly": 1, "monthly": 1 }));
    t.run_jobs().await;
    let seen = overview(&t, &ada, &app, "").await;
    assert_eq!((&seen["events"]["signIns"], &seen["newUsers"]), (&json!(4), &json!(1)));
    let path = format!("/analytics/app/{}/timeseries?metric=active_users,new_users&from=2026-01-31", app.id);
    let series = ada.asks(t.get(&path)).await.body;
    let values = |at: usize| -> Vec<i64> {
        series["series"][at]["points"].as_array().unwrap().iter().map(|p| p["value"].as_i64().unwrap()).collect()
    };
    assert_eq!((values(0), values(1)), (vec![1, 1, 1, 1], vec![1, 0, 0, 0]));
    t.advance(Duration::from_mins(10));
    t.run_jobs().await;
    let ada = again(&t, ADA).await;
    assert_eq!(overview(&t, &ada, &app, "").await["events"]["signIns"], 4, "once only");
    t.advance(Duration::from_mins(1));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn another_time_zone_counts_from_the_next_day_on() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let app = make_app(&t, &ada, "Shop").await;
    let path = format!("/analytics/org/{}/time-zone", app.org);
    let set = |zone: &str| t.ask(axum::http::Method::PUT, &path).json(&json!({ "timeZone": zone }));
    assert_eq!(ada.asks(set("Europe/Nowhere")).await.refusal(), (400, "invalid"));
    t.happened().await;
    let answer = ada.asks(set("America/Los_Angeles")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    t.expects(&["ANALYTICS_TIME_ZONE_CHANGED"]).await;
    assert_eq!(answer.body["timeZone"], "UTC");
    assert_eq!(answer.body["nextTimeZone"], json!({ "timeZone": "America/Los_Angeles", "from": "2026-02-01" }));
    assert_eq!(login_to(&t, &app, ADA).await.status, 200);
    // In UTC it is the first of February, 11:00, in Los Angeles three in the morning.
    t.advance(Duration::from_hours(25));
    assert_eq!(login_to(&t, &app, ADA).await.status, 200);
    // 5:00 UTC on the second is 21:00 on the first.
    t.advance(Duration::from_hours(18));
    assert_eq!(login_to(&t, &app, ADA).await.status, 200);
    let ada = again(&t, ADA).await;
    let path = format!("/analytics/app/{}/timeseries?metric=sign_ins,active_users&from=2026-01-31", app.id);
    let series = ada.asks(t.get(&path)).await.body;
    assert_eq!(series["timeZone"], "America/Los_Angeles");
    let values: Vec<i64> =
        series["series"][0]["points"].as_array().unwrap().iter().map(|p| p["value"].as_i64().unwrap()).collect();
    assert_eq!(values, [1, 2]);
    // A number of days ends with the day that it is in Los Angeles: in UTC it is the second.
    for scope in [format!("app/{}", app.id), format!("org/{}", app.org)] {
        for what in ["overview", "timeseries"] {
            let range = ada.asks(t.get(&format!("/analytics/{scope}/{what}?days=7"))).await.body;
            assert_eq!(
                (&range["from"], &range["to"]),
                (&json!("2026-01-26"), &json!("2026-02-01")),
                "{scope} {what}"
            );
        }
    }
    let path = format!("/analytics/org/{}/timeseries", app.org);
    let series = ada.asks(t.get(&format!("{path}?days=2&metric=sign_ins"))).await.body;
    assert_eq!(series["series"][0]["points"][1]["value"], 2, "{series}");
    assert_eq!(ada.asks(t.get(&format!("{path}?interval=hour"))).await.wrong_fields(), ["interval"]);
    assert_eq!(ada.asks(t.get(&format!("{path}?days=2&from=2026-01-31"))).await.wrong_fields(), ["days"]);
    t.run_jobs().await;
    t.finish().await;
}

/// Numbers that look random and are the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What really happened: an app, a person, a moment, and whether it was a sign-in.
type Act = (usize, usize, Timestamp, bool);

struct World {
    apps: Vec<App>,
    people: Vec<AccountId>,
    acts: Vec<Act>,
}

impl World {
    fn days(&self, zones: &Zones, person: usize, app: Option<usize>) -> BTreeSet<i64> {
        let acts = self.acts.iter().filter(|act| act.1 == person && app.is_none_or(|app| act.0 == app));
        acts.map(|act| zones.day_of(act.2)).collect()
    }

    /// People seen in a range of days, those of them who were new, and sign-ins.
    fn recount(&self, zones: &Zones, app: Option<usize>, from: i64, to: i64) -> (i64, i64, i64) {
        let days: Vec<_> = (0..self.people.len()).map(|person| self.days(zones, person, app)).collect();
        let seen = days.iter().filter(|days| days.range(from..=to).next().is_some()).count();
        let new = days.iter().filter(|days| days.first().is_some_and(|first| (from..=to).contains(first))).count();
        let acts = self.acts.iter().filter(|act| act.3 && app.is_none_or(|app| act.0 == app));
        let sign_ins = acts.filter(|act| (from..=to).contains(&zones.day_of(act.2))).count();
        (i64::try_from(seen).unwrap(), i64::try_from(new).unwrap(), i64::try_from(sign_ins).unwrap())
    }
}

/// Windows, days, time zones, a clock that goes back, deletions: every figure is what a recount of the raw acts says.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one comparison of everything that is counted")]
async fn j8_figures_are_what_a_recount_says() {
    for seed in 1..=3_u64 {
        let t = start().await;
        let ada = signed_in(&t, ADA).await;
        let mut world = World { apps: vec![], people: vec![], acts: vec![] };
        for name in ["Shop", "Blog"] {
            world.apps.push(make_app(&t, &ada, name).await);
        }
        for person in 0..6 {
            let made = signed_in(&t, &format!("p{person}@example.com")).await;
            world.people.push(made.id.parse().unwrap());
        }
        let mut dice = Dice(seed);
        let mut last: BTreeMap<(usize, usize), Timestamp> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        let Clock::Manual(clock) = &t.janua.clock else { panic!("a test has a manual clock") };
        for round in 0..160 {
            let (app, person) = (usize::from(dice.roll(2) == 0), usize::try_from(dice.roll(6)).unwrap());
            let now = t.janua.clock.now();
            if !gone.contains(&person) {
                let is_sign_in = dice.roll(3) == 0 || !last.contains_key(&(app, person));
                let details = json!({ "methods": ["pwd"] });
                let id = EventId::new(&t.janua.entropy, now);
                let what = match last.get(&(app, person)).filter(|_| !is_sign_in) {
                    Some(before) => What::Refreshed { before: *before },
                    None => What::Event { id, kind: "SIGNED_IN", details: &details },
                };
                let app_id: ApplicationId = world.apps[app].id.parse().unwrap();
                let one = Occurrence { app: app_id, person: Some(world.people[person]), at: now, what };
                let mut tx = t.janua.db.begin().await.unwrap();
                count::note(&mut tx, &t.janua, one).await.unwrap();
                tx.commit().await.unwrap();
                last.insert((app, person), now);
                world.acts.push((app, person, now, is_sign_in));
            }
            match dice.roll(24) {
                0 => {
                    // Over midnight, and back.
                    let back = i64::try_from(dice.roll(20)).unwrap() * 3_600_000;
                    clock.fetch_sub(back, Relaxed);
                }
                1 if round > 60 => {
                    let zone = ["UTC", "America/Los_Angeles", "Asia/Kolkata"][usize::try_from(dice.roll(3)).unwrap()];
                    let org = world.apps[0].org.parse().unwrap();
                    transact!(t.janua, async |tx| {
                        let mut zones = Zones::of_org(&mut *tx, org).await?;
                        zones.0.retain(|change| change.since <= now);
                        Ok(model::set_zone(tx, org, &zones.change_to(zone, now), now).await?)
                    })
                    .unwrap();
                    t.janua.own::<KnownZones>().hear(&db::Notice::StartOver);
                }
                2 if round > 100 && gone.len() < 2 && gone.insert(person) => {
                    let id = world.people[person];
                    transact!(t.janua, async |tx| Ok(count::forget_person(tx, &t.janua, id).await?)).unwrap();
                }
                3..=6 => _ = count::count_some(&t.janua).await.unwrap(),
                _ => t.advance(HOUR * u32::try_from(dice.roll(30)).unwrap()),
            }
        }
        t.advance(2 * DAY);
        let ada = again(&t, ADA).await;
        let now = t.janua.clock.now();
        let org = world.apps[0].org.clone();
        let zones = Zones::of_org(&t.janua.db, org.parse().unwrap()).await.unwrap();
        let today = zones.day_of(now);
        for _ in 0..25 {
            let to = today - i64::try_from(dice.roll(150)).unwrap();
            let from = to - i64::try_from(dice.roll(120)).unwrap();
            let query = format!("?from={}&to={}", kernel::clock::Day(from), kernel::clock::Day(to));
            for scope in [Some(0), Some(1), None] {
                let path = match scope {
                    Some(app) => format!("/analytics/app/{}/overview{query}", world.apps[app].id),
                    None => format!("/analytics/org/{org}/overview{query}"),
                };
                let said = ada.asks(t.get(&path)).await.body;
                let (seen, new, sign_ins) = world.recount(&zones, scope, from, to);
                let context = format!("seed {seed}, {path}: {said}");
                assert_eq!(said["newUsers"], new, "{context}");
                assert_eq!(said["returningUsers"], seen - new, "{context}");
                assert_eq!(said["events"]["signIns"], sign_ins, "{context}");
                for (name, days) in [("daily", 1), ("weekly", 7), ("monthly", 30)] {
                    let (seen, ..) = world.recount(&zones, scope, to - days + 1, to);
                    assert_eq!(said["activeUsers"][name], seen, "{name}, {context}");
                }
                // The overview of the organization has the same figures of each app.
                for app in said["apps"].as_array().into_iter().flatten() {
                    let place = world.apps.iter().position(|known| app["appId"] == known.id.as_str()).unwrap();
                    let (_, new, sign_ins) = world.recount(&zones, Some(place), from, to);
                    assert_eq!(app["newUsers"], new, "{context}");
                    assert_eq!(app["events"]["signIns"], sign_ins, "{context}");
                    for (name, days) in [("daily", 1), ("weekly", 7), ("monthly", 30)] {
                        let (seen, ..) = world.recount(&zones, Some(place), to - days + 1, to);
                        assert_eq!(app["activeUsers"][name], seen, "{name}, {context}");
                    }
                }
            }
            let path =
                format!("/analytics/app/{}/timeseries{query}&interval=week&metric=active_users", world.apps[0].id);
            let said = ada.asks(t.get(&path)).await.body;
            let sum: i64 =
                said["series"][0]["points"].as_array().unwrap().iter().filter_map(|p| p["value"].as_i64()).sum();
            let mut weeks: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
            for day in from..=to {
                let monday = crate::analytics::zones::week_of(day);
                weeks.entry(monday).and_modify(|week| week.1 = day).or_insert((day, day));
            }
            let expected: i64 = weeks.values().map(|(from, to)| world.recount(&zones, Some(0), *from, *to).0).sum();
            assert_eq!(sum, expected, "{path}");
        }
        // What the table of gaps says of first days is what the rows of people say.
        for id in &gone {
            assert_eq!(rows_of(&t, &world.people[*id].to_string()).await, 0);
        }
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM active_user WHERE scope = $1";
        let (rows,): (i64,) = t.janua.db.one(sql, params![&org]).await.unwrap();
        let (users,): (i64,) =
            t.janua.db.one("SELECT users FROM active_total WHERE scope = $1", params![&org]).await.unwrap();
        assert_eq!(rows, users);
        t.run_jobs().await;
        t.finish().await;
    }
}

/// Two nodes count at a day's end: each tally once, each person once. On SQLite both are tasks of one node.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_count_each_tally_once() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    count::catch_up(&t.janua).await.unwrap();
    let other = match t.janua.db.engine() {
        "postgres" => Some(t.another_node(feature).await),
        _ => None,
    };
    let janua = other.as_ref().map_or(t.janua.clone(), |other| other.janua.clone());
    let midnight = t.janua.clock.now().day().start().plus(DAY);
    for at in 0..1200_i64 {
        let at = Timestamp(midnight.0 - 600 + at);
        let details = json!({ "methods": ["pwd"] });
        let what = What::Event { id: EventId::new(&t.janua.entropy, at), kind: "SIGNED_IN", details: &details };
        let person = Some(if at.0 % 2 == 0 { &ada } else { &bob }.id.parse().unwrap());
        let one = Occurrence { app: app.id.parse().unwrap(), person, at, what };
        let mut tx = t.janua.db.begin().await.unwrap();
        count::note(&mut tx, &t.janua, one).await.unwrap();
        tx.commit().await.unwrap();
    }
    let (a, b) = (t.janua.clone(), janua.clone());
    let both = tokio::join!(
        tokio::spawn(async move { while count::count_some(&a).await.unwrap() > 0 {} }),
        tokio::spawn(async move { while count::count_some(&b).await.unwrap() > 0 {} })
    );
    both.0.unwrap();
    both.1.unwrap();
    t.advance(DAY);
    let ada = again(&t, ADA).await;
    let path = format!("/analytics/app/{}/timeseries?metric=sign_ins,active_users&from=2026-01-31", app.id);
    let series = ada.asks(t.get(&path)).await.body;
    let values = |at: usize| -> Vec<i64> {
        series["series"][at]["points"].as_array().unwrap().iter().map(|p| p["value"].as_i64().unwrap()).collect()
    };
    assert_eq!((values(0), values(1)), (vec![600, 600], vec![2, 2]));
    t.run_jobs().await;
    t.finish().await;
}
