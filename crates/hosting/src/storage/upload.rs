//! Uploads to this server, at URLs that it has signed.
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderValue, header, request::Parts},
    response::NoContent,
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, Result},
    http::{GenContext, Operation, OperationInput, Path, Query, Routes, Streamed, may_answer},
    ports::objects::{self, Key, New, ObjectError, Sha256, Slot, Source, Stored},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::uploads::UPLOAD_REFUSED;

use super::{
    LARGEST, UNDERWAY, UPLOADS, announce_file,
    model::{Status, StorageObject, files},
    underway::{BodyPlace, UPLOAD_UNDERWAY},
};

pub fn routes() -> Routes {
    Routes::new("storage")
        .put("/files/uploads/{name}", put_upload, "upload a file to an upload URL")
        .streams(usize::try_from(LARGEST).unwrap_or(usize::MAX))
        .fails(&[UPLOAD_UNDERWAY])
        .for_any_origin()
}

#[derive(Deserialize, JsonSchema)]
struct UploadPath {
    name: String,
}

/// The parameters of an upload URL.
#[derive(Deserialize, JsonSchema)]
struct Link {
    #[serde(rename = "type")]
    content_type: Option<String>,
    length: Option<String>,
    sha256: Option<String>,
    expires: Option<String>,
    signature: Option<String>,
}

/// The file that the URL was signed for, checked before its first byte is read: method, key, type, length, digest and
/// expiry.
struct SignedUpload {
    slot: Key,
    length: u64,
    sha256: Option<Sha256>,
}

impl FromRequestParts<Janua> for SignedUpload {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let Path(UploadPath { name }) = Path::from_request_parts(parts, janua).await?;
        let Query(link) = Query::<Link>::from_request_parts(parts, janua).await?;
        let said = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let signed = signed(janua, &name, &link).ok_or(UPLOAD_REFUSED)?;
        let is_type = said(header::CONTENT_TYPE) == link.content_type.as_deref();
        let is_length = said(header::CONTENT_LENGTH).is_some_and(|length| length.parse() == Ok(signed.length));
        if is_type && is_length { Ok(signed) } else { Err(UPLOAD_REFUSED.into()) }
    }
}

fn signed(janua: &Janua, name: &str, link: &Link) -> Option<SignedUpload> {
    let key = Key::parse(&format!("{UPLOADS}/{name}"))?;
    let (length, until) = (link.length.as_ref()?.parse().ok()?, Timestamp(link.expires.as_ref()?.parse().ok()?));
    let sha256 = match &link.sha256 {
        Some(text) => Some(Sha256::parse(text)?),
        None => None,
    };
    let slot = Slot { key: &key, content_type: link.content_type.as_ref()?, length, sha256, until };
    let is_good = objects::is_signed(&janua.vault, &slot, link.signature.as_ref()?) && janua.clock.now() < until;
    is_good.then_some(SignedUpload { slot: key, length, sha256 })
}

impl OperationInput for SignedUpload {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Path::<UploadPath>::operation_input(ctx, operation);
        Query::<Link>::operation_input(ctx, operation);
        may_answer(operation, &[UPLOAD_REFUSED]);
    }
}

async fn put_upload(State(janua): State<Janua>, signed: SignedUpload, body: Streamed) -> Result<NoContent> {
    let object = StorageObject::find_by_slot(&janua.db, &signed.slot).await?;
    let object = object.filter(|object| object.status == Status::Pending).ok_or(UPLOAD_REFUSED)?;
    let _place = BodyPlace::take(&janua, object.id)?;
    let expected = Expected { length: Some(signed.length), sha256: signed.sha256 };
    let (file, stored) = match receive(&janua, &object, expected, body.into_source()).await {
        Err(ObjectError::Unlike(_)) => return Err(UPLOAD_REFUSED.into()),
        outcome => outcome?,
    };
    set_file(&janua, &object, &file, stored).await?;
    Ok(NoContent)
}

/// What is known of bytes before they come.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub length: Option<u64>,
    pub sha256: Option<Sha256>,
}

/// Stores bytes in a file of their own, so that two uploads to one URL never mix. Nobody reads the file until its object
/// is ready.
pub async fn receive(
    janua: &Janua,
    object: &StorageObject,
    expected: Expected,
    bytes: Source<'_>,
) -> Result<(Key, Stored), ObjectError> {
    let file = announce_file(janua, object).await.map_err(ObjectError::Source)?;
    let new = New { length: expected.length, sha256: expected.sha256, ..New::at(&file, &object.content_type) };
    let stored = janua.objects.put(new, bytes).await?;
    Ok((file, stored))
}

/// Notes an uploaded file, instead of one that was uploaded before it.
pub async fn set_file(janua: &Janua, object: &StorageObject, file: &Key, stored: Stored) -> Result<()> {
    let is_noted = transact!(janua, async |tx| {
        let now = janua.clock.now();
        let before = StorageObject::hold(tx, object.id).await?;
        let is_noted = StorageObject::set_file(tx, object.id, file, &stored.sha256.to_string()).await?;
        if !is_noted {
            files::doom(tx, file, now).await?;
            return Ok(false);
        }
        let kept_until = object.expires_at.unwrap_or(now).max(now).plus(UNDERWAY);
        files::doom(tx, file, kept_until).await?;
        if let Some(before) = before.and_then(|before| before.file) {
            files::doom(tx, &before, now).await?;
        }
        Ok(is_noted)
    })?;
    if is_noted { Ok(()) } else { Err(UPLOAD_REFUSED.into()) }
}
