//! What agents read: MCP and the well-known index.
use super::actors::*;

async fn call(t: &TestJanua, person: &Person, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let answer = person.asks(t.post("/mcp").json(&body)).await;
    assert_eq!((answer.status, &answer.body["id"]), (200, &json!(7)), "{}", answer.text);
    answer.body
}

#[tokio::test]
async fn an_agent_reads_the_skills_of_its_user_over_mcp() {
    let t = start().await;
    let (root, ada) = (signed_in(&t, "root@example.com").await, published(&t).await);
    let bob = signed_in(&t, "bob@example.com").await;
    assert_eq!(t.post("/mcp").json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await.status, 401);
    let hello = call(&t, &bob, "initialize", json!({ "protocolVersion": "2025-06-18" })).await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(
        hello["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/skills"]["directoryRead"],
        true
    );
    let told =
        bob.asks(t.post("/mcp").json(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))).await;
    assert_eq!((told.status, told.text.as_str()), (202, ""));
    assert_eq!(call(&t, &bob, "skills/list", json!({})).await["result"]["skills"], json!([]));
    let uri = "skill://acme/pdf-tools/SKILL.md";
    assert_eq!(call(&t, &bob, "skills/get", json!({ "uri": uri })).await["error"]["code"], -32602, "not installed");
    assert_eq!(call(&t, &bob, "resources/read", json!({ "uri": uri })).await["error"]["code"], -32602);
    bob.asks(t.post("/skills/acme.pdf-tools/install")).await;

    let list = call(&t, &bob, "skills/list", json!({})).await["result"].clone();
    assert_eq!((&list["resultType"], &list["cacheScope"]), (&json!("complete"), &json!("private")));
    let entry = &list["skills"][0];
    assert_eq!((&entry["uri"], &entry["frontmatter"]["name"]), (&json!(uri), &json!("pdf-tools")));
    assert_eq!(entry["frontmatter"]["metadata"]["version"], "1.0.0", "the front matter as it was written");
    assert_eq!(entry["frontmatter"].get("_tags"), None);
    assert_eq!(call(&t, &bob, "skills/get", json!({ "uri": uri })).await["result"]["skill"], *entry);
    for resource in entry["resources"].as_array().unwrap() {
        let read = call(&t, &bob, "resources/read", json!({ "uri": resource["uri"] })).await;
        let text = read["result"]["contents"][0]["text"].as_str().unwrap();
        assert_eq!(format!("sha256:{}", kernel::crypto::hash(text.as_bytes())), resource["digest"]);
        assert_eq!(Some(text.len() as u64), resource["size"].as_u64());
    }
    let folder = call(&t, &bob, "resources/directory/read", json!({ "uri": "skill://acme/pdf-tools" })).await;
    assert_eq!(folder["result"]["resources"][1]["mimeType"], "inode/directory", "{folder}");
    let folder =
        call(&t, &bob, "resources/directory/read", json!({ "uri": "skill://acme/pdf-tools/references" })).await;
    assert_eq!(folder["result"]["resources"][0]["uri"], "skill://acme/pdf-tools/references/forms.md");
    for bad in
        ["skill://acme/pdf-tools/../x", "skill://acme/pdf-tools/none", "skill://acme", "file:///etc/passwd", ""]
    {
        assert_eq!(call(&t, &bob, "resources/read", json!({ "uri": bad })).await["error"]["code"], -32602, "{bad}");
        assert_eq!(call(&t, &bob, "skills/get", json!({ "uri": bad })).await["error"]["code"], -32602, "{bad}");
    }
    assert_eq!(call(&t, &bob, "resources/list", json!({})).await["result"]["resources"][0]["uri"], uri);
    assert_eq!(call(&t, &bob, "tools/call", json!({})).await["error"]["code"], -32601);
    let discovered = call(&t, &bob, "server/discover", json!({})).await;
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28");

    // Members have the skills of their organization without installing them, private ones too.
    ada.asks(t.ask(Method::PATCH, "/skills/acme.pdf-tools").json(&json!({ "visibility": "org" }))).await;
    assert_eq!(call(&t, &ada, "skills/list", json!({})).await["result"]["skills"][0]["uri"], uri);
    // A skill without a namespace that is named like one hides nothing.
    org(&t, &root, "hilltop").await;
    assert_eq!(publish(&t, &root, "?namespace=", skill("acme", "1.0.0", "x")).await.status, 200);
    bob.asks(t.ask(Method::DELETE, "/skills/acme.pdf-tools/install")).await;
    ada.asks(t.post("/skills/acme/install")).await;
    let read = call(&t, &ada, "resources/read", json!({ "uri": uri })).await;
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("# PDF"), "{read}");
    let read = call(&t, &ada, "resources/read", json!({ "uri": "skill://acme/SKILL.md" })).await;
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("name: acme"), "{read}");
    ada.asks(t.ask(Method::DELETE, "/skills/acme/install")).await;
    // What was revoked is gone at once (J6).
    let body = json!({ "decision": "revoke" });
    assert_eq!(root.asks(t.post("/admin/skills/acme.pdf-tools/versions/1.0.0").json(&body)).await.status, 200);
    for person in [&ada, &bob] {
        assert_eq!(call(&t, person, "skills/list", json!({})).await["result"]["skills"], json!([]));
        assert_eq!(call(&t, person, "resources/read", json!({ "uri": uri })).await["error"]["code"], -32602);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn public_skills_are_in_the_well_known_index() {
    let t = start().await;
    let ada = published(&t).await;
    let hidden = publish(&t, &ada, "?namespace=acme&visibility=unlisted", skill("csv", "1.0.0", "x")).await;
    assert_eq!(hidden.status, 200);
    let index = t.get("/.well-known/agent-skills/index.json").await.body;
    assert_eq!(index["$schema"], "https://schemas.agentskills.io/discovery/0.2.0/schema.json");
    assert_eq!(index["skills"].as_array().unwrap().len(), 1);
    let entry = &index["skills"][0];
    assert_eq!((&entry["name"], &entry["type"]), (&json!("pdf-tools"), &json!("archive")));
    let package = t.get(entry["url"].as_str().unwrap()).await;
    assert_eq!(format!("sha256:{}", kernel::crypto::hash(&package.bytes)), entry["digest"]);
    assert_eq!(t.get("/.well-known/agent-skills/acme.csv.tar.gz").await.status, 404);
    assert_eq!(t.get("/.well-known/agent-skills/none").await.status, 404);
    t.run_jobs().await;
    t.finish().await;
}
