//! The bytes of files, as a node reads them: from memory, from the disk, from the object store. What comes from outside of
//! memory is compared with its hash before it is served.
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use kernel::{
    Janua,
    config::Config,
    ports::objects::{Key, ObjectError},
};
use quick_cache::{Weighter, sync::Cache};
use tokio::fs;

use super::{
    manifest::{Manifest, Piece, Sha256},
    settings::Settings,
};
use crate::deployments::LiveManifest;

/// Manifests of large sites are megabytes.
const LARGEST_MANIFEST: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    #[error("{0}")]
    Store(#[from] ObjectError),
    #[error("{0} is missing in the object store")]
    Missing(String),
    #[error("{0} does not have the bytes it should have")]
    Corrupt(String),
}

#[derive(Clone)]
struct BytesWeight;

impl Weighter<Sha256, Bytes> for BytesWeight {
    fn weight(&self, _: &Sha256, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + 128
    }
}

#[derive(Clone)]
struct ManifestWeight;

impl Weighter<Sha256, Arc<Manifest>> for ManifestWeight {
    fn weight(&self, _: &Sha256, manifest: &Arc<Manifest>) -> u64 {
        manifest.weight
    }
}

/// What a node keeps of packs and manifests.
pub struct Pieces {
    memory: Cache<Sha256, Bytes, BytesWeight>,
    manifests: Cache<Sha256, Arc<Manifest>, ManifestWeight>,
    /// Where bytes from a bucket are kept; none where objects lie on the disk anyway.
    disk: Option<Disk>,
}

impl Pieces {
    pub fn new(config: &Config) -> Self {
        let settings = config.of::<Settings>();
        let bytes = (settings.edge_cache_bytes as u64).max(1 << 20);
        let entries = (settings.edge_cache_bytes / 4096).clamp(1024, 1 << 20);
        Self {
            memory: Cache::with_weighter(entries, bytes, BytesWeight),
            manifests: Cache::with_weighter(4096, bytes.max(64 << 20), ManifestWeight),
            disk: config
                .s3_url
                .is_some()
                .then(|| Disk::new(config.data_dir.join("edge"), settings.edge_disk_bytes as u64)),
        }
    }

    /// A piece that is in memory.
    pub fn known(&self, piece: &Piece) -> Option<Bytes> {
        self.memory.get(&piece.hash)
    }

    pub async fn read(&self, janua: &Janua, manifest: &Manifest, piece: &Piece) -> Result<Bytes, PieceError> {
        if let Some(bytes) = self.memory.get(&piece.hash) {
            return Ok(bytes);
        }
        let bytes = self.read_outside(janua, manifest, piece).await?;
        self.memory.insert(piece.hash, bytes.clone());
        Ok(bytes)
    }

    /// A new piece that is likely to be asked for.
    pub fn keep(&self, hash: Sha256, bytes: Bytes) {
        self.memory.insert(hash, bytes);
    }

    async fn read_outside(&self, janua: &Janua, manifest: &Manifest, piece: &Piece) -> Result<Bytes, PieceError> {
        if let Some(disk) = &self.disk
            && let Some(bytes) = disk.read(piece.hash).await
        {
            return Ok(bytes);
        }
        let pack = manifest.packs.get(piece.pack as usize).map(String::as_str).unwrap_or_default();
        let bytes = read_range(janua, pack, piece.at, piece.size.into()).await?;
        if Sha256::of(&bytes) != piece.hash {
            tracing::error!(pack, at = piece.at, "a stored file is corrupt; restore the pack from a backup");
            return Err(PieceError::Corrupt(pack.to_owned()));
        }
        if let Some(disk) = &self.disk {
            disk.write(piece.hash, &bytes).await;
        }
        Ok(bytes)
    }

    pub fn known_manifest(&self, hash: &Sha256) -> Option<Arc<Manifest>> {
        self.manifests.get(hash)
    }

    pub async fn manifest(&self, janua: &Janua, live: &LiveManifest) -> Result<Arc<Manifest>, PieceError> {
        if let Some(manifest) = self.manifests.get(&live.hash) {
            return Ok(manifest);
        }
        let on_disk = match &self.disk {
            Some(disk) => disk.read(live.hash).await,
            None => None,
        };
        let document = match on_disk {
            Some(document) => document,
            None => {
                let document = read_object(janua, &live.object).await?;
                if let Some(disk) = &self.disk {
                    disk.write(live.hash, &document).await;
                }
                document
            }
        };
        let manifest = Manifest::parse(live.hash, &document);
        let manifest = Arc::new(manifest.ok_or_else(|| PieceError::Corrupt(live.object.clone()))?);
        self.manifests.insert(live.hash, manifest.clone());
        Ok(manifest)
    }

    /// Deletes what was not read for longest from the disk until the rest fits.
    pub async fn tidy(&self) {
        if let Some(disk) = &self.disk {
            disk.tidy().await;
        }
    }
}

fn key(object: &str) -> Result<Key, PieceError> {
    Key::parse(object).ok_or_else(|| PieceError::Missing(object.to_owned()))
}

pub async fn read_object(janua: &Janua, object: &str) -> Result<Bytes, PieceError> {
    let read = janua.objects.read(&key(object)?, LARGEST_MANIFEST).await?;
    read.map(Bytes::from).ok_or_else(|| PieceError::Missing(object.to_owned()))
}

/// Some bytes of an object.
pub async fn read_range(janua: &Janua, object: &str, at: u64, size: u64) -> Result<Bytes, PieceError> {
    let key = key(object)?;
    let content = janua.objects.get(&key, Some(at..at + size)).await?;
    let mut content = content.ok_or_else(|| PieceError::Missing(object.to_owned()))?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    while let Some(piece) = content.bytes.next().await {
        let piece = piece.map_err(|error| ObjectError::Away(error.to_string()))?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.into())
}

/// A folder with pieces by their hashes. Each is compared with its hash when it is read, so no order of writes matters.
struct Disk {
    root: PathBuf,
    most: u64,
    written: AtomicU64,
}

impl Disk {
    fn new(root: PathBuf, most: u64) -> Self {
        Self { root, most, written: AtomicU64::new(0) }
    }

    fn file(&self, hash: Sha256) -> PathBuf {
        let name = hash.hex();
        self.root.join(&name[..2]).join(name)
    }

    async fn read(&self, hash: Sha256) -> Option<Bytes> {
        let file = self.file(hash);
        let bytes = fs::read(&file).await.ok()?;
        if Sha256::of(&bytes) != hash {
            let _ = fs::remove_file(&file).await;
            return None;
        }
        // When a file was last read decides what goes first.
        let _ = tokio::task::spawn_blocking(move || touch(&file)).await;
        Some(bytes.into())
    }

    /// A cache that cannot be written is no fault: the bytes are served anyway.
    async fn write(&self, hash: Sha256, bytes: &[u8]) {
        let file = self.file(hash);
        let aside = file.with_extension(self.written.fetch_add(1, Relaxed).to_string());
        let written = async {
            fs::create_dir_all(file.parent().unwrap_or(&self.root)).await?;
            fs::write(&aside, bytes).await?;
            fs::rename(&aside, &file).await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "cannot keep a file of a site on the disk");
            let _ = fs::remove_file(&aside).await;
        }
    }

    async fn tidy(&self) {
        let (root, most) = (self.root.clone(), self.most);
        let _ = tokio::task::spawn_blocking(move || shrink(&root, most)).await;
    }
}

fn touch(file: &Path) {
    let read_lately = std::fs::metadata(file)
        .and_then(|facts| facts.modified())
        .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < Duration::from_hours(1)));
    if !read_lately && let Ok(file) = std::fs::File::options().append(true).open(file) {
        let _ = file.set_times(std::fs::FileTimes::new().set_modified(wall_clock()));
    }
}

#[expect(clippy::disallowed_methods, reason = "times of files are those of the system's clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn shrink(root: &Path, most: u64) {
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let mut files: Vec<_> = files
        .filter_map(|file| {
            let facts = file.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), file.path()))
        })
        .collect();
    let mut bytes: u64 = files.iter().map(|(_, size, _)| size).sum();
    files.sort();
    for (_, size, path) in files {
        if bytes <= most {
            break;
        }
        if std::fs::remove_file(path).is_ok() {
            bytes -= size;
        }
    }
}
