//! The tables of analytics, and every statement on them.
use std::collections::{BTreeMap, HashMap};

use db::{Composed, Db, FromRow, Row, Sql, Tx, params, row};
use kernel::clock::Timestamp;
use tenancy::ids::{AccountId, ApplicationId, OrgId};

use super::{
    days::{Change, GAPS_OF_A_BLOCK, Seen},
    funnels::{Funnel, Reached},
    zones,
};

/// Something that is not counted yet.
#[derive(Debug)]
pub struct Tally {
    pub id: String,
    pub app_id: ApplicationId,
    pub kind: String,
    pub method: String,
    pub account_id: Option<AccountId>,
    pub at: Timestamp,
}
row!(Tally { id, app_id, kind, method, account_id, at });

impl Tally {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        let sql =
            "INSERT INTO event_tally (id, app_id, kind, method, account_id, at) VALUES ($1, $2, $3, $4, $5, $6)";
        tx.send(sql, params![&self.id, self.app_id, &self.kind, &self.method, self.account_id, self.at]).await
    }

    /// Takes the oldest ones. They are counted by the transaction that takes them, or stay.
    pub async fn take(tx: &mut Tx, most: u32) -> db::Result<Vec<Self>> {
        let sql = "DELETE FROM event_tally WHERE id IN (SELECT id FROM event_tally ORDER BY id LIMIT $1)
                   RETURNING id, app_id, kind, method, account_id, at";
        tx.put(sql, params![most]).await
    }

    pub async fn take_of(tx: &mut Tx, account: AccountId) -> db::Result<Vec<Self>> {
        let sql = "DELETE FROM event_tally WHERE account_id = $1 RETURNING id, app_id, kind, method, account_id, at";
        tx.put(sql, params![account]).await
    }

    /// Whether it stands for an event of the audit log, whose types are in capital letters.
    pub fn is_event(&self) -> bool {
        self.kind.starts_with(|first: char| first.is_ascii_uppercase())
    }

    /// A sign-in or a refresh.
    pub fn shows_a_person(&self) -> bool {
        matches!(self.kind.as_str(), "SIGNED_IN" | super::funnels::SEEN)
    }
}

pub async fn is_waiting(db: &Db) -> db::Result<bool> {
    Ok(db.opt::<(String,)>("SELECT id FROM event_tally LIMIT 1", params![]).await?.is_some())
}

/// Waits until nobody else counts, until the end of the transaction.
pub async fn take_turn(tx: &mut Tx) -> db::Result<()> {
    const TURN: Sql = Sql::two(
        "SELECT name FROM tally_turn WHERE name = 'fold'",
        "SELECT name FROM tally_turn WHERE name = 'fold' FOR UPDATE",
    );
    tx.opt::<(String,)>(TURN, params![]).await.map(drop)
}

/// What one transaction adds, each counter once and in order.
#[derive(Default)]
pub struct Counters {
    hours: BTreeMap<(ApplicationId, i64, String), i64>,
    days: BTreeMap<(String, i64, String, String), i64>,
    people: BTreeMap<(ApplicationId, &'static str, i64, AccountId), (i64, Timestamp)>,
    gaps: BTreeMap<(String, i64, i64), i64>,
    active: BTreeMap<(String, i64), PeopleOfDay>,
    blocks: BTreeMap<(String, i64, i64), i64>,
    totals: BTreeMap<String, i64>,
    steps: BTreeMap<(ApplicationId, Funnel, i64, usize, usize), i64>,
}

impl Counters {
    pub fn event(&mut self, tally: &Tally, scopes: &[String], day: i64) {
        let hour = tally.at.0.div_euclid(3_600_000);
        *self.hours.entry((tally.app_id, hour, tally.kind.clone())).or_default() += 1;
        for scope in scopes {
            let key = (scope.clone(), day, tally.kind.clone(), tally.method.clone());
            *self.days.entry(key).or_default() += 1;
        }
    }

    pub fn of_person(&mut self, tally: &Tally, account: AccountId, periods: [(&'static str, i64); 3]) {
        for (period, since) in periods {
            let counted = self.people.entry((tally.app_id, period, since, account)).or_insert((0, tally.at));
            *counted = (counted.0 + 1, counted.1.max(tally.at));
        }
    }

    pub fn gap(&mut self, scope: &str, change: Change) {
        let Change { day, gap, by } = change;
        *self.gaps.entry((scope.to_owned(), day, gap)).or_default() += by;
        let empty = PeopleOfDay { day, seen: 0, new: 0 };
        let active = self.active.entry((scope.to_owned(), day)).or_insert(empty);
        active.seen += by;
        match gap {
            0 => active.new += by,
            gap => *self.blocks.entry((scope.to_owned(), day, (gap - 1) / GAPS_OF_A_BLOCK)).or_default() += by,
        }
    }

    pub fn person(&mut self, scope: &str, by: i64) {
        *self.totals.entry(scope.to_owned()).or_default() += by;
    }

    pub fn step(&mut self, app: ApplicationId, step: Reached, within: usize) {
        *self.steps.entry((app, step.funnel, step.day, step.step, within)).or_default() += 1;
    }

    pub async fn save(self, tx: &mut Tx) -> db::Result<()> {
        for ((app, hour, kind), n) in self.hours {
            let sql = "INSERT INTO event_hour (app_id, hour, kind, n) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (app_id, hour, kind) DO UPDATE SET n = event_hour.n + $4";
            tx.send(sql, params![app, hour, kind, n]).await?;
        }
        for ((scope, day, kind, method), n) in self.days {
            let sql = "INSERT INTO event_day (scope, day, kind, method, n) VALUES ($1, $2, $3, $4, $5)
                       ON CONFLICT (scope, day, kind, method) DO UPDATE SET n = event_day.n + $5";
            tx.send(sql, params![scope, day, kind, method, n]).await?;
        }
        for ((app, period, since, account), (n, at)) in self.people {
            // Only of people who are there.
            let sql = "INSERT INTO user_period (app_id, period, since, account_id, events, last_at)
                       SELECT $1, $2, CAST($3 AS BIGINT), id, CAST($5 AS BIGINT), CAST($6 AS BIGINT) FROM account WHERE id = $4
                       ON CONFLICT (app_id, period, since, account_id) DO UPDATE SET events = user_period.events + $5,
                           last_at = CASE WHEN user_period.last_at < $6 THEN $6 ELSE user_period.last_at END";
            tx.send(sql, params![app, period, since, account, n, at]).await?;
        }
        for ((scope, day, gap), by) in self.gaps {
            let sql = "INSERT INTO active_gap (scope, day, gap, users) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (scope, day, gap) DO UPDATE SET users = active_gap.users + $4";
            tx.send(sql, params![scope, day, gap, by]).await?;
        }
        for ((scope, day), PeopleOfDay { seen, new, .. }) in self.active {
            let sql = "INSERT INTO active_day (scope, day, users, new_users) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (scope, day) DO UPDATE SET users = active_day.users + $3,
                           new_users = active_day.new_users + $4";
            tx.send(sql, params![scope, day, seen, new]).await?;
        }
        for ((scope, day, block), by) in self.blocks {
            let sql = "INSERT INTO active_block (scope, day, block, users) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (scope, day, block) DO UPDATE SET users = active_block.users + $4";
            tx.send(sql, params![scope, day, block, by]).await?;
        }
        for (scope, by) in self.totals {
            let sql = "INSERT INTO active_total (scope, users) VALUES ($1, $2)
                       ON CONFLICT (scope) DO UPDATE SET users = active_total.users + $2";
            tx.send(sql, params![scope, by]).await?;
        }
        for ((app, funnel, day, step, within), users) in self.steps {
            let sql =
                "INSERT INTO funnel_day (app_id, funnel, day, step, within, users) VALUES ($1, $2, $3, $4, $5, $6)
                       ON CONFLICT (app_id, funnel, day, step, within) DO UPDATE SET users = funnel_day.users + $6";
            tx.send(sql, params![app, funnel.name(), day, number(step), number(within), users]).await?;
        }
        Ok(())
    }
}

fn number(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

struct KnownSeen {
    last_day: Option<i64>,
    days: Option<i64>,
    before_day: Option<i64>,
}
row!(KnownSeen { last_day, days, before_day });

/// When a person was seen in a scope, if ever. None at all of somebody who has no account.
pub async fn seen(tx: &mut Tx, scope: &str, account: AccountId) -> db::Result<Option<Option<Seen>>> {
    let sql = "SELECT u.last_day, u.days, u.before_day FROM account
               LEFT JOIN active_user u ON u.account_id = account.id AND u.scope = $1 WHERE account.id = $2";
    let found: Option<KnownSeen> = tx.opt(sql, params![scope, account]).await?;
    Ok(found.map(|row| Some(Seen { last: row.last_day?, days: row.days?, before: row.before_day })))
}

pub async fn save_seen(tx: &mut Tx, scope: &str, account: AccountId, seen: Seen) -> db::Result<()> {
    let sql = "INSERT INTO active_user (scope, account_id, last_day, days, before_day) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (scope, account_id) DO UPDATE SET last_day = $3, days = $4, before_day = $5";
    tx.send(sql, params![scope, account, seen.last, seen.days, seen.before]).await
}

impl FromRow for Reached {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let funnel: String = row.get("funnel")?;
        let step: i64 = row.get("step")?;
        Ok(Self {
            funnel: Funnel::read(&funnel).ok_or_else(|| db::Error::Driver(format!("no funnel {funnel}")))?,
            day: row.get("day")?,
            step: usize::try_from(step).unwrap_or_default(),
            at: row.get("at")?,
        })
    }
}

pub async fn steps_of(tx: &mut Tx, app: ApplicationId, account: AccountId) -> db::Result<Vec<Reached>> {
    let sql = "SELECT funnel, day, step, at FROM funnel_step WHERE app_id = $1 AND account_id = $2";
    tx.all(sql, params![app, account]).await
}

pub async fn save_step(tx: &mut Tx, app: ApplicationId, account: AccountId, one: Reached) -> db::Result<()> {
    let sql = "INSERT INTO funnel_step (app_id, account_id, funnel, day, step, at)
               SELECT $1, id, $3, CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT) FROM account WHERE id = $2
               ON CONFLICT DO NOTHING";
    tx.send(sql, params![app, account, one.funnel.name(), one.day, number(one.step), one.at]).await
}

/// Forgets a person. Counts stay.
pub async fn forget_person(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let scopes: Vec<(String,)> =
        tx.put("DELETE FROM active_user WHERE account_id = $1 RETURNING scope", params![account]).await?;
    for (scope,) in scopes {
        tx.send("UPDATE active_total SET users = users - 1 WHERE scope = $1", params![scope]).await?;
    }
    tx.send("DELETE FROM user_period WHERE account_id = $1", params![account]).await?;
    tx.send("DELETE FROM funnel_step WHERE account_id = $1", params![account]).await
}

/// Forgets what is left of an app or an organization. Most of it was deleted before, some rows at a time.
pub async fn forget_scope(tx: &mut Tx, scope: String) -> db::Result<()> {
    take_turn(tx).await?;
    for sql in [
        "DELETE FROM event_tally WHERE app_id = $1",
        "DELETE FROM event_hour WHERE app_id = $1",
        "DELETE FROM event_day WHERE scope = $1",
        "DELETE FROM active_user WHERE scope = $1",
        "DELETE FROM active_gap WHERE scope = $1",
        "DELETE FROM active_day WHERE scope = $1",
        "DELETE FROM active_block WHERE scope = $1",
        "DELETE FROM active_total WHERE scope = $1",
        "DELETE FROM user_period WHERE app_id = $1",
        "DELETE FROM funnel_step WHERE app_id = $1",
        "DELETE FROM funnel_day WHERE app_id = $1",
    ] {
        tx.send(sql, params![scope.clone()]).await?;
    }
    Ok(())
}

pub struct KindCount {
    pub kind: String,
    pub method: String,
    pub n: i64,
}
row!(KindCount { kind, method, n });

/// Events of a scope in a range of days, by type and method.
pub async fn events(db: &Db, scope: &str, from: i64, to: i64) -> db::Result<Vec<KindCount>> {
    let sql = "SELECT kind, method, CAST(SUM(n) AS BIGINT) AS n FROM event_day
               WHERE scope = $1 AND day >= $2 AND day <= $3 GROUP BY kind, method ORDER BY kind, method";
    db.all(sql, params![scope, from, to]).await
}

struct KindOfScope {
    scope: String,
    kind: String,
    method: String,
    n: i64,
}
row!(KindOfScope { scope, kind, method, n });

/// As [`events`], of several scopes.
pub async fn events_of_all(
    db: &Db,
    scopes: &[String],
    from: i64,
    to: i64,
) -> db::Result<HashMap<String, Vec<KindCount>>> {
    let mut all: HashMap<String, Vec<KindCount>> = HashMap::new();
    if scopes.is_empty() {
        return Ok(all);
    }
    let mut question =
        Composed::new("SELECT scope, kind, method, CAST(SUM(n) AS BIGINT) AS n FROM event_day WHERE day >= ");
    question.value(from).sql(" AND day <= ").value(to).sql(" AND scope IN (").values(scopes);
    question.sql(") GROUP BY scope, kind, method");
    for KindOfScope { scope, kind, method, n } in db.find(question).await? {
        all.entry(scope).or_default().push(KindCount { kind, method, n });
    }
    Ok(all)
}

pub struct DayCount {
    pub day: i64,
    pub kind: String,
    pub n: i64,
}
row!(DayCount { day, kind, n });

pub async fn events_by_day(db: &Db, scope: &str, from: i64, to: i64) -> db::Result<Vec<DayCount>> {
    let sql = "SELECT day, kind, CAST(SUM(n) AS BIGINT) AS n FROM event_day
               WHERE scope = $1 AND day >= $2 AND day <= $3 GROUP BY day, kind";
    db.all(sql, params![scope, from, to]).await
}

pub async fn events_by_hour(db: &Db, app: ApplicationId, from: i64, to: i64) -> db::Result<Vec<DayCount>> {
    let sql = "SELECT hour AS day, kind, n FROM event_hour WHERE app_id = $1 AND hour >= $2 AND hour <= $3";
    db.all(sql, params![app, from, to]).await
}

/// How many people were seen in a range of days, each once; and how many of them for the first time.
pub async fn people(db: &Db, scope: &str, from: i64, to: i64) -> db::Result<(i64, i64)> {
    let found = people_of_all(db, &[scope.to_owned()], from, to).await?;
    Ok(found.into_values().next().unwrap_or_default())
}

struct PeopleOfScope {
    scope: String,
    seen: i64,
    new: i64,
}
row!(PeopleOfScope { scope, seen, new });

// The statement below and the migration of its tables count by it.
const _: () = assert!(GAPS_OF_A_BLOCK == 16);

/// As [`people`], of several scopes. Of each day, those are left out who were seen on an earlier day of the range: whole blocks
/// of gaps, and the gaps of the last block.
pub async fn people_of_all(
    db: &Db,
    scopes: &[String],
    from: i64,
    to: i64,
) -> db::Result<HashMap<String, (i64, i64)>> {
    if scopes.is_empty() {
        return Ok(HashMap::new());
    }
    let mut question = Composed::new(
        "SELECT d.scope, CAST(SUM(d.users
             - COALESCE((SELECT SUM(b.users) FROM active_block b
                         WHERE b.scope = d.scope AND b.day = d.day AND b.block < (d.day - $1) / 16), 0)
             - COALESCE((SELECT SUM(g.users) FROM active_gap g
                         WHERE g.scope = d.scope AND g.day = d.day AND g.gap > (d.day - $1) / 16 * 16
                           AND g.gap <= d.day - $1), 0)) AS BIGINT) AS seen,
             CAST(SUM(d.new_users) AS BIGINT) AS new
         FROM active_day d WHERE d.day >= ",
    );
    question.value(from).sql(" AND d.day <= ").value(to).sql(" AND d.scope IN (").values(scopes);
    question.sql(") GROUP BY d.scope");
    let found: Vec<PeopleOfScope> = db.find(question).await?;
    Ok(found.into_iter().map(|PeopleOfScope { scope, seen, new }| (scope, (seen, new))).collect())
}

pub struct PeopleOfDay {
    pub day: i64,
    pub seen: i64,
    pub new: i64,
}
row!(PeopleOfDay { day, seen, new });

pub async fn people_by_day(db: &Db, scope: &str, from: i64, to: i64) -> db::Result<Vec<PeopleOfDay>> {
    let sql =
        "SELECT day, users AS seen, new_users AS new FROM active_day WHERE scope = $1 AND day >= $2 AND day <= $3";
    db.all(sql, params![scope, from, to]).await
}

/// How many people are known in a scope.
pub async fn users(db: &Db, scope: &str) -> db::Result<i64> {
    let found: Option<(i64,)> = db.opt("SELECT users FROM active_total WHERE scope = $1", params![scope]).await?;
    Ok(found.map_or(0, |(users,)| users))
}

struct UsersOfScope {
    scope: String,
    users: i64,
}
row!(UsersOfScope { scope, users });

/// As [`users`], of several scopes.
pub async fn users_of_all(db: &Db, scopes: &[String]) -> db::Result<HashMap<String, i64>> {
    if scopes.is_empty() {
        return Ok(HashMap::new());
    }
    let mut question = Composed::new("SELECT scope, users FROM active_total WHERE scope IN (");
    question.values(scopes).sql(")");
    let found: Vec<UsersOfScope> = db.find(question).await?;
    Ok(found.into_iter().map(|UsersOfScope { scope, users }| (scope, users)).collect())
}

pub struct Top {
    pub account_id: AccountId,
    pub events: i64,
    pub last_at: Timestamp,
}
row!(Top { account_id, events, last_at });

/// The people of an app with the most events in a period, below a place in the list.
pub async fn top(
    db: &Db,
    app: ApplicationId,
    (period, since): (&str, i64),
    below: (i64, &str),
    most: u32,
) -> db::Result<Vec<Top>> {
    let sql = "SELECT p.account_id, p.events, p.last_at FROM user_period p
               WHERE p.app_id = $1 AND p.period = $2 AND p.since = $3 AND (p.events, p.account_id) < ($4, $5)
                 AND EXISTS (SELECT 1 FROM app_user u WHERE u.app_id = $1 AND u.account_id = p.account_id)
               ORDER BY p.events DESC, p.account_id DESC LIMIT $6";
    db.all(sql, params![app, period, since, below.0, below.1, most]).await
}

struct StepCount {
    step: i64,
    users: i64,
}
row!(StepCount { step, users });

/// How many people reached each step of a funnel, of those who began in a range of days.
pub async fn funnel(
    db: &Db,
    app: ApplicationId,
    funnel: Funnel,
    (from, to): (i64, i64),
    within: usize,
) -> db::Result<Vec<i64>> {
    let sql = "SELECT step, CAST(SUM(users) AS BIGINT) AS users FROM funnel_day
               WHERE app_id = $1 AND funnel = $2 AND day >= $3 AND day <= $4 AND within <= $5 GROUP BY step";
    let found: Vec<StepCount> = db.all(sql, params![app, funnel.name(), from, to, number(within)]).await?;
    let of = |place: usize| found.iter().find(|one| one.step == number(place)).map_or(0, |one| one.users);
    Ok((0..funnel.steps().len()).map(of).collect())
}

/// Sets the time zone of an organization from a moment on. One that has not begun to count is replaced.
pub async fn set_zone(tx: &mut Tx, org: OrgId, change: &zones::Change, now: Timestamp) -> db::Result<()> {
    tx.send("DELETE FROM analytics_zone WHERE org_id = $1 AND since > $2", params![org, now]).await?;
    let sql = "INSERT INTO analytics_zone (org_id, since, first_day, zone) VALUES ($1, $2, $3, $4)
               ON CONFLICT (org_id, since) DO UPDATE SET zone = $4, first_day = $3";
    tx.send(sql, params![org, change.since, change.first_day, &change.zone]).await
}
