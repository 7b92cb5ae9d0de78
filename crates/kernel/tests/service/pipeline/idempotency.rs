//! Requests that are sent again under the same key.
use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use db::{Error, Notice, Reach, Tx};
use kernel::{
    fault::{FORBIDDEN, Fault, INTERNAL},
    http::OperationInput,
};
use tokio::sync::Notify;

use super::*;

/// A handler waits here until a test lets it go.
#[derive(Default)]
struct Gate {
    entered: Notify,
    open: Notify,
}

async fn note(tx: &mut Tx, janua: &Janua) -> Result<(), Error> {
    let name = format!("made:{}", janua.entropy.secret().expose());
    tx.exec("INSERT INTO setting (name, value) VALUES ($1, '')", params![name]).await.map(drop)
}

fn answer(janua: &Janua) -> Json<Value> {
    Json(json!({ "secret": janua.entropy.secret().expose() }))
}

async fn in_two_steps(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    Ok(answer(&janua))
}
async fn then_looks(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    let (seen,): (i64,) = janua.db.one(COUNT, params![]).await?;
    Ok(Json(json!({ "seen": seen, "secret": janua.entropy.secret().expose() })))
}
async fn carried(State(janua): State<Janua>) -> Result<Json<Value>> {
    let done: Result<(), Error> =
        janua.carry(janua.clone(), |tx, janua| Box::pin(async move { note(tx, janua).await })).await;
    done?;
    Ok(answer(&janua))
}
async fn commits_by_itself(State(janua): State<Janua>) -> Result<Json<Value>> {
    let mut tx = janua.db.begin().await?;
    note(&mut tx, &janua).await?;
    tx.commit().await?;
    Ok(answer(&janua))
}
/// What is sent without waiting collides, and the handler knows what to say then.
async fn sends(State(janua): State<Janua>) -> Result<Json<Value>> {
    let sql = "INSERT INTO setting (name, value) VALUES ('made:the same', '')";
    match db::transact!(janua.db, async |tx| tx.send(sql, params![]).await) {
        Err(error) if error.is_unique("setting_pkey") => Err(CONFLICT.into()),
        outcome => Ok(outcome.map(|()| answer(&janua))?),
    }
}
async fn lingers(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    let gate = janua.own::<Arc<Gate>>();
    gate.entered.notify_one();
    gate.open.notified().await;
    Ok(answer(&janua))
}
async fn fails_afterwards(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    Err(INTERNAL.caused_by("after the transaction"))
}
#[expect(clippy::panic, reason = "that is what is tested")]
async fn panics_afterwards(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    panic!("after the transaction")
}
async fn refuses_afterwards(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    Err(CONFLICT.into())
}
async fn loses_twice(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| {
        note(tx, &janua).await?;
        let is_late = janua.own::<Counter>().0.fetch_add(1, SeqCst) >= 2;
        if is_late { Ok(()) } else { Err(Error::Conflict("made up".into())) }
    })?;
    Ok(answer(&janua))
}
async fn tells(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| {
        note(tx, &janua).await?;
        tx.notify(Reach::EveryNode, "made", "something").await
    })?;
    Ok(answer(&janua))
}

async fn opens_account(State(janua): State<Janua>) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    db::answer_opens_account();
    Ok(answer(&janua))
}

/// Whoever may enter at this moment.
struct Guest;

impl FromRequestParts<Janua> for Guest {
    type Rejection = Fault;

    async fn from_request_parts(_: &mut Parts, janua: &Janua) -> Result<Self> {
        let sql = "SELECT value FROM setting WHERE name = 'closed'";
        let closed: Option<(String,)> = janua.db.opt(sql, params![]).await?;
        if closed.is_some() { Err(FORBIDDEN.into()) } else { Ok(Self) }
    }
}
impl OperationInput for Guest {}

async fn guarded(State(janua): State<Janua>, _: Guest) -> Result<Json<Value>> {
    db::transact!(janua.db, async |tx| note(tx, &janua).await)?;
    Ok(answer(&janua))
}

fn more(config: &Config) -> Feature {
    let routes = Routes::new("once")
        .post("/in-two-steps", in_two_steps, "two transactions")
        .post("/then-looks", then_looks, "a look after the transaction")
        .post("/carried", carried, "a transaction that comes along to the writer")
        .post("/commits-by-itself", commits_by_itself, "a commit of its own")
        .post("/sends", sends, "a write that nobody waits for")
        .fails(&[CONFLICT])
        .post("/lingers", lingers, "takes its time after the transaction")
        .post("/fails-afterwards", fails_afterwards, "fails after the transaction")
        .post("/panics-afterwards", panics_afterwards, "panics after the transaction")
        .post("/refuses-afterwards", refuses_afterwards, "refuses after the transaction")
        .fails(&[CONFLICT])
        .post("/loses-twice", loses_twice, "a transaction that loses")
        .post("/tells", tells, "a notice")
        .post("/opens-account", opens_account, "an answer that opens an account")
        .post("/guarded", guarded, "for guests alone")
        .fails(&[FORBIDDEN]);
    feature(config).and(Feature::new(routes).own(Arc::new(Gate::default())))
}

const COUNT: &str = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM setting WHERE name LIKE 'made:%'";

async fn made(t: &TestJanua) -> i64 {
    let (count,): (i64,) = t.janua.db.one(COUNT, params![]).await.unwrap();
    count
}

async fn keys(t: &TestJanua) -> usize {
    let kept: Vec<(String,)> = t.janua.db.all("SELECT scope FROM idempotent_reply", params![]).await.unwrap();
    kept.len()
}

fn send<'a>(t: &'a TestJanua, path: &str, key: &str) -> kernel::testing::Ask<'a> {
    t.post(path).header("idempotency-key", key)
}

#[tokio::test]
async fn the_same_key_gets_the_first_answer_again_for_a_day() {
    let t = TestJanua::start(feature).await;
    let send = |key: &str| t.post("/make").json(&ada()).header("idempotency-key", key).send();
    let first = send("k1").await;
    t.advance(Duration::from_hours(23));
    let again = send("k1").await;
    assert_eq!((first.status, again.status, made(&t).await), (200, 200, 1));
    assert_eq!(first.body, again.body, "the secret that is shown once comes back to who asked first");
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), ("", "true"));
    assert_ne!(send("k2").await.body["secret"], first.body["secret"]);
    t.advance(Duration::from_hours(2));
    assert_ne!(send("k1").await.body["secret"], first.body["secret"], "after a day the key is new again");
    assert_eq!(made(&t).await, 3);
    t.finish().await;
}

#[tokio::test]
async fn a_key_belongs_to_one_request_of_one_caller() {
    let t = TestJanua::start(more).await;
    let send = |body: &Value| t.post("/make").json(body).header("idempotency-key", "k");
    let first = send(&ada()).header("authorization", "Bearer a").await;
    let other_body = send(&json!({ "name": "Eve", "age": 1 })).header("authorization", "Bearer a").await;
    assert_eq!(other_body.refusal(), (409, "idempotency_mismatch"));
    let other_path = t.post("/guarded").json(&ada()).header("idempotency-key", "k");
    assert_eq!(other_path.header("authorization", "Bearer a").await.refusal(), (409, "idempotency_mismatch"));
    assert_eq!(made(&t).await, 1);
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
async fn what_failed_or_was_refused_changed_nothing_and_may_be_tried_again() {
    let t = TestJanua::start(more).await;
    let send_it = || send(&t, "/fail-once", "k");
    assert_eq!(send_it().await.refusal(), (503, "unavailable"));
    assert_eq!((made(&t).await, keys(&t).await), (0, 0), "undone with its key");
    assert_eq!(send_it().await.body, "second");
    assert_eq!((send_it().await.header("idempotency-replayed"), made(&t).await), ("true", 1));

    let bad = || t.post("/make").json(&json!({})).header("idempotency-key", "b").send();
    let (first, again) = (bad().await, bad().await);
    assert_eq!((first.status, again.status, again.header("idempotency-replayed")), (400, 400, ""));
    assert_ne!(first.body["requestId"], again.body["requestId"]);
    assert_eq!(send(&t, "/refuses-afterwards", "r").await.refusal(), (409, "conflict"));
    assert_eq!(send(&t, "/refuses-afterwards", "r").await.header("idempotency-replayed"), "", "it may fare better");
    assert_eq!((made(&t).await, keys(&t).await), (3, 1), "what a refusal noted is noted");
    t.finish().await;
}

#[tokio::test]
async fn what_changes_nothing_keeps_nothing() {
    let t = TestJanua::start(feature).await;
    for (path, status) in [("/nowhere", 404), ("/whoami", 405), ("/echo", 200)] {
        let answer = t.post(path).json(&ada()).header("idempotency-key", "k").await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    assert_eq!(keys(&t).await, 0);
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_have_one_effect_and_the_same_answer() {
    let t = TestJanua::start(more).await;
    for path in ["/guarded", "/carried", "/then-looks"] {
        let before = made(&t).await;
        let answers = futures_util::future::join_all((0..16).map(|_| send(&t, path, path).send())).await;
        assert_eq!(made(&t).await, before + 1, "{path}");
        let whole: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert!(whole.iter().all(|answer| answer.body == whole[0].body), "{path}");
        // A look beside the transaction commits it before there is an answer.
        let is_early = |answer: &kernel::testing::Answer| answer.refusal() == (409, "idempotency_in_progress");
        let early = answers.iter().filter(|answer| is_early(answer)).count();
        assert!(path == "/then-looks" || early == 0, "{path}: {early}");
        assert_eq!(whole.len() + early, 16, "{path}");
        let replayed = whole.iter().filter(|answer| answer.header("idempotency-replayed") == "true").count();
        assert_eq!(replayed, whole.len() - 1, "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn however_a_handler_writes_it_happens_once() {
    let t = TestJanua::start(more).await;
    let mut expected = 0;
    for (path, makes) in [
        ("/in-two-steps", 2),
        ("/then-looks", 1),
        ("/carried", 1),
        ("/commits-by-itself", 1),
        ("/sends", 1),
        ("/loses-twice", 1),
        ("/tells", 1),
    ] {
        let (first, again) = (send(&t, path, path).await, send(&t, path, path).await);
        expected += makes;
        assert_eq!((first.status, again.status), (200, 200), "{path}: {}", first.text);
        assert_eq!(again.header("idempotency-replayed"), "true", "{path}");
        assert_eq!((first.body, made(&t).await), (again.body, expected), "{path}");
    }
    assert_eq!(send(&t, "/sends", "another").await.refusal(), (409, "conflict"), "the handler hears of a collision");
    assert_eq!(made(&t).await, expected);
    t.finish().await;
}

#[tokio::test]
async fn who_looks_after_the_transaction_sees_what_it_did() {
    let t = TestJanua::start(more).await;
    assert_eq!(send(&t, "/then-looks", "k").await.body["seen"], 1);
    t.finish().await;
}

#[tokio::test]
async fn what_is_told_is_told_after_the_commit() {
    let t = TestJanua::start(more).await;
    let mut heard = t.janua.db.listen(&["made"]);
    assert_eq!(send(&t, "/tells", "k").await.status, 200);
    let news = Notice::News { topic: "made".into(), body: "something".into() };
    while heard.next().await.unwrap() != news {}
    t.finish().await;
}

#[tokio::test]
async fn what_was_carried_out_without_an_answer_is_never_carried_out_again() {
    let t = TestJanua::start(more).await;
    for (count, path) in ["/fails-afterwards", "/panics-afterwards"].into_iter().enumerate() {
        let count = i64::try_from(count).unwrap() + 1;
        assert_eq!(send(&t, path, path).await.refusal(), (500, "internal"));
        let soon = send(&t, path, path).await;
        assert_eq!((soon.refusal(), soon.header("retry-after")), ((409, "idempotency_in_progress"), "1"), "{path}");
        assert_eq!(made(&t).await, count);
    }
    t.advance(Duration::from_mins(2));
    for path in ["/fails-afterwards", "/panics-afterwards"] {
        assert_eq!(send(&t, path, path).await.refusal(), (409, "idempotency_answer_lost"));
    }
    assert_eq!(made(&t).await, 2);
    t.finish().await;
}

#[tokio::test]
async fn a_handler_that_takes_its_time_holds_no_transaction_open() {
    let t = TestJanua::start(more).await;
    let gate = t.janua.own::<Arc<Gate>>().clone();
    let watch = async {
        gate.entered.notified().await;
        // It is committed without its answer while the handler still works.
        while made(&t).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        t.janua.db.exec("INSERT INTO setting (name, value) VALUES ('other', '')", params![]).await.unwrap();
        assert_eq!(send(&t, "/lingers", "k").await.refusal(), (409, "idempotency_in_progress"));
        gate.open.notify_one();
    };
    let (first, ()) = tokio::join!(send(&t, "/lingers", "k").send(), watch);
    let again = send(&t, "/lingers", "k").await;
    assert_eq!((first.status, again.header("idempotency-replayed")), (200, "true"));
    assert_eq!((first.body, made(&t).await), (again.body, 1), "its answer is kept all the same");
    t.finish().await;
}

#[tokio::test]
async fn who_goes_away_before_the_answer_has_done_nothing_and_frees_the_key() {
    let t = TestJanua::start(more).await;
    let gate = t.janua.own::<Arc<Gate>>().clone();
    tokio::select! {
        biased;
        _ = send(&t, "/lingers", "k").send() => unreachable!("it waits at the gate"),
        () = gate.entered.notified() => {}
    }
    // Behind whatever is left of it.
    t.janua.db.exec("INSERT INTO setting (name, value) VALUES ('other', '')", params![]).await.unwrap();
    gate.open.notify_one();
    let again = send(&t, "/lingers", "k").await;
    assert_eq!((again.status, again.header("idempotency-replayed"), made(&t).await), (200, "", 1));
    t.finish().await;
}

#[tokio::test]
async fn who_may_not_do_it_any_more_does_not_get_the_answer_either() {
    let t = TestJanua::start(more).await;
    assert_eq!(send(&t, "/guarded", "k").await.status, 200);
    t.janua.db.exec("INSERT INTO setting (name, value) VALUES ('closed', '')", params![]).await.unwrap();
    assert_eq!(send(&t, "/guarded", "k").await.refusal(), (403, "forbidden"));
    t.finish().await;
}

#[tokio::test]
async fn answers_are_sealed_and_forgotten_in_time() {
    let t = TestJanua::start(feature).await;
    let made = t.post("/make").json(&ada()).header("idempotency-key", "k").await;
    let kept: (Vec<u8>,) = t.janua.db.one("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
    let secret = made.body["secret"].as_str().unwrap().as_bytes();
    assert!(!kept.0.windows(secret.len()).any(|bytes| bytes == secret), "the secret is not in the database");
    t.advance(Duration::from_hours(25));
    let mut tx = t.janua.db.begin().await.unwrap();
    kernel::jobs::enqueue(&mut tx, &t.janua, t.janua.clock.now(), &ForgetReplies::default()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(t.run_jobs().await, 1);
    let left: Vec<(Vec<u8>,)> = t.janua.db.all("SELECT sealed FROM idempotent_reply", params![]).await.unwrap();
    assert!(left.is_empty());
    t.finish().await;
}

#[tokio::test]
async fn an_answer_that_opens_an_account_is_never_kept() {
    let t = TestJanua::start(more).await;
    let first = send(&t, "/opens-account", "k").await;
    let second = send(&t, "/opens-account", "k").await;
    assert_eq!((first.status, second.status), (200, 200), "{}", second.text);
    assert!(second.headers.get("idempotency-replayed").is_none());
    assert_ne!(first.body["secret"], second.body["secret"], "the request ran again");
    assert_eq!((made(&t).await, keys(&t).await), (2, 0), "and its key is free");
    t.finish().await;
}
