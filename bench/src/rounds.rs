//! Taking turns: the limit, ours, the limit, ours, so that a noisy neighbour disturbs both alike.
use std::{
    ops::AddAssign,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;

use crate::process::{self, Core};

/// How often each side has its turn, unless a scenario says otherwise.
pub const ROUNDS: usize = 3;
/// The same where a turn can be short. What a neighbour of the machine does falls on one side or the other, and the median of
/// nine is not to be moved by it as easily.
pub const SHORT_ROUNDS: usize = 9;

/// How long a side works before it makes room for the other, where that can be done without ado: what a neighbour
/// does lasts for seconds, and then falls on both.
const SLICE: Duration = Duration::from_millis(500);

/// What every scenario is given: how long a turn is, and where on the disk it may work.
pub struct Rounds {
    pub turn: Duration,
    folder: TempDir,
}

/// The two sides of a measurement, a sample per round.
pub struct Sides<T> {
    pub limit: Vec<T>,
    pub ours: Vec<T>,
}

impl Rounds {
    pub fn new(turn: Duration) -> Result<Self> {
        // Beside the binary, hence on a disk: the system's temporary folder is often memory, which syncs for nothing.
        let binary = std::env::current_exe()?;
        let beside = binary.parent().context("the bench stands in no folder")?;
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(beside)?;
        Ok(Self { turn, folder })
    }

    /// A new folder, gone when the bench ends.
    pub fn folder(&self) -> Result<PathBuf> {
        let made = tempfile::Builder::new().disable_cleanup(true).tempdir_in(self.folder.path())?;
        Ok(made.path().to_owned())
    }
}

/// One side for one round: works for about as long as it is told, and answers what it did.
pub type Side<'a> = Box<dyn FnMut(Duration) -> Result<Tally> + 'a>;

/// Lets both sides have their turns in slices. They are made anew for each round, so that none of them wears out.
pub fn interleave<'a>(
    name: &str,
    turn: Duration,
    limit: impl FnMut() -> Result<Side<'a>>,
    ours: impl FnMut() -> Result<Side<'a>>,
) -> Result<Sides<Rate>> {
    take_turns(name, ROUNDS, turn, limit, ours)
}

/// The same in nine rounds, each a third as long.
pub fn interleave_short<'a>(
    name: &str,
    turn: Duration,
    limit: impl FnMut() -> Result<Side<'a>>,
    ours: impl FnMut() -> Result<Side<'a>>,
) -> Result<Sides<Rate>> {
    take_turns(name, SHORT_ROUNDS, turn / 3, limit, ours)
}

fn take_turns<'a>(
    name: &str,
    rounds: usize,
    turn: Duration,
    mut limit: impl FnMut() -> Result<Side<'a>>,
    mut ours: impl FnMut() -> Result<Side<'a>>,
) -> Result<Sides<Rate>> {
    let slices = u32::try_from(turn.as_millis() / SLICE.as_millis())?.max(1);
    let bar = bar(name, rounds * slices as usize);
    let mut sides = Sides { limit: vec![], ours: vec![] };
    for _ in 0..rounds {
        let (mut limit, mut ours) = (limit()?, ours()?);
        let (mut limit_did, mut we_did) = (Tally::default(), Tally::default());
        for _ in 0..slices {
            bar.set_message("the limit");
            limit_did += limit(SLICE)?;
            bar.inc(1);
            bar.set_message("ours");
            we_did += ours(SLICE)?;
            bar.inc(1);
        }
        sides.limit.push(limit_did.rate());
        sides.ours.push(we_did.rate());
    }
    bar.finish_and_clear();
    Ok(sides)
}

/// Lets both sides have their turns, each as a whole.
pub fn alternate<T>(
    name: &str,
    rounds: usize,
    mut limit: impl FnMut() -> Result<T>,
    mut ours: impl FnMut() -> Result<T>,
) -> Result<Sides<T>> {
    let bar = bar(name, rounds);
    let mut sides = Sides { limit: vec![], ours: vec![] };
    for _ in 0..rounds {
        bar.set_message("the limit");
        sides.limit.push(limit()?);
        bar.inc(1);
        bar.set_message("ours");
        sides.ours.push(ours()?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(sides)
}

impl<T> Sides<T> {
    /// One of the values that were measured at once.
    pub fn only(&self, pick: impl Fn(&T) -> f64) -> Sides<f64> {
        Sides { limit: self.limit.iter().map(&pick).collect(), ours: self.ours.iter().map(&pick).collect() }
    }
}

/// How often something was done, by the clock on the wall and by the time the processor spent on it.
pub struct Rate {
    pub per_second: f64,
    pub per_cpu_second: f64,
}

/// How often something was done and what it took, so that slices can be added up.
#[derive(Default)]
pub struct Tally {
    count: u64,
    took: Duration,
    cpu: Duration,
}

impl Tally {
    /// `work` answers how often it did it; `pid` is the process whose processor time counts.
    pub fn of(pid: u32, work: impl FnOnce() -> Result<u64>) -> Result<Self> {
        let (started, cpu_before) = (Instant::now(), process::cpu_time(pid)?);
        let count = work()?;
        Ok(Self { count, took: started.elapsed(), cpu: process::cpu_time(pid)?.saturating_sub(cpu_before) })
    }

    /// `work` is done by this process on a core, which is the server's where it is the server's limit: the neighbours of
    /// cores differ.
    pub fn here(core: Core, work: impl FnOnce() -> Result<u64>) -> Result<Self> {
        process::on(core, || Self::of(std::process::id(), work))
    }

    /// What was done in how long, where the processor's time is of no interest.
    pub fn done(count: u64, took: Duration) -> Self {
        Self { count, took, cpu: Duration::ZERO }
    }

    fn rate(&self) -> Rate {
        #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
        let count = self.count as f64;
        Rate { per_second: count / self.took.as_secs_f64(), per_cpu_second: count / self.cpu.as_secs_f64() }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.count += more.count;
        self.took += more.took;
        self.cpu += more.cpu;
    }
}

/// Shown on a terminal only.
pub fn bar(name: &str, rounds: usize) -> ProgressBar {
    let bar = ProgressBar::new(2 * rounds as u64).with_prefix(name.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{prefix:8} {bar:30} {pos}/{len} {msg}, {elapsed} gone") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
