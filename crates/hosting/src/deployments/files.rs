//! Which files of a deployment are new, changed or gone, compared with the production before it.
use std::collections::BTreeMap;

use db::params;
use kernel::{
    Janua,
    fault::{Fault, INTERNAL, Result, UNAVAILABLE},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    build,
    model::{Deployment, DeploymentId, LiveManifest},
};
use crate::{
    edge::{
        manifest::StoredManifest,
        pieces::{self, PieceError},
    },
    words::words,
};

/// How many files are listed.
const MOST: usize = 1000;

words! {
    pub enum ChangeKind {
        Added = "added",
        Changed = "changed",
        Removed = "removed",
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileChange {
    pub path: String,
    pub change: ChangeKind,
    /// Its size in this deployment; of a removed file, that it had.
    pub size: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChanges {
    /// The deployment that the files are compared with; null for a first deployment.
    pub compared_with: Option<DeploymentId>,
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    pub unchanged: u64,
    /// The first thousand, by path.
    pub files: Vec<FileChange>,
}

pub async fn compare(janua: &Janua, deployment: &Deployment, live: &LiveManifest) -> Result<FileChanges> {
    let sql = "SELECT * FROM deployment WHERE app_id = $1 AND number < $2 AND status = 'ready' AND expired_at IS NULL
                 AND activated_at IS NOT NULL ORDER BY number DESC LIMIT 1";
    let before: Option<Deployment> = janua.db.opt(sql, params![deployment.app_id, deployment.number]).await?;
    let old = match before.as_ref().and_then(Deployment::live_manifest) {
        Some(live) => read(janua, &live).await?,
        None => StoredManifest::default(),
    };
    let new = read(janua, live).await?;
    Ok(FileChanges { compared_with: before.map(|before| before.id), ..difference(&old, &new) })
}

async fn read(janua: &Janua, live: &LiveManifest) -> Result<StoredManifest> {
    let document = pieces::read_object(janua, &live.object).await.map_err(fault)?;
    build::read_document(live.hash, &document).ok_or_else(|| INTERNAL.caused_by("a manifest is corrupt"))
}

fn fault(error: PieceError) -> Fault {
    match error {
        PieceError::Store(error) => error.into(),
        other => UNAVAILABLE.caused_by(other),
    }
}

fn difference(old: &StoredManifest, new: &StoredManifest) -> FileChanges {
    let mut before: BTreeMap<&str, _> = old.files.iter().map(|file| (file.path.as_str(), file)).collect();
    let mut files = vec![];
    let mut unchanged = 0;
    for file in &new.files {
        let change = match before.remove(file.path.as_str()) {
            None => ChangeKind::Added,
            Some(known) if known.hash != file.hash => ChangeKind::Changed,
            Some(_) => {
                unchanged += 1;
                continue;
            }
        };
        files.push(FileChange { path: file.path.clone(), change, size: file.size });
    }
    let removed = before.into_values();
    files.extend(removed.map(|file| FileChange {
        path: file.path.clone(),
        change: ChangeKind::Removed,
        size: file.size,
    }));
    let count = |kind| files.iter().filter(|file| file.change == kind).count() as u64;
    let (added, changed, removed) =
        (count(ChangeKind::Added), count(ChangeKind::Changed), count(ChangeKind::Removed));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.truncate(MOST);
    FileChanges { compared_with: None, added, changed, removed, unchanged, files }
}
