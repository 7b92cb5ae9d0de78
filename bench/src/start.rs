//! From the start of the process to its first answer, on a data folder that exists; beside it the bare server, which
//! has nothing to open.
//!
//! The servers before were killed, not stopped, so this is the start after a crash: SQLite reads the log it finds.
use anyhow::Result;

use crate::{
    figure::{Figure, Goal, Unit},
    process::{Core, Server},
    rounds::{self, Rounds},
    servers::{self, JanuaBinary},
};

const STARTS: usize = 10;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    // The first start makes the folder's contents, and is not counted.
    let health = janua.serve(&folder, Core::Any)?.health.clone();
    let took = |server: &Server| server.answered_after.as_secs_f64() * 1e3;
    let samples = rounds::alternate(
        "start",
        STARTS,
        || Ok(took(&servers::bare(&health, &folder, Core::Any)?)),
        || Ok(took(&janua.serve(&folder, Core::Any)?)),
    )?;
    let what = "start to first answer; bare axum";
    Ok(vec![Figure { scenario: "start", what, unit: Unit::Milliseconds, samples, goal: Some(Goal::Below(100.0)) }])
}
