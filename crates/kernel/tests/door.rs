//! The database door, feature by feature, on whichever engine the run chose.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use kernel::{
    clock::Timestamp,
    db::{Db, Error, Notice, Reach, Tx, migrate::Migration},
    params, row, telemetry,
    testing::{START, TestDb},
    transact,
};

const SCHEMA: &[Migration] = &[Migration {
    number: 1,
    name: "things",
    sql: "CREATE TABLE thing (
              id TEXT PRIMARY KEY, name TEXT, number BIGINT, truth BOOLEAN, weight DOUBLE PRECISION, bytes BYTEA,
              UNIQUE (name, number));
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
    let sent: Result<(), Error> = transact!(test.db, tx, {
        tx.send(ADD, params!["first"]).await?;
        tx.send("UPDATE thing SET number = 1 WHERE id = $1", params!["first"]).await
    });
    sent.unwrap();
    let seen: Result<(i64,), Error> = transact!(test.db, tx, {
        tx.send("UPDATE thing SET number = number + 1 WHERE id = $1", params!["first"]).await?;
        let seen = tx.one::<(i64,)>("SELECT number FROM thing WHERE id = $1", params!["first"]).await?;
        tx.send("UPDATE thing SET number = number * 10 WHERE id = $1", params!["first"]).await?;
        Ok(seen)
    });
    assert_eq!(seen.unwrap(), (2,));
    let now: (i64,) = test.db.one("SELECT number FROM thing WHERE id = $1", params!["first"]).await.unwrap();
    assert_eq!(now, (20,));

    // It fails with its own error, at the commit or at the next that is waited for, and takes all of it along.
    let refused: Result<(), Error> = transact!(test.db, tx, {
        tx.send(ADD, params!["lost"]).await?;
        tx.send(ADD, params!["first"]).await?;
        tx.send(ADD, params!["lost too"]).await
    });
    assert!(refused.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{refused:?}");
    let refused: Result<u64, Error> = transact!(test.db, tx, {
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
    let nul: Result<(), Error> = transact!(test.db, tx, { tx.send(ADD, params!["nul \0"]).await });
    assert!(matches!(nul, Err(Error::NulInText)));
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
                _ => transact!(db, tx, { tx.exec(ADD, params![format!("two-{i}")]).await.map(|_| ()) }),
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
    tokio::time::sleep(kernel::db::SILENCE + Duration::from_millis(500)).await;
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
    let outcome = transact!(test.db, tx, {
        tx.exec(ADD, params!["once"]).await?;
        if tries.fetch_add(1, Relaxed) < 2 { Err(Error::Conflict("made up".into())) } else { Ok(()) }
    });
    outcome.unwrap();
    assert_eq!((tries.load(Relaxed), ids(&test.db).await.len()), (3, 1), "no try left anything behind");

    let tries = AtomicU32::new(0);
    let outcome: Result<(), Error> = transact!(test.db, _tx, {
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
                transact!(db, tx, {
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
    transact!(test.db, tx, {
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

/// Transactions that take along what they need, which on SQLite run on the writer's thread.
mod carried {
    use super::*;

    type Done = Result<i64, Error>;

    async fn count(tx: &mut Tx) -> Done {
        let (count,) = tx.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM thing", params![]).await?;
        Ok(count)
    }

    async fn add(tx: &mut Tx, id: &str) -> Done {
        tx.send(ADD, params![format!("{id}, sent")]).await?;
        tx.exec(ADD, params![id]).await?;
        tx.notify(Reach::EveryNode, "thing", id).await?;
        count(tx).await
    }

    #[tokio::test]
    async fn it_sees_what_it_did_and_all_of_it_is_there_or_nothing() {
        let test = open().await;
        let mut heard = test.db.listen(&["thing"]);
        let added: Done = test.db.transact("a".to_owned(), |tx, id| Box::pin(add(tx, id))).await;
        assert_eq!(added.unwrap(), 2);
        let news = Notice::News { topic: "thing".into(), body: "a".into() };
        while heard.next().await.unwrap() != news {}

        let refused: Done = test
            .db
            .transact((), |tx, ()| {
                Box::pin(async move {
                    add(tx, "b").await?;
                    Err(Error::Missing)
                })
            })
            .await;
        assert!(matches!(refused, Err(Error::Missing)), "{refused:?}");
        let twice: Done = test.db.transact((), |tx, ()| Box::pin(add(tx, "a"))).await;
        assert!(twice.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{twice:?}");
        let at_the_end: Result<(), Error> =
            test.db.transact((), |tx, ()| Box::pin(async move { tx.send(ADD, params!["a"]).await })).await;
        assert!(at_the_end.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{at_the_end:?}");
        assert_eq!(ids(&test.db).await.len(), 2);
    }

    #[tokio::test]
    async fn its_log_lines_are_about_what_the_callers_are() {
        let test = open().await;
        let asked = || test.db.transact((), |_, ()| Box::pin(async { Ok::<_, Error>(telemetry::about()) }));
        let about = telemetry::ABOUT.scope("request 7".into(), asked()).await.unwrap();
        assert_eq!((about.as_deref(), asked().await.unwrap()), (Some("request 7"), None));
    }

    #[tokio::test]
    async fn it_runs_again_when_it_lost() {
        let test = open().await;
        let tries = Arc::new(AtomicU32::new(0));
        let outcome: Done = test
            .db
            .transact(tries.clone(), |tx, tries| {
                Box::pin(async move {
                    let added = add(tx, "once").await?;
                    let is_late = tries.fetch_add(1, Relaxed) >= 2;
                    if is_late { Ok(added) } else { Err(Error::Conflict("made up".into())) }
                })
            })
            .await;
        assert_eq!((outcome.unwrap(), tries.load(Relaxed), ids(&test.db).await.len()), (2, 3, 2));
    }

    #[tokio::test]
    async fn one_that_panics_or_waits_for_something_else_leaves_the_others_alone() {
        let test = open().await;
        let db = test.db.clone();
        let panics = tokio::spawn(async move {
            db.transact((), |tx, ()| {
                Box::pin(async move {
                    add(tx, "panics").await?;
                    assert!(tx.exec(ADD, params!["more"]).await.is_err(), "as it should here");
                    Ok::<_, Error>(())
                })
            })
            .await
        });
        // Elsewhere the panic is the caller's.
        assert!(!matches!(panics.await, Ok(Ok(()))));
        if !TestDb::on_postgres() {
            let waits: Done = test
                .db
                .transact((), |tx, ()| {
                    Box::pin(async move {
                        add(tx, "waits").await?;
                        tokio::task::yield_now().await;
                        add(tx, "more").await
                    })
                })
                .await;
            assert!(matches!(waits, Err(Error::Driver(_))), "{waits:?}");
        }
        let next = test.db.transact((), |tx, ()| Box::pin(add(tx, "next"))).await;
        assert_eq!(next.unwrap(), 2);
    }

    #[tokio::test]
    async fn one_that_fails_after_it_wrote_costs_its_neighbours_nothing_but_another_try() {
        let test = open().await;
        for round in 0..3 {
            // Nobody is served before this one is done, so that all of them are in one commit.
            let mut first = test.db.begin().await.unwrap();
            count(&mut first).await.unwrap();
            let runs = Arc::new(AtomicU32::new(0));
            let along = (runs.clone(), format!("{round} came along"));
            let came_along = test.db.transact(along, |tx, (runs, id)| {
                runs.fetch_add(1, Relaxed);
                Box::pin(add(tx, id))
            });
            let single = test.db.exec(ADD, params![format!("{round} single")]);
            let talked = async { transact!(test.db, tx, { add(tx, &format!("{round} talked")).await }) };
            let fails = test.db.transact((), |tx, ()| {
                Box::pin(async move {
                    add(tx, "fails").await?;
                    Err::<i64, _>(Error::Missing)
                })
            });
            let is_over = async { drop(first) };
            let (came_along, single, talked, failed, ()) = tokio::join!(came_along, single, talked, fails, is_over);
            assert!(matches!(failed, Err(Error::Missing)), "{failed:?}");
            assert!(came_along.is_ok() && single.is_ok() && talked.is_ok(), "{came_along:?} {single:?} {talked:?}");
            assert_eq!(ids(&test.db).await.len(), 5 * (round + 1));
            // The first failure costs the whole commit; from then on each is undone alone.
            let expected = if round == 0 && !TestDb::on_postgres() { 2 } else { 1 };
            assert_eq!(runs.load(Relaxed), expected, "round {round}");
        }
    }

    #[tokio::test]
    async fn who_goes_away_meanwhile_has_done_all_of_it_or_nothing() {
        let test = open().await;
        for i in 0..100 {
            let db = test.db.clone();
            let (id, wait) = (format!("n{i}"), Duration::from_micros(i * 20));
            let work = db.transact(id.clone(), |tx, id| Box::pin(add(tx, id)));
            let in_time = tokio::time::timeout(wait, work).await;
            // Behind it, whether it was given up or not.
            test.db.exec(ADD, params![format!("{id}, behind")]).await.unwrap();
            let found = ids(&test.db).await;
            let done = (found.contains(&id), found.contains(&format!("{id}, sent")));
            assert_eq!(done.0, done.1, "{id}");
            assert!(done.0 || in_time.is_err(), "{id} was acknowledged");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_killed_costs_one_transaction_and_no_more() {
    if !TestDb::on_postgres() {
        // The writer of SQLite is this process; killing it is a test of its own (tests/faults.rs).
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
    // SQLite's own limit gives the same error as the system's; tests/faults.rs fills a real disk.
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

mod migrations {
    use kernel::db::migrate::MigrateError;

    use super::*;

    const FIRST: Migration = Migration { number: 1, name: "first", sql: "CREATE TABLE one (id TEXT PRIMARY KEY);" };
    const SECOND: Migration = Migration {
        number: 2,
        name: "second",
        sql: "CREATE TABLE two (id TEXT PRIMARY KEY); INSERT INTO two (id) VALUES ('x');",
    };
    const BROKEN: Migration =
        Migration { number: 2, name: "broken", sql: "CREATE TABLE half (id TEXT); INSERT INTO nowhere VALUES (1);" };
    const EDITED: Migration = Migration { number: 1, name: "first", sql: "CREATE TABLE one (id TEXT);" };

    async fn count(db: &Db, sql: &'static str) -> i64 {
        db.one::<(i64,)>(sql, params![]).await.unwrap().0
    }

    #[tokio::test]
    async fn steps_are_applied_once_and_in_order() {
        const BOTH: &[Migration] = &[FIRST, SECOND];
        let test = TestDb::empty().await;
        assert_eq!(test.db.migrate_to(&BOTH[..1], START).await.unwrap(), ["first"]);
        assert_eq!(test.db.migrate_to(BOTH, START).await.unwrap(), ["second"]);
        assert!(test.db.migrate_to(BOTH, START).await.unwrap().is_empty());
        assert_eq!(count(&test.db, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM two").await, 1);
    }

    #[tokio::test]
    async fn a_failed_step_leaves_nothing_of_itself() {
        let test = TestDb::empty().await;
        let error = test.db.migrate_to(&[FIRST, BROKEN], START).await.unwrap_err();
        assert!(matches!(error, MigrateError::Failed { number: 2, .. }), "{error}");
        assert!(test.db.all::<(String,)>("SELECT id FROM half", params![]).await.is_err());
        assert_eq!(test.db.migrate_to(&[FIRST, SECOND], START).await.unwrap(), ["second"], "mended and tried again");
    }

    #[tokio::test]
    async fn an_older_binary_and_an_edited_step_are_refused() {
        let test = TestDb::empty().await;
        test.db.migrate_to(&[FIRST, SECOND], START).await.unwrap();
        let older = test.db.migrate_to(&[FIRST], START).await.unwrap_err();
        assert!(matches!(older, MigrateError::Newer { found: 2, known: 1 }), "{older}");
        let edited = test.db.migrate_to(&[EDITED, SECOND], START).await.unwrap_err();
        assert!(matches!(edited, MigrateError::Changed { number: 1, .. }), "{edited}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_nodes_that_start_at_once_one_migrates() {
        let test = TestDb::empty().await;
        let mut nodes = Vec::new();
        for _ in 0..8 {
            let db = test.another_node().await;
            nodes.push(tokio::spawn(async move { db.migrate_to(&[FIRST, SECOND], START).await }));
        }
        let mut applied = Vec::new();
        for node in nodes {
            applied.extend(node.await.unwrap().unwrap());
        }
        applied.sort();
        assert_eq!(applied, ["first", "second"]);
    }

    #[tokio::test]
    async fn the_products_own_migrations_apply() {
        let test = TestDb::migrated().await;
        assert!(test.db.migrate(Timestamp(0)).await.unwrap().is_empty());
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM schema_migration";
        assert_eq!(count(&test.db, sql).await, i64::try_from(kernel::db::migrate::ALL.len()).unwrap());
    }
}

mod tls {
    use super::*;
    use kernel::db::Durability;

    /// The same server under the name its certificate is for.
    fn server(query: &str) -> Option<String> {
        let url = std::env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty())?;
        Some(format!("{}?{query}", url.replace("127.0.0.1", "localhost")))
    }

    async fn connect(url: &str) -> Result<bool, Error> {
        let db = Db::open(url, 2, Durability::Full).await?;
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        db.one::<(bool,)>(sql, params![]).await.map(|(ssl,)| ssl)
    }

    #[tokio::test]
    async fn a_server_is_reached_over_tls_when_its_certificate_is_right_and_not_otherwise() {
        let Some(plain) = server("sslmode=disable") else { return };
        let authority = std::env::var("TEST_DATABASE_CA").expect("scripts/test names the authority");
        assert!(!connect(&plain).await.unwrap());
        let trusted = format!("sslmode=verify-full&sslrootcert={authority}");
        assert!(connect(&server(&trusted).unwrap()).await.unwrap(), "encrypted");

        let strange = connect(&server("sslmode=verify-full").unwrap()).await;
        assert!(strange.is_err(), "the machine does not know this authority");
        let other_name = server(&trusted).unwrap().replace("localhost", "127.0.0.1");
        assert!(connect(&other_name).await.is_err(), "the certificate is for another name");
    }

    #[tokio::test]
    async fn of_several_hosts_the_one_that_answers_is_used() {
        let Some(url) = server("sslmode=disable") else { return };
        let (user, rest) = url.split_once('@').unwrap();
        let (_, port_and_database) = rest.split_once(':').unwrap();
        let (port, database) = port_and_database.split_once('/').unwrap();
        let several = format!("{user}@127.0.0.1:1,127.0.0.1:{port}/{database}");
        assert!(connect(&several).await.is_ok(), "the first host is dead");
    }
}
