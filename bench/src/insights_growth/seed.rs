//! The tables of analytics after a year, as the server would have counted them. The lines of the audit log that they stand for
//! are left out: analytics does not read them. So are sessions, and the words that users are searched by.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Result;
use kernel::clock::Day;
use rusqlite::{Connection, params};

use super::visits::{FUNNELS, KINDS, Visit, Year};
use crate::{
    rounds,
    seed::User,
    sizes::{DAY, write},
};

/// How long hours and steps of funnels are kept, in days.
const HOURS_KEPT: i64 = 35;
const STEPS_KEPT: i64 = 31;
/// How many days of a user are kept as bits.
const BITS: i64 = 60;
const LONGEST_GAP: i64 = 367;

/// The app, its organization, and the year they had.
pub struct Writer {
    pub app: String,
    pub org: String,
    pub year: Year,
}

type Work = fn(&Writer, &Connection) -> Result<()>;
const STEPS: &[(&str, Work)] = &[
    ("accounts", Writer::accounts),
    ("users of the app", Writer::app_users),
    ("active users", Writer::active),
    ("events", Writer::events),
    ("days of users", |writer, connection| writer.periods(connection, "d", |day| day)),
    ("weeks of users", |writer, connection| writer.periods(connection, "w", week_of)),
    ("months of users", |writer, connection| {
        let months = months(writer.year);
        writer.periods(connection, "m", |day| months.range(..=day).next_back().copied().unwrap_or(day))
    }),
    ("funnels", Writer::funnels),
];

pub fn fill(folder: &Path, writer: &Writer) -> Result<()> {
    write(folder, writer.year.users, |connection| {
        let bar = rounds::bar("seed", STEPS.len());
        for (name, step) in STEPS {
            bar.set_message(*name);
            let tx = connection.transaction()?;
            step(writer, &tx)?;
            tx.commit()?;
            bar.inc(2);
        }
        bar.finish_and_clear();
        Ok(())
    })
}

/// The Monday of a day.
pub fn week_of(day: i64) -> i64 {
    day - (day + 3).rem_euclid(7)
}

/// The first day of a day's month.
pub fn month_of(day: i64) -> i64 {
    let text = Day(day).to_string();
    let of_month: i64 = text.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(1);
    day - of_month + 1
}

/// The first days of all months of the year.
fn months(year: Year) -> BTreeSet<i64> {
    (year.first_day()..year.today).map(month_of).collect()
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Writer {
    fn accounts(&self, connection: &Connection) -> Result<()> {
        let hash: String = connection.query_row("SELECT password_hash FROM account LIMIT 1", [], |row| row.get(0))?;
        let mut row = connection.prepare(
            "INSERT INTO account (id, email, email_key, name, email_verified, password_hash, accepts_marketing, has_words,
                                  created_at, updated_at)
             VALUES (?1, ?2, ?2, ?3, 1, ?4, 0, 1, ?5, ?5)",
        )?;
        for user in (1..=self.year.users).map(User) {
            let came = self.year.visits_of(user.0).next().map_or(0, |visit| visit.at);
            row.execute(params![user.id(), user.email(), user.name(), hash, came])?;
        }
        Ok(())
    }

    fn app_users(&self, connection: &Connection) -> Result<()> {
        let mut row = connection.prepare(
            "INSERT INTO app_user (app_id, account_id, first_sign_in_at, last_sign_in_at, has_words)
             VALUES (?1, ?2, ?3, ?4, 1)",
        )?;
        for user in 1..=self.year.users {
            let visits = || self.year.visits_of(user);
            let (first, last) = (visits().next(), visits().last());
            let at = |visit: Option<Visit>| visit.map_or(0, |visit| visit.at);
            row.execute(params![self.app, User(user).id(), at(first), at(last)])?;
        }
        Ok(())
    }

    /// When users were seen, and the table of gaps: for the app, and the same for the organization.
    fn active(&self, connection: &Connection) -> Result<()> {
        let mut row = connection.prepare(
            "INSERT INTO active_user (scope, account_id, last_day, days, before_day) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut gaps: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for scope in [&self.app, &self.org] {
            gaps.clear();
            for user in 1..=self.year.users {
                let days: Vec<i64> = self.year.visits_of(user).map(|visit| visit.day).collect();
                let mut previous = None;
                for day in &days {
                    let gap = previous.map_or(0, |previous: i64| (day - previous).min(LONGEST_GAP));
                    *gaps.entry((*day, gap)).or_default() += 1;
                    previous = Some(*day);
                }
                let Some(last) = previous else { continue };
                let bits =
                    days.iter().filter(|day| last - **day < BITS).fold(0_i64, |bits, day| bits | 1 << (last - day));
                let before = days.iter().rev().find(|day| last - **day >= BITS);
                row.execute(params![scope, User(user).id(), last, bits, before])?;
            }
            let mut gap =
                connection.prepare("INSERT INTO active_gap (scope, day, gap, users) VALUES (?1, ?2, ?3, ?4)")?;
            for ((day, length), users) in &gaps {
                gap.execute(params![scope, day, length, users])?;
            }
            connection.execute(
                "INSERT INTO active_day (scope, day, users, new_users)
                 SELECT scope, day, SUM(users), SUM(CASE WHEN gap = 0 THEN users ELSE 0 END) FROM active_gap
                 WHERE scope = ?1 GROUP BY day",
                params![scope],
            )?;
            connection.execute(
                "INSERT INTO active_block (scope, day, block, users)
                 SELECT scope, day, (gap - 1) / 16, SUM(users) FROM active_gap
                 WHERE scope = ?1 AND gap > 0 GROUP BY day, (gap - 1) / 16",
                params![scope],
            )?;
            connection.execute(
                "INSERT INTO active_total (scope, users) VALUES (?1, ?2)
                 ON CONFLICT (scope) DO UPDATE SET users = active_total.users + ?2",
                params![scope, int(self.year.users)],
            )?;
        }
        Ok(())
    }

    fn events(&self, connection: &Connection) -> Result<()> {
        let mut days: BTreeMap<(i64, usize), u64> = BTreeMap::new();
        let mut hours: BTreeMap<(i64, &str), u64> = BTreeMap::new();
        let first_kept = (self.year.today - HOURS_KEPT) * 24;
        for (visit, events) in self.year.all() {
            for (kind, count) in visit.kinds(events).into_iter().enumerate().filter(|(_, count)| *count > 0) {
                *days.entry((visit.day, kind)).or_default() += count;
                if visit.hour() >= first_kept {
                    *hours.entry((visit.hour(), KINDS[kind].0)).or_default() += count;
                }
            }
        }
        let mut row =
            connection.prepare("INSERT INTO event_day (scope, day, kind, method, n) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for scope in [&self.app, &self.org] {
            for ((day, kind), count) in &days {
                let (kind, method) = KINDS[*kind];
                row.execute(params![scope, day, kind, method, int(*count)])?;
            }
        }
        let mut row = connection.prepare("INSERT INTO event_hour (app_id, hour, kind, n) VALUES (?1, ?2, ?3, ?4)")?;
        for ((hour, kind), count) in hours {
            row.execute(params![self.app, hour, kind, int(count)])?;
        }
        Ok(())
    }

    /// The events of each user in each period that they were there in, in the order of the table's key.
    fn periods(&self, connection: &Connection, name: &str, since: impl Fn(i64) -> i64) -> Result<()> {
        let mut counted: Vec<(u16, u32, u32, i64)> = vec![];
        let first = since(self.year.first_day());
        for (visit, events) in self.year.all() {
            let period = u16::try_from(since(visit.day) - first)?;
            let (user, events) = (u32::try_from(visit.user)?, u32::try_from(events)?);
            match counted.last_mut().filter(|last| (last.0, last.1) == (period, user)) {
                Some(last) => *last = (period, user, last.2 + events, visit.last_at()),
                None => counted.push((period, user, events, visit.last_at())),
            }
        }
        counted.sort_unstable();
        let mut row = connection.prepare(
            "INSERT INTO user_period (app_id, period, since, account_id, events, last_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for (period, user, events, last) in counted {
            let user = User(u64::from(user)).id();
            row.execute(params![self.app, name, first + i64::from(period), user, events, last])?;
        }
        Ok(())
    }

    fn funnels(&self, connection: &Connection) -> Result<()> {
        let mut counts: BTreeMap<(usize, i64, usize, usize), i64> = BTreeMap::new();
        let mut row = connection.prepare(
            "INSERT INTO funnel_step (app_id, account_id, funnel, day, step, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let kept = (self.year.today - STEPS_KEPT) * DAY;
        for user in 1..=self.year.users {
            let mut first = None;
            for visit in self.year.visits_of(user) {
                for step in visit.steps(*first.get_or_insert(visit)) {
                    *counts.entry((step.funnel, step.day, step.step, step.within)).or_default() += 1;
                    if step.at >= kept {
                        let (id, place) = (User(user).id(), i64::try_from(step.step)?);
                        row.execute(params![self.app, id, FUNNELS[step.funnel], step.day, place, step.at])?;
                    }
                }
            }
        }
        let mut row = connection.prepare(
            "INSERT INTO funnel_day (app_id, funnel, day, step, within, users) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for ((funnel, day, step, within), users) in counts {
            let (step, within) = (i64::try_from(step)?, i64::try_from(within)?);
            row.execute(params![self.app, FUNNELS[funnel], day, step, within, users])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_mondays_and_months_on_the_first() {
        // 18 November 2026 is a Wednesday.
        let day = 20_775;
        assert_eq!(Day(day).to_string(), "2026-11-18");
        assert_eq!(Day(week_of(day)).to_string(), "2026-11-16");
        assert_eq!(Day(month_of(day)).to_string(), "2026-11-01");
        assert_eq!(months(Year::new(day, 1, 100)).len(), 13);
    }
}
