//! `POST /apps/{appId}/deploy`: an archive becomes the site, or nothing does.
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
};
use data_encoding::BASE64;
use db::{Tx, params};
use kernel::{
    Janua,
    archive::ArchiveLimits,
    clock::Timestamp,
    fault::{Code, Fault, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, INVALID, Result, STORAGE_FULL},
    http::{GenContext, Json, Operation, OperationInput, Query, Routes, Streamed, may_answer},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    apps::{Application, ApplicationId},
    events::{self, About, By},
    orgs::{Org, OrgId},
    quotas::{self, QUOTA_EXCEEDED},
};

use super::{
    caller::DeployCaller,
    events::{DeploymentActivated, DeploymentCreated, DeploymentFailed, DistributionProvisioned},
    jobs::{Compress, Prune},
    limits,
    log::{self, Level, NewLine, Stage},
    model::{Built, Commit, Deployment, DeploymentId, SourceKind, Status, Target},
    process::{
        self, ARCHIVE_TOO_LARGE, CANCELED, COMPRESSION_RATIO, FILE_TOO_LARGE, Failure, INTERRUPTED, INVALID_ARCHIVE,
        TOO_MANY_FILES, UNPACKED_TOO_LARGE, Unpacker, Unpackers,
    },
    view::DeploymentView,
};
use crate::edge::{manifest::Sha256, site::Site};

pub const DEPLOY_LOCKED: Code = Code::new(409, "deploy_locked", "Deployments of this app are locked.");
pub const TOO_MANY_DEPLOYS: Code =
    Code::new(429, "too_many_deploys", "The app has too many deployments under way. Wait for one to end.");
const NOT_GZIP: Code =
    Code::new(415, "archive_type", "Send one gzip-compressed tar archive, with Content-Type application/gzip.");
const DIGEST_MISMATCH: Code =
    Code::new(400, "digest_mismatch", "The body does not match Content-Digest. Nothing was deployed.");

/// How many deployments of an app may be under way.
const MOST_AT_ONCE: i64 = 5;
const HOUR: std::time::Duration = std::time::Duration::from_hours(1);

pub fn routes() -> Routes {
    Routes::new("deployments")
        .post("/apps/{appId}/deploy", deploy, "deploy an archive of a built site")
        .streams(usize::try_from(limits::LARGEST_ARCHIVE).unwrap_or(usize::MAX))
        .fails(&[
            INVALID_ARCHIVE,
            COMPRESSION_RATIO,
            ARCHIVE_TOO_LARGE,
            UNPACKED_TOO_LARGE,
            TOO_MANY_FILES,
            FILE_TOO_LARGE,
            INTERRUPTED,
            CANCELED,
            DEPLOY_LOCKED,
            TOO_MANY_DEPLOYS,
            QUOTA_EXCEEDED,
            STORAGE_FULL,
            IDEMPOTENCY_IN_PROGRESS,
            IDEMPOTENCY_MISMATCH,
        ])
}

#[derive(Deserialize, JsonSchema)]
pub struct DeployQuery {
    /// `preview` makes it reachable at its own URL alone.
    target: Option<Target>,
    /// `false` leaves production as it is.
    activate: Option<bool>,
    #[schemars(length(max = 255))]
    branch: Option<String>,
    /// The hash of the commit.
    #[schemars(length(min = 7, max = 64), regex(pattern = "^[0-9a-fA-F]+$"))]
    commit: Option<String>,
    #[schemars(length(max = 500))]
    message: Option<String>,
}

impl DeployQuery {
    fn commit(&self) -> Option<Commit> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (sha, branch, message) = (given(&self.commit), given(&self.branch), given(&self.message));
        let is_there = sha.is_some() || branch.is_some() || message.is_some();
        is_there.then_some(Commit { sha, branch, message, author: None, url: None })
    }
}

/// What the headers say of the archive.
pub struct ArchiveHeaders {
    digest: Option<Sha256>,
    idempotency_key: Option<String>,
}

impl FromRequestParts<Janua> for ArchiveHeaders {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let kind = text(&parts.headers, header::CONTENT_TYPE.as_str())?.unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = ["application/gzip", "application/x-gzip", "application/x-gtar", "application/octet-stream"];
        if !known.contains(&kind.as_str()) {
            return Err(NOT_GZIP.into());
        }
        let digest = match text(&parts.headers, "content-digest")? {
            Some(text) => read_digest(&text)?,
            None => None,
        };
        let idempotency_key = text(&parts.headers, "idempotency-key")?;
        if idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
            return Err(INVALID.at("Idempotency-Key", "wrong_form", "must be 1 to 255 visible characters"));
        }
        Ok(Self { digest, idempotency_key })
    }
}

fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| INVALID.at(name, "wrong_form", "must be visible characters"))?;
    Ok(Some(text.to_owned()))
}

/// RFC 9530: `sha-256=:…:`. Other digests are ignored, as it says.
fn read_digest(header: &str) -> Result<Option<Sha256>> {
    let Some(value) = header.split(',').find_map(|part| part.trim().strip_prefix("sha-256=")) else {
        return Ok(None);
    };
    let bytes = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
    let bytes = bytes.and_then(|text| BASE64.decode(text.as_bytes()).ok()).and_then(|bytes| bytes.try_into().ok());
    let wrong = || INVALID.at("Content-Digest", "wrong_form", "must be sha-256=:base64:");
    bytes.map(|bytes| Some(Sha256(bytes))).ok_or_else(wrong)
}

impl OperationInput for ArchiveHeaders {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[NOT_GZIP, DIGEST_MISMATCH, INVALID]);
    }
}

/// A deployment that was begun, or the one that an earlier request began.
enum Begun {
    New { deployment: Box<Deployment>, limits: ArchiveLimits },
    Repeated(Box<Deployment>),
}

async fn deploy(
    State(janua): State<Janua>,
    caller: DeployCaller,
    Query(query): Query<DeployQuery>,
    sent: ArchiveHeaders,
    body: Streamed,
) -> Result<Json<DeploymentView>> {
    let announced = body.announced();
    // Before anything is written: a client that comes again has lost nothing.
    let unpacker = Unpackers::take(&janua)?;
    let begun = transact!(janua, async |tx| begin(tx, &janua, &caller, &query, &sent, announced).await)?;
    let (deployment, limits) = match begun {
        Begun::New { deployment, limits } => (*deployment, limits),
        Begun::Repeated(earlier) => return repeat(&janua, &caller, *earlier, &sent, body).await,
    };
    let done = receive(&janua, &caller, &deployment, (limits, unpacker), &sent, body).await;
    if let Err(failure) = done {
        fail(&janua, &caller.by(), &deployment, &failure).await;
        return Err(failure.fault.with_extra("deploymentId", &deployment.id));
    }
    show(&janua, caller.application(), deployment.id).await.map(Json)
}

/// Reserves the number and writes the row, before anything of the body is read.
async fn begin(
    tx: &mut Tx,
    janua: &Janua,
    caller: &DeployCaller,
    query: &DeployQuery,
    sent: &ArchiveHeaders,
    announced: Option<u64>,
) -> Result<Begun> {
    let app = caller.hold(tx, janua).await?;
    let limits = prepare(tx, janua, &caller.by(), &app).await?;
    if announced.is_some_and(|length| length > limits.archive) {
        return Err(ARCHIVE_TOO_LARGE.because(format!("The plan allows {} bytes.", limits.archive)));
    }
    if let Some(key) = &sent.idempotency_key {
        let since = janua.clock.now().minus(24 * HOUR);
        if let Some(earlier) = Deployment::of_idempotency_key(tx, app.id, key, since).await? {
            return Ok(Begun::Repeated(Box::new(earlier)));
        }
    }
    let target = caller.target(query.target)?;
    let commit = caller.commit(query.commit());
    let (source, installation_id, repository) = caller.source();
    let draft = |new: Deployment| Deployment {
        source,
        account_id: caller.account(),
        key_id: caller.key(),
        installation_id,
        repository,
        target,
        activates: query.activate.unwrap_or(true),
        commit,
        idempotency_key: sent.idempotency_key.clone(),
        ..new
    };
    let deployment = write_row(tx, janua, &caller.by(), &app, draft).await?;
    Ok(Begun::New { deployment: Box::new(deployment), limits })
}

/// A deployment that was begun, and what its archive may have.
pub struct Begin {
    pub deployment: Deployment,
    pub limits: ArchiveLimits,
}

/// Begins a deployment whose files come from the code host. The caller holds the app.
pub async fn begin_at_host(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    app: &Application,
    draft: impl FnOnce(Deployment) -> Deployment,
) -> Result<Begin> {
    let limits = prepare(tx, janua, by, app).await?;
    let deployment = write_row(tx, janua, by, app, draft).await?;
    Ok(Begin { deployment, limits })
}

/// What an archive of an organization may have.
pub async fn archive_limits(janua: &Janua, org: OrgId) -> Result<ArchiveLimits> {
    transact!(janua, async |tx| Ok(limits::of_archive(tx, janua, org).await?))
}

/// The site, which the first deployment sets up, and what an archive may have.
async fn prepare(tx: &mut Tx, janua: &Janua, by: &By, app: &Application) -> Result<ArchiveLimits> {
    let (site, is_new) = Site::provision(tx, janua, app).await?;
    if is_new {
        let event = DistributionProvisioned { distribution_id: site.id, provider: site.provider.name().into() };
        events::record(tx, janua, by, About::app(app), &event).await?;
    }
    refuse_locked(&site)?;
    Ok(limits::of_archive(tx, janua, app.org_id).await?)
}

async fn write_row(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    app: &Application,
    draft: impl FnOnce(Deployment) -> Deployment,
) -> Result<Deployment> {
    let now = janua.clock.now();
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM deployment
               WHERE app_id = $1 AND status = 'processing' AND alive_at > $2";
    let (under_way,): (i64,) = tx.one(sql, params![app.id, now.minus(process::DEAD_AFTER)]).await?;
    if under_way >= MOST_AT_ONCE {
        return Err(Fault::from(TOO_MANY_DEPLOYS).retry_after(std::time::Duration::from_secs(5)));
    }
    quotas::spend(tx, janua, app, &limits::DEPLOYS_PER_DAY, 1).await?;
    quotas::spend(tx, janua, app, &limits::DEPLOYS, 1).await?;
    let deployment = draft(new(tx, janua, app, now).await?);
    deployment.insert(tx).await?;
    let event =
        DeploymentCreated { deployment_id: deployment.id, number: deployment.number, target: deployment.target };
    events::record(tx, janua, by, About::app(app), &event).await?;
    Ok(deployment)
}

/// A deployment with the next number and an unguessable label: sixty bits.
pub async fn new(tx: &mut Tx, janua: &Janua, app: &Application, now: Timestamp) -> db::Result<Deployment> {
    let label = data_encoding::BASE32_NOPAD.encode(&janua.entropy.bytes::<8>()).to_lowercase();
    Ok(Deployment {
        id: DeploymentId::new(&janua.entropy, now),
        app_id: app.id,
        org_id: app.org_id,
        number: Site::next_number(tx, app.id).await?,
        status: Status::Processing,
        target: Target::Production,
        activates: true,
        label: label[..12].to_owned(),
        source: SourceKind::Upload,
        account_id: None,
        key_id: None,
        redeploy_of: None,
        installation_id: None,
        repository: None,
        commit: None,
        files: 0,
        bytes: 0,
        new_bytes: 0,
        archive_sha256: None,
        idempotency_key: None,
        warnings: vec![],
        error: None,
        manifest: None,
        manifest_sha256: None,
        redirects: 0,
        headers: 0,
        created_at: now,
        ready_at: None,
        activated_at: None,
        deactivated_at: None,
        failed_at: None,
        expires_at: None,
        expired_at: None,
    })
}

pub fn refuse_locked(site: &Site) -> Result<()> {
    match (&site.settings.locked, &site.settings.locked_reason) {
        (false, _) => Ok(()),
        (true, Some(reason)) => Err(DEPLOY_LOCKED.because(reason)),
        (true, None) => Err(DEPLOY_LOCKED.into()),
    }
}

async fn receive(
    janua: &Janua,
    caller: &DeployCaller,
    deployment: &Deployment,
    (limits, unpacker): (ArchiveLimits, Unpacker),
    sent: &ArchiveHeaders,
    body: Streamed,
) -> Result<(), Failure> {
    let (app, id) = (deployment.app_id, deployment.id);
    let received = process::receive(janua, app, id, limits, unpacker, body.into_source()).await?;
    if sent.digest.is_some_and(|digest| digest != received.archive) {
        return Err(DIGEST_MISMATCH.into());
    }
    complete_received(janua, &caller.by(), deployment, received, Some(caller)).await
}

/// Stores what was received and makes the deployment ready, while the app is held. A caller is checked once more.
pub async fn complete_received(
    janua: &Janua,
    by: &By,
    deployment: &Deployment,
    received: process::Received,
    caller: Option<&DeployCaller>,
) -> Result<(), Failure> {
    let mut lines = vec![NewLine::info(
        janua,
        Stage::Receive,
        format!("Received {} bytes, SHA-256 {}.", received.archive_bytes, received.archive.hex()),
    )];
    if let Some(root) = &received.site.root {
        lines.push(NewLine::info(janua, Stage::Unpack, format!("The folder {root} is the root of the site.")));
    }
    lines.extend(received.site.warnings.iter().map(|warning| NewLine::warn(janua, Stage::Unpack, warning)));
    let archive = received.archive;
    let built = process::finish(janua, deployment.app_id, received.site).await?;
    let noun = if built.files == 1 { "file" } else { "files" };
    let unpacked = format!("Unpacked {} {noun}, {} bytes.", built.files, built.bytes);
    lines.push(NewLine::info(janua, Stage::Unpack, unpacked));
    lines.push(NewLine::info(janua, Stage::Store, format!("Stored {} new bytes.", built.new_bytes)));
    let done = transact!(janua, async |tx| {
        hold(tx, janua, deployment, caller).await?;
        complete(tx, janua, by, deployment, &built, Some(archive), &lines).await
    });
    Ok(done?)
}

async fn hold(tx: &mut Tx, janua: &Janua, deployment: &Deployment, caller: Option<&DeployCaller>) -> Result<()> {
    if let Some(caller) = caller {
        return caller.hold(tx, janua).await.map(drop);
    }
    // In the same order as everybody: the organization, then the app.
    Org::hold(tx, deployment.org_id).await?;
    Application::hold(tx, deployment.app_id).await?.ok_or(kernel::fault::NOT_FOUND)?;
    Ok(())
}

/// Makes a deployment ready and, if it is to be, live: one transaction with its events, its log and what follows from it.
pub async fn complete(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    deployment: &Deployment,
    built: &Built,
    archive: Option<Sha256>,
    lines: &[NewLine],
) -> Result<()> {
    let (id, app, now) = (deployment.id, deployment.app_id, janua.clock.now());
    let is_ready = match Deployment::make_ready(tx, id, built, now).await {
        // A pack that an earlier deployment shared was deleted meanwhile.
        Err(db::Error::Missing) => return Err(INTERRUPTED.into()),
        outcome => outcome?,
    };
    if !is_ready {
        let found = Deployment::find(&mut *tx, id).await?;
        return Err(process::ended(found.map(|found| found.status)).into());
    }
    if let Some(archive) = archive {
        let sql = "UPDATE deployment SET archive_sha256 = $2 WHERE id = $1";
        tx.exec(sql, params![id, archive.hex()]).await?;
    }
    let mut lines = lines.to_vec();
    lines.push(activate(tx, janua, by, deployment, now).await?);
    log::write(tx, id, &lines).await?;
    jobs::enqueue(tx, janua, now, &Compress { deployment: id }).await?;
    jobs::enqueue(tx, janua, now, &Prune { app }).await?;
    Ok(())
}

async fn activate(tx: &mut Tx, janua: &Janua, by: &By, deployment: &Deployment, now: Timestamp) -> Result<NewLine> {
    let (id, app, number) = (deployment.id, deployment.app_id, deployment.number);
    let before = Site::find(&mut *tx, app).await?.ok_or(kernel::fault::NOT_FOUND)?.active_id;
    if deployment.target != Target::Production || !deployment.activates {
        crate::edge::site::changed(tx, app).await?;
        return Ok(NewLine::info(janua, Stage::Activate, "Ready at its preview URL. Production is unchanged."));
    }
    if !Site::activate(tx, app, id, number, now).await? {
        crate::edge::site::changed(tx, app).await?;
        return Ok(NewLine::warn(janua, Stage::Activate, "Not activated: a later deployment is live."));
    }
    Deployment::note_activation(tx, before, id, now).await?;
    let event = DeploymentActivated { deployment_id: id, number, previous: before };
    let about = About::application(app, deployment.org_id);
    events::record(tx, janua, by, about, &event).await?;
    crate::edge::cdn::note_activation(tx, janua, app, now).await?;
    Ok(NewLine::info(janua, Stage::Activate, "Live in production."))
}

/// Notes why a deployment ended. Should that fail, it counts as interrupted after a minute.
pub async fn fail(janua: &Janua, by: &By, deployment: &Deployment, failure: &Failure) {
    let (id, now) = (deployment.id, janua.clock.now());
    let stage = if failure.error.path.is_some() { Stage::Unpack } else { Stage::Receive };
    let line = NewLine {
        level: Level::Error,
        path: failure.error.path.clone(),
        ..NewLine::info(janua, stage, &failure.error.message)
    };
    let noted = transact!(janua, async |tx| {
        if Deployment::fail(tx, id, Status::Failed, &failure.error, now).await? {
            log::write(tx, id, std::slice::from_ref(&line)).await?;
            let code = failure.error.code.clone();
            let event = DeploymentFailed { deployment_id: id, number: deployment.number, code };
            let about = About::application(deployment.app_id, deployment.org_id);
            events::record(tx, janua, by, about, &event).await?;
        }
        Ok(())
    });
    if let Err(fault) = noted {
        tracing::warn!(%fault, "cannot note that a deployment failed");
    }
}

/// The second request with an `Idempotency-Key`: the first deployment, if it is the same archive.
async fn repeat(
    janua: &Janua,
    caller: &DeployCaller,
    earlier: Deployment,
    sent: &ArchiveHeaders,
    body: Streamed,
) -> Result<Json<DeploymentView>> {
    if earlier.status != Status::Ready {
        return Err(IDEMPOTENCY_IN_PROGRESS.into());
    }
    let digest = match sent.digest {
        Some(digest) => digest,
        None => process::digest_of(body.into_source()).await?,
    };
    if earlier.archive_sha256 != Some(digest.hex()) {
        return Err(IDEMPOTENCY_MISMATCH.into());
    }
    show(janua, caller.application(), earlier.id).await.map(Json)
}

pub async fn show(janua: &Janua, app: &Application, id: DeploymentId) -> Result<DeploymentView> {
    let deployment = Deployment::find(&janua.db, id).await?.ok_or(kernel::fault::NOT_FOUND)?;
    let active = active_of(janua, app.id).await?;
    Ok(DeploymentView::of(janua, deployment, &app.slug, active))
}

pub async fn active_of(janua: &Janua, app: ApplicationId) -> Result<Option<DeploymentId>> {
    Ok(Site::find(&janua.db, app).await?.and_then(|site| site.active_id))
}
