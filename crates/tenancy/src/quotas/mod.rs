//! Quotas: what an organization may use of each meter by its plan, and what it has used.
//!
//! [`spend`] is the only way to use something up. It counts and checks by one statement in the transaction of the row that
//! causes it, so the counter cannot drift from the rows, two callers cannot pass the limit together, and a rollback undoes it.
mod notices;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::OnceLock,
};

use db::{Composed, Read, Tx, Value, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Fault, Result},
};

pub(crate) use self::notices::{EVENTS, MAILS};
use crate::ids::{ApplicationId, OrgId};

pub const QUOTA_EXCEEDED: Code = Code::new(
    402,
    "quota_exceeded",
    "The organization's plan allows no more of this. Upgrade, or remove something first.",
);

/// The plan of an organization that was never given another one.
pub const FIRST_PLAN: &str = "free";

/// Something that is counted. Features declare the meters that the platform counts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    pub name: Cow<'static, str>,
    pub unit: Cow<'static, str>,
    pub period: Period,
}

impl Meter {
    pub const fn platform(name: &'static str, unit: &'static str, period: Period) -> Self {
        Self { name: Cow::Borrowed(name), unit: Cow::Borrowed(unit), period }
    }
}

/// A limit of plans that nothing is counted for, such as the size of one file. Features declare those that they
/// check, so that a plans file may have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLimit(pub Meter);

pub const MEMBERS: Meter = Meter::platform("members", "members", Period::Gauge);
pub const APPS: Meter = Meter::platform("apps", "apps", Period::Gauge);
pub const KEYS: Meter = Meter::platform("keys", "keys", Period::Gauge);
/// End users who signed in to an app, or renewed a session of it, in a month; counted for each app.
pub const ACTIVE_USERS: Meter = Meter::platform("mau", "users", Period::Month);

pub(crate) const METERS: &[Meter] = &[MEMBERS, APPS, KEYS, ACTIVE_USERS];

/// When a counter begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A calendar month in UTC.
    Month,
    /// A day in UTC.
    Day,
    /// Never: it rises and falls with what is there.
    Gauge,
}

impl Period {
    pub fn name(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Day => "day",
            Self::Gauge => "none",
        }
    }

    /// When the period of this moment began; 0 for a gauge.
    pub fn start(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Month => now.month().0,
            Self::Day => now.day().start(),
            Self::Gauge => Timestamp(0),
        }
    }

    /// When the next one begins.
    pub fn resets_at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Month => Some(now.month().1),
            Self::Day => Some(Timestamp(now.day().start().0 + Timestamp::DAY_MS)),
            Self::Gauge => None,
        }
    }
}

/// How much of a meter a plan has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What the plan includes. Warnings are about this.
    pub included: i64,
    /// Whether more than that is refused.
    pub hard: bool,
    /// Where a soft limit ends.
    pub cap: Option<i64>,
    /// The price of each unit beyond what is included, in minor units of the plan's currency.
    pub overage: Option<String>,
}

impl Limit {
    pub fn hard(included: i64) -> Self {
        Self { included, hard: true, cap: None, overage: None }
    }

    /// From where on more is refused.
    pub fn ceiling(&self) -> Option<i64> {
        if self.hard { Some(self.included) } else { self.cap }
    }
}

/// The limits of all plans, by plan and meter. The feature that reads plans sets them at the start; without it nothing is
/// limited.
#[derive(Default)]
pub struct Limits(OnceLock<Table>);

#[derive(Default)]
struct Table {
    plans: BTreeMap<String, BTreeMap<String, Limit>>,
    limited: BTreeSet<String>,
}

impl Limits {
    /// Only the first call counts.
    pub fn set(&self, plans: BTreeMap<String, BTreeMap<String, Limit>>) {
        let limited = plans.values().flat_map(|limits| limits.keys().cloned()).collect();
        self.0.get_or_init(|| Table { plans, limited });
    }

    pub fn find(&self, plan: &str, meter: &str) -> Option<&Limit> {
        self.0.get()?.plans.get(plan)?.get(meter)
    }

    /// Whether any plan limits it.
    fn has(&self, meter: &str) -> bool {
        self.0.get().is_some_and(|table| table.limited.contains(meter))
    }
}

/// Counters stop here, where numbers are still far from their end: one more request at a time must not overflow them.
const MOST: i64 = i64::MAX - (1 << 53);

/// Whose quota is used: an organization's, and the app of it that uses it. An app with a plan of its own has counters of its
/// own for what begins anew with a month or a day; what is there at any time (gauges) counts for the organization.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    pub org: OrgId,
    pub app: Option<ApplicationId>,
}

impl From<OrgId> for Pool {
    fn from(org: OrgId) -> Self {
        Self { org, app: None }
    }
}

/// What came of an attempt to spend.
#[derive(Debug)]
pub enum Outcome {
    /// It was counted.
    Counted(Used),
    /// It does not fit, and nothing was counted.
    Refused(Used),
}

/// A counter beside its limit. Both are unknown where no plan limits the meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub plan: String,
    pub used: Option<i64>,
    pub limit: Option<Limit>,
}

/// Uses `n` of a meter, or refuses with [`QUOTA_EXCEEDED`]. Call it in the transaction that writes the rows it is about.
pub async fn spend(tx: &mut Tx, janua: &Janua, pool: impl Into<Pool>, meter: &Meter, n: i64) -> Result<()> {
    let pool = pool.into();
    match try_spend(tx, janua, pool, meter, n).await? {
        Outcome::Counted(_) => Ok(()),
        Outcome::Refused(used) => Err(exceeded(janua, pool, meter, &used)),
    }
}

/// The refusal, with what a client needs to show.
pub fn exceeded(janua: &Janua, pool: impl Into<Pool>, meter: &Meter, used: &Used) -> Fault {
    let limit = used.limit.as_ref().and_then(Limit::ceiling).unwrap_or_default();
    let so_far = used.used.unwrap_or_default();
    let upgrade = format!("{}/console/orgs/{}/usage", janua.config.base_url(), pool.into().org);
    QUOTA_EXCEEDED
        .because(format!("{}: {so_far} of {limit} used on the plan {}.", meter.name, used.plan))
        .with_extra("meter", &meter.name)
        .with_extra("limit", &limit)
        .with_extra("used", &so_far)
        .with_extra("resetsAt", &meter.period.resets_at(janua.clock.now()))
        .with_extra("plan", &used.plan)
        .with_extra("upgradeUrl", &upgrade)
}

/// Like [`spend`], for callers that go on when it does not fit.
pub async fn try_spend(tx: &mut Tx, janua: &Janua, pool: Pool, meter: &Meter, n: i64) -> db::Result<Outcome> {
    let now = janua.clock.now();
    let Some(Standing { plan, limit, own }) = standing(&mut *tx, janua, pool, meter).await? else {
        count(tx, pool.org, meter, n, now).await?;
        return Ok(Outcome::Counted(Used { plan: String::new(), used: None, limit: None }));
    };
    let ceiling = limit.as_ref().and_then(Limit::ceiling).unwrap_or(MOST);
    let counted: Vec<Counter> = match own {
        None => {
            tx.put(
                "INSERT INTO quota (org_id, meter, period, used) SELECT $1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT)
                 WHERE CAST($4 AS BIGINT) <= CAST($5 AS BIGINT)
                 ON CONFLICT (org_id, meter, period) DO UPDATE SET used = quota.used + $4 WHERE quota.used <= $5 - $4
                 RETURNING used, told, told_limit, told_month",
                params![pool.org, &*meter.name, meter.period.start(now), n, ceiling],
            )
            .await?
        }
        Some(app) => {
            tx.put(
                "INSERT INTO app_quota (app_id, org_id, meter, period, used)
                 SELECT $1, $6, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT) WHERE CAST($4 AS BIGINT) <= CAST($5 AS BIGINT)
                 ON CONFLICT (app_id, meter, period) DO UPDATE SET used = app_quota.used + $4
                   WHERE app_quota.used <= $5 - $4
                 RETURNING used, told, told_limit, told_month",
                params![app, &*meter.name, meter.period.start(now), n, ceiling, pool.org],
            )
            .await?
        }
    };
    let Some(counter) = counted.into_iter().next() else {
        let used = match own {
            Some(app) => used_by_app(&mut *tx, app, meter, now).await?,
            None => used(&mut *tx, pool.org, meter, now).await?,
        };
        return Ok(Outcome::Refused(Used { plan, used: Some(used), limit }));
    };
    if let Some(limit) = &limit {
        notices::tell(tx, janua, &LimitedMeter { pool, own, plan: &plan, meter, limit }, &counter).await?;
    }
    Ok(Outcome::Counted(Used { plan, used: Some(counter.used), limit }))
}

/// Counts without a limit: for what is never refused, as the sign-in of a user that an app has already. Warnings are sent
/// all the same.
pub async fn spend_beyond(
    tx: &mut Tx,
    janua: &Janua,
    pool: impl Into<Pool>,
    meter: &Meter,
    n: i64,
) -> db::Result<()> {
    let (pool, now) = (pool.into(), janua.clock.now());
    let (plan, limit, own) = match standing(&mut *tx, janua, pool, meter).await? {
        Some(Standing { plan, limit, own }) if limit.is_some() || own.is_some() => (plan, limit, own),
        _ => return count(tx, pool.org, meter, n, now).await,
    };
    let (start, most) = (meter.period.start(now), MOST - n.max(0));
    let counted: Vec<Counter> = match own {
        None => {
            tx.put(
                "INSERT INTO quota (org_id, meter, period, used) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (org_id, meter, period) DO UPDATE SET
                   used = CASE WHEN quota.used > $5 THEN quota.used ELSE quota.used + $4 END
                 RETURNING used, told, told_limit, told_month",
                params![pool.org, &*meter.name, start, n, most],
            )
            .await?
        }
        Some(app) => {
            tx.put(
                "INSERT INTO app_quota (app_id, org_id, meter, period, used) VALUES ($1, $6, $2, $3, $4)
                 ON CONFLICT (app_id, meter, period) DO UPDATE SET
                   used = CASE WHEN app_quota.used > $5 THEN app_quota.used ELSE app_quota.used + $4 END
                 RETURNING used, told, told_limit, told_month",
                params![app, &*meter.name, start, n, most, pool.org],
            )
            .await?
        }
    };
    match (counted.first(), &limit) {
        (Some(counter), Some(limit)) => {
            notices::tell(tx, janua, &LimitedMeter { pool, own, plan: &plan, meter, limit }, counter).await
        }
        _ => Ok(()),
    }
}

/// A meter with its limit, for the warning when it is nearly used up.
struct LimitedMeter<'a> {
    pool: Pool,
    /// The app whose counter it is, where it has one of its own.
    own: Option<ApplicationId>,
    plan: &'a str,
    meter: &'a Meter,
    limit: &'a Limit,
}

/// Nobody asks how far it has come, so this waits for nothing.
async fn count(tx: &mut Tx, org: OrgId, meter: &Meter, n: i64, now: Timestamp) -> db::Result<()> {
    tx.send(
        "INSERT INTO quota (org_id, meter, period, used) VALUES ($1, $2, $3, $4)
         ON CONFLICT (org_id, meter, period) DO UPDATE SET
           used = CASE WHEN quota.used > $5 THEN quota.used ELSE quota.used + $4 END",
        params![org, &*meter.name, meter.period.start(now), n, MOST - n.max(0)],
    )
    .await
}

/// Gives back `n` of a gauge, in the transaction that deletes the rows.
pub async fn give_back(tx: &mut Tx, org: OrgId, meter: &Meter, n: i64) -> db::Result<()> {
    if n == 0 {
        return Ok(());
    }
    let sql = "UPDATE quota SET used = CASE WHEN used > $3 THEN used - $3 ELSE 0 END
               WHERE org_id = $1 AND meter = $2 AND period = 0";
    tx.send(sql, params![org, &*meter.name, n]).await
}

/// The plan that counts for a pool, its limit on a meter, and the app whose own counter is used.
struct Standing {
    plan: String,
    limit: Option<Limit>,
    own: Option<ApplicationId>,
}

struct Plans {
    tier: String,
    plan: Option<String>,
}
row!(Plans { tier, plan });

/// Nothing where no plan limits the meter: then neither the organization nor the app is looked at.
async fn standing(mut from: impl Read, janua: &Janua, pool: Pool, meter: &Meter) -> db::Result<Option<Standing>> {
    let Some(limits) = janua.find::<Limits>().filter(|limits| limits.has(&meter.name)) else { return Ok(None) };
    let plans: Option<Plans> = match pool.app.filter(|_| meter.period != Period::Gauge) {
        Some(app) => {
            let sql = "SELECT org.tier, app.plan FROM org LEFT JOIN app ON app.id = $2 AND app.org_id = org.id
                       WHERE org.id = $1";
            from.opt(sql, params![pool.org, app]).await?
        }
        None => from.opt("SELECT tier, NULL AS plan FROM org WHERE id = $1", params![pool.org]).await?,
    };
    let plans = plans.unwrap_or_else(|| Plans { tier: FIRST_PLAN.to_owned(), plan: None });
    let of_app = plans.plan.filter(|plan| !plan.is_empty());
    let own = pool.app.filter(|_| of_app.is_some());
    let plan = of_app.unwrap_or(plans.tier);
    Ok(Some(Standing { limit: limits.find(&plan, &meter.name).cloned(), plan, own }))
}

/// The plan that counts for a pool and its limit on a meter. Nothing where no plan limits the meter.
pub async fn limit_of(
    tx: &mut Tx,
    janua: &Janua,
    pool: impl Into<Pool>,
    meter: &Meter,
) -> db::Result<Option<(String, Option<Limit>)>> {
    Ok(standing(&mut *tx, janua, pool.into(), meter).await?.map(|standing| (standing.plan, standing.limit)))
}

/// From where on an organization's plan refuses more of a meter; none where it does not.
pub async fn ceiling_of(mut from: impl Read, janua: &Janua, org: OrgId, meter: &Meter) -> db::Result<Option<i64>> {
    let Some(limits) = janua.find::<Limits>().filter(|limits| limits.has(&meter.name)) else { return Ok(None) };
    let plan: Option<(String,)> = from.opt("SELECT tier FROM org WHERE id = $1", params![org]).await?;
    let plan = plan.map_or_else(|| FIRST_PLAN.to_owned(), |(plan,)| plan);
    Ok(limits.find(&plan, &meter.name).and_then(Limit::ceiling))
}

/// A counter after it was moved, and the last warning about it.
struct Counter {
    used: i64,
    told: i64,
    told_limit: i64,
    told_month: i64,
}
row!(Counter { used, told, told_limit, told_month });

/// How much of a meter an organization has used in the present period.
pub async fn used(mut from: impl Read, org: OrgId, meter: &Meter, now: Timestamp) -> db::Result<i64> {
    let sql = "SELECT used FROM quota WHERE org_id = $1 AND meter = $2 AND period = $3";
    let used: Option<(i64,)> = from.opt(sql, params![org, &*meter.name, meter.period.start(now)]).await?;
    Ok(used.map_or(0, |(used,)| used))
}

/// How much of a meter an app with a plan of its own has used in the present period.
pub async fn used_by_app(mut from: impl Read, app: ApplicationId, meter: &Meter, now: Timestamp) -> db::Result<i64> {
    let sql = "SELECT used FROM app_quota WHERE app_id = $1 AND meter = $2 AND period = $3";
    let used: Option<(i64,)> = from.opt(sql, params![app, &*meter.name, meter.period.start(now)]).await?;
    Ok(used.map_or(0, |(used,)| used))
}

struct UsedInPeriod {
    meter: String,
    period: i64,
    used: i64,
}
row!(UsedInPeriod { meter, period, used });

/// How much of several meters was used in the present period of each.
pub struct UsedNow(HashMap<(String, i64), i64>, Timestamp);

impl UsedNow {
    /// By an organization.
    pub async fn of_org(db: &db::Db, org: OrgId, meters: &[&Meter], now: Timestamp) -> db::Result<Self> {
        let sql = "SELECT meter, period, used FROM quota WHERE org_id = ";
        Self::read(db, sql, org.into(), meters, now).await
    }

    /// By an app with a plan of its own.
    pub async fn of_app(db: &db::Db, app: ApplicationId, meters: &[&Meter], now: Timestamp) -> db::Result<Self> {
        let sql = "SELECT meter, period, used FROM app_quota WHERE app_id = ";
        Self::read(db, sql, app.into(), meters, now).await
    }

    async fn read(db: &db::Db, sql: &'static str, id: Value, meters: &[&Meter], now: Timestamp) -> db::Result<Self> {
        if meters.is_empty() {
            return Ok(Self(HashMap::new(), now));
        }
        let mut question = Composed::new(sql);
        question.value(id).sql(" AND meter IN (").values(meters.iter().map(|meter| &*meter.name));
        let periods = [Period::Month, Period::Day, Period::Gauge].map(|period| period.start(now));
        question.sql(") AND period IN (").values(periods).sql(")");
        let found: Vec<UsedInPeriod> = db.find(question).await?;
        let used = found.into_iter().map(|UsedInPeriod { meter, period, used }| ((meter, period), used));
        Ok(Self(used.collect(), now))
    }

    pub fn of(&self, meter: &Meter) -> i64 {
        self.0.get(&(meter.name.to_string(), meter.period.start(self.1).0)).copied().unwrap_or_default()
    }
}

/// How much of a meter an organization used, with its apps.
pub struct UsedByOrg {
    pub org_id: OrgId,
    pub meter: String,
    pub used: i64,
}
row!(UsedByOrg { org_id, meter, used });

/// How much of these meters every organization has used in the periods that began from one moment to another. A gauge has
/// one period, which began at 0.
pub async fn used_by_all(
    db: &db::Db,
    meters: &[&Meter],
    from: Timestamp,
    to: Timestamp,
) -> db::Result<Vec<UsedByOrg>> {
    if meters.is_empty() {
        return Ok(vec![]);
    }
    // The condition of the index, which only a literal meets.
    let of_orgs = if from.0 > 0 {
        "SELECT org_id, meter, used FROM quota WHERE used > 0 AND period > 0 AND period >= "
    } else {
        "SELECT org_id, meter, used FROM quota WHERE used > 0 AND period >= "
    };
    let of_apps = " UNION ALL SELECT org_id, meter, used FROM app_quota WHERE used > 0 AND period >= ";
    let mut question = Composed::new("SELECT org_id, meter, CAST(SUM(used) AS BIGINT) AS used FROM (");
    for part in [of_orgs, of_apps] {
        question.sql(part).value(from).sql(" AND period < ").value(to);
        question.sql(" AND meter IN (").values(meters.iter().map(|meter| &*meter.name)).sql(")");
    }
    question.sql(") AS counted GROUP BY org_id, meter");
    db.find(question).await
}

/// The secret keys that end after a restore were counted. Nobody is served while this runs.
pub(crate) async fn recount_keys(db: &db::Db) -> db::Result<()> {
    let sql =
        "UPDATE quota SET used = (SELECT CAST(COUNT(*) AS BIGINT) FROM app JOIN app_key ON app_key.app_id = app.id
                                        WHERE app.org_id = quota.org_id)
               WHERE meter = 'keys' AND period = 0";
    db.exec(sql, params![]).await?;
    Ok(())
}

/// Counters of periods that ended are kept this long.
pub(crate) const KEPT: std::time::Duration = std::time::Duration::from_hours(24 * 400);
