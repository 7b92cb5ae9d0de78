//! Publishing, versions and namespaces.
use super::actors::*;

#[tokio::test]
async fn a_skill_is_published_listed_and_downloaded() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    org(&t, &ada, "acme").await;
    t.happened().await;
    let package = skill("pdf-tools", "1.0.0", "# PDF\n\nUse it.");
    let made = publish(&t, &ada, "?namespace=acme", package.clone()).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!(
        (&made.body["skill"]["slug"], &made.body["version"]["state"]),
        (&json!("acme.pdf-tools"), &json!("published"))
    );
    t.expects(&["SKILL_PUBLISHED"]).await;
    let again = publish(&t, &ada, "?namespace=acme", package.clone()).await;
    assert_eq!((again.status, &again.body), (200, &made.body), "the same bytes get the first answer");

    let list = t.get("/skills").await.body;
    assert_eq!(list["skills"][0]["slug"], "acme.pdf-tools");
    let shown = t.get("/skills/acme.pdf-tools").await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    assert!(shown.body["readme"].as_str().unwrap().contains("<h1>PDF</h1>"), "{}", shown.text);
    assert_eq!(
        (&shown.body["starred"], &shown.body["version"]["files"][0]["path"]),
        (&Value::Null, &json!("SKILL.md"))
    );
    assert_eq!(shown.body["version"]["publishedBy"], Value::Null, "strangers do not see who published it");
    let bad = t.get("/skills/acme.pdf-tools").header("authorization", "Bearer none").await;
    assert_eq!(bad.status, 401, "a bad token is no missing one");

    let bob = signed_in(&t, "bob@example.com").await;
    assert_eq!(t.get("/skills/acme.pdf-tools/download").await.status, 401);
    let download = bob.asks(t.get("/skills/acme.pdf-tools/download")).await;
    assert_eq!((download.status, download.header("content-type")), (200, "application/gzip"));
    assert_eq!(download.bytes, package, "the bytes as published");
    let digest = format!("\"{}\"", made.body["version"]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
    assert_eq!(download.header("etag"), digest);
    assert!(
        download.header("repr-digest").starts_with("sha-256=:")
            && download.header("x-skill-signature").contains("sig=")
    );
    assert_eq!(t.get("/skills/acme.pdf-tools").await.body["downloads"], 1);

    let mine = ada.asks(t.get("/skills/acme.pdf-tools")).await.body;
    assert_eq!((&mine["canPublish"], &mine["version"]["publishedBy"]), (&json!(true), &json!(ada.id)));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn m22_a_version_is_one_package_for_ever() {
    let t = start().await;
    let ada = published(&t).await;
    let (path, next) = ("/skills/acme.pdf-tools/versions", skill("pdf-tools", "1.1.0", "# Next"));
    let other = send(&t, &ada, path, skill("pdf-tools", "1.0.0", "# Other")).await;
    assert_eq!(other.refusal(), (409, "version_exists"));
    let taken = publish(&t, &ada, "?namespace=acme", skill("pdf-tools", "1.0.0", "# Other")).await;
    assert_eq!(taken.refusal(), (409, "slug_taken"));
    assert_eq!(send(&t, &ada, path, next.clone()).await.status, 200);
    assert_eq!(t.get("/skills/acme.pdf-tools").await.body["latestVersion"], "1.1.0");
    let older = send(&t, &ada, path, skill("pdf-tools", "0.9.0", "# Old")).await;
    assert_eq!(older.status, 200, "in any order");
    assert_eq!(t.get("/skills/acme.pdf-tools").await.body["latestVersion"], "1.1.0");

    // Yanked: not offered, but there for those who name it; still no other bytes.
    let version = format!("{path}/1.1.0");
    let yank = |yanked| json!({ "yanked": yanked, "reason": "broken" });
    let yanked = ada.asks(t.ask(Method::PATCH, &version).json(&yank(true))).await;
    assert_eq!((yanked.status, &yanked.body["version"]["state"]), (200, &json!("yanked")), "{}", yanked.text);
    assert_eq!(t.get("/skills/acme.pdf-tools").await.body["latestVersion"], "1.0.0");
    let bob = signed_in(&t, "bob@example.com").await;
    let download = async |query: &str| bob.asks(t.get(&format!("/skills/acme.pdf-tools/download{query}"))).await;
    assert_eq!(download("").await.header("x-skill-version"), "1.0.0");
    assert_eq!(download("?version=1.1.0").await.header("x-skill-version"), "1.1.0");
    assert_eq!(send(&t, &ada, path, skill("pdf-tools", "1.1.0", "# Other")).await.refusal(), (409, "version_exists"));
    assert_eq!(send(&t, &ada, path, next).await.status, 200, "the same bytes get the first answer");
    let back = ada.asks(t.ask(Method::PATCH, &version).json(&yank(false))).await;
    assert_eq!(back.body["version"]["state"], "published");
    let stranger = bob.asks(t.ask(Method::PATCH, &version).json(&yank(true))).await;
    assert_eq!(stranger.refusal(), (404, "not_found"));

    // Sixteen at once: one package wins.
    let bodies: Vec<String> = (0..16).map(|n| format!("# {n}")).collect();
    let answers =
        kernel::testing::join_all(bodies.iter().map(|body| send(&t, &ada, path, skill("pdf-tools", "3.0.0", body))))
            .await;
    assert_eq!(
        answers.iter().filter(|answer| answer.status == 200).count(),
        1,
        "{:?}",
        answers.iter().map(|a| a.status).collect::<Vec<_>>()
    );
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_version WHERE version = '3.0.0'";
    assert_eq!(count(&t, sql).await, 1);
    t.run_jobs().await;
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    assert_eq!(objects(&t), 8, "what lost is swept: two objects for each of four versions");
    t.finish().await;
}

#[tokio::test]
async fn m23_a_namespace_belongs_to_its_organization() {
    let t = start().await;
    let ada = published(&t).await;
    let bob = signed_in(&t, "bob@example.com").await;
    org(&t, &bob, "other").await;
    let try_as =
        async |person: &Person, query: &str| publish(&t, person, query, skill("pdf-tools", "1.0.0", "x")).await;
    assert_eq!(try_as(&bob, "?namespace=acme").await.refusal(), (403, "not_your_namespace"));
    assert_eq!(
        try_as(&bob, "?namespace=com.example").await.refusal(),
        (403, "not_your_namespace"),
        "an unproven domain"
    );
    assert_eq!(try_as(&bob, "?namespace=").await.refusal(), (403, "not_your_namespace"), "bare names");
    for bad in ["ACME", "a%2Fb", "a..b", ".", "a.", "acme%20", "acm%D0%B5"] {
        let refused = try_as(&bob, &format!("?namespace={bad}")).await;
        assert!([400, 403].contains(&refused.status), "{bad}: {}", refused.text);
    }
    for bad in ["ACME.pdf-tools", "acme%2Fpdf-tools", "acme..pdf-tools", "acme.pdf-tools.", "%2e%2e"] {
        let refused = t.get(&format!("/skills/{bad}")).await;
        assert!([400, 404].contains(&refused.status), "{bad}: {}", refused.text);
    }
    assert_eq!(
        send(&t, &bob, "/skills/acme.pdf-tools/versions", skill("pdf-tools", "2.0.0", "x")).await.refusal(),
        (404, "not_found")
    );
    let own = try_as(&bob, "").await;
    assert_eq!((own.status, &own.body["skill"]["slug"]), (200, &json!("other.pdf-tools")), "{}", own.text);

    // A member is told no more than a stranger.
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at)
               SELECT org_id, $1, 'member', 0 FROM skill WHERE slug = 'acme.pdf-tools'";
    t.janua.db.exec(sql, params![&bob.id]).await.unwrap();
    let member = send(&t, &bob, "/skills/acme.pdf-tools/versions", skill("pdf-tools", "2.0.0", "x")).await;
    assert_eq!(member.refusal(), (404, "not_found"));
    t.janua
        .db
        .exec("DELETE FROM org_member WHERE account_id = $1 AND role = 'member'", params![&bob.id])
        .await
        .unwrap();

    // A domain that an app of the organization has proven.
    let app = ada.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
    let app = app.body["id"].as_str().unwrap();
    prove(&t, app).await;
    let proven = publish(&t, &ada, "?namespace=com.example", skill("pdf-tools", "1.0.0", "x")).await;
    assert_eq!(proven.status, 200, "{}", proven.text);
    let publisher = &proven.body["skill"]["publisher"];
    assert_eq!(
        (&proven.body["skill"]["slug"], &publisher["verified"]),
        (&json!("com.example.pdf-tools"), &json!(true))
    );
    assert_eq!(try_as(&bob, "?namespace=com.example").await.refusal(), (403, "not_your_namespace"));
    assert_eq!(t.get("/skills?verified=true").await.body["skills"].as_array().unwrap().len(), 1);
    // The proof is gone: no new versions, and no longer verified.
    t.janua.db.exec("UPDATE app_domain SET verified_at = NULL", params![]).await.unwrap();
    let lost = send(&t, &ada, "/skills/com.example.pdf-tools/versions", skill("pdf-tools", "1.1.0", "y")).await;
    assert_eq!(lost.refusal(), (403, "not_your_namespace"));
    t.advance(Duration::from_hours(7));
    t.run_jobs().await;
    assert_eq!(t.get("/skills/com.example.pdf-tools").await.body["publisher"]["verified"], false);
    t.finish().await;
}

/// Writes that an app has proven its domain.
async fn prove(t: &TestJanua, app: &str) {
    let sql =
        "INSERT INTO app_domain (id, app_id, org_id, domain, token, status, status_since, created_at, verified_at)
               SELECT 'd', app.id, app.org_id, 'example.com', 't', 'active', 0, 0, 0 FROM app WHERE app.id = $1";
    t.janua.db.exec(sql, params![app]).await.unwrap();
}

#[tokio::test]
async fn a_changed_slug_leads_to_the_skill_and_frees_nothing() {
    let t = start().await;
    let ada = published(&t).await;
    let sql = "SELECT org_id FROM skill WHERE slug = 'acme.pdf-tools'";
    let (id,): (String,) = t.janua.db.one(sql, params![]).await.unwrap();
    let renamed = ada.asks(t.ask(Method::PATCH, &format!("/org/{id}")).json(&json!({ "slug": "acme-new" }))).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text);
    let moved = t.get("/skills/acme-new.pdf-tools").await;
    assert_eq!((moved.status, moved.header("location")), (308, "/skills/acme.pdf-tools"));
    let eve = signed_in(&t, "eve@example.com").await;
    org(&t, &eve, "acme").await;
    let stolen = publish(&t, &eve, "?namespace=acme", skill("csv", "1.0.0", "x")).await;
    assert_eq!(stolen.refusal(), (403, "not_your_namespace"), "the slug is hers, the namespace is not");
    assert_eq!(publish(&t, &ada, "?namespace=acme", skill("csv", "1.0.0", "x")).await.status, 200);
    // Not even when the organization is gone.
    let gone = ada.asks(t.ask(Method::DELETE, &format!("/org/{id}"))).await;
    assert!(gone.status < 300, "{}", gone.text);
    assert_eq!(
        publish(&t, &eve, "?namespace=acme", skill("csv", "1.0.0", "y")).await.refusal(),
        (403, "not_your_namespace")
    );
    assert_eq!(t.get("/skills/acme.pdf-tools").await.refusal(), (410, "revoked"));
    assert_eq!(t.get("/skills").await.body["skills"], json!([]));
    t.run_jobs().await;
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    assert_eq!(objects(&t), 0, "its bytes are gone");
    assert_eq!(count(&t, "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_version").await, 2, "its digests are not");
    t.finish().await;
}

#[tokio::test]
async fn visibility_decides_who_finds_a_skill() {
    let t = start().await;
    let ada = published(&t).await;
    let bob = signed_in(&t, "bob@example.com").await;
    let set = async |visibility: &str| {
        let set =
            ada.asks(t.ask(Method::PATCH, "/skills/acme.pdf-tools").json(&json!({ "visibility": visibility }))).await;
        assert_eq!(set.status, 200, "{}", set.text);
    };
    let seen = async || {
        let listed = t.get("/skills?query=pdf").await.body["skills"].as_array().unwrap().len();
        let shown = bob.asks(t.get("/skills/acme.pdf-tools")).await.status;
        let got = bob.asks(t.get("/skills/acme.pdf-tools/download")).await.status;
        (listed, shown, got)
    };
    assert_eq!(seen().await, (1, 200, 200));
    set("unlisted").await;
    assert_eq!(seen().await, (0, 200, 200));
    set("org").await;
    assert_eq!(seen().await, (0, 404, 404));
    for path in ["star", "install", "report"] {
        let body = json!({ "reason": "spam" });
        assert_eq!(
            bob.asks(t.post(&format!("/skills/acme.pdf-tools/{path}")).json(&body)).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(bob.asks(t.get("/skills/acme.pdf-tools/versions")).await.status, 404);
    assert_eq!(t.get("/ratings/aggregate?slug=acme.pdf-tools").await.status, 404);
    assert_eq!(t.get("/.well-known/agent-skills/acme.pdf-tools.tar.gz").await.status, 404);
    assert_eq!(ada.asks(t.get("/skills/acme.pdf-tools")).await.status, 200);
    set("public").await;
    assert_eq!(seen().await, (1, 200, 200));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn signatures_are_checked_by_a_second_library_and_keys_take_turns() {
    use data_encoding::BASE64URL_NOPAD;
    use ed25519_dalek::{Signature, VerifyingKey};

    let t = start().await;
    let ada = published(&t).await;
    let check = async |version: &Value| {
        let keys = t.get("/.well-known/skills-pubkey").await.body;
        let signed = &version["signature"];
        let key = keys["keys"].as_array().unwrap().iter().find(|key| key["kid"] == signed["kid"]).unwrap();
        let key: [u8; 32] =
            BASE64URL_NOPAD.decode(key["x"].as_str().unwrap().as_bytes()).unwrap().try_into().unwrap();
        let value = BASE64URL_NOPAD.decode(signed["value"].as_str().unwrap().as_bytes()).unwrap();
        let manifest = signed["manifest"].as_str().unwrap();
        let signature = Signature::from_slice(&value).unwrap();
        VerifyingKey::from_bytes(&key).unwrap().verify_strict(manifest.as_bytes(), &signature).unwrap();
        let said: Value = serde_json::from_str(manifest).unwrap();
        assert_eq!((&said["digest"], &said["files"]), (&version["digest"], &version["files"]));
        (signed["kid"].clone(), said)
    };
    let first = t.get("/skills/acme.pdf-tools").await.body["version"].clone();
    let (key, said) = check(&first).await;
    assert_eq!((&said["slug"], &said["version"]), (&json!("acme.pdf-tools"), &json!("1.0.0")));
    t.advance(Duration::from_hours(91 * 24));
    t.run_jobs().await;
    t.advance(Duration::from_hours(2));
    drop(ada);
    let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let next = send(&t, &ada, "/skills/acme.pdf-tools/versions", skill("pdf-tools", "1.1.0", "x")).await;
    assert_eq!(next.status, 200, "{}", next.text);
    assert_ne!(check(&next.body["version"]).await.0, key, "another key signs now");
    assert_eq!(check(&first).await.0, key, "and the first one is still published");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_store_that_is_away_refuses_packages_and_leaves_the_rest() {
    let t = start().await;
    let ada = published(&t).await;
    // A file in place of the folder: nothing can be written or read there.
    let store =
        ["files", "objects"].iter().map(|name| t.folder.path().join(name)).find(|path| path.exists()).unwrap();
    let aside = t.folder.path().join("aside");
    std::fs::rename(&store, &aside).unwrap();
    std::fs::write(&store, b"").unwrap();
    let refused = send(&t, &ada, "/skills/acme.pdf-tools/versions", skill("pdf-tools", "1.1.0", "x")).await;
    assert!([503, 507].contains(&refused.status), "{}", refused.text);
    assert_eq!(ada.asks(t.get("/skills/acme.pdf-tools/download")).await.status / 100, 5);
    assert_eq!(
        t.get("/skills/acme.pdf-tools").await.body["latestVersion"],
        "1.0.0",
        "what is in the database is fine"
    );
    assert_eq!(t.get("/skills?query=pdf").await.status, 200);
    std::fs::remove_file(&store).unwrap();
    std::fs::rename(&aside, &store).unwrap();
    assert_eq!(send(&t, &ada, "/skills/acme.pdf-tools/versions", skill("pdf-tools", "1.1.0", "x")).await.status, 200);
    t.run_jobs().await;
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    assert_eq!(count(&t, "SELECT CAST(COUNT(*) AS BIGINT) FROM skill_object WHERE version_id IS NULL").await, 0);
    t.finish().await;
}

#[tokio::test]
async fn a_package_that_finds_no_place_to_be_scanned_is_refused_and_may_come_again() {
    let t = start().await;
    let ada = published(&t).await;
    let stored = objects(&t);
    let (path, next) = ("/skills/acme.pdf-tools/versions", skill("pdf-tools", "1.1.0", "x"));
    let pool = t.janua.own::<crate::skills::publish::ScanPool>();
    pool.fill(true);
    let refused = send(&t, &ada, path, next.clone()).await;
    assert_eq!((refused.refusal(), objects(&t)), ((503, "overloaded"), stored));
    assert!(!refused.header("retry-after").is_empty(), "{}", refused.text);
    pool.fill(false);
    assert_eq!(send(&t, &ada, path, next).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn versions_have_one_number_and_packages_one_name() {
    let t = start().await;
    let ada = published(&t).await;
    let path = "/skills/acme.pdf-tools/versions";
    let field = |answer: &Answer| {
        (answer.status, answer.body["errors"][0]["field"].clone(), answer.body["errors"][0]["code"].clone())
    };
    let disagree = send(&t, &ada, &format!("{path}?version=2.0.0"), skill("pdf-tools", "1.1.0", "x")).await;
    assert_eq!(field(&disagree), (400, json!("metadata.version"), json!("other_version")));
    let other = send(&t, &ada, path, skill("csv-tools", "1.1.0", "x")).await;
    assert_eq!(field(&other), (400, json!("name"), json!("other_skill")));
    for bad in ["1.0", "v1.0.0", "1.0.0.0", "01.0.0", "latest", "1.0.0-"] {
        let refused = send(&t, &ada, path, skill("pdf-tools", bad, "x")).await;
        assert_eq!(refused.refusal(), (400, "invalid_skill"), "{bad}");
    }
    let none = packed(&[("SKILL.md", b"---\nname: pdf-tools\ndescription: x\n---\n")]);
    assert_eq!(field(&send(&t, &ada, path, none.clone()).await), (400, json!("metadata.version"), json!("required")));
    assert_eq!(send(&t, &ada, &format!("{path}?version=1.1.0-rc.1%2Bb"), none).await.status, 200);
    let json = ada.asks(t.post(path).json(&json!({}))).await;
    assert_eq!(json.refusal(), (415, "archive_type"));
    t.run_jobs().await;
    t.finish().await;
}
