//! Growth: the same requests among a thousand users, a hundred thousand, a million. What counts is by how much the
//! median, the slowest hundredth and the processor time of each grow against the smallest size; besides, how a server
//! starts on much data, what it holds after a minute of everything, and how much a user takes on the disk.
mod questions;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use self::questions::{Asked, Question};
use crate::{
    Outcome,
    figure::{Figure, Goal, Unit},
    ground::database,
    load::{self, Ask},
    process::{Core, Server, cpu_time},
    rounds::{self, ROUNDS, Rounds, SHORT_ROUNDS, Sides},
    seed::{Seeded, Wish},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const STARTS: usize = 10;

#[derive(clap::Args)]
pub struct Options {
    /// How many users, smallest first
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000")]
    sizes: Vec<u64>,
    /// Where the data folders are, or are made and kept [default: made anew, and gone at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// How long everything at once is asked before memory is looked at
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    mixed: u64,
    /// Only these questions, and nothing else: "scim one", say
    #[arg(long, value_name = "QUESTIONS", value_delimiter = ',', value_parser = Question::ALL.map(Question::name))]
    only: Vec<String>,
}

/// One size: a server on its folder, and what is asked of it.
struct Place {
    users: u64,
    folder: PathBuf,
    server: Server,
    asked: Asked,
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<Outcome> {
    ensure!(options.sizes.is_sorted() && options.sizes.len() >= 2, "--sizes: at least two, the smallest first");
    let root = options.data.clone().map_or_else(|| rounds.folder(), Ok)?;
    let mut places = vec![];
    for users in &options.sizes {
        places.push(settle(janua, &root.join(users.to_string()), *users)?);
    }
    // What was seeded is on the disk before anything is asked: the system would write it out meanwhile.
    rustix::fs::sync();
    let mut outcome = Outcome::default();
    for question in Question::ALL {
        if options.only.is_empty() || options.only.iter().any(|name| name == question.name()) {
            outcome.take(question.name(), ask(rounds, &places, question));
        }
    }
    if !options.only.is_empty() {
        return Ok(outcome);
    }
    outcome.take("disk", size(&places).map(|figure| vec![figure]));
    // The others make room.
    let largest = places.pop().context("no size")?;
    drop(places);
    outcome.take("mixed", mixed(&largest, Duration::from_secs(options.mixed)).map(|figure| vec![figure]));
    let (folder, users) = (largest.folder.clone(), largest.users);
    drop(largest);
    outcome.take("start", start(rounds, janua, &folder, users).map(|figure| vec![figure]));
    Ok(outcome)
}

fn settle(janua: &JanuaBinary, folder: &Path, users: u64) -> Result<Place> {
    let seeded = Seeded::ensure(janua, folder, &Wish::of_users(users))?;
    let server = janua.serve(folder, SERVER)?;
    let asked = Asked::prepare(server.address, &seeded)?;
    Ok(Place { users, folder: folder.to_owned(), server, asked })
}

/// What one question cost in one round.
#[derive(Clone, Copy)]
pub struct Cost {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpu_us: f64,
}

/// Asks all sizes in turn.
fn ask(rounds: &Rounds, places: &[Place], question: Question) -> Result<Vec<Figure>> {
    let slice = question.slice();
    let turn = rounds.turn.as_millis() * ROUNDS as u128 / SHORT_ROUNDS as u128;
    let slices = usize::try_from(turn / slice.as_millis())?.max(1) * question.turns();
    let bar = rounds::bar(question.name(), SHORT_ROUNDS * slices * places.len());
    let mut costs: Vec<Vec<Cost>> = vec![vec![]; places.len()];
    for place in places {
        let ask = place.asked.question(place.server.address, question)?;
        load::timed(place.server.address, Duration::from_millis(500), GENERATOR, &ask, question.connections())?;
    }
    for _ in 0..SHORT_ROUNDS {
        let mut heard: Vec<(Vec<u32>, Duration)> = vec![(vec![], Duration::ZERO); places.len()];
        for _ in 0..slices {
            for (place, (micros, cpu)) in places.iter().zip(&mut heard) {
                bar.set_message(format!("{} users", place.users));
                let ask = place.asked.question(place.server.address, question)?;
                let before = cpu_time(place.server.pid())?;
                let connections = question.connections();
                let more = load::timed(place.server.address, slice, GENERATOR, &ask, connections)?;
                *cpu += cpu_time(place.server.pid())?.saturating_sub(before);
                micros.extend(more.micros);
                bar.inc(2);
            }
        }
        for (mut part, costs) in heard.into_iter().zip(&mut costs) {
            costs.push(cost(&mut part.0, part.1));
        }
    }
    bar.finish_and_clear();
    let smallest = &costs[0];
    let figures = places.iter().zip(&costs).skip(1).flat_map(|(place, costs)| {
        let figure = |what: &str, unit, pick: fn(&Cost) -> f64, goal| {
            let samples = Sides { limit: smallest.clone(), ours: costs.clone() }.only(pick);
            let (many, few) = (thousands(place.users), thousands(places[0].users));
            let what: &'static str = format!("{what} among {many} users; among {few}").leak();
            Figure { scenario: question.name(), what, unit, samples, goal: Some(goal) }
        };
        let goal = question.goal();
        let of_processor = if matches!(goal, Goal::Below(_)) { Goal::Below(10_000.0) } else { goal };
        [
            figure("p50", Unit::Milliseconds, |cost| cost.p50_ms, goal),
            figure("p99", Unit::Milliseconds, |cost| cost.p99_ms, goal),
            figure("processor time", Unit::Microseconds, |cost| cost.cpu_us, of_processor),
        ]
    });
    Ok(figures.collect())
}

pub fn cost(micros: &mut [u32], cpu: Duration) -> Cost {
    micros.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
    let count = micros.len().max(1) as f64;
    Cost {
        p50_ms: f64::from(percentile(micros, 50)) / 1e3,
        p99_ms: f64::from(percentile(micros, 99)) / 1e3,
        cpu_us: cpu.as_secs_f64() * 1e6 / count,
    }
}

/// Of what is sorted: the value that so many in a hundred do not pass.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(0)
}

/// What a user takes on the disk, with everything that hangs on them.
fn size(places: &[Place]) -> Result<Figure> {
    let each = |place: &Place| -> Result<f64> {
        let file = database(&place.folder);
        // What is in the log is written into the file sooner or later, mostly over what was there.
        #[expect(clippy::cast_precision_loss, reason = "no disk holds 2^53 bytes")]
        Ok(fs::metadata(file)?.len() as f64 / place.users as f64)
    };
    let (first, last) = (places.first().context("no size")?, places.last().context("no size")?);
    let (few, many) = (thousands(first.users), thousands(last.users));
    let what: &'static str = format!("a user on the disk among {many} users; among {few}").leak();
    let samples = Sides { limit: vec![each(first)?], ours: vec![each(last)?] };
    Ok(Figure { scenario: "disk", what, unit: Unit::Bytes, samples, goal: None })
}

/// What the server holds when it was asked everything for a while; beside it, what it held before.
fn mixed(place: &Place, length: Duration) -> Result<Figure> {
    let before = place.server.resident_mb()?;
    let bar = rounds::bar("mixed", 1);
    bar.set_message("everything at once");
    let ask = Ask::Many(place.asked.everything());
    load::with(place.server.address, length, GENERATOR, &ask)?;
    bar.finish_and_clear();
    let samples = Sides { limit: vec![before], ours: vec![place.server.resident_mb()?] };
    let what: &'static str =
        format!("resident after {} s of everything among {}; before", length.as_secs(), thousands(place.users))
            .leak();
    Ok(Figure { scenario: "mixed", what, unit: Unit::Megabytes, samples, goal: Some(Goal::Below(64.0)) })
}

/// From the start of the process to the first answer.
fn start(rounds: &Rounds, janua: &JanuaBinary, folder: &Path, users: u64) -> Result<Figure> {
    let empty = rounds.folder()?;
    // The first start makes the folder's contents, and is not counted; the other one reads the log of what went before.
    for folder in [&empty, &folder.to_owned()] {
        drop(janua.serve(folder, Core::Any)?);
    }
    let took = |server: &Server| server.answered_after.as_secs_f64() * 1e3;
    let samples = rounds::alternate(
        "start",
        STARTS,
        || Ok(took(&janua.serve(&empty, Core::Any)?)),
        || Ok(took(&janua.serve(folder, Core::Any)?)),
    )?;
    let what: &'static str = format!("start to first answer with {} users; with none", thousands(users)).leak();
    let goal = Some(Goal::RatioAtMost(1.5));
    Ok(Figure { scenario: "start", what, unit: Unit::Milliseconds, samples, goal })
}

/// `1000000` as `1,000,000`.
pub fn thousands(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a million")]
    let number = number as f64;
    crate::figure::grouped(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50, 99));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 99)), (7, 7));
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!(percentile(&[1, 2, 3], 50), 2);
    }

    #[test]
    fn a_cost_is_by_request() {
        let cost = cost(&mut [3000, 1000, 2000, 4000], Duration::from_millis(8));
        assert!((cost.p50_ms - 2.0).abs() < 1e-9 && (cost.p99_ms - 4.0).abs() < 1e-9, "sorted first");
        assert!((cost.cpu_us - 2000.0).abs() < 1e-9);
    }
}
