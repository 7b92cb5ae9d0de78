//! Jobs about uploads: looking whether something came to the bucket, and clearing up.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    jobs::{self, Job, Later},
    ports::objects::{Key, ObjectError},
};
use serde::{Deserialize, Serialize};

use super::{
    UPLOAD_REFUSED, finish, forget,
    model::{Upload, UploadId},
    picture,
};

/// A request that began in time may end a little later.
const GRACE: Duration = Duration::from_mins(1);
/// After this time past the expiry of its URL an upload counts as interrupted.
const STALE: Duration = Duration::from_hours(1);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Checks whether the file has arrived, with growing pauses, until the upload URL expires.
#[derive(Serialize, Deserialize)]
pub struct Look {
    upload: UploadId,
    /// How often nothing was there.
    looks: u32,
}

/// The next look, after a pause.
pub(super) async fn again(tx: &mut Tx, janua: &Janua, upload: UploadId, looks: u32) -> db::Result<()> {
    let now = janua.clock.now();
    let pause = (FIRST_PAUSE * (1 << looks.min(8))).min(LONGEST_PAUSE);
    let unique = format!("upload:{upload}:{looks}");
    jobs::enqueue_at(tx, janua, now, now.plus(pause), Some(&unique), &Look { upload, looks }).await
}

impl Job for Look {
    const KIND: &'static str = "uploads.look";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(upload) = Upload::find_open(&janua.db, self.upload).await? else { return Ok(()) };
        let came = match janua.objects.read(&upload.incoming_key, upload.length.into()).await {
            Ok(came) => came,
            // Not what was signed, whatever the server let in.
            Err(ObjectError::TooLong) => return Ok(forget(&janua, &upload).await?),
            Err(away) => return Err(Later::retry(away)),
        };
        match came {
            Some(bytes) => match finish(&janua, &upload, bytes).await {
                Err(refusal) if picture::is_refusal(&refusal) || refusal.code() == UPLOAD_REFUSED => {
                    tracing::info!(upload = %upload.id, code = refusal.code().name, "an upload was refused");
                    Ok(forget(&janua, &upload).await?)
                }
                outcome => Ok(outcome?),
            },
            None if janua.clock.now() < upload.expires_at.plus(GRACE) => {
                let next = db::transact!(janua.db, async |tx| again(tx, &janua, self.upload, self.looks + 1).await);
                Ok(next?)
            }
            None => Ok(forget(&janua, &upload).await?),
        }
    }
}

/// Deletes objects that no row shows any more.
#[derive(Serialize, Deserialize)]
pub struct Discard {
    keys: Vec<Key>,
}

impl Job for Discard {
    const KIND: &'static str = "uploads.discard";
    /// With the usual backoff that is about a day.
    const TRIES: u32 = 32;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for key in &self.keys {
            janua.objects.delete(key).await.map_err(Later::retry)?;
        }
        Ok(())
    }
}

pub(super) async fn discard(tx: &mut Tx, janua: &Janua, at: Timestamp, keys: Vec<Key>) -> db::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    jobs::enqueue_at(tx, janua, janua.clock.now(), at, None, &Discard { keys }).await
}

/// Deletes the incoming object of a bucket. It can be written again until the upload URL expires, so it is deleted
/// after that.
pub(super) async fn discard_incoming(tx: &mut Tx, janua: &Janua, upload: &Upload) -> db::Result<()> {
    if janua.objects.is_put_here() {
        return Ok(());
    }
    let at = upload.expires_at.plus(GRACE).max(janua.clock.now());
    discard(tx, janua, at, vec![upload.incoming_key.clone()]).await
}

/// Everything there may be of an upload.
pub(super) async fn discard_all(tx: &mut Tx, janua: &Janua, upload: &Upload) -> db::Result<()> {
    discard(tx, janua, janua.clock.now(), vec![upload.picture_key.clone()]).await?;
    discard_incoming(tx, janua, upload).await
}

/// Deletes uploads whose file never came, or whose node died.
pub async fn sweep(janua: &Janua) -> db::Result<()> {
    let before = janua.clock.now().minus(STALE);
    db::transact!(janua.db, async |tx| {
        let stale = Upload::take_stale(tx, before).await?.into_iter();
        let keys = stale.flat_map(|upload| [upload.incoming_key, upload.picture_key]).collect();
        discard(tx, janua, janua.clock.now(), keys).await
    })
}
