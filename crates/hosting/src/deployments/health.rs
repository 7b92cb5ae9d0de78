//! How deployments and sites of the caller's organizations are doing.
use axum::extract::State;
use db::{Db, FromRow, Row, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    http::{Json, Key, Listed, Page, Query},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{accounts::AccountId, apps::ApplicationId, enter::Session};

use super::{
    api::OfApp,
    log::{self, LogLine},
    model::{Deployment, DeploymentError, DeploymentId},
    view::DeploymentView,
};
use crate::{
    edge::{EdgeUrl, traffic},
    words::words,
};

const HOUR: std::time::Duration = std::time::Duration::from_hours(1);

words! {
    pub enum Window {
        Hour = "1h",
        Day = "24h",
        Week = "7d",
    }
}

impl Window {
    fn length(self) -> std::time::Duration {
        match self {
            Self::Hour => HOUR,
            Self::Day => 24 * HOUR,
            Self::Week => 7 * 24 * HOUR,
        }
    }
}

words! {
    pub enum HealthStatus {
        Healthy = "healthy",
        /// Less than nine of ten deployments succeeded, or the edge has errors.
        Degraded = "degraded",
        /// Less than half of them did.
        Failing = "failing",
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct HealthQuery {
    window: Option<Window>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    status: HealthStatus,
    window: Window,
    deployments: Counts,
    /// Of those that ended; null if none did.
    success_rate: Option<f64>,
    duration_ms: Durations,
    domains: DomainCounts,
    certificates: CertificateCounts,
    edge: EdgeFigures,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Counts {
    ready: i64,
    failed: i64,
    canceled: i64,
    processing: i64,
}

/// How long it took from the first byte to being served, of those that are ready.
#[derive(Serialize, JsonSchema)]
struct Durations {
    p50: Option<i64>,
    p95: Option<i64>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct DomainCounts {
    active: i64,
    misconfigured: i64,
    failed: i64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CertificateCounts {
    valid: i64,
    /// Less than an eighth of their life is left.
    expiring_soon: i64,
    /// The last order failed.
    failing: i64,
}
row!(CertificateCounts { valid, expiring_soon, failing });

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EdgeFigures {
    requests: i64,
    errors: i64,
    p95_ms: Option<f64>,
}

struct Ended {
    status: String,
    created_at: Timestamp,
    ready_at: Option<Timestamp>,
}
row!(Ended { status, created_at, ready_at });

/// How many deployments a report looks at.
const MOST_LOOKED_AT: u32 = 10_000;

pub async fn show_health(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<HealthQuery>,
) -> Result<Json<Health>> {
    let window = query.window.unwrap_or(Window::Day);
    let since = janua.clock.now().minus(window.length());
    let account = session.account().id;
    let sql = "SELECT d.status, d.created_at, d.ready_at FROM deployment d
               JOIN org_member m ON m.org_id = d.org_id AND m.account_id = $1
               WHERE d.created_at >= $2 ORDER BY d.created_at DESC LIMIT $3";
    let found: Vec<Ended> = janua.db.all(sql, params![account, since, MOST_LOOKED_AT]).await?;
    let count = |status: &str| i64::try_from(found.iter().filter(|one| one.status == status).count()).unwrap_or(0);
    let deployments = Counts {
        ready: count("ready"),
        failed: count("failed"),
        canceled: count("canceled"),
        processing: count("processing") + count("queued"),
    };
    let mut took: Vec<i64> = found.iter().filter_map(|one| Some(one.ready_at?.0 - one.created_at.0)).collect();
    took.sort_unstable();
    let at = |hundredth: usize| took.get((took.len() * hundredth / 100).min(took.len().saturating_sub(1))).copied();
    let apps = apps_with_sites(&janua.db, account).await?;
    let served = traffic::served_since(&janua.db, &apps, since).await?;
    let success_rate = rate(deployments.ready, deployments.ready + deployments.failed);
    let status = match success_rate {
        Some(rate) if rate < 0.5 => HealthStatus::Failing,
        Some(rate) if rate < 0.9 => HealthStatus::Degraded,
        _ if served.errors * 100 > served.requests => HealthStatus::Degraded,
        _ => HealthStatus::Healthy,
    };
    Ok(Json(Health {
        status,
        window,
        success_rate,
        duration_ms: Durations { p50: at(50), p95: at(95) },
        domains: domains(&janua.db, account).await?,
        certificates: certificates(&janua.db, account, janua.clock.now()).await?,
        edge: EdgeFigures { requests: served.requests, errors: served.errors, p95_ms: served.percentile95_ms() },
        deployments,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "at most ten thousand deployments")]
fn rate(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

async fn apps_with_sites(db: &Db, account: AccountId) -> db::Result<Vec<ApplicationId>> {
    let sql =
        "SELECT site.app_id FROM site JOIN org_member m ON m.org_id = site.org_id AND m.account_id = $1 LIMIT 1000";
    let apps: Vec<(ApplicationId,)> = db.all(sql, params![account]).await?;
    Ok(apps.into_iter().map(|(app,)| app).collect())
}

struct ByStatus {
    status: String,
    n: i64,
}
row!(ByStatus { status, n });

async fn domains(db: &Db, account: AccountId) -> db::Result<DomainCounts> {
    let sql = "SELECT d.status, CAST(COUNT(*) AS BIGINT) AS n FROM app_domain d
               JOIN org_member m ON m.org_id = d.org_id AND m.account_id = $1
               WHERE d.is_listed AND d.status IN ('active', 'misconfigured', 'failed') GROUP BY d.status";
    let found: Vec<ByStatus> = db.all(sql, params![account]).await?;
    let count = |status: &str| found.iter().find(|one| one.status == status).map_or(0, |one| one.n);
    Ok(DomainCounts { active: count("active"), misconfigured: count("misconfigured"), failed: count("failed") })
}

/// A certificate is renewed after two thirds of its life; with an eighth left something is wrong.
async fn certificates(db: &Db, account: AccountId, now: Timestamp) -> db::Result<CertificateCounts> {
    let sql = "SELECT CAST(COALESCE(SUM(CASE WHEN c.not_after > $2 THEN 1 ELSE 0 END), 0) AS BIGINT) AS valid,
                      CAST(COALESCE(SUM(CASE WHEN c.not_after > $2 AND (c.not_after - $2) * 8 < c.not_after - c.not_before
                                             THEN 1 ELSE 0 END), 0) AS BIGINT) AS expiring_soon,
                      CAST(COALESCE(SUM(CASE WHEN c.error IS NOT NULL THEN 1 ELSE 0 END), 0) AS BIGINT) AS failing
               FROM certificate c JOIN org_member m ON m.org_id = c.org_id AND m.account_id = $1";
    db.one(sql, params![account, now]).await
}

#[derive(Serialize, JsonSchema)]
struct AppName {
    id: ApplicationId,
    name: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FailureView {
    deployment: DeploymentView,
    app: AppName,
    error: Option<DeploymentError>,
    last_logs: Vec<LogLine>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failures {
    failures: Vec<FailureView>,
    next_cursor: Option<String>,
}

pub async fn list_failures(State(janua): State<Janua>, session: Session, page: Page) -> Result<Json<Failures>> {
    let account = session.account().id;
    let since = janua.clock.now().minus(Window::Week.length());
    let fetch = async |below: Key, most: u32| {
        let sql = "SELECT d.*, app.slug, app.name AS app_name, site.active_id FROM deployment d
                   JOIN org_member m ON m.org_id = d.org_id AND m.account_id = $1
                   JOIN app ON app.id = d.app_id JOIN site ON site.app_id = d.app_id
                   WHERE (d.created_at, d.id) < ($2, $3) AND d.status = 'failed' AND d.created_at >= $4
                   ORDER BY d.created_at DESC, d.id DESC LIMIT $5";
        janua.db.all::<OfApp>(sql, params![account, below.at, &below.id, since, most]).await
    };
    let Listed { rows, next_cursor } =
        page.list(&janua, "deployment-failures", account, fetch, |row: &OfApp| row.deployment.key()).await?;
    let mut failures = vec![];
    for row in rows {
        let last_logs = log::last(&janua.db, row.deployment.id, 5).await?;
        let app = AppName { id: row.deployment.app_id, name: row.name.clone() };
        let error = row.deployment.error.clone();
        failures.push(FailureView { deployment: row.view(&janua), app, error, last_logs });
    }
    Ok(Json(Failures { failures, next_cursor }))
}

#[derive(Serialize, JsonSchema)]
struct SiteOfApp {
    id: ApplicationId,
    name: String,
    slug: String,
    url: String,
}

#[derive(Serialize, JsonSchema)]
struct ReadyAndFailed {
    ready: i64,
    failed: i64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppDeployments {
    app: SiteOfApp,
    active: Option<DeploymentView>,
    latest: Option<DeploymentView>,
    counts: ReadyAndFailed,
    last_deployed_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerApp {
    apps: Vec<AppDeployments>,
    next_cursor: Option<String>,
}

struct SiteRow {
    app_id: ApplicationId,
    name: String,
    slug: String,
    active_id: Option<DeploymentId>,
    created_at: Timestamp,
    ready: i64,
    failed: i64,
}

impl FromRow for SiteRow {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            app_id: row.get("app_id")?,
            name: row.get("name")?,
            slug: row.get("slug")?,
            active_id: row.get("active_id")?,
            created_at: row.get("created_at")?,
            ready: row.get("ready")?,
            failed: row.get("failed")?,
        })
    }
}

/// Apps that have a site, newest first.
pub async fn list_per_app(State(janua): State<Janua>, session: Session, page: Page) -> Result<Json<PerApp>> {
    let account = session.account().id;
    let fetch = async |below: Key, most: u32| {
        let sql = "SELECT site.app_id, app.name, app.slug, site.active_id, site.created_at,
                       (SELECT CAST(COUNT(*) AS BIGINT) FROM deployment d
                        WHERE d.app_id = site.app_id AND d.status = 'ready') AS ready,
                       (SELECT CAST(COUNT(*) AS BIGINT) FROM deployment d
                        WHERE d.app_id = site.app_id AND d.status = 'failed') AS failed
                   FROM site JOIN app ON app.id = site.app_id
                   JOIN org_member m ON m.org_id = site.org_id AND m.account_id = $1
                   WHERE (site.created_at, site.app_id) < ($2, $3)
                   ORDER BY site.created_at DESC, site.app_id DESC LIMIT $4";
        janua.db.all::<SiteRow>(sql, params![account, below.at, &below.id, most]).await
    };
    let key = |row: &SiteRow| Key { at: row.created_at, id: row.app_id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "deployments-per-app", account, fetch, key).await?;
    let edge = EdgeUrl::of(&janua.config);
    let mut apps = vec![];
    for row in rows {
        let view = |deployment| DeploymentView::of(&janua, deployment, &row.slug, row.active_id);
        let active = match row.active_id {
            Some(id) => Deployment::find(&janua.db, id).await?,
            None => None,
        };
        let sql = "SELECT * FROM deployment WHERE app_id = $1 ORDER BY number DESC LIMIT 1";
        let latest: Option<Deployment> = janua.db.opt(sql, params![row.app_id]).await?;
        apps.push(AppDeployments {
            last_deployed_at: latest.as_ref().map(|latest| latest.created_at),
            active: active.map(view),
            latest: latest.map(view),
            counts: ReadyAndFailed { ready: row.ready, failed: row.failed },
            app: SiteOfApp { id: row.app_id, url: edge.url(&row.slug), name: row.name, slug: row.slug },
        });
    }
    Ok(Json(PerApp { apps, next_cursor }))
}
