//! Overviews of an app, an organization and the platform: figures of the last 30 days by day, beside those of the 30 days
//! before.
use std::collections::BTreeMap;

use axum::extract::State;
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::{Day, Timestamp},
    fault::Result,
    http::{Json, Routes},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    apps::ApplicationId,
    enter::{InApp, InOrg, Member, PlatformOwner},
    events::figures::{self, DayFigures, Figures, MOST_EVENTS},
};

use crate::webhooks::DeliveryId;

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps/{appId}/overview", app_overview, "figures of an app, by day")
        .and(Routes::new("org").get("/org/{id}/overview", org_overview, "figures of an organization's apps, by day"))
        .and(Routes::new("platform").get("/admin/overview", platform_overview, "figures of the platform, by day"))
}

/// How many days an overview shows.
const DAYS: i64 = 30;

/// A figure by day.
#[derive(Debug, Serialize, JsonSchema)]
struct Series {
    /// In the whole period.
    total: i64,
    /// In the period before; null where it is not kept that long.
    before: Option<i64>,
    /// One number for each of `days`.
    days: Vec<i64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Overview {
    /// The days of the period, oldest first. The last one is today, in UTC.
    days: Vec<Day>,
    sign_ins: Series,
    failed_sign_ins: Series,
    /// Users who signed in to an app for the first time; on the platform, new accounts.
    new_users: Series,
    /// Users who signed in.
    active_users: Series,
    deliveries: Series,
    failed_deliveries: Series,
    /// Users of the app, or accounts of the platform. Counting stops at 100,000.
    users: Option<i64>,
    members: Option<i64>,
    orgs: Option<i64>,
    apps: Option<i64>,
    /// Whether there were more events than are counted (the newest 50,000).
    is_capped: bool,
}

/// The period: its first day, and that of the period before.
#[derive(Clone, Copy)]
struct Period {
    first: Day,
    before: Day,
}

impl Period {
    fn until(now: Timestamp) -> Self {
        let first = now.day().0 - DAYS + 1;
        Self { first: Day(first), before: Day(first - DAYS) }
    }

    fn days(self) -> Vec<Day> {
        (0..DAYS).map(|at| Day(self.first.0 + at)).collect()
    }

    fn series(self, by_day: &BTreeMap<i64, i64>) -> Series {
        let days: Vec<_> =
            self.days().into_iter().map(|day| by_day.get(&day.0).copied().unwrap_or_default()).collect();
        let before = by_day.range(self.before.0..self.first.0).map(|(_, n)| n).sum();
        Series { total: days.iter().sum(), before: Some(before), days }
    }
}

#[derive(Default)]
struct Deliveries {
    all: BTreeMap<i64, i64>,
    failed: BTreeMap<i64, i64>,
}

struct Counted {
    day: i64,
    state: String,
    n: i64,
}
row!(Counted { day, state, n });

impl Deliveries {
    fn add(&mut self, counted: Vec<Counted>) {
        for Counted { day, state, n } in counted {
            *self.all.entry(day).or_default() += n;
            if matches!(state.as_str(), "failed" | "dropped") {
                *self.failed.entry(day).or_default() += n;
            }
        }
    }

    /// Attempts at the webhooks of an app, newest first, by webhook: an app has a limited number of them.
    async fn add_app(&mut self, db: &Db, app: ApplicationId, since: Timestamp, most: u32) -> db::Result<()> {
        let sql = "SELECT id FROM webhook WHERE app_id = $1 ORDER BY created_at DESC, id DESC LIMIT 20";
        let webhooks: Vec<(String,)> = db.all(sql, params![app]).await?;
        for (webhook,) in webhooks {
            let sql = "SELECT day, state, CAST(COUNT(*) AS BIGINT) AS n
                       FROM (SELECT delivered_at / 86400000 AS day, state FROM webhook_delivery
                             WHERE webhook_id = $1 AND delivered_at IS NOT NULL AND delivered_at >= $2
                             ORDER BY delivered_at DESC, id DESC LIMIT $3) d
                       GROUP BY day, state";
            self.add(db.all(sql, params![webhook, since, most]).await?);
        }
        Ok(())
    }

    /// All deliveries, by their ids, which are in the order of time.
    async fn add_platform(&mut self, db: &Db, since: Timestamp) -> db::Result<()> {
        let sql = "SELECT day, state, CAST(COUNT(*) AS BIGINT) AS n
                   FROM (SELECT created_at / 86400000 AS day, state FROM webhook_delivery WHERE id >= $1
                         ORDER BY id DESC LIMIT $2) d
                   GROUP BY day, state";
        self.add(db.all(sql, params![DeliveryId::first_of(since), MOST_EVENTS]).await?);
        Ok(())
    }
}

impl Overview {
    fn of(
        period: Period,
        figures: &Figures,
        new_users: Option<&BTreeMap<i64, i64>>,
        deliveries: &Deliveries,
    ) -> Self {
        let of_each = |pick: fn(&DayFigures) -> i64| {
            period.series(&figures.days.iter().map(|(day, on)| (*day, pick(on))).collect())
        };
        // Users are counted once in a period, however often they sign in.
        let active = of_each(|on| on.active);
        let active_users = Series { total: figures.active.0, before: Some(figures.active.1), ..active };
        // Deliveries are kept for 30 days.
        let of_deliveries = |by_day| Series { before: None, ..period.series(by_day) };
        Self {
            days: period.days(),
            sign_ins: of_each(|on| on.sign_ins),
            failed_sign_ins: of_each(|on| on.failed_sign_ins),
            new_users: new_users.map_or_else(|| of_each(|on| on.new_accounts), |by_day| period.series(by_day)),
            active_users,
            deliveries: of_deliveries(&deliveries.all),
            failed_deliveries: of_deliveries(&deliveries.failed),
            users: None,
            members: None,
            orgs: None,
            apps: None,
            is_capped: figures.is_capped,
        }
    }
}

async fn app_overview(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<Overview>> {
    let (db, app, period) = (&janua.db, caller.application.id, Period::until(janua.clock.now()));
    let (since, middle) = (period.before.start(), period.first.start());
    let figures = Figures::of_app(db, app, since, middle, MOST_EVENTS).await?;
    let new_users = figures::new_users_of_app(db, app, since).await?;
    let new_users = new_users.into_iter().map(|(day, n)| (day.0, n)).collect();
    let mut deliveries = Deliveries::default();
    deliveries.add_app(db, app, middle, MOST_EVENTS / 20).await?;
    let users = Some(figures::users_of_app(db, app).await?);
    Ok(Json(Overview { users, ..Overview::of(period, &figures, Some(&new_users), &deliveries) }))
}

async fn org_overview(State(janua): State<Janua>, caller: InOrg<Member>) -> Result<Json<Overview>> {
    let (db, org, period) = (&janua.db, caller.org().id, Period::until(janua.clock.now()));
    let (since, middle) = (period.before.start(), period.first.start());
    let figures = Figures::of_org(db, org, since, middle).await?;
    let (mut new_users, mut deliveries) = (BTreeMap::new(), Deliveries::default());
    for app in figures::newest_apps(db, org).await? {
        for (day, n) in figures::new_users_of_app(db, app, since).await? {
            *new_users.entry(day.0).or_default() += n;
        }
        deliveries.add_app(db, app, middle, MOST_EVENTS / 50).await?;
    }
    let members = Some(figures::members_of_org(db, org).await?);
    let apps = Some(figures::apps_of_org(db, org).await?);
    Ok(Json(Overview { members, apps, ..Overview::of(period, &figures, Some(&new_users), &deliveries) }))
}

async fn platform_overview(State(janua): State<Janua>, _owner: PlatformOwner) -> Result<Json<Overview>> {
    let (db, period) = (&janua.db, Period::until(janua.clock.now()));
    let figures = Figures::of_platform(db, period.before.start(), period.first.start()).await?;
    let mut deliveries = Deliveries::default();
    deliveries.add_platform(db, period.first.start()).await?;
    let (users, orgs, apps) = figures::totals(db).await?;
    let (users, orgs, apps) = (Some(users), Some(orgs), Some(apps));
    Ok(Json(Overview { users, orgs, apps, ..Overview::of(period, &figures, None, &deliveries) }))
}
