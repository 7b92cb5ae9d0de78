//! The documents as a site: every page, link and anchor, and search.
use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The values of an attribute.
fn values(html: &str, attribute: &str) -> Vec<String> {
    let start = format!(" {attribute}=\"");
    let marks = [("&#x2f;", "/"), ("&quot;", "\""), ("&#x27;", "'"), ("&amp;", "&")];
    let plain = |raw: &str| marks.iter().fold(raw.to_owned(), |text, (mark, plain)| text.replace(mark, plain));
    html.split(&start).skip(1).map(|rest| plain(rest.split('"').next().unwrap_or_default())).collect()
}

async fn all_pages(t: &TestJanua) -> BTreeMap<String, Answer> {
    let index = t.get("/docs").await;
    assert_eq!((index.status, index.header("content-type")), (200, "text/html; charset=utf-8"), "{}", index.text);
    let links: BTreeSet<String> =
        values(&index.text, "href").into_iter().filter(|to| to.starts_with("/docs/")).collect();
    let mut pages = BTreeMap::new();
    for to in links {
        let page = t.get(&to).await;
        assert_eq!(page.status, 200, "{to}: {}", page.text);
        pages.insert(to, page);
    }
    pages.insert("/docs".to_owned(), index);
    pages
}

#[tokio::test]
async fn every_document_is_drawn_and_every_link_and_anchor_leads_somewhere() {
    let t = TestJanua::start(whole).await;
    let pages = all_pages(&t).await;
    assert!(pages.len() > 25, "{}", pages.len());
    let ids: BTreeMap<&str, Vec<String>> =
        pages.iter().map(|(path, page)| (path.as_str(), values(&page.text, "id"))).collect();
    let mut pictures = BTreeSet::new();
    let mut anchors = 0;
    for (path, page) in &pages {
        let unique: BTreeSet<&String> = ids[path.as_str()].iter().collect();
        assert_eq!(unique.len(), ids[path.as_str()].len(), "{path} has an id twice");
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert!(!page.text.contains("style=") && !page.text.contains("<script>"), "{path}");
        assert_eq!(page.text.matches("<h1").count(), 1, "{path}");
        assert!(page.text.len() < 400_000, "{path} has {} bytes", page.text.len());
        for to in values(&page.text, "href") {
            let to = if to.starts_with('#') { format!("{path}{to}") } else { to };
            let (at, anchor) = to.split_once('#').unwrap_or((&to, ""));
            if !at.starts_with("/docs") || at.strip_suffix(".md").is_some() {
                continue;
            }
            let known = ids.get(at).unwrap_or_else(|| panic!("{path} links to {at}"));
            assert!(anchor.is_empty() || known.iter().any(|id| id == anchor), "{path} links to {to}");
            anchors += usize::from(!anchor.is_empty());
        }
        pictures.extend(values(&page.text, "src").into_iter().filter(|src| src.starts_with("/docs")));
    }
    assert!(anchors > 400 && pictures.len() > 20, "{anchors} {}", pictures.len());
    for picture in pictures {
        let answer = t.get(&picture).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "image/png"), "{picture}");
        assert_eq!(t.get(&picture).header("if-none-match", answer.header("etag")).await.status, 304);
    }
    let users = &pages["/docs/users"].text;
    assert!(users.contains("<h2 id=\"accounts\">") && users.contains("data-copy=\"code-1\""), "{users}");
    assert!(users.contains("<a href=\"/docs/errors\">Errors</a>"), "a file is called by its name: {users}");
    assert!(users.contains("<ol class=\"diagram\">") && !users.contains("flowchart LR"), "diagrams are lists");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_document_is_fetched_once_and_one_that_is_not_there_leads_back() {
    let t = TestJanua::start(whole).await;
    for path in ["/docs", "/docs/users", "/docs/users.md"] {
        let first = t.get(path).await;
        assert!(first.header("cache-control").starts_with("public"), "{path}");
        let again = t.get(path).header("if-none-match", first.header("etag")).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
    }
    let markdown = t.get("/docs/users.md").await;
    assert_eq!(markdown.header("content-type"), "text/markdown; charset=utf-8");
    assert!(markdown.text.starts_with("# "), "{}", markdown.text);
    for wrong in ["/docs/nothing", "/docs/sql", "/docs/nothing.md", "/docs/%2e%2e", "/docs/%3Cscript%3E"] {
        let answer = t.get(wrong).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, "text/html; charset=utf-8"), "{wrong}");
        assert!(answer.text.contains("href=\"&#x2f;docs\"") && !answer.text.contains("<script>"), "{}", answer.text);
    }
    for wrong in
        ["/docs/pictures/nothing.png", "/docs/pictures/%2e%2e%2fusers.md", "/docs/pictures/..%2f..%2fCargo.toml"]
    {
        assert_eq!(t.get(wrong).await.status, 404, "{wrong}");
    }
    t.run_jobs().await;
    t.finish().await;
}

/// The pages that a search leads to, the best first.
async fn found(t: &TestJanua, words: &str) -> Vec<String> {
    let page = t.get(&format!("/docs/search?{}", query(&[("q", words)]))).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let list = page.text.split("<ol class=\"hits\">").nth(1).unwrap_or_default();
    values(list.split("</ol>").next().unwrap_or_default(), "href")
}

#[tokio::test]
async fn search_finds_words_settings_and_error_codes() {
    let t = TestJanua::start(whole).await;
    for (words, expected) in [
        ("webhooks", "/docs/webhooks"),
        ("scim", "/docs/scim"),
        ("backup", "/docs/operate#backup-and-restore"),
        ("Roll back SITE", "/docs/sites"),
        ("slug_taken", "/docs/errors"),
        ("trusted_proxies", "/docs/operate"),
        ("kill switch", "/docs/agents"),
    ] {
        let hits = found(&t, words).await;
        let at = hits.iter().position(|to| to.starts_with(expected));
        assert!(at.is_some_and(|at| at < 5), "{words}: {hits:?}");
    }
    let beginning = t.get("/docs/search?q=webho").await.text;
    assert!(beginning.contains("<mark>webhook"), "the beginning of a word is enough: {beginning}");
    for nothing in ["qwertyuiopx", "webhooks qwertyuiopx", "", "  ", "&&&", "___"] {
        assert_eq!(found(&t, nothing).await, Vec::<String>::new(), "{nothing}");
    }
    let attack = t.get(&format!("/docs/search?{}", query(&[("q", "\"><script>alert(1)</script>")]))).await;
    assert!(attack.status == 200 && !attack.text.contains("<script>"), "{}", attack.text);
    let long = t.get(&format!("/docs/search?q={}", "a".repeat(3000))).await;
    assert_eq!(long.status, 200);
    assert!(!long.text.contains(&"a".repeat(101)));
    // Every hit leads to a heading that is there.
    let pages = all_pages(&t).await;
    for to in found(&t, "token").await {
        let (path, anchor) = to.split_once('#').unwrap_or((&to, ""));
        assert!(anchor.is_empty() || values(&pages[path].text, "id").iter().any(|id| id == anchor), "{to}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn other_pages_lead_to_the_documents() {
    let t = TestJanua::start(whole).await;
    identity::testing::member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for (path, cookies) in [("/reference", ""), ("/status", ""), ("/", ada.as_str()), ("/console", ada.as_str())] {
        let page = t.get(path).header("accept", "text/html").header("cookie", cookies).await;
        assert!(page.text.contains("href=\"/docs\""), "{path}");
    }
    t.run_jobs().await;
    t.finish().await;
}
