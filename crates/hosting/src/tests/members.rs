//! Sites and previews for members (W26).
use axum::http::Method;

use super::*;

/// A browser: it keeps cookies, of the console and of one site.
#[derive(Default)]
struct Jar(Vec<(String, String)>);

impl Jar {
    fn take(&mut self, headers: &HeaderMap) {
        for set in headers.get_all("set-cookie") {
            let (name, value) = set.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.0.retain(|(known, _)| known != name);
            self.0.push((name.into(), value.into()));
        }
    }

    fn header(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }
}

async fn visit(t: &TestJanua, host: &str, path: &str, jar: &mut Jar) -> Served {
    let served = ask(t, host, path, &[("accept", "text/html"), ("cookie", &jar.header())]).await;
    jar.take(&served.headers);
    served
}

/// The way from the site to the console and back; answers where the console sends the browser.
async fn prove(t: &TestJanua, person: &Person, to: &str) -> Answer {
    let path =
        to.strip_prefix("http://localhost:0").or_else(|| to.find("/edge").map(|at| &to[at..])).unwrap().to_owned();
    person.asks(t.get(&path)).await
}

fn path_of(url: &str) -> &str {
    &url[url.find("/_janua").unwrap()..]
}

#[tokio::test]
async fn w26_a_preview_for_members_opens_for_a_session_and_ends_with_it() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let made = ada.deployed(&t, &[("index.html", "secret plans"), ("a.js", "1")]).await;
    ada.sets(&t, json!({ "previewAccess": "members" })).await;
    let host = host_of(&made["previewUrl"]);
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 200, "production is open");
    let script = ask(&t, &host, "/a.js", &[]).await;
    assert_eq!((script.status, script.header("cache-control")), (401, "private, no-store"));
    let mut jar = Jar::default();
    let sent = visit(&t, &host, "/?a=1", &mut jar).await;
    assert_eq!(sent.status, 302);
    let to = sent.header("location").to_owned();

    let stranger = signed_in(&t, "eve@example.com").await;
    assert_eq!(prove(&t, &stranger, &to).await.status, 404);
    let anonymous = t.get(&to[to.find("/edge").unwrap()..]).await;
    assert!(
        anonymous.status == 303 && anonymous.header("location").contains("/sign-in?continue="),
        "{}",
        anonymous.text
    );

    let back = prove(&t, &ada.person, &to).await;
    assert_eq!(back.status, 303, "{}", back.text);
    let back = path_of(back.header("location")).to_owned();
    let other_browser = visit(&t, &host, &back, &mut Jar::default()).await;
    assert_eq!(other_browser.status, 403, "the code is for the browser that asked");
    let waiting = Jar(jar.0.clone());
    let entered = visit(&t, &host, &back, &mut jar).await;
    assert_eq!((entered.status, entered.header("location")), (302, "/?a=1"));
    assert_eq!(visit(&t, &host, &back, &mut Jar(waiting.0)).await.status, 403, "a code works once");
    let page = visit(&t, &host, "/?a=1", &mut jar).await;
    assert_eq!(
        (page.status, page.text().as_str(), page.header("cache-control")),
        (200, "secret plans", "private, no-store")
    );
    assert_eq!(page.header("x-robots-tag"), "noindex");

    let second = ada.deployed(&t, &[("index.html", "other")]).await;
    let other = host_of(&second["previewUrl"]);
    assert_eq!(visit(&t, &other, "/", &mut Jar(jar.0.clone())).await.status, 302, "a cookie of another preview");
    let evil = visit(&t, &host, "/_janua/enter?code=x&to=//evil.test", &mut jar).await;
    assert_eq!(evil.status, 403);

    let out = ada.person.asks(t.post("/auth/logout")).await;
    assert!(out.status < 300, "{}", out.text);
    assert_eq!(visit(&t, &host, "/", &mut jar).await.status, 302, "it ends with the session");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn w26_a_removed_member_sees_nothing_more() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "intranet")]).await;
    ada.sets(&t, json!({ "access": "members" })).await;
    let bob = signed_in(&t, "bob@example.com").await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, db::params![&ada.org, &bob.id]).await.unwrap();
    let mut jar = Jar::default();
    let to = visit(&t, "shop.localhost", "/", &mut jar).await.header("location").to_owned();
    let back = prove(&t, &bob, &to).await;
    assert_eq!(back.status, 303, "{}", back.text);
    let back = path_of(back.header("location")).to_owned();
    visit(&t, "shop.localhost", &back, &mut jar).await;
    assert_eq!(visit(&t, "shop.localhost", "/", &mut jar).await.text(), "intranet");
    let removed = ada.person.asks(t.ask(Method::DELETE, &format!("/org/{}/members/{}", ada.org, bob.id))).await;
    assert!(removed.status < 300, "{}", removed.text);
    assert_eq!(visit(&t, "shop.localhost", "/", &mut jar).await.status, 302);
    t.run_jobs().await;
    t.finish().await;
}
