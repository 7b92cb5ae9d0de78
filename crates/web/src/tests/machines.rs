//! The pages of agents and MCP servers.
use identity::testing::member;
use kernel::testing::{Answer, TestJanua};

use super::{act, browser, feature, submit, visit};

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
    assert!(shown.text.contains(&format!("value=\"POST /framework-agent/{id}/suspend\"")), "one click");
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
