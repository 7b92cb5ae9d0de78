//! What came out: a figure, the limit beside it, and what it was meant to be.
use serde_json::{Value, json};

use crate::rounds::Sides;

pub struct Figure {
    pub scenario: &'static str,
    /// What was measured, and against what.
    pub what: &'static str,
    pub unit: Unit,
    pub samples: Sides<f64>,
    /// `None` where the figure only explains another one.
    pub goal: Option<Goal>,
}

#[derive(Clone, Copy)]
pub enum Unit {
    PerSecond,
    PerCpuSecond,
    Milliseconds,
    Microseconds,
    Megabytes,
    Kilobytes,
    Bytes,
}

#[derive(Clone, Copy)]
pub enum Goal {
    /// At least this part of the limit.
    Ratio(f64),
    /// At most this part of the limit, which is one that is not to be passed.
    RatioAtMost(f64),
    /// Less than this, whatever the limit.
    Below(f64),
    /// At least this, whatever the limit.
    AtLeast(f64),
}

impl Figure {
    pub fn ours(&self) -> f64 {
        median(&self.samples.ours)
    }

    pub fn limit(&self) -> f64 {
        median(&self.samples.limit)
    }

    /// Taken within each round, because what disturbed one side of it disturbed the other too.
    pub fn ratio(&self) -> f64 {
        let rounds = self.samples.ours.iter().zip(&self.samples.limit);
        median(&rounds.map(|(ours, limit)| ours / limit).collect::<Vec<_>>())
    }

    pub fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| match goal {
            Goal::Ratio(least) => self.ratio() >= least,
            Goal::RatioAtMost(most) => self.ratio() <= most,
            Goal::Below(most) => self.ours() < most,
            Goal::AtLeast(least) => self.ours() >= least,
        })
    }

    /// Whether a higher ratio is a better one.
    pub fn is_higher_better(&self) -> bool {
        match self.goal {
            Some(Goal::Ratio(_) | Goal::AtLeast(_)) => true,
            Some(Goal::RatioAtMost(_) | Goal::Below(_)) => false,
            None => self.unit.is_rate(),
        }
    }

    /// How far the goal was reached: 1 is just so, more is better.
    pub fn reached(&self) -> Option<f64> {
        self.goal.map(|goal| match goal {
            Goal::Ratio(least) => self.ratio() / least,
            Goal::RatioAtMost(most) => most / self.ratio(),
            Goal::Below(most) => most / self.ours(),
            Goal::AtLeast(least) => self.ours() / least,
        })
    }

    fn goal(&self) -> String {
        match self.goal {
            None => String::new(),
            Some(Goal::Ratio(least)) => format!("ratio >= {least}"),
            Some(Goal::RatioAtMost(most)) => format!("ratio <= {most}"),
            Some(Goal::Below(most)) => format!("< {}", self.unit.write(most)),
            Some(Goal::AtLeast(least)) => format!(">= {}", self.unit.write(least)),
        }
    }

    /// The line that says which goal was missed, and by how much.
    pub fn shortfall(&self) -> String {
        let reached = match self.goal {
            Some(Goal::Ratio(_) | Goal::RatioAtMost(_)) => written(self.ratio()),
            _ => self.unit.write(self.ours()),
        };
        format!("missed: {}, {}: {reached} instead of {}", self.scenario, self.what, self.goal())
    }

    pub fn json(&self) -> Value {
        json!({
            "scenario": self.scenario,
            "what": self.what,
            "unit": self.unit.name(),
            "ours": self.ours(),
            "limit": self.limit(),
            "ratio": self.ratio(),
            "better": if self.is_higher_better() { "higher" } else { "lower" },
            "goal": self.goal(),
            "met": self.is_met(),
            "samples": { "ours": self.samples.ours, "limit": self.samples.limit },
        })
    }

    pub fn cells(&self) -> [String; 7] {
        let met = self.is_met().map_or("", |met| if met { "yes" } else { "NO" });
        [
            self.scenario.to_owned(),
            self.what.to_owned(),
            self.unit.write(self.ours()),
            self.unit.write(self.limit()),
            written(self.ratio()),
            self.goal(),
            met.to_owned(),
        ]
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::PerCpuSecond => "/CPU s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Megabytes => "MB",
            Self::Kilobytes => "kB",
            Self::Bytes => "B",
        }
    }

    /// Whether more of it is better.
    fn is_rate(self) -> bool {
        matches!(self, Self::PerSecond | Self::PerCpuSecond)
    }

    fn write(self, value: f64) -> String {
        let number = if value < 1000.0 { format!("{value:.1}") } else { grouped(value) };
        format!("{} {}", number.trim_end_matches(".0"), self.name())
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn table(figures: &[Figure]) -> String {
    let head = ["scenario", "measured", "ours", "limit", "ratio", "goal", "met"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(figures.iter().map(Figure::cells)).collect();
    let widths: Vec<usize> =
        (0..7).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 7]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  "));
    lines.join("\n")
}

/// A ratio with two digits; a small one with four.
fn written(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (even, middle) if even.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        (_, middle) => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_bad_round() {
        assert!((median(&[10.0, 1.0, 11.0]) - 10.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 900.0]) - 3.0).abs() < f64::EPSILON, "the mean of the two in the middle");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(Unit::PerSecond.write(1_234_567.4), "1,234,567 /s");
        assert_eq!(Unit::Milliseconds.write(100.0), "100 ms");
        assert_eq!(Unit::Megabytes.write(12.34), "12.3 MB");
    }

    #[test]
    fn a_goal_is_met_by_the_ratio_or_by_the_figure_itself() {
        let figure = |goal| Figure {
            scenario: "reads",
            what: "point reads",
            unit: Unit::PerSecond,
            samples: Sides { limit: vec![100.0], ours: vec![60.0] },
            goal,
        };
        assert_eq!(figure(Some(Goal::Ratio(0.5))).is_met(), Some(true));
        assert_eq!(figure(Some(Goal::Ratio(0.7))).is_met(), Some(false));
        assert_eq!(figure(Some(Goal::Below(60.0))).is_met(), Some(false), "below, not at most");
        assert_eq!(figure(None).is_met(), None);
    }
}
