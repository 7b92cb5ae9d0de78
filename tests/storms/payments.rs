//! Payments of a server that is killed between what it asks of the processor and what it writes down.
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    Server, Visit, extent, janua,
    people::{PASSWORD, ask, login, owner, text, well},
    run,
};

const EMAIL: &str = "ada@example.com";
pub const SECRET: &str = "whsec_of_the_stand_in";
const PLANS: &str = "
currency = \"usd\"
[plans.pro]
rank = 10
[[plans.pro.prices]]
interval = \"month\"
amount = 2000
[plans.scale]
rank = 20
[[plans.scale.prices]]
interval = \"month\"
amount = 10000
";

/// The processor, in a process that outlives the server's.
pub struct StandIn {
    child: Child,
    pub port: u16,
}

impl StandIn {
    pub fn start() -> Self {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/stripe_stand_in.py");
        let mut child = Command::new(python).arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    pub fn pull(&self, name: &str, given: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = given.to_string();
        write!(
            stream,
            "POST /_/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    pub fn objects(&self, kind: &str) -> Vec<Value> {
        self.pull("objects", &json!({ "kind": kind }))["objects"].as_array().unwrap().clone()
    }

    pub fn listen(&self, server: &Server) {
        let url = format!("http://127.0.0.1:{}/billing/webhook", server.address.port());
        self.pull("hook", &json!({ "url": url, "secret": SECRET, "doubles": true }));
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// FC4: before the call, after the call, after the answer; a checkout, and a change that is charged at once.
#[test]
fn fc4_payments_survive_kills_and_are_charged_once() {
    let rounds = extent(4, 200, "rounds of two kills");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("plans.toml"), PLANS).unwrap();
    let bank = StandIn::start();
    let api = format!("http://127.0.0.1:{}", bank.port);
    let settings: &[(&str, &str)] = &[
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_BASE_URL", "http://localhost:9"),
        ("JANUA_PLANS_FILE", "plans.toml"),
        ("JANUA_PAYMENTS", "stripe"),
        ("JANUA_STRIPE_SECRET_KEY", "sk_test_stand_in"),
        ("JANUA_STRIPE_API_URL", &api),
        ("JANUA_BILLING_WEBHOOK_SECRETS", SECRET),
    ];
    let mut command = janua(folder.path(), &["billing", "sync"]);
    command.envs(settings.iter().copied());
    let (is_well, said) = run(command);
    assert!(is_well, "{said}");
    let mut server = Server::start(folder.path(), settings);
    owner(&server, &[folder.path()], EMAIL);
    bank.listen(&server);
    let mut kills = 0;
    for round in 0..rounds {
        let access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
        let org =
            text(&well(ask(&server, "POST", "/org", &access, &json!({ "name": format!("Org {round}") })))["id"]);
        let mut step = |plan: &str, is_done: &dyn Fn(&Value) -> bool| {
            // A request that takes effect late, or whose answer comes late, or neither: killed in the middle.
            let (fault, after) = [("slow", 150), ("late", 150), ("", round as u64 * 7 % 40)][round % 3];
            // The first request of a checkout makes the customer, that of a change asks what it costs.
            bank.pull("faults", &json!({ "faults": if fault.is_empty() { vec![] } else { vec!["", fault] } }));
            let (address, body) = (server.address, json!({ "orgId": org, "plan": plan }).to_string());
            let token = access.clone();
            let asking = thread::spawn(move || {
                let mut visit = Visit::try_to(address, Duration::from_secs(20))?;
                visit.attempt("POST", "/billing/org/checkout", &token, &body).map(drop)
            });
            thread::sleep(Duration::from_millis(after));
            server.signal("KILL");
            let _ = asking.join().unwrap();
            server.child.wait().unwrap();
            kills += 1;
            bank.pull("faults", &json!({ "faults": [] }));
            server = Server::start(folder.path(), settings);
            bank.listen(&server);
            let began = Instant::now();
            loop {
                let wish = json!({ "orgId": org, "plan": plan });
                let (_, said) = ask(&server, "POST", "/billing/org/checkout", &access, &wish);
                if let Some(session) = said["url"].as_str().filter(|_| said["kind"] == "new") {
                    let id = session.rsplit('/').next().unwrap();
                    let session = bank.objects("checkout.session").into_iter().find(|one| one["id"] == id).unwrap();
                    if session["status"] == "open" {
                        bank.pull("pay", &json!({ "session": id }));
                    }
                }
                let now = well(ask(&server, "GET", &format!("/billing/org?orgId={org}"), &access, &Value::Null));
                if is_done(&now) {
                    break;
                }
                assert!(began.elapsed() < Duration::from_mins(3), "{plan} never came: {now}");
                thread::sleep(Duration::from_millis(50));
            }
        };
        step("pro", &|now| now["status"] == "active" && now["plan"] == "pro");
        step("scale", &|now| now["plan"] == "scale");
    }
    // Of every organization one customer that pays: one subscription, the first month and one settlement.
    let (subscriptions, invoices) = (bank.objects("subscription"), bank.objects("invoice"));
    let customers: Vec<&Value> = subscriptions.iter().map(|one| &one["customer"]).collect();
    assert_eq!(subscriptions.len(), rounds, "one subscription each: {customers:?}");
    for subscription in &subscriptions {
        assert_eq!(subscription["status"], "active");
        let id = &subscription["id"];
        let own = invoices.iter().filter(|one| one["parent"]["subscription_details"]["subscription"] == *id);
        let reasons: Vec<&str> = own.map(|one| one["billing_reason"].as_str().unwrap()).collect();
        assert_eq!(reasons, ["subscription_create", "subscription_update"], "charged once each");
    }
    let paid: i64 = invoices.iter().map(|one| one["amount_paid"].as_i64().unwrap()).sum();
    let charged: i64 = bank.objects("charge").iter().map(|one| one["amount"].as_i64().unwrap()).sum();
    assert_eq!(charged, paid);
    let judged = bank.pull("wrong", &json!({}));
    assert_eq!(judged["wrong"], json!([]));
    println!("{kills} kills, {} charges, {charged} minor units, each once", bank.objects("charge").len());
}
