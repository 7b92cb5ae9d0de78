//! Work after and around deployments: compressing files, letting go of old deployments, and ending interrupted ones.
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use kernel::{
    Janua,
    archive::Refusal,
    clock::Timestamp,
    jobs::{self, Job, Jobs, Later},
    ports::objects::Key,
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    events::{self, About, By},
};
use tokio::task::spawn_blocking;

use super::{
    build::{self, KnownPieces, NewPack, Packer},
    events::{DeploymentExpired, DeploymentFailed},
    limits,
    log::{self, NewLine, Stage},
    model::{Deployment, DeploymentError, DeploymentId, LiveManifest, Status, StoredPack},
    process,
    rewrite::RewritePacks,
};
use crate::edge::{
    manifest::{LARGEST_PIECE, StoredForm, StoredManifest, is_compressible},
    pieces,
    site::{self, Site},
};

pub fn jobs() -> Jobs {
    Jobs::new()
        .on::<Compress>()
        .on::<Prune>()
        .on::<RewritePacks>()
        .every::<EndInterrupted>(Duration::from_secs(20))
        .every::<SweepPacks>(Duration::from_mins(10))
}

/// Files smaller than this are not compressed: the headers of an answer are larger.
const SMALLEST: u64 = 256;
/// Larger files are sent as they are. Compressing them would take long and hold much memory.
const LARGEST: u64 = 8 << 20;
/// High for what browsers load first, lower for long files, where it would take seconds.
const BROTLI_SMALL: i32 = 11;
const BROTLI_LARGE: i32 = 6;
const SMALL: u64 = 128 << 10;
const GZIP: u32 = 9;
/// How long one run compresses. What it did not reach stays plain.
const BUDGET: Duration = Duration::from_mins(2);

/// Compresses the files of a deployment. Nothing waits for it: until then they are served plain.
#[derive(Serialize, Deserialize)]
pub struct Compress {
    pub deployment: DeploymentId,
}

impl Job for Compress {
    const KIND: &'static str = "compress_deployment";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(deployment) = Deployment::find(&janua.db, self.deployment).await? else { return Ok(()) };
        let Some(live) = deployment.live_manifest() else { return Ok(()) };
        let document = pieces::read_object(&janua, &live.object).await.map_err(Later::retry)?;
        let Some(stored) = build::read_document(live.hash, &document) else {
            return Err(Later::give_up("the manifest is not what its hash says"));
        };
        let wanted = stored.files.iter().any(|file| is_worth_it(file.size, &file.path) && file.br.is_none());
        if !wanted {
            return Ok(());
        }
        let contents = read_contents(&janua, &stored).await?;
        let (stored, packs) = compress(&janua, stored, contents).await?;
        for pack in &packs {
            process::store(&janua, deployment.app_id, &pack.object, &pack.bytes)
                .await
                .map_err(|failure| Later::from(failure.fault))?;
        }
        swap(&janua, &deployment, &live, &stored).await
    }
}

fn is_worth_it(size: u64, path: &str) -> bool {
    (SMALLEST..=LARGEST).contains(&size) && is_compressible(path)
}

/// The bytes of files that are to be compressed, by their place in the manifest, up to a bound.
async fn read_contents(janua: &Janua, stored: &StoredManifest) -> Result<Vec<(usize, Vec<u8>)>, Later> {
    const MOST: u64 = 64 << 20;
    let (mut contents, mut bytes) = (vec![], 0);
    for (at, file) in stored.files.iter().enumerate() {
        if !is_worth_it(file.size, &file.path) || file.br.is_some() || bytes + file.size > MOST {
            continue;
        }
        bytes += file.size;
        let mut content = Vec::with_capacity(usize::try_from(file.size).unwrap_or_default());
        for piece in &file.pieces {
            let pack = stored.packs.get(piece.pack as usize).map(String::as_str).unwrap_or_default();
            let part = pieces::read_range(janua, pack, piece.at, piece.size.into()).await.map_err(Later::retry)?;
            content.extend_from_slice(&part);
        }
        contents.push((at, content));
    }
    Ok(contents)
}

type Compressed = (StoredManifest, Vec<NewPack>);

/// On a thread of its own. Forms that are hardly smaller are not kept.
async fn compress(
    janua: &Janua,
    mut stored: StoredManifest,
    contents: Vec<(usize, Vec<u8>)>,
) -> Result<Compressed, Later> {
    let entropy = janua.entropy.clone();
    let done = spawn_blocking(move || {
        let mut known = KnownPieces::default();
        known.add(&stored);
        let mut packs = vec![];
        let mut packer = Packer::new(known, entropy, |pack| {
            packs.push(pack);
            Ok(())
        });
        packer.name_packs(&stored.packs);
        let begun = clock();
        for (at, content) in contents {
            if begun.elapsed() > BUDGET {
                break;
            }
            let gzip = gzipped(&content).filter(|form| is_smaller(form, &content));
            let br = brotlied(&content).filter(|form| is_smaller(form, &content));
            let file = &mut stored.files[at];
            file.gzip = gzip.map(|bytes| form(&mut packer, &bytes)).transpose()?;
            file.br = br.map(|bytes| form(&mut packer, &bytes)).transpose()?;
        }
        (stored.packs, _) = packer.finish()?;
        Ok::<_, Refusal>((stored, packs))
    });
    let done = done.await.map_err(Later::retry)?;
    done.map_err(|refusal| Later::retry(refusal.reason))
}

#[expect(clippy::disallowed_methods, reason = "bounds how long a thread works; tests do not depend on it")]
fn clock() -> Instant {
    Instant::now()
}

fn form<S: FnMut(NewPack) -> Result<(), Refusal>>(
    packer: &mut Packer<S>,
    bytes: &[u8],
) -> Result<StoredForm, Refusal> {
    let pieces = bytes.chunks(LARGEST_PIECE).map(|part| packer.add(part)).collect::<Result<_, _>>()?;
    Ok(StoredForm { size: bytes.len() as u64, pieces })
}

fn is_smaller(form: &[u8], plain: &[u8]) -> bool {
    form.len() * 20 < plain.len() * 19
}

fn gzipped(plain: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::new(GZIP));
    encoder.write_all(plain).ok()?;
    encoder.finish().ok()
}

fn brotlied(plain: &[u8]) -> Option<Vec<u8>> {
    let quality = if plain.len() as u64 <= SMALL { BROTLI_SMALL } else { BROTLI_LARGE };
    let params = brotli::enc::BrotliEncoderParams { quality, ..Default::default() };
    let mut form = vec![];
    brotli::BrotliCompress(&mut &*plain, &mut form, &params).ok()?;
    Some(form)
}

async fn swap(
    janua: &Janua,
    deployment: &Deployment,
    live: &LiveManifest,
    stored: &StoredManifest,
) -> Result<(), Later> {
    let (document, hash) = build::document(stored).map_err(|refusal| Later::give_up(refusal.reason))?;
    let object = build::manifest_key(&janua.entropy).to_string();
    process::store(janua, deployment.app_id, &object, &document)
        .await
        .map_err(|failure| Later::from(failure.fault))?;
    let mut objects = stored.packs.clone();
    objects.push(object.clone());
    let forms = stored.files.iter().filter(|file| file.br.is_some() || file.gzip.is_some()).count();
    let line = NewLine::info(janua, Stage::Compress, format!("Compressed {forms} files."));
    transact!(janua, async |tx| {
        let now = janua.clock.now();
        if Deployment::swap_manifest(tx, live, &object, hash, &objects, now).await? {
            log::write(tx, deployment.id, std::slice::from_ref(&line)).await?;
            site::changed(tx, deployment.app_id).await?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Lets go of the oldest deployments of an app beyond those that its plan keeps. The live one stays, and those that were live
/// until lately, whose files open pages may still ask for.
#[derive(Serialize, Deserialize)]
pub struct Prune {
    pub app: ApplicationId,
}

const MOST_LOOKED_AT: u32 = 1200;

impl Job for Prune {
    const KIND: &'static str = "prune_deployments";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let now = janua.clock.now();
        let expired = transact!(janua, async |tx| {
            let Some(site) = Site::find(&mut *tx, self.app).await? else { return Ok(0) };
            let kept = limits::kept(tx, &janua, site.org_id).await? as usize;
            let grace = Duration::from_hours(site.settings.asset_grace_hours.into());
            let ready = Deployment::kept(&mut *tx, self.app, MOST_LOOKED_AT).await?;
            let is_needed = |old: &Deployment| {
                site.active_id == Some(old.id) || old.deactivated_at.is_some_and(|at| now.since(at) < grace)
            };
            let over = ready.iter().skip(kept).filter(|old| !is_needed(old)).take(100);
            let mut expired = 0;
            for old in over {
                if Deployment::expire(tx, old.id, now).await? {
                    expired += 1;
                    let event = DeploymentExpired { deployment_id: old.id, number: old.number };
                    let about = About::application(old.app_id, old.org_id);
                    events::record(tx, &janua, &By::default(), about, &event).await?;
                }
            }
            if expired > 0 {
                site::changed(tx, self.app).await?;
                jobs::enqueue(tx, &janua, now, &RewritePacks { app: self.app }).await?;
            }
            Ok(expired)
        })?;
        tracing::debug!(expired, app = %self.app, "old deployments were let go of");
        Ok(())
    }
}

/// Ends deployments whose node died, or whose client went away.
#[derive(Default, Serialize, Deserialize)]
pub struct EndInterrupted {}

impl Job for EndInterrupted {
    const KIND: &'static str = "end_interrupted_deployments";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let before = janua.clock.now().minus(process::DEAD_AFTER);
        end_interrupted(&janua, before).await
    }
}

/// Ends deployments of which nothing was heard since a moment.
pub async fn end_interrupted(janua: &Janua, before: Timestamp) -> Result<(), Later> {
    let message = "The server or the client stopped before the deployment was complete.";
    for dead in Deployment::interrupted(&janua.db, before).await? {
        let error = DeploymentError { code: process::INTERRUPTED.name.into(), message: message.into(), path: None };
        let line = NewLine::error(janua, Stage::Receive, message, None);
        let now = janua.clock.now();
        transact!(janua, async |tx| {
            if Deployment::fail(tx, dead.id, Status::Failed, &error, now).await? {
                log::write(tx, dead.id, std::slice::from_ref(&line)).await?;
                let event =
                    DeploymentFailed { deployment_id: dead.id, number: dead.number, code: error.code.clone() };
                let about = About::application(dead.app_id, dead.org_id);
                events::record(tx, janua, &By::default(), about, &event).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Deletes objects that no deployment has needed for an hour.
#[derive(Default, Serialize, Deserialize)]
pub struct SweepPacks {}

const UNUSED_FOR: Duration = Duration::from_hours(1);

impl Job for SweepPacks {
    const KIND: &'static str = "sweep_packs";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        loop {
            let unused = StoredPack::take_unused(&janua.db, janua.clock.now().minus(UNUSED_FOR)).await?;
            if unused.is_empty() {
                return Ok(());
            }
            for pack in unused {
                if let Some(key) = Key::parse(&pack.object) {
                    janua.objects.delete(&key).await.map_err(Later::retry)?;
                }
                StoredPack::delete(&janua.db, &pack.object).await?;
            }
        }
    }
}
