//! Certificates from a real certificate authority (Pebble), with a real name server, over real TLS.
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use db::Notice;
use futures_util::FutureExt as _;
use identity::testing::{Person, signed_in};
use kernel::{
    clock::Clock,
    config::Config,
    testing::{Authority, NameServer, START, TestJanua},
};
use rcgen::KeyPair;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    Keyring,
    zone::{UpdatedZone, Zone},
};
use crate::{
    edge,
    settings::{Challenge, Directory, DnsDriver, Port, Settings},
    tests::{feature, id, make_app, moto::Moto, site},
};

/// A service with a listener for http and one for TLS, its authority and name server, and a domain that leads to it.
struct Place {
    dns: NameServer,
    authority: Authority,
    t: TestJanua,
    ada: Person,
    app: Value,
    tls: u16,
    stops: Vec<oneshot::Sender<()>>,
}

impl Place {
    async fn start(challenge: Challenge, options: &[(&'static str, &'static str)]) -> Self {
        Self::start_with(challenge, options, |_| {}).await
    }

    async fn start_with(
        challenge: Challenge,
        options: &[(&'static str, &'static str)],
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let dns = NameServer::start().await;
        let (http, tls) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (http_port, tls_port) = (http.local_addr().unwrap().port(), tls.local_addr().unwrap().port());
        let authority = Authority::start(dns.address(), http_port, tls_port, options).await;
        let config = Config { dns_servers: vec![dns.address()], ..Config::for_tests() }
            .with(|tenancy: &mut tenancy::Settings| tenancy.access_token_life = Duration::from_hours(24 * 400))
            .with(|edge: &mut edge::Settings| {
                edge.edge_domain = "edge.example.test".into();
                edge.edge_addresses = vec!["127.0.0.1".parse().unwrap()];
            })
            .with(|settings: &mut Settings| {
                settings.edge_tls_listen = Some(([127, 0, 0, 1], tls_port).into());
                settings.edge_probe_port = Port(http_port);
                settings.acme = Directory(Some(authority.directory().parse().unwrap()));
                settings.acme_ca = Some(authority.root());
                settings.acme_challenge = challenge;
                settings.acme_caa = "authority.example".into();
                settings.acme_dns_server = Some(dns.address());
                change(settings);
            });
        let t = TestJanua::start_with(config, feature).await;
        // The authority goes by the real time.
        t.advance(Clock::System.now().since(START));
        let ada = signed_in(&t, "ada@example.com").await;
        let app = make_app(&t, &ada, "Shop").await;
        let mut place = Self { dns, authority, t, ada, app, tls: tls_port, stops: vec![] };
        let body = site(&[("index.html", "<h1>Hello</h1>")]);
        let path = format!("/apps/{}/deploy", id(&place.app));
        let deployed = place.t.post(&path).header("content-type", "application/gzip").body(body);
        let deployed = place.ada.asks(deployed).await;
        assert_eq!(deployed.status, 200, "{}", deployed.text);
        place.t.happened().await;
        let (janua, (stop, stopped)) = (place.t.janua.clone(), oneshot::channel::<()>());
        tokio::spawn(edge::serve(http, janua.clone(), async move { _ = stopped.await }));
        place.stops.push(stop);
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(super::serve_edge(tls, janua, async move { _ = stopped.await }));
        place.stops.push(stop);
        place
    }

    async fn onboard(&mut self, name: &str) -> Value {
        let domain = format!("{name}.example.test");
        let body = json!({ "appId": id(&self.app), "domain": domain });
        let added = self.ada.asks(self.t.post("/domains/onboard").json(&body)).await;
        assert_eq!(added.status, 200, "{}", added.text);
        added.body
    }

    async fn lead(&mut self, domains: &[&Value], more: &[&str]) {
        let mut records: Vec<String> = more.iter().map(ToString::to_string).collect();
        for domain in domains {
            let name = domain["domain"].as_str().unwrap().trim_end_matches(".example.test");
            let proof = domain["records"][0]["value"].as_str().unwrap();
            records.push(format!("_janua-challenge.{name} 1 IN TXT \"{proof}\""));
            records.push(format!("{name} 1 IN A 127.0.0.1"));
        }
        self.dns.publish(&records).await;
    }

    fn path(&self, domain: &str) -> String {
        format!("/domains/onboard/{}/{domain}", id(&self.app))
    }

    async fn check(&self, domain: &str) -> Value {
        self.t.advance(Duration::from_secs(12));
        let checked = self.ada.asks(self.t.post(&format!("{}/check", self.path(domain)))).await;
        self.t.run_jobs().await;
        assert_eq!(checked.status, 200, "{}", checked.text);
        self.ada.asks(self.t.get(&self.path(domain))).await.body
    }

    async fn shown(&self, domain: &str) -> Value {
        self.ada.asks(self.t.get(&self.path(domain))).await.body
    }

    /// A handshake as a browser makes it.
    async fn connect(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config =
            ClientConfig::builder().with_root_certificates(self.authority.issuers().await).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        self.connect_with(config, name).await
    }

    async fn connect_with(&self, config: ClientConfig, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.tls)).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
    }

    async fn orders(&self) -> i64 {
        let sql = "SELECT COALESCE(CAST(SUM(used) AS BIGINT), 0) AS n FROM domain_budget WHERE subject = 'orders'";
        self.t.janua.db.one::<(i64,)>(sql, vec![]).await.unwrap().0
    }

    async fn finish(self) {
        drop(self.stops);
        self.t.run_jobs().await;
        self.t.finish().await;
    }
}

fn serial(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_gets_its_certificate_and_is_served_over_tls() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    let active = place.check("shop.example.test").await;
    assert_eq!(active["status"], "active", "{active}");
    let certificate = &active["certificate"];
    assert_eq!(certificate["status"], "valid", "{certificate}");
    assert!(certificate["issuer"].as_str().unwrap().contains("Pebble"), "{certificate}");
    assert!(certificate["renewAt"].as_str() < certificate["notAfter"].as_str());
    let mut stream = place.connect("shop.example.test").await.expect("the browser trusts it");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut config =
        ClientConfig::builder().with_root_certificates(place.authority.issuers().await).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    drop(stream.shutdown().await);
    let mut plain = place.connect_with(config, "shop.example.test").await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: shop.example.test\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("<h1>Hello</h1>"), "{answer}");
    // Plain http leads to https, and to nowhere else; another name over this connection is refused.
    let plain = crate::tests::ask(&place.t, "shop.example.test", "//evil.test/a?b", &[]).await;
    let to = format!("https://shop.example.test:{}/evil.test/a?b", place.tls);
    assert_eq!((plain.status, plain.header("location").to_owned()), (308, to));
    let happened = place.t.happened().await;
    assert!(happened.ends_with(&["CERTIFICATE_ISSUED".into(), "DOMAIN_ACTIVE".into()]), "{happened:?}");
    // And a browser opens the site by its name.
    let room = tempfile::tempdir().unwrap();
    let issuer = room.path().join("issuer.pem");
    std::fs::write(&issuer, place.authority.shown("intermediates/0").await).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/https.mjs");
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/node");
    let visit = tokio::process::Command::new("node")
        .args([script, "shop.example.test", &place.tls.to_string(), issuer.to_str().unwrap(), "Hello"])
        .env("TEST_NODE", std::env::var("TEST_NODE").unwrap_or_else(|_| here.to_owned()))
        .output();
    let visit = visit.await.expect("node runs; scripts/setup installs it");
    assert!(visit.status.success(), "{}", String::from_utf8_lossy(&visit.stderr));
    // Nothing of the key is in the clear.
    let stored: Vec<(Vec<u8>,)> = place.t.janua.db.all("SELECT sealed_key FROM certificate", vec![]).await.unwrap();
    assert!(stored.len() == 1 && KeyPair::try_from(stored[0].0.as_slice()).is_err());
    // Removed: the key is gone on every node at once.
    place.ada.asks(place.t.ask(axum::http::Method::DELETE, &place.path("shop.example.test"))).await;
    assert!(place.connect("shop.example.test").await.is_err());
    let left: Vec<(String,)> = place.t.janua.db.all("SELECT name FROM certificate", vec![]).await.unwrap();
    assert!(left.is_empty());
    place.finish().await;
}

/// Browsers open a name while it waits for its certificate: a node that has just found none must not keep that beyond the
/// moment when there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_opened_too_early_is_served_as_soon_as_it_has_a_certificate() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    let (janua, name) = (place.t.janua.clone(), "shop.example.test");
    let keyring = janua.own::<Arc<Keyring>>().clone();
    let opened = loop {
        let mut opened = Box::pin(keyring.has(&janua, name));
        if (&mut opened).now_or_never().is_none() {
            break opened;
        }
        // The database was quicker: once more.
        keyring.hear(&Notice::News { topic: super::model::TOPIC.into(), body: name.into() });
    };
    // By now the database has answered that there is none.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let active = place.check(name).await;
    assert_eq!(active["status"], "active", "{active}");
    opened.await;
    place.connect(name).await.expect("it is active");
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_succeeds_while_certificates_of_other_names_change() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    let active = place.check("shop.example.test").await;
    assert_eq!(active["status"], "active", "{active}");
    let keyring = place.t.janua.own::<Arc<Keyring>>().clone();
    let (is_over, others) = (Arc::new(AtomicBool::new(false)), keyring.clone());
    let stop = is_over.clone();
    let orders = std::thread::spawn(move || {
        for number in 0.. {
            let body = format!("n{number}.example.test");
            others.hear(&Notice::News { topic: super::model::TOPIC.into(), body });
            if stop.load(SeqCst) {
                return;
            }
        }
    });
    for _ in 0..20 {
        // Every certificate is read from the database again.
        keyring.hear(&Notice::StartOver);
        let served = place.connect("shop.example.test").await;
        if let Err(error) = served {
            is_over.store(true, SeqCst);
            panic!("it has a certificate: {error}");
        }
    }
    is_over.store(true, SeqCst);
    orders.join().unwrap();
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_w9_certificates_are_renewed_in_time_and_swapped_without_a_restart() {
    let mut place = Place::start(Challenge::TlsAlpn01, &[]).await;
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    let active = place.check("shop.example.test").await;
    assert_eq!(active["status"], "active", "tls-alpn-01: {active}");
    let first = serial(&place.connect("shop.example.test").await.unwrap());
    // Short of two thirds nothing happens. Pebble's certificates live for five years.
    let (before, after) = (&active["certificate"]["notBefore"], &active["certificate"]["notAfter"]);
    let moment = |text: &Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let life = Duration::from_millis(u64::try_from(moment(after) - moment(before)).unwrap());
    place.t.advance(life.mul_f64(0.6));
    place.t.run_jobs().await;
    let kept = serial(&place.connect("shop.example.test").await.unwrap());
    assert_eq!(
        (kept == first, place.orders().await),
        (true, 0),
        "not yet; what was ordered in another year counts no more"
    );
    place.t.advance(life.mul_f64(0.12));
    place.t.run_jobs().await;
    place.t.run_jobs().await;
    let second = serial(&place.connect("shop.example.test").await.unwrap());
    assert_ne!(second, first, "another one is served");
    assert!(place.t.happened().await.contains(&"CERTIFICATE_RENEWED".to_owned()));
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w20_unknown_names_and_names_that_do_not_lead_here_cause_no_order() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    let config =
        ClientConfig::builder().with_root_certificates(place.authority.issuers().await).with_no_client_auth();
    let count = kernel::testing::many(500);
    for number in 0..count {
        let refused = place.connect_with(config.clone(), &format!("n{number}.example.test")).await;
        let error = refused.map(|_| ()).expect_err("no certificate").to_string();
        assert!(error.contains("UnrecognisedName") || error.contains("unrecognized"), "{error}");
    }
    let shop = place.onboard("shop").await;
    let proof = format!("_janua-challenge.shop 1 IN TXT \"{}\"", shop["records"][0]["value"].as_str().unwrap());
    place.dns.publish(&[proof, "shop 1 IN A 192.0.2.1".into()]).await;
    assert_eq!(place.check("shop.example.test").await["reason"], "points_elsewhere");
    place.t.advance(Duration::from_hours(1));
    place.t.run_jobs().await;
    assert_eq!(place.orders().await, 0);
    let wanted: Vec<(String,)> = place.t.janua.db.all("SELECT name FROM certificate", vec![]).await.unwrap();
    assert!(wanted.is_empty(), "{wanted:?}");
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_w7_while_the_authority_is_away_nothing_is_lost_or_doubled() {
    let mut place = Place::start(Challenge::Http01, &[("PEBBLE_WFE_NONCEREJECT", "50")]).await;
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    place.authority.stop();
    let waiting = place.check("shop.example.test").await;
    assert_eq!((&waiting["status"], &waiting["reason"]), (&json!("issuing"), &json!("ca_unavailable")), "{waiting}");
    assert_eq!(waiting["certificate"]["status"], "failing");
    for _ in 0..24 {
        place.t.advance(Duration::from_hours(1));
        place.t.run_jobs().await;
    }
    assert!(place.orders().await <= 30, "within its budgets: {}", place.orders().await);
    place.authority.run().await;
    // A storm of refused nonces; tries go on until one comes through.
    for _ in 0..40 {
        place.t.advance(Duration::from_hours(1));
        place.t.run_jobs().await;
        if place.shown("shop.example.test").await["status"] == "active" {
            break;
        }
    }
    let active = place.shown("shop.example.test").await;
    assert_eq!(active["status"], "active", "{active}");
    place.connect("shop.example.test").await.expect("the one certificate");
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w21_challenges_are_answered_for_their_own_host_alone() {
    let place = Place::start(Challenge::Http01, &[]).await;
    let sql = "INSERT INTO certificate (name, created_at) VALUES ('shop.example.test', 0)";
    place.t.janua.db.exec(sql, vec![]).await.unwrap();
    let sql = "INSERT INTO acme_challenge (token, name, kind, answer, ends_at)
               VALUES ('abc_-1', 'shop.example.test', 'http-01', 'abc_-1.thumb', 9000000000000)";
    place.t.janua.db.exec(sql, vec![]).await.unwrap();
    let ask = async |host: &str, token: &str| {
        let path = format!("/.well-known/acme-challenge/{token}");
        let served = crate::tests::ask(&place.t, host, &path, &[]).await;
        let api = place.t.get(&path).header("host", host).await;
        assert_eq!(served.status == 200, api.status == 200, "both listeners say the same: {host} {token}");
        served
    };
    for host in ["shop.example.test", "SHOP.example.test:80", "shop.example.test."] {
        let answer = ask(host, "abc_-1").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "abc_-1.thumb"), "{host}");
    }
    for (host, token) in [
        ("other.example.test", "abc_-1"),
        ("shop.example.test", "abc_-2"),
        ("shop.example.test", "..%2Fabc_-1"),
        ("shop.example.test", "abc_-1%00"),
    ] {
        assert_eq!(ask(host, token).await.status, 404, "{host} {token}");
    }
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_check_fails_waits_longer_and_says_why() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    let shop = place.onboard("shop").await;
    // CAA forbids: no order is made at all.
    place.lead(&[&shop], &["@ 1 IN CAA 0 issue \";\""]).await;
    let refused = place.check("shop.example.test").await;
    assert_eq!(refused["reason"], "caa_forbids", "{refused}");
    assert_eq!(place.orders().await, 0);
    assert!(refused["hint"].is_string());
    place.lead(&[&shop], &[]).await;
    place.t.advance(Duration::from_hours(25));
    place.t.run_jobs().await;
    let active = place.check("shop.example.test").await;
    assert_eq!(active["status"], "active", "{active}");
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_w10_two_nodes_make_one_order_and_the_second_finishes_what_the_first_began() {
    let mut place = Place::start(Challenge::Http01, &[]).await;
    if place.t.folder().is_some() {
        // SQLite has one node. A process that died in the middle of an order is the same there.
        eprintln!("one node on SQLite: only the order that was left is resumed");
    }
    let shop = place.onboard("shop").await;
    place.lead(&[&shop], &[]).await;
    // A node that had it in hand and is gone: nobody else touches it before its lease is over.
    place.t.advance(Duration::from_secs(12));
    let path = format!("{}/check", place.path("shop.example.test"));
    let checked = place.ada.asks(place.t.post(&path)).await;
    assert_eq!(checked.body["status"], "issuing", "{}", checked.text);
    let now = place.t.janua.clock.now();
    let held = super::Certificate::claim(&place.t.janua.db, "shop.example.test", now).await.unwrap();
    let held = held.expect("it is free");
    place.t.run_jobs().await;
    assert_eq!(place.shown("shop.example.test").await["status"], "issuing", "somebody else has it");
    assert_eq!(place.orders().await, 0);
    place.t.advance(Duration::from_mins(2));
    if place.t.folder().is_none() {
        let node = place.t.another_node(feature).await;
        let (one, two) = tokio::join!(node.run_jobs(), place.t.run_jobs());
        assert!(one + two > 0);
    } else {
        place.t.run_jobs().await;
    }
    place.t.run_jobs().await;
    assert_eq!(place.shown("shop.example.test").await["status"], "active");
    assert_eq!(place.orders().await, 1, "one order");
    // Whoever comes back late changes nothing.
    assert!(!held.renew_lease(&place.t.janua.db, now).await.unwrap(), "its number is not the last one");
    place.finish().await;
}

#[test]
fn pebble_is_there() {
    let found =
        std::env::var("PATH").unwrap_or_default().split(':').any(|folder| Path::new(folder).join("pebble").exists());
    assert!(found, "scripts/setup installs pebble");
}

/// A zone at a published stand-in for Route 53 (moto). What is written there is published by the test before the writer hears
/// that it was: moto answers no DNS itself.
struct HostedZone {
    moto: Moto,
    port: u16,
    id: String,
    /// Until then it answers 503.
    is_open: Arc<AtomicBool>,
    written: tokio::sync::mpsc::UnboundedReceiver<(String, oneshot::Sender<()>)>,
}

/// Moto tells services apart by the credential's scope.
const SCOPE: &str =
    "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/route53/aws4_request, SignedHeaders=host, Signature=0";

impl HostedZone {
    async fn start() -> Self {
        let moto = Moto::start().await;
        let moto_port = moto.port;
        let made = "<CreateHostedZoneRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\">\
                    <Name>edge.example.test</Name><CallerReference>1</CallerReference></CreateHostedZoneRequest>";
        let url = format!("http://127.0.0.1:{moto_port}/2013-04-01/hostedzone");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let made =
            client.post(url).header("authorization", SCOPE).body(made).send().await.unwrap().text().await.unwrap();
        let id = made.split("<Id>").nth(1).and_then(|rest| rest.split("</Id>").next()).expect("a zone").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, written) = tokio::sync::mpsc::unbounded_channel();
        let is_open = Arc::new(AtomicBool::new(false));
        let is_listening = is_open.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if !is_listening.load(SeqCst) {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ =
                        stream.write_all(b"HTTP/1.1 503 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
                    continue;
                }
                tokio::spawn(Self::pass_on(stream, moto_port, tell.clone()));
            }
        });
        Self { moto, port, id, is_open, written }
    }

    async fn pass_on(
        mut stream: TcpStream,
        moto_port: u16,
        tell: tokio::sync::mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
    ) {
        let mut read = vec![];
        loop {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).await.unwrap_or(0);
            read.extend_from_slice(&part[..n]);
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                if n == 0 {
                    return;
                }
                continue;
            };
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            if n > 0 && body.len() < length.unwrap_or(0) {
                continue;
            }
            break;
        }
        let request = String::from_utf8(read).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let mut first = head.lines().next().unwrap().split(' ');
        let (method, path) = (first.next().unwrap(), first.next().unwrap());
        let named = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines
                .find(|(given, _)| given.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
                .unwrap_or_default()
        };
        assert!(named("authorization").contains("/us-east-1/route53/aws4_request"), "{head}");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let ask = client.request(method.parse().unwrap(), format!("http://127.0.0.1:{moto_port}{path}"));
        let ask = ask.header("authorization", named("authorization")).header("x-amz-date", named("x-amz-date"));
        let answer = ask.header("content-type", "text/xml").body(body.to_owned()).send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        if path.ends_with("/rrset/") {
            let (done, told) = oneshot::channel();
            tell.send((body.to_owned(), done)).unwrap();
            told.await.unwrap();
        }
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
        let _ = stream.write_all((head + &text).as_bytes()).await;
    }

    /// The TXT records that moto has in the zone.
    async fn texts(&self) -> String {
        let id = self.id.trim_start_matches("/hostedzone/");
        let url = format!("http://127.0.0.1:{}/2013-04-01/hostedzone/{id}/rrset?type=TXT&name=_", self.moto.port);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(url).header("authorization", SCOPE).send().await.unwrap().text().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_of_the_edge_have_one_certificate_that_is_checked_by_dns() {
    let mut zone = HostedZone::start().await;
    let mut place = Place::start_with(Challenge::Http01, &[], |settings| {
        settings.acme_dns = DnsDriver::Route53;
        settings.acme_dns_zone = zone.id.clone();
        settings.acme_dns_url = Some(format!("http://127.0.0.1:{}/", zone.port).parse().unwrap());
        settings.acme_dns_access_key = Some("AKID".to_owned().into());
        settings.acme_dns_secret_key = Some("secret".to_owned().into());
    })
    .await;
    let slug = place.app["slug"].as_str().unwrap().to_owned();
    let host = format!("{slug}.edge.example.test");
    assert!(place.connect(&host).await.is_err(), "not yet");
    // The order was begun by the start, and is taken up again when the zone answers.
    let (failed,): (String,) = place.t.janua.db.one("SELECT error FROM certificate", vec![]).await.unwrap();
    assert!(failed.contains("the zone: 503"), "{failed}");
    zone.is_open.store(true, SeqCst);
    place.t.advance(Duration::from_secs(61));
    {
        let Place { t, dns, .. } = &mut place;
        let mut seen = vec![];
        let mut jobs = std::pin::pin!(t.run_jobs());
        loop {
            tokio::select! {
                _ = &mut jobs => break,
                Some((body, done)) = zone.written.recv() => {
                    let value = body.split("&quot;").nth(1).or_else(|| body.split('"').nth(3)).unwrap().to_owned();
                    let is_put = body.contains("UPSERT");
                    assert!(body.contains("<Name>_acme-challenge.edge.example.test.</Name>"), "{body}");
                    let record = format!("_acme-challenge.edge 1 IN TXT \"{value}\"");
                    dns.publish(&if is_put { vec![record] } else { vec![] }).await;
                    seen.push(is_put);
                    done.send(()).unwrap();
                }
            }
        }
        let said: Vec<(Option<String>,)> = t.janua.db.all("SELECT error FROM certificate", vec![]).await.unwrap();
        assert_eq!(seen, [true, false], "written, and taken away again: {said:?}");
    }
    assert!(!zone.texts().await.contains("_acme-challenge"), "nothing is left in the zone");
    let first = serial(&place.connect(&host).await.expect("the browser trusts it"));
    let preview =
        serial(&place.connect(&format!("abcdefghijkl--{slug}.edge.example.test")).await.expect("previews, too"));
    assert_eq!(first, preview);
    assert!(place.connect(&format!("a.{host}")).await.is_err(), "a wildcard covers one label");
    assert!(place.connect("edge.example.test").await.is_err());
    // Plain http leads to https.
    let plain = crate::tests::ask(&place.t, &host, "/", &[]).await;
    assert_eq!((plain.status, plain.header("location").to_owned()), (308, format!("https://{host}:{}/", place.tls)));
    place.finish().await;
}

/// The zone at the name server itself, with the key that it knows.
fn updated(settings: &mut Settings) {
    let (name, secret) = NameServer::KEY;
    settings.acme_dns = DnsDriver::Rfc2136;
    settings.acme_dns_zone = "example.test".into();
    settings.acme_dns_key_name = name.into();
    settings.acme_dns_secret_key = Some(secret.to_owned().into());
    settings.acme_dns_wait = Duration::ZERO;
}

async fn texts_of_challenge(place: &Place) -> Vec<String> {
    let resolver = kernel::ports::dns::Resolver::new(&[place.dns.address()]);
    resolver.texts("_acme-challenge.edge.example.test").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_server_that_takes_updates_proves_the_wildcard() {
    let place = Place::start_with(Challenge::Http01, &[], updated).await;
    place.t.run_jobs().await;
    let host = format!("{}.edge.example.test", place.app["slug"].as_str().unwrap());
    let first = serial(&place.connect(&host).await.expect("the browser trusts it"));
    assert_eq!(texts_of_challenge(&place).await, <[&str; 0]>::default(), "nothing is left in the zone");
    let preview = format!("abcdefghijkl--{host}");
    assert_eq!(first, serial(&place.connect(&preview).await.expect("previews, too")));
    // What a node left that died during an order is replaced by the next one.
    let zone = Zone::of(&place.t.janua).unwrap().expect("a zone");
    for value in ["left", "new"] {
        zone.put("_acme-challenge.edge.example.test", value).await.unwrap();
        assert_eq!(texts_of_challenge(&place).await, [value]);
    }
    zone.remove("_acme-challenge.edge.example.test", "new").await.unwrap();
    assert_eq!(texts_of_challenge(&place).await, <[&str; 0]>::default());
    place.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_name_server_refuses_orders_nothing_and_is_named() {
    let wrong = |change: fn(&mut Settings)| {
        move |settings: &mut Settings| {
            updated(settings);
            change(settings);
        }
    };
    let secret = |settings: &mut Settings| settings.acme_dns_secret_key = Some("d3Jvbmc=".to_owned().into());
    let place = Place::start_with(Challenge::Http01, &[], wrong(secret)).await;
    place.t.advance(Duration::from_secs(61));
    place.t.run_jobs().await;
    let (failed,): (String,) = place.t.janua.db.one("SELECT error FROM certificate", vec![]).await.unwrap();
    assert!(failed.contains("refused the update") && failed.contains("BadSig"), "{failed}");
    assert!(!failed.contains("d3Jvbmc"), "{failed}");
    assert_eq!(texts_of_challenge(&place).await, <[&str; 0]>::default());
    let host = format!("{}.edge.example.test", place.app["slug"].as_str().unwrap());
    assert!(place.connect(&host).await.is_err(), "there is no certificate");
    place.finish().await;
    let name = |settings: &mut Settings| settings.acme_dns_key_name = "stranger".into();
    let place = Place::start_with(Challenge::Http01, &[], wrong(name)).await;
    let zone = Zone::of(&place.t.janua).unwrap().expect("a zone");
    let refused = zone.put("_acme-challenge.edge.example.test", "x").await.err().expect("a refusal");
    assert!(refused.contains("refused the update") && refused.contains("BadKey"), "{refused}");
    place.finish().await;
}

/// Settings that cannot work stop the start, by their names.
#[test]
fn wrong_settings_of_a_zone_are_named() {
    let wrong = |change: fn(&mut Settings)| {
        let mut settings = <Settings as kernel::config::Section>::defaults();
        settings.acme_dns_server = Some(([127, 0, 0, 1], 53).into());
        updated(&mut settings);
        change(&mut settings);
        UpdatedZone::of(&settings).err().unwrap_or_default()
    };
    assert_eq!(wrong(|_| {}), "");
    assert!(wrong(|settings| settings.acme_dns_server = None).contains("needs acme_dns_server"));
    assert!(wrong(|settings| settings.acme_dns_zone = " ".into()).contains("needs acme_dns_zone"));
    assert!(wrong(|settings| settings.acme_dns_key_name = String::new()).contains("needs acme_dns_key_name"));
    assert!(wrong(|settings| settings.acme_dns_secret_key = None).contains("needs acme_dns_secret_key"));
    let secret = wrong(|settings| settings.acme_dns_secret_key = Some("hush!".to_owned().into()));
    assert!(
        secret.starts_with("acme_dns_secret_key: must be the key in base64") && !secret.contains("hush"),
        "{secret}"
    );
}

/// A program that answers in place of the name server, and has no key.
#[tokio::test]
async fn an_answer_without_a_signature_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = <Settings as kernel::config::Section>::defaults();
    settings.acme_dns_server = Some(listener.local_addr().unwrap());
    updated(&mut settings);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut asked).await.unwrap();
            // Its ID, a response to an update, no error, and nothing in it.
            let answer = [&[0, 12], &asked[..2], &[0b1010_1000, 0], &[0; 8]].concat();
            stream.write_all(&answer).await.unwrap();
        }
    });
    let zone = UpdatedZone::of(&settings).unwrap();
    let refused = zone.put("_acme-challenge.edge.example.test", "x").await.unwrap_err();
    assert!(refused.contains("is not signed as it must be"), "{refused}");
    let outside = zone.put("_acme-challenge.example.com", "x").await.unwrap_err();
    assert!(outside.contains("is not in the zone"), "{outside}");
}
