//! The pages of the code host.
use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    rsa::{KeyPair, KeySize},
};
use db::params;
use identity::testing::{member, signed_in};
use kernel::{config::Config, testing::TestJanua};

use super::{act, browser, feature, post_form, start, visit};

/// A server with a code host that nobody asks anything.
fn configured(folder: &tempfile::TempDir) -> Config {
    let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let text = data_encoding::BASE64.encode(der.as_ref());
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let path = folder.path().join("key.pem");
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    std::fs::write(&path, pem).unwrap();
    Config::for_tests().with(|settings: &mut hosting::codehost::Settings| {
        settings.codehost_app_id = Some("1".into());
        settings.codehost_app_slug = Some("janua-test".into());
        settings.codehost_client_id = Some("client".into());
        settings.codehost_client_secret = Some("secret".to_owned().into());
        settings.codehost_private_key = Some(path);
        settings.codehost_webhook_secret = Some("secret".to_owned().into());
        settings.codehost_api_url = "http://127.0.0.1:9".parse().unwrap();
    })
}

#[tokio::test]
async fn without_a_code_host_the_page_says_who_sets_it_up() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    act(&t, &ada, "POST /apps", "/console", &[("name", "Shop")]).await;
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let page = format!("/console/orgs/{}/code", orgs.body["orgs"][0]["id"].as_str().unwrap());
    let shown = visit(&t, &page, &ada).await;
    assert!(shown.status == 200 && shown.text.contains("No code host is set up"), "{}", shown.text);
    t.finish().await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one visit, from page to page")]
async fn repositories_are_linked_and_deliveries_shown_without_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let t = TestJanua::start_with(configured(&folder), feature).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    act(&t, &ada, "POST /apps", "/console", &[("name", "Shop")]).await;
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().unwrap().to_owned();
    let apps = visit(&t, "/apps", &ada).await;
    let app = apps.body["apps"][0]["id"].as_str().unwrap().to_owned();
    let me = visit(&t, "/auth/me", &ada).await;
    let account = me.body["id"].as_str().unwrap().to_owned();
    let page = format!("/console/orgs/{org}/code");
    let empty = visit(&t, &page, &ada).await;
    assert!(
        empty.text.contains("No repositories connected") && empty.text.contains("Connect GitHub"),
        "{}",
        empty.text
    );
    let sent = post_form(&t, &format!("{page}/connect"), &[("form", "connect")], &ada).await;
    let plain = sent.text.replace("&#x2f;", "/");
    assert!(sent.status == 200 && plain.contains("https://github.com/apps/janua-test/installations/new"), "{plain}");

    let installed = "INSERT INTO codehost_installation
                         (id, org_id, external_id, account_login, account_type, status, repository_selection, permissions,
                          may_uninstall, commit_statuses, pull_request_comments, connected_by, created_at, updated_at)
                     VALUES ($1, $2, 7, 'acme', 'Organization', 'active', 'all', '{}', $3, $4, $4, $5, 0, 0)";
    let id = "019c137e-c107-7f36-aa03-c8508b253019";
    t.janua.db.exec(installed, params![id, &org, false, true, &account]).await.unwrap();
    let repository =
        "INSERT INTO codehost_repository (installation_id, repository_id, full_name, is_private, default_branch)
                      VALUES ($1, 70, 'acme/shop', $2, 'main')";
    t.janua.db.exec(repository, params![id, true]).await.unwrap();
    let delivery = "INSERT INTO codehost_delivery (id, event, external_id, repository_id, facts, via, received_at)
                    VALUES ('d0000000-0001', 'push', 7, 70, $1, 'catch_up', $2)";
    let facts = r#"{"branch": "main", "sha": "0123456789012345678901234567890123456789", "repository": "acme/shop"}"#;
    t.janua.db.exec(delivery, params![facts, t.janua.clock.now()]).await.unwrap();
    let list = visit(&t, &page, &ada).await;
    assert!(list.text.contains("acme") && list.text.contains("No app yet"), "{}", list.text);

    let one = format!("{page}/{id}");
    let shown = visit(&t, &one, &ada).await;
    assert!(shown.status == 200 && shown.text.contains("No repository is linked"), "{}", shown.text);
    assert!(
        shown.text.contains("0123456") && shown.text.contains("Fetched") && shown.text.contains("Waiting"),
        "{}",
        shown.text
    );
    let dialog = visit(&t, &format!("{one}?new=link"), &ada).await;
    assert!(
        dialog.text.contains("acme&#x2f;shop") && dialog.text.contains("Nothing is built here"),
        "{}",
        dialog.text
    );
    let link = |branch: &'static str| {
        [
            ("form", "link"),
            ("done", "link_saved"),
            ("repositoryId", "70"),
            ("productionBranch", branch),
            ("outputDirectory", "dist"),
            ("previews", "branches"),
            ("deployedBy", "ci"),
        ]
    };
    let send = async |branch: &'static str| {
        let fields: Vec<(&str, &str)> = link(branch).into_iter().chain([("appId", app.as_str())]).collect();
        let sent = post_form(&t, &one, &fields, &ada).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        visit(&t, sent.header("location"), &ada).await
    };
    let wrong = send("a b").await;
    assert!(wrong.text.contains("must be the name of a branch"), "at its field: {}", wrong.text);
    assert!(wrong.text.contains("value=\"a b\""), "what was typed stays: {}", wrong.text);
    let saved = send("main").await;
    assert!(saved.text.contains("Repository linked.") && saved.text.contains("All branches"), "{}", saved.text);
    assert!(saved.text.contains("Built by CI") && saved.text.contains(">Shop</a>"), "{}", saved.text);
    let fields = [
        ("form", "unlink-1"),
        ("done", "link_removed"),
        ("remove", "1"),
        ("repositoryId", "70"),
        ("appId", app.as_str()),
    ];
    let gone = post_form(&t, &one, &fields, &ada).await;
    let gone = visit(&t, gone.header("location"), &ada).await;
    assert!(gone.text.contains("Link removed.") && gone.text.contains("No repository is linked"), "{}", gone.text);

    // A member looks, and has no buttons.
    let bob = signed_in(&t, "bob@example.com").await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, params![&org, &bob.id]).await.unwrap();
    let bob = browser(&t, "bob@example.com").await;
    let seen = visit(&t, &one, &bob).await;
    assert!(
        seen.status == 200 && !seen.text.contains("Run again") && !seen.text.contains("Danger zone"),
        "{}",
        seen.text
    );
    let call = format!("DELETE /codehost/installations/{id}?keep=true");
    let fields = [
        ("call", call.as_str()),
        ("back", &one),
        ("form", "it"),
        ("then", &page),
        ("done", "installation_disconnected"),
    ];
    let done = post_form(&t, "/act", &fields, &ada).await;
    let told = visit(&t, done.header("location"), &ada).await;
    assert!(told.text.contains("Disconnected.") && told.text.contains("No repositories connected"), "{}", told.text);
    t.run_jobs().await;
    // It asks a host that is not there, and would ask again.
    t.janua.db.exec("DELETE FROM job WHERE kind = 'catch_up_codehost'", params![]).await.unwrap();
    t.finish().await;
}
