//! Transactions that come along to where the writes are made.
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
    let added: Done = test.db.carry("a".to_owned(), |tx, id| Box::pin(add(tx, id))).await;
    assert_eq!(added.unwrap(), 2);
    let news = Notice::News { topic: "thing".into(), body: "a".into() };
    while heard.next().await.unwrap() != news {}

    let refused: Done = test
        .db
        .carry((), |tx, ()| {
            Box::pin(async move {
                add(tx, "b").await?;
                Err(Error::Missing)
            })
        })
        .await;
    assert!(matches!(refused, Err(Error::Missing)), "{refused:?}");
    let twice: Done = test.db.carry((), |tx, ()| Box::pin(add(tx, "a"))).await;
    assert!(twice.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{twice:?}");
    let at_the_end: Result<(), Error> =
        test.db.carry((), |tx, ()| Box::pin(async move { tx.send(ADD, params!["a"]).await })).await;
    assert!(at_the_end.as_ref().is_err_and(|error| error.is_unique("thing_pkey")), "{at_the_end:?}");
    assert_eq!(ids(&test.db).await.len(), 2);
}

#[tokio::test]
async fn it_runs_again_when_it_lost() {
    let test = open().await;
    let tries = Arc::new(AtomicU32::new(0));
    let outcome: Done = test
        .db
        .carry(tries.clone(), |tx, tries| {
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
        db.carry((), |tx, ()| {
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
            .carry((), |tx, ()| {
                Box::pin(async move {
                    add(tx, "waits").await?;
                    tokio::task::yield_now().await;
                    add(tx, "more").await
                })
            })
            .await;
        assert!(matches!(waits, Err(Error::Driver(_))), "{waits:?}");
    }
    let next = test.db.carry((), |tx, ()| Box::pin(add(tx, "next"))).await;
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
        let came_along = test.db.carry(along, |tx, (runs, id)| {
            runs.fetch_add(1, Relaxed);
            Box::pin(add(tx, id))
        });
        let single = test.db.exec(ADD, params![format!("{round} single")]);
        let talked = async { transact!(test.db, async |tx| add(tx, &format!("{round} talked")).await) };
        let fails = test.db.carry((), |tx, ()| {
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
        let work = db.carry(id.clone(), |tx, id| Box::pin(add(tx, id)));
        let in_time = tokio::time::timeout(wait, work).await;
        // Behind it, whether it was given up or not.
        test.db.exec(ADD, params![format!("{id}, behind")]).await.unwrap();
        let found = ids(&test.db).await;
        let done = (found.contains(&id), found.contains(&format!("{id}, sent")));
        assert_eq!(done.0, done.1, "{id}");
        assert!(done.0 || in_time.is_err(), "{id} was acknowledged");
    }
}
