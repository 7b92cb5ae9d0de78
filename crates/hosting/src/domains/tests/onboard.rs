//! Domains of sites, from the first record to the last, against a real authoritative name server.
use std::{collections::BTreeMap, time::Duration};

use tenancy::quotas::{Limit, Limits};

use super::*;
use crate::edge::{self, site::CustomHost};

/// A service whose edge is 127.0.0.1, and somebody with an app.
struct Site {
    dns: NameServer,
    t: TestJanua,
    ada: Person,
    app: Value,
}

/// Without the feature that reads plans: its limits would count, and those of a test would not.
fn without_plans(config: &Config) -> kernel::feature::Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(crate::feature(config))
}

impl Site {
    async fn start() -> Self {
        Self::start_with(feature).await
    }

    async fn start_with(feature: fn(&Config) -> kernel::feature::Feature) -> Self {
        let dns = NameServer::start().await;
        let config = Config { dns_servers: vec![dns.address()], ..Config::for_tests() }
            .with(|tenancy: &mut tenancy::Settings| tenancy.access_token_life = Duration::from_hours(24 * 25))
            .with(|edge: &mut edge::Settings| {
                edge.edge_domain = "edge.example.test".into();
                edge.edge_addresses = vec!["127.0.0.1".parse().unwrap()];
            });
        let t = TestJanua::start_with(config, feature).await;
        let ada = signed_in(&t, "ada@example.com").await;
        let app = make_app(&t, &ada, "Shop").await;
        t.happened().await;
        Self { dns, t, ada, app }
    }

    async fn onboard(&self, domain: &str) -> Answer {
        let body = json!({ "appId": id(&self.app), "domain": domain });
        self.ada.asks(self.t.post("/domains/onboard").json(&body)).await
    }

    fn path(&self, domain: &str) -> String {
        format!("/domains/onboard/{}/{domain}", id(&self.app))
    }

    async fn shown(&self, domain: &str) -> Value {
        self.ada.asks(self.t.get(&self.path(domain))).await.body
    }

    /// Checks it now, ten seconds after the last time.
    async fn check(&self, domain: &str) -> Answer {
        self.t.advance(Duration::from_secs(12));
        self.ada.asks(self.t.post(&format!("{}/check", self.path(domain)))).await
    }

    async fn serves(&self, host: &str) -> Option<String> {
        let found = CustomHost::find(&self.t.janua.db, host).await.unwrap();
        found.map(|found| found.app_id.to_string())
    }

    /// Lets time pass, with the jobs that come with it.
    async fn pass(&self, steps: u32, step: Duration) {
        for _ in 0..steps {
            self.t.advance(step);
            self.t.run_jobs().await;
        }
    }

    async fn finish(self) {
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

fn record<'a>(domain: &'a Value, kind: &str) -> &'a Value {
    let records = domain["records"].as_array().unwrap();
    records.iter().find(|record| record["type"] == kind).unwrap_or(&Value::Null)
}

fn txt(name: &str, domain: &Value) -> String {
    format!("_janua-challenge.{name} 1 IN TXT \"{}\"", record(domain, "TXT")["value"].as_str().unwrap())
}

fn state(domain: &Value) -> (&str, Option<&str>) {
    (domain["status"].as_str().unwrap(), domain["reason"].as_str())
}

#[tokio::test]
async fn a_domain_is_served_by_itself_as_its_records_appear() {
    let mut site = Site::start().await;
    let added = site.onboard("Shop.Example.test.").await;
    assert_eq!(added.status, 200, "{}", added.text);
    assert_eq!(state(&added.body), ("pending_ownership", Some("txt_missing")));
    assert_eq!(added.body["domain"], "shop.example.test");
    let alias = record(&added.body, "CNAME").clone();
    let target = alias["value"].as_str().unwrap().to_owned();
    assert!(target.ends_with(".edge.example.test") && alias["status"] == "missing", "{alias}");
    assert_eq!(added.body["certificate"]["status"], "external");
    assert_eq!(site.serves("shop.example.test").await, None);
    let proof = txt("shop", &added.body);

    site.dns.publish(std::slice::from_ref(&proof)).await;
    site.pass(1, Duration::from_secs(61)).await;
    let proven = site.shown("shop.example.test").await;
    // The name of the TXT record lies below, so the name itself exists, without records.
    assert_eq!(state(&proven), ("pending_dns", Some("no_records")), "{proven}");
    assert_eq!(
        (&proven["ownership"]["status"], &record(&proven, "TXT")["status"]),
        (&json!("verified"), &json!("ok"))
    );

    site.dns.publish(&[proof.clone(), "shop 1 IN CNAME old.host.example.".into()]).await;
    let elsewhere = site.check("shop.example.test").await.body;
    assert_eq!(state(&elsewhere), ("pending_dns", Some("points_elsewhere")), "{elsewhere}");
    assert_eq!(record(&elsewhere, "CNAME")["seen"], json!(["old.host.example"]));
    assert!(elsewhere["hint"].as_str().unwrap().contains("leads to old.host.example"), "{elsewhere}");
    assert_eq!(site.serves("shop.example.test").await, None, "proven and not switched on");

    site.dns.publish(&[proof, format!("shop 1 IN CNAME {target}.")]).await;
    let active = site.check("shop.example.test").await.body;
    assert_eq!(state(&active), ("active", None), "{active}");
    assert_eq!((&active["attached"], &record(&active, "CNAME")["status"]), (&json!(true), &json!("ok")));
    assert_eq!(site.serves("shop.example.test").await.as_deref(), Some(id(&site.app)));
    site.t.expects(&["DOMAIN_ADDED", "DOMAIN_VERIFIED", "DOMAIN_ATTACHED", "DOMAIN_ACTIVE"]).await;
    let gone = site.ada.asks(site.t.ask(Method::DELETE, &site.path("shop.example.test"))).await;
    assert_eq!(gone.status, 204);
    assert_eq!(site.serves("shop.example.test").await, None, "off at once");
    site.t.expects(&["DOMAIN_REMOVED"]).await;
    site.finish().await;
}

#[tokio::test]
async fn all_ways_in_lead_to_one_domain() {
    let mut site = Site::start().await;
    let app = id(&site.app).to_owned();
    let own = format!("/apps/{app}/domain");
    let first = site.ada.asks(site.t.post(&own).json(&json!({ "domain": "shop.example.test" }))).await.body;
    assert!(first["details"]["records"].as_array().unwrap().len() == 1, "it serves nothing: {first}");
    let list = format!("/apps/{app}/domains");
    let listed = site.ada.asks(site.t.post(&list).json(&json!({ "domain": "shop.example.test" }))).await;
    assert_eq!((listed.status, &listed.body["id"]), (200, &first["details"]["id"]), "{}", listed.text);
    let again = site.ada.asks(site.t.post(&list).json(&json!({ "domain": "SHOP.example.test" }))).await;
    assert_eq!(again.refusal(), (409, "domain_exists"));
    assert_eq!(record(&listed.body, "TXT")["value"], first["record"]["value"], "one proof");
    let attach = format!("{list}/attach");
    for (domain, refusal) in
        [("shop.example.test", (409, "domain_not_verified")), ("other.example.test", (404, "no_domain"))]
    {
        let refused = site.ada.asks(site.t.post(&attach).json(&json!({ "domain": domain }))).await;
        assert_eq!(refused.refusal(), refusal);
    }
    let target = record(&listed.body, "CNAME")["value"].as_str().unwrap().to_owned();
    let records = [txt("shop", &listed.body), format!("shop 1 IN CNAME {target}.")];
    site.dns.publish(&records).await;
    let here = site.check("shop.example.test").await.body;
    assert_eq!((state(&here), &here["attached"]), (("pending_dns", None), &json!(false)), "nobody switched it on");
    let on = site.ada.asks(site.t.post(&attach).json(&json!({ "domain": "shop.example.test" }))).await;
    assert_eq!(on.body["attached"], true, "{}", on.text);
    assert_eq!(site.serves("shop.example.test").await.as_deref(), Some(app.as_str()), "at once");
    site.pass(1, Duration::from_secs(61)).await;
    assert_eq!(site.shown("shop.example.test").await["status"], "active");
    let seen = site.ada.asks(site.t.get(&own)).await.body;
    assert_eq!((&seen["status"], &seen["details"]["status"]), (&json!("verified"), &json!("active")));
    assert_eq!(site.ada.asks(site.t.get(&list)).await.body["domains"].as_array().unwrap().len(), 1);
    assert_eq!(site.ada.asks(site.t.ask(Method::DELETE, &own)).await.status, 204);
    assert_eq!(site.ada.asks(site.t.get(&site.path("shop.example.test"))).await.refusal(), (404, "no_domain"));
    site.finish().await;
}

#[tokio::test]
async fn w17_a_dangling_name_serves_nobody_until_it_is_proven() {
    let mut site = Site::start().await;
    let added = site.onboard("shop.example.test").await.body;
    let target = record(&added, "CNAME")["value"].as_str().unwrap().to_owned();
    let alias = format!("shop 1 IN CNAME {target}.");
    site.dns.publish(&[txt("shop", &added), alias.clone()]).await;
    assert_eq!(site.check("shop.example.test").await.body["status"], "active");
    site.ada.asks(site.t.ask(Method::DELETE, &site.path("shop.example.test"))).await;
    // The alias stays, and somebody else adds the name.
    site.dns.publish(&[alias]).await;
    let eve = signed_in(&site.t, "eve@example.com").await;
    let evil = make_app(&site.t, &eve, "Evil").await;
    let body = json!({ "appId": id(&evil), "domain": "shop.example.test" });
    let taken = eve.asks(site.t.post("/domains/onboard").json(&body)).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    site.pass(30, Duration::from_hours(4)).await;
    let path = format!("/domains/onboard/{}/shop.example.test", id(&evil));
    assert_eq!(state(&eve.asks(site.t.get(&path)).await.body), ("pending_ownership", Some("txt_missing")));
    assert_eq!(site.serves("shop.example.test").await, None);
    // W16: of another tenant's domain nothing is said or done.
    let hers = site.onboard("mine.example.test").await;
    assert_eq!(hers.status, 200);
    for (method, end) in [(Method::GET, ""), (Method::POST, "/check"), (Method::DELETE, "")] {
        let path = format!("{}{end}", site.path("mine.example.test"));
        assert_eq!(eve.asks(site.t.ask(method.clone(), &path)).await.refusal(), (404, "not_found"), "{method} {end}");
    }
    let body = json!({ "appId": id(&site.app), "domain": "evil.example.test" });
    assert_eq!(eve.asks(site.t.post("/domains/onboard").json(&body)).await.refusal(), (404, "not_found"));
    site.finish().await;
}

#[tokio::test]
async fn w18_what_cannot_be_a_domain_is_refused() {
    let site = Site::start().await;
    let long = format!("{}.example.test", ["a"; 121].join("."));
    for wrong in [
        "127.0.0.1",
        "localhost",
        "shop.localhost",
        "co.uk",
        "github.io",
        "printer.local",
        "*.example.test",
        "com",
        "edge.example.test",
        "a.edge.example.test",
        "example..test",
        "[::1]",
        "http://a.test",
        "２１７.0.0.1",
    ] {
        let refused = site.onboard(wrong).await;
        assert_eq!(refused.refusal(), (400, "invalid_domain"), "{wrong}");
        assert_eq!(refused.wrong_fields(), ["domain"], "{wrong}");
    }
    let refused = site.onboard(&long).await;
    assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["domain"]), "{} bytes", long.len());
    let one = site.onboard("BÜCHER.example.test").await.body;
    assert_eq!(
        (&one["domain"], &one["unicode"]),
        (&json!("xn--bcher-kva.example.test"), &json!("bücher.example.test"))
    );
    let same = site.onboard("xn--bcher-kva.example.test").await.body;
    assert_eq!(same["id"], one["id"], "one normal form");
    site.finish().await;
}

#[tokio::test]
async fn a_proof_covers_names_below_it_in_the_organization_and_ends_with_it() {
    let mut site = Site::start().await;
    let top = site.onboard("shop.example.test").await.body;
    let records = [txt("shop", &top), "shop 1 IN A 127.0.0.1".into(), "a.shop 1 IN A 127.0.0.1".into()];
    site.dns.publish(&records).await;
    assert_eq!(state(&site.check("shop.example.test").await.body), ("active", None));
    let below = site.onboard("a.shop.example.test").await.body;
    assert_eq!((&below["ownership"]["inherited"], &record(&below, "TXT")["required"]), (&json!(true), &json!(false)));
    let served = site.check("a.shop.example.test").await.body;
    assert_eq!(state(&served), ("active", None), "no record of its own is needed: {served}");
    // Another organization has no part in it.
    let eve = signed_in(&site.t, "eve@example.com").await;
    let evil = make_app(&site.t, &eve, "Evil").await;
    let body = json!({ "appId": id(&evil), "domain": "b.shop.example.test" });
    let theirs = eve.asks(site.t.post("/domains/onboard").json(&body)).await.body;
    assert_eq!(theirs["ownership"]["inherited"], false);
    site.ada.asks(site.t.ask(Method::DELETE, &site.path("shop.example.test"))).await;
    assert_eq!(site.serves("a.shop.example.test").await, None, "what it covered ends in the same commit");
    assert_eq!(state(&site.shown("a.shop.example.test").await), ("pending_ownership", Some("txt_missing")));
    site.finish().await;
}

#[tokio::test]
async fn every_answer_must_lead_here_and_caa_is_shown() {
    let mut site = Site::start().await;
    let added = site.onboard("shop.example.test").await.body;
    let proof = txt("shop", &added);
    let with = |more: &[&str]| -> Vec<String> {
        std::iter::once(proof.clone()).chain(more.iter().map(ToString::to_string)).collect()
    };
    for (records, reason) in [
        (&["shop 1 IN MX 10 mail"][..], "no_records"),
        (&["shop 1 IN A 192.0.2.7"], "points_elsewhere"),
        (&["shop 1 IN A 127.0.0.1", "shop 1 IN A 192.0.2.7"], "mixed_answers"),
        (&["shop 1 IN A 127.0.0.1", "shop 1 IN AAAA 2001:db8::7"], "ipv6_elsewhere"),
        (&["shop 1 IN A 169.254.169.254"], "points_elsewhere"),
    ] {
        site.dns.publish(&with(records)).await;
        let seen = site.check("shop.example.test").await.body;
        assert_eq!(state(&seen), ("pending_dns", Some(reason)), "{records:?}: {seen}");
    }
    site.dns.publish(&with(&["shop 1 IN A 127.0.0.1", "@ 1 IN CAA 0 issue \"other.example\""])).await;
    let flat = site.check("shop.example.test").await.body;
    assert_eq!(state(&flat), ("active", None), "a flattened alias: {flat}");
    let hasty = site.ada.asks(site.t.post(&format!("{}/check", site.path("shop.example.test")))).await;
    assert_eq!((hasty.refusal(), hasty.header("retry-after")), ((429, "checked_recently"), "10"));
    assert_eq!(site.check("nothing.example.test").await.refusal(), (404, "no_domain"));
    site.dns.refuse(true).await;
    assert_eq!(site.check("shop.example.test").await.refusal(), (502, "dns_unavailable"));
    assert_eq!(state(&site.shown("shop.example.test").await), ("active", None), "no answer changes nothing");
    site.finish().await;
}

#[tokio::test]
async fn f_w8_a_domain_that_leads_elsewhere_is_told_once_a_day_and_switched_off_after_a_week() {
    let mut site = Site::start().await;
    let added = site.onboard("shop.example.test").await.body;
    let (proof, home) = (txt("shop", &added), "shop 1 IN A 127.0.0.1".to_owned());
    site.dns.publish(&[proof.clone(), home.clone()]).await;
    assert_eq!(site.check("shop.example.test").await.body["status"], "active");
    // An hour of refusals: no state, no mail.
    site.dns.refuse(true).await;
    site.pass(30, Duration::from_mins(20)).await;
    assert_eq!(site.shown("shop.example.test").await["status"], "active");
    site.dns.refuse(false).await;
    // The same where only the zone that an alias leads to does not answer: it may lead on to us.
    site.dns.publish(&[proof.clone(), "shop 1 IN CNAME old.host.example.".into()]).await;
    site.pass(30, Duration::from_mins(20)).await;
    assert_eq!(site.shown("shop.example.test").await["status"], "active");
    site.dns.publish(&[proof.clone(), "shop 1 IN A 192.0.2.9".into()]).await;
    site.pass(40, Duration::from_mins(30)).await;
    let astray = site.shown("shop.example.test").await;
    assert_eq!(state(&astray), ("misconfigured", Some("points_elsewhere")), "{astray}");
    assert!(site.serves("shop.example.test").await.is_some(), "still served");
    let delivery = site.ada.asks(site.t.get(&format!("/apps/{}/cdn", id(&site.app)))).await;
    assert_eq!(delivery.body["domains"][0]["status"], "misconfigured", "{}", delivery.text);
    let told = |site: &Site| {
        let mails = site.t.mailbox.mails();
        mails.iter().filter(|mail| mail.contains("Subject: Your domain leads elsewhere")).count()
    };
    assert_eq!(told(&site), 1);
    site.pass(48, Duration::from_hours(1)).await;
    assert_eq!(told(&site), 3, "once a day");
    site.dns.publish(&[proof.clone(), home]).await;
    assert_eq!(site.check("shop.example.test").await.body["status"], "active");
    site.dns.publish(&[proof, "shop 1 IN A 192.0.2.9".into()]).await;
    site.pass(9 * 24, Duration::from_hours(1)).await;
    let given_up = site.shown("shop.example.test").await;
    assert_eq!((state(&given_up), &given_up["attached"]), (("failed", Some("moved")), &json!(false)));
    assert_eq!(site.serves("shop.example.test").await, None);
    let again = site.check("shop.example.test").await.body;
    assert_eq!(state(&again), ("pending_dns", Some("points_elsewhere")), "a check starts over");
    site.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn domains_count_against_the_plan_and_ten_an_hour_are_enough() {
    let site = Site::start_with(without_plans).await;
    let plan = BTreeMap::from([("free".to_owned(), BTreeMap::from([("domains".to_owned(), Limit::hard(3))]))]);
    site.t.janua.own::<Limits>().set(plan);
    let names: Vec<String> = (0..6).map(|n| format!("n{n}.example.test")).collect();
    let answers = kernel::testing::join_all(names.iter().map(|name| site.onboard(name))).await;
    let made = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.refusal() == (402, "quota_exceeded")).count();
    assert_eq!((made, refused), (3, 3), "{answers:?}");
    let list = format!("/apps/{}/domains", id(&site.app));
    let first = site.ada.asks(site.t.get(&list)).await.body["domains"][0]["domain"].as_str().unwrap().to_owned();
    assert_eq!(site.ada.asks(site.t.ask(Method::DELETE, &site.path(&first))).await.status, 204);
    assert_eq!(site.onboard("more.example.test").await.status, 200, "a place is free again");
    assert_eq!(site.onboard("most.example.test").await.refusal(), (402, "quota_exceeded"));
    // Removing does not make the hour longer.
    let mut codes = vec![];
    for n in 0..12 {
        let name = format!("again{n}.example.test");
        codes.push(site.onboard(&name).await.status);
        let list = site.ada.asks(site.t.get(&list)).await.body;
        let first = list["domains"][0]["domain"].as_str().unwrap_or_default().to_owned();
        site.ada.asks(site.t.ask(Method::DELETE, &site.path(&first))).await;
    }
    assert!(codes.contains(&429), "{codes:?}");
    site.finish().await;
}

#[tokio::test]
async fn roles_decide_who_looks_and_who_changes() {
    let site = Site::start().await;
    site.onboard("shop.example.test").await;
    let bob = signed_in(&site.t, "bob@example.com").await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    let org = site.app["orgId"].as_str().unwrap();
    site.t.janua.db.exec(sql, db::params![org, &bob.id]).await.unwrap();
    let path = site.path("shop.example.test");
    assert_eq!(bob.asks(site.t.get(&path)).await.status, 200);
    let body = json!({ "appId": id(&site.app), "domain": "bob.example.test" });
    assert_eq!(bob.asks(site.t.post("/domains/onboard").json(&body)).await.refusal(), (403, "forbidden"));
    assert_eq!(bob.asks(site.t.post(&format!("{path}/check"))).await.refusal(), (403, "forbidden"));
    assert_eq!(bob.asks(site.t.ask(Method::DELETE, &path)).await.refusal(), (403, "forbidden"));
    site.finish().await;
}

#[tokio::test]
async fn pages_of_five_registered_domains_ask_for_passkeys_and_no_more() {
    let t = TestJanua::start(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "Shop").await;
    let path = |domain: &str| format!("/apps/{}/domains/{domain}", id(&app));
    let set = async |domain: &str, wanted: bool| {
        ada.asks(t.ask(Method::PATCH, &path(domain)).json(&json!({ "passkeys": wanted }))).await
    };
    let names = ["a.one.com", "b.one.com", "one.org", "two.com", "three.com", "four.com", "five.com", "six.com"];
    for name in names {
        let body = json!({ "appId": id(&app), "domain": name });
        assert_eq!(ada.asks(t.post("/domains/onboard").json(&body)).await.status, 200, "{name}");
    }
    assert_eq!(set("two.com", true).await.refusal(), (409, "domain_not_active"));
    let active = "UPDATE app_domain SET verified_at = 1, attached_at = 1, status = 'active'";
    t.janua.db.exec(active, db::params![]).await.unwrap();
    t.happened().await;
    for name in &names[..7] {
        let on = set(name, true).await;
        assert_eq!(
            (on.status, &on.body["uses"]["passkeys"]),
            (200, &json!(true)),
            "{name}: one label for three names"
        );
    }
    assert_eq!(t.happened().await, ["DOMAIN_UPDATED"; 7]);
    assert_eq!(set("six.com", true).await.refusal(), (409, "too_many_passkey_domains"));
    let listed = t.get("/.well-known/webauthn").await.body;
    assert_eq!(listed["origins"].as_array().unwrap().len(), 1 + 7, "{listed}");
    assert_eq!(set("five.com", false).await.body["uses"]["passkeys"], false);
    assert_eq!(set("six.com", true).await.status, 200);
    assert_eq!(set("six.com", true).await.status, 200, "again: nothing changes");
    let eve = signed_in(&t, "eve@example.com").await;
    let foreign = eve.asks(t.ask(Method::PATCH, &path("six.com")).json(&json!({ "passkeys": false }))).await;
    assert_eq!(foreign.status, 404);
    // Removed: no longer listed in the same commit.
    let gone = format!("/domains/onboard/{}/six.com", id(&app));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &gone)).await.status, 204);
    assert!(!t.get("/.well-known/webauthn").await.text.contains("six.com"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_health_of_deployments_counts_domains_and_certificates() {
    let t = TestJanua::start(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "Shop").await;
    let now = t.janua.clock.now().0;
    for (name, status) in [("a.com", "active"), ("b.com", "active"), ("c.com", "misconfigured"), ("d.com", "failed")]
    {
        let body = json!({ "appId": id(&app), "domain": name });
        assert_eq!(ada.asks(t.post("/domains/onboard").json(&body)).await.status, 200);
        let sql = "UPDATE app_domain SET status = $2, next_check_at = NULL WHERE domain = $1";
        t.janua.db.exec(sql, db::params![name, status]).await.unwrap();
    }
    let insert = "INSERT INTO certificate (name, app_id, org_id, chain, not_before, not_after, error, created_at)
                  VALUES ($1, $2, $3, 'x', $4, $5, $6, 0)";
    let org = app["orgId"].as_str().unwrap();
    for (name, from, until, error) in [
        ("a.com", now - 10, now + 100, None),
        ("b.com", now - 100, now + 10, None),
        ("c.com", now - 100, now + 10, Some("refused")),
        ("d.com", now - 100, now - 10, Some("refused")),
    ] {
        let values = db::params![name, id(&app), org, from, until, error.map(str::to_owned)];
        t.janua.db.exec(insert, values).await.unwrap();
    }
    let health = ada.asks(t.get("/deployments/health")).await.body;
    assert_eq!(health["domains"], json!({ "active": 2, "misconfigured": 1, "failed": 1 }));
    assert_eq!(health["certificates"], json!({ "valid": 3, "expiringSoon": 2, "failing": 2 }));
    let eve = signed_in(&t, "eve@example.com").await;
    let health = eve.asks(t.get("/deployments/health")).await.body;
    assert_eq!(health["certificates"], json!({ "valid": 0, "expiringSoon": 0, "failing": 0 }), "hers alone");
    t.run_jobs().await;
    t.finish().await;
}
