//! Storage: files of an app's users.
//!
//! A client asks for an upload URL, puts the bytes there and finalizes the object; only then is it there for others. The row
//! of every file is written before its first byte (`storage_file`), with the moment at which it is deleted unless it is
//! kept by then. So no file is ever forgotten, whatever breaks off in between.
mod dashboard;
mod download;
mod egress;
mod export;
mod finalize;
mod lent;
mod model;
mod objects;
mod presign;
mod resumable;
mod rules;
mod sweep;
mod underway;
mod upload;
mod view;

use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result},
    feature::Feature,
    http::Routes,
    jobs::Jobs,
    ports::objects::Key,
};
use tenancy::{
    enter::AppUser,
    ids::AccountId,
    quotas::{self, Meter, Period, PlanLimit},
};

use self::model::{ObjectId, Piece, Shelf, Status, StorageObject, Usage, files};

pub const STORAGE_BYTES: Meter = Meter::platform("storage_bytes", "bytes", Period::Gauge);
pub const EGRESS_BYTES: Meter = Meter::platform("storage_egress_bytes", "bytes", Period::Month);
/// Limits of plans that nothing is counted for: the size of one object, and what one user of an app may store.
const OBJECT_BYTES: Meter = Meter::platform("object_bytes", "bytes", Period::Gauge);
const BYTES_PER_USER: Meter = Meter::platform("storage_bytes_per_user", "bytes", Period::Gauge);

/// What one object may have at the most, whatever the plan says: what S3 copies in one request.
const LARGEST: u64 = 5 * 1024 * 1024 * 1024;
/// How long after its URL expired an upload can be finalized.
const GRACE: Duration = Duration::from_hours(1);
/// How long a file is kept that is on its way. Longer than [`GRACE`] after every upload URL.
const UNDERWAY: Duration = Duration::from_hours(3);
/// Uploads that may be open at once, of one user and of one app.
const OPEN_OF_USER: i64 = 20;
const OPEN_OF_APP: i64 = 1000;

/// The folder of all files, in the store.
const FOLDER: &str = "o";
/// The folder of uploads that clients put into a bucket, and of the names that upload URLs have here.
const UPLOADS: &str = "uploads";

pub const OBJECT_TOO_LARGE: Code = Code::new(413, "object_too_large", "The file is larger than an object may be.");
pub const TYPE_NOT_ALLOWED: Code = Code::new(415, "type_not_allowed", "This app does not store files of this type.");
pub const UPLOAD_MISSING: Code =
    Code::new(409, "upload_missing", "The file has not been uploaded yet. Upload it, then finalize.");
pub const UPLOAD_MISMATCH: Code = Code::new(
    409,
    "upload_mismatch",
    "The uploaded file does not match its announcement. It was deleted; upload it again.",
);
pub const UPLOAD_EXPIRED: Code = Code::new(410, "upload_expired", "The upload has expired. Begin a new one.");
pub const UPLOAD_PENDING: Code = Code::new(409, "upload_pending", "The object is not finalized. Finalize it first.");

tenancy::events! {
    /// A storage object was finalized.
    StorageObjectCreated { object_id: ObjectId, name: String, size: i64, owner_id: AccountId } = "STORAGE_OBJECT_CREATED";
    /// A storage object was changed.
    StorageObjectUpdated { object_id: ObjectId, name: String, size: i64, owner_id: AccountId, fields: Vec<&'static str> } = "STORAGE_OBJECT_UPDATED";
    /// A storage object was deleted, by a user or because it expired.
    StorageObjectDeleted { object_id: ObjectId, name: String, size: i64, owner_id: AccountId, reason: &'static str } = "STORAGE_OBJECT_DELETED";
}

pub fn feature() -> Feature {
    let routes = Routes::new("storage")
        .and(presign::routes())
        .and(finalize::routes())
        .and(objects::routes())
        .and(dashboard::routes())
        .and(upload::routes())
        .and(download::routes())
        .and(resumable::routes());
    Feature::new(routes)
        .own(egress::Egress::default())
        .own(underway::Bodies::default())
        .own(underway::Completions::default())
        .declares(EVENTS)
        .declares(&[STORAGE_BYTES, EGRESS_BYTES])
        .declares(&[PlanLimit(OBJECT_BYTES), PlanLimit(BYTES_PER_USER)])
        .declares(sweep::CHORES)
        .declares(sweep::GONE)
        .declares(export::EXPORTS)
        .declares(lent::LENDS)
        .jobs(Jobs::new().every::<sweep::DeleteFiles>(Duration::from_secs(30)))
        .jobs(Jobs::new().every::<sweep::FindStrays>(Duration::from_hours(24)))
        .task("storage.egress", |janua| Box::pin(egress::flush_regularly(janua)))
}

/// The objects of the calling user in the app of the key, of the key's environment.
fn own_shelf(caller: &AppUser) -> Shelf {
    let keyed = &caller.keyed;
    Shelf { app: keyed.app_id, environment: keyed.environment, owner: Some(caller.account()) }
}

/// Announces a new file of an object.
async fn announce_file(janua: &Janua, object: &StorageObject) -> Result<Key> {
    let key = Key::spread(FOLDER, &janua.entropy);
    files::announce(&janua.db, holder(object), &key, janua.clock.now().plus(UNDERWAY)).await?;
    Ok(key)
}

fn holder(object: &StorageObject) -> files::Holder {
    files::Holder { app: object.app_id, owner: object.owner_id }
}

/// Deletes an object and everything counted for it. Its file is deleted by a job. `false` when another request did it.
async fn end(tx: &mut Tx, object: &StorageObject, now: Timestamp) -> db::Result<bool> {
    let pieces = if object.received.is_some() { Piece::all(&mut *tx, object.id).await? } else { vec![] };
    if !object.delete(tx).await? {
        return Ok(false);
    }
    let files = object.file.iter().chain(pieces.iter().map(|piece| &piece.file));
    for file in files {
        files::doom(tx, file, now).await?;
    }
    quotas::give_back(tx, object.org_id, &STORAGE_BYTES, object.size).await?;
    let pending = if object.status == Status::Pending { -1 } else { 0 };
    Usage::change(tx, object.shelf(), Usage { objects: -1, bytes: -object.size, pending }).await?;
    Ok(true)
}

fn deleted(object: &StorageObject, reason: &'static str) -> StorageObjectDeleted {
    let StorageObject { id, name, size, owner_id, .. } = object;
    StorageObjectDeleted { object_id: *id, name: name.clone(), size: *size, owner_id: *owner_id, reason }
}

#[cfg(test)]
mod tests;
