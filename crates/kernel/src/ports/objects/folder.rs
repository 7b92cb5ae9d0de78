//! Objects as files in the data folder. Clients write them through this server, to URLs that it has signed.
mod files;

use std::{
    io::{self, ErrorKind},
    ops::Range,
    path::PathBuf,
    sync::Once,
};

use futures_util::{StreamExt as _, stream};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use self::files::{Aside, Reading, found};
use super::{Content, Doing, Key, Listed, New, ObjectError, Objects, Slot, Source, Stored, View, shown_here};
use crate::{
    config::Config,
    crypto::{MacKey, Vault, same},
};

/// The purpose of the key that signs URLs.
const PURPOSE: &str = "objects:put";
/// How much is gathered in memory before it is written, in bytes and pieces.
const GATHERED: usize = 256 * 1024;
const PIECES: usize = 32;

pub(super) struct Folder {
    root: PathBuf,
    shown_at: String,
    signer: MacKey,
    cleared_up: Once,
}

impl Folder {
    pub(super) fn new(config: &Config, vault: &Vault) -> Self {
        Self {
            root: config.data_dir.join("objects"),
            shown_at: shown_here(config),
            signer: vault.mac_key(PURPOSE),
            cleared_up: Once::new(),
        }
    }

    /// Once in the life of a process: what an earlier one left half written when it died.
    fn clear_up(&self) {
        self.cleared_up.call_once(|| {
            let root = self.root.clone();
            spawn_blocking(move || files::clear_up(&root));
        });
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.root.join(key.as_str())
    }
}

/// Whether this server allowed to put just this object.
pub fn is_signed(vault: &Vault, slot: &Slot<'_>, signature: &str) -> bool {
    same(vault.mac(PURPOSE, signed_text(slot).as_bytes()).as_bytes(), signature.as_bytes())
}

/// No part can hold a line break, so no two slots have the same text.
fn signed_text(slot: &Slot<'_>) -> String {
    let (content_type, digest) = (slot.content_type.replace('\n', " "), digest(slot));
    format!("PUT\n{}\n{content_type}\n{}\n{digest}\n{}", slot.key, slot.length, slot.until.0)
}

fn digest(slot: &Slot<'_>) -> String {
    slot.sha256.map(|sha256| sha256.to_string()).unwrap_or_default()
}

impl Objects for Folder {
    fn signed_put(&self, slot: &Slot<'_>) -> String {
        let signature = self.signer.sign(signed_text(slot).as_bytes());
        let (length, until, digest) = (slot.length.to_string(), slot.until.0.to_string(), digest(slot));
        let mut query = vec![("type", slot.content_type), ("length", &length), ("expires", &until)];
        if slot.sha256.is_some() {
            query.push(("sha256", &digest));
        }
        query.push(("signature", &signature));
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        format!("{}/{}?{query}", self.shown_at, slot.key)
    }

    fn signed_get(&self, _: &View<'_>) -> Option<String> {
        None
    }

    fn put<'a>(&'a self, new: New<'a>, mut bytes: Source<'a>) -> Doing<'a, Stored> {
        Box::pin(async move {
            let (root, to) = (self.root.clone(), self.file(new.key));
            self.clear_up();
            // While one batch is written the next is gathered. No thread waits for a slow client.
            let mut writing = spawn_blocking(move || Aside::create(&root, to));
            let (mut batch, mut gathered) = (vec![], 0);
            while let Some(piece) = bytes.next().await {
                let piece = match piece {
                    Ok(piece) => piece,
                    Err(fault) => {
                        // The file goes away before the caller hears of it.
                        drop(settled(writing).await);
                        return Err(ObjectError::Source(fault));
                    }
                };
                gathered += piece.len();
                batch.push(piece);
                if gathered >= GATHERED || batch.len() >= PIECES {
                    let aside = settled(writing).await?;
                    let batch = std::mem::take(&mut batch);
                    gathered = 0;
                    writing = spawn_blocking(move || aside.write(batch));
                }
            }
            let aside = settled(writing).await?;
            let aside = run(move || aside.write(batch)).await?;
            let stored = aside.stored();
            new.must_be(&stored)?;
            run(move || aside.put_in_place()).await?;
            Ok(stored)
        })
    }

    fn get<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Doing<'a, Option<Content>> {
        Box::pin(async move {
            let file = self.file(key);
            let Some((total, first)) = run(move || Reading::open(&file, range)).await? else { return Ok(None) };
            let bytes = stream::try_unfold(first, async |reading| {
                // The first piece was read together with opening the file.
                let is_ready = reading.has_piece() || reading.is_done();
                let reading = if is_ready { reading } else { joined(spawn_blocking(move || reading.go_on()).await)? };
                Ok(reading.take_piece())
            });
            Ok(Some(Content { total, bytes: Box::pin(bytes) }))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> Doing<'a, Option<u64>> {
        Box::pin(async move {
            let file = self.file(key);
            run(move || found(std::fs::metadata(file).map(|about| about.len()))).await
        })
    }

    fn copy<'a>(&'a self, from: &'a Key, to: &'a Key) -> Doing<'a, bool> {
        Box::pin(async move {
            let (root, from, to) = (self.root.clone(), self.file(from), self.file(to));
            run(move || files::copy(&root, &from, to)).await
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()> {
        Box::pin(async move {
            let file = self.file(key);
            run(move || found(std::fs::remove_file(file)).map(|_| ())).await
        })
    }

    fn list<'a>(&'a self, folder: &'a str, after: Option<&'a Key>) -> Doing<'a, Vec<Listed>> {
        Box::pin(async move {
            let (root, folder, after) = (self.root.clone(), folder.to_owned(), after.cloned());
            run(move || files::list(&root, &folder, after.as_ref())).await
        })
    }

    fn public_url(&self, key: &Key) -> String {
        format!("{}/{key}", self.shown_at)
    }

    fn is_put_here(&self) -> bool {
        true
    }

    fn check(&self) -> Doing<'_, ()> {
        Box::pin(async move {
            let root = self.root.clone();
            run(move || Aside::create(&root, root.join(".check")).map(|_| ())).await
        })
    }

    fn describe(&self) -> String {
        format!("the folder {}", self.root.display())
    }
}

/// Runs what waits for the disk on a thread that may.
async fn run<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, ObjectError> {
    settled(spawn_blocking(work)).await
}

async fn settled<T>(work: JoinHandle<io::Result<T>>) -> Result<T, ObjectError> {
    joined(work.await).map_err(away)
}

fn joined<T>(outcome: Result<io::Result<T>, JoinError>) -> io::Result<T> {
    outcome.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Without the path, which must not be shown.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn away(error: io::Error) -> ObjectError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ObjectError::Full(error.to_string()),
        _ => ObjectError::Away(error.to_string()),
    }
}
