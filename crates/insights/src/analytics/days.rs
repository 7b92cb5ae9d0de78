//! On which days a person was seen, and what that adds to the table of gaps.
//!
//! A gap is the number of days since a person was seen before, 0 for never. The people who were seen in the days from `a` to
//! `b` are those with a gap of 0, or one greater than `d - a`, on a day `d` of them: each is counted on the first day in the
//! window. So a table of counts by day and gap answers exactly for any window that is shorter than the largest gap it keeps.
//! Its sums by day and by block of gaps say the same from fewer rows: all of a day but those with a gap of up to `d - a`.

/// Gaps that are longer count as this. Exact for windows of up to a year and a day.
pub const LONGEST_GAP: i64 = 367;
/// How many gaps a row of `active_block` has, from 1 on. The migration that created the table counts by it.
pub const GAPS_OF_A_BLOCK: i64 = 16;
/// How many days are kept as bits, so that a day that comes late (a clock that went back, a slow transaction) is counted
/// once.
const KEPT: i64 = 60;

/// When a person was seen in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub last: i64,
    /// Bit `n` stands for `n` days before the last one.
    pub days: i64,
    /// The last day before those.
    pub before: Option<i64>,
}

/// A change of the table of gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub day: i64,
    pub gap: i64,
    pub by: i64,
}

impl Seen {
    /// Adds a day; answers what follows for the table of gaps. Nothing when the person was seen that day already.
    pub fn add(known: Option<Self>, day: i64) -> (Self, Vec<Change>) {
        let Some(known) = known else {
            return (Self { last: day, days: 1, before: None }, vec![Change { day, gap: 0, by: 1 }]);
        };
        if day > known.last {
            let change = Change { day, gap: gap(day, Some(known.last)), by: 1 };
            return (known.moved_to(day), vec![change]);
        }
        let (previous, next) = known.around(day);
        let Some(next) = next else { return (known, vec![]) };
        let changes = vec![
            Change { day: next, gap: gap(next, previous), by: -1 },
            Change { day: next, gap: gap(next, Some(day)), by: 1 },
            Change { day, gap: gap(day, previous), by: 1 },
        ];
        let back = known.last - day;
        let with = if back < KEPT {
            Self { days: known.days | 1 << back, ..known }
        } else {
            Self { before: Some(day), ..known }
        };
        (with, changes)
    }

    fn moved_to(self, day: i64) -> Self {
        let by = day - self.last;
        let latest_that_leaves = (0..KEPT).find(|back| self.days >> back & 1 == 1 && back + by >= KEPT);
        let before = latest_that_leaves.map(|back| self.last - back).or(self.before);
        let days = if by >= KEPT { 1 } else { (self.days << by & ((1 << KEPT) - 1)) | 1 };
        Self { last: day, days, before }
    }

    /// The days seen before and after an earlier day. No day after it when the person was seen on the day itself, or when
    /// that is no longer known.
    fn around(self, day: i64) -> (Option<i64>, Option<i64>) {
        let is_seen = |back: i64| self.days >> back & 1 == 1;
        let back = self.last - day;
        if back < KEPT && is_seen(back) || self.before.is_some_and(|before| day <= before) {
            return (None, None);
        }
        let next = (0..back.min(KEPT)).rev().find(|back| is_seen(*back)).map(|back| self.last - back);
        let previous = (back + 1..KEPT).find(|back| is_seen(*back)).map(|back| self.last - back);
        (previous.or(self.before), next)
    }
}

fn gap(day: i64, previous: Option<i64>) -> i64 {
    previous.map_or(0, |previous| (day - previous).min(LONGEST_GAP))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn distinct(gaps: &BTreeMap<(i64, i64), i64>, a: i64, b: i64) -> i64 {
        gaps.iter()
            .filter(|((day, gap), _)| (a..=b).contains(day) && (*gap == 0 || *gap > day - a))
            .map(|(_, n)| n)
            .sum()
    }

    proptest! {
        /// Days may come in any order within 60 days, and in the order of time beyond that.
        #[test]
        fn every_window_is_exact(people in prop::collection::vec(prop::collection::vec(0i64..55, 0..25), 1..6),
                                 older in prop::collection::vec(-400i64..-60, 0..6),
                                 windows in prop::collection::vec((-400i64..60, 0i64..366), 20)) {
            let mut gaps = BTreeMap::new();
            let mut raw: Vec<BTreeSet<i64>> = vec![];
            for days in &people {
                let mut seen = None;
                let mut older = older.clone();
                older.sort_unstable();
                for day in older.iter().chain(days) {
                    let (now, changes) = Seen::add(seen, *day);
                    for Change { day, gap, by } in changes {
                        *gaps.entry((day, gap)).or_insert(0) += by;
                    }
                    seen = Some(now);
                }
                raw.push(older.iter().chain(days).copied().collect());
            }
            for (a, length) in windows {
                let b = a + length;
                let recount = raw.iter().filter(|days| days.range(a..=b).next().is_some()).count();
                prop_assert_eq!(distinct(&gaps, a, b), i64::try_from(recount).unwrap(), "{} to {}", a, b);
            }
            prop_assert!(gaps.values().all(|n| *n >= 0));
        }
    }

    #[test]
    fn a_backfill_of_old_days_comes_after_new_ones() {
        let (seen, _) = Seen::add(None, 500);
        let (seen, first) = Seen::add(Some(seen), 100);
        assert_eq!(
            first,
            [
                Change { day: 500, gap: 0, by: -1 },
                Change { day: 500, gap: LONGEST_GAP, by: 1 },
                Change { day: 100, gap: 0, by: 1 }
            ]
        );
        let (seen, second) = Seen::add(Some(seen), 200);
        assert_eq!(second.last(), Some(&Change { day: 200, gap: 100, by: 1 }));
        assert_eq!(Seen::add(Some(seen), 200).1, [], "once");
        assert_eq!(Seen::add(Some(seen), 150).1, [], "older than what is known counts as seen");
    }
}
