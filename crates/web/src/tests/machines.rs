//! The pages of agents and MCP servers.
use identity::testing::{PASSWORD, Person, login, member, signed_in};
use kernel::testing::{Answer, TestJanua};
use serde_json::json;

use super::{
    REDIRECT, act, asked, authorize, browser, decide, error_of, feature, field, form, redeem, sent, submit, text,
    visit, with_token,
};

/// A form with a name of its own, whose answer is shown on its page.
async fn send(t: &TestJanua, cookies: &str, form: &str, call: &str, back: &str, fields: &[(&str, &str)]) -> Answer {
    let own = [("call", call), ("back", back), ("form", form), ("show", "1")];
    let fields: Vec<_> = own.into_iter().chain(fields.iter().copied()).collect();
    submit(t, "/act", &fields, cookies).await
}

#[tokio::test]
async fn machines_are_registered_and_suspended_in_one_click_without_a_script() {
    let t = TestJanua::start(|config| feature(config).and(agents::feature(config))).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    act(&t, &ada, "POST /apps", "/console", &[("name", "Shop")]).await;
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().expect("an organization").to_owned();
    let page = format!("/console/orgs/{org}/machines");
    let empty = visit(&t, &page, &ada).await;
    assert!(empty.status == 200 && empty.text.contains("No framework agents yet"), "{}", empty.text);
    assert!(visit(&t, &format!("{page}?new=framework"), &ada).await.text.contains("langgraph"));
    assert!(visit(&t, &format!("{page}?new=agent"), &ada).await.text.contains("CAIP-10"));

    let fields = [("name", "Helper"), ("framework", "langgraph"), ("scopes:lines", "a\nb"), ("orgId", &org)];
    let shown = send(&t, &ada, "framework", "POST /framework-agent/register", &page, &fields).await;
    assert!(shown.text.contains("fa_live_") && shown.text.contains("ks_live_"), "{}", shown.text);
    assert!(shown.text.contains("grant_type=client_credentials"), "code to copy");
    assert!(!visit(&t, &page, &ada).await.text.contains("fa_live_"), "shown once");
    let list = visit(&t, "/framework-agent", &ada).await;
    let id = list.body["agents"][0]["id"].as_str().expect("an agent").to_owned();
    let plain = shown.text.replace("&#x2f;", "/");
    assert!(plain.contains(&format!("value=\"POST /framework-agent/{id}/suspend\"")), "one click");
    let call = format!("POST /framework-agent/{id}/suspend");
    act(&t, &ada, &call, &page, &[("done", "machine_suspended")]).await;
    let off = visit(&t, &page, &ada).await;
    assert!(off.text.contains("Suspended") && off.text.contains("by the owner"), "{}", off.text);
    let detail = visit(&t, &format!("/console/orgs/{org}/framework-agents/{id}"), &ada).await;
    assert!(detail.status == 200 && detail.text.contains("Framework agent suspended"), "{}", detail.text);
    let limits = r#"[{"meter": "spend", "max": 10, "per": "day"}]"#;
    let saved = act(&t, &ada, &format!("PATCH /framework-agent/{id}"), &page, &[("limits:json", limits)]).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    let detail = visit(&t, &format!("/console/orgs/{org}/framework-agents/{id}"), &ada).await;
    assert!(detail.text.contains("per day, then refuse"), "{}", detail.text);

    let wallet = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
    let fields = [("name", "Bot"), ("wallet", wallet), ("orgId", &org)];
    let shown = send(&t, &ada, "agent", "POST /agent/register", &page, &fields).await;
    assert!(shown.text.contains("encode_defunct") && shown.text.contains("Pending"), "{}", shown.text);
    let agents = visit(&t, "/agent/list", &ada).await;
    let id = agents.body["agents"][0]["id"].as_str().expect("an agent");
    let detail = visit(&t, &format!("/console/orgs/{org}/agents/{id}"), &ada).await;
    assert!(
        detail.status == 200 && detail.text.contains("Prove the wallet") && detail.text.contains(wallet),
        "{}",
        detail.text
    );

    let page = format!("/console/orgs/{org}/mcp");
    assert!(visit(&t, &page, &ada).await.text.contains("No MCP servers yet"));
    assert!(visit(&t, &format!("{page}?new=mcp"), &ada).await.text.contains("Register MCP server"));
    let fields = [("name", "weather"), ("domain", "example.com"), ("visibility", "public"), ("orgId", &org)];
    let shown = send(&t, &ada, "mcp", "POST /mcp/register", &page, &fields).await;
    assert!(shown.text.contains("_janua-mcp.example.com") && shown.text.contains("ms_live_"), "{}", shown.text);
    let servers = visit(&t, "/mcp/list", &ada).await;
    let id = servers.body["servers"][0]["id"].as_str().expect("a server");
    let detail = visit(&t, &format!("{page}/{id}"), &ada).await;
    assert!(
        detail.status == 200 && detail.text.contains("Prove the domain") && detail.text.contains("janua-mcp="),
        "{}",
        detail.text
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m12_a_framework_agent_acts_for_users_who_authorized_it() {
    let t = TestJanua::start(|config| feature(config).and(agents::feature(config))).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let body =
        json!({ "name": "Helper", "framework": "x", "scopes": ["openid", "orders"], "redirectUris": [REDIRECT] });
    let made = ada.asks(t.post("/framework-agent/register").json(&body)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let (id, secret) = (text(&made.body["clientId"]), text(&made.body["clientSecret"]));
    member(&t, "bob@example.com").await;
    let cookies = browser(&t, "bob@example.com").await;
    let bob = Person::of(&login(&t, "bob@example.com", PASSWORD).await);
    let query = asked(&id, &[]);
    let page = authorize(&t, Some(&bob), &query).await;
    let (to, _) = sent(&page);
    assert!(to.ends_with("/consent"), "others are asked: {to}");
    let page = visit(&t, page.header("location"), &cookies).await;
    assert!(page.text.contains("Helper"), "{}", page.text);
    let back = decide(&t, &page, "allow", &cookies).await;
    let code = field(&back, "code").unwrap_or_else(|| panic!("no code: {}", back.text));
    assert_eq!(error_of(&redeem(&t, &id, &code, &[]).await), (401, "invalid_client"), "it proves its secret");
    let tokens = redeem(&t, &id, &code, &[("client_secret", &secret)]).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text);
    let theirs = text(&tokens.body["access_token"]);
    assert_eq!(with_token(&t, "/oauth/userinfo", &theirs).await.status, 200);
    let own = [("grant_type", "client_credentials"), ("client_id", id.as_str()), ("client_secret", secret.as_str())];
    let actor = text(&form(&t, "/oauth/token", &own, None).await.body["access_token"]);
    let exchange = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", theirs.as_str()),
        ("actor_token", actor.as_str()),
    ];
    let acting = form(&t, "/oauth/token", &exchange, None).await;
    assert_eq!(
        (acting.status, &acting.body["scope"]),
        (200, &json!("openid")),
        "only what both have: {}",
        acting.text
    );
    let acting = text(&acting.body["access_token"]);
    assert_eq!(with_token(&t, "/machine/me", &acting).await.body["subject"], json!(bob.id));
    // Suspended, it holds nothing that users gave it.
    assert_eq!(ada.asks(t.post(&format!("/framework-agent/{id}/suspend"))).await.status, 200);
    assert_eq!(with_token(&t, "/oauth/userinfo", &theirs).await.status, 401);
    assert_eq!(with_token(&t, "/machine/me", &acting).await.status, 401);
    let refresh = text(&tokens.body["refresh_token"]);
    let again = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str()), own[1], own[2]];
    assert_eq!(error_of(&form(&t, "/oauth/token", &again, None).await).1, "invalid_grant");
    assert_eq!(authorize(&t, Some(&bob), &query).await.status, 400, "nor are users sent to it");
    t.run_jobs().await;
    t.finish().await;
}
