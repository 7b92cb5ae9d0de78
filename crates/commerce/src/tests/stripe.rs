//! The Stripe driver against a stand-in on loopback: a processor with a database of its own, which keeps what it is asked
//! under a key, fails before and after it took effect, and whose requests are judged by the official library.
use std::{
    collections::VecDeque,
    io::Write as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use db::{params, row};
use identity::testing::Person;
use kernel::{Janua, config::Config, crypto, testing::TestJanua};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use super::{
    PlansFile, again,
    billing::{CARD, DAY, PLANS, act, billing, buy, last, owner},
    feature, start,
};
use crate::{
    payments::{
        signature,
        wire::{Verb, Wire},
    },
    sandbox,
    settings::{PaymentsSetting, Settings},
    stripe::VERSION,
};

const SECRET: &str = "whsec_of_the_stand_in";

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// 500, and nothing happened.
    Before,
    /// 500, though it took effect.
    After,
    Busy,
    /// The connection ends without an answer.
    Reset,
}

struct Bank {
    janua: Janua,
    faults: Mutex<VecDeque<Fault>>,
    requests: Mutex<Vec<Value>>,
}

async fn serve(State(bank): State<Arc<Bank>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    assert_eq!(text("stripe-version").as_deref(), Some(VERSION));
    assert_eq!(text("authorization").as_deref(), Some("Bearer sk_test_stand_in"));
    let form =
        if method == Method::POST { body.to_vec() } else { uri.query().unwrap_or_default().as_bytes().to_vec() };
    let params: Vec<(String, String)> = url::form_urlencoded::parse(&form).into_owned().collect();
    let verb = match method {
        Method::GET => Verb::Get,
        Method::DELETE => Verb::Delete,
        _ => Verb::Post,
    };
    bank.requests.lock().unwrap().push(json!({ "verb": method.as_str(), "path": uri.path(), "params": params }));
    let fault = bank.faults.lock().unwrap().pop_front();
    let refuse = |status: StatusCode| (status, "{\"error\":{\"type\":\"api_error\"}}").into_response();
    match fault {
        Some(Fault::Before) => return refuse(StatusCode::INTERNAL_SERVER_ERROR),
        Some(Fault::Busy) => return refuse(StatusCode::TOO_MANY_REQUESTS),
        _ => {}
    }
    let wire = Wire {
        verb,
        path: uri.path().to_owned(),
        params,
        key: text("idempotency-key"),
        account: text("stripe-account"),
    };
    let (status, body) = sandbox::serve_once(&bank.janua, &wire).await.unwrap();
    match fault {
        Some(Fault::After) => refuse(StatusCode::INTERNAL_SERVER_ERROR),
        Some(Fault::Reset) => panic!("the connection ends here"),
        _ => (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response(),
    }
}

/// A service with Stripe, and the bank behind it.
struct World {
    t: TestJanua,
    bank: TestJanua,
    state: Arc<Bank>,
    sent: Mutex<usize>,
}

struct Sent {
    body: Value,
}
row!(Sent { body });

impl World {
    async fn start() -> Self {
        let bank = start(PLANS).await;
        let state =
            Arc::new(Bank { janua: bank.janua.clone(), faults: Mutex::default(), requests: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api: url::Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let router = Router::new().fallback(serve).with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let file = PlansFile::new(PLANS);
        let config: Config = file.config().with(|settings: &mut Settings| {
            settings.payments = PaymentsSetting::Stripe;
            settings.stripe_secret_key = Some("sk_test_stand_in".to_owned().into());
            settings.stripe_api_url = api;
            settings.billing_webhook_secrets = vec![SECRET.to_owned().into()];
        });
        let t = TestJanua::start_with(config, feature).await;
        Self { t, bank, state, sent: Mutex::new(0) }
    }

    fn fail(&self, faults: &[Fault]) {
        self.state.faults.lock().unwrap().extend(faults);
    }

    async fn sync_prices(&self) {
        crate::commands::sync(&self.t.janua).await.unwrap();
    }

    /// The events that were not given out yet, in order.
    async fn events(&self) -> Vec<String> {
        let sql = "SELECT body FROM sandbox_event WHERE account = '' ORDER BY created_at, id";
        let all: Vec<Sent> = self.bank.janua.db.all(sql, params![]).await.unwrap();
        let mut sent = self.sent.lock().unwrap();
        let new = all[*sent..].iter().map(|event| event.body.to_string()).collect();
        *sent = all.len();
        new
    }

    async fn deliver(&self, events: &[String]) {
        for body in events {
            let header = signature::sign(&SECRET.to_owned().into(), self.t.janua.clock.now(), body.as_bytes());
            let answer = self.t.post("/billing/webhook").body(body.clone()).header("stripe-signature", &header).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        self.t.run_jobs().await;
    }

    async fn pass(&self, time: Duration) {
        self.bank.advance(time);
        self.t.advance(time);
        sandbox::run_due(&self.bank.janua).await.unwrap();
    }

    /// Pays a checkout at the bank.
    async fn pay(&self, url: &Value) {
        let paid = act(&self.bank, &last(url), json!({ "action": "pay", "card": CARD })).await;
        assert_eq!(paid.status, 200, "{}", paid.text);
    }

    async fn finish(self) {
        self.bank.janua.db.exec("DELETE FROM job", params![]).await.unwrap();
        self.bank.finish().await;
        self.t.finish().await;
    }
}

fn python(work: &Value) -> Value {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/judge.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(work.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "judge.py: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn stripe_is_asked_as_its_library_would_and_signatures_are_the_same() {
    let world = World::start().await;
    let t = &world.t;
    let ada = owner(t, "ada@example.com").await;
    let unsynced = buy(t, &ada, "pro").await;
    assert_eq!(unsynced.refusal(), (409, "plan_not_for_sale"), "{}", unsynced.text);
    world.sync_prices().await;
    let made = buy(t, &ada, "pro").await;
    assert_eq!((made.status, &made.body["livemode"]), (200, &json!(false)), "{}", made.text);
    world.pay(&made.body["url"]).await;
    world.deliver(&world.events().await).await;
    let now = billing(t, &ada).await;
    assert_eq!(
        (&now["status"], &now["plan"], &now["processor"]),
        (&json!("trialing"), &json!("pro"), &json!("stripe")),
        "{now}"
    );
    assert_eq!(buy(t, &ada, "scale").await.status, 200);
    let canceled = ada.asks(t.post("/billing/org/cancel")).await;
    assert_eq!(canceled.body["cancelAtPeriodEnd"], true, "{}", canceled.text);
    assert_eq!(ada.asks(t.post("/billing/org/cancel").json(&json!({ "undo": true }))).await.status, 200);
    assert_eq!(ada.asks(t.post("/billing/org/portal")).await.status, 200);
    world.pass(15 * DAY).await;
    world.deliver(&world.events().await).await;
    world.pass(Duration::from_hours(73)).await;
    world.deliver(&world.events().await).await;
    let ada = again(t, "ada@example.com").await;
    let now = billing(t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{now}");
    let body = json!({ "id": "evt_signed", "type": "customer.updated", "livemode": false, "data": { "object": { "id": "x" } } }).to_string();
    let at = t.janua.clock.now();
    let ours = signature::sign(&SECRET.to_owned().into(), at, body.as_bytes());
    let sign = json!({ "at": at.0 / 1000, "body": body, "secret": SECRET, "ours": ours });
    let requests = world.state.requests.lock().unwrap().clone();
    let judged = python(&json!({ "requests": requests, "sign": sign }));
    assert_eq!(judged["wrong"], json!([]));
    assert_eq!(judged["version"], VERSION, "the version is the one the library was made for");
    assert!(judged["judged"].as_array().unwrap().len() >= 9, "{judged}");
    let header = judged["header"].as_str().unwrap();
    let answer = t.post("/billing/webhook").body(body).header("stripe-signature", header).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    t.run_jobs().await;
    world.finish().await;
}

#[tokio::test]
async fn fc1_fc4_what_fails_before_or_after_it_took_effect_happens_once() {
    let world = World::start().await;
    let t = &world.t;
    world.sync_prices().await;
    let ada = owner(t, "ada@example.com").await;
    for fault in [Fault::Before, Fault::After, Fault::Busy, Fault::Reset, Fault::After] {
        world.fail(&[fault]);
        let refused = buy(t, &ada, "scale").await;
        assert_eq!(refused.refusal(), (503, "processor_unavailable"), "{fault:?}");
        assert!(!refused.header("retry-after").is_empty());
        assert_eq!(ada.asks(t.get("/billing/org")).await.status, 200, "reads go on");
    }
    // Nobody asks again: a job goes on with it.
    t.advance(Duration::from_mins(2));
    t.run_jobs().await;
    let now = billing(t, &ada).await;
    let url = now["checkout"]["url"].clone();
    assert!(url.is_string(), "{now}");
    let count = async |kind: &str| {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM sandbox_object WHERE kind = $1";
        let (count,): (i64,) = world.bank.janua.db.one(sql, params![kind]).await.unwrap();
        count
    };
    assert_eq!(
        (count("customer").await, count("session").await),
        (1, 1),
        "one of each, however often it was asked for"
    );
    world.bank.advance(Duration::from_mins(2));
    world.pay(&url).await;
    // The webhook is lost, and the processor is away for a while when events are pulled.
    world.events().await;
    world.fail(&[Fault::Before, Fault::Busy, Fault::Reset]);
    for _ in 0..6 {
        t.advance(Duration::from_mins(31));
        world.bank.advance(Duration::from_mins(31));
        t.run_jobs().await;
    }
    let ada = again(t, "ada@example.com").await;
    let now = billing(t, &ada).await;
    assert_eq!((&now["status"], &now["plan"]), (&json!("active"), &json!("scale")), "{now}");
    // A change whose answer is lost.
    let before = now["invoices"].as_array().unwrap().len();
    world.state.faults.lock().unwrap().extend([Fault::Reset]);
    let refused = buy(t, &ada, "team").await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    let again_asked = buy(t, &ada, "team").await;
    assert!(matches!(again_asked.status, 200 | 409), "{}", again_asked.text);
    t.advance(Duration::from_mins(2));
    world.bank.advance(Duration::from_mins(2));
    t.run_jobs().await;
    let now = billing(t, &ada).await;
    assert_eq!(now["pendingChange"]["plan"], "team", "{now}");
    assert!(now["invoices"].as_array().unwrap().len() <= before + 1);
    t.run_jobs().await;
    world.finish().await;
}

/// What somebody sees of it in the end.
async fn end_state(t: &TestJanua, person: &Person) -> Value {
    let now = billing(t, person).await;
    let invoices = now["invoices"].as_array().unwrap().iter();
    let mut invoices: Vec<Value> = invoices
        .map(|one| json!([one["status"], one["total"], one["paid"], one["refunded"], one["disputed"]]))
        .collect();
    invoices.sort_by_key(ToString::to_string);
    json!([now["status"], now["plan"], now["seats"], now["cancelAtPeriodEnd"], invoices])
}

#[test]
fn fc3_any_order_of_events_ends_in_the_same_state() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let config =
        ProptestConfig { cases: 12, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() };
    // The order, which are lost, and which come twice.
    let plan = (any::<u64>(), proptest::collection::vec(0_u8..10, 64));
    TestRunner::new(config)
        .run(&plan, |(seed, chances)| {
            runtime.block_on(async {
                let world = World::start().await;
                let t = &world.t;
                world.sync_prices().await;
                let ada = owner(t, "ada@example.com").await;
                let made = buy(t, &ada, "scale").await;
                world.pay(&made.body["url"]).await;
                let mut events = world.events().await;
                let completed = events.iter().find(|event| event.contains("checkout.session.completed"));
                world.deliver(&[completed.unwrap().clone()]).await;
                let id = {
                    let (id,): (String,) =
                        t.janua.db.one("SELECT subscription FROM billing_subject", params![]).await.unwrap();
                    id
                };
                world.pass(31 * DAY).await;
                world.pass(Duration::from_hours(73)).await;
                events.extend(world.events().await);
                let gone = Wire::new(Verb::Delete, format!("/v1/subscriptions/{id}"));
                if seed % 2 == 0 {
                    sandbox::serve_once(&world.bank.janua, &gone).await.unwrap();
                    events.extend(world.events().await);
                }
                let mut order: Vec<(String, String)> = vec![];
                for (place, event) in events.into_iter().enumerate() {
                    let chance = chances[place % chances.len()];
                    let times = match chance {
                        0 => 0,
                        1 | 2 => 2,
                        _ => 1,
                    };
                    for time in 0..times {
                        let turn = crypto::hash(format!("{seed} {place} {time}").as_bytes());
                        order.push((turn, event.clone()));
                    }
                }
                order.sort();
                let order: Vec<String> = order.into_iter().map(|(_, event)| event).collect();
                for some in order.chunks(3) {
                    world.deliver(some).await;
                }
                // What was lost is pulled.
                t.advance(Duration::from_hours(2));
                world.bank.advance(Duration::from_hours(2));
                t.run_jobs().await;
                let ada = again(t, "ada@example.com").await;
                let state = end_state(t, &ada).await;
                let status = if seed % 2 == 0 { "canceled" } else { "active" };
                let plan = if seed % 2 == 0 { "free" } else { "scale" };
                let paid = json!(["paid", 10_000, 10_000, 0, false]);
                assert_eq!(state, json!([status, plan, 1, false, [paid.clone(), paid]]));
                let (subjects,): (i64,) =
                    t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM billing_subject", params![]).await.unwrap();
                assert_eq!(subjects, 1, "one subscription for a subject");
                world.finish().await;
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_repeated_key_gets_its_first_answer_from_the_sandbox() {
    let bank = start(PLANS).await;
    let wire = Wire::post("/v1/customers", "k").with("name", "Ada");
    let (_, first) = sandbox::serve_once(&bank.janua, &wire).await.unwrap();
    let (_, second) = sandbox::serve_once(&bank.janua, &wire).await.unwrap();
    assert_eq!(first["id"], second["id"]);
    let other = Wire::post("/v1/customers", "k").with("name", "Eve");
    let (status, refused) = sandbox::serve_once(&bank.janua, &other).await.unwrap();
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("idempotency_error")));
    bank.finish().await;
}
