//! When the users of an app were there in the year that ended yesterday, and what they did: everything follows from the number
//! of a user. A hundredth comes nearly every day, a twentieth about once a week, the others a few times.
use crate::sizes::{DAY, mixed, pick};

pub const DAYS: i64 = 365;
const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;
const WINDOWS: [i64; 4] = [HOUR, DAY, 7 * DAY, 30 * DAY];

/// The types of events and their methods.
pub const KINDS: [(&str, &str); 15] = [
    ("SIGNED_IN", "pwd"),
    ("SIGNED_IN", "mail"),
    ("SIGNED_IN", "passkey"),
    ("SIGNED_IN", "google"),
    ("SIGN_IN_FAILED", ""),
    ("SESSION_REVOKED", ""),
    ("CONSENT_GRANTED", ""),
    ("PROFILE_UPDATED", ""),
    ("ACCOUNT_CREATED", ""),
    ("EMAIL_VERIFIED", ""),
    ("MFA_ENABLED", ""),
    ("PASSWORD_RESET_REQUESTED", ""),
    ("PASSWORD_RESET", ""),
    ("MAGIC_LINK_REQUESTED", ""),
    ("PASSKEY_ADDED", ""),
];
const MAIL: usize = 1;
const METHODS: u64 = 4;
/// The kinds that fill a visit up.
const REST: std::ops::Range<u64> = 4..8;
const CREATED: usize = 8;
const VERIFIED: usize = 9;
const SECOND_FACTOR: usize = 10;
const RESET_REQUESTED: usize = 11;
const RESET: usize = 12;
const LINK: usize = 13;
/// A visit has at least so many events, so that all that must happen fits in.
pub const LEAST: u64 = 8;

pub const FUNNELS: [&str; 4] = ["sign_up", "sign_in", "password_reset", "magic_link"];

/// The year, and how many users and events it has.
#[derive(Clone, Copy)]
pub struct Year {
    pub today: i64,
    pub users: u64,
    pub events: u64,
    /// How many visits there are.
    pub visits: u64,
}

/// A day on which a user was there. All of it happens within an hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    pub user: u64,
    /// The place among those of the user.
    pub place: u64,
    pub day: i64,
    /// When it begins.
    pub at: i64,
}

/// A step of a funnel that a user began on `day`.
pub struct Reached {
    pub funnel: usize,
    pub day: i64,
    pub step: usize,
    pub at: i64,
    /// The place of the shortest window it was reached in.
    pub within: usize,
}

impl Year {
    pub fn new(today: i64, users: u64, events: u64) -> Self {
        let mut year = Self { today, users, events, visits: 0 };
        year.visits = (1..=users).map(|user| year.visits_of(user).count() as u64).sum();
        year
    }

    pub fn first_day(self) -> i64 {
        self.today - DAYS
    }

    /// The visits of a user, oldest first.
    pub fn visits_of(self, user: u64) -> impl Iterator<Item = Visit> {
        let gap = move |place: u64| {
            let (least, most) = match pick(user, 1, 100) {
                0 => (1, 2),
                1..=5 => (4, 10),
                _ => (60, 400),
            };
            i64::try_from(least + pick(user, 100 + place, most - least + 1)).unwrap_or(1)
        };
        let came = i64::try_from((user - 1) * DAYS.unsigned_abs() / self.users).unwrap_or(0);
        let first = (0, self.first_day() + came);
        let days = std::iter::successors(Some(first), move |(place, day)| Some((place + 1, day + gap(*place))));
        days.take_while(move |(_, day)| *day < self.today).map(move |(place, day)| {
            let minutes =
                i64::try_from(pick(user, 1000 + place, 24) * 60 + pick(user, 2000 + place, 50)).unwrap_or(0);
            Visit { user, place, day, at: day * DAY + minutes * MINUTE }
        })
    }

    /// All visits with the number of their events, user by user. The sum is exact, and pairs of neighbours differ.
    pub fn all(self) -> impl Iterator<Item = (Visit, u64)> {
        let whole = u128::from(self.events);
        let until = move |place: u64| {
            u64::try_from(whole * u128::from(place) / u128::from(self.visits.max(1))).unwrap_or(u64::MAX)
        };
        let visits = (1..=self.users).flat_map(move |user| self.visits_of(user));
        visits.zip(0_u64..).map(move |(visit, place)| {
            let even = until(place + 1) - until(place);
            let pair = place / 2;
            let is_paired = pair * 2 + 1 < self.visits;
            let swing = pick(pair, 7, (self.events / self.visits).saturating_sub(LEAST) + 1);
            let events = match (is_paired, place % 2) {
                (false, _) => even,
                (true, 0) => even + swing,
                (true, _) => even - swing,
            };
            (visit, events)
        })
    }
}

impl Visit {
    fn bits(self, salt: u64) -> u64 {
        mixed(self.user, 3000 + salt * 1000 + self.place)
    }

    fn method(self) -> usize {
        usize::try_from(self.bits(0) % METHODS).unwrap_or(0)
    }

    fn has_second_factor(self) -> bool {
        self.place == 0 && self.bits(1).is_multiple_of(4)
    }

    fn is_reset(self) -> bool {
        self.bits(2).is_multiple_of(40)
    }

    fn is_asked_twice(self) -> bool {
        self.bits(3).is_multiple_of(8)
    }

    pub fn hour(self) -> i64 {
        self.at.div_euclid(HOUR)
    }

    pub fn last_at(self) -> i64 {
        self.at + 5 * MINUTE
    }

    /// How many events of each kind a visit has.
    pub fn kinds(self, events: u64) -> [u64; KINDS.len()] {
        let mut counts = [0; KINDS.len()];
        counts[self.method()] += 1;
        if self.place == 0 {
            counts[CREATED] += 1;
            counts[VERIFIED] += 1;
        }
        counts[SECOND_FACTOR] += u64::from(self.has_second_factor());
        counts[LINK] += u64::from(self.method() == MAIL);
        if self.is_reset() {
            counts[RESET_REQUESTED] += 1;
            counts[RESET] += 1;
        }
        let rest = events.saturating_sub(counts.iter().sum());
        let again = rest / 2;
        counts[self.method()] += again;
        let kind = REST.start + self.bits(4) % (REST.end - REST.start);
        counts[usize::try_from(kind).unwrap_or(4)] += rest - again;
        counts
    }

    /// The steps that a visit reaches; `first` is the first visit of the user.
    pub fn steps(self, first: Self) -> Vec<Reached> {
        let signed_in = self.at + 4 * MINUTE;
        let mut steps = vec![];
        let mut reach = |funnel, began: Self, step, at: i64| {
            let took = at - began.at;
            if let Some(within) = WINDOWS.iter().position(|most| took <= *most) {
                steps.push(Reached { funnel, day: began.day, step, at, within });
            }
        };
        if self.place == 0 {
            reach(0, self, 0, self.at);
            reach(0, self, 1, self.at + MINUTE);
            reach(0, self, 2, signed_in);
            if self.has_second_factor() {
                reach(0, self, 3, self.last_at());
            }
        } else if self.place == 1 && first.has_second_factor() {
            reach(0, first, 4, signed_in);
        }
        reach(1, self, 0, self.at);
        reach(1, self, 1, signed_in);
        if self.is_asked_twice() {
            reach(1, self, 2, signed_in);
        }
        reach(1, self, 3, signed_in);
        if self.is_reset() {
            reach(2, self, 0, self.at + MINUTE);
            reach(2, self, 1, self.at + 2 * MINUTE);
            reach(2, self, 2, signed_in);
        }
        if self.method() == MAIL {
            reach(3, self, 0, self.at + MINUTE);
            reach(3, self, 1, signed_in);
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_year_has_as_many_events_as_it_says() {
        let year = Year::new(20_000, 1000, 100_000);
        assert_eq!(year.all().count() as u64, year.visits);
        assert_eq!(year.all().map(|(_, events)| events).sum::<u64>(), 100_000);
        assert!(year.all().all(|(visit, events)| visit.kinds(events).iter().sum::<u64>() == events));
        assert!(year.all().all(|(visit, _)| (year.first_day()..year.today).contains(&visit.day)));
        let days: Vec<i64> = year.visits_of(7).map(|visit| visit.day).collect();
        assert!(days.is_sorted_by(|a, b| a < b), "{days:?}");
    }
}
