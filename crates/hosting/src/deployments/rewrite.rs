//! Packs of which little is needed any more: what is needed moves into new ones, so that a file that never changes does
//! not keep what once lay beside it.
use std::collections::{BTreeMap, HashMap};

use kernel::{
    Janua,
    jobs::{Job, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::apps::ApplicationId;

use super::{
    build::{self, LARGEST_PACK},
    model::{Deployment, LiveManifest, StoredPack},
    process,
};
use crate::edge::{
    manifest::{Piece, Sha256, StoredManifest},
    pieces::{self, PieceError},
    site,
};

/// Smaller packs stay: what they waste is less than the work.
const SMALLEST: i64 = 64 << 10;
/// How many packs are emptied in one run. The next expired deployment brings the next run.
const MOST_PACKS: usize = 16;
/// Apps that keep more deployments are left alone: each manifest would have to be read.
const MOST_KEPT: u32 = 250;
/// Apps with more pieces are left alone, too: each is held in memory.
const MOST_PIECES: usize = 1_000_000;

/// Moves what is needed out of packs of an app that are less than half in use. They are deleted as others that no
/// deployment names, so nodes that have not heard of it read them for another hour.
#[derive(Serialize, Deserialize)]
pub struct RewritePacks {
    pub app: ApplicationId,
}

/// Where the pieces of some packs are now, by the pack and the place in it.
type Moved = HashMap<(String, u64), (String, u64)>;

/// The pieces of packs that are needed, by the pack and the place in it.
type Needed = HashMap<String, BTreeMap<u64, (Sha256, u32)>>;

impl Job for RewritePacks {
    const KIND: &'static str = "rewrite_packs";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let kept = Deployment::kept(&janua.db, self.app, MOST_KEPT + 1).await?;
        if kept.len() > MOST_KEPT as usize {
            return Ok(());
        }
        let mut manifests: Vec<LiveManifest> = kept.iter().filter_map(Deployment::live_manifest).collect();
        manifests.sort_by(|a, b| a.object.cmp(&b.object));
        let (mut needed, mut pieces) = (Needed::new(), 0);
        for live in manifests.chunk_by(|a, b| a.object == b.object).filter_map(<[LiveManifest]>::first) {
            pieces += note(&mut needed, &read(&janua, live).await?);
            if pieces > MOST_PIECES {
                return Ok(());
            }
        }
        let sparse = sparse(&janua, self.app, needed).await?;
        if sparse.is_empty() {
            return Ok(());
        }
        let moved = copy(&janua, self.app, &sparse).await?;
        for same in manifests.chunk_by(|a, b| a.object == b.object) {
            follow(&janua, self.app, same, &moved).await?;
        }
        tracing::debug!(app = %self.app, packs = sparse.len(), "packs were rewritten");
        Ok(())
    }
}

async fn read(janua: &Janua, live: &LiveManifest) -> Result<StoredManifest, Later> {
    let document = pieces::read_object(janua, &live.object).await.map_err(Later::retry)?;
    build::read_document(live.hash, &document)
        .ok_or_else(|| Later::give_up(format!("the manifest {} is not what its hash says", live.object)))
}

/// Adds the pieces of a manifest, and answers how many of them are new.
fn note(needed: &mut Needed, stored: &StoredManifest) -> usize {
    let mut added = 0;
    for piece in stored.pieces() {
        if let Some(pack) = stored.packs.get(piece.pack as usize) {
            let pieces = match needed.get_mut(pack) {
                Some(pieces) => pieces,
                None => needed.entry(pack.clone()).or_default(),
            };
            added += usize::from(pieces.insert(piece.at, (piece.hash, piece.size)).is_none());
        }
    }
    added
}

/// Packs of which less than half is needed.
async fn sparse(janua: &Janua, app: ApplicationId, mut needed: Needed) -> Result<Needed, Later> {
    let packs = StoredPack::sizes(&janua.db, app, SMALLEST).await?;
    let sparse = packs.into_iter().filter_map(|pack| {
        let pieces = needed.remove(&pack.object)?;
        let used: i64 = pieces.values().map(|(_, size)| i64::from(*size)).sum();
        (used * 2 < pack.bytes).then_some((pack.object, pieces))
    });
    Ok(sparse.take(MOST_PACKS).collect())
}

/// Stores what is needed in new packs. A piece that is damaged stays where it is, with its pack.
async fn copy(janua: &Janua, app: ApplicationId, sparse: &Needed) -> Result<Moved, Later> {
    let mut moved = Moved::new();
    let (mut pack, mut bytes, mut within) = (build::pack_key(&janua.entropy), vec![], vec![]);
    for (object, needed) in sparse {
        for (at, (hash, size)) in needed {
            let piece = match pieces::read_range(janua, object, *at, u64::from(*size)).await {
                Ok(piece) if Sha256::of(&piece) == *hash => piece,
                Ok(_) | Err(PieceError::Missing(_) | PieceError::Corrupt(_)) => {
                    tracing::warn!(object, at, "a piece of a site is damaged and is not moved");
                    continue;
                }
                Err(away) => return Err(Later::retry(away)),
            };
            if bytes.len() + piece.len() > LARGEST_PACK {
                store(janua, app, &pack, &bytes).await?;
                moved.extend(within.drain(..));
                (pack, bytes) = (build::pack_key(&janua.entropy), vec![]);
            }
            within.push(((object.clone(), *at), (pack.clone(), bytes.len() as u64)));
            bytes.extend_from_slice(&piece);
        }
    }
    if !bytes.is_empty() {
        store(janua, app, &pack, &bytes).await?;
        moved.extend(within);
    }
    Ok(moved)
}

async fn store(janua: &Janua, app: ApplicationId, object: &str, bytes: &[u8]) -> Result<(), Later> {
    process::store(janua, app, object, bytes).await.map_err(|failure| Later::from(failure.fault))
}

/// Writes the manifest that some deployments share anew, where it names what was moved. One that changed meanwhile stays.
async fn follow(janua: &Janua, app: ApplicationId, same: &[LiveManifest], moved: &Moved) -> Result<(), Later> {
    let Some(live) = same.first() else { return Ok(()) };
    let mut stored = read(janua, live).await?;
    if !lead(&mut stored, moved) {
        return Ok(());
    }
    let stored = stored.without_unused_packs();
    let (document, hash) = build::document(&stored).map_err(|refusal| Later::give_up(refusal.reason))?;
    let object = build::manifest_key(&janua.entropy).to_string();
    store(janua, app, &object, &document).await?;
    let mut objects = stored.packs;
    objects.push(object.clone());
    transact!(janua, async |tx| {
        let now = janua.clock.now();
        for live in same {
            Deployment::swap_manifest(tx, live, &object, hash, &objects, now).await?;
        }
        Ok(site::changed(tx, app).await?)
    })?;
    Ok(())
}

/// Names the new places of pieces. `false` if none was moved.
fn lead(stored: &mut StoredManifest, moved: &Moved) -> bool {
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let (mut packs, mut is_new) = (stored.packs.clone(), false);
    let mut turn = |piece: &mut Piece| {
        let Some(old) = stored.packs.get(piece.pack as usize) else { return };
        let Some((pack, at)) = moved.get(&(old.clone(), piece.at)) else { return };
        let number = *numbers.entry(pack.clone()).or_insert_with(|| {
            packs.push(pack.clone());
            u32::try_from(packs.len() - 1).unwrap_or(u32::MAX)
        });
        (piece.pack, piece.at, is_new) = (number, *at, true);
    };
    for file in &mut stored.files {
        let forms = [&mut file.gzip, &mut file.br].into_iter().flatten().flat_map(|form| &mut form.pieces);
        file.pieces.iter_mut().chain(forms).for_each(&mut turn);
    }
    stored.packs = packs;
    is_new
}
