//! Durable inserts: 32 callers at the door, who share commits, against raw SQLite that commits every hundredth row.
//!
//! The limit has it easier on purpose: it knows its hundred rows beforehand, while nobody at the door is told "done"
//! before his row is on the disk, so at most 32 rows can share a commit. How much of the gap that explains is what the
//! second figure shows, where the limit commits every 32nd row.
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use kernel::params;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    entry::{self, BODY, CALLERS, INSERT, KIND},
    figure::{Figure, Goal, Unit},
    rounds::{self, ROUNDS, Rate, Rounds},
};

const ROWS_PER_COMMIT: usize = 100;

pub fn measure(rounds: &Rounds) -> Result<Vec<Figure>> {
    let runtime = Runtime::new()?;
    let against = |rows_per_commit| {
        let limit = || through_nothing(&rounds.folder()?.join("raw.db"), rounds.turn, rows_per_commit);
        let ours = || through_the_door(&rounds.folder()?.join("door.db"), rounds.turn, &runtime);
        rounds::alternate("writes", ROUNDS, limit, ours)
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

fn through_nothing(path: &Path, turn: Duration, rows_per_commit: usize) -> Result<Rate> {
    let mut connection = entry::raw(path)?;
    Rate::of(std::process::id(), || {
        let until = Instant::now() + turn;
        let mut number = 0;
        while Instant::now() < until {
            let tx = connection.transaction()?;
            let mut insert = tx.prepare_cached(INSERT)?;
            for _ in 0..rows_per_commit {
                number += 1;
                insert.execute((entry::id(number), KIND, BODY, number))?;
            }
            drop(insert);
            tx.commit()?;
        }
        Ok(number.unsigned_abs())
    })
}

fn through_the_door(path: &Path, turn: Duration, runtime: &Runtime) -> Result<Rate> {
    let db = runtime.block_on(entry::door(path))?;
    let count = async {
        let until = Instant::now() + turn;
        let last = Arc::new(AtomicI64::new(0));
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
        Ok(last.load(Relaxed).unsigned_abs())
    };
    Rate::of(std::process::id(), || runtime.block_on(count))
}
