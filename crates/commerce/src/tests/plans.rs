//! The plans file.
use identity::testing::signed_in;
use kernel::testing::TestJanua;
use serde_json::json;
use tenancy::quotas::{ACTIVE_USERS, APPS, Limit, MEMBERS, Meter, Period, PlanLimit};

use super::{PlansFile, Shop, feature, start};
use crate::plans::{Aggregation, Cost, Keys, Shelf, parse};

const METERS: &[Meter] = &[
    MEMBERS,
    APPS,
    ACTIVE_USERS,
    Meter::platform("storage_bytes", "bytes", Period::Gauge),
    Meter::platform("domains", "domains", Period::Gauge),
    Meter::platform("deploys_per_day", "deployments", Period::Day),
    Meter::platform("mails", "emails", Period::Month),
];
const LIMITS: &[PlanLimit] = &[
    PlanLimit(Meter::platform("storage_bytes_per_user", "bytes", Period::Gauge)),
    PlanLimit(Meter::platform("object_bytes", "bytes", Period::Gauge)),
];

const WHOLE: &str = r#"
currency = "eur"
grace = "3d"
late_usage = "unbilled"
[meters.api_calls]
aggregation = "sum"
unit = "calls"
period = "month"
keys = "secret"
group_by = ["model", "region"]
[meters.active_docs]
aggregation = "unique"
unit = "documents"
[plans.pro]
name = "Pro"
for = ["org", "app"]
rank = 10
trial = "14d"
[[plans.pro.prices]]
interval = "month"
amount = 2000
per = "member"
processor_id = "price_1"
[plans.pro.limits]
members = 25
storage_bytes = "50 GiB"
api_calls = { included = 100_000, overage = "0.04", hard = false, cap = 1_000_000 }
usage_events_per_second = 500
[[costs]]
meter = "mails"
amount = "0.01"
from = "2026-01-01"
[[costs]]
fixed = 12000
spread = "members"
"#;

#[test]
fn a_whole_file_is_read() {
    let plans = parse(WHOLE, METERS, LIMITS).unwrap();
    assert_eq!((plans.currency.as_str(), plans.grace.as_secs(), plans.bills_late_usage), ("eur", 3 * 86_400, false));
    let calls = &plans.meters["api_calls"];
    assert_eq!((calls.aggregation, calls.keys, calls.group_by.len()), (Aggregation::Sum, Keys::Secret, 2));
    assert_eq!(plans.meters["active_docs"].aggregation, Aggregation::Unique);
    let pro = plans.find("pro").unwrap();
    assert!(pro.for_org && pro.for_app && pro.prices[0].per_member && pro.prices[0].currency == "eur");
    assert_eq!(pro.limits["members"], Limit::hard(25));
    assert_eq!(pro.limits["storage_bytes"], Limit::hard(50 << 30));
    let calls = Limit { included: 100_000, hard: false, cap: Some(1_000_000), overage: Some("0.04".into()) };
    assert_eq!(pro.limits["api_calls"], calls);
    assert_eq!(pro.events_per_second, Some(500));
    assert_eq!(plans.costs[1], Cost::Fixed { amount: 12_000, spread: "members".into() });
    for name in ["free", "enterprise"] {
        assert!(plans.find(name).is_some_and(|plan| plan.limits.is_empty()), "{name} is built in");
    }
}

#[test]
fn every_wrong_key_and_value_is_named_by_its_path() {
    let cases = [
        ("colour = 1", "colour: there is no such key"),
        ("currencey = \"usd\"", "currencey: there is no such key; did you mean currency?"),
        ("currency = \"USD\"", "currency: must be a currency in lower case"),
        ("grace = 7", "grace: must be a length of time"),
        ("late_usage = \"never\"", "late_usage: must be"),
        ("meters = 1", "meters: must be a table"),
        ("[meters.apps]", "meters.apps: is counted by the platform itself"),
        ("[meters.Calls]", "meters.Calls: a meter's name"),
        (
            "[meters.calls]\naggregation = \"median\"",
            "meters.calls.aggregation: must be sum, count, max, unique or latest",
        ),
        ("[meters.calls]\nperiod = \"year\"", "meters.calls.period: must be"),
        ("[meters.calls]\nkeys = \"none\"", "meters.calls.keys: must be any or secret"),
        ("[meters.calls]\nkey = \"any\"", "meters.calls.key: there is no such key; did you mean keys?"),
        ("[meters.calls]\ngroup_by = [\"a\", \"a\"]", "meters.calls.group_by: must be a list"),
        ("[meters.calls]\ngroup_by = [\"a\", \"b\", \"c\", \"d\", \"e\"]", "meters.calls.group_by: must be a list"),
        ("[meters.calls]\ngroup_by = [\"customer\"]", "meters.calls.group_by: must be a list"),
        ("[meters.calls]\nunit = 3", "meters.calls.unit: must be a text"),
        ("[plans.pro]\nrank = -1", "plans.pro.rank: must be a whole number"),
        ("[plans.pro]\nfor = \"me\"", "plans.pro.for: must be"),
        ("[plans.pro]\nprice = 3", "plans.pro.price: there is no such key; did you mean prices?"),
        ("[plans.pro.limits]\nmember = 3", "plans.pro.limits.member: there is no such meter; did you mean members?"),
        ("[plans.pro.limits]\nbandwidth_bytes = 3", "plans.pro.limits.bandwidth_bytes: there is no such meter"),
        ("[plans.pro.limits]\nobject_byte = 3", "plans.pro.limits.object_byte: there is no such meter; did you mean"),
        ("[meters.object_bytes]", "meters.object_bytes: is counted by the platform itself"),
        ("[[costs]]\nfixed = 1\nspread = \"object_bytes\"", "costs[0].spread: must be the name of a meter"),
        ("[plans.pro.limits]\nmembers = -3", "plans.pro.limits.members: must be a whole number"),
        ("[plans.pro.limits]\nmembers = 1.5", "plans.pro.limits.members: must be a whole number"),
        ("[plans.pro.limits]\nstorage_bytes = \"5 GB\"", "plans.pro.limits.storage_bytes: must be a whole number"),
        ("[plans.pro.limits]\napps = { hard = true }", "plans.pro.limits.apps: needs included"),
        ("[plans.pro.limits]\napps = { included = 3, max = 4 }", "plans.pro.limits.apps.max: there is no such key"),
        ("[plans.pro.limits]\napps = { included = 3, cap = 2 }", "plans.pro.limits.apps.cap: must not be below"),
        ("[plans.pro.limits]\napps = { included = 3, hard = true, cap = 4 }", "plans.pro.limits.apps: a hard limit"),
        (
            "[plans.pro.limits]\napps = { included = 3, overage = 0.04 }",
            "plans.pro.limits.apps.overage: must be a decimal",
        ),
        ("[plans.pro.limits]\nusage_events_per_second = 0", "plans.pro.limits.usage_events_per_second: must be"),
        (
            "[[plans.pro.prices]]\ninterval = \"week\"\namount = 1",
            "plans.pro.prices[0].interval: must be month or year",
        ),
        ("[[plans.pro.prices]]\ninterval = \"month\"", "plans.pro.prices[0]: needs interval and amount"),
        (
            "[[plans.pro.prices]]\ninterval = \"month\"\namount = 1\n[[plans.pro.prices]]\ninterval = \"year\"\n\
             amount = 1\ncurrency = \"eur\"",
            "plans.pro.prices: all prices of one plan must have the same currency",
        ),
        (
            "[meters.calls]\nkeys = \"any\"\n[plans.pro.limits]\ncalls = { included = 1, overage = \"1\" }",
            "plans.pro.limits.calls.overage: a priced meter must have keys = \"secret\"",
        ),
        ("[[costs]]\nmeter = \"rain\"\namount = \"1\"", "costs[0].meter: must be the name of a meter"),
        ("[[costs]]\nfixed = 1", "costs[0]: needs either"),
        ("[[costs]]\nmeter = \"mails\"\namount = \"1\"\nfrom = \"2026-13-01\"", "costs[0].from: must be a day"),
        ("currency = ", "TOML parse error"),
    ];
    for (file, expected) in cases {
        let wrong = parse(file, METERS, LIMITS).expect_err(file);
        assert!(wrong.iter().any(|line| line.starts_with(expected)), "{file}: {wrong:?}");
    }
    let both = parse("a = 1\nb = 2", METERS, LIMITS).unwrap_err();
    assert_eq!(both.len(), 2, "all of them are named at once: {both:?}");
}

#[tokio::test]
async fn a_wrong_file_or_a_missing_one_stops_the_start() {
    let t = TestJanua::start(feature).await;
    let wrong = PlansFile::new("colour = 1");
    let load = async |path: &str| {
        let shelf = Shelf::default();
        crate::plans::load(&t.janua, Some(std::path::Path::new(path)), &shelf).await.unwrap_err()
    };
    let said = load(wrong.path.to_str().unwrap()).await;
    assert!(said.ends_with("plans.toml: colour: there is no such key"), "{said}");
    let said = load("/nonexistent/plans.toml").await;
    assert!(said.starts_with("plans_file: cannot read /nonexistent/plans.toml"), "{said}");
    t.finish().await;
}

#[tokio::test]
async fn a_plan_that_is_in_use_cannot_vanish() {
    let t = start("[plans.gold]\nname = \"Gold\"").await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let root = signed_in(&t, "root@example.com").await;
    let change = t.ask(axum::http::Method::PATCH, &format!("/admin/orgs/{}", shop.org));
    let changed = root.asks(change.json(&json!({ "plan": "gold" }))).await;
    assert_eq!((changed.status, &changed.body["plan"]), (200, &json!("gold")), "{}", changed.text);
    let plans = PlansFile::new("[plans.silver]");
    let shelf = Shelf::default();
    let said = crate::plans::load(&t.janua, Some(&plans.path), &shelf).await.unwrap_err();
    assert!(said.contains("1 organization is on the plan \"gold\""), "{said}");
    let plans = PlansFile::new("[plans.gold]\nhidden = true");
    crate::plans::load(&t.janua, Some(&plans.path), &shelf).await.unwrap();
    t.finish().await;
}

#[tokio::test]
async fn without_a_file_nobody_is_limited() {
    let t = TestJanua::start(feature).await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    for number in 0..20 {
        assert_eq!(super::make_app(&t, &shop.owner, &format!("App {number}")).await.status, 200);
    }
    t.finish().await;
}

#[tokio::test]
async fn platform_owners_set_plans_and_lowering_deletes_nothing() {
    let t = start("[plans.free.limits]\napps = 1\n[plans.pro.limits]\napps = 3").await;
    let shop = Shop::open(&t, "ada@example.com", "secret").await;
    let root = signed_in(&t, "root@example.com").await;
    t.happened().await;
    let set = async |person: &identity::testing::Person, plan: &str| {
        let change = t.ask(axum::http::Method::PATCH, &format!("/admin/orgs/{}", shop.org));
        person.asks(change.json(&json!({ "plan": plan }))).await
    };
    assert_eq!(set(&shop.owner, "pro").await.refusal(), (403, "forbidden"));
    assert_eq!(set(&root, "platinum").await.refusal(), (400, "unknown_plan"));
    t.expects(&[]).await;
    assert_eq!(super::make_app(&t, &shop.owner, "Two").await.refusal(), (402, "quota_exceeded"));
    assert_eq!(set(&root, "pro").await.status, 200);
    t.expects(&["BILLING_PLAN_CHANGED"]).await;
    for name in ["Two", "Three"] {
        assert_eq!(super::make_app(&t, &shop.owner, name).await.status, 200);
    }
    let shown = shop.owner.asks(t.get(&format!("/org/{}", shop.org))).await;
    assert_eq!(shown.body["tier"], "pro", "{}", shown.text);
    assert_eq!(set(&root, "free").await.status, 200);
    let apps = shop.owner.asks(t.get("/apps")).await;
    assert_eq!(apps.body["apps"].as_array().unwrap().len(), 3, "what is over the limit stays");
    assert_eq!(super::make_app(&t, &shop.owner, "Four").await.refusal(), (402, "quota_exceeded"));
    let listed = root.asks(t.get("/admin/plans/orgs")).await;
    assert_eq!((&listed.body["orgs"][0]["id"], &listed.body["orgs"][0]["plan"]), (&json!(shop.org), &json!("free")));
    let plans = root.asks(t.get("/admin/plans")).await;
    assert_eq!(plans.body["plans"][0]["limits"][0]["included"], 1, "{}", plans.text);
    t.run_jobs().await;
    t.finish().await;
}

#[test]
fn the_sample_to_start_from_is_a_right_file() {
    let plans = parse(crate::commands::SAMPLE_PLANS, METERS, LIMITS).unwrap();
    assert_eq!(plans.find("pro").unwrap().prices.len(), 2);
    assert_eq!(plans.connect.fee_of(10_000), 280);
}
