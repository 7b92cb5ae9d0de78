//! The measuring bench: what Janua does, each figure beside the limit the machine set in the same run.
//!
//! A figure alone says little on a shared machine: it is half as high while a neighbour works. So the limit (the same
//! work with nothing of Janua around it) and Janua take turns, and what counts is the median of the ratios of the
//! rounds. The bench measures and does not judge: it ends well whether or not a goal was met.
//!
//! `cargo run --profile dist -p bench -- all`
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]
#![expect(clippy::print_stdout, reason = "the figures are for the person at the terminal")]

mod agents_growth;
mod bare;
mod chart;
mod check;
mod client;
mod connections;
mod directory;
mod edge;
mod entry;
mod figure;
mod ground;
mod growth;
mod handshakes;
mod health;
mod identity;
mod insights_growth;
mod load;
mod machines;
mod mail;
mod memory;
mod nodes;
mod payments;
mod peer;
mod poster;
mod process;
mod profile;
mod reads;
mod rounds;
mod rows;
mod scale;
pub mod seed;
mod servers;
mod sizes;
mod skills_growth;
mod start;
mod storage;
mod storm;
mod usage;
mod usage_growth;
mod webhooks;
mod writes;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use figure::Figure;
use rounds::Rounds;
pub use servers::JanuaBinary;

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
    /// Draw the figures, as SVG
    #[arg(long, global = true, value_name = "FILE")]
    chart: Option<PathBuf>,
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
    /// What requests write: changes with their line in the audit log, and signing up
    Rows,
    /// From the start of the process to the first answer
    Start,
    /// Resident memory of an idle server
    Memory,
    /// Resident memory with ten thousand connections open
    Open,
    /// Events on their way to those who listen
    Webhooks,
    /// Usage events, alone and in batches, and what a quota costs
    Usage,
    /// Usage among many events, beside few
    UsageGrowth(usage_growth::Options),
    /// Lists and searches among many skills, beside a thousand
    SkillsGrowth(skills_growth::Options),
    /// Lookups and lists among many agents, beside a thousand
    AgentsGrowth(agents_growth::Options),
    /// Analytics of many users and events, beside a thousand users
    InsightsGrowth(insights_growth::Options),
    /// Events of the payment processor, accepted
    Payments,
    /// Mail of apps, and the platform's own beside it
    Mail,
    /// Files of deployed sites: small, unchanged, large, of ten thousand sites; and deploying them
    Edge,
    /// Files of an app's users: upload URLs, finished uploads, lists
    Storage,
    /// TLS handshakes with the edge; nginx
    Handshakes,
    /// Agents and other machines: tokens, lookups, and what they spend
    Machines,
    /// All of the above, one after the other
    All,
    /// Those that are over soon and vary little: what `check` looks at
    Quick,
    /// Run the quick ones, and fail if a ratio became worse by more than a fifth
    Check {
        /// What --json wrote before
        #[arg(long, value_name = "FILE", default_value = "bench/figures.json")]
        against: PathBuf,
    },
    /// The same requests among a thousand users, a hundred thousand, a million
    Growth(growth::Options),
    /// Fill an empty folder with users, organizations, webhooks and what happened in a year
    Seed {
        folder: PathBuf,
        #[command(flatten)]
        wish: seed::Wish,
    },
    /// Ask other servers what a small TOML file says, and set them beside each other
    Compare(peer::Options),
    /// What acts cost on PostgreSQL, and one and two nodes at it under load beside the model of `scale`
    Nodes,
    /// What so many users need, computed from what acts cost
    Scale(scale::Options),
    /// Where the server's time goes, by `perf`
    Profile(profile::Options),
    /// The bare server that Janua is measured against
    #[command(hide = true)]
    Bare(bare::Options),
    /// The load generator, in a process of its own so that it can have a core of its own
    #[command(hide = true)]
    Load(load::Options),
    /// The bare HTTP client, in a process of its own for the same reason
    #[command(hide = true)]
    Post(poster::Options),
}

/// Does what the command line says.
pub fn run() -> Result<()> {
    let cli = Cli::parse();
    let rounds = || Rounds::new(Duration::from_secs(cli.seconds));
    let janua = || JanuaBinary::at_or_built(cli.janua.clone());
    let one = |measure: Measure| measure(&rounds()?, &janua()?).map(Outcome::from);
    let outcome = match &cli.scenario {
        Scenario::Bare(options) => return bare::run(options),
        Scenario::Load(options) => return load::run(options),
        Scenario::Post(options) => return poster::run(options),
        Scenario::Profile(options) => return profile::take(&rounds()?, &janua()?, options),
        Scenario::Scale(options) => {
            scale::run(options);
            return Ok(());
        }
        Scenario::Nodes => return nodes::measure(&rounds()?, &janua()?, cli.json.as_deref()),
        Scenario::Check { against } => return check(&rounds()?, &janua()?, &cli, against),
        Scenario::Seed { folder, wish } => {
            seed::fill(&janua()?, folder, wish)?;
            println!("{} has {} users; they sign in with: {}", folder.display(), wish.users, identity::PASSWORD);
            println!("the first is {}, the owner {}", seed::User(1).email(), identity::EMAIL);
            return Ok(());
        }
        Scenario::Compare(options) => peer::compare(&rounds()?, options)?.into(),
        Scenario::Growth(options) => growth::measure(&rounds()?, &janua()?, options)?,
        Scenario::Writes => writes::measure(&rounds()?)?.into(),
        Scenario::Reads => reads::measure(&rounds()?)?.into(),
        Scenario::Health => one(health::measure)?,
        Scenario::Identity => one(identity::measure)?,
        Scenario::Rows => one(rows::measure)?,
        Scenario::Storm => one(storm::measure)?,
        Scenario::Directory => one(directory::measure)?,
        Scenario::Start => one(start::measure)?,
        Scenario::Memory => one(memory::measure)?,
        Scenario::Open => one(connections::measure)?,
        Scenario::Webhooks => one(webhooks::measure)?,
        Scenario::Usage => one(usage::measure)?,
        Scenario::UsageGrowth(options) => usage_growth::measure(&rounds()?, &janua()?, options)?.into(),
        Scenario::SkillsGrowth(options) => skills_growth::measure(&rounds()?, &janua()?, options)?.into(),
        Scenario::AgentsGrowth(options) => agents_growth::measure(&rounds()?, &janua()?, options)?.into(),
        Scenario::InsightsGrowth(options) => insights_growth::measure(&rounds()?, &janua()?, options)?.into(),
        Scenario::Payments => one(payments::measure)?,
        Scenario::Mail => one(mail::measure)?,
        Scenario::Edge => one(edge::measure)?,
        Scenario::Storage => one(storage::measure)?,
        Scenario::Handshakes => one(handshakes::measure)?,
        Scenario::Machines => one(machines::measure)?,
        Scenario::Quick => each(&rounds()?, &janua()?, &QUICK),
        Scenario::All => {
            let (rounds, janua) = (rounds()?, janua()?);
            let mut all = each(&rounds, &janua, &QUICK);
            all.add(each(&rounds, &janua, SLOW));
            all
        }
    };
    show(&cli, &outcome.figures)?;
    let failed = &outcome.failed;
    ensure!(failed.is_empty(), "not everything could be measured: {}", failed.join("; "));
    Ok(())
}

type Measure = fn(&Rounds, &JanuaBinary) -> Result<Vec<Figure>>;

const QUICK: [(&str, Measure); 7] = [
    ("writes", |rounds, _| writes::measure(rounds)),
    ("reads", |rounds, _| reads::measure(rounds)),
    ("health", health::measure),
    ("identity", identity::measure),
    ("rows", rows::measure),
    ("start", start::measure),
    ("memory", memory::measure),
];
const SLOW: &[(&str, Measure)] = &[
    ("storm", storm::measure),
    ("directory", directory::measure),
    ("webhooks", webhooks::measure),
    ("usage", usage::measure),
    ("payments", payments::measure),
    ("mail", mail::measure),
    ("edge", edge::measure),
    ("storage", storage::measure),
    ("handshakes", handshakes::measure),
    ("machines", machines::measure),
    ("open", connections::measure),
];

/// What was measured, and what could not be. One that fails does not take the others along.
#[derive(Default)]
struct Outcome {
    figures: Vec<Figure>,
    failed: Vec<String>,
}

impl From<Vec<Figure>> for Outcome {
    fn from(figures: Vec<Figure>) -> Self {
        Self { figures, failed: vec![] }
    }
}

impl Outcome {
    fn add(&mut self, more: Self) {
        self.figures.extend(more.figures);
        self.failed.extend(more.failed);
    }

    fn take(&mut self, name: &str, measured: Result<Vec<Figure>>) {
        match measured {
            Ok(figures) => self.figures.extend(figures),
            Err(error) => {
                println!("{name} failed: {error:#}");
                self.failed.push(name.to_owned());
            }
        }
    }
}

/// One after the other.
fn each(rounds: &Rounds, janua: &JanuaBinary, list: &[(&str, Measure)]) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, measure) in list {
        outcome.take(name, measure(rounds, janua));
    }
    outcome
}

fn show(cli: &Cli, figures: &[Figure]) -> Result<()> {
    println!("{}", figure::table(figures));
    for missed in figures.iter().filter(|figure| figure.is_met() == Some(false)) {
        println!("{}", missed.shortfall());
    }
    if let Some(path) = &cli.json {
        let all: Vec<_> = figures.iter().map(Figure::json).collect();
        let text = serde_json::to_string_pretty(&all)? + "\n";
        std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    }
    if let Some(path) = &cli.chart {
        std::fs::write(path, chart::svg(figures)).with_context(|| format!("--chart {}", path.display()))?;
    }
    Ok(())
}

/// A neighbour can spoil a run: what is worse is measured once more, and counts by its better time.
fn check(rounds: &Rounds, janua: &JanuaBinary, cli: &Cli, against: &Path) -> Result<()> {
    let stored = check::read(against)?;
    let mut figures = each(rounds, janua, &QUICK).figures;
    let mut verdicts = check::compare(&stored, &figures);
    if !verdicts.iter().all(check::Verdict::is_kept) {
        println!("{}measuring once more", check::report(&verdicts));
        figures.extend(each(rounds, janua, &QUICK).figures);
        verdicts = check::compare(&stored, &figures);
    }
    show(cli, &figures)?;
    println!("{}", check::report(&verdicts));
    let worse = verdicts.iter().filter(|verdict| !verdict.is_kept()).count();
    ensure!(
        worse == 0,
        "{worse} of {} ratios are worse than in {} by more than a fifth",
        stored.len(),
        against.display()
    );
    Ok(())
}
