//! Figures by day from the audit log, for overviews. Each statement reads a bounded number of rows, along an index.
use std::collections::BTreeMap;

use db::{Db, params, row};
use kernel::clock::{Day, Timestamp};

use crate::ids::{ApplicationId, EventId, OrgId};

/// Counting stops after this many events, newest first.
pub const MOST_EVENTS: u32 = 50_000;
/// How many apps of an organization are counted, newest first.
const MOST_APPS: u32 = 20;
/// Totals are counted up to this number.
const MOST_IN_TOTAL: u32 = 100_000;

/// What happened on a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayFigures {
    pub sign_ins: i64,
    pub failed_sign_ins: i64,
    pub new_accounts: i64,
    /// Users who signed in.
    pub active: i64,
}

/// The figures of a stretch of days.
#[derive(Debug, Default)]
pub struct Figures {
    pub days: BTreeMap<i64, DayFigures>,
    /// Users who signed in after the middle, and before it.
    pub active: (i64, i64),
    /// Whether there were more events than are counted.
    pub is_capped: bool,
}

struct Count {
    day: i64,
    kind: String,
    n: i64,
    people: i64,
}
row!(Count { day, kind, n, people });

struct Active {
    after: i64,
    before: i64,
}
row!(Active { after, before });

/// Counts by day and type, and users by period, of the rows that a range finds.
macro_rules! by_day {
    ($range:literal) => {
        concat!(
            "SELECT day, type AS kind, CAST(COUNT(*) AS BIGINT) AS n, CAST(COUNT(DISTINCT account_id) AS BIGINT) AS people
             FROM (SELECT at / 86400000 AS day, type, account_id FROM audit_event WHERE ",
            $range,
            ") e GROUP BY day, type"
        )
    };
}
macro_rules! active {
    ($range:literal, $middle:literal) => {
        concat!(
            "SELECT CAST(COUNT(DISTINCT CASE WHEN at >= ",
            $middle,
            " THEN account_id END) AS BIGINT) AS after, CAST(COUNT(DISTINCT CASE WHEN at < ",
            $middle,
            " THEN account_id END) AS BIGINT) AS before
             FROM (SELECT at, type, account_id FROM audit_event WHERE ",
            $range,
            ") e WHERE type = 'SIGNED_IN'"
        )
    };
}

impl Figures {
    fn of(counts: Vec<Count>, active: &Active, most: u32) -> Self {
        let mut figures = Self { active: (active.after, active.before), ..Self::default() };
        figures.is_capped = counts.iter().map(|count| count.n).sum::<i64>() >= i64::from(most);
        for Count { day, kind, n, people } in counts {
            let on = figures.days.entry(day).or_default();
            match kind.as_str() {
                "SIGNED_IN" => (on.sign_ins, on.active) = (n, people),
                "SIGN_IN_FAILED" => on.failed_sign_ins = n,
                "ACCOUNT_CREATED" => on.new_accounts = n,
                _ => {}
            }
        }
        figures
    }

    /// Events in an app since a moment; `middle` divides the periods.
    pub async fn of_app(
        db: &Db,
        app: ApplicationId,
        since: Timestamp,
        middle: Timestamp,
        most: u32,
    ) -> db::Result<Self> {
        let by_day = by_day!("app_id = $1 AND at >= $2 ORDER BY at DESC, id DESC LIMIT $3");
        let counts = db.all(by_day, params![app, since, most]).await?;
        let sql = active!("app_id = $1 AND at >= $2 ORDER BY at DESC, id DESC LIMIT $3", "$4");
        let active = db.one(sql, params![app, since, most, middle]).await?;
        Ok(Self::of(counts, &active, most))
    }

    /// Events in the apps of an organization. A user of two apps counts in both.
    pub async fn of_org(db: &Db, org: OrgId, since: Timestamp, middle: Timestamp) -> db::Result<Self> {
        let sql = "SELECT id FROM app WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2";
        let apps: Vec<(ApplicationId,)> = db.all(sql, params![org, MOST_APPS]).await?;
        let share = MOST_EVENTS / u32::try_from(apps.len()).unwrap_or(MOST_APPS).max(1);
        let mut all = Self::default();
        for (app,) in apps {
            let one = Self::of_app(db, app, since, middle, share).await?;
            all.is_capped |= one.is_capped;
            all.active = (all.active.0 + one.active.0, all.active.1 + one.active.1);
            for (day, on) in one.days {
                let sum = all.days.entry(day).or_default();
                *sum = DayFigures {
                    sign_ins: sum.sign_ins + on.sign_ins,
                    failed_sign_ins: sum.failed_sign_ins + on.failed_sign_ins,
                    new_accounts: sum.new_accounts + on.new_accounts,
                    active: sum.active + on.active,
                };
            }
        }
        Ok(all)
    }

    /// All events, read by their ids, which are in the order of time.
    pub async fn of_platform(db: &Db, since: Timestamp, middle: Timestamp) -> db::Result<Self> {
        let first = EventId::first_of(since);
        let counts = db.all(by_day!("id >= $1 ORDER BY id DESC LIMIT $2"), params![first, MOST_EVENTS]).await?;
        let sql = active!("id >= $1 ORDER BY id DESC LIMIT $2", "$3");
        let active = db.one(sql, params![first, MOST_EVENTS, middle]).await?;
        Ok(Self::of(counts, &active, MOST_EVENTS))
    }
}

/// How many users signed in to an app for the first time, by day. A first sign-in is not after the last one, so the index of
/// the latter finds it.
pub async fn new_users_of_app(db: &Db, app: ApplicationId, since: Timestamp) -> db::Result<Vec<(Day, i64)>> {
    let sql = "SELECT first_sign_in_at / 86400000 AS day, CAST(COUNT(*) AS BIGINT) AS n
               FROM (SELECT first_sign_in_at FROM app_user WHERE app_id = $1 AND last_sign_in_at >= $2
                     ORDER BY last_sign_in_at DESC LIMIT $3) u
               WHERE first_sign_in_at >= $2 GROUP BY first_sign_in_at / 86400000";
    let found: Vec<Found> = db.all(sql, params![app, since, MOST_EVENTS]).await?;
    Ok(found.into_iter().map(|Found { day, n }| (Day(day), n)).collect())
}

struct Found {
    day: i64,
    n: i64,
}
row!(Found { day, n });

/// How many there are, up to 100,000.
async fn total(db: &Db, sql: &'static str, values: Vec<db::Value>) -> db::Result<i64> {
    db.one::<(i64,)>(sql, values).await.map(|(n,)| n)
}

pub async fn users_of_app(db: &Db, app: ApplicationId) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM app_user WHERE app_id = $1 LIMIT $2) u";
    total(db, sql, params![app, MOST_IN_TOTAL]).await
}

pub async fn members_of_org(db: &Db, org: OrgId) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM org_member WHERE org_id = $1 LIMIT $2) m";
    total(db, sql, params![org, MOST_IN_TOTAL]).await
}

pub async fn apps_of_org(db: &Db, org: OrgId) -> db::Result<i64> {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM app WHERE org_id = $1 LIMIT $2) a";
    total(db, sql, params![org, MOST_IN_TOTAL]).await
}

/// The apps whose deliveries an overview of the organization counts.
pub async fn newest_apps(db: &Db, org: OrgId) -> db::Result<Vec<ApplicationId>> {
    let sql = "SELECT id FROM app WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2";
    let apps: Vec<(ApplicationId,)> = db.all(sql, params![org, MOST_APPS]).await?;
    Ok(apps.into_iter().map(|(id,)| id).collect())
}

/// Accounts, organizations and apps of the platform.
pub async fn totals(db: &Db) -> db::Result<(i64, i64, i64)> {
    let accounts = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM account LIMIT $1) a";
    let orgs = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM org LIMIT $1) o";
    let apps = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM app LIMIT $1) a";
    Ok((
        total(db, accounts, params![MOST_IN_TOTAL]).await?,
        total(db, orgs, params![MOST_IN_TOTAL]).await?,
        total(db, apps, params![MOST_IN_TOTAL]).await?,
    ))
}
