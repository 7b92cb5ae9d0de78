//! Point reads by primary key: 32 callers at the door against one thread with the prepared statement in its hand.
//!
//! What makes it fair: the same file, the same keys in the same scattered order, and on both sides a row whose values
//! are its own. What does not, and is shown instead: the door crosses threads for every read, and may use every core
//! for it, where the limit has one. So the total is judged, and the second figure says what each read cost in
//! processor time, where no core hides behind another.
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use db::{Db, params};
use rusqlite::Connection;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    entry::{self, BODY, CALLERS, Entry, INSERT, KIND, SELECT},
    figure::{Figure, Goal, Unit},
    rounds::{self, Rounds, Tally},
};

const ROWS: i64 = 100_000;
/// A prime that is no divisor of [`ROWS`]: its multiples visit every row once before they come back.
const STRIDE: i64 = 61_027;

pub fn measure(rounds: &Rounds) -> Result<Vec<Figure>> {
    let path = rounds.folder()?.join("reads.db");
    let mut connection = entry::raw(&path)?;
    seed(&mut connection)?;
    let runtime = Runtime::new()?;
    let db = runtime.block_on(entry::door(&path))?;
    let sides = rounds::interleave(
        "reads",
        rounds.turn,
        || {
            let mut statement = connection.prepare(SELECT)?;
            Ok(Box::new(move |slice| through_nothing(&mut statement, slice)))
        },
        || Ok(Box::new(|slice| through_the_door(&db, &runtime, slice))),
    )?;
    let figure = |what, unit, samples, goal| Figure { scenario: "reads", what, unit, samples, goal };
    Ok(vec![
        figure(
            "reads of 32 callers; raw, one thread",
            Unit::PerSecond,
            sides.only(|rate| rate.per_second),
            Some(Goal::Ratio(0.5)),
        ),
        figure("the same by processor time", Unit::PerCpuSecond, sides.only(|rate| rate.per_cpu_second), None),
    ])
}

fn seed(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction()?;
    let mut insert = tx.prepare(INSERT)?;
    for number in 0..ROWS {
        insert.execute((entry::id(number), KIND, BODY, number))?;
    }
    drop(insert);
    tx.commit()?;
    // Read from the file itself and not out of the log, as most rows of a running server are.
    connection.pragma_update(None, "wal_checkpoint", "TRUNCATE")?;
    Ok(())
}

/// Which row is read at the `turn`th read.
fn key(turn: i64) -> i64 {
    turn.wrapping_mul(STRIDE).rem_euclid(ROWS)
}

fn through_nothing(statement: &mut rusqlite::Statement<'_>, slice: Duration) -> Result<Tally> {
    Tally::of(std::process::id(), || {
        let until = Instant::now() + slice;
        let mut turn = 0;
        while Instant::now() < until {
            let wanted = key(turn);
            let found = statement.query_row([entry::id(wanted)], |row| {
                Ok(Entry { kind: row.get(0)?, body: row.get(1)?, made_at: row.get(2)? })
            })?;
            ensure!(found.is(wanted), "row {wanted} is another one");
            turn += 1;
        }
        Ok(turn.unsigned_abs())
    })
}

fn through_the_door(db: &Db, runtime: &Runtime, slice: Duration) -> Result<Tally> {
    let read_all = async {
        let until = Instant::now() + slice;
        let turn = Arc::new(AtomicI64::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (db, turn) = (db.clone(), turn.clone());
            callers.spawn(async move {
                while Instant::now() < until {
                    let wanted = key(turn.fetch_add(1, Relaxed));
                    let found: Entry = db.one(SELECT, params![entry::id(wanted)]).await?;
                    ensure!(found.is(wanted), "row {wanted} is another one");
                }
                anyhow::Ok(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(turn.load(Relaxed).unsigned_abs())
    };
    Tally::of(std::process::id(), || runtime.block_on(read_all))
}
