//! Clients that are no apps: those that describe themselves at an address, and those that register themselves; and what
//! all of them read first.
use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::*;

/// A real TLS server that hands out the files of a folder.
struct Host {
    folder: tempfile::TempDir,
    port: u16,
    server: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn openssl(folder: &Path, args: &str) -> Child {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(args.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("openssl")
}

impl Host {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let made = openssl(
            folder.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 \
             -subj /CN=client -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE",
        )
        .wait();
        assert!(made.expect("openssl").success());
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port").port();
        let args = format!("s_server -accept 127.0.0.1:{port} -cert cert.pem -key key.pem -HTTP");
        let server = openssl(folder.path(), &args);
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { folder, port, server }
    }

    fn address(&self, name: &str) -> String {
        format!("https://127.0.0.1:{}/{name}", self.port)
    }

    fn put(&self, name: &str, document: &Value) -> String {
        // The server sends a file as it is, with its head.
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{document}");
        fs::write(self.folder.path().join(name), answer).expect("a file");
        self.address(name)
    }

    fn describe(&self, name: &str) -> String {
        let id = self.address(name);
        self.put(name, &json!({ "client_id": id, "client_name": "Inspector", "redirect_uris": [REDIRECT] }))
    }

    fn config(&self) -> Config {
        let nets = vec!["127.0.0.0/8".parse().expect("a network")];
        Config { outgoing_ca: Some(self.folder.path().join("cert.pem")), ..Config::for_tests() }
            .with(|webhooks: &mut workshop::webhooks::Settings| webhooks.webhook_allow_nets = nets)
    }
}

#[tokio::test]
async fn a_client_that_describes_itself_is_shown_by_its_host() {
    let host = Host::start().await;
    let t = TestJanua::start_with(host.config(), feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let id = host.describe("client.json");
    let answer = authorize(&t, Some(&ada), &asked(&id, &[])).await;
    let browser = browser(&t, "ada@example.com").await;
    let page = visit(&t, answer.header("location"), &browser).await;
    let place = format!("<strong>127.0.0.1:{}</strong>", host.port);
    assert!(page.text.contains("Inspector") && page.text.contains(&place), "{}", page.text);
    let decided = decide(&t, &page, "allow", &browser).await;
    let given = redeem(&t, &id, &field(&decided, "code").expect("a code"), &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);
    assert_eq!((&claims(&given.body["id_token"])["aud"], &given.body["token_type"]), (&json!(id), &json!("Bearer")));
    assert_eq!(with_token(&t, "/oauth/userinfo", &text(&given.body["access_token"])).await.status, 200);
    // The session is the client's: it turns for it, and for nobody else.
    let refresh = text(&given.body["refresh_token"]);
    let own = client(&t, &ada, "App").await;
    let another = host.describe("other.json");
    assert_eq!(authorize(&t, Some(&ada), &asked(&another, &[])).await.status, 303);
    for other in [own.id.as_str(), &another] {
        let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", other)];
        assert_eq!(error_of(&form(&t, "/oauth/token", &grant, None).await), (400, "invalid_grant"), "{other}");
    }
    assert_eq!(identity::testing::refresh(&t, &refresh).await.status, 401);
    let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*id)];
    let turned = form(&t, "/oauth/token", &grant, None).await;
    assert_eq!(turned.status, 200, "{}", turned.text);
    // What needs a proof it cannot have.
    let inspect = [("token", turned.body["access_token"].as_str().unwrap()), ("client_id", &*id)];
    assert_eq!(error_of(&form(&t, "/oauth/introspect", &inspect, None).await), (401, "invalid_client"));
    let device =
        [("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), ("device_code", "x"), ("client_id", &*id)];
    assert_eq!(error_of(&form(&t, "/oauth/token", &device, None).await), (400, "unauthorized_client"));
    let gone = [("token", turned.body["refresh_token"].as_str().unwrap()), ("client_id", &*id)];
    assert_eq!(form(&t, "/oauth/revoke", &gone, None).await.status, 200);
    assert_eq!(with_token(&t, "/oauth/userinfo", inspect[0].1).await.status, 401);

    // It wants people sent elsewhere now: they are asked again.
    let elsewhere = "https://elsewhere.example/cb";
    host.put(
        "client.json",
        &json!({ "client_id": id, "client_name": "Inspector", "redirect_uris": [REDIRECT, elsewhere] }),
    );
    t.advance(Duration::from_mins(6));
    let moved =
        visit(&t, &format!("/oauth/authorize?{}", asked(&id, &[("redirect_uri", elsewhere)])), &browser).await;
    assert_eq!(sent(&moved).0, format!("{}/consent", base(&t)));
    // Read once, believed for a while, and read again; and only where somebody is sent here anew.
    fs::remove_file(host.folder.path().join("client.json")).expect("a file");
    assert!(field(&authorize(&t, Some(&ada), &asked(&id, &[])).await, "code").is_some());
    t.advance(Duration::from_mins(6));
    let ada = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    assert_eq!(authorize(&t, Some(&ada), &asked(&id, &[])).await.status, 400, "its address says nothing any more");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn what_is_no_description_makes_no_client() {
    let host = Host::start().await;
    let t = TestJanua::start_with(host.config(), feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let cases = [
        ("client_id", json!("https://127.0.0.1/x.json")),
        ("client_id", json!(null)),
        ("redirect_uris", json!([])),
        ("redirect_uris", json!(["javascript:alert(1)", REDIRECT])),
        ("redirect_uris", json!("https://app.example")),
        ("token_endpoint_auth_method", json!("client_secret_basic")),
        ("client_secret", json!("secret")),
    ];
    for (number, (field, value)) in cases.into_iter().enumerate() {
        let name = format!("{number}.json");
        let mut document = json!({ "client_id": host.address(&name), "redirect_uris": [REDIRECT] });
        document[field] = value;
        let id = host.put(&name, &document);
        let answer = authorize(&t, Some(&ada), &asked(&id, &[])).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{document}");
    }
    fs::write(host.folder.path().join("x.json"), "x".repeat(100_000)).expect("a file");
    for id in [host.address("x.json"), host.address("none.json"), "https://127.0.0.1:1/x.json".into()] {
        assert_eq!(authorize(&t, Some(&ada), &asked(&id, &[])).await.status, 400, "{id}");
    }
    let (kept,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM oauth_client", vec![]).await.expect("a count");
    assert_eq!(kept, 0);
    t.run_jobs().await;
    t.finish().await;

    // Nothing inside is ever asked, unless whoever runs the service says so; or nothing at all.
    let id = host.describe("client.json");
    for config in [
        host.config().with(|webhooks: &mut workshop::webhooks::Settings| webhooks.webhook_allow_nets.clear()),
        host.config()
            .with(|oauth: &mut identity::oauth::Settings| oauth.client_documents = kernel::config::Switch::Off),
    ] {
        let t = TestJanua::start_with(config, feature).await;
        let answer = authorize(&t, None, &asked(&id, &[])).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""));
        t.finish().await;
    }
}

#[tokio::test]
async fn clients_register_themselves_only_where_that_is_wanted() {
    let t = start().await;
    let body =
        json!({ "redirect_uris": [REDIRECT], "client_name": "Inspector", "token_endpoint_auth_method": "none" });
    assert_eq!(t.post("/oauth/register").json(&body).await.status, 404);
    assert_eq!(t.get("/.well-known/openid-configuration").await.body.get("registration_endpoint"), None);
    t.finish().await;

    let config = Config::for_tests()
        .with(|oauth: &mut identity::oauth::Settings| oauth.client_registration = kernel::config::Switch::On);
    let t = TestJanua::start_with(config, feature).await;
    let told = t.get("/.well-known/oauth-authorization-server").await.body;
    assert_eq!(told["registration_endpoint"], format!("{}/oauth/register", base(&t)));
    let made = t.post("/oauth/register").json(&body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!((&made.body["client_name"], made.body.get("client_secret")), (&json!("Inspector"), None));
    let ada = signed_in(&t, "ada@example.com").await;
    let id = text(&made.body["client_id"]);
    let answer = authorize(&t, Some(&ada), &asked(&id, &[])).await;
    assert_eq!(sent(&answer).0, format!("{}/consent", base(&t)), "it is nobody's own");
    for (field, value, error) in [
        ("redirect_uris", json!(["javascript:alert(1)"]), "invalid_redirect_uri"),
        ("grant_types", json!(["password"]), "invalid_client_metadata"),
        ("redirect_uris", json!([]), "invalid_redirect_uri"),
    ] {
        let mut wrong = body.clone();
        wrong[field] = value;
        assert_eq!(error_of(&t.post("/oauth/register").json(&wrong).await), (400, error), "{wrong}");
    }
    for _ in 0..19 {
        assert_eq!(t.post("/oauth/register").json(&body).await.status, 201);
    }
    assert_eq!(t.post("/oauth/register").json(&body).await.status, 429, "twenty an hour from one network");
    // Whom nobody let in is forgotten.
    t.advance(Duration::from_hours(24 * 8));
    t.run_jobs().await;
    let (kept,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM oauth_client", vec![]).await.expect("a count");
    assert_eq!(kept, 0);
    t.finish().await;
}

#[tokio::test]
async fn p17_discovery_says_what_is_there_and_nothing_else() {
    let t = start().await;
    let told = t.get("/.well-known/openid-configuration").await;
    assert_eq!(t.get("/.well-known/oauth-authorization-server").await.body, told.body);
    let told = told.body;
    assert_eq!(told["issuer"], base(&t));
    for (name, is) in [
        ("id_token_signing_alg_values_supported", json!(["RS256"])),
        ("code_challenge_methods_supported", json!(["S256"])),
        ("response_types_supported", json!(["code"])),
        ("subject_types_supported", json!(["public"])),
        ("scopes_supported", json!(["openid", "profile", "email", "offline_access"])),
        ("authorization_response_iss_parameter_supported", json!(true)),
    ] {
        assert_eq!(told[name], is, "{name}");
    }
    for (name, address) in told.as_object().expect("an object").iter().filter(|(name, _)| name.ends_with("_endpoint"))
    {
        let path = text(address).strip_prefix(&base(&t)).expect("ours").to_owned();
        let (got, posted) = (t.get(&path).await.status, t.post(&path).await.status);
        assert!(got != 404 && posted != 404 && (got, posted) != (405, 405), "{name}: {got}, {posted}");
    }
    let keys = t.get("/.well-known/jwks.json").await.body["keys"].clone();
    for key in keys.as_array().expect("keys") {
        assert!(["d", "p", "q", "dp", "dq", "qi"].iter().all(|part| key.get(part).is_none()));
        assert_eq!((&key["kty"], &key["alg"], &key["use"]), (&json!("RSA"), &json!("RS256"), &json!("sig")));
    }
    t.run_jobs().await;
    t.finish().await;
}
