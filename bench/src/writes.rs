//! Durable inserts: 32 callers at the door, who share commits, against raw SQLite that commits every hundredth row.
//!
//! The limit has it easier on purpose: it knows its hundred rows beforehand, while nobody at the door is told "done"
//! before his row is on the disk, so at most 32 rows can share a commit. How much of the gap that explains is what
//! the last figure shows, where the limit commits every 32nd row.
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Instant,
};

use anyhow::Result;
use db::params;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    entry::{self, BODY, CALLERS, INSERT, KIND},
    figure::{Figure, Goal, Unit},
    rounds::{self, Rounds, Side, Tally},
};

const ROWS_PER_COMMIT: usize = 100;

pub fn measure(rounds: &Rounds) -> Result<Vec<Figure>> {
    let runtime = Runtime::new()?;
    let against = |rows_per_commit| {
        let limit = || through_nothing(rounds, rows_per_commit);
        rounds::interleave("writes", rounds.turn, limit, || through_the_door(rounds, &runtime))
    };
    let (hundred, as_many_as_callers) = (against(ROWS_PER_COMMIT)?, against(CALLERS)?);
    let figure = |what, unit, samples, goal| Figure { scenario: "writes", what, unit, samples, goal };
    Ok(vec![
        figure(
            "inserts of 32 callers; raw, 100 a commit",
            Unit::PerSecond,
            hundred.only(|rate| rate.per_second),
            Some(Goal::Ratio(0.5)),
        ),
        figure("the same by processor time", Unit::PerCpuSecond, hundred.only(|rate| rate.per_cpu_second), None),
        figure(
            "inserts of 32 callers; raw, 32 a commit",
            Unit::PerSecond,
            as_many_as_callers.only(|rate| rate.per_second),
            None,
        ),
    ])
}

fn through_nothing(rounds: &Rounds, rows_per_commit: usize) -> Result<Side<'static>> {
    let folder = tempfile::tempdir_in(rounds.folder()?)?;
    let mut connection = entry::raw(&folder.path().join("raw.db"))?;
    let mut last = 0;
    Ok(Box::new(move |slice| {
        // Taken along, and gone with the side.
        let _ = &folder;
        Tally::of(std::process::id(), || {
            let (first, until) = (last, Instant::now() + slice);
            while Instant::now() < until {
                let tx = connection.transaction()?;
                let mut insert = tx.prepare_cached(INSERT)?;
                for _ in 0..rows_per_commit {
                    last += 1;
                    insert.execute((entry::id(last), KIND, BODY, last))?;
                }
                drop(insert);
                tx.commit()?;
            }
            Ok(last.abs_diff(first))
        })
    }))
}

fn through_the_door<'a>(rounds: &Rounds, runtime: &'a Runtime) -> Result<Side<'a>> {
    let folder = tempfile::tempdir_in(rounds.folder()?)?;
    let db = runtime.block_on(entry::door(&folder.path().join("door.db")))?;
    let last = Arc::new(AtomicI64::new(0));
    Ok(Box::new(move |slice| {
        let _ = &folder;
        let insert_all = async {
            let (first, until) = (last.load(Relaxed), Instant::now() + slice);
            let mut callers = JoinSet::new();
            for _ in 0..CALLERS {
                let (db, last) = (db.clone(), last.clone());
                callers.spawn(async move {
                    while Instant::now() < until {
                        let number = last.fetch_add(1, Relaxed);
                        db.exec(INSERT, params![entry::id(number), KIND, BODY, number]).await?;
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(caller) = callers.join_next().await {
                caller??;
            }
            Ok(last.load(Relaxed).abs_diff(first))
        };
        Tally::of(std::process::id(), || runtime.block_on(insert_all))
    }))
}
