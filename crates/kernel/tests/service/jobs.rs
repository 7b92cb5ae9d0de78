//! Jobs: enqueued with their cause, done once, retried, given up in plain sight, on whichever engine the run chose.
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use db::{Error, params, testing::TestDb};
use kernel::{
    Janua,
    clock::Clock,
    config::Config,
    crypto::{MasterKey, Vault},
    entropy::Entropy,
    feature::{Feature, Leaving, Own, Parts},
    http::{Description, Inside, Routes},
    jobs::{self, Job, Jobs, Later, Worker},
    ports::{objects, outgoing::Outgoing},
    telemetry::{self, About, Exposition, Metrics, SpanPlace},
    testing::{Mailbox, Phones, START, TestJanua},
};
use serde::{Deserialize, Serialize};

/// What ran, in order.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    fn of(janua: &Janua) -> Vec<String> {
        janua.own::<Self>().0.lock().unwrap().clone()
    }
    fn add(janua: &Janua, entry: impl Into<String>) {
        janua.own::<Self>().0.lock().unwrap().push(entry.into());
    }
}

#[derive(Serialize, Deserialize)]
struct Note {
    text: String,
}
impl Job for Note {
    const KIND: &'static str = "test.note";
    async fn run(self, janua: Janua) -> Result<(), Later> {
        Log::add(&janua, self.text);
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Failing {
    times: u32,
    how: How,
}
#[derive(Serialize, Deserialize)]
enum How {
    Retry,
    After(u64),
    GiveUp,
    Panic,
}
impl Job for Failing {
    const KIND: &'static str = "test.failing";
    const TRIES: u32 = 3;
    #[expect(clippy::panic, reason = "that is what is tested")]
    async fn run(self, janua: Janua) -> Result<(), Later> {
        Log::add(&janua, "try");
        let tries = u32::try_from(Log::of(&janua).len()).unwrap();
        match self.how {
            _ if tries > self.times => Ok(()),
            How::Retry => Err(Later::retry("not yet")),
            How::After(seconds) => Err(Later::retry_after("come back", Duration::from_secs(seconds))),
            How::GiveUp => Err(Later::give_up("never")),
            How::Panic => panic!("at the disco"),
        }
    }
}

/// Runs until a test lets it go.
#[derive(Serialize, Deserialize)]
struct Gate {}
impl Job for Gate {
    const KIND: &'static str = "test.gate";
    async fn run(self, janua: Janua) -> Result<(), Later> {
        Log::add(&janua, "in");
        janua.own::<tokio::sync::Notify>().notified().await;
        Ok(())
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Tick {}
impl Job for Tick {
    const KIND: &'static str = "test.tick";
    async fn run(self, janua: Janua) -> Result<(), Later> {
        Log::add(&janua, format!("tick {}", janua.clock.now()));
        Ok(())
    }
}

fn kinds() -> Jobs {
    Jobs::new().on::<Note>().on::<Failing>().on::<Gate>()
}

fn own() -> Own {
    Own::default().with(Log::default()).with(tokio::sync::Notify::new())
}

fn with_jobs(jobs: Jobs) -> Feature {
    Feature::new(Routes::new("test")).jobs(jobs).own(Log::default()).own(tokio::sync::Notify::new())
}

fn feature(_: &Config) -> Feature {
    with_jobs(kinds())
}

fn ticking(_: &Config) -> Feature {
    with_jobs(kinds().every::<Tick>(Duration::from_mins(10)))
}

/// A node of its own on the same database.
async fn node(test: &TestDb, workers: usize) -> Janua {
    let (config, clock) = (Config { workers, ..Config::for_tests() }, Clock::manual(START));
    let vault = Vault::new(MasterKey::parse(&"11".repeat(32).into()).unwrap());
    Janua::new(Parts {
        objects: objects::from_config(&config, &vault, &clock).unwrap(),
        outgoing: Outgoing::from_config(&config, &[]).unwrap(),
        config,
        db: test.another_node().await,
        clock,
        entropy: Entropy::system(),
        vault,
        mail: Arc::new(Mailbox::default()),
        sms: Arc::new(Phones::default()),
        metrics: Metrics::new("test", &[]),
        description: Description::default(),
        inside: Inside::default(),
        leaving: Leaving::default(),
        own: own(),
    })
}

async fn enqueue<J: Job>(janua: &Janua, job: &J) {
    db::transact!(janua.db, async |tx| jobs::enqueue(tx, janua, janua.clock.now(), job).await).unwrap();
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_job_exists_when_its_transaction_does() {
    let t = TestJanua::start(feature).await;
    let mut tx = t.janua.db.begin().await.unwrap();
    jobs::enqueue(&mut tx, &t.janua, START, &Note { text: "undone".into() }).await.unwrap();
    drop(tx);
    enqueue(&t.janua, &Note { text: "done".into() }).await;
    assert_eq!(t.run_jobs().await, 1);
    assert_eq!(Log::of(&t.janua), ["done"]);
    assert_eq!(t.run_jobs().await, 0, "and is done once");
    t.finish().await;
}

/// Enqueues another job.
#[derive(Serialize, Deserialize)]
struct Causing {}
impl Job for Causing {
    const KIND: &'static str = "test.causing";
    async fn run(self, janua: Janua) -> Result<(), Later> {
        let about = telemetry::about().expect("a job knows what it is about");
        Log::add(&janua, telemetry::traceparent().unwrap_or_default());
        enqueue(&janua, &Note { text: about.name().to_string() }).await;
        Ok(())
    }
}

#[tokio::test]
async fn jobs_carry_the_request_that_caused_them_and_pass_it_on() {
    let t = TestJanua::start(|_| with_jobs(kinds().on::<Causing>())).await;
    let place = SpanPlace::below(None, t.janua.entropy.uuid(START));
    let request = About::request("request-7".into(), place);
    telemetry::ABOUT.scope(request, enqueue(&t.janua, &Causing {})).await;
    enqueue(&t.janua, &Note { text: "by the clock".into() }).await;
    let steps = async || {
        let steps = jobs::of_request(&t.janua.db, "request-7").await.unwrap();
        let steps = steps.into_iter().map(|step| (step.name, step.state.unwrap_or_default(), step.tries));
        steps.collect::<Vec<_>>()
    };
    assert_eq!(steps().await, [("test.causing".into(), "waiting".into(), Some(0))]);
    assert_eq!(t.run_jobs().await, 3);
    let done = |kind: &str| (kind.to_owned(), "done".to_owned(), Some(1));
    assert_eq!(steps().await, [done("test.causing"), done("test.note")], "and nothing that is due by the clock");
    // The span of the job is below that of the request, in the same trace.
    let (cause, seen) = (place.context.to_string(), Log::of(&t.janua));
    let span = seen.iter().find(|entry| entry.starts_with("00-")).unwrap();
    assert!(span[..35] == cause[..35] && span[36..52] != cause[36..52], "{span} below {cause}");
    t.finish().await;
}

#[tokio::test]
async fn a_job_waits_for_its_moment_and_a_key_keeps_it_single() {
    let t = TestJanua::start(feature).await;
    for text in ["first", "second"] {
        db::transact!(t.janua.db, async |tx| {
            let job = Note { text: text.into() };
            jobs::enqueue_at(tx, &t.janua, START, START.plus(Duration::from_mins(1)), Some("key"), &job).await
        })
        .unwrap();
    }
    t.advance(Duration::from_secs(59));
    assert_eq!(t.run_jobs().await, 0);
    t.advance(Duration::from_secs(1));
    assert_eq!(t.run_jobs().await, 1);
    assert_eq!(Log::of(&t.janua), ["first"]);
    t.finish().await;
}

#[tokio::test]
async fn a_failed_job_comes_back_later_each_time() {
    let t = TestJanua::start(feature).await;
    enqueue(&t.janua, &Failing { times: 2, how: How::Retry }).await;
    assert_eq!(t.run_jobs().await, 1);
    assert_eq!(t.run_jobs().await, 0, "not at once");
    t.advance(Duration::from_secs(1));
    assert_eq!(t.run_jobs().await, 1);
    t.advance(Duration::from_secs(1));
    assert_eq!(t.run_jobs().await, 0, "the second wait is longer");
    t.advance(Duration::from_secs(1));
    assert_eq!(t.run_jobs().await, 1);
    assert_eq!(Log::of(&t.janua).len(), 3);
    t.finish().await;
}

#[tokio::test]
async fn the_other_sides_wish_replaces_the_backoff() {
    let t = TestJanua::start(feature).await;
    enqueue(&t.janua, &Failing { times: 1, how: How::After(500) }).await;
    t.run_jobs().await;
    t.advance(Duration::from_secs(499));
    assert_eq!(t.run_jobs().await, 0);
    t.advance(Duration::from_secs(1));
    assert_eq!(t.run_jobs().await, 1);
    t.finish().await;
}

#[tokio::test]
async fn metrics_count_jobs_by_kind_and_state_and_are_read_every_few_seconds() {
    let t = TestJanua::start(|config| feature(config).declares(&[jobs::MEASURE])).await;
    let metrics = async || {
        t.janua.metrics.refresh(&t.janua).await;
        t.janua.metrics.render(Exposition::Prometheus).unwrap()
    };
    enqueue(&t.janua, &Failing { times: 100, how: How::GiveUp }).await;
    enqueue(&t.janua, &Failing { times: 100, how: How::After(500) }).await;
    t.run_jobs().await;
    for _ in 0..2 {
        enqueue(&t.janua, &Note { text: "a".into() }).await;
    }
    t.advance(Duration::from_secs(90));
    let first = metrics().await;
    for line in [
        "janua_jobs_queued{kind=\"test.note\",state=\"due\"} 2",
        "janua_jobs_queued{kind=\"test.failing\",state=\"scheduled\"} 1",
        "janua_jobs_queued{kind=\"test.failing\",state=\"dead\"} 1",
        "janua_jobs_oldest_due_seconds{kind=\"test.note\"} 90",
        "janua_jobs_waiting 3",
        "janua_jobs_dead 1",
    ] {
        assert!(first.lines().any(|said| said.trim_end_matches(".0") == line), "{line}\n{first}");
    }
    assert!(first.contains("\njanua_database_connections_max "), "{first}");
    enqueue(&t.janua, &Note { text: "a".into() }).await;
    assert!(metrics().await.contains("janua_jobs_waiting 3"), "kept for a few seconds");
    t.janua.db.exec("DELETE FROM job", params![]).await.unwrap();
    t.finish().await;
}

#[tokio::test]
async fn a_job_that_is_given_up_can_be_looked_at_revived_and_thrown_away() {
    let t = TestJanua::start(feature).await;
    for how in [How::GiveUp, How::Panic] {
        enqueue(&t.janua, &Failing { times: 100, how }).await;
    }
    for _ in 0..3 {
        t.run_jobs().await;
        t.advance(Duration::from_hours(1));
    }
    assert_eq!(Log::of(&t.janua).len(), 1 + 3, "one try for what is hopeless, all tries for a panic");
    let dead = jobs::dead(&t.janua.db, 10).await.unwrap();
    let why: Vec<_> = dead.iter().map(|job| job.last_error.clone().unwrap_or_default()).collect();
    assert!(why[0].contains("panicked") && why[1] == "never", "{why:?}");
    assert_eq!(jobs::figures(&t.janua.db).await.unwrap(), (0, 2));

    assert!(jobs::revive(&t.janua.db, dead[0].id, t.janua.clock.now()).await.unwrap());
    assert!(!jobs::revive(&t.janua.db, dead[0].id, t.janua.clock.now()).await.unwrap(), "it is not dead any more");
    t.run_jobs().await;
    assert_eq!(Log::of(&t.janua).len(), 5, "it has all its tries again");
    for _ in 0..2 {
        t.advance(Duration::from_hours(1));
        t.run_jobs().await;
    }
    for job in jobs::dead(&t.janua.db, 10).await.unwrap() {
        assert!(jobs::forget(&t.janua.db, job.id).await.unwrap());
    }
    t.finish().await;
}

#[tokio::test]
async fn a_kind_nobody_knows_waits_without_losing_a_try() {
    let t = TestJanua::start(|_| with_jobs(Jobs::new())).await;
    enqueue(&t.janua, &Note { text: "for a newer node".into() }).await;
    for _ in 0..20 {
        t.run_jobs().await;
        t.advance(Duration::from_mins(1));
    }
    let left: (i64, Option<i64>) = {
        let (attempts,): (i64,) = t.janua.db.one("SELECT attempts FROM job", params![]).await.unwrap();
        let (died,): (Option<i64>,) = t.janua.db.one("SELECT died_at FROM job", params![]).await.unwrap();
        (attempts, died)
    };
    assert_eq!(left, (0, None));
    assert_eq!(jobs::run_due(&t.janua, &kinds()).await.unwrap(), 1, "and then it comes by");
    t.finish().await;
}

#[tokio::test]
async fn a_recurring_job_runs_once_for_all_nodes_and_again_each_time() {
    let t = TestJanua::start(ticking).await;
    assert_eq!(t.run_jobs().await, 1, "at the first start");
    assert_eq!(t.run_jobs().await, 0);
    let both = Jobs::new().every::<Tick>(Duration::from_mins(10));
    t.advance(Duration::from_mins(10));
    let (one, two) = tokio::join!(jobs::run_due(&t.janua, &both), t.run_jobs());
    assert_eq!(one.unwrap() + two, 1, "two nodes, one run");
    t.advance(Duration::from_hours(5));
    assert_eq!(t.run_jobs().await, 1, "what was missed is not made up for");
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_several_nodes_do_each_job_once() {
    let test = TestDb::migrated().await;
    let mut nodes = Vec::new();
    let (stop, stopping) = tokio::sync::watch::channel(false);
    for _ in 0..if TestDb::on_postgres() { 3 } else { 1 } {
        let app = node(&test, 4).await;
        let mut stopping = stopping.clone();
        let worker = Worker::new(app.clone(), Arc::new(kinds()));
        let running = tokio::spawn(worker.run(async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        }));
        nodes.push((app, running));
    }
    for i in 0..200 {
        enqueue(&nodes[i % nodes.len()].0, &Note { text: i.to_string() }).await;
    }
    let db = test.db.clone();
    until("all jobs are done", async || jobs::undone(&db).await.unwrap().is_empty()).await;
    stop.send(true).unwrap();
    let mut ran = Vec::new();
    for (app, running) in nodes {
        running.await.unwrap();
        ran.extend(Log::of(&app).into_iter().map(|text| text.parse::<u32>().unwrap()));
    }
    ran.sort_unstable();
    assert_eq!(ran, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_dead_node_is_taken_over_and_its_late_end_does_not_count() {
    let test = TestDb::migrated().await;
    let (first, second) = (node(&test, 1).await, node(&test, 1).await);
    enqueue(&first, &Gate {}).await;
    let (app, jobs) = (first.clone(), kinds());
    let stuck = tokio::spawn(async move { jobs::run_due(&app, &jobs).await });
    until("the first node is at work", async || Log::of(&first).len() == 1).await;

    assert_eq!(jobs::run_due(&second, &kinds()).await.unwrap(), 0, "the lease holds");
    second.clock.advance(Duration::from_secs(61));
    let (app, jobs) = (second.clone(), kinds());
    let taken_over = tokio::spawn(async move { jobs::run_due(&app, &jobs).await });
    until("the second node is at work", async || Log::of(&second).len() == 1).await;

    first.own::<tokio::sync::Notify>().notify_one();
    stuck.await.unwrap().unwrap();
    assert_eq!(jobs::undone(&test.db).await.unwrap(), ["test.gate"], "the late end does not end the other's work");
    second.own::<tokio::sync::Notify>().notify_one();
    assert_eq!(taken_over.await.unwrap().unwrap(), 1);
    assert!(jobs::undone(&test.db).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_node_takes_up_at_once_what_it_held_when_it_died() {
    let test = TestDb::migrated().await;
    let (died, again) = (node(&test, 1).await, node(&test, 1).await);
    enqueue(&died, &Gate {}).await;
    let (app, jobs) = (died.clone(), kinds());
    let stuck = tokio::spawn(async move { jobs::run_due(&app, &jobs).await });
    until("it is at work", async || Log::of(&died).len() == 1).await;
    stuck.abort();
    assert_eq!(jobs::run_due(&again, &kinds()).await.unwrap(), 0, "the lease holds");
    assert_eq!(jobs::release_all(&again.db, START).await.unwrap(), 1);
    again.own::<tokio::sync::Notify>().notify_one();
    assert_eq!(jobs::run_due(&again, &kinds()).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_waiting_jobs_cost_no_memory_and_no_time() {
    let test = TestDb::migrated().await;
    let make = "INSERT INTO job (id, kind, payload, created_at, ready_at, is_claimed, attempts, fence)
                WITH RECURSIVE n (i) AS (SELECT $1 * 100000 UNION ALL SELECT i + 1 FROM n WHERE i < $1 * 100000 + 99999)
                SELECT '01900000-0000-7000-8000-' || substr('000000000000', 1, 12 - length(CAST(i AS TEXT))) || i,
                       'test.note', '{\"text\":\"x\"}', 0, 0, $2, 0, 0 FROM n";
    for batch in 0..10_i64 {
        assert_eq!(test.db.exec(make, params![batch, false]).await.unwrap(), 100_000);
    }
    let before = resident_mb();
    let app = node(&test, 4).await;
    let (stop, mut stopping) = tokio::sync::watch::channel(false);
    let worker = Worker::new(app.clone(), Arc::new(kinds()));
    let running = tokio::spawn(worker.run(async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.send(true).unwrap();
    running.await.unwrap();
    let grown = resident_mb() - before;
    assert!(grown < 64, "a million waiting jobs took {grown} MB");
    assert!(Log::of(&app).len() > 50, "work went on: {}", Log::of(&app).len());
    let counted = tokio::time::timeout(Duration::from_secs(2), jobs::figures(&test.db)).await;
    assert_eq!(counted.unwrap().unwrap().0, 10_000, "counting stops where it says enough");
}

fn resident_mb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() / 1024
}

#[tokio::test]
async fn a_conflict_inside_enqueueing_leaves_no_second_job() {
    let t = TestJanua::start(feature).await;
    let tries = std::sync::atomic::AtomicU32::new(0);
    db::transact!(t.janua.db, async |tx| {
        jobs::enqueue(tx, &t.janua, START, &Note { text: "once".into() }).await?;
        if tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            return Err(Error::Conflict("made up".into()));
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(t.run_jobs().await, 1);
    t.finish().await;
}
