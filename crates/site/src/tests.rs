//! The site through its front door, on whichever database the run chose.
use std::time::Duration;

use axum::http::Method;
use db::params;
use kernel::{config::Config, testing::TestJanua, transact};
use serde_json::{Value, json};

use crate::status::incidents::{self, Impact, Report, Stage};

fn feature(config: &Config) -> kernel::feature::Feature {
    tenancy::feature(config).and(crate::feature(config))
}

#[tokio::test]
async fn health_tells_the_truth_about_the_database() {
    let t = TestJanua::start(feature).await;
    let answer = t.get("/health").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        (&answer.body["live"], &answer.body["ready"], &answer.body["status"]),
        (&json!(true), &json!(true), &json!("ok"))
    );
    assert_eq!(answer.body["checks"][0]["name"], "database");
    assert_eq!(t.get("/health?part=live").await.status, 200);
    let answer = t.get("/health?part=everything").await;
    assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["part"]));
    assert_eq!(t.ask(Method::HEAD, "/health").await.text, "", "a probe may ask for the head alone");
    t.finish().await;
}

#[tokio::test]
async fn status_is_unknown_until_somebody_looked_and_then_says_what_was_seen() {
    let t = TestJanua::start(feature).await;
    let before = t.get("/status").await;
    assert_eq!((&before.body["status"], &before.body["components"]), (&Value::Null, &json!([])));
    t.run_jobs().await;
    let after = t.get("/status").await;
    assert_eq!(after.body["status"], "operational");
    let names: Vec<_> =
        after.body["components"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["api", "database", "jobs", "mail"]);
    assert_eq!(after.body["updatedAt"], "2026-01-31T10:00:00.000Z");

    t.mailbox.set_down(true);
    t.advance(Duration::from_mins(1));
    t.run_jobs().await;
    let down = t.get("/status").await;
    assert_eq!(down.body["status"], "outage");
    let mail = &down.body["components"][3];
    assert_eq!((&mail["state"], &mail["detail"]), (&json!("outage"), &json!("not working at the moment")));
    assert!(!down.text.contains("mailbox"), "the cause is for the log");
    t.finish().await;
}

#[tokio::test]
async fn the_canary_goes_all_the_way_each_time() {
    let t = TestJanua::start(feature).await;
    let answer = t.get("/status/canary").await;
    assert_eq!((answer.status, &answer.body["ok"]), (200, &json!(true)));
    t.finish().await;
}

#[tokio::test]
async fn uptime_is_kept_for_each_component_and_day_for_ninety_days() {
    let t = TestJanua::start(feature).await;
    t.run_jobs().await;
    t.mailbox.set_down(true);
    t.advance(Duration::from_mins(1));
    t.run_jobs().await;
    let answer = t.get("/status/uptime").await;
    let component = |name: &str| {
        let components = answer.body["components"].as_array().unwrap();
        components.iter().find(|c| c["name"] == name).unwrap().clone()
    };
    let mail = component("mail");
    assert_eq!(mail["uptime"], 50.0);
    let days = mail["days"].as_array().unwrap();
    assert_eq!(days.len(), 90);
    assert_eq!(days[89], json!({ "day": "2026-01-31", "uptime": 50.0, "checks": 2, "failures": 1 }));
    assert_eq!(days[88]["uptime"], Value::Null, "nobody looked");
    assert_eq!(component("database")["uptime"], 100.0);

    // Three hours in which nobody could look are three hours of downtime.
    t.mailbox.set_down(false);
    t.advance(Duration::from_hours(3));
    t.run_jobs().await;
    let answer = t.get("/status/uptime").await;
    let api = answer.body["components"].as_array().unwrap().iter().find(|c| c["name"] == "api").unwrap().clone();
    assert_eq!(api["days"][89]["failures"], 180);

    t.advance(Duration::from_hours(91 * 24));
    t.run_jobs().await;
    let oldest: (i64,) = t.janua.db.one("SELECT MIN(day) AS day FROM uptime_day", params![]).await.unwrap();
    assert_eq!(oldest.0, t.janua.clock.now().day().0 - 89, "older days are forgotten");
    t.finish().await;
}

#[tokio::test]
async fn an_incident_has_a_timeline_and_once_resolved_stays_so() {
    let t = TestJanua::start(feature).await;
    let tell = |message: &str, stage| Report { message: message.into(), stage: Some(stage), ..Report::default() };
    let opened = transact!(t.janua, async |tx| {
        let report = Report {
            title: Some("Sign-in is slow".into()),
            impact: Some(Impact::Major),
            components: Some(vec!["api".into()]),
            message: "We are looking into it.".into(),
            stage: None,
        };
        incidents::open(tx, &t.janua, report).await
    })
    .unwrap();
    let summary = t.get("/status").await;
    assert_eq!(
        (&summary.body["status"], &summary.body["openIncidents"][0]["title"]),
        (&json!("degraded"), &json!("Sign-in is slow"))
    );

    for (message, stage) in
        [("Found it.", Stage::Identified), ("Watching.", Stage::Monitoring), ("Over.", Stage::Resolved)]
    {
        t.advance(Duration::from_mins(5));
        transact!(t.janua, async |tx| incidents::update(tx, &t.janua, opened.id, tell(message, stage)).await)
            .unwrap();
    }
    let again =
        transact!(t.janua, async |tx| incidents::update(tx, &t.janua, opened.id, tell("?", Stage::Identified)).await);
    assert_eq!(again.unwrap_err().code(), incidents::ALREADY_RESOLVED);

    let answer = t.get("/status/incidents").await;
    let incident = &answer.body["incidents"][0];
    assert_eq!(
        (&incident["state"], &incident["resolvedAt"]),
        (&json!("resolved"), &json!("2026-01-31T10:15:00.000Z"))
    );
    let states: Vec<_> =
        incident["updates"].as_array().unwrap().iter().map(|u| u["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["investigating", "identified", "monitoring", "resolved"]);
    assert_eq!(t.get("/status").await.body["openIncidents"], json!([]));
    t.finish().await;
}

#[tokio::test]
async fn incidents_are_paged_newest_first() {
    let t = TestJanua::start(feature).await;
    for i in 0..5 {
        let report = Report { title: Some(format!("number {i}")), message: "m".into(), ..Report::default() };
        transact!(t.janua, async |tx| incidents::open(tx, &t.janua, report.clone()).await).unwrap();
        // Two in the same millisecond must not be lost between pages.
        t.advance(Duration::from_millis(i % 2));
    }
    let mut seen = Vec::new();
    let mut path = "/status/incidents?limit=2".to_owned();
    loop {
        let page = t.get(&path).await;
        for incident in page.body["incidents"].as_array().unwrap() {
            assert_eq!(incident["updates"].as_array().unwrap().len(), 1, "each with its own timeline");
            seen.push(incident["title"].as_str().unwrap().to_owned());
        }
        match page.body["nextCursor"].as_str() {
            Some(cursor) => path = format!("/status/incidents?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["number 0", "number 1", "number 2", "number 3", "number 4"]);
    t.finish().await;
}

fn https() -> Config {
    Config { base_url: Some("https://id.example.com".parse().unwrap()), ..Config::for_tests() }.with(
        |operator: &mut crate::Operator| {
            operator.operator_name = "Example & Söhne <GmbH>".into();
            operator.operator_email = "legal@example.com".into();
        },
    )
}

#[tokio::test]
async fn security_txt_says_whom_to_tell_and_until_when() {
    let t = TestJanua::start_with(https(), feature).await;
    let answer = t.get("/.well-known/security.txt").await;
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(
        answer.text,
        "Contact: mailto:legal@example.com\nExpires: 2026-07-30T00:00:00.000Z\nPreferred-Languages: en\n\
         Canonical: https://id.example.com/.well-known/security.txt\n"
    );
    t.advance(Duration::from_hours(24));
    assert!(t.get("/.well-known/security.txt").await.text.contains("Expires: 2026-07-31"), "it never runs out");
    t.finish().await;
}

#[tokio::test]
async fn password_managers_find_where_passwords_and_passkeys_are_changed() {
    let t = TestJanua::start_with(https(), feature).await;
    let change = t.get("/.well-known/change-password").await;
    let page = "https://id.example.com/account/security#password-section";
    assert_eq!((change.status, change.header("location")), (303, page));
    let passkeys = t.get("/.well-known/passkey-endpoints").await;
    let page = "https://id.example.com/account/security#passkeys";
    assert_eq!((passkeys.status, passkeys.header("content-type")), (200, "application/json"));
    assert_eq!(passkeys.body, json!({ "enroll": page, "manage": page }));
    let unreliable = "/.well-known/resource-that-should-not-exist-whose-status-code-should-not-be-200";
    assert_eq!(t.get(unreliable).await.status, 404, "by which password managers tell whether to believe the rest");
    t.finish().await;

    let by_number = Config { base_url: Some("https://192.0.2.7".parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(by_number, feature).await;
    assert_eq!(t.get("/.well-known/passkey-endpoints").await.body, json!({}), "passkeys need a host name");
    t.finish().await;
}

#[tokio::test]
async fn webfinger_points_every_address_of_ours_to_the_issuer() {
    let t = TestJanua::start_with(https(), feature).await;
    let issuer = "http://openid.net/specs/connect/1.0/issuer";
    for resource in ["acct:ada@id.example.com", "acct:nobody@ID.example.com", "https://id.example.com/x"] {
        let answer = t.get(&format!("/.well-known/webfinger?resource={resource}")).await;
        assert_eq!(answer.header("content-type"), "application/jrd+json");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "any page may look");
        assert_eq!(answer.body["subject"], resource);
        assert_eq!(answer.body["links"], json!([{ "rel": issuer, "href": "https://id.example.com" }]));
    }
    let other = t.get("/.well-known/webfinger?resource=acct:a@id.example.com&rel=avatar&rel=blog").await;
    assert_eq!(other.body["links"], json!([]), "only what was asked for");
    for other in ["acct:a@elsewhere.example", "mailto:a@id.example.com", "https://id.example.com.evil.tld/"] {
        let answer = t.get(&format!("/.well-known/webfinger?resource={other}")).await;
        assert_eq!(answer.refusal(), (404, "not_found"), "{other}");
    }
    for wrong in ["", "?resource=", "?resource=ada", "?resource=:a@id.example.com"] {
        let answer = t.get(&format!("/.well-known/webfinger{wrong}")).await;
        assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["resource"]), "{wrong}");
    }
    t.finish().await;
}

#[tokio::test]
async fn legal_documents_exist_for_their_jurisdictions_and_no_others() {
    let t = TestJanua::start_with(https(), feature).await;
    for (document, exists_for) in [
        ("terms", vec!["en", "eu", "uk", "us"]),
        ("privacy", vec!["en", "eu", "uk", "us"]),
        ("cookie-policy", vec!["en", "eu", "uk"]),
        ("dpa", vec!["en"]),
    ] {
        for jurisdiction in ["en", "eu", "uk", "us", "fr", "EN", ".."] {
            let answer = t.get(&format!("/legal/{document}?jurisdiction={jurisdiction}")).await;
            if exists_for.contains(&jurisdiction) {
                assert_eq!((answer.status, &answer.body["jurisdiction"]), (200, &json!(jurisdiction)), "{document}");
                let text = answer.body["content"].as_str().unwrap();
                assert!(
                    text.contains("Example & Söhne <GmbH>") && text.contains("In force from 2026-11-1"),
                    "{text}"
                );
                for leftover in ["{{", "{%", "[OPERATOR", "TODO"] {
                    assert!(!text.contains(leftover), "{document} {jurisdiction} has {leftover}");
                }
            } else {
                assert_eq!(answer.refusal(), (404, "no_such_jurisdiction"), "{document} {jurisdiction}");
            }
        }
    }
    t.finish().await;
}

#[tokio::test]
async fn a_legal_document_comes_in_the_readers_version_and_form() {
    let t = TestJanua::start_with(https(), feature).await;
    let german = t.get("/legal/privacy").header("accept-language", "de-AT,en;q=0.5").await;
    assert_eq!(german.body["jurisdiction"], "eu");
    assert!(german.header("vary").contains("accept-language"));
    let american = t.get("/legal/cookie-policy").header("accept-language", "en-US").await;
    assert_eq!(american.body["jurisdiction"], "en", "falls back where there is no such version");
    let named = t.get("/legal/privacy?jurisdiction=us").header("accept-language", "de").await;
    assert_eq!(named.body["jurisdiction"], "us", "who names one gets that one");

    let page = t.get("/legal/terms?jurisdiction=eu").header("accept", "text/html,*/*;q=0.8").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").contains("style-src 'self'"));
    assert!(page.text.contains("<h1>") && !page.text.contains("<GmbH>"), "the operator's name is text, not markup");
    let text = t.get("/legal/terms?jurisdiction=eu").header("accept", "text/markdown").await;
    assert!(text.text.starts_with("# "));
    t.finish().await;
}

#[tokio::test]
async fn the_legal_index_names_every_version_with_its_hash() {
    let t = TestJanua::start_with(https(), feature).await;
    let index = t.get("/legal").await;
    let documents = index.body["documents"].as_array().unwrap();
    assert_eq!(documents.iter().map(|d| d["jurisdictions"].as_array().unwrap().len()).sum::<usize>(), 12);
    for document in documents {
        for version in document["jurisdictions"].as_array().unwrap() {
            let url = version["url"].as_str().unwrap().strip_prefix("https://id.example.com").unwrap();
            let found = t.get(url).await;
            let hash = kernel::crypto::hash(found.body["content"].as_str().unwrap().as_bytes());
            assert_eq!((&version["sha256"], &found.body["sha256"]), (&json!(hash), &json!(hash)), "{url}");
            assert_eq!(found.body["version"], document["version"]);
        }
    }
    t.finish().await;
}

#[tokio::test]
async fn a_document_that_did_not_change_is_sent_once() {
    let t = TestJanua::start(feature).await;
    for path in ["/openapi.json", "/openapi.yaml", "/legal/terms"] {
        let first = t.get(path).await;
        assert_eq!(first.header("cache-control"), "public, max-age=300", "{path}");
        let tag = first.header("etag").to_owned();
        for sent in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            let again = t.get(path).header("if-none-match", &sent).await;
            assert_eq!((again.status, again.text.as_str()), (304, ""), "{path} {sent}");
        }
        assert_eq!(t.get(path).header("if-none-match", "\"other\"").await.status, 200);
        let small = t.get(path).header("accept-encoding", "gzip").await;
        assert_eq!(small.header("content-encoding"), "gzip", "what may be cached may be compressed");
    }
    let health = t.get("/status").header("accept-encoding", "gzip").await;
    assert_eq!(health.header("content-encoding"), "", "what may not be cached is not");
    t.finish().await;
}

#[tokio::test]
async fn metrics_are_for_this_machine_or_for_who_has_the_token() {
    let token = "a-long-token-for-the-scraper";
    let config = Config { metrics_token: Some(token.to_owned().into()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    t.get("/health").await;
    let here = t.get("/metrics").await;
    assert_eq!(here.status, 200);
    assert!(here.text.contains("janua_http_requests_total{method=\"GET\",route=\"/health\",status=\"2xx\"} 1"));
    assert_eq!(
        (here.header("content-type"), here.header("vary")),
        ("text/plain; version=0.0.4; charset=utf-8", "accept")
    );
    assert!(here.text.contains("# TYPE janua_http_requests_total counter\n") && !here.text.contains("# EOF"));
    let open = t.get("/metrics").header("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1").await;
    assert_eq!(open.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text.contains("# TYPE janua_http_requests counter\n") && open.text.ends_with("# EOF\n"));
    assert!(!open.text.contains("/legal/terms"), "what was never asked for has no series");
    assert!(open.text.len() < 10_000, "{} bytes", open.text.len());
    assert_eq!(t.get("/metrics").from("::1").await.status, 200);

    assert_eq!(t.get("/metrics").from("192.0.2.1").await.refusal(), (401, "unauthenticated"));
    for (name, value) in [("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=127.0.0.1"), ("via", "1.1 proxy")] {
        let proxied = t.get("/metrics").header(name, value).await;
        assert_eq!(proxied.status, 401, "{name}: a proxy on this machine passes on what comes from elsewhere");
    }
    for wrong in ["", "Bearer", "Bearer ", "Bearer wrong", "Basic x", &format!("Bearer {token}x")] {
        assert_eq!(t.get("/metrics").from("192.0.2.1").header("authorization", wrong).await.status, 401, "{wrong}");
    }
    let scraper = t.get("/metrics").from("192.0.2.1").header("authorization", &format!("Bearer {token}"));
    assert_eq!(scraper.await.status, 200);
    t.finish().await;

    let t = TestJanua::start(feature).await;
    let empty = t.get("/metrics").from("192.0.2.1").header("authorization", "Bearer ");
    assert_eq!(empty.await.status, 401, "no token set does not mean an empty token");
    t.finish().await;
}

#[tokio::test]
async fn crawlers_learn_what_they_may_look_at() {
    let t = TestJanua::start(feature).await;
    let answer = t.get("/robots.txt").await;
    assert!(answer.text.contains("Disallow: /\n") && answer.text.contains("Allow: /legal\n"));
    assert!(answer.text.contains("Allow: /marketplace\n") && answer.text.contains("Allow: /docs\n"));
    t.finish().await;
}
