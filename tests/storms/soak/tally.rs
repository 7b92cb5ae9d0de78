//! What was asked, what went wrong, and the summary.
use std::{collections::BTreeMap, time::Duration};

use super::{Area, faults::Fault, ledger::Ledger};

#[derive(Default)]
struct Asked {
    /// All, and those with a good answer.
    calm: [u64; 2],
    /// The same while a fault was under way that may concern them.
    faulty: [u64; 2],
    slowest: Duration,
}

#[derive(Default)]
pub struct Tally {
    areas: BTreeMap<Area, Asked>,
    /// By fault: how often, and the longest time until all was well.
    recoveries: BTreeMap<&'static str, (u64, Duration)>,
    /// Requests that were carried out, or not, and whose answer died with a node.
    pub answers_lost: BTreeMap<Area, u64>,
    pub wrong: Vec<String>,
    pub lost: Vec<String>,
    /// By what it is: how many came more than once, as they may.
    pub again: BTreeMap<&'static str, usize>,
}

impl Tally {
    pub fn asked(&mut self, area: Area, excused: bool, is_good: bool, took: Duration) {
        let asked = self.areas.entry(area).or_default();
        let counts = if excused { &mut asked.faulty } else { &mut asked.calm };
        counts[0] += 1;
        counts[1] += u64::from(is_good);
        if !excused {
            asked.slowest = asked.slowest.max(took);
        }
    }

    pub fn answers_lost(&self, area: Area) -> u64 {
        self.answers_lost.get(&area).copied().unwrap_or_default()
    }

    pub fn recovered(&mut self, fault: Fault, took: Duration) {
        let (times, longest) = self.recoveries.entry(fault.name()).or_default();
        *times += 1;
        *longest = took.max(*longest);
    }

    pub fn is_well(&self) -> bool {
        self.wrong.is_empty() && self.lost.is_empty()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of requests")]
    pub fn print(&self, seed: u64, loaded: Duration, drained: Duration, ledger: &Ledger) {
        let share = |[all, good]: [u64; 2]| {
            if all == 0 { "-".to_owned() } else { format!("{:.2} %", 100.0 * good as f64 / all as f64) }
        };
        println!("\nseed {seed}: {loaded:.0?} of load, drained in {drained:.1?}");
        println!("area       requests  available  under a fault  available  slowest");
        let mut all = Asked::default();
        for (area, asked) in &self.areas {
            print_row(&format!("{area:?}"), asked, &share);
            for place in 0..2 {
                all.calm[place] += asked.calm[place];
                all.faulty[place] += asked.faulty[place];
            }
            all.slowest = all.slowest.max(asked.slowest);
        }
        print_row("all", &all, &share);
        for (fault, (times, longest)) in &self.recoveries {
            println!("{fault}: {times}, well again after {longest:.1?} at most");
        }
        println!("acknowledged: {ledger}");
        let again: Vec<_> = self.again.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("came again, as they may: {}", again.join(", "));
        println!("answers that died with a node: {}", self.answers_lost.values().sum::<u64>());
        println!("lost: {}, wrong: {}", self.lost.len(), self.wrong.len());
        for line in self.lost.iter().chain(&self.wrong).take(40) {
            println!("  {line}");
        }
    }
}

fn print_row(name: &str, asked: &Asked, share: &dyn Fn([u64; 2]) -> String) {
    let (calm, faulty) = (asked.calm, asked.faulty);
    println!(
        "{name:<9} {:>9} {:>10} {:>14} {:>10} {:>8.0?}",
        calm[0],
        share(calm),
        faulty[0],
        share(faulty),
        asked.slowest
    );
}
