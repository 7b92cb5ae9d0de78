//! The end of an upload: the bytes are checked, and the object becomes ready.
use std::{fmt::Display, time::Duration};

use axum::extract::State;
use futures_util::StreamExt as _;
use kernel::{
    Janua,
    fault::{Fault, INTERNAL, NOT_FOUND, Result},
    http::{Json, MaybeJson, Path, Routes},
    ports::objects::{Content, Hasher, Key, ObjectError},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::AppUser,
    events::{self, About, By},
};

use super::{
    GRACE, StorageObjectCreated, UPLOAD_EXPIRED, UPLOAD_MISMATCH, UPLOAD_MISSING, announce_file, end,
    model::{ObjectId, Status, StorageObject, Usage, files},
    own_shelf, resumable, rules,
    underway::{self, FINALIZE_UNDERWAY},
    view::StorageObjectView,
};

/// The first bytes of a file, which tell its type.
const FIRST: u64 = 8 * 1024;
/// Larger objects in a bucket are read for their digest only if the client gave one.
const DIGESTED: i64 = 64 * 1024 * 1024;
/// How often a file that was replaced meanwhile is looked at again.
const TRIES: u32 = 3;

pub fn routes() -> Routes {
    Routes::new("storage")
        .post("/storage/finalize/{objectId}", finalize_upload, "mark an uploaded object complete")
        .fails(&[UPLOAD_MISSING, UPLOAD_MISMATCH, UPLOAD_EXPIRED, FINALIZE_UNDERWAY])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPath {
    pub object_id: ObjectId,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Finalization {
    /// The digest that the uploaded bytes must have.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    sha256: Option<String>,
}

async fn finalize_upload(
    State(janua): State<Janua>,
    caller: AppUser,
    Path(ObjectPath { object_id }): Path<ObjectPath>,
    MaybeJson(body): MaybeJson<Finalization>,
) -> Result<Json<StorageObjectView>> {
    let object = StorageObject::find_on(&janua.db, own_shelf(&caller), object_id).await?.ok_or(NOT_FOUND)?;
    let claimed = body.unwrap_or_default().sha256;
    let object = underway::complete_in_time(&janua, object, claimed.as_deref(), &caller.session.by()).await?;
    Ok(Json(StorageObjectView::of(&janua, object)))
}

/// Makes an object ready, once. Whoever comes second gets the same object.
pub async fn finish(
    janua: &Janua,
    mut object: StorageObject,
    claimed: Option<&str>,
    by: &By,
) -> Result<StorageObject> {
    for _ in 0..TRIES {
        if object.status == Status::Ready {
            return must_have(object, claimed);
        }
        if object.expires_at.is_some_and(|at| at.plus(GRACE) <= janua.clock.now()) {
            return Err(UPLOAD_EXPIRED.into());
        }
        if object.received.is_some() && object.file.is_none() {
            object = resumable::assemble(janua, object).await?;
            if object.is_ready() {
                return must_have(object, claimed);
            }
        }
        let Some(found) = look(janua, &object, claimed).await? else {
            return Err(Fault::from(UPLOAD_MISSING).retry_after(Duration::from_secs(1)));
        };
        let found = match found {
            Ok(found) => found,
            Err(mismatch) => return Err(refuse(janua, &object, &mismatch).await?),
        };
        if let Some(done) = settle(janua, &object, &found, by).await? {
            return Ok(done);
        }
        // Another request was first, or the file was replaced.
        object = StorageObject::find(&janua.db, object.id).await?.ok_or(NOT_FOUND)?;
    }
    Err(INTERNAL.caused_by("an upload was replaced again and again"))
}

/// A ready object, if it has the digest that the caller claims.
pub fn must_have(object: StorageObject, claimed: Option<&str>) -> Result<StorageObject> {
    match (claimed, &object.sha256) {
        (Some(claimed), Some(found)) if claimed != found => {
            Err(Mismatch { field: "sha256", expected: claimed.to_owned(), found: found.clone() }.fault())
        }
        _ => Ok(object),
    }
}

/// The file that was uploaded.
struct Found {
    file: Key,
    sha256: Option<String>,
}

struct Mismatch {
    field: &'static str,
    expected: String,
    found: String,
}

impl Mismatch {
    fn fault(&self) -> Fault {
        UPLOAD_MISMATCH
            .because(format!("{}: {} was announced, {} was uploaded.", self.field, self.expected, self.found))
            .with_extra("field", &self.field)
            .with_extra("expected", &self.expected)
            .with_extra("found", &self.found)
    }
}

/// Looks at what was uploaded; nothing when nothing was.
async fn look(
    janua: &Janua,
    object: &StorageObject,
    claimed: Option<&str>,
) -> Result<Option<Result<Found, Mismatch>>> {
    let (file, found_size, known) = match &object.file {
        // It came through this server, which measured it.
        Some(file) => (file.clone(), object.size, object.file_sha256.clone()),
        None if janua.objects.is_put_here() => return Ok(None),
        None => {
            let Some(size) = janua.objects.head(&object.slot).await? else { return Ok(None) };
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            if size != object.size {
                return Ok(Some(Err(mismatch("size", &object.size, &size))));
            }
            // The upload URL still works. It leads to another file from here on.
            let file = announce_file(janua, object).await?;
            if !janua.objects.copy(&object.slot, &file).await? {
                return Ok(None);
            }
            let copied = janua.objects.head(&file).await?.and_then(|size| i64::try_from(size).ok());
            (file, copied.unwrap_or_default(), None)
        }
    };
    if found_size != object.size {
        return Ok(Some(Err(mismatch("size", &object.size, &found_size))));
    }
    let expected = [object.sha256.as_deref(), claimed];
    let is_claimed = expected.iter().any(Option::is_some);
    let must_read = known.is_none() && (is_claimed || object.size <= DIGESTED);
    let (first, read) = read(janua, object, &file, must_read).await?;
    let sha256 = known.or(read);
    for expected in expected.into_iter().flatten() {
        if sha256.as_deref().is_some_and(|found| found != expected) {
            return Ok(Some(Err(mismatch("sha256", &expected, &sha256.unwrap_or_default()))));
        }
    }
    if let Some(found) = rules::contradiction(&object.content_type, &first) {
        return Ok(Some(Err(mismatch("contentType", &object.content_type, &found))));
    }
    Ok(Some(Ok(Found { file, sha256 })))
}

fn mismatch(field: &'static str, expected: &dyn Display, found: &dyn Display) -> Mismatch {
    Mismatch { field, expected: expected.to_string(), found: found.to_string() }
}

/// The first bytes of a file and, if asked for, the digest of all of them.
async fn read(janua: &Janua, object: &StorageObject, file: &Key, whole: bool) -> Result<(Vec<u8>, Option<String>)> {
    let first = FIRST.min(u64::try_from(object.size).unwrap_or_default());
    // A range of nothing is none.
    let range = (!whole && first > 0).then_some(0..first);
    let Some(Content { mut bytes, .. }) = janua.objects.get(file, range).await? else {
        return Err(INTERNAL.caused_by("an uploaded file is not there"));
    };
    let (mut start, mut hash) = (vec![], Hasher::new());
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|error| ObjectError::Away(error.to_string()))?;
        let room = usize::try_from(first).unwrap_or_default().saturating_sub(start.len());
        start.extend_from_slice(&piece[..piece.len().min(room)]);
        hash.update(&piece);
    }
    Ok((start, whole.then(|| hash.finish().to_string())))
}

/// Makes it ready, unless another request was first; then its own file goes.
async fn settle(janua: &Janua, object: &StorageObject, found: &Found, by: &By) -> Result<Option<StorageObject>> {
    let done = transact!(janua, async |tx| {
        let now = janua.clock.now();
        let Some(done) = StorageObject::finish(tx, object, &found.file, found.sha256.as_deref(), now).await? else {
            return Ok(None);
        };
        if !files::keep(tx, &found.file).await? {
            return Err(INTERNAL.caused_by("the file of an upload was deleted before it was finalized"));
        }
        Usage::change(tx, done.shelf(), Usage { pending: -1, ..Usage::default() }).await?;
        let created = StorageObjectCreated {
            object_id: done.id,
            name: done.name.clone(),
            size: done.size,
            owner_id: done.owner_id,
        };
        let about = About::application(done.app_id, done.org_id).person(done.owner_id);
        events::record(tx, janua, by, about, &created).await?;
        Ok(Some(done))
    })?;
    if done.is_none() && object.file.is_none() {
        transact!(janua, async |tx| Ok(files::doom(tx, &found.file, janua.clock.now()).await?))?;
    }
    Ok(done)
}

/// Ends an upload that is not what was announced. Its file goes.
async fn refuse(janua: &Janua, object: &StorageObject, mismatch: &Mismatch) -> Result<Fault> {
    transact!(janua, async |tx| Ok(end(tx, object, janua.clock.now()).await?))?;
    Ok(mismatch.fault())
}
