//! PostgreSQL fails over while two nodes apply what the payment processor says, count usage and send mail.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    mail::{received, send},
    payments::{SECRET, StandIn},
    support::{
        Server, Visit, extent, janua,
        people::{PASSWORD, ask, login, owner, text, well},
        postgres::Postgres,
        run,
        smtp::Moody,
    },
    usage::track,
};

const EMAIL: &str = "ada@example.com";
const MASTER: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const PLANS: &str = "
currency = \"usd\"
[meters.api_calls]
aggregation = \"sum\"
unit = \"calls\"
[plans.pro]
rank = 10
[[plans.pro.prices]]
interval = \"month\"
amount = 2000
";

/// Two nodes, the processor, and what was acknowledged.
struct Business<'a> {
    nodes: [SocketAddr; 2],
    bank: &'a StandIn,
    access: String,
    key: String,
    done: AtomicBool,
    next: AtomicU64,
    orgs: Mutex<Vec<String>>,
    events: Mutex<BTreeMap<String, u64>>,
    mails: Mutex<BTreeSet<String>>,
}

impl Business<'_> {
    fn goes_on(&self) -> bool {
        !self.done.load(SeqCst)
    }

    /// Asks one node, then the other, until one of them acknowledges.
    fn ask(&self, number: u64, key: &str, path: &str, body: &Value) -> Value {
        let (began, mut turn) = (Instant::now(), number);
        loop {
            let node = self.nodes[usize::try_from(turn % 2).unwrap()];
            let answer = Visit::try_to(node, Duration::from_secs(20))
                .and_then(|mut visit| visit.attempt_with(key, "POST", path, &self.access, &body.to_string()));
            if let Ok(answer) = answer {
                match answer.status {
                    200 => return serde_json::from_str(&answer.body).unwrap(),
                    // Away, or what the first try began is still under way.
                    409 | 503 => {}
                    status => panic!("{path}: {status} {}", answer.body),
                }
            }
            assert!(began.elapsed() < Duration::from_mins(2), "{path} is never acknowledged");
            thread::sleep(Duration::from_millis(50));
            turn += 1;
        }
    }

    /// Organizations that buy a plan, one after the other. Who asks again for a checkout that is open gets the same one.
    fn sell(&self) {
        while self.goes_on() {
            let number = self.next.fetch_add(1, SeqCst);
            let org = self.ask(number, &format!("org-{number}"), "/org", &json!({ "name": format!("Org {number}") }));
            let org = text(&org["id"]);
            let made = self.ask(number + 1, "", "/billing/org/checkout", &json!({ "orgId": org, "plan": "pro" }));
            let session = made["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            self.bank.pull("pay", &json!({ "session": session }));
            self.orgs.lock().unwrap().push(org);
        }
    }

    fn count(&self) {
        while self.goes_on() {
            let number = self.next.fetch_add(1, SeqCst);
            let (id, value) = (format!("e{number}"), 1 + number % 7);
            let event = json!({ "events": [{ "meter": "api_calls", "value": value, "eventId": id }] });
            let began = Instant::now();
            while track(self.nodes[usize::try_from(number % 2).unwrap()], &self.key, &event).is_err() {
                assert!(began.elapsed() < Duration::from_mins(2), "an event is never acknowledged");
                thread::sleep(Duration::from_millis(50));
            }
            self.events.lock().unwrap().insert(id, value);
        }
    }

    fn write(&self) {
        while self.goes_on() {
            let number = self.next.fetch_add(1, SeqCst);
            let began = Instant::now();
            let id = loop {
                match send(self.nodes[usize::try_from(number % 2).unwrap()], &self.access, number) {
                    Ok(id) => break id,
                    Err(_) => assert!(began.elapsed() < Duration::from_mins(2), "a mail is never acknowledged"),
                }
                thread::sleep(Duration::from_millis(50));
            };
            self.mails.lock().unwrap().insert(id);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Waits until this is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(5), "{what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// FC10, M1 to M5.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, from the first sale to the last mail")]
fn fc10_a_failover_costs_no_payment_no_event_and_no_mail() {
    // Mail in hand when the database dies waits three minutes for its lease to end, which is too long for the short run.
    let before = extent(0, 60, "subscriptions before the failover, and after it");
    if before == 0 {
        return;
    }
    let primary = Postgres::start();
    drop(primary.database("shop"));
    let standby = Postgres::standby(&primary);
    let both = format!("postgres://janua@{},{}/shop", primary.address, standby.address);
    let folders = [(); 2].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    for folder in &folders {
        std::fs::write(folder.path().join("plans.toml"), PLANS).unwrap();
    }
    let (bank, mut smtp) = (StandIn::start(), Moody::new());
    smtp.mood("ok");
    smtp.start();
    let (api, relay) = (format!("http://127.0.0.1:{}", bank.port), format!("smtp://127.0.0.1:{}", smtp.port));
    let settings: &[(&str, &str)] = &[
        ("JANUA_MASTER_KEY", MASTER),
        ("JANUA_BASE_URL", "http://localhost:9"),
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_PLATFORM_OWNERS", EMAIL),
        ("JANUA_DATABASE_URL", &both),
        ("JANUA_PLANS_FILE", "plans.toml"),
        ("JANUA_PAYMENTS", "stripe"),
        ("JANUA_STRIPE_SECRET_KEY", "sk_test_stand_in"),
        ("JANUA_STRIPE_API_URL", &api),
        ("JANUA_BILLING_WEBHOOK_SECRETS", SECRET),
    ];
    // The account's own mails go to the outbox, where they are read.
    let first = Server::start(folders[0].path(), settings);
    let owner = owner(&first, &[folders[0].path()], EMAIL);
    drop(first);
    let mut command = janua(folders[0].path(), &["billing", "sync"]);
    command.envs(settings.iter().copied());
    let (is_well, said) = run(command);
    assert!(is_well, "{said}");
    let settings = [settings, &[("JANUA_SMTP_URL", relay.as_str())]].concat();
    let nodes = folders.each_ref().map(|folder| Server::start(folder.path(), &settings));
    bank.listen(&nodes[0]);
    let access = text(&well(login(&nodes[0], EMAIL, PASSWORD))["accessToken"]);
    let key = json!({ "type": "secret", "environment": "live" });
    let key = text(&well(ask(&nodes[1], "POST", &owner.keys(), &access, &key))["value"]);
    let business = Business {
        nodes: [nodes[0].address, nodes[1].address],
        bank: &bank,
        access,
        key,
        done: AtomicBool::new(false),
        next: AtomicU64::new(0),
        orgs: Mutex::default(),
        events: Mutex::default(),
        mails: Mutex::default(),
    };
    let sold = || business.orgs.lock().unwrap().len();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| business.sell());
            scope.spawn(|| business.count());
            scope.spawn(|| business.write());
        }
        // Ends the writers even where a wait below fails.
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("nothing is sold before the failover", || sold() >= before);
            primary.kill();
            standby.promote();
            let now = sold();
            until("nothing is sold after the failover", || sold() >= now + before);
        }));
        business.done.store(true, SeqCst);
        if let Err(panic) = waited {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(standby.sql("shop", "SELECT pg_is_in_recovery()").trim(), "f");
    // M3: what the processor says holds here, on both nodes.
    let (orgs, access) = (business.orgs.lock().unwrap().clone(), &business.access);
    for (number, org) in orgs.iter().enumerate() {
        let (path, wish) = (format!("/billing/org?orgId={org}"), json!({ "orgId": org, "plan": "pro" }));
        until("a subscription never becomes active", || {
            // What was lost on the way is read when somebody asks again, and charged no second time.
            let _ = ask(&nodes[number % 2], "POST", "/billing/org/checkout", access, &wish);
            let now = well(ask(&nodes[number % 2], "GET", &path, access, &Value::Null));
            now["status"] == "active" && now["plan"] == "pro"
        });
    }
    // M1: one subscription and one payment each.
    let (subscriptions, charges) = (bank.objects("subscription"), bank.objects("charge"));
    assert_eq!((subscriptions.len(), charges.len()), (orgs.len(), orgs.len()), "one each");
    assert_eq!(bank.pull("wrong", &json!({}))["wrong"], json!([]));
    // M2: every event once, in the figures and in the quota.
    let (events, expected) = {
        let events = business.events.lock().unwrap();
        (events.len() as u64, events.values().sum::<u64>())
    };
    let path = format!("/usage?appId={}&meter=api_calls", owner.app);
    let row = well(ask(&nodes[1], "GET", &path, access, &Value::Null))["usage"][0].clone();
    assert_eq!((row["events"].as_u64(), row["value"].as_u64()), (Some(events), Some(expected)), "{row}");
    let meters = well(ask(&nodes[0], "GET", &format!("/usage/meters?appId={}", owner.app), access, &Value::Null));
    let used = meters["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "api_calls").unwrap();
    assert_eq!(used["used"].as_u64(), Some(expected), "the quota counts the same");
    // M4: every mail, and what came twice under its own ID.
    let mails = business.mails.lock().unwrap().clone();
    until("a mail never came", || {
        let there = received(&smtp);
        mails.iter().all(|id| there.contains_key(id))
    });
    let there = received(&smtp);
    let twice: usize = mails.iter().filter_map(|id| there.get(id)).map(|times| times - 1).sum();
    // At most what both nodes had in hand when the database died.
    assert!(twice <= 2 * 32 * 5, "{twice} came again");
    println!(
        "failover: {} subscriptions, {events} events and {} mails, each there and counted once; {twice} mails came once more",
        orgs.len(),
        mails.len()
    );
}
