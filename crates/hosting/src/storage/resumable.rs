//! Resumable uploads by tus 1.0.0: creation, expiration, checksum, termination.
//!
//! Bytes are stored in pieces as they come. What arrived before a connection broke stays, and the client goes on from there.
//! With the last byte the object becomes ready; there is nothing else to call.
use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use data_encoding::BASE64;
use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    fault::{Code, Fault, INTERNAL, INVALID, NOT_FOUND, Result},
    http::{GenContext, Operation, OperationInput, Path, Routes, Streamed, may_answer},
    ports::objects::{ObjectError, Sha256, Source},
    transact,
};
use tenancy::{
    enter::AppUser,
    quotas::QUOTA_EXCEEDED,
    uploads::{TOO_MANY_UPLOADS, UPLOAD_REFUSED},
};

use super::{
    LARGEST, OBJECT_TOO_LARGE, TYPE_NOT_ALLOWED, UNDERWAY, UPLOAD_EXPIRED, UPLOAD_MISMATCH, UPLOAD_MISSING, end,
    finalize::ObjectPath,
    model::{Piece, Status, StorageObject, Visibility, files},
    own_shelf,
    presign::{NewObject, Place, begin},
    underway::{BodyPlace, FINALIZE_UNDERWAY, UPLOAD_UNDERWAY, complete, complete_in_time},
    upload::{Expected, receive},
};

/// How long an upload waits for its next byte.
const VALID: Duration = Duration::from_hours(24);
/// What one PATCH may bring if it has a checksum, because all of it counts or none.
const LARGEST_CHECKED: u64 = 64 * 1024 * 1024;
/// How much sooner than the newest piece an earlier one may be deleted; so not every piece extends all that were
/// before it. With it a piece still outlives [`GRACE`](super::GRACE) after its upload.
const SLACK: Duration = Duration::from_hours(1);
/// The length of a piece: what is lost at the most when the server dies.
const PIECE: u64 = 16 * 1024 * 1024;

const VERSION: &str = "1.0.0";
const EXTENSIONS: &str = "creation,expiration,checksum,termination";
const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");

const UNKNOWN_VERSION: Code =
    Code::new(412, "tus_version", "This server speaks tus 1.0.0. Send Tus-Resumable: 1.0.0.");
const OFFSET_CONFLICT: Code =
    Code::new(409, "offset_conflict", "The upload is at another offset. Ask for it with HEAD, and go on from there.");
const NOT_OFFSETS: Code = Code::new(
    415,
    "not_offset_stream",
    "Bytes of a resumable upload must have the type application/offset+octet-stream.",
);
const CHECKSUM_MISMATCH: Code =
    Code::new(460, "checksum_mismatch", "The bytes have another checksum. They were not kept; send them again.");

pub fn routes() -> Routes {
    Routes::new("storage")
        .post("/storage/uploads", create_upload, "begin a resumable upload (tus)")
        .fails(&[QUOTA_EXCEEDED, OBJECT_TOO_LARGE, TYPE_NOT_ALLOWED, TOO_MANY_UPLOADS, INVALID])
        .answers_nothing(201)
        .unkept()
        .get("/storage/uploads/{objectId}", upload_state, "progress of a resumable upload (tus)")
        .fails(&[UPLOAD_EXPIRED, UPLOAD_MISMATCH, UPLOAD_MISSING, FINALIZE_UNDERWAY])
        .answers_nothing(204)
        .patch("/storage/uploads/{objectId}", append_to_upload, "continue a resumable upload (tus)")
        .streams(usize::try_from(LARGEST).unwrap_or(usize::MAX))
        .fails(&[OFFSET_CONFLICT, NOT_OFFSETS, CHECKSUM_MISMATCH, UPLOAD_EXPIRED, UPLOAD_MISMATCH, UPLOAD_MISSING])
        .fails(&[UPLOAD_REFUSED, UPLOAD_UNDERWAY, INVALID])
        .answers_nothing(204)
        .delete("/storage/uploads/{objectId}", end_upload, "cancel a resumable upload (tus)")
        .answers_nothing(204)
        .options("/storage/uploads", describe_server, "what this server can (tus)")
        .answers_nothing(204)
}

/// A client that speaks our version of the protocol, and its headers.
struct Tus(HeaderMap);

impl FromRequestParts<Janua> for Tus {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        match parts.headers.get(&TUS_RESUMABLE) {
            Some(version) if version == VERSION => Ok(Self(parts.headers.clone())),
            _ => {
                let version = HeaderName::from_static("tus-version");
                Err(Fault::from(UNKNOWN_VERSION).with_header(version, HeaderValue::from_static(VERSION)))
            }
        }
    }
}

impl OperationInput for Tus {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[UNKNOWN_VERSION]);
    }
}

impl Tus {
    fn text(&self, name: &HeaderName) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str().ok())
    }

    fn number(&self, name: &HeaderName) -> Result<i64> {
        let number = self.text(name).and_then(|text| text.parse::<i64>().ok()).filter(|number| *number >= 0);
        number.ok_or_else(|| INVALID.at(name.as_str(), "wrong_form", "must be a whole number from 0 on"))
    }

    /// `Upload-Metadata`: names with values in base64.
    fn metadata(&self) -> Result<BTreeMap<String, String>> {
        let wrong = || INVALID.at(UPLOAD_METADATA.as_str(), "wrong_form", "must be names with values in base64");
        let pairs = self.text(&UPLOAD_METADATA).unwrap_or_default().split(',').map(str::trim);
        let read = |pair: &str| {
            let (name, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let value = String::from_utf8(BASE64.decode(value.trim().as_bytes()).ok()?).ok()?;
            Some((name.to_owned(), value))
        };
        pairs.filter(|pair| !pair.is_empty()).map(|pair| read(pair).ok_or_else(wrong)).collect()
    }

    /// `Upload-Checksum: sha256 …`.
    fn checksum(&self) -> Result<Option<Sha256>> {
        let Some(text) = self.text(&UPLOAD_CHECKSUM) else { return Ok(None) };
        let digest = text
            .split_once(' ')
            .filter(|(name, _)| *name == "sha256")
            .and_then(|(_, value)| BASE64.decode(value.trim().as_bytes()).ok()?.try_into().ok().map(Sha256));
        let wrong = || INVALID.at(UPLOAD_CHECKSUM.as_str(), "wrong_form", "must be sha256 and the digest in base64");
        digest.map(Some).ok_or_else(wrong)
    }
}

/// An answer with the headers of the protocol.
fn answer(status: StatusCode, headers: &[(HeaderName, String)]) -> Result<Response> {
    let mut response = status.into_response();
    response.headers_mut().insert(TUS_RESUMABLE, HeaderValue::from_static(VERSION));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, text) in headers {
        let value = HeaderValue::from_str(text).map_err(|error| INTERNAL.caused_by(error))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

fn expires(object: &StorageObject) -> Option<(HeaderName, String)> {
    let at = object.expires_at.filter(|_| object.status == Status::Pending)?;
    let at = std::time::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default());
    Some((UPLOAD_EXPIRES, httpdate::fmt_http_date(at)))
}

async fn describe_server() -> Result<Response> {
    answer(
        StatusCode::NO_CONTENT,
        &[
            (HeaderName::from_static("tus-version"), VERSION.to_owned()),
            (HeaderName::from_static("tus-extension"), EXTENSIONS.to_owned()),
            (HeaderName::from_static("tus-max-size"), LARGEST.to_string()),
            (HeaderName::from_static("tus-checksum-algorithm"), "sha256".to_owned()),
        ],
    )
}

async fn create_upload(State(janua): State<Janua>, caller: AppUser, tus: Tus) -> Result<Response> {
    let size = tus.number(&UPLOAD_LENGTH)?;
    let mut said = tus.metadata()?;
    let mut take = |names: &[&str]| names.iter().find_map(|name| said.remove(*name));
    let visibility = match take(&["visibility"]).as_deref() {
        None | Some("private") => Visibility::Private,
        Some("public") => Visibility::Public,
        Some(_) => return Err(INVALID.at("visibility", "wrong_form", "must be private or public")),
    };
    let sha256 = take(&["sha256"]);
    if sha256.as_deref().is_some_and(|text| Sha256::parse(text).is_none()) {
        return Err(INVALID.at("sha256", "wrong_form", "must be 64 hexadecimal characters"));
    }
    let new = NewObject {
        name: take(&["filename", "name"]).unwrap_or_else(|| "file".to_owned()),
        content_type: take(&["filetype", "contentType", "type"])
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "application/octet-stream".to_owned()),
        size,
        sha256,
        visibility,
        metadata: said,
        expires_in: None,
        ttl: None,
    };
    let mut object = begin(&janua, &Place::of_user(&caller), new, VALID, Some(0)).await?;
    if size == 0 {
        object = complete(&janua, object, None, &caller.session.by()).await?;
    }
    let location = format!("{}/storage/uploads/{}", janua.config.base_url(), object.id);
    let mut headers = vec![(header::LOCATION, location), (UPLOAD_OFFSET, "0".to_owned())];
    headers.extend(expires(&object));
    answer(StatusCode::CREATED, &headers)
}

/// A resumable upload of the caller.
async fn find(janua: &Janua, caller: &AppUser, path: &ObjectPath) -> Result<StorageObject> {
    let found = StorageObject::find_on(&janua.db, own_shelf(caller), path.object_id).await?;
    let object = found.filter(|object| object.received.is_some()).ok_or(NOT_FOUND)?;
    let is_late = object.expires_at.is_some_and(|at| at <= janua.clock.now());
    if object.status == Status::Pending && is_late { Err(UPLOAD_EXPIRED.into()) } else { Ok(object) }
}

async fn upload_state(
    State(janua): State<Janua>,
    caller: AppUser,
    _: Tus,
    Path(path): Path<ObjectPath>,
) -> Result<Response> {
    let mut object = find(&janua, &caller, &path).await?;
    if object.received == Some(object.size) && object.status == Status::Pending {
        // The server died between the last byte and the end, or is still about it.
        object = complete_in_time(&janua, object, None, &caller.session.by()).await?;
    }
    let mut headers = vec![
        (UPLOAD_OFFSET, object.received.unwrap_or_default().to_string()),
        (UPLOAD_LENGTH, object.size.to_string()),
    ];
    headers.extend(expires(&object));
    answer(StatusCode::NO_CONTENT, &headers)
}

async fn append_to_upload(
    State(janua): State<Janua>,
    caller: AppUser,
    tus: Tus,
    Path(path): Path<ObjectPath>,
    body: Streamed,
) -> Result<Response> {
    let mut object = find(&janua, &caller, &path).await?;
    if tus.text(&header::CONTENT_TYPE) != Some("application/offset+octet-stream") {
        return Err(NOT_OFFSETS.into());
    }
    let (offset, checksum) = (tus.number(&UPLOAD_OFFSET)?, tus.checksum()?);
    if object.status != Status::Pending || object.received != Some(offset) {
        return Err(OFFSET_CONFLICT.into());
    }
    let _place = BodyPlace::take(&janua, object.id)?;
    let left = u64::try_from(object.size - offset).unwrap_or_default();
    let offset = match checksum {
        Some(sha256) => append_checked(&janua, &object, offset, left, sha256, body).await?,
        None => append(&janua, &object, offset, left, body).await?,
    };
    object.received = Some(offset);
    if offset == object.size {
        object = complete(&janua, object, None, &caller.session.by()).await?;
    }
    let mut headers = vec![(UPLOAD_OFFSET, offset.to_string())];
    headers.extend(expires(&object));
    answer(StatusCode::NO_CONTENT, &headers)
}

/// All of the body or nothing.
async fn append_checked(
    janua: &Janua,
    object: &StorageObject,
    offset: i64,
    left: u64,
    sha256: Sha256,
    body: Streamed,
) -> Result<i64> {
    let most = left.min(LARGEST_CHECKED);
    let bytes = kernel::ports::objects::limited(body.into_source(), most);
    let expected = Expected { length: None, sha256: Some(sha256) };
    match receive(janua, object, expected, bytes).await {
        Err(ObjectError::Unlike(_)) => Err(CHECKSUM_MISMATCH.into()),
        Err(other) => Err(other.into()),
        Ok((file, stored)) => note_piece(janua, object, offset, stored.length, file).await,
    }
}

/// Piece by piece. When the client goes away, what came until then stays.
async fn append(janua: &Janua, object: &StorageObject, mut offset: i64, left: u64, body: Streamed) -> Result<i64> {
    let mut source = Cut { bytes: body.into_source(), rest: None, end: None, left };
    while source.has_more().await {
        let expected = Expected { length: None, sha256: None };
        let (file, stored) = receive(janua, object, expected, source.piece()).await?;
        offset = note_piece(janua, object, offset, stored.length, file).await?;
    }
    match source.end {
        Some(fault) => Err(fault),
        None => Ok(offset),
    }
}

/// Moves the offset behind a stored piece; answers the new one.
async fn note_piece(
    janua: &Janua,
    object: &StorageObject,
    offset: i64,
    length: u64,
    file: kernel::ports::objects::Key,
) -> Result<i64> {
    let length = i64::try_from(length).unwrap_or_default();
    let to = offset + length;
    if length == 0 {
        transact!(janua, async |tx| Ok(files::doom(tx, &file, janua.clock.now()).await?))?;
        return Ok(offset);
    }
    let is_noted = transact!(janua, async |tx| {
        let now = janua.clock.now();
        let expires_at = now.plus(VALID);
        let is_noted = StorageObject::advance(tx, object.id, offset, to, expires_at).await?;
        if is_noted {
            Piece { start_at: offset, length, file: file.clone() }.insert(tx, object.id).await?;
            let kept_until = expires_at.plus(UNDERWAY);
            files::doom(tx, &file, kept_until).await?;
            Piece::keep_all(tx, object.id, kept_until.minus(SLACK), kept_until).await?;
        } else {
            files::doom(tx, &file, now).await?;
        }
        Ok(is_noted)
    })?;
    if is_noted { Ok(to) } else { Err(OFFSET_CONFLICT.into()) }
}

/// A body, cut into pieces.
struct Cut<'a> {
    bytes: Source<'a>,
    rest: Option<bytes::Bytes>,
    /// Why the body broke off.
    end: Option<Fault>,
    /// What may still come.
    left: u64,
}

impl Cut<'_> {
    async fn has_more(&mut self) -> bool {
        if self.rest.is_none() && self.end.is_none() {
            self.fetch().await;
        }
        self.rest.is_some()
    }

    async fn fetch(&mut self) {
        match self.bytes.next().await {
            Some(Ok(piece)) if piece.len() as u64 > self.left => {
                self.end = Some(kernel::fault::TOO_LARGE.into());
            }
            Some(Ok(piece)) => {
                self.left -= piece.len() as u64;
                self.rest = Some(piece);
            }
            Some(Err(fault)) => self.end = Some(fault),
            None => {}
        }
    }

    /// The next so many bytes. A body that breaks off ends the piece and does not spoil it.
    fn piece(&mut self) -> Source<'_> {
        Box::pin(stream::unfold((self, 0u64), |(cut, length)| async move {
            if length >= PIECE {
                return None;
            }
            if cut.rest.is_none() && cut.end.is_none() {
                cut.fetch().await;
            }
            let mut piece = cut.rest.take()?;
            let room = usize::try_from(PIECE - length).unwrap_or(usize::MAX);
            if piece.len() > room {
                cut.rest = Some(piece.split_off(room));
            }
            let length = length + piece.len() as u64;
            Some((Ok(piece), (cut, length)))
        }))
    }
}

/// Joins the pieces of an upload into its file; the pieces go. Another node may do it at the same time: what the
/// first made counts.
pub async fn assemble(janua: &Janua, object: StorageObject) -> Result<StorageObject> {
    let object = StorageObject::find(&janua.db, object.id).await?.ok_or(NOT_FOUND)?;
    if object.file.is_some() || object.status == Status::Ready {
        return Ok(object);
    }
    if object.received != Some(object.size) {
        return Err(UPLOAD_MISSING.into());
    }
    let joined = join(janua, &object).await;
    let object = StorageObject::find(&janua.db, object.id).await?.ok_or(NOT_FOUND)?;
    match joined {
        Err(fault) if object.file.is_none() => Err(fault),
        _ => Ok(object),
    }
}

async fn join(janua: &Janua, object: &StorageObject) -> Result<()> {
    let pieces = Piece::all(&janua.db, object.id).await?;
    let of = janua.clone();
    let whole = stream::iter(pieces.clone()).then(move |piece| {
        let janua = of.clone();
        async move {
            match janua.objects.get(&piece.file, None).await {
                Ok(Some(content)) => content.into_source(),
                Ok(None) => failed(INTERNAL.caused_by("a piece of an upload is missing")),
                Err(error) => failed(error.into()),
            }
        }
    });
    let length = u64::try_from(object.size).unwrap_or_default();
    let expected = Expected { length: Some(length), sha256: None };
    let (file, stored) = receive(janua, object, expected, Box::pin(whole.flatten())).await?;
    let sha256 = stored.sha256.to_string();
    transact!(janua, async |tx| {
        let now = janua.clock.now();
        let held = StorageObject::hold(tx, object.id).await?.filter(|held| held.file.is_none());
        if held.is_none() || !StorageObject::set_file(tx, object.id, &file, &sha256).await? {
            // Another node was first.
            return Ok(files::doom(tx, &file, now).await?);
        }
        let kept_until = object.expires_at.unwrap_or(now).max(now).plus(UNDERWAY);
        files::doom(tx, &file, kept_until).await?;
        for piece in &pieces {
            files::doom(tx, &piece.file, now).await?;
        }
        Ok(Piece::delete_all(tx, object.id).await?)
    })
}

fn failed<'a>(fault: Fault) -> Source<'a> {
    Box::pin(stream::once(async { Err(fault) }))
}

async fn end_upload(
    State(janua): State<Janua>,
    caller: AppUser,
    _: Tus,
    Path(path): Path<ObjectPath>,
) -> Result<Response> {
    let object = find(&janua, &caller, &path).await?;
    transact!(janua, async |tx| {
        let held = StorageObject::hold(tx, object.id).await?.ok_or(NOT_FOUND)?;
        if !end(tx, &held, janua.clock.now()).await? {
            return Err(NOT_FOUND.into());
        }
        if held.is_ready() {
            caller.record(tx, &janua, &super::deleted(&held, "deleted")).await?;
        }
        Ok(())
    })?;
    answer(StatusCode::NO_CONTENT, &[])
}
