//! Machines that read skills over MCP with tokens of their own.
use ed25519_dalek::{Signer as _, SigningKey};

use super::actors::*;

const PDF: &str = "skill://acme/pdf-tools/SKILL.md";
const CSV: &str = "skill://globex/csv/SKILL.md";
const NOTES: &str = "skill://initech/notes/SKILL.md";
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

async fn ask(t: &TestJanua, token: &str, method: &str, params: Value) -> Answer {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    t.post("/mcp").header("authorization", &format!("Bearer {token}")).json(&body).await
}

/// The URIs of the skills that a token opens.
async fn skills(t: &TestJanua, token: &str) -> Vec<String> {
    let answer = ask(t, token, "skills/list", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["result"]["skills"].as_array().unwrap().iter().map(|skill| text(&skill["uri"])).collect()
}

async fn made(t: &TestJanua, person: &Person, path: &str, body: Value) -> Value {
    let made = person.asks(t.post(path).json(&body)).await;
    assert_eq!(made.status, 200, "{path}: {}", made.text);
    made.body
}

/// A token by `client_credentials`.
async fn by_secret(t: &TestJanua, machine: &Value, resource: Option<&str>) -> String {
    let (id, secret) = (text(&machine["clientId"]), text(&machine["clientSecret"]));
    let body = json!({ "grant_type": "client_credentials", "client_id": id, "client_secret": secret,
                       "resource": resource });
    let answer = t.post("/oauth/token").json(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    text(&answer.body["access_token"])
}

/// A token of an agent with a wallet.
async fn by_wallet(t: &TestJanua, person: &Person, org: &str) -> String {
    let key = SigningKey::from_bytes(&[7; 32]);
    let wallet = bs58::encode(key.verifying_key().as_bytes()).into_string();
    let agent = made(t, person, "/agent/register", json!({ "name": "Bot", "wallet": wallet, "orgId": org })).await;
    let asked = t.post("/agent/challenge").json(&json!({ "wallet": wallet, "agentId": agent["agent"]["id"] })).await;
    let signature = key.sign(text(&asked.body["message"]).as_bytes());
    let signature = bs58::encode(signature.to_bytes()).into_string();
    let body = json!({ "challenge": asked.body["challenge"], "signature": signature });
    let answer = t.post("/agent/token").json(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    text(&answer.body["accessToken"])
}

/// Bob belongs to acme with a private skill and to initech with another; globex's public one he installed.
async fn bob(t: &TestJanua) -> (Person, String) {
    let ada = published(t).await;
    ada.asks(t.ask(Method::PATCH, "/skills/acme.pdf-tools").json(&json!({ "visibility": "org" }))).await;
    let eve = signed_in(t, "eve@example.com").await;
    org(t, &eve, "globex").await;
    assert_eq!(publish(t, &eve, "?namespace=globex", skill("csv", "1.0.0", "x")).await.status, 200);
    let bob = signed_in(t, "bob@example.com").await;
    org(t, &bob, "initech").await;
    let private = publish(t, &bob, "?namespace=initech&visibility=org", skill("notes", "1.0.0", "x")).await;
    assert_eq!(private.status, 200, "{}", private.text);
    assert_eq!(bob.asks(t.post("/skills/globex.csv/install")).await.status, 200);
    let (acme,): (String,) = t.janua.db.one("SELECT id FROM org WHERE slug = 'acme'", params![]).await.unwrap();
    let member = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(member, params![&acme, &bob.id]).await.unwrap();
    (bob, acme)
}

#[tokio::test]
async fn machines_of_each_kind_read_their_organizations_skills_and_what_their_owner_installed() {
    let t = start().await;
    let (bob, acme) = bob(&t).await;
    let helper = json!({ "name": "Helper", "framework": "langgraph", "orgId": acme });
    let helper = made(&t, &bob, "/framework-agent/register", helper).await;
    let server = json!({ "name": "weather", "domain": "example.test", "orgId": acme });
    let server = made(&t, &bob, "/mcp/register", server).await;
    // As if its domain were proven.
    t.janua.db.exec("UPDATE machine SET state = 'active' WHERE kind = 'mcp'", params![]).await.unwrap();
    let framework = by_secret(&t, &helper, None).await;
    for token in [&by_wallet(&t, &bob, &acme).await, &framework, &by_secret(&t, &server, None).await] {
        assert_eq!(skills(&t, token).await, [PDF, CSV], "not those of the owner's other organizations");
        let read = ask(&t, token, "resources/read", json!({ "uri": PDF })).await;
        assert!(text(&read.body["result"]["contents"][0]["text"]).contains("# PDF"), "{}", read.text);
        let other = ask(&t, token, "resources/read", json!({ "uri": NOTES })).await;
        assert_eq!(other.body["error"]["code"], -32602);
        let install = t.post("/skills/globex.csv/install").header("authorization", &format!("Bearer {token}"));
        assert_eq!(install.await.status, 401, "only /mcp takes machines");
        let cookie = t.post("/mcp").header("cookie", &format!("service_access={token}"));
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        assert_eq!(cookie.header("sec-fetch-site", "same-origin").json(&ping).await.status, 401, "the header alone");
    }
    assert_eq!(skills(&t, &bob.access).await, [PDF, CSV, NOTES], "the user has them all");

    // A suspended machine reads nothing more.
    made(&t, &bob, &format!("/framework-agent/{}/suspend", text(&helper["clientId"])), json!({})).await;
    let refused = ask(&t, &framework, "skills/list", json!({})).await;
    assert_eq!(refused.refusal(), (401, "unauthenticated"));
    assert_eq!(ask(&t, "x", "skills/list", json!({})).await.refusal(), (401, "unauthenticated"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_machines_token_counts_only_for_this_server() {
    // With a port, as audiences need one on this machine.
    let config = Config { base_url: Some("http://localhost:8080".parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let (bob, acme) = bob(&t).await;
    let own = format!("{}/mcp", t.janua.config.base_url());
    let helper = json!({ "name": "Helper", "framework": "langgraph", "orgId": acme,
                         "audiences": ["https://tools.example", own] });
    let helper = made(&t, &bob, "/framework-agent/register", helper).await;
    let elsewhere = by_secret(&t, &helper, Some("https://tools.example/mcp")).await;
    assert_eq!(ask(&t, &elsewhere, "skills/list", json!({})).await.refusal(), (401, "unauthenticated"));
    assert_eq!(skills(&t, &by_secret(&t, &helper, Some(&own)).await).await, [PDF, CSV]);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_machine_that_acts_for_a_user_needs_a_scope_to_read_their_skills() {
    let t = start().await;
    let (bob, acme) = bob(&t).await;
    let helper = json!({ "name": "Helper", "framework": "langgraph", "orgId": acme,
                         "scopes": ["orders:read", "skills:read"] });
    let helper = made(&t, &bob, "/framework-agent/register", helper).await;
    let actor = by_secret(&t, &helper, None).await;
    let delegated = async |scope: &str| {
        let body = json!({ "grant_type": EXCHANGE, "subject_token": bob.access, "subject_token_type": ACCESS_TOKEN,
                           "actor_token": actor, "actor_token_type": ACCESS_TOKEN, "scope": scope });
        let answer = t.post("/oauth/token").json(&body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        text(&answer.body["access_token"])
    };
    let refused = ask(&t, &delegated("orders:read").await, "skills/list", json!({})).await;
    assert_eq!(refused.refusal(), (403, "insufficient_scope"));
    let token = delegated("skills:read").await;
    assert_eq!(skills(&t, &token).await, [PDF, CSV, NOTES], "those of the user");
    assert_eq!(bob.asks(t.post("/auth/logout")).await.status, 204);
    assert_eq!(ask(&t, &token, "skills/list", json!({})).await.refusal(), (401, "unauthenticated"));
    t.run_jobs().await;
    t.finish().await;
}
