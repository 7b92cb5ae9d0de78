//! The measuring bench: what Janua does, each figure beside the limit the machine set in the same run.
//!
//! A figure alone says little on a shared machine: it is half as high while a neighbour works. So the limit (the same
//! work with nothing of Janua around it) and Janua take turns, and what counts is the median of the ratios of the
//! rounds. The bench measures and does not judge: it ends well whether or not a goal was met.
//!
//! `cargo run --release -p bench -- all`
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]
#![expect(clippy::print_stdout, reason = "the figures are for the person at the terminal")]

mod bare;
mod directory;
mod entry;
mod figure;
mod health;
mod identity;
mod load;
mod memory;
mod process;
mod reads;
mod rounds;
mod servers;
mod start;
mod storm;
mod webhooks;
mod writes;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use figure::Figure;
use rounds::Rounds;
use servers::Janua;

/// The same as in `janua`, so that the bare server and the raw database calls allocate at the same price.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Janua beside the limits of the machine it runs on.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
    /// How long each measurement of a rate takes
    #[arg(long, global = true, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Write the figures to a file, as JSON
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The binary to measure [default: built as the bench was]
    #[arg(long, global = true, value_name = "PATH")]
    janua: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Scenario {
    /// Durable inserts through the database door
    Writes,
    /// Point reads through the database door
    Reads,
    /// Requests for /health
    Health,
    /// Signing in, being sent away, refreshing, asking who one is, and for our keys
    Identity,
    /// What five hundred sign-ins at once do to everybody else
    Storm,
    /// What 100,000 users in a directory cost, beside 1,000
    Directory,
    /// From the start of the process to the first answer
    Start,
    /// Resident memory of an idle server
    Memory,
    /// Events on their way to those who listen
    Webhooks,
    /// All of them, one after the other
    All,
    /// The bare server that Janua is measured against
    #[command(hide = true)]
    Bare(bare::Options),
    /// The load generator, in a process of its own so that it can have a core of its own
    #[command(hide = true)]
    Load(load::Options),
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let rounds = || Rounds::new(Duration::from_secs(cli.seconds));
    let janua = || Janua::at_or_built(cli.janua.clone());
    let figures = match &cli.scenario {
        Scenario::Bare(options) => return bare::run(options),
        Scenario::Load(options) => return load::run(options),
        Scenario::Writes => writes::measure(&rounds()?)?,
        Scenario::Reads => reads::measure(&rounds()?)?,
        Scenario::Health => health::measure(&rounds()?, &janua()?)?,
        Scenario::Identity => identity::measure(&rounds()?, &janua()?)?,
        Scenario::Storm => storm::measure(&rounds()?, &janua()?)?,
        Scenario::Directory => directory::measure(&rounds()?, &janua()?)?,
        Scenario::Start => start::measure(&rounds()?, &janua()?)?,
        Scenario::Memory => memory::measure(&rounds()?, &janua()?)?,
        Scenario::Webhooks => webhooks::measure(&rounds()?, &janua()?)?,
        Scenario::All => all(&rounds()?, &janua()?)?,
    };
    println!("{}", figure::table(&figures));
    for missed in figures.iter().filter(|figure| figure.is_met() == Some(false)) {
        println!("{}", missed.shortfall());
    }
    if let Some(path) = &cli.json {
        let all: Vec<_> = figures.iter().map(Figure::json).collect();
        let text = serde_json::to_string_pretty(&all)?;
        std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    }
    Ok(())
}

fn all(rounds: &Rounds, janua: &Janua) -> Result<Vec<Figure>> {
    let mut figures = writes::measure(rounds)?;
    figures.extend(reads::measure(rounds)?);
    figures.extend(health::measure(rounds, janua)?);
    figures.extend(identity::measure(rounds, janua)?);
    figures.extend(storm::measure(rounds, janua)?);
    figures.extend(directory::measure(rounds, janua)?);
    figures.extend(webhooks::measure(rounds, janua)?);
    figures.extend(start::measure(rounds, janua)?);
    figures.extend(memory::measure(rounds, janua)?);
    Ok(figures)
}
