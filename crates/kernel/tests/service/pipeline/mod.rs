//! The pipeline through its front door, with routes that exist only here.
mod idempotency;
mod limits;
mod origins;
mod streams;

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use axum::{extract::State, http::Method};
use db::{params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    config::{Config, Origin},
    fault::{CONFLICT, Code, Fault, NOT_FOUND, Result},
    feature::Feature,
    http::{Client, ForgetReplies, Json, Key, Listed, Page, Path, Query, Routes, Scope},
    id::Id,
    jobs::Jobs,
    testing::TestJanua,
    transact,
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
async fn make(State(janua): State<Janua>, Json(_): Json<Person>) -> Result<Json<Made>> {
    let secret = janua.entropy.secret().expose().to_owned();
    transact!(janua, async |tx| {
        let note = params![format!("made:{secret}")];
        Ok(tx.exec("INSERT INTO setting (name, value) VALUES ($1, '')", note).await?)
    })?;
    Ok(Json(Made { secret, at: janua.clock.now() }))
}
async fn fail_once(State(janua): State<Janua>) -> Result<Json<Value>> {
    transact!(janua, async |tx| {
        tx.exec("INSERT INTO setting (name, value) VALUES ('made:at last', '')", params![]).await?;
        if janua.own::<Counter>().0.fetch_add(1, SeqCst) == 0 {
            return Err(kernel::fault::UNAVAILABLE.caused_by("the first time").retry_after(Duration::from_secs(2)));
        }
        Ok(Json(json!("second")))
    })
}
async fn refuse() -> Result<Json<Value>> {
    Err(TEAPOT.at("pot", "empty", "has no tea").and("cup", "missing", "is not there"))
}
async fn broken(State(janua): State<Janua>) -> Result<Json<Value>> {
    janua.db.exec("INSERT INTO no_such_table VALUES ('hunter2')", params![]).await?;
    Ok(Json(Value::Null))
}
async fn nul(State(janua): State<Janua>, Json(person): Json<Person>) -> Result<Json<Value>> {
    janua.db.exec("INSERT INTO setting (name, value) VALUES ($1, '')", params![person.name]).await?;
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
async fn settings(State(janua): State<Janua>, page: Page) -> Result<Json<Settings>> {
    struct Row {
        name: String,
        value: String,
    }
    row!(Row { name, value });
    let key = |row: &Row| Key { at: Timestamp(row.value.parse().unwrap_or(0)), id: row.name.clone() };
    let sql = "SELECT name, value FROM setting WHERE name LIKE 'n%' AND name < $1 ORDER BY name DESC LIMIT $2";
    let fetch = async |below: Key, most: u32| janua.db.all(sql, params![&below.id, most]).await;
    let Listed { rows, next_cursor } = page.list(&janua, "settings", Scope::platform(), fetch, key).await?;
    Ok(Json(Settings { settings: rows.into_iter().map(|row| row.name).collect(), next_cursor }))
}
async fn other_list(State(janua): State<Janua>, page: Page) -> Result<Json<Settings>> {
    let fetch = async |_, _| Ok::<_, Fault>(vec![]);
    let Listed { rows, next_cursor } =
        page.list(&janua, "another", Scope::platform(), fetch, |_: &String| Key::newest()).await?;
    Ok(Json(Settings { settings: rows, next_cursor }))
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
    let t = TestJanua::start(feature).await;
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
    let t = TestJanua::start(feature).await;
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
    let t = TestJanua::start(feature).await;
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
    let t = TestJanua::start(feature).await;
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
    let t = TestJanua::start(feature).await;
    let id = Id::<Person>::new(&t.janua.entropy, t.janua.clock.now());
    assert_eq!(t.get(&format!("/things/{id}")).await.body["id"], id.to_string());
    for odd in ["1", "..%2f..", "%00", "%ff", "'%20OR%201=1", &id.to_string().to_uppercase()] {
        assert_eq!(t.get(&format!("/things/{odd}")).await.refusal(), (404, "not_found"), "{odd}");
    }
    t.finish().await;
}

#[tokio::test]
async fn a_refusal_is_a_problem_with_the_requests_id_in_it() {
    let t = TestJanua::start(feature).await;
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
    let entry = &t.janua.description.get().unwrap().value()["x-problems"]["teapot"];
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
    let t = TestJanua::start(feature).await;
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
    if db::testing::TestDb::on_postgres() {
        // A paused timer would also time out the real connection.
        return;
    }
    let t = TestJanua::start(feature).await;
    let answer = t.get("/slow").await;
    assert_eq!((answer.refusal(), answer.header("retry-after")), ((503, "timed_out"), "1"));
    let body = axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let answer = t.post("/echo").header("content-type", "application/json").body(body).await;
    assert_eq!(answer.refusal(), (408, "slow_body"), "a body that never comes");
    t.finish().await;
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let t = TestJanua::start(feature).await;
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
    let t = TestJanua::start_with(config, feature).await;
    assert!(t.get("/whoami").await.header("strict-transport-security").starts_with("max-age=31536000"));
    t.finish().await;
}

#[tokio::test]
async fn a_list_is_walked_by_cursors_that_only_we_can_make() {
    let t = TestJanua::start(feature).await;
    for i in 0..7 {
        let row = params![format!("n{i}"), i.to_string()];
        t.janua.db.exec("INSERT INTO setting (name, value) VALUES ($1, $2)", row).await.unwrap();
    }
    let first = t.get("/settings?limit=3").await;
    assert_eq!(first.body["settings"], json!(["n6", "n5", "n4"]));
    let cursor = first.body["nextCursor"].as_str().unwrap().to_owned();
    t.janua.db.exec("INSERT INTO setting (name, value) VALUES ('n9', '9')", params![]).await.unwrap();
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
    let t = TestJanua::start(feature).await;
    let description = &t.janua.description.get().unwrap().value();
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
