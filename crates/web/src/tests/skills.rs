//! The marketplace, the pages of publishers and the review queue.
use identity::testing::member;
use kernel::{
    config::Config,
    testing::{Answer, TestJanua},
};

use super::{act, base, browser, feature, post_form, visit};

/// A package of the skill `pdf-tools`.
const PACKAGE: &str = "H4sIAAAAAAACAwv29vTx0ctNYaAhMAACMxMTMA0E6DRQ0gjBBoubG5oYMygYMNABlBaXJBYBrWQYmUBXV5crLzE31UqhICVNtyQ/P6eYKyW1OLkos6AkMz/PSiEoNTGlWCEtMye1WI8LpJphFIyCUTAKRsEwAABw96uPAAgAAA==";

/// A form with a file, as a browser sends it.
async fn upload(t: &TestJanua, to: &str, cookies: &str, fields: &[(&str, &str)], package: &[u8]) -> Answer {
    let mut body = vec![];
    for (name, value) in fields {
        let part = format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.into_bytes());
    }
    let head = "--edge\r\nContent-Disposition: form-data; name=\"package\"; filename=\"a.tgz\"\r\nContent-Type: application/gzip\r\n\r\n";
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(package);
    body.extend_from_slice(b"\r\n--edge--\r\n");
    let ask = t.post(to).header("cookie", cookies).header("origin", &base(t));
    ask.header("content-type", "multipart/form-data; boundary=edge").body(body).await
}

/// The page to which a form leads, with what it says of its outcome.
async fn told(t: &TestJanua, cookies: &str, call: &str, back: &str, fields: &[(&str, &str)]) -> Answer {
    let all: Vec<_> =
        [("call", call), ("back", back), ("form", "it")].into_iter().chain(fields.iter().copied()).collect();
    let sent = post_form(t, "/act", &all, cookies).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    visit(t, sent.header("location"), cookies).await
}

#[tokio::test]
async fn a_skill_is_published_found_installed_and_reviewed_on_pages() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    for email in ["ada@example.com", "bob@example.com", "root@example.com"] {
        member(&t, email).await;
    }
    let (ada, bob, root) = (
        browser(&t, "ada@example.com").await,
        browser(&t, "bob@example.com").await,
        browser(&t, "root@example.com").await,
    );
    let empty = t.get("/marketplace").header("accept", "text/html").await;
    assert!(empty.status == 200 && empty.text.contains("No skills yet"), "{}", empty.text);
    act(&t, &ada, "POST /org", "/console", &[("name", "Acme"), ("slug", "acme")]).await;
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().expect("an organization").to_owned();
    let slug = orgs.body["orgs"][0]["slug"].as_str().expect("a slug").to_owned();
    let page = format!("/console/orgs/{org}/skills");
    let empty = visit(&t, &page, &ada).await;
    assert!(empty.status == 200 && empty.text.contains("No skills yet"), "{}", empty.text);
    assert!(visit(&t, &format!("{page}?new=skill"), &ada).await.text.contains("multipart/form-data"));
    let package = data_encoding::BASE64.decode(PACKAGE.as_bytes()).unwrap();

    let refused = upload(&t, &page, &ada, &[("namespace", &slug)], b"none").await;
    let shown = visit(&t, refused.header("location"), &ada).await;
    assert!(shown.text.contains("The body is not gzip."), "{}", shown.text);
    let fields = [("namespace", slug.as_str()), ("version", "1.0.0"), ("visibility", "public")];
    let sent = upload(&t, &page, &ada, &fields, &package).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let shown = visit(&t, sent.header("location"), &ada).await;
    assert!(
        shown.status == 200 && shown.text.contains("Published.") && shown.text.contains("Yank"),
        "{}",
        shown.text
    );
    assert!(visit(&t, &page, &ada).await.text.contains(&format!("{slug}.pdf-tools")));

    let list = t.get("/marketplace?query=pdf").header("accept", "text/html").await;
    assert!(list.status == 200 && list.text.contains("Reads files."), "{}", list.text);
    assert!(t.get("/marketplace?query=nothing").await.text.contains("No matches"));
    let skill = format!("/marketplace/{slug}.pdf-tools");
    let public = t.get(&skill).await;
    assert!(public.status == 200 && public.text.contains("Sign in to install"), "{}", public.text);
    assert!(public.text.contains("Nothing found") && public.text.contains("SKILL.md"), "{}", public.text);
    assert!(t.get("/marketplace/acme.none").header("accept", "text/html").await.status == 404);
    // Search engines find it while it is public.
    let canonical = format!("<link rel=\"canonical\" href=\"{}{skill}\">", base(&t));
    assert!(public.text.replace("&#x2f;", "/").contains(&canonical), "{}", public.text);
    assert!(public.text.contains("<meta name=\"description\" content=\"Reads files.\">"), "{}", public.text);
    assert!(!public.text.contains("noindex"));
    let list = t.get("/marketplace").await.text;
    assert!(list.contains("rel=\"canonical\"") && !list.contains("noindex"), "{list}");
    assert!(t.get("/marketplace?query=pdf").await.text.contains("noindex"), "a page of results");
    t.janua.db.exec("UPDATE skill SET visibility = 'unlisted'", vec![]).await.unwrap();
    assert!(t.get(&skill).await.text.contains("<meta name=\"robots\" content=\"noindex\">"));
    t.janua.db.exec("UPDATE skill SET visibility = 'public'", vec![]).await.unwrap();
    let call = format!("POST /skills/{slug}.pdf-tools/install");
    let installed = told(&t, &bob, &call, &skill, &[("done", "skill_installed")]).await;
    assert!(
        installed.text.contains("Installed 1.0.0.") && installed.text.contains("Uninstall"),
        "{}",
        installed.text
    );
    let mine = visit(&t, "/account/skills", &bob).await;
    assert!(mine.status == 200 && mine.text.contains("Up to date") && !mine.text.contains("Update available"));
    t.janua.db.exec("UPDATE skill SET latest_version = '1.1.0'", vec![]).await.unwrap();
    let mine = visit(&t, "/account/skills", &bob).await;
    assert!(mine.text.contains("Update available: 1.1.0") && mine.text.contains("Update</button>"), "{}", mine.text);
    t.janua.db.exec("UPDATE skill SET latest_version = '1.0.0'", vec![]).await.unwrap();
    assert!(visit(&t, "/account/skills", &ada).await.text.contains("No skills installed"));
    let call = format!("POST /skills/{slug}.pdf-tools/report");
    let reported = told(&t, &bob, &call, &skill, &[("reason", "spam"), ("done", "skill_reported")]).await;
    assert!(reported.text.contains("Report sent."), "{}", reported.text);

    let queue = visit(&t, "/console/platform/skills", &root).await;
    assert!(queue.status == 200 && queue.text.contains("Nothing to review"), "{}", queue.text);
    let sql = "UPDATE skill_version SET state = 'in_review', published_at = NULL";
    t.janua.db.exec(sql, vec![]).await.unwrap();
    let queue = visit(&t, "/console/platform/skills", &root).await;
    assert!(queue.text.contains("Approve") && queue.text.contains("pdf-tools 1.0.0"), "{}", queue.text);
    let call = format!("POST /admin/skills/{slug}.pdf-tools/versions/1.0.0");
    let fields = [("decision", "approve"), ("done", "version_decided")];
    let decided = told(&t, &root, &call, "/console/platform/skills", &fields).await;
    assert!(decided.text.contains("Decision saved."), "{}", decided.text);
    assert_eq!(visit(&t, "/console/platform/skills", &ada).await.status, 403);
    t.run_jobs().await;
    t.finish().await;
}
