//! The proof of a domain, against a real authoritative name server.
use std::{net::UdpSocket, path::Path, process::Stdio, time::Duration};

use tokio::process::{Child, Command};

use super::*;

/// A name server for `example.test` that says these texts at these names.
pub struct NameServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
    serial: u32,
}

impl NameServer {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free for both, as far as one can know: name servers speak TCP as well.
        let port = loop {
            let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let home = folder.path().display().to_string();
        let config = format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {home}\nlog:\n  \
             - target: stderr\n    any: warning\nzone:\n  - domain: example.test\n    storage: {home}\n    \
             file: example.test.zone\n    zonefile-load: whole\n"
        );
        std::fs::write(folder.path().join("knot.conf"), config).unwrap();
        write_zone(folder.path(), 1, &[]);
        let process = run(folder.path());
        let server = Self { process, port, folder, serial: 100 };
        server.answers().await;
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A name that leads to these addresses, and to no others, from now on.
    pub async fn leads(&mut self, name: &str, addresses: &[&str]) {
        self.serial += 1;
        let start = format!("@ 1 IN SOA ns hostmaster {} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 127.0.0.1\n", self.serial);
        let records: Vec<_> = addresses.iter().map(|address| format!("{name} 1 IN A {address}\n")).collect();
        std::fs::write(self.folder.path().join("example.test.zone"), start + &records.concat()).unwrap();
        self.process.kill().await.unwrap();
        self.process = run(self.folder.path());
        self.answers().await;
    }

    /// The zone with these texts in it, from now on.
    async fn say(&mut self, serial: u32, texts: &[(&str, &str)]) {
        write_zone(self.folder.path(), serial, texts);
        self.process.kill().await.unwrap();
        self.process = run(self.folder.path());
        self.answers().await;
    }

    async fn answers(&self) {
        let resolver = kernel::ports::dns::Resolver::new(&[([127, 0, 0, 1], self.port).into()]);
        let there = async {
            while resolver.texts("example.test").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), there).await.expect("the name server answers");
    }
}

fn run(folder: &Path) -> Child {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("knotd");
    command.env("PATH", path).arg("-c").arg(folder.join("knot.conf")).stdin(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("knotd is installed by scripts/setup")
}

fn write_zone(folder: &Path, serial: u32, texts: &[(&str, &str)]) {
    let start = format!("@ 1 IN SOA ns hostmaster {serial} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 127.0.0.1\n");
    let texts: Vec<_> = texts.iter().map(|(name, text)| format!("{name} 1 IN TXT \"{text}\"\n")).collect();
    std::fs::write(folder.join("example.test.zone"), start + &texts.concat()).unwrap();
}

async fn domain(t: &TestApp, person: &Person, app: &Value, name: &str) -> Answer {
    person.asks(t.post(&format!("/apps/{}/domain", id(app))).json(&json!({ "domain": name }))).await
}

async fn verify(t: &TestApp, person: &Person, app: &Value) -> Answer {
    person.asks(t.post(&format!("/apps/{}/domain/verify", id(app)))).await
}

#[tokio::test]
async fn a_domain_is_proven_by_a_record_in_its_dns() {
    let mut dns = NameServer::start().await;
    let config = Config { dns_servers: vec![([127, 0, 0, 1], dns.port).into()], ..Config::for_tests() };
    let t = TestApp::start_with(config, feature).await;
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
    dns.say(2, &[("_janua-challenge.shop", "something else")]).await;
    let wrong = verify(&t, &ada, &app).await;
    assert_eq!((&wrong.body["status"], &wrong.body["seen"]), (&json!("pending"), &json!(["something else"])));
    let token = record["value"].as_str().unwrap();
    dns.say(3, &[("_janua-challenge.shop", "something else"), ("_janua-challenge.shop", token)]).await;
    let proven = verify(&t, &ada, &app).await;
    assert_eq!(proven.body["status"], "verified", "{}", proven.text);
    assert_eq!(ada.asks(t.get(&path)).await.body["status"], "verified");
    t.expects(&["DOMAIN_ADDED", "DOMAIN_ADDED", "DOMAIN_VERIFIED"]).await;

    // Whoever has not proven it does not get it, and nobody else can begin to.
    assert_eq!(verify(&t, &eve, &evil).await.body["status"], "pending", "somebody else's proof");
    let third = make_app(&t, &eve, "Third").await;
    assert_eq!(domain(&t, &eve, &third, "shop.example.test").await.refusal(), (409, "domain_taken"));
    let theirs = eve.asks(t.get(&format!("/apps/{}/domain", id(&evil)))).await;
    let both = theirs.body["record"]["value"].as_str().unwrap().to_owned();
    dns.say(4, &[("_janua-challenge.shop", &both)]).await;
    assert_eq!(verify(&t, &eve, &evil).await.refusal(), (409, "domain_taken"));
    assert_eq!(verify(&t, &ada, &app).await.body["status"], "verified", "what was proven stays so");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "no_domain"));
    assert_eq!(verify(&t, &eve, &evil).await.body["status"], "verified", "it is free again");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn what_cannot_be_a_domain_is_refused_and_a_silent_server_is_said() {
    let config = Config { dns_servers: vec!["127.0.0.1:1".parse().unwrap()], ..Config::for_tests() };
    let t = TestApp::start_with(config, feature).await;
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
