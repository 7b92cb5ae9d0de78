//! Objects as files in the data folder. Clients put them through this server, at addresses that it has signed.
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{
    fs,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::{Doing, Key, ObjectError, Objects, Slot, shown_here};
use crate::{
    config::Config,
    crypto::{MacKey, Vault, same},
};

/// What the key that signs addresses is for.
const PURPOSE: &str = "objects:put";

pub(super) struct Folder {
    root: PathBuf,
    shown_at: String,
    signer: MacKey,
    /// Tells files that are being written apart.
    written: AtomicU64,
}

impl Folder {
    pub(super) fn new(config: &Config, vault: &Vault) -> Self {
        Self {
            root: config.data_dir.join("objects"),
            shown_at: shown_here(config),
            signer: vault.mac_key(PURPOSE),
            written: AtomicU64::new(0),
        }
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
    format!("{}\n{}\n{}\n{}", slot.key, slot.content_type.replace('\n', " "), slot.length, slot.until.0)
}

impl Objects for Folder {
    fn signed_put(&self, slot: &Slot<'_>) -> String {
        let signature = self.signer.sign(signed_text(slot).as_bytes());
        let query = [
            ("type", slot.content_type),
            ("length", &slot.length.to_string()),
            ("expires", &slot.until.0.to_string()),
            ("signature", &signature),
        ];
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        format!("{}/{}?{query}", self.shown_at, slot.key)
    }

    fn read<'a>(&'a self, key: &'a Key, most: u64) -> Doing<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let file = match fs::File::open(self.file(key)).await {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                file => file.map_err(away)?,
            };
            let mut bytes = vec![];
            file.take(most.saturating_add(1)).read_to_end(&mut bytes).await.map_err(away)?;
            if bytes.len() as u64 > most { Err(ObjectError::TooLong) } else { Ok(Some(bytes)) }
        })
    }

    fn write<'a>(&'a self, key: &'a Key, _content_type: &'a str, bytes: &'a [u8]) -> Doing<'a, ()> {
        Box::pin(async move {
            let file = self.file(key);
            let folder = file.parent().unwrap_or(&self.root);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).await.map_err(away)?;
            // Renamed into place whole: nobody ever reads half an object, and a crash leaves none.
            let aside = folder.join(format!(".{}", self.written.fetch_add(1, Relaxed)));
            let written = put_in_place(&aside, &file, folder, bytes).await;
            if written.is_err() {
                let _ = fs::remove_file(&aside).await;
            }
            written.map_err(away)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()> {
        Box::pin(async move {
            match fs::remove_file(self.file(key)).await {
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(away),
            }
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
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root).await.map_err(away)?;
            let probe = self.root.join(".check");
            fs::write(&probe, b"").await.map_err(away)?;
            fs::remove_file(&probe).await.map_err(away)
        })
    }

    fn describe(&self) -> String {
        format!("the folder {}", self.root.display())
    }
}

async fn put_in_place(aside: &Path, file: &Path, folder: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(aside).await?;
    out.write_all(bytes).await?;
    out.flush().await?;
    out.sync_all().await?;
    fs::rename(aside, file).await?;
    fs::File::open(folder).await?.sync_all().await
}

/// Without the path, which is nobody's business.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn away(error: std::io::Error) -> ObjectError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ObjectError::Full(error.to_string()),
        _ => ObjectError::Away(error.to_string()),
    }
}
