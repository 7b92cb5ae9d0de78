//! No dead ends: a home, pages for errors with a way on, and requests of clients that say what is wrong.
use axum::http::Method;
use identity::{first_owner::link, testing::PASSWORD};

use super::*;

const HTML: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn open(t: &TestJanua, method: Method, path: &str, cookies: &str) -> Answer {
    t.ask(method, path).header("accept", HTML).header("cookie", cookies).await
}

#[tokio::test]
async fn the_home_page_says_where_the_owners_link_is_and_then_the_way_in() {
    let t = start().await;
    let secret = link(&t.janua).await.unwrap().expect("a link");
    let token = secret.split_once("token=").expect("a token").1;
    for path in ["/", "/console"] {
        let page = t.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("has no owner yet") && page.text.contains("janua serve"), "{path}: {}", page.text);
        assert!(!page.text.contains(token), "never the link itself");
    }
    let owner = [("token", token), ("name", "Root"), ("email", "root@example.com"), ("password", PASSWORD)];
    let root = cookies(&submit(&t, "/first-owner", &owner, "").await);
    let page = t.get("/").await;
    assert!(page.text.contains("href=\"&#x2f;sign-in\"") && !page.text.contains("no owner"), "{}", page.text);
    assert_eq!(sent(&t.get("/console").await).0, format!("{}/sign-in", base(&t)));
    let page = visit(&t, "/", &root).await;
    assert!(page.text.contains("Open console") && page.text.contains("root@example.com"), "{}", page.text);
    identity::testing::member(&t, "ada@example.com").await;
    let page = visit(&t, "/", &browser(&t, "ada@example.com").await).await;
    assert!(page.text.contains("Open your account") && !page.text.contains("Open console"), "{}", page.text);
    for path in ["/reference", "/status"] {
        assert!(page.text.contains(&format!("href=\"{path}\"")), "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn browsers_get_pages_with_the_request_id_and_programs_get_problems() {
    let t = start().await;
    identity::testing::member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let cases = [
        (Method::GET, "/nothing/here", 404, "Page not found"),
        (Method::GET, "/act", 405, "Page not found"),
        (Method::GET, "/admin/queues", 403, "Access denied"),
    ];
    for (method, path, status, title) in cases {
        let ask = |accept: &'static str| t.ask(method.clone(), path).header("accept", accept).header("cookie", &ada);
        let page = ask(HTML).await;
        assert_eq!((page.status, page.header("content-type")), (status, "text/html; charset=utf-8"), "{path}");
        assert!(page.text.contains(title) && page.text.contains("href=\"&#x2f;\""), "{path}: {}", page.text);
        assert!(page.text.contains(page.header("x-request-id")), "{path}: {}", page.text);
        assert!(page.header("content-security-policy").contains("default-src 'none'"), "{path}");
        assert_eq!(page.header("allow").is_empty(), status != 405, "{path}");
        for accept in ["*/*", "application/json", "application/json, text/html"] {
            let problem = ask(accept).await;
            assert_eq!(problem.header("content-type"), "application/problem+json", "{path} for {accept}");
        }
    }
    let anybody = t.get("/user/orgs").header("accept", HTML).await;
    assert!(anybody.status == 401 && anybody.text.contains("href=\"&#x2f;sign-in\""), "{}", anybody.text);
    // A program that names HTML, as Java's does, and brings a token.
    let java =
        t.get("/nothing").header("accept", "text/html, image/gif, */*; q=.2").header("authorization", "Bearer x");
    assert_eq!(java.await.header("content-type"), "application/problem+json");
    // A standard says how these look, also to a browser.
    assert_eq!(open(&t, Method::GET, "/oauth/nothing", "").await.header("content-type"), "application/json");
    t.finish().await;
}

#[tokio::test]
async fn a_redirect_that_is_not_registered_is_named_and_the_registered_ones_to_members_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    identity::testing::member(&t, "bob@example.com").await;
    let app = client(&t, &ada, "Tiny Notes").await;
    let (members, others) = (browser(&t, "ada@example.com").await, browser(&t, "bob@example.com").await);
    let wrong = format!("/oauth/authorize?{}", asked(&app.id, &[("redirect_uri", "https://wrong.example/cb")]));
    let settings = format!("/console/apps/{}", app.id).replace('/', "&#x2f;");
    for (who, is_member) in [(&*members, true), (&*others, false), ("", false)] {
        let page = open(&t, Method::GET, &wrong, who).await;
        assert_eq!(page.status, 400);
        assert!(page.text.contains("This redirect URL is not registered."), "{}", page.text);
        assert!(page.text.contains("https:&#x2f;&#x2f;wrong.example&#x2f;cb"), "what was sent: {}", page.text);
        assert_eq!(page.text.contains("app.example&#x2f;cb"), is_member, "what is registered: {}", page.text);
        assert_eq!(page.text.contains(&settings), is_member, "{}", page.text);
        assert_eq!(page.text.contains("Tiny Notes"), is_member);
    }
    let unknown = open(&t, Method::GET, &format!("/oauth/authorize?{}", asked("nobody", &[])), &members).await;
    assert!(unknown.status == 400 && unknown.text.contains("Unknown client ID."), "{}", unknown.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_url_that_forms_are_sent_to_leads_to_the_page_of_its_form() {
    let t = start().await;
    for (path, to) in [
        ("/sign-in/factor", "/sign-in"),
        ("/sign-in/with", "/sign-in"),
        ("/sign-in/link", "/sign-in"),
        ("/sign-in/follow", "/sign-in"),
        ("/reset-password", "/forgot-password"),
        ("/accept-invite", "/"),
        ("/check-email/again", "/check-email"),
        ("/device/decide", "/device"),
    ] {
        let answer = open(&t, Method::GET, path, "").await;
        assert_eq!((answer.status, answer.header("location")), (303, to), "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn links_that_are_over_say_how_to_go_on() {
    let t = start().await;
    for (path, says) in [
        ("/auth/verify?token=x", "Send new link"),
        ("/auth/magic-link/verify?token=x", "Send new link"),
        ("/auth/reset-password?token=x", "Send new link"),
        ("/auth/accept-invite?token=x", "Ask the person who invited you"),
        ("/first-owner?token=x", "each time it starts"),
    ] {
        let page = open(&t, Method::GET, path, "").await;
        assert!(page.status == 410 && page.text.contains(says), "{path}: {} {}", page.status, page.text);
        assert!(!page.text.contains("tile-icon good"), "{path}: no green check");
    }
    t.finish().await;
}

/// HTML, stylesheets, scripts and the mark, as they are sent.
#[tokio::test]
async fn the_sign_in_page_is_less_than_30_kb_in_all() {
    let t = TestJanua::start(whole).await;
    let page = t.get("/sign-in").header("accept-encoding", "gzip").await;
    let mut bytes = page.text.len();
    let mut parts = vec![];
    for (before, after) in [("src=\"", "\""), ("rel=\"stylesheet\" href=\"", "\""), ("rel=\"icon\" href=\"", "\"")] {
        parts.extend(page.text.split(before).skip(1).filter_map(|rest| rest.split(after).next()));
    }
    assert_eq!(parts.len(), 3, "a script, a stylesheet and the mark: {parts:?}");
    for part in parts {
        let sent = t.get(part).header("accept-encoding", "gzip").await;
        assert_eq!(sent.status, 200, "{part}");
        bytes += sent.bytes.len();
    }
    assert!(bytes < 30_000, "{bytes} bytes");
    t.finish().await;
}
