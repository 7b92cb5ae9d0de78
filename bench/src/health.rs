//! GET /health: the whole pipeline around a handler that does next to nothing, against a bare axum handler that says
//! the same.
//!
//! The server has one core and the generator the other. The generator is often the slower of the two, and then both
//! servers answer as many requests a second: what is judged is how many a second of the server's processor time buys.
use std::time::Duration;

use anyhow::Result;

use crate::{
    figure::{Figure, Goal, Unit},
    load,
    process::{Core, Server},
    rounds::{self, Rounds, Side, Tally},
    servers::{self, JanuaBinary},
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
/// Allocators and buffers find their size before anything is counted.
const WARM_UP: Duration = Duration::from_millis(500);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let ours = janua.serve(&folder, SERVER)?;
    let limit = servers::bare(&ours.health, &folder, SERVER)?;
    for server in [&limit, &ours] {
        load::against(server.address, WARM_UP, GENERATOR)?;
    }
    let sides = rounds::interleave("health", rounds.turn, || Ok(asked(&limit)), || Ok(asked(&ours)))?;
    let figure = |what, unit, samples, goal| Figure { scenario: "health", what, unit, samples, goal };
    Ok(vec![
        figure(
            "GET /health by processor time; bare axum",
            Unit::PerCpuSecond,
            sides.only(|rate| rate.per_cpu_second),
            Some(Goal::Ratio(0.85)),
        ),
        figure("the same by the clock", Unit::PerSecond, sides.only(|rate| rate.per_second), None),
    ])
}

fn asked(server: &Server) -> Side<'_> {
    Box::new(|slice| Tally::of(server.pid(), || load::against(server.address, slice, GENERATOR)))
}
