//! Pages of other origins.
use super::*;

fn config() -> Config {
    Config {
        base_url: Some("https://id.example.com".parse().unwrap()),
        allowed_origins: vec![Origin("https://app.example.com".into())],
        ..Config::for_tests()
    }
}

#[tokio::test]
async fn only_our_origins_may_read_answers_with_cookies() {
    let t = TestJanua::start_with(config(), feature).await;
    for origin in ["https://id.example.com", "https://app.example.com"] {
        let answer = t.get("/whoami").header("origin", origin).await;
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert_eq!(answer.header("vary"), "origin");
        let asked = t
            .ask(Method::OPTIONS, "/echo")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .await;
        assert_eq!(asked.status, 204);
        assert!(asked.header("access-control-allow-headers").contains("x-service-app-key"));
    }
    for origin in [
        "https://evil.example",
        "null",
        "http://id.example.com",
        "https://id.example.com.evil.tld",
        "https://id.example.com:8443",
        "https://ID.example.com",
        "https://sub.id.example.com",
    ] {
        let answer = t.get("/whoami").header("origin", origin).await;
        assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
        assert_eq!(answer.header("access-control-allow-credentials"), "", "{origin}");
        let asked = t.ask(Method::OPTIONS, "/echo").header("origin", origin);
        let asked = asked.header("access-control-request-method", "POST").await;
        assert_eq!(asked.header("access-control-allow-methods"), "", "{origin}");
    }
    t.finish().await;
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing_from_another_site() {
    let t = TestJanua::start_with(config(), feature).await;
    let cookies = [
        "__Host-service_access=x",
        "service_access=x",
        "theme=dark; service_refresh=x",
        "a=b;__Host-service_refresh=x",
        " service_access =x",
        "caf\u{e9}=1; service_access=x",
    ];
    for cookie in cookies {
        let send = |origin: Option<&str>, site: Option<&str>| {
            let mut ask = t.post("/echo").json(&ada()).header("cookie", cookie);
            if let Some(origin) = origin {
                ask = ask.header("origin", origin);
            }
            if let Some(site) = site {
                ask = ask.header("sec-fetch-site", site);
            }
            ask.send()
        };
        for (origin, site) in [
            (None, None),
            (Some("https://evil.example"), None),
            (Some("null"), None),
            (Some("https://evil.example"), Some("same-origin")),
            (None, Some("cross-site")),
            (None, Some("same-site")),
            (None, Some("none")),
        ] {
            let answer = send(origin, site).await;
            assert_eq!(answer.refusal(), (403, "cross_site"), "{cookie} {origin:?} {site:?}");
        }
        assert_eq!(send(None, Some("same-origin")).await.status, 200, "{cookie}: our own page");
        assert_eq!(send(Some("https://app.example.com"), Some("cross-site")).await.status, 200, "a site we know");
    }
    let evil = "https://evil.example";
    let bearer = t.post("/echo").json(&ada()).header("cookie", "service_access=x").header("origin", evil);
    assert_eq!(bearer.header("authorization", "bearer x").await.status, 200, "no page can send this unasked");
    let basic = t.post("/echo").json(&ada()).header("cookie", "service_access=x").header("origin", evil);
    assert_eq!(basic.header("authorization", "Basic x").await.status, 403, "a browser may send this by itself");
    let nobody = t.post("/echo").json(&ada()).header("cookie", "theme=dark").header("origin", evil);
    assert_eq!(nobody.await.status, 200, "nothing to forge");
    assert_eq!(t.get("/whoami").header("cookie", "service_access=x").header("origin", evil).await.status, 200);
    t.finish().await;
}
