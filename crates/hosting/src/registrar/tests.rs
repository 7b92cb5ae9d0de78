//! The registrar through its front door: the sandbox, and Route 53 Domains against a server that plays it.
use std::time::Duration;

use identity::testing::{Person, signed_in};
use kernel::testing::{Answer, TestJanua, join_all};
use serde_json::{Value, json};

use crate::tests::{feature, id, make_app};

async fn start() -> (TestJanua, Person, Value) {
    let t = TestJanua::start(feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "Shop").await;
    t.happened().await;
    (t, ada, app)
}

fn wanted(app: &Value, domain: &str, amount: i64) -> Value {
    json!({
        "domain": domain, "orgId": app["orgId"], "appId": app["id"], "years": 2, "acceptTerms": true,
        "price": { "amount": amount, "currency": "USD" },
        "contact": {
            "firstName": "Ada", "lastName": "Lovelace", "email": "ada@example.com", "phone": "+49.15112345678",
            "addressLine1": "Street 1", "city": "Berlin", "zipCode": "10115", "countryCode": "DE"
        }
    })
}

async fn buy(t: &TestJanua, who: &Person, body: &Value, key: &str) -> Answer {
    who.asks(t.post("/domains/register").json(body)).header("idempotency-key", key).await
}

#[tokio::test]
async fn the_sandbox_answers_by_the_beginning_of_a_name() {
    let (t, ada, _) = start().await;
    let ask = async |domain: &str| ada.asks(t.get(&format!("/domains/availability?domain={domain}"))).await;
    for (domain, status, registrable) in [
        ("new-shop.com", "available", true),
        ("taken-shop.com", "unavailable", false),
        ("premium-shop.com", "premium", false),
        ("away-shop.com", "unknown", false),
    ] {
        let said = ask(domain).await.body;
        assert_eq!((&said["status"], &said["registrable"]), (&json!(status), &json!(registrable)), "{said}");
        assert_eq!(said["source"], "sandbox");
    }
    for wrong in ["shop.new-shop.com", "co.uk", "localhost", "127.0.0.1"] {
        assert_eq!(ask(wrong).await.refusal(), (400, "invalid_domain"), "{wrong}");
    }
    let many = join_all((0..30).map(|_| ask("many-shop.com"))).await;
    let refused = many.iter().filter(|answer| answer.status == 429).count();
    assert_eq!(refused, 4, "thirty a minute, with the four before, however many ask at once");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w27_one_purchase_whatever_is_repeated() {
    let (t, ada, app) = start().await;
    let body = wanted(&app, "new-shop.com", 2400);
    let without = ada.asks(t.post("/domains/register").json(&body)).await;
    if std::env::var_os("TEST_KEYS").is_none() {
        assert_eq!(without.refusal(), (400, "idempotency_key_required"));
    }
    let cheap = buy(&t, &ada, &wanted(&app, "new-shop.com", 1), "cheap").await;
    assert_eq!((cheap.refusal(), &cheap.body["price"]["amount"]), ((409, "price_changed"), &json!(2400)));
    assert_eq!(
        buy(&t, &ada, &wanted(&app, "taken-a.com", 2400), "taken").await.refusal(),
        (409, "domain_unavailable")
    );
    assert_eq!(
        buy(&t, &ada, &wanted(&app, "away-a.com", 2400), "away").await.refusal(),
        (503, "registrar_unavailable")
    );

    let same = join_all((0..8).map(|_| buy(&t, &ada, &body, "one"))).await;
    let others = join_all((0..8).map(|n| {
        let key = format!("other {n}");
        let (t, ada, body) = (&t, &ada, &body);
        async move { buy(t, ada, body, &key).await }
    }))
    .await;
    let done: Vec<&Answer> = same.iter().filter(|answer| answer.status == 202).collect();
    assert!(
        !done.is_empty() && done.iter().all(|answer| answer.body["operationId"] == done[0].body["operationId"]),
        "{same:?}"
    );
    assert!(others.iter().all(|answer| answer.refusal() == (409, "registration_in_progress")), "{others:?}");
    let (n,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM domain_registration", vec![]).await.unwrap();
    assert_eq!(n, 1, "one purchase");
    t.run_jobs().await;
    t.advance(Duration::from_secs(61));
    t.run_jobs().await;
    let path = format!("/domains/register/{}", done[0].body["operationId"].as_str().unwrap());
    let ended = ada.asks(t.get(&path)).await.body;
    assert_eq!((&ended["status"], ended["expiresAt"].is_string()), (&json!("succeeded"), true), "{ended}");
    let happened = t.happened().await;
    let wanted = ["DOMAIN_REGISTRATION_REQUESTED", "DOMAIN_REGISTRATION_SUCCEEDED", "DOMAIN_ADDED"];
    assert_eq!(happened, wanted);
    let onboarding = format!("/domains/onboard/{}/new-shop.com", id(&app));
    assert_eq!(ada.asks(t.get(&onboarding)).await.body["status"], "pending_ownership", "onboarding has begun");
    let kept: Option<(Vec<u8>,)> =
        t.janua.db.opt("SELECT contact FROM domain_registration WHERE contact IS NOT NULL", vec![]).await.unwrap();
    assert!(kept.is_none(), "who it is for is forgotten");
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    assert_eq!(
        buy(&t, &eve, &super::tests::wanted(&app, "eve-shop.com", 2400), "eve").await.refusal(),
        (404, "not_found")
    );
    // A stale proof.
    t.advance(Duration::from_mins(11));
    let stale = buy(&t, &ada, &super::tests::wanted(&app, "late-shop.com", 2400), "late").await;
    assert_eq!(stale.refusal(), (403, "reauthentication_required"), "{}", stale.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_purchase_that_fails_or_takes_long_says_so() {
    let (t, ada, app) = start().await;
    for (domain, status) in
        [("fail-shop.com", "failed"), ("action-shop.com", "action_required"), ("slow-shop.com", "in_progress")]
    {
        let made = buy(&t, &ada, &wanted(&app, domain, 2400), domain).await;
        assert_eq!(made.status, 202, "{}", made.text);
        t.run_jobs().await;
        t.advance(Duration::from_secs(61));
        t.run_jobs().await;
        let path = format!("/domains/register/{}", made.body["operationId"].as_str().unwrap());
        assert_eq!(ada.asks(t.get(&path)).await.body["status"], status, "{domain}");
    }
    let again = buy(&t, &ada, &wanted(&app, "fail-shop.com", 2400), "again").await;
    assert_eq!(again.status, 202, "what failed can be tried again");
    t.run_jobs().await;
    t.advance(Duration::from_secs(61));
    t.run_jobs().await;
    t.finish().await;
}

/// A server that plays Route 53 Domains: it counts purchases and can drop an answer after it has bought.
#[derive(Clone, Default)]
struct Amazon(std::sync::Arc<std::sync::Mutex<Played>>);

#[derive(Default)]
struct Played {
    purchases: Vec<String>,
    calls: Vec<String>,
    drops_answers: bool,
}

impl Amazon {
    async fn start(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, amazon) = (listener.local_addr().unwrap().port(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(amazon.clone().serve(stream));
            }
        });
        port
    }

    async fn serve(self, mut stream: tokio::net::TcpStream) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut read = vec![];
        let (head, body) = loop {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).await.unwrap_or(0);
            if n == 0 {
                return;
            }
            read.extend_from_slice(&part[..n]);
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                break (head, body.to_owned());
            }
        };
        let Some((status, answer)) = self.answer(&head, &serde_json::from_str(&body).unwrap_or_default()) else {
            return;
        };
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
        let _ = stream.write_all((head + &answer).as_bytes()).await;
    }

    fn answer(&self, head: &str, input: &Value) -> Option<(u16, Value)> {
        assert!(head.contains("authorization: aws4-hmac-sha256 credential=akid/"), "{head}");
        assert!(head.contains("signedheaders=content-type;host;x-amz-date;x-amz-target"), "{head}");
        let operation = head.split("route53domains_v20140515.").nth(1).unwrap().lines().next().unwrap().to_owned();
        let mut played = self.0.lock().unwrap();
        played.calls.push(operation.clone());
        let domain = input["DomainName"].as_str().unwrap_or_default().to_owned();
        Some(match operation.as_str() {
            "checkdomainavailability" => (200, json!({ "Availability": "AVAILABLE" })),
            "listprices" => (
                200,
                json!({ "Prices": [{ "Name": "com", "RegistrationPrice": { "Price": 13.0, "Currency": "USD" } }] }),
            ),
            "registerdomain" => {
                assert_eq!(input["RegistrantContact"]["LastName"], "Lovelace");
                if played.purchases.contains(&domain) {
                    return Some((400, json!({ "__type": "com.amazon#DuplicateRequest", "message": "again" })));
                }
                played.purchases.push(domain);
                if played.drops_answers {
                    return None;
                }
                (200, json!({ "OperationId": "op-1" }))
            }
            "listoperations" => {
                let all: Vec<Value> = played
                    .purchases
                    .iter()
                    .map(|domain| json!({ "OperationId": "op-1", "DomainName": domain, "Type": "REGISTER_DOMAIN" }))
                    .collect();
                (200, json!({ "Operations": all }))
            }
            "getoperationdetail" => (200, json!({ "Status": "SUCCESSFUL" })),
            "getdomaindetail" if played.purchases.contains(&domain) => {
                (200, json!({ "ExpirationDate": 1_900_000_000 }))
            }
            _ => (400, json!({ "__type": "InvalidInput", "message": "no" })),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn route53_is_asked_to_buy_once_even_when_its_answer_is_lost() {
    let amazon = Amazon::default();
    let port = amazon.start().await;
    let config = kernel::config::Config::for_tests().with(|settings: &mut crate::Settings| {
        settings.registrar = crate::settings::RegistrarKind::Route53;
        settings.registrar_url = Some(format!("http://127.0.0.1:{port}/").parse().unwrap());
        settings.registrar_access_key = Some("AKID".to_owned().into());
        settings.registrar_secret_key = Some("secret".to_owned().into());
    });
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = make_app(&t, &ada, "Shop").await;
    let said = ada.asks(t.get("/domains/availability?domain=lost-shop.com")).await.body;
    assert_eq!(
        (&said["status"], &said["price"]["amount"], &said["source"]),
        (&json!("available"), &json!(1300), &json!("registrar"))
    );
    amazon.0.lock().unwrap().drops_answers = true;
    let made = buy(&t, &ada, &wanted(&app, "lost-shop.com", 2600), "lost").await;
    assert_eq!(made.status, 202, "{}", made.text);
    for _ in 0..4 {
        t.run_jobs().await;
        t.advance(Duration::from_secs(61));
    }
    let path = format!("/domains/register/{}", made.body["operationId"].as_str().unwrap());
    let ended = ada.asks(t.get(&path)).await.body;
    assert_eq!((&ended["status"], ended["expiresAt"].is_string()), (&json!("succeeded"), true), "{ended}");
    {
        let played = amazon.0.lock().unwrap();
        assert_eq!(played.purchases, ["lost-shop.com"]);
        assert_eq!(played.calls.iter().filter(|call| *call == "registerdomain").count(), 1, "{:?}", played.calls);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn route53_registers_finds_and_follows_at_a_published_stand_in() {
    let moto = crate::tests::moto::Moto::start().await;
    let config = kernel::config::Config::for_tests().with(|settings: &mut crate::Settings| {
        settings.registrar_url = Some(format!("http://127.0.0.1:{}/", moto.port).parse().unwrap());
        settings.registrar_access_key = Some("AKID".to_owned().into());
        settings.registrar_secret_key = Some("secret".to_owned().into());
    });
    let driver: &dyn super::Registrar = &super::route53::Route53::new(&config.of::<crate::Settings>());
    let entropy = kernel::entropy::Entropy::seeded(1);
    let now = kernel::testing::START;
    let purchase = super::Registration {
        id: kernel::id::Id::new(&entropy, now),
        org_id: kernel::id::Id::new(&entropy, now),
        app_id: None,
        domain: "moto-shop.com".into(),
        // It knows no registrations for one year.
        years: 2,
        auto_renew: true,
        privacy: true,
        price: 2600,
        currency: "USD".into(),
        contact: None,
        status: super::model::RegistrationStatus::Submitted,
        message: None,
        is_open: true,
        operation: None,
        created_at: now,
        updated_at: now,
        expires_at: None,
    };
    let contact: super::Contact = serde_json::from_value(json!({
        "firstName": "Ada", "lastName": "Lovelace", "email": "ada@example.com", "phone": "+49.15112345678",
        "addressLine1": "Street 1", "city": "Berlin", "zipCode": "10115", "countryCode": "DE",
    }))
    .unwrap();
    assert_eq!(driver.find("moto-shop.com").await.unwrap(), None, "nobody has bought it yet");
    let begun = driver.register(&purchase, &contact).await.unwrap();
    let super::Progress::Running(operation) = begun else { panic!("{begun:?}") };
    let found = driver.find("moto-shop.com").await.unwrap();
    assert_eq!(found, Some(super::Progress::Running(operation.clone())), "as after a lost answer");
    let stands = driver.poll(&purchase, &operation).await.unwrap();
    assert!(matches!(stands, super::Progress::Succeeded { .. }), "{stands:?}");
    let again = driver.register(&purchase, &contact).await.unwrap();
    assert!(!matches!(again, super::Progress::Running(ref other) if *other != operation), "no second one: {again:?}");
}
