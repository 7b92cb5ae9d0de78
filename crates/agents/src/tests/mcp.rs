//! MCP servers, their domains and the registry.
use std::time::Duration;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use axum::http::Method;
use data_encoding::BASE64;
use db::params;

use super::actors::*;

async fn start_with_names() -> (TestJanua, NameServer) {
    let names = NameServer::start().await;
    // Sessions live for months here: the tests wait for days.
    let config = Config { dns_servers: vec![names.address], ..Config::for_tests() };
    (TestJanua::start_with(config, feature).await, names)
}

async fn server(t: &TestJanua, person: &Person, more: Value) -> Answer {
    let mut body = json!({ "name": "weather", "domain": "example.test", "url": "https://mcp.example.test/mcp", "description": "The weather." });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    person.asks(t.post("/mcp/register").json(&body)).await
}

async fn verify(t: &TestJanua, person: &Person, id: &str, more: Value) -> Answer {
    let mut body = json!({ "id": id });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    person.asks(t.post("/mcp/verify").json(&body)).await
}

#[tokio::test]
async fn a_server_proves_its_domain_and_is_listed() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let made = server(&t, &ada, json!({ "version": "1.0.0", "title": "Weather", "scopes": ["forecast"] })).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["clientId"]);
    let credentials = json!({ "clientId": id, "clientSecret": made.body["clientSecret"] });
    let proof = &made.body["server"]["proof"];
    assert_eq!(proof["dns"]["name"], "_janua-mcp.example.test");
    let token = async || ada.asks(t.post("/mcp/token").json(&credentials)).await;
    assert_eq!(token().await.refusal(), (403, "not_verified"));
    assert_eq!(t.get("/v0.1/servers").await.body["servers"], json!([]));
    let wrong = verify(&t, &ada, &id, json!({ "method": "dns" })).await;
    assert_eq!(wrong.refusal(), (409, "proof_not_found"));
    names.set("_janua-mcp.example.test", &["janua-mcp=wrong"]);
    let wrong = verify(&t, &ada, &id, json!({ "method": "dns" })).await;
    assert_eq!((wrong.status, &wrong.body["found"]), (409, &json!(["janua-mcp=wrong"])), "{}", wrong.text);
    names.set("_janua-mcp.example.test", &[&text(&proof["dns"]["value"]), "other"]);
    let good = verify(&t, &ada, &id, json!({})).await;
    assert_eq!((good.status, &good.body["server"]["verification"]), (200, &json!("verified")), "{}", good.text);
    let issued = token().await;
    assert_eq!((issued.status, &issued.body["expiresIn"]), (200, &json!(3600)), "{}", issued.text);
    let access = text(&issued.body["accessToken"]);
    assert_eq!(me(&t, &access).await.body["type"], "mcp");
    t.expects(&["ORG_CREATED", "MCP_REGISTERED", "MCP_TOKEN_REFUSED", "MCP_VERIFIED", "MCP_TOKEN_ISSUED"]).await;
    assert_eq!(t.get("/verify/mcp/EXAMPLE.test").await.body, json!({ "verified": true }));
    assert_eq!(t.get("/verify/mcp/other.test").await.body, json!({ "verified": false }));
    let details = t.get("/verify/mcp/example.test?details=true").await.body;
    assert_eq!(details["servers"][0]["name"], "test.example/weather");
    assert_eq!(t.get("/verify/mcp/127.0.0.1").await.refusal(), (400, "invalid_domain"));

    let list = t.get("/v0.1/servers?search=weather&version=latest").await.body;
    assert_eq!(list["metadata"]["count"], 1, "{list}");
    let entry = &list["servers"][0];
    assert_eq!(
        (&entry["server"]["name"], &entry["server"]["version"]),
        (&json!("test.example/weather"), &json!("1.0.0"))
    );
    assert_eq!(entry["server"]["remotes"][0]["type"], "streamable-http");
    assert_eq!(entry["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"], true);
    let one = t.get("/v0.1/servers/test.example%2Fweather/versions/latest").await;
    assert_eq!(one.body["server"], entry["server"]);
    let missing = t.get("/v0.1/servers/test.example%2Fnone/versions").await;
    assert_eq!((missing.status, &missing.body["error"]), (404, &json!("not_found")));

    let path = format!("/mcp/{id}");
    let same = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "version": "1.0.0", "title": "Other" }))).await;
    assert_eq!(same.refusal(), (409, "version_exists"));
    let next = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "version": "1.1.0", "title": "Other" }))).await;
    assert_eq!(next.status, 200, "{}", next.text);
    let versions = t.get("/v0.1/servers/test.example%2Fweather/versions").await.body;
    assert_eq!(versions["metadata"]["count"], 2);
    let outside = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "url": "https://evil.test/" }))).await;
    assert_eq!(outside.refusal(), (400, "url_outside_domain"));

    let off = suspend(&t, &ada, &format!("{path}/revoke")).await;
    assert_eq!((off.status, &off.body["server"]["tokenStatus"]), (200, &json!("revoked")), "{}", off.text);
    assert_eq!(me(&t, &access).await.status, 401);
    assert_eq!(token().await.refusal(), (401, "invalid_credentials"), "the secret is dead");
    assert_eq!(t.get("/verify/mcp/example.test").await.body["verified"], false);
    let on = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "rotateSecret": true }))).await;
    assert_eq!((on.status, &on.body["server"]["tokenStatus"]), (200, &json!("active")), "{}", on.text);
    let credentials = json!({ "clientId": id, "clientSecret": on.body["clientSecret"] });
    assert_eq!(ada.asks(t.post("/mcp/token").json(&credentials)).await.status, 200);
    assert_eq!(me(&t, &access).await.status, 401, "dead stays dead");
    let log = ada.asks(t.get(&format!("{path}/logs"))).await;
    assert!(log.body["logs"].as_array().unwrap().len() >= 6, "{}", log.text);
    t.finish().await;
}

#[tokio::test]
async fn a_private_registry_is_read_by_a_key_in_its_url() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let made = server(&t, &ada, json!({ "version": "1", "visibility": "org" })).await;
    let (id, org) = (text(&made.body["clientId"]), text(&made.body["server"]["orgId"]));
    names.set("_janua-mcp.example.test", &[&text(&made.body["server"]["proof"]["dns"]["value"])]);
    assert_eq!(verify(&t, &ada, &id, json!({})).await.status, 200);
    assert_eq!(t.get("/v0.1/servers").await.body["metadata"]["count"], 0, "not in the public one");
    let key = ada.asks(t.post(&format!("/org/{org}/registry-keys")).json(&json!({ "name": "VS Code" }))).await;
    assert_eq!(key.status, 200, "{}", key.text);
    let url = text(&key.body["url"]);
    let base = url.strip_prefix(&t.janua.config.base_url()).unwrap();
    let list = t.get(&format!("{base}/v0.1/servers")).await;
    assert_eq!(
        (&list.body["metadata"]["count"], list.header("cache-control")),
        (&json!(1), "no-store"),
        "{}",
        list.text
    );
    assert_eq!(t.get(&format!("{base}/v0.1/servers/test.example%2Fweather/versions/1")).await.status, 200);
    assert_eq!(t.get("/registry/rk_none/v0.1/servers").await.status, 404);
    let listed = ada.asks(t.get(&format!("/org/{org}/registry-keys"))).await;
    assert!(!listed.text.contains(base.strip_prefix("/registry/").unwrap()), "shown once");
    let path = format!("/org/{org}/registry-keys/{}", text(&key.body["id"]));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(t.get(&format!("{base}/v0.1/servers")).await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn m15_a_public_record_needs_a_signature_over_our_text() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let record = format!("v=MCPv1; k=ed25519; p={}", BASE64.encode(key.public_key().as_ref()));
    names.set("example.test", &["v=spf1 -all", &record]);
    let made = server(&t, &ada, json!({})).await;
    let id = text(&made.body["clientId"]);
    let message = text(&made.body["server"]["proof"]["mcpv1"]["message"]);
    assert_eq!(
        verify(&t, &ada, &id, json!({ "method": "mcpv1" })).await.refusal(),
        (401, "bad_signature"),
        "finding it proves nothing"
    );
    let sign = |text: &str| BASE64.encode(key.sign(text.as_bytes()).as_ref());
    for wrong in
        ["2026-01-31T10:00:00Z".to_owned(), message.replace("localhost", "evil.example"), message.replace(&id, "x")]
    {
        let answer = verify(&t, &ada, &id, json!({ "method": "mcpv1", "signature": sign(&wrong) })).await;
        assert_eq!(answer.refusal(), (401, "bad_signature"), "{wrong}");
    }
    let good = verify(&t, &ada, &id, json!({ "signature": sign(&message) })).await;
    assert_eq!((good.status, &good.body["server"]["method"]), (200, &json!("mcpv1")), "{}", good.text);
    t.finish().await;
}

/// A server of Ada's on `example.test` that is proven by its record, with a version in the registry.
async fn proven(t: &TestJanua, names: &NameServer, ada: &Person) -> String {
    let made = server(t, ada, json!({ "version": "1.0.0" })).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["clientId"]);
    names.set("_janua-mcp.example.test", &[&text(&made.body["server"]["proof"]["dns"]["value"])]);
    assert_eq!(verify(t, ada, &id, json!({})).await.status, 200);
    id
}

async fn change(t: &TestJanua, person: &Person, id: &str, change: Value) -> Answer {
    person.asks(t.ask(Method::PATCH, &format!("/mcp/{id}")).json(&change)).await
}

/// The names and versions that the public registry lists.
async fn listed(t: &TestJanua) -> Vec<(String, String)> {
    let list = t.get("/v0.1/servers").await.body;
    let servers = list["servers"].as_array().unwrap().iter();
    servers.map(|entry| (text(&entry["server"]["name"]), text(&entry["server"]["version"]))).collect()
}

#[tokio::test]
async fn a_version_of_another_domain_is_never_listed() {
    let (t, names) = start_with_names().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let made =
        server(&t, &eve, json!({ "domain": "victim.test", "url": "https://victim.test/mcp", "version": "1.0.0" }));
    let id = text(&made.await.body["clientId"]);
    let moved = change(&t, &eve, &id, json!({ "domain": "example.test", "version": "1.0.1" })).await;
    assert_eq!(moved.status, 200, "{}", moved.text);
    names.set("_janua-mcp.example.test", &[&text(&moved.body["server"]["proof"]["dns"]["value"])]);
    assert_eq!(verify(&t, &eve, &id, json!({})).await.status, 200);
    assert_eq!(listed(&t).await, [("test.example/weather".into(), "1.0.1".into())]);
    // Not even a row that was there before.
    let sql = "INSERT INTO mcp_version (machine_id, version, document, published_at) VALUES ($1, '0.9', $2, 0)";
    let document = json!({ "name": "test.victim/weather", "version": "0.9", "description": "x" });
    t.janua.db.exec(sql, params![&id, &document]).await.unwrap();
    assert_eq!(listed(&t).await, [("test.example/weather".into(), "1.0.1".into())]);
    let versions = t.get("/v0.1/servers/test.example%2Fweather/versions").await;
    assert_eq!(versions.body["metadata"]["count"], 1, "{}", versions.text);
    assert_eq!(t.get("/v0.1/servers/test.example%2Fweather/versions/0.9").await.status, 404);
    // A name of the same organization is taken.
    let other = server(&t, &eve, json!({ "domain": "other.test", "url": null })).await;
    let taken = change(&t, &eve, &text(&other.body["clientId"]), json!({ "domain": "example.test" })).await;
    assert_eq!(taken.refusal(), (409, "name_taken"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_registry_leaves_out_expired_servers_and_those_of_disabled_owners() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let id = proven(&t, &names, &ada).await;
    assert_eq!(listed(&t).await.len(), 1);
    assert_eq!(change(&t, &ada, &id, json!({ "expiresAt": "2026-01-31T10:10:00.000Z" })).await.status, 200);
    t.advance(Duration::from_secs(601));
    assert_eq!(listed(&t).await, [], "expired");
    assert_eq!(change(&t, &ada, &id, json!({ "title": null })).await.status, 200);
    assert_eq!(listed(&t).await, [], "a missing field changes nothing");
    let cleared = change(&t, &ada, &id, json!({ "expiresAt": null })).await;
    assert_eq!((cleared.status, &cleared.body["server"]["expiresAt"]), (200, &Value::Null), "{}", cleared.text);
    assert_eq!(listed(&t).await.len(), 1, "null removes the expiry");
    t.janua.db.exec("UPDATE account SET disabled_at = 1", params![]).await.unwrap();
    assert_eq!(listed(&t).await, []);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m09_a_suspended_server_does_not_come_back_under_its_name() {
    let names = NameServer::start().await;
    let config = Config { dns_servers: vec![names.address], ..Config::for_tests() }
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    let (ada, root) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "root@example.com").await);
    let eve = signed_in(&t, "eve@example.com").await;
    let hers = server(&t, &eve, json!({})).await;
    let again = text(&hers.body["clientId"]);
    let id = proven(&t, &names, &ada).await;
    assert_eq!(suspend(&t, &root, &format!("/mcp/{id}/revoke")).await.status, 200);
    let refused = (403, "suspended_by_admin");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("/mcp/{id}"))).await.refusal(), refused);
    assert_eq!(change(&t, &ada, &id, json!({ "domain": "other.test" })).await.refusal(), refused);
    assert_eq!(change(&t, &ada, &id, json!({ "rotateSecret": true })).await.refusal(), refused);
    // A file would not prove another host: the server would be without its proof.
    let by = async |method: &str| {
        let sql = "UPDATE mcp_server SET method = $1 WHERE machine_id = $2";
        t.janua.db.exec(sql, params![method, id.as_str()]).await.unwrap();
    };
    by("http").await;
    let outside = json!({ "url": "https://mcp.example.test/mcp" });
    assert_eq!(change(&t, &ada, &id, outside).await.refusal(), refused);
    by("dns").await;
    assert_eq!(server(&t, &ada, json!({})).await.refusal(), (409, "name_taken"));
    // Nor in another organization, once the old record is gone.
    names.set("_janua-mcp.example.test", &[&text(&hers.body["server"]["proof"]["dns"]["value"])]);
    assert_eq!(verify(&t, &eve, &again, json!({})).await.refusal(), refused);
    // Nor when its organization is deleted.
    let wallet = EvmWallet::new(1);
    let (agent, _) = live_agent(&t, &ada, &wallet, json!({})).await;
    let seen = ada.asks(t.get(&format!("/agent/{agent}"))).await;
    assert_eq!(suspend(&t, &root, &format!("/agent/{agent}/suspend")).await.status, 200);
    let gone = ada.asks(t.ask(Method::DELETE, &format!("/org/{}", text(&seen.body["agent"]["orgId"])))).await;
    assert!(gone.status < 300, "{}", gone.text);
    assert_eq!(verify(&t, &eve, &again, json!({})).await.refusal(), refused);
    let claim = text(&register(&t, &eve, &wallet.address(), json!({})).await.body["agent"]["id"]);
    assert_eq!(agent_token(&t, &wallet, &claim).await.refusal(), refused);
    assert_eq!(listed(&t).await, []);
    t.advance(Duration::from_hours(24 * 401));
    t.run_jobs().await;
    let (count,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM suspended_name", params![]).await.unwrap();
    assert_eq!(count, 0, "after some time it may be in other hands");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn remotes_are_on_the_domain() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let id = proven(&t, &names, &ada).await;
    let remote = |url: &str| json!({ "version": "2.0.0", "remotes": [{ "type": "streamable-http", "url": url }] });
    for url in ["https://evil.test/mcp", "http://example.test/mcp", "{base}/mcp", "https://{host}.example.test/mcp"] {
        let outside = change(&t, &ada, &id, remote(url)).await;
        assert_eq!(outside.refusal(), (400, "url_outside_domain"), "{url}");
        assert_eq!(outside.body["errors"][0]["field"], "remotes.0.url");
    }
    let long = json!({ "repository": { "url": "x".repeat(17_000) } });
    assert_eq!(change(&t, &ada, &id, long).await.body["errors"][0]["field"], "repository");
    assert_eq!(change(&t, &ada, &id, remote("https://mcp.example.test/{tenant}/mcp")).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_file_proves_its_own_host_and_a_dead_site_lapses() {
    let Some(site) = Site::start("example.test", [127, 77, 16, 1]).await else {
        // Only root, or a system that lets anybody, listens on port 443.
        return;
    };
    let names = NameServer::start().await;
    names.place("example.test", site.address);
    let nets = vec!["127.0.0.0/8".parse().unwrap()];
    let config =
        Config { dns_servers: vec![names.address], outgoing_ca: Some(site.authority()), ..Config::for_tests() }
            .with(|webhooks: &mut workshop::webhooks::Settings| webhooks.webhook_allow_nets = nets);
    let t = TestJanua::start_with(config, feature).await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let made = server(&t, &ada, json!({ "url": "https://example.test/mcp", "version": "1.0.0" })).await;
    let id = text(&made.body["clientId"]);
    let by_file = async || verify(&t, &ada, &id, json!({ "method": "http" })).await;
    assert_eq!(by_file().await.refusal(), (409, "proof_not_found"), "no file");
    site.put(".well-known/janua-mcp", "janua-mcp=other");
    assert_eq!(by_file().await.body["found"], json!(["janua-mcp=other"]));
    site.put(".well-known/janua-mcp", &format!("{}\n", text(&made.body["server"]["proof"]["http"]["body"])));
    let good = by_file().await;
    assert_eq!((good.status, &good.body["server"]["method"]), (200, &json!("http")), "{}", good.text);
    assert_eq!(listed(&t).await.len(), 1);

    // A URL or a remote on another host is not proven by it.
    let state = async || text(&ada.asks(t.get(&format!("/mcp/{id}"))).await.body["server"]["verification"]);
    let same = change(&t, &ada, &id, json!({ "url": "https://example.test/v2/mcp", "version": "1.0.1" })).await;
    assert_eq!((same.status, state().await.as_str()), (200, "verified"), "{}", same.text);
    let moved = change(&t, &ada, &id, json!({ "url": "https://mcp.example.test/mcp", "version": "1.1.0" })).await;
    assert_eq!((moved.status, state().await.as_str()), (200, "pending"), "{}", moved.text);
    assert_eq!(by_file().await.refusal(), (400, "url_outside_domain"));
    let back = json!({ "url": "https://example.test/mcp", "version": "1.2.0" });
    assert_eq!(change(&t, &ada, &id, back).await.status, 200);
    assert_eq!(by_file().await.status, 200);
    let shown: Vec<_> = listed(&t).await.into_iter().map(|(_, version)| version).collect();
    assert_eq!(shown, ["1.0.0", "1.0.1", "1.2.0"], "and not the version on the other host");
    let remotes = json!([{ "type": "sse", "url": "https://sse.example.test/" }]);
    assert_eq!(change(&t, &ada, &id, json!({ "remotes": remotes, "version": "1.3.0" })).await.status, 200);
    assert_eq!(state().await, "pending");
    let back = json!({ "remotes": [], "version": "1.4.0" });
    assert_eq!(change(&t, &ada, &id, back).await.status, 200);
    assert_eq!(by_file().await.status, 200);

    // The site is gone: another organization takes the domain over by a record, and it lapses for its own part.
    drop(site);
    for day in 1..=3 {
        t.advance(Duration::from_hours(25));
        t.run_jobs().await;
        let failures: (i64,) = t.janua.db.one("SELECT failures FROM mcp_server", params![]).await.unwrap();
        assert_eq!(failures.0, day);
    }
    let bob = {
        drop(bob);
        Person::of(&login(&t, "bob@example.com", PASSWORD).await)
    };
    let his = server(&t, &bob, json!({ "name": "tides" })).await;
    assert_eq!(his.status, 200, "{}", his.text);
    names.set("_janua-mcp.example.test", &[&text(&his.body["server"]["proof"]["dns"]["value"])]);
    let taken = verify(&t, &bob, &text(&his.body["clientId"]), json!({})).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    let (proof,): (String,) =
        t.janua.db.one("SELECT proof FROM mcp_server WHERE machine_id = $1", params![&id]).await.unwrap();
    assert_eq!(proof, "superseded");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_of_the_organization_proves_its_domain() {
    let (t, _names) = start_with_names().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let app = ada.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
    let sql =
        "INSERT INTO app_domain (id, app_id, org_id, domain, token, status, status_since, created_at, verified_at)
               SELECT 'd', app.id, app.org_id, 'example.test', 't', 'active', 0, 0, 0 FROM app WHERE app.id = $1";
    t.janua.db.exec(sql, params![text(&app.body["id"])]).await.unwrap();
    let theirs = text(&server(&t, &eve, json!({})).await.body["clientId"]);
    let refused = verify(&t, &eve, &theirs, json!({ "method": "app" })).await;
    assert_eq!(refused.refusal(), (409, "proof_not_found"), "the app of another organization");
    let id = text(&server(&t, &ada, json!({ "version": "1.0.0" })).await.body["clientId"]);
    let good = verify(&t, &ada, &id, json!({})).await;
    assert_eq!((good.status, &good.body["server"]["method"]), (200, &json!("app")), "{}", good.text);
    assert_eq!(listed(&t).await.len(), 1, "a subdomain too");
    t.janua.db.exec("UPDATE app_domain SET verified_at = NULL", params![]).await.unwrap();
    t.advance(Duration::from_hours(25));
    t.run_jobs().await;
    let (failures,): (i64,) =
        t.janua.db.one("SELECT failures FROM mcp_server WHERE machine_id = $1", params![&id]).await.unwrap();
    assert_eq!(failures, 1);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m15_a_key_on_p384_signs_too() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    let record = format!("v=MCPv1; k=ecdsap384; p={}", BASE64.encode(key.public_key().as_ref()));
    names.set("example.test", &[&record]);
    let made = server(&t, &ada, json!({})).await;
    let id = text(&made.body["clientId"]);
    let message = text(&made.body["server"]["proof"]["mcpv1"]["message"]);
    let sign = |text: &str| BASE64.encode(key.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref());
    let wrong = verify(&t, &ada, &id, json!({ "signature": sign("other") })).await;
    assert_eq!(wrong.refusal(), (401, "bad_signature"));
    let good = verify(&t, &ada, &id, json!({ "signature": sign(&message) })).await;
    assert_eq!((good.status, &good.body["server"]["method"]), (200, &json!("mcpv1")), "{}", good.text);
    t.finish().await;
}

#[tokio::test]
async fn a_restore_ends_tokens_secrets_and_registry_keys() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let id = proven(&t, &names, &ada).await;
    let helper = framework(&t, &ada, json!({})).await;
    let token = framework_token(&t, &helper).await;
    let seen = ada.asks(t.get(&format!("/mcp/{id}"))).await;
    let org = text(&seen.body["server"]["orgId"]);
    let key = ada.asks(t.post(&format!("/org/{org}/registry-keys")).json(&json!({ "name": "VS Code" }))).await;
    let url = text(&key.body["url"]);
    let registry = format!("{}/v0.1/servers", url.strip_prefix(&t.janua.config.base_url()).unwrap());
    assert_eq!((me(&t, &token).await.status, t.get(&registry).await.status), (200, 200));
    tenancy::restored::end(&t.janua, tenancy::restored::Keys::Keep).await.unwrap();
    assert_eq!(t.get(&registry).await.status, 200, "an operator can keep keys");
    assert_eq!(me(&t, &token).await.status, 401, "tokens end all the same");
    let token = framework_token(&t, &helper).await;
    let ended = tenancy::restored::end(&t.janua, tenancy::restored::Keys::End).await.unwrap();
    assert_eq!((ended.machine_secrets, ended.registry_keys), (3, 1), "two secrets and a kill switch");
    assert_eq!(me(&t, &token).await.status, 401);
    let fields = [("grant_type", "client_credentials"), ("client_id", &helper.id), ("client_secret", &helper.secret)];
    assert_eq!(oauth(&t, "/oauth/token", &fields).await.status, 401);
    assert_eq!(t.get(&registry).await.status, 404);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m16_a_file_is_never_fetched_from_inside() {
    let (t, _names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let made = server(&t, &ada, json!({ "url": null })).await;
    let id = text(&made.body["clientId"]);
    let answer = verify(&t, &ada, &id, json!({ "method": "http" })).await;
    assert_eq!(answer.refusal(), (502, "site_unavailable"), "{}", answer.text);
    t.finish().await;
}

#[tokio::test]
async fn m17_domains_have_one_form() {
    let (t, _names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    for wrong in [
        "127.0.0.1",
        "example.test:8080",
        "user@example.test",
        "co.uk",
        "com",
        "localhost",
        "https://example.test",
        "a..test",
        "exa mple.test",
        "::1",
        "",
    ] {
        let answer = server(&t, &ada, json!({ "domain": wrong, "url": null })).await;
        assert_eq!(answer.refusal(), (400, "invalid_domain"), "{wrong}");
    }
    for (number, (written, expected)) in [
        ("EXAMPLE.test.", "example.test"),
        ("b\u{fc}cher.test", "xn--bcher-kva.test"),
        ("ex\u{430}mple.test", "xn--exmple-4nf.test"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = server(&t, &ada, json!({ "domain": written, "url": null, "name": format!("n{number}") })).await;
        assert_eq!((answer.status, &answer.body["server"]["domain"]), (200, &json!(expected)), "{}", answer.text);
    }
    for wrong in ["Weather", "", ".x", "a/b", "a b"] {
        assert_eq!(server(&t, &ada, json!({ "name": wrong })).await.refusal(), (400, "invalid_name"), "{wrong}");
    }
    assert_eq!(
        server(&t, &ada, json!({ "url": "http://example.test/" })).await.refusal(),
        (400, "url_outside_domain")
    );
    assert_eq!(
        server(&t, &ada, json!({ "url": "https://notexample.test/" })).await.refusal(),
        (400, "url_outside_domain")
    );
    t.finish().await;
}

#[tokio::test]
async fn m18_a_proof_that_is_gone_lapses_and_another_takes_over_only_then() {
    let (t, names) = start_with_names().await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let (hers, his) = (server(&t, &ada, json!({})).await, server(&t, &bob, json!({})).await);
    let [hers_id, his_id] = [&hers, &his].map(|made| text(&made.body["clientId"]));
    let [hers_token, his_token] = [&hers, &his].map(|made| text(&made.body["server"]["proof"]["dns"]["value"]));
    names.set("_janua-mcp.example.test", &[&hers_token, &his_token]);
    assert_eq!(verify(&t, &ada, &hers_id, json!({})).await.status, 200);
    assert_eq!(verify(&t, &bob, &his_id, json!({})).await.refusal(), (409, "domain_taken"), "while hers stands");
    let again = server(&t, &bob, json!({ "name": "weather" })).await;
    assert_eq!(again.refusal(), (409, "name_taken"));

    let state = async || -> (String, i64) {
        let found: (String,) =
            t.janua.db.one("SELECT proof FROM mcp_server WHERE machine_id = $1", params![&hers_id]).await.unwrap();
        let failures: (i64,) =
            t.janua.db.one("SELECT failures FROM mcp_server WHERE machine_id = $1", params![&hers_id]).await.unwrap();
        (found.0, failures.0)
    };
    names.fail(true);
    for _ in 0..5 {
        t.advance(Duration::from_hours(25));
        t.run_jobs().await;
    }
    assert_eq!(state().await, ("verified".into(), 0), "a name server that fails says nothing");
    names.fail(false);
    names.set("_janua-mcp.example.test", &[]);
    let mails = t.mailbox.mails().len();
    for day in 1..=3 {
        t.advance(Duration::from_hours(25));
        t.run_jobs().await;
        assert_eq!(state().await, ("verified".into(), day));
    }
    assert_eq!(t.mailbox.mails().len() - mails, 1, "a mail at the first failure");
    t.advance(Duration::from_hours(25));
    t.run_jobs().await;
    assert_eq!(state().await.0, "lapsed");
    assert_eq!(t.get("/verify/mcp/example.test").await.body["verified"], false);

    // Hers comes back, goes, and his takes over at that moment.
    names.set("_janua-mcp.example.test", &[&hers_token]);
    let (ada, bob) = (
        Person::of(&login(&t, "ada@example.com", PASSWORD).await),
        Person::of(&login(&t, "bob@example.com", PASSWORD).await),
    );
    assert_eq!(verify(&t, &ada, &hers_id, json!({})).await.status, 200);
    names.set("_janua-mcp.example.test", &[&his_token]);
    let taken = verify(&t, &bob, &his_id, json!({})).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    assert_eq!(state().await.0, "superseded");
    let (count,): (i64,) = t
        .janua
        .db
        .one("SELECT CAST(COUNT(*) AS BIGINT) FROM mcp_server WHERE proof = 'verified'", params![])
        .await
        .unwrap();
    assert_eq!(count, 1, "one holder");
    t.run_jobs().await;
    t.finish().await;
}

/// What the description of the registry's API requires of an answer (version 2025-12-01).
fn registry_schema() -> Value {
    let text = |least: u32, most: u32| json!({ "type": "string", "minLength": least, "maxLength": most });
    let url = json!({ "type": "string", "pattern": r"^(https?://[^\s]+|\{[a-zA-Z_][a-zA-Z0-9_]*\}[^\s]*)$" });
    let moment = json!({ "type": "string", "format": "date-time" });
    let pair = json!({ "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } });
    let http = json!({ "type": "object", "required": ["type", "url"], "properties": {
        "type": { "enum": ["streamable-http", "sse"] }, "url": url, "headers": { "type": "array", "items": pair } } });
    let stdio = json!({ "type": "object", "required": ["type"], "properties": { "type": { "enum": ["stdio"] } } });
    let package = json!({ "type": "object", "required": ["registryType", "identifier", "transport"], "properties": {
        "registryType": { "type": "string" }, "identifier": { "type": "string" },
        "registryBaseUrl": { "type": "string", "format": "uri" },
        "version": { "type": "string", "minLength": 1, "not": { "const": "latest" } },
        "fileSha256": { "type": "string", "pattern": "^[a-f0-9]{64}$" },
        "transport": { "anyOf": [stdio, http] }, "environmentVariables": { "type": "array", "items": pair } } });
    let repository = json!({ "type": "object", "required": ["url", "source"], "properties": {
        "url": { "type": "string", "format": "uri" }, "source": { "type": "string" }, "id": { "type": "string" } } });
    let server = json!({ "type": "object", "required": ["name", "description", "version"], "properties": {
        "name": { "type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$" },
        "description": text(1, 100), "title": text(1, 100), "version": text(1, 255),
        "$schema": { "type": "string", "format": "uri" }, "repository": repository,
        "packages": { "type": "array", "items": package }, "remotes": { "type": "array", "items": http } } });
    let official = json!({ "type": "object", "additionalProperties": false, "properties": {
        "status": { "enum": ["active", "deprecated", "deleted"] }, "statusMessage": text(0, 500),
        "statusChangedAt": moment, "publishedAt": moment, "updatedAt": moment, "isLatest": { "type": "boolean" } } });
    let entry = json!({ "type": "object", "required": ["server"], "properties": { "server": server,
        "_meta": { "type": "object", "properties": { "io.modelcontextprotocol.registry/official": official } } } });
    json!({ "type": "object", "required": ["servers"], "properties": {
        "servers": { "type": "array", "items": entry },
        "metadata": { "type": "object", "properties": {
            "nextCursor": { "type": "string" }, "count": { "type": "integer" } } } } })
}

#[tokio::test]
async fn the_registry_answers_what_its_description_requires() {
    let (t, names) = start_with_names().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wrong =
        json!({ "version": "1.x", "packages": [{ "registryType": "npm" }], "remotes": [{ "type": "stdio" }] });
    assert_eq!(server(&t, &ada, wrong).await.status, 400);
    let wrong = json!({ "packages": [{ "registryType": "npm" }], "remotes": [{ "type": "stdio" }] });
    let wrong = server(&t, &ada, wrong).await;
    assert_eq!(wrong.wrong_fields(), ["packages.0.identifier", "packages.0.transport", "remotes.0.type"]);
    let full = json!({
        "version": "1.0.0", "title": "Weather", "description": "Forecasts", "url": "https://example.test/mcp",
        "packages": [{ "registryType": "npm", "identifier": "@example/weather", "version": "1.0.0",
                       "transport": { "type": "stdio" }, "environmentVariables": [{ "name": "KEY", "isSecret": true }] }],
        "repository": { "url": "https://github.com/example/weather", "source": "github", "id": "7" },
    });
    let made = server(&t, &ada, full).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["clientId"]);
    names.set("_janua-mcp.example.test", &[&text(&made.body["server"]["proof"]["dns"]["value"])]);
    assert_eq!(verify(&t, &ada, &id, json!({})).await.status, 200);
    let next = json!({ "version": "1.1.0", "title": "Weather and tides" });
    assert_eq!(ada.asks(t.ask(Method::PATCH, &format!("/mcp/{id}")).json(&next)).await.status, 200);

    let schema = registry_schema();
    let list = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let entry = schema["properties"]["servers"]["items"].clone();
    let entry = jsonschema::options().should_validate_formats(true).build(&entry).unwrap();
    for path in ["/v0.1/servers", "/v0.1/servers?limit=1", "/v0.1/servers/test.example%2Fweather/versions"] {
        let answer = t.get(path).await.body;
        let wrong: Vec<_> = list.iter_errors(&answer).map(|error| error.to_string()).collect();
        assert_eq!(wrong, Vec::<String>::new(), "{path}: {answer}");
        assert!(!answer["servers"].as_array().unwrap().is_empty(), "{path}");
    }
    let one = t.get("/v0.1/servers/test.example%2Fweather/versions/latest").await.body;
    assert!(entry.is_valid(&one), "{one}");
    assert_eq!(one["server"]["version"], "1.1.0");
    t.finish().await;
}

struct Step {
    detail: String,
}
db::row!(Step { detail });

/// Agents and framework agents are listed by the same statements.
#[tokio::test]
async fn lists_are_read_along_an_index() {
    let t = start().await;
    // PostgreSQL chooses by the size of a table, and there is nothing in this one.
    if std::env::var("TEST_DATABASE_URL").is_err() {
        for (sql, index) in crate::mcp::model::LIST.into_iter().zip(["machine_of_owner", "machine_of_org"]) {
            let sql: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
            let steps: Vec<Step> = t.janua.db.all(sql, params!["", "", "", 0_i64, 0_i64, "", 5_i64]).await.unwrap();
            let plan = steps.into_iter().map(|step| step.detail).collect::<Vec<_>>().join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
    t.finish().await;
}
