//! The proof of an app's own name, against a real authoritative name server.
use std::time::Duration;

use super::*;

async fn domain(t: &TestJanua, person: &Person, app: &Value, name: &str) -> Answer {
    person.asks(t.post(&format!("/apps/{}/domain", id(app))).json(&json!({ "domain": name }))).await
}

async fn verify(t: &TestJanua, person: &Person, app: &Value) -> Answer {
    person.asks(t.post(&format!("/apps/{}/domain/verify", id(app)))).await
}

#[tokio::test]
async fn a_domain_is_proven_by_a_record_in_its_dns() {
    let mut dns = NameServer::start().await;
    let config = Config { dns_servers: vec![dns.address()], ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let (app, evil) = (make_app(&t, &ada, "App").await, make_app(&t, &eve, "Evil").await);
    t.happened().await;
    let path = format!("/apps/{}/domain", id(&app));
    assert_eq!(ada.asks(t.get(&path)).await.refusal(), (404, "no_domain"));
    assert_eq!(verify(&t, &ada, &app).await.refusal(), (404, "no_domain"));
    let added = domain(&t, &ada, &app, " Shop.Example.TEST. ").await;
    assert_eq!((added.status, &added.body["domain"]), (200, &json!("shop.example.test")), "{}", added.text);
    let record = &added.body["record"];
    assert_eq!((&record["type"], &record["name"]), (&json!("TXT"), &json!("_janua-challenge.shop.example.test")));
    assert_eq!(domain(&t, &ada, &app, "other.example.test").await.refusal(), (409, "domain_exists"));
    assert_eq!(domain(&t, &eve, &evil, "shop.example.test").await.status, 200, "anybody may claim it");

    let early = verify(&t, &ada, &app).await;
    assert_eq!((&early.body["status"], &early.body["seen"]), (&json!("pending"), &json!([])), "{}", early.text);
    dns.say(&[("_janua-challenge.shop", "something else")]).await;
    let wrong = verify(&t, &ada, &app).await;
    assert_eq!((&wrong.body["status"], &wrong.body["seen"]), (&json!("pending"), &json!(["something else"])));
    let token = record["value"].as_str().unwrap();
    dns.say(&[("_janua-challenge.shop", "something else"), ("_janua-challenge.shop", token)]).await;
    let proven = verify(&t, &ada, &app).await;
    assert_eq!(proven.body["status"], "verified", "{}", proven.text);
    assert_eq!(ada.asks(t.get(&path)).await.body["status"], "verified");
    t.expects(&["DOMAIN_ADDED", "DOMAIN_ADDED", "DOMAIN_VERIFIED"]).await;

    // Whoever has not proven it does not get it, whatever they claim.
    assert_eq!(verify(&t, &eve, &evil).await.body["status"], "pending", "somebody else's proof");
    let third = make_app(&t, &eve, "Third").await;
    let claimed = domain(&t, &eve, &third, "shop.example.test").await;
    assert_eq!((&claimed.body["status"], &claimed.body["reason"]), (&json!("pending"), &json!("contested")));
    assert_ne!(claimed.body["record"]["value"], *token, "a record of its own");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "no_domain"));
    let theirs = eve.asks(t.get(&format!("/apps/{}/domain", id(&evil)))).await;
    dns.say(&[("_janua-challenge.shop", theirs.body["record"]["value"].as_str().unwrap())]).await;
    assert_eq!(verify(&t, &eve, &evil).await.body["status"], "verified", "it is free again");
    t.run_jobs().await;
    t.finish().await;
}

/// With tokens that outlive the days a test lets pass.
fn long_lived(dns: &NameServer) -> Config {
    Config { dns_servers: vec![dns.address()], ..Config::for_tests() }
        .with(|tenancy: &mut tenancy::Settings| tenancy.access_token_life = Duration::from_hours(24 * 25))
}

/// A holder and somebody who claims the same name, each with the record to add.
struct Contest {
    dns: NameServer,
    t: TestJanua,
    ada: Person,
    bob: Person,
    apps: [Value; 2],
    tokens: [String; 2],
}

impl Contest {
    /// Ada has proven the name; Bob claims it.
    async fn start() -> Self {
        let mut dns = NameServer::start().await;
        let t = TestJanua::start_with(long_lived(&dns), feature).await;
        let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
        let apps = [make_app(&t, &ada, "Seller").await, make_app(&t, &bob, "Buyer").await];
        let token = |answer: &Answer| answer.body["record"]["value"].as_str().unwrap().to_owned();
        let first = token(&domain(&t, &ada, &apps[0], "sold.example.test").await);
        dns.say(&[("_janua-challenge.sold", &first)]).await;
        assert_eq!(verify(&t, &ada, &apps[0]).await.body["status"], "verified");
        let claimed = domain(&t, &bob, &apps[1], "sold.example.test").await;
        assert_eq!(claimed.status, 200, "{}", claimed.text);
        let tokens = [first, token(&claimed)];
        t.run_jobs().await;
        t.happened().await;
        Self { dns, t, ada, bob, apps, tokens }
    }

    /// The records of these two stand from now on, and no others.
    async fn stand(&mut self, which: &[usize]) {
        let texts: Vec<_> = which.iter().map(|i| ("_janua-challenge.sold", self.tokens[*i].as_str())).collect();
        self.dns.say(&texts).await;
    }

    async fn seen(&self, who: usize) -> Value {
        let person = if who == 0 { &self.ada } else { &self.bob };
        person.asks(self.t.get(&format!("/apps/{}/domain", id(&self.apps[who])))).await.body
    }

    /// Lets time pass, with the jobs that come with it.
    async fn pass(&self, hours: u64) {
        for _ in 0..hours {
            self.t.advance(Duration::from_hours(1));
            self.t.run_jobs().await;
        }
    }

    async fn states(&self) -> [String; 2] {
        let said = |seen: Value| format!("{} {}", seen["status"].as_str().unwrap(), seen["reason"]);
        [said(self.seen(0).await), said(self.seen(1).await)]
    }

    fn mails(&self, subject: &str) -> Vec<String> {
        let mails = self.t.mailbox.mails();
        mails.into_iter().filter(|mail| mail.contains(&format!("Subject: {subject}"))).collect()
    }

    async fn owner(&self) -> Option<String> {
        let found = tenancy::apps::Application::of_domain(&self.t.janua.db, "api.sold.example.test").await.unwrap();
        found.map(|id| id.to_string())
    }

    async fn finish(self) {
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

#[tokio::test]
async fn a_sold_domain_moves_to_its_new_owner_by_the_records() {
    let mut c = Contest::start().await;
    c.stand(&[1]).await;
    let looked = verify(&c.t, &c.bob, &c.apps[1]).await;
    assert_eq!((looked.status, &looked.body["reason"]), (200, &json!("contested")), "{}", looked.text);
    assert_eq!(looked.body["contestedSince"], looked.body["checkedAt"]);
    assert_eq!(c.seen(0).await["status"], "verified", "once is not enough");
    c.t.run_jobs().await;
    let warned = c.mails("Your domain is about to move");
    assert!(warned.len() == 1 && warned[0].contains("ada@example.com"), "its people can still put it back");
    c.pass(23).await;
    assert_eq!(c.states().await, ["verified \"txt_wrong\"", "pending \"contested\""]);
    assert_eq!(c.owner().await.as_deref(), Some(id(&c.apps[0])));
    c.t.happened().await;
    c.pass(2).await;
    assert_eq!(c.states().await, ["failed \"lost_ownership\"", "verified null"], "by itself");
    assert_eq!(c.owner().await.as_deref(), Some(id(&c.apps[1])), "tokens for it follow");
    c.t.expects(&["DOMAIN_MOVED", "DOMAIN_MOVED"]).await;
    let (lost, gained) = (c.mails("Your domain has moved"), c.mails("Your domain is verified"));
    assert!(lost.len() == 1 && lost[0].contains("ada@example.com"), "{lost:?}");
    assert!(gained.len() == 1 && gained[0].contains("bob@example.com"), "{gained:?}");
    assert_eq!(c.mails("Your domain is about to move").len(), 1, "said once");
    // Who lost it may win it back the same way, and in no other.
    assert_eq!(verify(&c.t, &c.ada, &c.apps[0]).await.body["status"], "pending");
    c.pass(30).await;
    assert_eq!(c.states().await[1], "verified null");
    c.stand(&[0]).await;
    c.pass(60).await;
    assert_eq!(c.states().await, ["verified null", "failed \"lost_ownership\""]);
    c.finish().await;
}

#[tokio::test]
async fn a_dropped_record_alone_loses_nothing_and_a_record_that_returns_keeps_the_name() {
    let mut c = Contest::start().await;
    c.stand(&[]).await;
    c.pass(50).await;
    assert_eq!(c.states().await, ["verified \"txt_missing\"", "pending \"contested\""]);
    let seen = c.seen(0).await;
    assert!(
        seen["missingSince"].is_string() && seen["seen"] == json!([]) && seen["nextCheckAt"].is_string(),
        "{seen}"
    );
    // Both stand: the one that was first keeps it.
    c.stand(&[0, 1]).await;
    c.pass(50).await;
    assert_eq!(c.states().await, ["verified null", "pending \"contested\""]);
    // Almost a day, then it is back for a moment.
    c.stand(&[1]).await;
    verify(&c.t, &c.bob, &c.apps[1]).await;
    c.pass(22).await;
    c.stand(&[0, 1]).await;
    verify(&c.t, &c.ada, &c.apps[0]).await;
    assert_eq!(c.seen(1).await["contestedSince"], Value::Null, "seen by whoever looks");
    c.stand(&[1]).await;
    verify(&c.t, &c.bob, &c.apps[1]).await;
    c.pass(23).await;
    assert_eq!(c.states().await[0], "verified \"txt_wrong\"", "a day from the start");
    c.finish().await;
}

#[tokio::test]
async fn no_answer_changes_no_state() {
    let mut c = Contest::start().await;
    c.stand(&[1]).await;
    verify(&c.t, &c.bob, &c.apps[1]).await;
    let before = c.states().await;
    // The server answers for another zone only, and refuses this one.
    c.dns.refuse(true).await;
    c.pass(48).await;
    assert_eq!(c.states().await, before);
    let seen = c.seen(0).await;
    assert!(seen["nextCheckAt"].as_str() > seen["checkedAt"].as_str(), "it is asked again: {seen}");
    assert_eq!(verify(&c.t, &c.bob, &c.apps[1]).await.refusal(), (502, "dns_unavailable"));
    c.finish().await;
}

#[tokio::test]
async fn a_claim_is_proven_by_itself_or_given_up_after_a_week() {
    let mut dns = NameServer::start().await;
    let t = TestJanua::start_with(long_lived(&dns), feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let added = domain(&t, &ada, &one, "one.example.test").await;
    domain(&t, &ada, &two, "two.example.test").await;
    dns.say(&[("_janua-challenge.one", added.body["record"]["value"].as_str().unwrap())]).await;
    t.advance(Duration::from_mins(6));
    t.run_jobs().await;
    let shown = |app: &Value| ada.asks(t.get(&format!("/apps/{}/domain", id(app))));
    assert_eq!(shown(&one).await.body["status"], "verified", "nobody had to ask");
    for _ in 0..8 * 24 {
        t.advance(Duration::from_hours(1));
        t.run_jobs().await;
    }
    let over = shown(&two).await.body;
    assert_eq!((&over["status"], &over["reason"]), (&json!("failed"), &json!("timed_out")));
    assert_eq!(over["nextCheckAt"], Value::Null);
    let again = verify(&t, &ada, &two).await;
    assert_eq!((&again.body["status"], &again.body["reason"]), (&json!("pending"), &json!("txt_missing")));
    assert!(again.body["nextCheckAt"].is_string(), "it starts over");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_prove_a_name_at_once_one_has_it() {
    let mut dns = NameServer::start().await;
    let config = Config { dns_servers: vec![dns.address()], ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (mut apps, mut tokens) = (vec![], vec![]);
    for i in 0..6 {
        let app = make_app(&t, &ada, &format!("App {i}")).await;
        let added = domain(&t, &ada, &app, "race.example.test").await;
        tokens.push(added.body["record"]["value"].as_str().unwrap().to_owned());
        apps.push(app);
    }
    let texts: Vec<_> = tokens.iter().map(|token| ("_janua-challenge.race", token.as_str())).collect();
    dns.say(&texts).await;
    let answers = kernel::testing::join_all(apps.iter().map(|app| verify(&t, &ada, app))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let proven = answers.iter().filter(|answer| answer.body["status"] == "verified").count();
    assert_eq!(proven, 1);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn what_cannot_be_a_domain_is_refused_and_a_silent_server_is_said() {
    let config = Config { dns_servers: vec!["127.0.0.1:1".parse().unwrap()], ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "App").await;
    for wrong in [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "*.example.com",
        "a..b",
        "-a.example.com",
        "a b.com",
        "https://a.com",
        "com",
    ] {
        let refused = domain(&t, &ada, &app, wrong).await;
        assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["domain"]), "{wrong}");
    }
    assert_eq!(domain(&t, &ada, &app, "bücher.example.com").await.body["domain"], "xn--bcher-kva.example.com");
    assert_eq!(verify(&t, &ada, &app).await.refusal(), (502, "dns_unavailable"));
    t.run_jobs().await;
    t.finish().await;
}
