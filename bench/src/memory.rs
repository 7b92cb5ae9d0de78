//! Resident memory of a server that has just started and has nothing to do; beside it the bare server's.
use std::{thread, time::Duration};

use anyhow::Result;

use crate::{
    figure::{Figure, Goal, Unit},
    process::{Core, Server},
    rounds::{self, ROUNDS, Rounds},
    servers::{self, JanuaBinary},
};

/// By then what the start needed is done with, and the recurring work has run once.
const SETTLING: Duration = Duration::from_secs(3);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let health = janua.serve(&folder, Core::Any)?.health.clone();
    let settled = |server: &Server| {
        thread::sleep(SETTLING);
        server.resident_mb()
    };
    let samples = rounds::alternate(
        "memory",
        ROUNDS,
        || settled(&servers::bare(&health, &folder, Core::Any)?),
        || settled(&janua.serve(&folder, Core::Any)?),
    )?;
    let what = "resident, idle 3 s after start; bare axum";
    Ok(vec![Figure { scenario: "memory", what, unit: Unit::Megabytes, samples, goal: Some(Goal::Below(30.0)) }])
}
