//! Deletion of what expired, of files that nobody needs, and of everything of an account, an app or an organization that
//! goes.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    jobs::{Chore, Job, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    events::{self, About, By},
    gone::Gone,
    ids::AccountId,
    quotas,
};

use super::{
    FOLDER, GRACE, STORAGE_BYTES, UPLOADS, deleted, end,
    model::{Share, Shelf, StorageObject, Usage, files},
};

const BATCH: u32 = 200;
/// A file without a row is left alone for so long, by the store's own clock.
const STRAY: Duration = Duration::from_hours(24);

pub const CHORES: &[Chore] =
    &[Chore::run("storage_object", |janua| Box::pin(async move { delete_lapsed(&janua).await }))];

pub const GONE: &[Gone] = &[
    Gone::Account(|tx, janua, account| Box::pin(account_gone(tx, janua, account))),
    Gone::ManyOfApp(
        "UPDATE storage_file SET doomed_at = 0 WHERE key IN
             (SELECT key FROM storage_file WHERE app_id = $1 AND doomed_at IS NULL LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM storage_object WHERE id IN (SELECT id FROM storage_object WHERE app_id = $1 LIMIT $2)",
    ),
    Gone::App(|tx, janua, app| Box::pin(app_gone(tx, janua, app))),
];

/// Deletes objects whose time is up, and uploads that were never finalized.
async fn delete_lapsed(janua: &Janua) -> Result<(), Later> {
    loop {
        let now = janua.clock.now();
        let lapsed = StorageObject::lapsed(&janua.db, now, now.minus(GRACE), BATCH).await?;
        let is_last = lapsed.len() < BATCH as usize;
        for object in lapsed {
            transact!(janua, async |tx| {
                if end(tx, &object, now).await? && object.is_ready() {
                    let about = About::application(object.app_id, object.org_id).person(object.owner_id);
                    events::record(tx, janua, &By::default(), about, &deleted(&object, "expired")).await?;
                }
                Ok(())
            })?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Deletes the files whose moment has come.
#[derive(Default, Serialize, Deserialize)]
pub struct DeleteFiles {}

impl Job for DeleteFiles {
    const KIND: &'static str = "storage.delete_files";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        loop {
            let now = janua.clock.now();
            let doomed = files::doomed(&janua.db, now, BATCH).await?;
            let is_last = doomed.len() < BATCH as usize;
            for key in doomed {
                if files::is_doomed(&janua.db, &key, now).await? {
                    janua.objects.delete(&key).await.map_err(Later::retry)?;
                    files::forget(&janua.db, &key, now).await?;
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Deletes files that no row knows: after a backup was restored, or when a client put a file into a bucket long after its
/// upload URL expired.
#[derive(Default, Serialize, Deserialize)]
pub struct FindStrays {}

impl Job for FindStrays {
    const KIND: &'static str = "storage.find_strays";
    const LIMIT: Duration = Duration::from_mins(50);

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for folder in [FOLDER, UPLOADS] {
            let mut after = None;
            loop {
                let listed = janua.objects.list(folder, after.as_ref()).await.map_err(Later::retry)?;
                let Some(last) = listed.last() else { break };
                after = Some(last.key.clone());
                for object in &listed {
                    let is_old = object.changed_at.plus(STRAY) <= janua.clock.now();
                    if is_old && !files::is_known(&janua.db, &object.key).await? {
                        janua.objects.delete(&object.key).await.map_err(Later::retry)?;
                        tracing::info!(key = %object.key, "a file that belongs to no object was deleted");
                    }
                }
            }
        }
        Ok(())
    }
}

/// In the transaction that deletes the account: its objects go from every app, and its files by job.
async fn account_gone(tx: &mut Tx, janua: &Janua, account: AccountId) -> db::Result<()> {
    let shares = Share::take_of_owner(tx, account).await?;
    for share in shares {
        quotas::give_back(tx, share.org_id, &STORAGE_BYTES, share.bytes).await?;
        let shelf = Shelf { app: share.app_id, environment: share.environment, owner: Some(account) };
        let less = Usage { objects: -share.objects, bytes: -share.bytes, pending: -share.pending };
        Usage::change(tx, shelf, less).await?;
    }
    files::doom_of_owner(tx, account, janua.clock.now()).await
}

/// In the transaction that deletes the app: its rows go with it, and its files by job.
async fn app_gone(tx: &mut Tx, janua: &Janua, app: ApplicationId) -> db::Result<()> {
    let bytes = Share::of_app(tx, app).await?;
    if let Some(application) = Application::find(&mut *tx, app).await? {
        quotas::give_back(tx, application.org_id, &STORAGE_BYTES, bytes).await?;
    }
    files::doom_of_app(tx, app, janua.clock.now()).await
}
