//! The pipeline through its front door, with routes that exist only here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use axum::{extract::State, http::Method};
use kernel::{
    App,
    app::Feature,
    clock::Timestamp,
    config::{Config, Origin},
    fault::{CONFLICT, Code, NOT_FOUND, Result},
    http::{Client, ForgetReplies, Json, Key, Page, Path, Query, Routes},
    id::Id,
    jobs::Jobs,
    params, row,
    testing::TestApp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const TEAPOT: Code = Code::new(418, "teapot", "Short and stout.");

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Person {
    #[schemars(length(min = 1, max = 5))]
    name: String,
    #[schemars(range(min = 0, max = 150))]
    age: u32,
    nick_name: Option<String>,
    colour: Option<Colour>,
    #[serde(default)]
    #[schemars(length(max = 2))]
    tags: Vec<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Blue,
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    #[schemars(range(min = 1))]
    size: Option<u32>,
    #[serde(default)]
    word: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ThingPath {
    id: Id<Person>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Made {
    secret: String,
    at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Settings {
    settings: Vec<String>,
    next_cursor: Option<String>,
}

#[derive(Default)]
struct Counter(AtomicUsize);

async fn echo(Json(person): Json<Person>) -> Json<Person> {
    Json(person)
}
async fn small(Json(person): Json<Person>) -> Json<Person> {
    Json(person)
}
async fn probe() -> Json<&'static str> {
    Json("here")
}
async fn search(Query(search): Query<Search>) -> Json<Value> {
    Json(json!({ "size": search.size, "words": search.word }))
}
async fn thing(Path(path): Path<ThingPath>) -> Json<Value> {
    Json(json!({ "id": path.id }))
}
async fn make(State(app): State<App>, Json(_): Json<Person>) -> Result<Json<Made>> {
    app.own::<Counter>().0.fetch_add(1, SeqCst);
    Ok(Json(Made { secret: app.entropy.secret().expose().to_owned(), at: app.clock.now() }))
}
async fn fail_once(State(app): State<App>) -> Result<Json<Value>> {
    if app.own::<Counter>().0.fetch_add(1, SeqCst) == 0 {
        return Err(kernel::fault::UNAVAILABLE.caused_by("the first time").retry_after(Duration::from_secs(2)));
    }
    Ok(Json(json!("second")))
}
async fn refuse() -> Result<Json<Value>> {
    Err(TEAPOT.at("pot", "empty", "has no tea").and("cup", "missing", "is not there"))
}
async fn broken(State(app): State<App>) -> Result<Json<Value>> {
    app.db.exec("INSERT INTO no_such_table VALUES ('hunter2')", params![]).await?;
    Ok(Json(Value::Null))
}
async fn nul(State(app): State<App>, Json(person): Json<Person>) -> Result<Json<Value>> {
    app.db.exec("INSERT INTO setting (name, value) VALUES ($1, '')", params![person.name]).await?;
    Ok(Json(Value::Null))
}
#[expect(clippy::panic, reason = "that is what is tested")]
async fn panics() -> Json<Value> {
    panic!("a secret inside")
}
async fn slow() -> Json<Value> {
    tokio::time::sleep(Duration::from_hours(1)).await;
    Json(Value::Null)
}
async fn whoami(client: Client) -> Json<Value> {
    Json(json!(client.address))
}
async fn settings(State(app): State<App>, page: Page) -> Result<Json<Settings>> {
    struct Row {
        name: String,
        value: String,
    }
    row!(Row { name, value });
    let key = |row: &Row| Key { at: Timestamp(row.value.parse().unwrap_or(0)), id: row.name.clone() };
    let below = page.below(&app, "settings")?;
    let sql = "SELECT name, value FROM setting WHERE name LIKE 'n%' AND name < $1 ORDER BY name DESC LIMIT $2";
    let mut rows: Vec<Row> = app.db.all(sql, params![&below.id, page.fetch()]).await?;
    let next_cursor = page.cut(&app, "settings", &mut rows, key);
    Ok(Json(Settings { settings: rows.into_iter().map(|row| row.name).collect(), next_cursor }))
}
async fn other_list(State(app): State<App>, page: Page) -> Result<Json<Settings>> {
    page.below(&app, "another")?;
    Ok(Json(Settings { settings: vec![], next_cursor: None }))
}

fn feature(_: &Config) -> Feature {
    let routes = Routes::new("test")
        .post("/echo", echo, "echo")
        .get("/search", search, "search")
        .get("/things/{id}", thing, "thing")
        .post("/make", make, "make")
        .post("/fail-once", fail_once, "fail once")
        .get("/refuse", refuse, "refuse")
        .fails(&[TEAPOT, NOT_FOUND, CONFLICT])
        .get("/broken", broken, "broken")
        .post("/nul", nul, "nul")
        .get("/panics", panics, "panics")
        .get("/slow", slow, "slow")
        .get("/whoami", whoami, "whoami")
        .get("/settings", settings, "settings")
        .get("/other-list", other_list, "another list")
        .get("/probe", probe, "always answered")
        .always()
        .body_limit(64)
        .post("/small", small, "small bodies only");
    Feature::new(routes).jobs(Jobs::new().on::<ForgetReplies>()).own(Counter::default())
}

fn ada() -> Value {
    json!({ "name": "Ada", "age": 36 })
}

#[tokio::test]
async fn everything_wrong_with_a_body_is_said_at_once() {
    let t = TestApp::start(feature).await;
    let bad = json!({ "name": "", "age": 200, "nickName": 7, "colour": "green", "tags": ["a", "b", "c"] });
    let answer = t.post("/echo").json(&bad).await;
    assert_eq!(answer.refusal(), (400, "invalid"));
    assert_eq!(answer.wrong_fields(), ["age", "colour", "name", "nickName", "tags"]);
    assert_eq!(answer.body["errors"][1]["message"], "must be one of [\"red\",\"blue\"]", "{}", answer.text);
    assert!(!answer.text.contains("green"), "what was sent is not repeated: it may be a password");
    let answer = t.post("/echo").json(&json!({})).await;
    assert_eq!(answer.wrong_fields(), ["age", "name"], "what is missing is named");
    let answer = t.post("/echo").json(&json!({ "name": "Ada", "age": 36, "role": "owner" })).await;
    assert_eq!(answer.status, 200, "unknown fields are ignored");
    assert!(answer.body.get("role").is_none(), "and assign nothing");
    t.finish().await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_in_its_own_way() {
    let t = TestApp::start(feature).await;
    for (body, why) in [
        ("{", "cut off"),
        ("", "empty"),
        ("{\"name\": \"A\u{1}\"}", "a raw control character"),
        ("{\"name\":\"Ada\",\"age\":1e400}", "a number past all bounds"),
        (&"[".repeat(10_000), "ten thousand deep"),
    ] {
        let answer = t.post("/echo").header("content-type", "application/json").body(body.to_owned()).await;
        assert_eq!(answer.refusal(), (400, "malformed"), "{why}: {}", answer.text);
    }
    let bad_utf8 = t.post("/echo").header("content-type", "application/json").body(vec![b'"', 0xff, b'"']).await;
    assert_eq!(bad_utf8.refusal(), (400, "malformed"));
    for kind in ["text/plain", "application/x-www-form-urlencoded", "text/json; application/json"] {
        let answer = t.post("/echo").header("content-type", kind).body(ada().to_string()).await;
        assert_eq!(answer.refusal(), (415, "unsupported_media_type"), "{kind}");
    }
    let answer =
        t.post("/echo").header("content-type", "application/json; charset=utf-8").body(ada().to_string()).await;
    assert_eq!(answer.status, 200);
    let twice = "{\"name\":\"Ada\",\"name\":\"Eve\",\"age\":1}".to_owned();
    let answer = t.post("/echo").header("content-type", "application/json").body(twice).await;
    assert_eq!(
        (answer.status, &answer.body["name"]),
        (200, &json!("Eve")),
        "the last of two counts, here as elsewhere"
    );
    t.finish().await;
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_announced_or_not() {
    let t = TestApp::start(feature).await;
    let long = json!({ "name": "Ada", "age": 1, "nickName": "x".repeat(100) }).to_string();
    let announced = t.post("/small").header("content-type", "application/json").body(long.clone()).await;
    assert_eq!(announced.refusal(), (413, "too_large"));
    let chunks = long.into_bytes().into_iter().map(|byte| Ok::<_, std::io::Error>(vec![byte]));
    let stream = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    let creeping = t.post("/small").header("content-type", "application/json").body(stream).await;
    assert_eq!(creeping.refusal(), (413, "too_large"), "a length that was never announced");
    let fits = t.post("/small").json(&ada()).await;
    assert_eq!(fits.status, 200);
    let default = "x".repeat(1024 * 1024 + 1);
    let answer = t.post("/echo").header("content-type", "application/json").body(default).await;
    assert_eq!(answer.refusal(), (413, "too_large"), "1 MiB elsewhere");
    t.finish().await;
}

#[tokio::test]
async fn a_query_is_read_by_its_types() {
    let t = TestApp::start(feature).await;
    let answer = t.get("/search?size=3&word=a&word=b&unknown=1").await;
    assert_eq!(answer.body, json!({ "size": 3, "words": ["a", "b"] }));
    assert_eq!(t.get("/search").await.body, json!({ "size": null, "words": [] }));
    for bad in ["size=0", "size=x", "size=1&size=2", "size="] {
        let answer = t.get(&format!("/search?{bad}")).await;
        assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["size"]), "{bad}");
    }
    t.finish().await;
}

#[tokio::test]
async fn an_id_that_cannot_be_is_answered_like_one_that_does_not_exist() {
    let t = TestApp::start(feature).await;
    let id = Id::<Person>::new(&t.app.entropy, t.app.clock.now());
    assert_eq!(t.get(&format!("/things/{id}")).await.body["id"], id.to_string());
    for odd in ["1", "..%2f..", "%00", "%ff", "'%20OR%201=1", &id.to_string().to_uppercase()] {
        assert_eq!(t.get(&format!("/things/{odd}")).await.refusal(), (404, "not_found"), "{odd}");
    }
    t.finish().await;
}

#[tokio::test]
async fn a_refusal_is_a_problem_with_the_requests_id_in_it() {
    let t = TestApp::start(feature).await;
    let answer = t.get("/refuse").header("x-request-id", "from-the-client-1").await;
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(
        answer.body,
        json!({
            "type": "/openapi.json#/x-problems/teapot", "title": "Short and stout.", "status": 418, "code": "teapot",
            "requestId": "from-the-client-1",
            "errors": [
                { "field": "pot", "code": "empty", "message": "has no tea" },
                { "field": "cup", "code": "missing", "message": "is not there" },
            ],
        })
    );
    assert_eq!(answer.header("x-request-id"), "from-the-client-1");
    let entry = &t.app.description.get().unwrap().value()["x-problems"]["teapot"];
    assert_eq!(entry["status"], 418, "and its type points at its entry in the description");

    let other = t.get("/refuse").header("x-request-id", "bad id\t").await;
    assert_eq!(other.header("x-request-id").len(), 36, "an inbound id that could do harm is replaced");
    assert_eq!(t.get("/nowhere").await.refusal(), (404, "not_found"));
    let wrong_method = t.ask(Method::DELETE, "/refuse").await;
    assert_eq!((wrong_method.refusal(), wrong_method.header("allow")), ((405, "method_not_allowed"), "GET,HEAD"));
    t.finish().await;
}

#[tokio::test]
async fn a_panic_and_a_database_error_tell_the_client_nothing() {
    let t = TestApp::start(feature).await;
    for path in ["/panics", "/broken"] {
        let answer = t.get(path).await;
        assert_eq!(answer.refusal(), (500, "internal"), "{path}");
        for secret in ["secret", "hunter2", "no_such_table", "INSERT", ".rs"] {
            assert!(!answer.text.contains(secret), "{path} gives away {secret}: {}", answer.text);
        }
    }
    assert_eq!(t.get("/refuse").await.status, 418, "and the server goes on");
    let answer = t.post("/nul").json(&json!({ "name": "a\0b", "age": 1 })).await;
    assert_eq!(answer.refusal(), (400, "invalid"), "a NUL is the client's fault on both engines");
    t.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_stopped() {
    if kernel::testing::TestDb::on_postgres() {
        // A paused timer would also time out the real connection.
        return;
    }
    let t = TestApp::start(feature).await;
    let answer = t.get("/slow").await;
    assert_eq!((answer.refusal(), answer.header("retry-after")), ((503, "timed_out"), "1"));
    let body = axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let answer = t.post("/echo").header("content-type", "application/json").body(body).await;
    assert_eq!(answer.refusal(), (408, "slow_body"), "a body that never comes");
    t.finish().await;
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let t = TestApp::start(feature).await;
    for path in ["/whoami", "/refuse", "/nowhere", "/panics"] {
        let answer = t.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("strict-transport-security"), "", "only where there is TLS");
    }
    t.finish().await;
    let config = Config { base_url: Some("https://id.example.com".parse().unwrap()), ..Config::for_tests() };
    let t = TestApp::start_with(config, feature).await;
    assert!(t.get("/whoami").await.header("strict-transport-security").starts_with("max-age=31536000"));
    t.finish().await;
}

mod origins {
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
        let t = TestApp::start_with(config(), feature).await;
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
        let t = TestApp::start_with(config(), feature).await;
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
}

mod limits {
    use super::*;

    fn few(per_minute: u32) -> Config {
        Config { rate_limit_per_minute: per_minute, ..Config::for_tests() }
    }

    #[tokio::test]
    async fn who_asks_too_often_waits_and_nobody_else_does() {
        let t = TestApp::start_with(few(3), feature).await;
        for left in ["2", "1", "0"] {
            let answer = t.get("/whoami").from("192.0.2.1").await;
            assert_eq!(answer.header("ratelimit"), format!("\"requests\";r={left}"));
            assert_eq!(answer.header("ratelimit-policy"), "\"requests\";q=3;w=60");
        }
        let refused = t.get("/whoami").from("192.0.2.1").header("x-forwarded-for", "198.51.100.7").await;
        assert_eq!(refused.refusal(), (429, "rate_limited"), "a header from a stranger opens no new bucket");
        assert_eq!(refused.header("retry-after"), "20");
        assert!(refused.header("ratelimit").starts_with("\"requests\";r=0;t="));
        assert_eq!(t.get("/nowhere").from("192.0.2.1").await.status, 429, "unknown routes count too");
        assert_eq!(t.get("/probe").from("192.0.2.1").await.status, 200, "probes are always answered");
        assert_eq!(t.get("/whoami").from("192.0.2.2").await.status, 200, "another address");
        t.advance(Duration::from_secs(20));
        assert_eq!(t.get("/whoami").from("192.0.2.1").await.status, 200, "after the wait");
        assert_eq!(t.get("/whoami").from("192.0.2.1").await.status, 429);

        assert_eq!(t.get("/whoami").from("2001:db8::1").await.status, 200);
        assert_eq!(t.get("/whoami").from("2001:db8::2").await.header("ratelimit"), "\"requests\";r=1", "one /64");
        t.finish().await;
    }

    #[tokio::test]
    async fn behind_a_trusted_proxy_the_client_is_counted_and_not_the_proxy() {
        let config = Config { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ..few(1) };
        let t = TestApp::start_with(config, feature).await;
        let ask = |client: &str| t.get("/whoami").from("10.0.0.1").header("x-forwarded-for", client).send();
        assert_eq!(ask("192.0.2.1").await.body, "192.0.2.1");
        assert_eq!(ask("192.0.2.1").await.status, 429);
        assert_eq!(ask("192.0.2.2").await.status, 200);
        assert_eq!(ask("192.0.2.9, 192.0.2.1").await.status, 429, "what the client put in front changes nothing");
        t.finish().await;
    }

    #[tokio::test]
    async fn past_its_bound_the_server_sheds_at_once_and_still_answers_probes() {
        let t = TestApp::start_with(Config { max_in_flight: 1, ..Config::for_tests() }, feature).await;
        let mut slow = Box::pin(t.get("/slow").send());
        assert!(futures_util::poll!(&mut slow).is_pending());
        let shed = t.get("/whoami").await;
        assert_eq!((shed.refusal(), shed.header("retry-after")), ((503, "overloaded"), "1"));
        assert_eq!(t.get("/probe").await.status, 200);
        drop(slow);
        assert_eq!(t.get("/whoami").await.status, 200, "who goes away frees the place");
        t.finish().await;
    }
}

mod idempotency {
    use super::*;

    fn made(t: &TestApp) -> usize {
        t.app.own::<Counter>().0.load(SeqCst)
    }

    #[tokio::test]
    async fn the_same_key_gets_the_first_answer_again_for_a_day() {
        let t = TestApp::start(feature).await;
        let send = |key: &str| t.post("/make").json(&ada()).header("idempotency-key", key).send();
        let first = send("k1").await;
        t.advance(Duration::from_hours(23));
        let again = send("k1").await;
        assert_eq!((first.status, again.status, made(&t)), (200, 200, 1));
        assert_eq!(first.body, again.body, "the secret that is shown once comes back to who asked first");
        assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
        assert_ne!(send("k2").await.body["secret"], first.body["secret"]);
        t.advance(Duration::from_hours(2));
        assert_ne!(send("k1").await.body["secret"], first.body["secret"], "after a day the key is new again");
        t.finish().await;
    }

    #[tokio::test]
    async fn a_key_belongs_to_one_request_of_one_caller() {
        let t = TestApp::start(feature).await;
        let send = |body: &Value| t.post("/make").json(body).header("idempotency-key", "k");
        let first = send(&ada()).header("authorization", "Bearer a").await;
        let other_body = send(&json!({ "name": "Eve", "age": 1 })).header("authorization", "Bearer a").await;
        assert_eq!(other_body.refusal(), (409, "idempotency_mismatch"));
        let other_path = t.post("/echo").json(&ada()).header("idempotency-key", "k");
        assert_eq!(other_path.header("authorization", "Bearer a").await.refusal(), (409, "idempotency_mismatch"));
        for stranger in [
            send(&ada()).header("authorization", "Bearer b"),
            send(&ada()).header("x-service-app-key", "pk"),
            send(&ada()).from("192.0.2.1"),
        ] {
            let answer = stranger.await;
            assert_eq!(answer.status, 200);
            assert_ne!(answer.body["secret"], first.body["secret"], "nobody fetches another one's answer");
        }
        assert_eq!(send(&ada()).header("idempotency-key", "").await.status, 200, "the first of two headers counts");
        let empty = t.post("/make").json(&ada()).header("idempotency-key", "").await;
        assert_eq!((empty.refusal(), empty.wrong_fields()), ((400, "invalid"), vec!["Idempotency-Key"]));
        t.finish().await;
    }

    #[tokio::test]
    async fn what_failed_for_now_may_be_tried_again_and_what_was_refused_stays_refused() {
        let t = TestApp::start(feature).await;
        let send = || t.post("/fail-once").header("idempotency-key", "k").send();
        assert_eq!(send().await.refusal(), (503, "unavailable"));
        assert_eq!(send().await.body, "second");
        assert_eq!(send().await.header("idempotency-replayed"), "true");
        let bad = || t.post("/make").json(&json!({})).header("idempotency-key", "b").send();
        let (first, again) = (bad().await, bad().await);
        assert_eq!((again.status, again.header("idempotency-replayed")), (400, "true"));
        assert_eq!(first.body["requestId"], again.body["requestId"], "the first answer, whole");
        t.finish().await;
    }

    #[tokio::test]
    async fn a_route_that_does_not_exist_keeps_nothing() {
        let t = TestApp::start(feature).await;
        for path in ["/nowhere", "/whoami"] {
            let answer = t.post(path).json(&ada()).header("idempotency-key", "k").await;
            assert!(matches!(answer.status, 404 | 405), "{path}: {answer:?}");
        }
        let kept: Vec<(String,)> = t.app.db.all("SELECT scope FROM idempotent_reply", params![]).await.unwrap();
        assert!(kept.is_empty());
        t.finish().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_at_once_one_is_worked_on() {
        let t = TestApp::start(feature).await;
        let sends = (0..32).map(|_| t.post("/make").json(&ada()).header("idempotency-key", "k").send());
        let answers = futures_util::future::join_all(sends).await;
        assert_eq!(made(&t), 1);
        for answer in &answers {
            let fine = answer.status == 200 || answer.refusal() == (409, "idempotency_in_progress");
            assert!(fine, "{answer:?}");
        }
        t.finish().await;
    }

    #[tokio::test]
    async fn answers_are_sealed_and_forgotten_in_time() {
        let t = TestApp::start(feature).await;
        let made = t.post("/make").json(&ada()).header("idempotency-key", "k").await;
        let kept: (Vec<u8>,) = t.app.db.one("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
        let secret = made.body["secret"].as_str().unwrap().as_bytes();
        assert!(!kept.0.windows(secret.len()).any(|bytes| bytes == secret), "the secret is not in the database");
        t.advance(Duration::from_hours(25));
        let mut tx = t.app.db.begin().await.unwrap();
        kernel::jobs::enqueue(&mut tx, &t.app, t.app.clock.now(), &ForgetReplies::default()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(t.run_jobs().await, 1);
        let left: Vec<(Vec<u8>,)> = t.app.db.all("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
        assert!(left.is_empty());
        t.finish().await;
    }
}

#[tokio::test]
async fn a_list_is_walked_by_cursors_that_only_we_can_make() {
    let t = TestApp::start(feature).await;
    for i in 0..7 {
        let row = params![format!("n{i}"), i.to_string()];
        t.app.db.exec("INSERT INTO setting (name, value) VALUES ($1, $2)", row).await.unwrap();
    }
    let first = t.get("/settings?limit=3").await;
    assert_eq!(first.body["settings"], json!(["n6", "n5", "n4"]));
    let cursor = first.body["nextCursor"].as_str().unwrap().to_owned();
    t.app.db.exec("INSERT INTO setting (name, value) VALUES ('n9', '9')", params![]).await.unwrap();
    let second = t.get(&format!("/settings?limit=3&cursor={cursor}")).await;
    assert_eq!(second.body["settings"], json!(["n3", "n2", "n1"]), "an insert moves nothing");
    let last = t.get(&format!("/settings?limit=3&cursor={}", second.body["nextCursor"].as_str().unwrap())).await;
    assert_eq!(last.body, json!({ "settings": ["n0"], "nextCursor": null }));

    let mut forged = cursor.clone();
    forged.replace_range(0..1, if cursor.starts_with('A') { "B" } else { "A" });
    for bad in [forged.as_str(), "x", "AAAA", &cursor[..cursor.len() - 2]] {
        assert_eq!(t.get(&format!("/settings?cursor={bad}")).await.refusal(), (400, "bad_cursor"), "{bad}");
    }
    let elsewhere = t.get(&format!("/other-list?cursor={cursor}")).await;
    assert_eq!(elsewhere.refusal(), (400, "bad_cursor"), "a cursor of another list");
    for bad in ["limit=0", "limit=201", "limit=-1", "limit=ten"] {
        assert_eq!(t.get(&format!("/settings?{bad}")).await.wrong_fields(), ["limit"], "{bad}");
    }
    t.finish().await;
}

#[tokio::test]
async fn the_description_says_what_the_handlers_types_say() {
    let t = TestApp::start(feature).await;
    let description = &t.app.description.get().unwrap().value();
    let echo = &description["paths"]["/echo"]["post"];
    assert_eq!(echo["operationId"], "test.echo");
    let body = &echo["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(body, "#/components/schemas/Person");
    assert_eq!(description["components"]["schemas"]["Person"]["properties"]["name"]["maxLength"], 5);
    for status in ["200", "400", "408", "413", "415", "429", "500", "503"] {
        assert!(echo["responses"][status].is_object(), "{status}");
    }
    assert_eq!(description["x-problems"]["slow_body"]["status"], 408, "a code that only an input brings along");
    let thing = &description["paths"]["/things/{id}"]["get"];
    assert_eq!((&thing["parameters"][0]["name"], &thing["parameters"][0]["in"]), (&json!("id"), &json!("path")));
    assert!(thing["responses"]["404"].is_object());
    let parameters = description["paths"]["/settings"]["get"]["parameters"].as_array().unwrap();
    let names: std::collections::BTreeSet<_> = parameters.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["cursor", "limit"], "in no order that counts");
    t.finish().await;
}
