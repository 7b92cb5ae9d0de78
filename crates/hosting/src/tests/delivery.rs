//! What the edge answers: paths, caching, compression, ranges, rules, hosts.
use std::time::Duration;

use super::*;

#[tokio::test]
async fn pages_assets_and_fallbacks_are_served_as_they_should_be() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let script = "console.log('hello');\n".repeat(50);
    ada.deployed(
        &t,
        &[
            ("index.html", "home"),
            ("docs/index.html", "docs"),
            ("assets/app-DiwrgTda.js", &script),
            ("_headers", "/*\n  X-Frame-Options: DENY\n/docs/*\n  Cache-Control: max-age=60\n  Set-Cookie: a=b\n"),
            ("_redirects", "/old /docs/ 301\n/ext https://example.com/:splat\n"),
            (".env", "SECRET=1"),
            (".well-known/security.txt", "Contact: x"),
        ],
    )
    .await;
    let page = ask(&t, "shop.localhost", "/", &[]).await;
    assert_eq!((page.status, page.text().as_str()), (200, "home"));
    assert_eq!(page.header("cache-control"), "public, max-age=0, must-revalidate");
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!((page.header("x-content-type-options"), page.header("x-frame-options")), ("nosniff", "DENY"));
    assert_eq!(page.header("vary"), "Accept-Encoding");
    let same = ask(&t, "shop.localhost", "/", &[("if-none-match", page.header("etag"))]).await;
    assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, page.header("etag")));
    let asset = ask(&t, "shop.localhost", "/assets/app-DiwrgTda.js", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(asset.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!((asset.header("content-encoding"), asset.text()), ("", script.clone()), "plain until the job has run");
    let docs = ask(&t, "shop.localhost", "/docs/", &[]).await;
    assert_eq!((docs.header("cache-control"), docs.header("set-cookie")), ("max-age=60", ""));
    assert_eq!(ask(&t, "shop.localhost", "/docs", &[]).await.header("location"), "/docs/");
    let old = ask(&t, "shop.localhost", "/old?x=1", &[]).await;
    assert_eq!((old.status, old.header("location")), (301, "/docs/?x=1"));
    assert_eq!(shows(&t, "shop.localhost", "/.well-known/security.txt").await.0, 200);
    for hidden in ["/.env", "/_headers", "/_redirects", "/.git/config", "/%2eenv"] {
        assert_eq!(ask(&t, "shop.localhost", hidden, &[]).await.status, 404, "W06 {hidden}");
    }
    let deep = ask(&t, "shop.localhost", "/app/users/7", &[("accept", "text/html")]).await;
    assert_eq!((deep.status, deep.text().as_str(), deep.header("cache-control")), (200, "home", "no-cache"));
    let chunk = ask(&t, "shop.localhost", "/assets/gone-DiwrgTda.js", &[("accept", "*/*")]).await;
    assert_eq!((chunk.status, chunk.header("cache-control")), (404, "no-cache"), "a missing chunk is never a page");
    let post = send(&t, Request::post("/").header("host", "shop.localhost").body(()).unwrap()).await;
    assert_eq!((post.status, post.header("allow")), (405, "GET, HEAD"));
    let head = send(&t, Request::head("/").header("host", "shop.localhost").body(()).unwrap()).await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "4", 0));

    t.run_jobs().await;
    let compressed = async |accept: &str| {
        let asset = ask(&t, "shop.localhost", "/assets/app-DiwrgTda.js", &[("accept-encoding", accept)]).await;
        (asset.header("content-encoding").to_owned(), asset.header("etag").to_owned(), asset.body)
    };
    let (coding, tag, body) = compressed("gzip, br").await;
    let mut plain = vec![];
    std::io::copy(&mut brotli::Decompressor::new(&body[..], 4096), &mut plain).unwrap();
    assert_eq!((coding.as_str(), String::from_utf8(plain).unwrap()), ("br", script.clone()));
    let (coding, other, body) = compressed("gzip;q=1.0, br;q=0").await;
    let mut plain = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&body[..]), &mut plain).unwrap();
    assert_eq!((coding.as_str(), plain), ("gzip", script.clone()));
    assert_ne!(tag, other, "each form has its own tag");
    assert_eq!(compressed("identity").await.0, "");
    assert_eq!(compressed("BR").await.0, "br", "W22");
    let part = [("range", "bytes=0-6"), ("accept-encoding", "br")];
    let part = ask(&t, "shop.localhost", "/assets/app-DiwrgTda.js", &part).await;
    assert_eq!((part.status, part.text().as_str(), part.header("content-encoding")), (206, "console", ""), "W22");
    assert_eq!(part.header("content-range"), format!("bytes 0-6/{}", script.len()));
    let stale = [("range", "bytes=0-6"), ("if-range", "\"other\"")];
    assert_eq!(ask(&t, "shop.localhost", "/assets/app-DiwrgTda.js", &stale).await.status, 200);
    assert_eq!(ask(&t, "shop.localhost", "/", &[("range", "bytes=99-")]).await.status, 416);
    t.finish().await;
}

#[tokio::test]
async fn files_longer_than_a_piece_come_whole_and_in_parts() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let mut long = String::new();
    while long.len() < 9 << 20 {
        let part = format!("{:016x}", (long.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        long.push_str(&part);
    }
    ada.deployed(&t, &[("index.html", "x"), ("long.bin", &long)]).await;
    let whole = ask(&t, "shop.localhost", "/long.bin", &[]).await;
    assert!(whole.status == 200 && whole.body == long.as_bytes());
    assert_eq!(whole.header("content-length"), long.len().to_string());
    let (from, to) = ((1 << 20) - 3, (3 << 20) + 5);
    let part = ask(&t, "shop.localhost", "/long.bin", &[("range", &format!("bytes={from}-{to}"))]).await;
    assert!(part.status == 206 && part.body == long.as_bytes()[from..=to], "across pieces");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn files_of_the_production_before_stay_reachable_for_a_day() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "one"), ("404.html", "none"), ("app.1a2b3c4d.js", "old"), ("gone.html", "g")])
        .await;
    ada.deployed(&t, &[("index.html", "two"), ("404.html", "none"), ("app.5e6f7a8b.js", "new")]).await;
    assert_eq!(shows(&t, "shop.localhost", "/app.1a2b3c4d.js").await, (200, "old".into()));
    assert_eq!(shows(&t, "shop.localhost", "/gone").await, (404, "none".into()), "pages are not kept");
    t.advance(Duration::from_hours(24));
    assert_eq!(shows(&t, "shop.localhost", "/app.1a2b3c4d.js").await, (404, "none".into()));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn w07_w08_w09_odd_hosts_and_paths_get_nothing() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home"), ("404.html", "none")]).await;
    for host in ["SHOP.localhost", "shop.localhost.", "shop.localhost:8081"] {
        assert_eq!(shows(&t, host, "/").await.0, 200, "{host}");
    }
    assert_eq!(shows(&t, "localhost", "/").await.0, 421, "the console's own host");
    for host in ["other.localhost", "a.shop.localhost", "shop.localhost.evil.test", "aaaaaaaaaaaa--shop.localhost"] {
        assert_eq!(shows(&t, host, "/").await, (404, "There is no site here.\n".into()), "{host}");
    }
    for path in ["/%2e%2e/", "/..%2f", "/%5cevil.test", "/a%00.html", "//evil.test/..", "/%252e%252e/"] {
        let served = ask(&t, "shop.localhost", path, &[("x-forwarded-host", "evil.test")]).await;
        assert_eq!((served.status, served.header("location")), (404, ""), "{path}");
    }
    let two = Request::get("/").header("host", "shop.localhost").header("host", "evil.test").body(()).unwrap();
    assert_eq!(send(&t, two).await.status, 400);
    let absolute = Request::get("http://evil.test/").header("host", "shop.localhost").body(()).unwrap();
    assert_eq!(send(&t, absolute).await.status, 400);
    let connection = Connection { sni: Some("other.localhost".into()), peer: None };
    let request = Request::get("/").header("host", "shop.localhost").body(()).unwrap();
    let edge = t.janua.own::<Arc<Edge>>();
    assert_eq!(respond(&t.janua, edge, &connection, &request).await.status(), 421);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_site_can_be_switched_off_and_its_traffic_is_counted() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home")]).await;
    for _ in 0..3 {
        shows(&t, "shop.localhost", "/").await;
    }
    t.janua.own::<Arc<Edge>>().traffic.flush(&t.janua).await;
    let health = ada.person.asks(t.get("/deployments/health")).await;
    assert_eq!((&health.body["edge"]["requests"], &health.body["edge"]["errors"]), (&json!(3), &json!(0)));
    let path = format!("/apps/{}/cdn", ada.app);
    let shown = ada.person.asks(t.get(&path)).await;
    assert_eq!((&shown.body["provider"], &shown.body["hostname"]), (&json!("edge"), &json!("shop.localhost")));
    let refused = ada.person.asks(t.post(&path).json(&json!({ "provider": "external" }))).await;
    assert_eq!(refused.refusal(), (503, "cdn_not_configured"));
    assert_eq!(ada.person.asks(t.ask(axum::http::Method::DELETE, &path)).await.status, 204);
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 404);
    let on = ada.person.asks(t.post(&path).json(&json!({}))).await;
    assert_eq!((on.status, &on.body["id"]), (200, &shown.body["id"]));
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_proxy_in_front_asks_which_names_are_sites_and_nobody_else_does() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "x")]).await;
    let ask = async |peer: Option<&str>, query: &str| {
        let request = Request::builder().uri(format!("/_janua/ask{query}")).header("host", "127.0.0.1:8081");
        let connection = Connection { sni: None, peer: peer.map(|peer| peer.parse().unwrap()) };
        let edge = t.janua.own::<Arc<Edge>>();
        respond(&t.janua, edge, &connection, &request.body(()).unwrap()).await.status().as_u16()
    };
    let here = Some("127.0.0.1");
    for (peer, query, status) in [
        (here, "?domain=shop.localhost", 200),
        (here, "?domain=SHOP.localhost.", 200),
        (Some("::1"), "?domain=shop.localhost", 200),
        (here, "?domain=other.localhost", 404),
        (here, "?domain=localhost", 404),
        (here, "?domain=", 404),
        (here, "", 404),
        (Some("192.0.2.1"), "?domain=shop.localhost", 404),
        (None, "?domain=shop.localhost", 404),
    ] {
        assert_eq!(ask(peer, query).await, status, "{peer:?} {query}");
    }
    t.run_jobs().await;
    t.finish().await;
}

async fn egress(t: &TestJanua) -> i64 {
    t.janua.own::<Arc<Edge>>().traffic.flush(&t.janua).await;
    let sql = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM site_traffic";
    let (bytes,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    bytes
}

#[tokio::test]
async fn traffic_is_what_was_handed_on() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let long = "0123456789abcdef".repeat(3 << 16);
    ada.deployed(&t, &[("index.html", "home"), ("long.bin", &long)]).await;
    let head = send(&t, Request::head("/long.bin").header("host", "shop.localhost").body(()).unwrap()).await;
    assert_eq!((head.status, head.header("content-length")), (200, "3145728"));
    assert_eq!(egress(&t).await, 0, "nothing was sent");
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 200);
    assert_eq!(egress(&t).await, 4);
    assert_eq!(ask(&t, "shop.localhost", "/long.bin", &[("range", "bytes=0-9")]).await.status, 206);
    assert_eq!(egress(&t).await, 14);
    // A visitor who leaves after the first piece.
    let request = Request::get("/long.bin").header("host", "shop.localhost").body(()).unwrap();
    let edge = t.janua.own::<Arc<Edge>>();
    let mut body = respond(&t.janua, edge, &Connection::default(), &request).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    drop(body);
    let sent = egress(&t).await;
    assert_eq!(sent, 14 + i64::try_from(first).unwrap());
    assert!(sent < 2 << 20, "not the whole file");
    // Counts are written while the rest is on its way.
    let mut body = respond(&t.janua, edge, &Connection::default(), &request).await.into_body();
    body.frame().await.unwrap().unwrap();
    egress(&t).await;
    while body.frame().await.is_some() {}
    assert_eq!(egress(&t).await, sent + 3_145_728);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn w22_no_answer_stands_for_another() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let script = "console.log('hello');\n".repeat(50);
    let rules = "/*\n  Cache-Control: public, max-age=31536000, immutable\n  CDN-Cache-Control: max-age=9\n  \
                 Surrogate-Control: max-age=9\n  Expires: Thu, 01 Jan 2099 00:00:00 GMT\n";
    let files =
        [("index.html", "home"), ("404.html", "none"), ("app.1a2b3c4d.js", script.as_str()), ("_headers", rules)];
    let made = ada.deployed(&t, &files).await;
    t.run_jobs().await;
    let js = "/app.1a2b3c4d.js";
    let get = async |path: &str, headers: &[(&str, &str)]| ask(&t, "shop.localhost", path, headers).await;
    let head = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::head(path).header("host", "shop.localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(&t, request.body(()).unwrap()).await
    };

    // HEAD says what GET would, for each form.
    let mut tags = vec![];
    for (accepts, coding) in
        [("", ""), ("identity", ""), ("gzip", "gzip"), ("br, gzip", "br"), ("GZIP ; q=1", "gzip")]
    {
        let sent = [("accept-encoding", accepts)];
        let (whole, says) = (get(js, &sent).await, head(js, &sent).await);
        assert_eq!(whole.header("content-encoding"), coding, "{accepts}");
        for name in ["content-encoding", "content-length", "content-type", "etag", "cache-control", "vary"] {
            assert_eq!(whole.header(name), says.header(name), "{accepts}: {name}");
        }
        assert_eq!((says.body.len(), whole.header("content-length")), (0, whole.body.len().to_string().as_str()));
        assert_eq!(whole.header("vary"), "Accept-Encoding", "{accepts}");
        if !tags.contains(&whole.header("etag").to_owned()) {
            tags.push(whole.header("etag").to_owned());
        }
    }
    assert_eq!(tags.len(), 3, "each form has its own tag: {tags:?}");
    // A tag is that of one form, so a client with another form is sent the one it understands.
    for (at, accepts) in ["identity", "gzip", "br"].iter().enumerate() {
        for (other, tag) in tags.iter().enumerate() {
            let same = get(js, &[("accept-encoding", accepts), ("if-none-match", tag)]).await;
            assert_eq!(same.status, if at == other { 304 } else { 200 }, "{accepts} {tag}");
            assert_eq!(same.header("vary"), "Accept-Encoding", "a 304 renews the key, too");
        }
    }

    // Odd forms are understood as RFC 9110 says, or get the plain bytes.
    for (accepts, coding) in [
        ("gzip;q=0", ""),
        ("gzip; Q=0.000", ""),
        ("gzip;x=1;q=0", ""),
        ("br;q=0, gzip;q=0.1", "gzip"),
        ("*", ""),
        (",,,", ""),
        ("brgzip", ""),
        ("gzip\tbr", ""),
        ("\"br\"", ""),
    ] {
        let served = get(js, &[("accept-encoding", accepts)]).await;
        assert_eq!((served.status, served.header("content-encoding")), (200, coding), "{accepts}");
    }
    let two = [("accept-encoding", "identity"), ("accept-encoding", "br")];
    assert_eq!(get(js, &two).await.header("content-encoding"), "br", "lines are one list");

    // A part is one of the plain bytes, whatever is accepted; HEAD has no parts.
    let part = get(js, &[("accept-encoding", "br"), ("range", "bytes=0-6")]).await;
    assert_eq!((part.status, part.text().as_str(), part.header("content-encoding")), (206, "console", ""));
    assert_eq!(part.header("etag"), tags[0]);
    let mixed = get(js, &[("accept-encoding", "br"), ("range", "bytes=0-6"), ("if-range", &tags[2])]).await;
    assert_eq!((mixed.status, mixed.body.len()), (200, script.len()), "a part never completes another form");
    let says = head(js, &[("accept-encoding", "br"), ("range", "bytes=0-6")]).await;
    assert_eq!((says.status, says.header("content-range")), (200, ""));

    // Neither queries nor headers that no key has make a difference.
    for query in ["?", "?a=1", "?a=1&a=2", "?%00", "?../x", "?//evil.test"] {
        let served = get(&format!("{js}{query}"), &[]).await;
        assert_eq!((served.status, served.header("etag"), served.header("location")), (200, tags[0].as_str(), ""));
    }
    let plain = get(js, &[]).await;
    let page = get("/", &[("accept", "text/html")]).await;
    for (name, value) in [
        ("x-forwarded-host", "evil.test"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-prefix", "/evil"),
        ("forwarded", "host=evil.test;proto=http"),
        ("x-original-url", "/404.html"),
        ("x-rewrite-url", "/404.html"),
        ("x-http-method-override", "HEAD"),
        ("x-janua-site", "evil.localhost"),
        ("origin", "https://evil.test"),
        ("cookie", "janua_preview=1; session=1"),
        ("authorization", "Bearer x"),
        ("accept-language", "tlh"),
        ("user-agent", "<script>"),
        ("transfer-encoding", "chunked"),
    ] {
        for (path, before) in [(js, &plain), ("/", &page)] {
            let served = get(path, &[("accept", "text/html"), (name, value)]).await;
            assert_eq!((served.status, &served.body), (before.status, &before.body), "{name} {path}");
            assert_eq!(served.headers, before.headers, "{name} {path}");
        }
    }

    // What stands in for a missing file is never kept, whatever the site says of its files.
    let says = |served: &Served| {
        ["cache-control", "cdn-cache-control", "surrogate-control", "expires"]
            .map(|name| served.header(name).to_owned())
    };
    let missing = get("/gone.1a2b3c4d.js", &[]).await;
    assert_eq!((missing.status, says(&missing)), (404, ["no-cache", "", "", ""].map(String::from)));
    assert_eq!(plain.header("cdn-cache-control"), "max-age=9", "its own files are the site's business");
    let preview = ask(&t, &host_of(&made["previewUrl"]), js, &[]).await;
    assert_eq!((preview.status, says(&preview)), (200, ["private, no-store", "", "", ""].map(String::from)));
    t.run_jobs().await;
    t.finish().await;
}

#[test]
fn a_redirect_to_https_keeps_the_port() {
    use crate::edge::settings::{https_of, tls_port};
    let port = |listens: Option<&str>, url: &str| {
        let config = Config::for_tests()
            .with(|settings: &mut crate::Settings| settings.edge_tls_listen = listens.map(|at| at.parse().unwrap()))
            .with(|settings: &mut crate::edge::Settings| {
                settings.edge_url = (!url.is_empty()).then(|| url.parse().unwrap());
            });
        tls_port(&config)
    };
    assert_eq!(port(None, "https://localhost"), None);
    assert_eq!(port(Some("127.0.0.1:8443"), ""), Some(8443));
    assert_eq!(port(Some("127.0.0.1:443"), ""), Some(443));
    assert_eq!(port(Some("127.0.0.1:8443"), "https://localhost"), Some(443), "as browsers reach it");
    assert_eq!(port(Some("127.0.0.1:8443"), "https://localhost:9443"), Some(9443));
    assert_eq!(port(Some("127.0.0.1:8443"), "http://localhost"), Some(443), "the usual ports are mapped");
    assert_eq!(port(Some("127.0.0.1:8443"), "http://localhost:8080"), Some(8443));
    assert_eq!(https_of("a.test", 443), "https://a.test");
    assert_eq!(https_of("a.test", 8443), "https://a.test:8443");
}
