//! The rows of `/deployments`: lists over all organizations of the caller, one deployment, its log, going back to it.
use std::fmt::Write as _;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use db::{Db, FromRow, Row, params};
use futures_util::stream;
use kernel::{
    Janua,
    fault::{Code, FORBIDDEN, NOT_FOUND, Result},
    http::{Json, Key, Listed, MaybeJson, Page, Path, Query, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::AccountId,
    apps::{Application, ApplicationId},
    enter::Session,
    events::About,
    orgs::{Membership, Org, Role},
    quotas::QUOTA_EXCEEDED,
};

use super::{
    deploy::{self, DEPLOY_LOCKED, TOO_MANY_DEPLOYS, complete, refuse_locked},
    events::{DeploymentCanceled, DeploymentCreated},
    files::{self, FileChanges},
    health,
    log::{self, LogLine, NewLine, Stage},
    model::{Built, Deployment, DeploymentError, DeploymentId, SourceKind, Status, Target},
    process::CANCELED,
    view::DeploymentView,
};
use crate::{
    codehost::{self, NOT_CONFIGURED},
    edge::{manifest::Sha256, site::Site},
};

const NOT_REDEPLOYABLE: Code =
    Code::new(409, "deployment_not_redeployable", "This deployment has no files to deploy again.");
const NOT_CANCELABLE: Code =
    Code::new(409, "deployment_not_cancelable", "This deployment has ended. Deploy an earlier one again to go back.");
const EXPIRED: Code =
    Code::new(410, "deployment_expired", "The files of this deployment were deleted. Deploy them again.");

pub fn routes() -> Routes {
    Routes::new("deployments")
        .get("/deployments", list_deployments, "list deployments of all organizations of the caller, newest first")
        .get("/deployments/health", health::show_health, "figures of deployments and sites")
        .get("/deployments/recent-failures", health::list_failures, "list failed deployments of the last seven days")
        .get("/deployments/per-app", health::list_per_app, "list apps with their live and their latest deployment")
        .get("/deployments/{id}", show_deployment, "show a deployment")
        .get("/deployments/{id}/logs", show_logs, "show the log of a deployment")
        .answers::<Logs>(200, "application/json")
        .answers::<String>(200, "text/plain")
        .answers::<String>(200, "text/event-stream")
        .get("/deployments/{id}/files", show_files, "compare the files of a deployment with those of the one before")
        .fails(&[EXPIRED])
        .post("/deployments/{id}/redeploy", redeploy, "deploy the files of an earlier deployment again")
        .answers::<DeploymentView>(200, "application/json")
        .answers::<DeploymentView>(202, "application/json")
        .fails(&[
            NOT_REDEPLOYABLE,
            EXPIRED,
            DEPLOY_LOCKED,
            TOO_MANY_DEPLOYS,
            QUOTA_EXCEEDED,
            NOT_CONFIGURED,
            FORBIDDEN,
        ])
        .post("/deployments/{id}/cancel", cancel, "stop a deployment that is under way")
        .fails(&[NOT_CANCELABLE, FORBIDDEN])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    /// Only deployments of this app.
    app_id: Option<ApplicationId>,
    status: Option<Status>,
    target: Option<Target>,
    #[schemars(length(max = 255))]
    branch: Option<String>,
}

/// A deployment with what is shown of its app.
pub struct OfApp {
    pub deployment: Deployment,
    pub slug: String,
    pub name: String,
    pub active_id: Option<DeploymentId>,
}

impl FromRow for OfApp {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let (slug, name, active_id) = (row.get("slug")?, row.get("app_name")?, row.get("active_id")?);
        Ok(Self { slug, name, active_id, deployment: Deployment::from_row(row)? })
    }
}

impl OfApp {
    pub fn view(self, janua: &Janua) -> DeploymentView {
        DeploymentView::of(janua, self.deployment, &self.slug, self.active_id)
    }

    async fn page(db: &Db, account: AccountId, query: &ListQuery, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT d.*, app.slug, app.name AS app_name, site.active_id FROM deployment d
             JOIN org_member m ON m.org_id = d.org_id AND m.account_id = $1
             JOIN app ON app.id = d.app_id JOIN site ON site.app_id = d.app_id
             WHERE (d.created_at, d.id) < ($2, $3) AND ($4 = '' OR d.app_id = $4) AND ($5 = '' OR d.status = $5)
               AND ($6 = '' OR d.target = $6) AND ($7 = '' OR d.branch = $7)
             ORDER BY d.created_at DESC, d.id DESC LIMIT $8",
            params![
                account,
                below.at,
                &below.id,
                query.app_id.map(|app| app.to_string()).unwrap_or_default(),
                query.status.map(Status::name).unwrap_or_default(),
                query.target.map(Target::name).unwrap_or_default(),
                query.branch.clone().unwrap_or_default(),
                most
            ],
        )
        .await
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Deployments {
    deployments: Vec<DeploymentView>,
    next_cursor: Option<String>,
}

async fn list_deployments(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<ListQuery>,
    page: Page,
) -> Result<Json<Deployments>> {
    let account = session.account().id;
    let fetch = async |below, most| OfApp::page(&janua.db, account, &query, &below, most).await;
    let filter = format!(
        "{:?}\n{:?}\n{:?}\n{}",
        query.app_id.map(|app| app.to_string()),
        query.status,
        query.target,
        query.branch.as_deref().unwrap_or_default()
    );
    let scope = Scope::from(account).found_by(&filter);
    let Listed { rows, next_cursor } =
        page.list(&janua, "deployments", scope, fetch, |row: &OfApp| row.deployment.key()).await?;
    let deployments = rows.into_iter().map(|row| row.view(&janua)).collect();
    Ok(Json(Deployments { deployments, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
pub struct DeploymentPath {
    id: DeploymentId,
}

/// A deployment of an organization that the caller is a member of, and its app.
async fn reach(janua: &Janua, session: &Session, id: DeploymentId, least: Role) -> Result<(Deployment, Application)> {
    let deployment = Deployment::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let membership = Membership::of(&janua.db, deployment.org_id, session.account().id).await?.ok_or(NOT_FOUND)?;
    if membership.role < least {
        return Err(FORBIDDEN.into());
    }
    let app = Application::find(&janua.db, deployment.app_id).await?.ok_or(NOT_FOUND)?;
    Ok((deployment, app))
}

/// How many rules a deployment was read with.
#[derive(Serialize, JsonSchema)]
struct ReadWith {
    redirects: i64,
    headers: i64,
}

#[derive(Serialize, JsonSchema)]
struct DeploymentDetail {
    #[serde(flatten)]
    deployment: DeploymentView,
    settings: ReadWith,
}

async fn show_deployment(
    State(janua): State<Janua>,
    session: Session,
    Path(DeploymentPath { id }): Path<DeploymentPath>,
) -> Result<Json<DeploymentDetail>> {
    let (deployment, app) = reach(&janua, &session, id, Role::Member).await?;
    let settings = ReadWith { redirects: deployment.redirects, headers: deployment.headers };
    let active = deploy::active_of(&janua, app.id).await?;
    let deployment = DeploymentView::of(&janua, deployment, &app.slug, active);
    Ok(Json(DeploymentDetail { deployment, settings }))
}

async fn show_files(
    State(janua): State<Janua>,
    session: Session,
    Path(DeploymentPath { id }): Path<DeploymentPath>,
) -> Result<Json<FileChanges>> {
    let (deployment, _) = reach(&janua, &session, id, Role::Member).await?;
    let live = deployment.live_manifest().ok_or(EXPIRED)?;
    files::compare(&janua, &deployment, &live).await.map(Json)
}

#[derive(Deserialize, JsonSchema)]
struct LogQuery {
    /// Only lines after this number.
    #[schemars(range(min = 0, max = 1_000_000))]
    after: Option<i64>,
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "a list is named after what it lists")]
struct Logs {
    logs: Vec<LogLine>,
    /// Where to go on: a value for `after`.
    next_cursor: Option<i64>,
    /// Whether no more lines will come.
    complete: bool,
}

async fn show_logs(
    State(janua): State<Janua>,
    session: Session,
    Path(DeploymentPath { id }): Path<DeploymentPath>,
    Query(query): Query<LogQuery>,
    accept: Accept,
) -> Result<Response> {
    let (deployment, _) = reach(&janua, &session, id, Role::Member).await?;
    let (after, most) = (query.after.unwrap_or(0), query.limit.unwrap_or(2000));
    let logs = log::read(&janua.db, id, after, most).await?;
    match accept {
        Accept::Json => {
            let next_cursor = logs.last().filter(|_| logs.len() == most as usize).map(|line| line.seq);
            let complete = !is_open(deployment.status) && next_cursor.is_none();
            Ok(Json(Logs { logs, next_cursor, complete }).into_response())
        }
        Accept::Text => {
            let mut text = String::new();
            for line in &logs {
                let _ = writeln!(text, "{} {:5} {}{}", line.at, line.level.name(), line.message, path_of(line));
            }
            Ok(typed(text.into(), "text/plain; charset=utf-8"))
        }
        Accept::Events => Ok(typed(tail(janua, id, after), "text/event-stream")),
    }
}

fn path_of(line: &LogLine) -> String {
    line.path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default()
}

fn is_open(status: Status) -> bool {
    matches!(status, Status::Queued | Status::Processing)
}

fn typed(body: Body, kind: &'static str) -> Response {
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Lines as server-sent events, until the deployment has ended or twenty seconds are over: a browser then asks again from the
/// last line it has.
fn tail(janua: Janua, id: DeploymentId, after: i64) -> Body {
    const LOOKS: u32 = 20;
    let lines = stream::unfold((after, 0_u32, false), move |(after, looks, is_over)| {
        let janua = janua.clone();
        async move {
            if is_over || looks > LOOKS {
                return None;
            }
            if looks > 0 {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            let found = Deployment::find(&janua.db, id).await.ok().flatten();
            let lines = log::read(&janua.db, id, after, 500).await.unwrap_or_default();
            let after = lines.last().map_or(after, |line| line.seq);
            let mut text = String::new();
            for line in &lines {
                let data = serde_json::to_string(line).unwrap_or_default();
                let _ = write!(text, "id: {}\ndata: {data}\n\n", line.seq);
            }
            let is_over = !found.is_some_and(|deployment| is_open(deployment.status));
            if is_over {
                text.push_str("event: complete\ndata: {}\n\n");
            } else if text.is_empty() {
                text.push_str(": waiting\n\n");
            }
            Some((Ok::<_, std::convert::Infallible>(text), (after, looks + 1, is_over)))
        }
    });
    Body::from_stream(lines)
}

/// The form that the answer is wanted in.
enum Accept {
    Json,
    Text,
    Events,
}

impl axum::extract::FromRequestParts<Janua> for Accept {
    type Rejection = kernel::fault::Fault;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &Janua) -> Result<Self> {
        Ok(Self::of(&parts.headers))
    }
}

impl Accept {
    fn of(headers: &HeaderMap) -> Self {
        let wanted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        match wanted.split([',', ';']).next().unwrap_or_default().trim() {
            "text/plain" => Self::Text,
            "text/event-stream" => Self::Events,
            _ => Self::Json,
        }
    }
}

impl kernel::http::OperationInput for Accept {}

#[derive(Deserialize, JsonSchema)]
struct Redeploy {
    /// `preview` leaves production as it is.
    target: Option<Target>,
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

/// A new deployment with the files of an earlier one, live at once: the way back. Nothing is copied. If the files
/// of the earlier one did not come from the code host, they are fetched again by a job (202).
async fn redeploy(
    State(janua): State<Janua>,
    session: Session,
    Path(DeploymentPath { id }): Path<DeploymentPath>,
    MaybeJson(wanted): MaybeJson<Redeploy>,
) -> Result<Response> {
    let (_, app) = reach(&janua, &session, id, Role::Admin).await?;
    let wanted = wanted.unwrap_or(Redeploy { target: None, reason: None });
    let by = session.by();
    let (made, status) = transact!(janua, async |tx| {
        Org::hold(tx, app.org_id).await?;
        let app = Application::hold(tx, app.id).await?.ok_or(NOT_FOUND)?;
        let role = Membership::of(&mut *tx, app.org_id, session.account().id).await?.ok_or(NOT_FOUND)?.role;
        if role < Role::Admin {
            return Err(FORBIDDEN.into());
        }
        let earlier = Deployment::find(&mut *tx, id).await?.ok_or(NOT_FOUND)?;
        if codehost::was_not_fetched(&earlier) {
            let again = codehost::begin_again(tx, &janua, &by, &app, &earlier, wanted.target).await?;
            return Ok((again.ok_or(NOT_REDEPLOYABLE)?, StatusCode::ACCEPTED));
        }
        let built = files_of(tx, &earlier).await?;
        let (site, _) = Site::provision(tx, &janua, &app).await?;
        refuse_locked(&site)?;
        let now = janua.clock.now();
        let deployment = Deployment {
            source: SourceKind::Redeploy,
            account_id: Some(session.account().id),
            redeploy_of: Some(earlier.id),
            target: wanted.target.unwrap_or(Target::Production),
            commit: earlier.commit.clone(),
            archive_sha256: earlier.archive_sha256.clone(),
            ..deploy::new(tx, &janua, &app, now).await?
        };
        deployment.insert(tx).await?;
        let event =
            DeploymentCreated { deployment_id: deployment.id, number: deployment.number, target: deployment.target };
        session.record_about(tx, &janua, About::app(&app), &event).await?;
        let because = wanted.reason.as_ref().map(|reason| format!(" Reason: {reason}")).unwrap_or_default();
        let line =
            NewLine::info(&janua, Stage::Store, format!("The files of deployment {}.{because}", earlier.number));
        complete(tx, &janua, &by, &deployment, &built, None, &[line]).await?;
        Ok((deployment.id, StatusCode::OK))
    })?;
    let shown = deploy::show(&janua, &app, made).await?;
    Ok((status, Json(shown)).into_response())
}

/// Ends a deployment that is received or fetched: it never goes live, and the request that sends it is refused.
async fn cancel(
    State(janua): State<Janua>,
    session: Session,
    Path(DeploymentPath { id }): Path<DeploymentPath>,
) -> Result<Json<DeploymentView>> {
    let (_, app) = reach(&janua, &session, id, Role::Admin).await?;
    transact!(janua, async |tx| {
        Org::hold(tx, app.org_id).await?;
        let app = Application::hold(tx, app.id).await?.ok_or(NOT_FOUND)?;
        let role = Membership::of(&mut *tx, app.org_id, session.account().id).await?.ok_or(NOT_FOUND)?.role;
        if role < Role::Admin {
            return Err(FORBIDDEN.into());
        }
        let error = DeploymentError {
            code: CANCELED.name.into(),
            message: "An administrator stopped it.".into(),
            path: None,
        };
        if !Deployment::fail(tx, id, Status::Canceled, &error, janua.clock.now()).await? {
            let deployment = Deployment::find(&mut *tx, id).await?.ok_or(NOT_FOUND)?;
            return if deployment.status == Status::Canceled { Ok(()) } else { Err(NOT_CANCELABLE.into()) };
        }
        let line = NewLine::warn(&janua, Stage::Receive, &error.message);
        log::write(tx, id, std::slice::from_ref(&line)).await?;
        let number = Deployment::find(&mut *tx, id).await?.ok_or(NOT_FOUND)?.number;
        let event = DeploymentCanceled { deployment_id: id, number };
        Ok(session.record_about(tx, &janua, About::app(&app), &event).await?)
    })?;
    deploy::show(&janua, &app, id).await.map(Json)
}

/// What an earlier deployment has, for a new one to have the same.
async fn files_of(tx: &mut db::Tx, earlier: &Deployment) -> Result<Built> {
    if earlier.expired_at.is_some() {
        return Err(EXPIRED.into());
    }
    let manifest = earlier.manifest.clone().filter(|_| earlier.status == Status::Ready).ok_or(NOT_REDEPLOYABLE)?;
    let hash = earlier.manifest_sha256.as_deref().and_then(Sha256::parse).ok_or(NOT_REDEPLOYABLE)?;
    let sql = "SELECT object FROM deployment_pack WHERE deployment_id = $1 ORDER BY object";
    let objects: Vec<(String,)> = tx.all(sql, params![earlier.id]).await?;
    Ok(Built {
        manifest,
        manifest_sha256: hash,
        objects: objects.into_iter().map(|(object,)| object).collect(),
        files: earlier.files,
        bytes: earlier.bytes,
        new_bytes: 0,
        redirects: earlier.redirects,
        headers: earlier.headers,
        warnings: earlier.warnings.clone(),
    })
}
