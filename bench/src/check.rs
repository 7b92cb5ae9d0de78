//! Whether anything became worse: the ratios of a run beside those that were stored.
use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::figure::Figure;

/// A fifth.
const TOLERATED: f64 = 0.2;

/// What is read of a stored figure. The file is what `--json` writes; of it these fields count.
#[derive(Deserialize)]
pub struct Stored {
    scenario: String,
    what: String,
    ratio: f64,
    /// `higher` or `lower`.
    better: Better,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Better {
    Higher,
    Lower,
}

pub fn read(path: &Path) -> Result<Vec<Stored>> {
    let text = fs::read(path).with_context(|| {
        format!("there is no {}; `bench quick --json {}` makes it", path.display(), path.display())
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not what --json writes", path.display()))
}

/// What came of a figure that was stored.
pub struct Verdict {
    pub scenario: String,
    pub what: String,
    stored: f64,
    /// None when it was not measured.
    now: Option<f64>,
    /// How much worse it is, as a part of what it was; below zero when it is better.
    worse_by: f64,
}

impl Verdict {
    /// What is not measured any more has not been kept either.
    pub fn is_kept(&self) -> bool {
        self.now.is_some() && self.worse_by <= TOLERATED
    }
}

/// Each stored ratio beside that of this run, the better one where it was measured twice.
pub fn compare(stored: &[Stored], figures: &[Figure]) -> Vec<Verdict> {
    stored
        .iter()
        .map(|was| {
            let same = |figure: &&Figure| figure.scenario == was.scenario && figure.what == was.what;
            let worse = |now: f64| match was.better {
                Better::Higher => 1.0 - now / was.ratio,
                Better::Lower => now / was.ratio - 1.0,
            };
            let ratios = figures.iter().filter(same).map(Figure::ratio).filter(|ratio| ratio.is_finite());
            let now = ratios.min_by(|a, b| worse(*a).total_cmp(&worse(*b)));
            let worse_by = now.map_or(f64::INFINITY, worse);
            Verdict { scenario: was.scenario.clone(), what: was.what.clone(), stored: was.ratio, now, worse_by }
        })
        .collect()
}

pub fn report(verdicts: &[Verdict]) -> String {
    let mut lines = String::new();
    for verdict in verdicts {
        let Verdict { scenario, what, stored, now, worse_by } = verdict;
        let mark = if verdict.is_kept() { "ok   " } else { "WORSE" };
        let now =
            now.map_or_else(|| "not measured".to_owned(), |now| format!("{now:.3} ({:+.0} %)", -worse_by * 100.0));
        // Nothing that is written to a string fails.
        let _ = writeln!(lines, "{mark} {scenario}, {what}: {stored:.3}, now {now}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figure::{Goal, Unit},
        rounds::Sides,
    };

    fn figure(scenario: &'static str, ratio: f64, goal: Goal) -> Figure {
        let samples = Sides { limit: vec![100.0], ours: vec![100.0 * ratio] };
        Figure { scenario, what: "x", unit: Unit::PerSecond, samples, goal: Some(goal) }
    }

    fn kept(stored: &Figure, now: &[Figure]) -> bool {
        let text = serde_json::to_vec(&[stored.json()]).unwrap();
        let stored: Vec<Stored> = serde_json::from_slice(&text).unwrap();
        compare(&stored, now)[0].is_kept()
    }

    #[test]
    fn a_ratio_may_get_worse_by_a_fifth_and_no_more() {
        let higher = |ratio| figure("up", ratio, Goal::Ratio(0.5));
        let lower = |ratio| figure("down", ratio, Goal::RatioAtMost(2.0));
        assert!(kept(&higher(1.0), &[higher(0.81)]));
        assert!(!kept(&higher(1.0), &[higher(0.79)]));
        assert!(kept(&higher(1.0), &[higher(3.0)]), "better is well");
        assert!(kept(&lower(1.0), &[lower(1.19)]));
        assert!(!kept(&lower(1.0), &[lower(1.21)]));
        assert!(kept(&lower(1.0), &[lower(0.1)]));
    }

    #[test]
    fn what_was_measured_twice_counts_by_the_better_time_and_what_is_missing_is_worse() {
        let up = |ratio| figure("up", ratio, Goal::Ratio(0.5));
        assert!(kept(&up(1.0), &[up(0.5), up(0.9)]));
        assert!(!kept(&up(1.0), &[figure("another", 1.0, Goal::Ratio(0.5))]));
        assert!(!kept(&up(1.0), &[up(f64::NAN)]));
        let gone = compare(
            &serde_json::from_str::<Vec<Stored>>(r#"[{"scenario":"a","what":"b","ratio":1,"better":"lower"}]"#)
                .unwrap(),
            &[],
        );
        assert_eq!(report(&gone), "WORSE a, b: 1.000, now not measured\n");
    }
}
