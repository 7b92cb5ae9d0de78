//! Point reads by primary key: 32 callers at the door against one thread that holds the prepared statement in its hand.
//!
//! What makes it fair: the same file, the same keys in the same scattered order, and on both sides a row whose values
//! are its own. What does not, and is shown instead: the door crosses threads for every read, and may use every core
//! for it, where the limit has one. So the total is judged, and the second figure says what each read cost in processor
//! time, where no core hides behind another.
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use kernel::{db::Db, params};
use rusqlite::{Connection, Statement};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    entry::{self, BODY, CALLERS, Entry, INSERT, KIND, SELECT},
    figure::{Figure, Goal, Unit},
    rounds::{self, ROUNDS, Rate, Rounds},
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
    let mut statement = connection.prepare(SELECT)?;
    let sides = rounds::alternate(
        "reads",
        ROUNDS,
        || through_nothing(&mut statement, rounds.turn),
        || through_the_door(&db, rounds.turn, &runtime),
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

fn key(turn: i64) -> i64 {
    turn.wrapping_mul(STRIDE).rem_euclid(ROWS)
}

fn through_nothing(statement: &mut Statement<'_>, turn: Duration) -> Result<Rate> {
    Rate::of(std::process::id(), || {
        let until = Instant::now() + turn;
        let mut count = 0;
        while Instant::now() < until {
            let wanted = key(count);
            let found = statement.query_row([entry::id(wanted)], |row| {
                Ok(Entry { kind: row.get(0)?, body: row.get(1)?, made_at: row.get(2)? })
            })?;
            ensure!(found.is(wanted), "row {wanted} is another one");
            count += 1;
        }
        Ok(count.unsigned_abs())
    })
}

fn through_the_door(db: &Db, turn: Duration, runtime: &Runtime) -> Result<Rate> {
    let count = async {
        let until = Instant::now() + turn;
        let count = Arc::new(AtomicI64::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (db, count) = (db.clone(), count.clone());
            callers.spawn(async move {
                while Instant::now() < until {
                    let wanted = key(count.fetch_add(1, Relaxed));
                    let found: Entry = db.one(SELECT, params![entry::id(wanted)]).await?;
                    ensure!(found.is(wanted), "row {wanted} is another one");
                }
                anyhow::Ok(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(count.load(Relaxed).unsigned_abs())
    };
    Rate::of(std::process::id(), || runtime.block_on(count))
}
