//! The database door, feature by feature, on whichever engine the run chose.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
mod carried;
mod migrations;
mod tls;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use db::{
    Db, Error, Notice, Reach, Read, Tx,
    migrate::Migration,
    params, row,
    testing::{START, TestDb},
    transact,
};
use futures_util::FutureExt as _;

const SCHEMA: &[Migration] = &[Migration {
    number: 1,
    name: "things",
    sql: "CREATE TABLE thing (
              id TEXT PRIMARY KEY, name TEXT, number BIGINT, truth BOOLEAN, weight DOUBLE PRECISION, bytes BYTEA,
              UNIQUE (name, number));
          CREATE TABLE notice (body TEXT NOT NULL);
          CREATE TABLE part (id TEXT PRIMARY KEY, thing_id TEXT NOT NULL REFERENCES thing (id));",
}];

#[derive(Debug, PartialEq)]
struct Thing {
    id: String,
    name: Option<String>,
    number: Option<i64>,
    truth: Option<bool>,
    weight: Option<f64>,
    bytes: Option<Vec<u8>>,
}
row!(Thing { id, name, number, truth, weight, bytes });

const INSERT: &str = "INSERT INTO thing (id, name, number, truth, weight, bytes) VALUES ($1, $2, $3, $4, $5, $6)";
const ADD: &str = "INSERT INTO thing (id) VALUES ($1)";

async fn open() -> TestDb {
    let fresh = TestDb::empty().await;
    fresh.db.migrate_to(SCHEMA, START).await.unwrap();
    fresh
}

async fn ids(db: &Db) -> HashSet<String> {
    let found: Vec<(String,)> = db.all("SELECT id FROM thing", params![]).await.unwrap();
    found.into_iter().map(|(id,)| id).collect()
}

#[tokio::test]
async fn every_type_comes_back_as_it_went_in_and_so_does_null() {
    let test = open().await;
    let full = Thing {
        id: "full".into(),
        name: Some("Zoë \u{1f6aa} 'quoted' $1".into()),
        number: Some(i64::MIN),
        truth: Some(false),
        weight: Some(0.1),
        bytes: Some(vec![0, 255, 10]),
    };
    let values = params![&full.id, full.name.clone(), full.number, full.truth, full.weight, full.bytes.clone()];
    assert_eq!(test.db.exec(INSERT, values).await.unwrap(), 1);
    let none = params!["none", None::<String>, None::<i64>, None::<bool>, None::<f64>, None::<Vec<u8>>];
    test.db.exec(INSERT, none).await.unwrap();

    let read: Thing = test.db.one("SELECT * FROM thing WHERE id = $1", params!["full"]).await.unwrap();
    assert_eq!(read, full);
    let read: Thing = test.db.one("SELECT * FROM thing WHERE id = $1", params!["none"]).await.unwrap();
    assert_eq!((read.name, read.number, read.truth, read.weight, read.bytes), (None, None, None, None, None));
    let whole = params!["whole", None::<String>, 1_i64, true, 2.0, Vec::<u8>::new()];
    test.db.exec(INSERT, whole).await.unwrap();
    let read: Thing = test.db.one("SELECT * FROM thing WHERE truth = $1", params![true]).await.unwrap();
    assert_eq!((read.weight, read.bytes), (Some(2.0), Some(vec![])), "a whole real and an empty blob");
}

#[tokio::test]
async fn parameters_go_by_their_number_wherever_they_stand() {
    let test = open().await;
    test.db.exec("INSERT INTO thing (number, id, name) VALUES ($3, $1, $2)", params!["a", "n", 5_i64]).await.unwrap();
    let sql = "SELECT * FROM thing WHERE number = $2 AND id = $1 AND name <> $1";
    let found: Option<Thing> = test.db.opt(sql, params!["a", 5_i64]).await.unwrap();
    assert_eq!(found.unwrap().name.as_deref(), Some("n"));
}

#[tokio::test]
async fn a_write_hands_rows_back_and_an_upsert_chooses() {
    let test = open().await;
    let put = "INSERT INTO thing (id, number) VALUES ($1, $2)
               ON CONFLICT (id) DO UPDATE SET number = thing.number + $2 RETURNING *";
    let first: Vec<Thing> = test.db.put(put, params!["a", 2_i64]).await.unwrap();
    let second: Vec<Thing> = test.db.put(put, params!["a", 3_i64]).await.unwrap();
    assert_eq!((first[0].number, second[0].number), (Some(2), Some(5)));
    let nothing = test.db.exec("INSERT INTO thing (id) VALUES ($1) ON CONFLICT DO NOTHING", params!["a"]).await;
    assert_eq!(nothing.unwrap(), 0, "what did not happen changed no row");
    let none: Vec<Thing> =
        test.db.put("UPDATE thing SET number = 1 WHERE id = $1 RETURNING *", params!["z"]).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn errors_have_types_and_constraints_have_one_name_on_both_engines() {
    let test = open().await;
    let row = |id: &str, name: &str| params![id, name, 1_i64, None::<bool>, None::<f64>, None::<Vec<u8>>];
    test.db.exec(INSERT, row("a", "n")).await.unwrap();
    let error = test.db.exec(INSERT, row("a", "m")).await.unwrap_err();
    assert!(error.is_unique("thing_pkey"), "{error:?}");
    let error = test.db.exec(INSERT, row("b", "n")).await.unwrap_err();
    assert!(error.is_unique("thing_name_number_key"), "{error:?}");
    let orphan = test.db.exec("INSERT INTO part (id, thing_id) VALUES ('p', 'nowhere')", params![]).await;
    assert!(matches!(orphan, Err(Error::ForeignKey)), "{orphan:?}");
    let missing = test.db.one::<Thing>("SELECT * FROM thing WHERE id = $1", params!["nobody"]).await;
    assert!(matches!(missing, Err(Error::Missing)));
    let nul = test.db.exec(ADD, params!["nul\0inside"]).await;
    assert!(matches!(nul, Err(Error::NulInText)), "{nul:?}");
    let unread: Result<(i64,), _> = test.db.one("SELECT name FROM thing", params![]).await;
    assert!(matches!(unread, Err(Error::Decode(_))));
    assert!(matches!(test.db.exec("INSERT INTO nothing VALUES (1)", params![]).await, Err(Error::Driver(_))));
    assert!(test.db.exec(ADD, params![]).await.is_err(), "a parameter that was forgotten");
}

#[tokio::test]
async fn a_dropped_transaction_never_was() {
    let test = open().await;
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["a"]).await.unwrap();
    let inside: Vec<Thing> = tx.all("SELECT * FROM thing", params![]).await.unwrap();
    assert_eq!(inside.len(), 1, "it sees its own writes");
    assert!(ids(&test.db).await.is_empty(), "and nobody else does");
    drop(tx);
    test.db.exec(ADD, params!["a"]).await.unwrap();
    assert_eq!(ids(&test.db).await.len(), 1);
}

async fn thing(mut from: impl Read, id: &str) -> Option<Thing> {
    from.opt("SELECT * FROM thing WHERE id = $1", params![id]).await.unwrap()
}

#[tokio::test]
async fn one_function_reads_what_is_committed_or_what_a_transaction_sees() {
    let test = open().await;
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["a"]).await.unwrap();
    assert_eq!(thing(&mut tx, "a").await.map(|thing| thing.id).as_deref(), Some("a"), "its own write");
    assert_eq!(thing(&test.db, "a").await, None, "which is not committed yet");
    tx.commit().await.unwrap();
    assert!(thing(&test.db, "a").await.is_some());
    let mut from = &test.db;
    let missing = Read::one::<Thing>(&mut from, "SELECT * FROM thing WHERE id = 'b'", params![]).await;
    assert!(matches!(missing, Err(Error::Missing)), "{missing:?}");
    assert_eq!(Read::all::<Thing>(&mut from, "SELECT * FROM thing", params![]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_return_leaves_the_closure_and_its_value_decides() {
    let test = open().await;
    for (id, is_good) in [("kept", true), ("undone", false)] {
        let outcome: Result<(), Error> = transact!(test.db, async |tx| {
            tx.exec(ADD, params![id]).await?;
            if is_good {
                return Ok(());
            }
            Err(Error::Missing)
        });
        assert_eq!(outcome.is_ok(), is_good, "the test goes on after the closure");
    }
    assert_eq!(ids(&test.db).await, HashSet::from(["kept".to_owned()]));
}

#[tokio::test]
async fn an_error_ends_its_transaction_on_both_engines() {
    let test = open().await;
    test.db.exec(ADD, params!["taken"]).await.unwrap();
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["before"]).await.unwrap();
    assert!(tx.exec(ADD, params!["taken"]).await.is_err());
    assert!(matches!(tx.exec(ADD, params!["after"]).await, Err(Error::Aborted)));
    assert!(matches!(tx.commit().await, Err(Error::Aborted)), "a commit that did not happen must not say it did");
    assert_eq!(ids(&test.db).await, HashSet::from(["taken".to_owned()]));
}

#[tokio::test]
async fn what_is_sent_along_happens_in_its_order_or_not_at_all() {
    let test = open().await;
    // With nothing waited for but the commit, and with something in between that must see it.
    let sent: Result<(), Error> = transact!(test.db, async |tx| {
        tx.send(ADD, params!["first"]).await?;
        tx.send("UPDATE thing SET number = 1 WHERE id = $1", params!["first"]).await
    });
    sent.unwrap();
    let seen: Result<(i64,), Error> = transact!(test.db, async |tx| {
        tx.send("UPDATE thing SET number = number + 1 WHERE id = $1", params!["first"]).await?;
        let seen = tx.one::<(i64,)>("SELECT number FROM thing WHERE id = $1", params!["first"]).await?;
        tx.send("UPDATE thing SET number = number * 10 WHERE id = $1", params!["first"]).await?;
        Ok(seen)
    });
    assert_eq!(seen.unwrap(), (2,));
    let now: (i64,) = test.db.one("SELECT number FROM thing WHERE id = $1", params!["first"]).await.unwrap();
    assert_eq!(now, (20,));

    // It fails with its own error, at the commit or at the next that is waited for, and takes all of it along.
    let refused: Result<(), Error> = transact!(test.db, async |tx| {
        tx.send(ADD, params!["lost"]).await?;
        tx.send(ADD, params!["first"]).await?;
        tx.send(ADD, params!["lost too"]).await
    });
    assert!(refused.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{refused:?}");
    let refused: Result<u64, Error> = transact!(test.db, async |tx| {
        tx.exec(ADD, params!["lost"]).await?;
        tx.send(ADD, params!["first"]).await?;
        tx.exec(ADD, params!["lost too"]).await
    });
    assert!(refused.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{refused:?}");
    assert_eq!(ids(&test.db).await, HashSet::from(["first".to_owned()]));

    // Nobody commits what was refused, whoever does not look.
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["unseen"]).await.unwrap();
    let _ = tx.send(ADD, params!["first"]).await;
    let _ = tx.exec(ADD, params!["after"]).await;
    assert!(tx.commit().await.is_err());
    assert_eq!(ids(&test.db).await, HashSet::from(["first".to_owned()]));
    let nul: Result<(), Error> = transact!(test.db, async |tx| tx.send(ADD, params!["nul \0"]).await);
    assert!(matches!(nul, Err(Error::NulInText)));
}

#[tokio::test]
async fn one_statement_with_many_values_says_what_each_of_them_did() {
    const UNLESS_THERE: &str = "INSERT INTO thing (id) VALUES ($1) ON CONFLICT DO NOTHING";
    let test = open().await;
    // More than travel at once, and together with what was sent before.
    let values: Vec<_> = (0..300).map(|i| params![format!("n{}", i % 299)]).collect();
    let changed: Vec<u64> = transact!(test.db, async |tx| {
        tx.send(ADD, params!["n7"]).await?;
        let changed = tx.exec_each(UNLESS_THERE, values.clone()).await?;
        assert!(tx.exec_each(UNLESS_THERE, vec![]).await?.is_empty());
        Ok(changed)
    })
    .unwrap();
    let without = |place: usize| u64::from(place != 7 && place != 299);
    assert_eq!(changed, (0..300).map(without).collect::<Vec<_>>());
    let names: Vec<_> = (0..300).map(|i| params![format!("n{}", 2 * i)]).collect();
    let found: Vec<Option<(String,)>> =
        transact!(test.db, Error, async |tx| tx.opt_each("SELECT id FROM thing WHERE id = $1", names.clone()).await)
            .unwrap();
    assert!(found.iter().take(150).enumerate().all(|(i, row)| row == &Some((format!("n{}", 2 * i),))), "{found:?}");
    assert!(found[150..].iter().all(Option::is_none), "{found:?}");
    assert_eq!(ids(&test.db).await.len(), 299);
    // One that fails ends all of it.
    let failed: Result<Vec<u64>, Error> =
        transact!(test.db, async |tx| tx.exec_each(ADD, vec![params!["new"], params!["n1"]]).await);
    assert!(failed.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{failed:?}");
    assert_eq!(ids(&test.db).await.len(), 299);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_a_shared_commit_does_not_touch_its_neighbours() {
    let test = open().await;
    test.db.exec(ADD, params!["taken"]).await.unwrap();
    let work = (0..200).map(|i| {
        let db = test.db.clone();
        tokio::spawn(async move {
            match i % 4 {
                0 => db.exec(ADD, params!["taken"]).await.map(|_| ()),
                1 => db.exec(ADD, params![format!("one-{i}")]).await.map(|_| ()),
                2 => {
                    let mut tx = db.begin().await?;
                    tx.exec(ADD, params![format!("undone-{i}")]).await?;
                    tx.exec(ADD, params!["taken"]).await?;
                    tx.commit().await
                }
                _ => transact!(db, async |tx| tx.exec(ADD, params![format!("two-{i}")]).await.map(|_| ())),
            }
        })
    });
    let mut good = 1;
    for (i, work) in work.collect::<Vec<_>>().into_iter().enumerate() {
        let outcome = work.await.unwrap();
        assert_eq!(outcome.is_ok(), i % 2 == 1, "{i}: {outcome:?}");
        good += usize::from(outcome.is_ok());
    }
    let found = ids(&test.db).await;
    assert_eq!(found.len(), good);
    assert!(found.iter().all(|id| !id.starts_with("undone")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_writers_at_once_all_get_through() {
    let test = open().await;
    // A request waits for a place before it writes; so do these, as many as the pipeline lets in.
    let places = Arc::new(tokio::sync::Semaphore::new(if TestDb::on_postgres() { 64 } else { 10_000 }));
    let writers: Vec<_> = (0..10_000)
        .map(|i| {
            let (db, places) = (test.db.clone(), places.clone());
            tokio::spawn(async move {
                let _place = places.acquire().await;
                db.exec(ADD, params![format!("w{i}")]).await
            })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.await.unwrap().unwrap(), 1);
    }
    assert_eq!(ids(&test.db).await.len(), 10_000);
}

#[tokio::test]
async fn a_caller_that_goes_away_half_way_leaves_nothing_and_holds_nobody_up() {
    let test = open().await;
    let db = test.db.clone();
    let (started, waiting) = tokio::sync::oneshot::channel();
    let gone = tokio::spawn(async move {
        let mut tx = db.begin().await.unwrap();
        tx.exec(ADD, params!["half"]).await.unwrap();
        started.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    waiting.await.unwrap();
    gone.abort();
    let next = tokio::time::timeout(Duration::from_secs(1), test.db.exec(ADD, params!["next"]));
    assert_eq!(next.await.expect("the next writer does not wait").unwrap(), 1);
    assert_eq!(ids(&test.db).await, HashSet::from(["next".to_owned()]));
}

#[tokio::test]
async fn who_goes_away_while_a_transaction_begins_leaves_no_open_one_behind() {
    let test = open().await;
    let other = test.another_node().await;
    for i in 0..200_u64 {
        let begun = tokio::time::timeout(Duration::from_micros(i * 5), test.db.begin()).await;
        drop(begun);
        let id = format!("n{i}");
        test.db.exec(ADD, params![&id]).await.unwrap();
        let seen: Vec<Thing> = other.all("SELECT * FROM thing WHERE id = $1", params![&id]).await.unwrap();
        assert_eq!(seen.len(), 1, "{id} was acknowledged, so everybody sees it");
    }
}

#[tokio::test]
async fn a_silent_transaction_is_rolled_back_and_told_so() {
    let test = open().await;
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["silent"]).await.unwrap();
    tokio::time::sleep(db::SILENCE + Duration::from_millis(500)).await;
    let late = tx.exec(ADD, params!["late"]).await;
    assert!(matches!(late, Err(Error::Silent | Error::Unavailable(_))), "{late:?}");
    drop(tx);
    test.db.exec(ADD, params!["next"]).await.unwrap();
    assert_eq!(ids(&test.db).await, HashSet::from(["next".to_owned()]));
}

#[tokio::test]
async fn a_transaction_that_lost_runs_again_from_the_start() {
    let test = open().await;
    let tries = AtomicU32::new(0);
    let outcome = transact!(test.db, async |tx| {
        tx.exec(ADD, params!["once"]).await?;
        if tries.fetch_add(1, Relaxed) < 2 { Err(Error::Conflict("made up".into())) } else { Ok(()) }
    });
    outcome.unwrap();
    assert_eq!((tries.load(Relaxed), ids(&test.db).await.len()), (3, 1), "no try left anything behind");

    let tries = AtomicU32::new(0);
    let outcome: Result<(), Error> = transact!(test.db, async |_tx| {
        tries.fetch_add(1, Relaxed);
        Err(Error::Conflict("always".into()))
    });
    assert!(outcome.is_err() && tries.load(Relaxed) == 5, "it does not try for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_deadlock_is_resolved_by_trying_again() {
    let test = open().await;
    for id in ["a", "b"] {
        test.db.exec("INSERT INTO thing (id, number) VALUES ($1, 0)", params![id]).await.unwrap();
    }
    let bump = |first: &'static str, second: &'static str| {
        let db = test.db.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                transact!(db, async |tx| {
                    let sql = "UPDATE thing SET number = number + 1 WHERE id = $1";
                    tx.exec(sql, params![first]).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    tx.exec(sql, params![second]).await.map(|_| ())
                })?;
            }
            Ok::<(), Error>(())
        })
    };
    let (one, two) = (bump("a", "b"), bump("b", "a"));
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    let total: (i64,) = test.db.one("SELECT CAST(SUM(number) AS BIGINT) AS n FROM thing", params![]).await.unwrap();
    assert_eq!(total.0, 40, "each bump happened exactly once");
}

#[tokio::test]
async fn a_notice_is_heard_after_the_commit_and_never_without_it() {
    let test = open().await;
    let (mut here, other) = (test.db.listen(&["session"]), test.another_node().await);
    let mut there = other.listen(&["session"]);
    let mut tx = test.db.begin().await.unwrap();
    tx.notify(Reach::EveryNode, "session", "undone").await.unwrap();
    drop(tx);
    // The other node's listener announces that it is connected by telling everybody to start over.
    if TestDb::on_postgres() {
        while there.next().await != Some(Notice::StartOver) {}
    }
    transact!(test.db, async |tx| {
        tx.exec(ADD, params!["a"]).await?;
        tx.notify(Reach::EveryNode, "another topic", "somebody else's").await?;
        tx.notify(Reach::EveryNode, "session", "gone").await
    })
    .unwrap();
    let news = Notice::News { topic: "session".into(), body: "gone".into() };
    let mut heard = here.next().await.unwrap();
    while heard == Notice::StartOver {
        heard = here.next().await.unwrap();
    }
    assert_eq!(heard, news, "the first thing heard here");
    if TestDb::on_postgres() {
        let heard = tokio::time::timeout(Duration::from_secs(1), there.next()).await;
        assert_eq!(heard.expect("within a second").unwrap(), news, "and on the other node");
        let again = tokio::time::timeout(Duration::from_secs(1), here.next()).await;
        assert_eq!(again.expect("within a second").unwrap(), news, "and here once more, whoever went away meanwhile");
    }
}

#[tokio::test]
async fn who_goes_away_while_it_commits_is_heard_of_all_the_same() {
    let test = open().await;
    let told = Arc::new(Mutex::new(HashSet::new()));
    let heard = told.clone();
    test.db.on_notice(|_| panic!("as it should here; nobody else is to suffer from it"));
    test.db.on_notice(move |notice| {
        if let Notice::News { body, .. } = notice {
            heard.lock().unwrap().insert(body.clone());
        }
    });
    for i in 0..20 {
        let id = format!("n{i}");
        let mut tx = test.db.begin().await.unwrap();
        tx.exec(ADD, params![&id]).await.unwrap();
        tx.notify(Reach::EveryNode, "session", &*id).await.unwrap();
        // Polled once, so that the commit is on its way, and dropped like the request of a client that hangs up.
        drop(tx.commit().now_or_never());
        let is_told = async {
            while !ids(&test.db).await.contains(&id) || !told.lock().unwrap().contains(&id) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(2), is_told).await.expect("what is remembered here is forgotten");
    }
}

/// What goes to the server in one go has the same outcome as one by one.
#[tokio::test]
async fn what_is_sent_along_fails_what_it_goes_along_with() {
    let test = open().await;
    test.db.exec(ADD, params!["a"]).await.unwrap();
    let committed: Result<(), Error> = transact!(test.db, async |tx| {
        tx.send(ADD, params!["b"]).await?;
        tx.send(ADD, params!["a"]).await?;
        tx.send(ADD, params!["c"]).await
    });
    assert!(committed.unwrap_err().is_unique("thing_pkey"), "with the commit");
    let mut tx = test.db.begin().await.unwrap();
    tx.send(ADD, params!["a"]).await.unwrap();
    let error = tx.exec(ADD, params!["d"]).await.unwrap_err();
    assert!(error.is_unique("thing_pkey"), "with the next statement: {error:?}");
    assert!(matches!(tx.exec(ADD, params!["e"]).await, Err(Error::Aborted)));
    assert!(matches!(tx.commit().await, Err(Error::Aborted)));
    let many: Result<(), Error> = transact!(test.db, async |tx| {
        for i in 0..1_000 {
            tx.send(ADD, params![format!("n{i}")]).await?;
        }
        Ok(())
    });
    many.unwrap();
    assert_eq!(ids(&test.db).await.len(), 1_001, "and nothing of the others");
}

/// Transactions that take along what they need, which on SQLite run on the writer's thread.
#[tokio::test]
async fn a_connection_that_is_killed_costs_one_transaction_and_no_more() {
    if !TestDb::on_postgres() {
        // The writer of SQLite is this process; killing it is a test of its own (tests/storms/faults.rs).
        return;
    }
    let test = open().await;
    let mut tx = test.db.begin().await.unwrap();
    tx.exec(ADD, params!["lost"]).await.unwrap();
    let pid: (i64,) = tx.one("SELECT CAST(pg_backend_pid() AS BIGINT) AS pid", params![]).await.unwrap();
    test.db
        .all::<(bool,)>("SELECT pg_terminate_backend(CAST($1 AS INTEGER)) AS ended", params![pid.0])
        .await
        .unwrap();
    let outcome = match tx.exec(ADD, params!["after"]).await {
        Ok(_) => tx.commit().await,
        Err(error) => Err(error),
    };
    assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
    for i in 0..20 {
        test.db.exec(ADD, params![format!("n{i}")]).await.unwrap();
    }
    assert_eq!(ids(&test.db).await.len(), 20);
}

/// A node of the next version migrates while this one runs.
#[tokio::test]
async fn a_column_that_is_added_under_prepared_statements_disturbs_nobody() {
    const ALL: &str = "SELECT * FROM thing";
    let test = open().await;
    test.db.exec(ADD, params!["a"]).await.unwrap();
    let read = |db: Db| async move { db.all::<Thing>(ALL, params![]).await.map(|things| things.len()) };
    let read_within = |db: Db| async move {
        transact!(db, async |tx| {
            tx.send("UPDATE thing SET number = COALESCE(number, 0) + 1", params![]).await?;
            Ok(tx.all::<Thing>(ALL, params![]).await?.len())
        })
    };
    // Every connection has the statement at hand.
    let many = || futures_util::future::join_all((0..16).map(|_| read(test.db.clone())));
    assert!(many().await.into_iter().all(|found| found.unwrap() == 1));
    for (number, alter) in
        ["ALTER TABLE thing ADD COLUMN more TEXT NOT NULL DEFAULT 'x'", "ALTER TABLE thing ADD COLUMN most TEXT"]
            .into_iter()
            .enumerate()
    {
        let other = test.another_node().await;
        other.exec(alter, params![]).await.unwrap();
        if number == 0 {
            assert!(many().await.into_iter().all(|found| found.unwrap() == 1), "outside of transactions");
        }
        assert_eq!(read_within(test.db.clone()).await.unwrap(), 1, "inside of them");
        assert!(many().await.into_iter().all(|found| found.unwrap() == 1));
    }
    let counted: Vec<Thing> = test.db.all(ALL, params![]).await.unwrap();
    assert_eq!(counted[0].number, Some(2), "and what ran again was done once");
}

#[tokio::test]
async fn a_statement_that_runs_too_long_is_cut_off() {
    let test = open().await;
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000)
                   SELECT CAST(COUNT(*) AS BIGINT) AS n FROM n";
    let outcome: Result<(i64,), _> = test.db.one(endless, params![]).await;
    assert!(matches!(outcome, Err(Error::Timeout)), "{outcome:?}");
    assert!(ids(&test.db).await.is_empty(), "the door still works");
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_nothing_else_and_heals_by_itself() {
    if TestDb::on_postgres() {
        // PostgreSQL's own disk is not ours to fill; how its refusal is understood is tested in the driver.
        return;
    }
    let test = open().await;
    test.db.exec(ADD, params!["before"]).await.unwrap();
    let pages: (i64,) = test.db.one("PRAGMA page_count", params![]).await.unwrap();
    // SQLite's own limit gives the same error as the system's; tests/storms/faults.rs fills a real disk.
    let limit: &'static str = Box::leak(format!("PRAGMA max_page_count = {}", pages.0 + 2).into_boxed_str());
    test.db.put::<(i64,)>(limit, params![]).await.unwrap();
    let large = vec![7_u8; 100_000];
    let sql = "INSERT INTO thing (id, bytes) VALUES ($1, $2)";
    let refused = test.db.exec(sql, params!["large", large.clone()]).await;
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    let mut tx = test.db.begin().await.unwrap();
    let refused = tx.exec(sql, params!["large", large.clone()]).await;
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    assert!(tx.commit().await.is_err());
    assert_eq!(ids(&test.db).await, HashSet::from(["before".to_owned()]), "reads go on");
    test.db.put::<(i64,)>("PRAGMA max_page_count = 1000000", params![]).await.unwrap();
    test.db.exec(sql, params!["large", large]).await.unwrap();
}

#[tokio::test]
async fn a_list_is_paged_by_two_columns_at_once() {
    let test = open().await;
    for i in 0..5_i64 {
        test.db
            .exec("INSERT INTO thing (id, number) VALUES ($1, $2)", params![format!("t{i}"), i / 2])
            .await
            .unwrap();
    }
    let sql = "SELECT * FROM thing WHERE (number, id) < ($1, $2) ORDER BY number DESC, id DESC LIMIT $3";
    let page: Vec<Thing> = test.db.all(sql, params![1_i64, "t3", 2_i64]).await.unwrap();
    assert_eq!(page.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["t2", "t1"]);
}
