//! Jobs about uploads: looking whether something came to the bucket, and clearing up.
use std::time::Duration;

use db::Tx;
use kernel::{
    App,
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

/// What began in time may end a little later.
const GRACE: Duration = Duration::from_mins(1);
/// Nobody ends an upload this long after its address has run out.
const STALE: Duration = Duration::from_hours(1);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Looks whether something came, again and again with growing pauses until the address has run out.
#[derive(Serialize, Deserialize)]
pub struct Look {
    upload: UploadId,
    /// How often nothing was there.
    looks: u32,
}

/// The next look, after a pause.
pub(super) async fn again(tx: &mut Tx, app: &App, upload: UploadId, looks: u32) -> db::Result<()> {
    let now = app.clock.now();
    let pause = (FIRST_PAUSE * (1 << looks.min(8))).min(LONGEST_PAUSE);
    let unique = format!("upload:{upload}:{looks}");
    jobs::enqueue_at(tx, app, now, now.plus(pause), Some(&unique), &Look { upload, looks }).await
}

impl Job for Look {
    const KIND: &'static str = "uploads.look";

    async fn run(self, app: App) -> Result<(), Later> {
        let Some(upload) = Upload::find_open(&app.db, self.upload).await? else { return Ok(()) };
        let came = match app.objects.read(&upload.incoming_key, upload.length.into()).await {
            Ok(came) => came,
            // Not what was signed, whatever the server let in.
            Err(ObjectError::TooLong) => return Ok(forget(&app, &upload).await?),
            Err(away) => return Err(Later::retry(away)),
        };
        match came {
            Some(bytes) => match finish(&app, &upload, bytes).await {
                Err(refusal) if picture::is_refusal(&refusal) || refusal.code() == UPLOAD_REFUSED => {
                    tracing::info!(upload = %upload.id, code = refusal.code().name, "an upload was refused");
                    Ok(forget(&app, &upload).await?)
                }
                outcome => Ok(outcome?),
            },
            None if app.clock.now() < upload.expires_at.plus(GRACE) => {
                let next = db::transact!(app.db, async |tx| again(tx, &app, self.upload, self.looks + 1).await);
                Ok(next?)
            }
            None => Ok(forget(&app, &upload).await?),
        }
    }
}

/// Removes objects that nobody shows any more.
#[derive(Serialize, Deserialize)]
pub struct Discard {
    keys: Vec<Key>,
}

impl Job for Discard {
    const KIND: &'static str = "uploads.discard";
    /// With the usual backoff that is about a day.
    const TRIES: u32 = 32;

    async fn run(self, app: App) -> Result<(), Later> {
        for key in &self.keys {
            app.objects.delete(key).await.map_err(Later::retry)?;
        }
        Ok(())
    }
}

pub(super) async fn discard(tx: &mut Tx, app: &App, at: Timestamp, keys: Vec<Key>) -> db::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    jobs::enqueue_at(tx, app, app.clock.now(), at, None, &Discard { keys }).await
}

/// What was put into a bucket. It can be put again until the address has run out, so it is removed after that.
pub(super) async fn discard_incoming(tx: &mut Tx, app: &App, upload: &Upload) -> db::Result<()> {
    if app.objects.is_put_here() {
        return Ok(());
    }
    let at = upload.expires_at.plus(GRACE).max(app.clock.now());
    discard(tx, app, at, vec![upload.incoming_key.clone()]).await
}

/// Everything there may be of an upload.
pub(super) async fn discard_all(tx: &mut Tx, app: &App, upload: &Upload) -> db::Result<()> {
    discard(tx, app, app.clock.now(), vec![upload.picture_key.clone()]).await?;
    discard_incoming(tx, app, upload).await
}

/// Clears up after uploads that never came, or that nobody lived to end.
pub async fn sweep(app: &App) -> db::Result<()> {
    let before = app.clock.now().minus(STALE);
    db::transact!(app.db, async |tx| {
        let stale = Upload::take_stale(tx, before).await?.into_iter();
        let keys = stale.flat_map(|upload| [upload.incoming_key, upload.picture_key]).collect();
        discard(tx, app, app.clock.now(), keys).await
    })
}
