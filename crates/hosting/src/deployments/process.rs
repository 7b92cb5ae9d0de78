//! From a stream of bytes to a stored site. The archive is unpacked on a thread of its own as it arrives; packs are stored
//! meanwhile. Nothing of it is visible before the transaction that makes the deployment ready.
use std::{
    io::{self, BufRead, Read},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::StreamExt as _;
use kernel::{
    Janua,
    archive::{self, ArchiveLimits, Refusal, RefusalKind},
    fault::{Code, Fault, OVERLOADED},
    ports::objects::{Key, ObjectError, Source},
};
use tenancy::apps::ApplicationId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::{Instant, interval_at},
};

use super::{
    build::{self, BuiltSite, KnownPieces, NewPack, Packer, SiteBuilder},
    model::{Built, Deployment, DeploymentError, DeploymentId, Status, StoredPack},
};
use crate::edge::{
    manifest::Sha256,
    pieces::{self, PieceError},
};

pub const INVALID_ARCHIVE: Code = Code::new(400, "invalid_archive", "The archive is refused. Nothing was deployed.");
pub const COMPRESSION_RATIO: Code =
    Code::new(400, "compression_ratio", "The archive unpacks to far more than its size. Nothing was deployed.");
pub const ARCHIVE_TOO_LARGE: Code =
    Code::new(413, "archive_too_large", "The archive is larger than the plan allows.");
pub const UNPACKED_TOO_LARGE: Code =
    Code::new(413, "unpacked_too_large", "The unpacked files are larger than the plan allows.");
pub const TOO_MANY_FILES: Code = Code::new(413, "too_many_files", "The archive has more files than the plan allows.");
pub const FILE_TOO_LARGE: Code = Code::new(413, "file_too_large", "A file is larger than the plan allows.");
pub const INTERRUPTED: Code =
    Code::new(409, "interrupted", "The deployment was interrupted. Nothing was deployed; send it again.");

pub const CANCELED: Code =
    Code::new(409, "deployment_canceled", "The deployment was canceled. Nothing was deployed.");

/// How often a deployment says that it is worked on.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// After this long without a heartbeat it counts as interrupted.
pub const DEAD_AFTER: Duration = Duration::from_mins(1);
/// Contents are looked for in so many of the app's newest deployments.
const COMPARED: u32 = 3;
/// Chunks of the body that wait for the thread that unpacks.
const WAITING: usize = 8;
/// How many archives are unpacked at once. Each holds a thread for as long as its body takes to arrive; files, hashes and the
/// embedded database need threads of the same 512.
const UNPACKED_AT_ONCE: usize = 128;
/// When to try again where all are taken.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The threads of a node that unpack archives.
pub struct Unpackers(Arc<Semaphore>);

impl Default for Unpackers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNPACKED_AT_ONCE)))
    }
}

/// A thread that one archive may have.
pub struct Unpacker(#[expect(dead_code, reason = "given back when it is dropped")] OwnedSemaphorePermit);

impl Unpackers {
    /// For a client that can come again.
    pub fn take(janua: &Janua) -> Result<Unpacker, Fault> {
        let places = janua.own::<Self>().0.clone();
        places.try_acquire_owned().map(Unpacker).map_err(|_| Fault::from(OVERLOADED).retry_after(TRY_AGAIN))
    }

    /// For a job.
    pub async fn wait(janua: &Janua) -> Result<Unpacker, Fault> {
        let places = janua.own::<Self>().0.clone();
        places.acquire_owned().await.map(Unpacker).map_err(|closed| kernel::fault::INTERNAL.caused_by(closed))
    }
}

/// Why a deployment ends without a site: what the client is told, and what stays in its row.
pub struct Failure {
    pub fault: Fault,
    pub error: DeploymentError,
}

impl Failure {
    pub fn of_fault(fault: Fault) -> Self {
        let error =
            DeploymentError { code: fault.code().name.to_owned(), message: fault.whole_sentence(), path: None };
        Self { fault, error }
    }

    fn of_refusal(refusal: Refusal) -> Self {
        let code = match refusal.kind {
            RefusalKind::Invalid => INVALID_ARCHIVE,
            RefusalKind::Ratio => COMPRESSION_RATIO,
            RefusalKind::ArchiveTooLarge => ARCHIVE_TOO_LARGE,
            RefusalKind::UnpackedTooLarge => UNPACKED_TOO_LARGE,
            RefusalKind::TooManyFiles => TOO_MANY_FILES,
            RefusalKind::FileTooLarge => FILE_TOO_LARGE,
            RefusalKind::Broken => INTERRUPTED,
        };
        let sentence = match &refusal.path {
            Some(path) => format!("{path}: {}", refusal.reason),
            None => refusal.reason.clone(),
        };
        let fault = code.because(sentence).with_extra("path", &refusal.path).with_extra("reason", &refusal.reason);
        let error = DeploymentError { code: code.name.to_owned(), message: refusal.reason, path: refusal.path };
        Self { fault, error }
    }
}

macro_rules! from_fault { ($($type:ty),*) => { $(
    impl From<$type> for Failure {
        #[track_caller]
        fn from(fault: $type) -> Self {
            Self::of_fault(fault.into())
        }
    }
)* } }
from_fault!(Fault, Code, db::Error, ObjectError);

/// A site whose bytes are durable, and the digest of the archive it came from.
pub struct Received {
    pub site: BuiltSite,
    pub archive: Sha256,
    pub archive_bytes: u64,
}

/// Reads an archive to its end and stores what is new in it.
pub async fn receive(
    janua: &Janua,
    app: ApplicationId,
    id: DeploymentId,
    limits: ArchiveLimits,
    unpacker: Unpacker,
    source: Source<'_>,
) -> Result<Received, Failure> {
    receive_within(janua, (app, id), limits, None, unpacker, source).await
}

/// As [`receive`]; of the archive of a commit, one folder is the site.
pub async fn receive_within(
    janua: &Janua,
    (app, id): (ApplicationId, DeploymentId),
    limits: ArchiveLimits,
    within: Option<String>,
    unpacker: Unpacker,
    source: Source<'_>,
) -> Result<Received, Failure> {
    let known = known_pieces(janua, app).await?;
    let (chunks, reader) = mpsc::channel(WAITING);
    let (full, mut packs) = mpsc::channel::<NewPack>(1);
    let entropy = janua.entropy.clone();
    let unpacked = spawn_blocking(move || {
        let send = move |pack| {
            let gone = || Refusal::new(RefusalKind::Broken, None, "The files cannot be stored.");
            full.blocking_send(pack).map_err(|_| gone())
        };
        let mut builder = SiteBuilder::new(Packer::new(known, entropy, send));
        let chunks = Chunks { chunks: reader, current: Bytes::new() };
        archive::unpack(chunks, &limits, within.as_deref(), &mut builder)?;
        let site = builder.finish();
        // Held by the thread, which outlives a request that is given up.
        drop(unpacker);
        site
    });
    let feed = feed(source, chunks);
    let store = async move {
        while let Some(pack) = packs.recv().await {
            store(janua, app, &pack.object, &pack.bytes).await?;
        }
        Ok::<(), Failure>(())
    };
    let work = async { tokio::join!(feed, store, unpacked) };
    let mut work = std::pin::pin!(work);
    let mut beats = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let (fed, stored, unpacked) = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = beats.tick() => {
                // One that cannot be written is no reason to stop; the last transaction decides.
                if let Ok(false) = Deployment::note_alive(&janua.db, id, janua.clock.now()).await {
                    return Err(ended(Deployment::find(&janua.db, id).await?.map(|found| found.status)).into());
                }
            }
        }
    };
    stored?;
    let (archive, archive_bytes) = fed?;
    let unpacked = unpacked.map_err(|panic| kernel::fault::INTERNAL.caused_by(panic))?;
    let site = unpacked.map_err(Failure::of_refusal)?;
    Ok(Received { site, archive, archive_bytes })
}

/// Why a deployment that was worked on cannot be completed.
pub fn ended(status: Option<Status>) -> Code {
    if status == Some(Status::Canceled) { CANCELED } else { INTERRUPTED }
}

/// Hands the body on as it comes, and answers its digest and length. Ends early when the archive is refused.
async fn feed(mut source: Source<'_>, chunks: mpsc::Sender<io::Result<Bytes>>) -> Result<(Sha256, u64), Failure> {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut length = 0;
    while let Some(chunk) = source.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(fault) => {
                let _ = chunks.send(Err(archive::source_failed("The body ended early."))).await;
                return Err(Failure::of_fault(fault));
            }
        };
        hash.update(&chunk);
        length += chunk.len() as u64;
        if chunks.send(Ok(chunk)).await.is_err() {
            break;
        }
    }
    let mut archive = [0; 32];
    archive.copy_from_slice(hash.finish().as_ref());
    Ok((Sha256(archive), length))
}

/// The digest of a body that is not unpacked.
pub async fn digest_of(mut source: Source<'_>) -> Result<Sha256, Fault> {
    let mut hash = digest::Context::new(&digest::SHA256);
    while let Some(chunk) = source.next().await {
        hash.update(&chunk?);
    }
    let mut archive = [0; 32];
    archive.copy_from_slice(hash.finish().as_ref());
    Ok(Sha256(archive))
}

/// Stores an object. Its row comes first.
pub async fn store(janua: &Janua, app: ApplicationId, object: &str, bytes: &[u8]) -> Result<(), Failure> {
    let key = Key::parse(object).ok_or(kernel::fault::INTERNAL)?;
    StoredPack::announce(janua, app, object, i64::try_from(bytes.len()).unwrap_or(i64::MAX)).await?;
    Ok(janua.objects.write(&key, "application/octet-stream", bytes).await?)
}

/// Stores the manifest of a site and says what its deployment needs.
pub async fn finish(janua: &Janua, app: ApplicationId, site: BuiltSite) -> Result<Built, Failure> {
    let (document, hash) = build::document(&site.stored).map_err(Failure::of_refusal)?;
    let manifest = build::manifest_key(&janua.entropy).to_string();
    store(janua, app, &manifest, &document).await?;
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let mut objects = site.stored.packs.clone();
    objects.push(manifest.clone());
    Ok(Built {
        manifest,
        manifest_sha256: hash,
        objects,
        files: count(site.stored.files.len()),
        bytes: i64::try_from(site.stored.bytes()).unwrap_or(i64::MAX),
        new_bytes: i64::try_from(site.new_bytes).unwrap_or(i64::MAX),
        redirects: count(site.stored.redirects.len()),
        headers: count(site.stored.headers.len()),
        warnings: site.warnings,
    })
}

/// Contents of the app's newest deployments. One that is damaged is left out: its contents are stored again. A store that does
/// not answer would not take anything either, and is not asked for each of them.
async fn known_pieces(janua: &Janua, app: ApplicationId) -> Result<KnownPieces, Failure> {
    let mut known = KnownPieces::default();
    let kept = Deployment::kept(&janua.db, app, COMPARED).await.unwrap_or_default();
    for live in kept.iter().filter_map(Deployment::live_manifest) {
        match pieces::read_object(janua, &live.object).await {
            Ok(document) => {
                if let Some(stored) = build::read_document(live.hash, &document) {
                    known.add(&stored);
                }
            }
            Err(PieceError::Store(error)) => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "cannot compare with an earlier deployment"),
        }
    }
    Ok(known)
}

/// The chunks of a body as a reader on a thread of its own.
struct Chunks {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.current = chunk?,
                None => break,
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, count: usize) {
        let _ = self.current.split_to(count);
    }
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let found = self.fill_buf()?;
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        self.consume(count);
        Ok(count)
    }
}
