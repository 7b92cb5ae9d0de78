//! Uploads to URLs that this server has signed, and downloads of pictures.
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderValue, header, request::Parts},
    response::{IntoResponse as _, NoContent, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, NOT_FOUND, Result},
    http::{GenContext, Operation, OperationInput, Path, Query, Raw, Routes, may_answer},
    ports::objects::{self, KEPT_FOR_GOOD, Key, Slot},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    LARGEST, UPLOAD_REFUSED,
    picture::{NOT_A_PICTURE, PICTURE_TOO_LARGE, Shown},
    take,
};

pub fn routes() -> Routes {
    Routes::new("files")
        .get("/files/pictures/{name}", get_picture, "an uploaded picture")
        .answers::<String>(200, "image/png")
        .answers::<String>(200, "image/jpeg")
        .body_limit(LARGEST)
        .put("/files/incoming/{name}", put_file, "upload a file to an upload URL")
        .fails(&[NOT_A_PICTURE, PICTURE_TOO_LARGE])
}

#[derive(Deserialize, JsonSchema)]
struct FileName {
    name: String,
}

async fn get_picture(State(janua): State<Janua>, Path(FileName { name }): Path<FileName>) -> Result<Response> {
    let shown = Shown::of_name(&name).ok_or(NOT_FOUND)?;
    let key = Key::parse(&format!("pictures/{name}")).ok_or(NOT_FOUND)?;
    let picture = janua.objects.get(&key, None).await?.ok_or(NOT_FOUND)?;
    let length = HeaderValue::from(picture.total);
    let mut response = picture.into_body().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(shown.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(KEPT_FOR_GOOD));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("inline"));
    Ok(response)
}

/// The parameters of an upload URL.
#[derive(Deserialize, JsonSchema)]
struct Link {
    #[serde(rename = "type")]
    content_type: Option<String>,
    length: Option<String>,
    expires: Option<String>,
    signature: Option<String>,
}

/// A request with a valid upload URL, whose headers fit the signed file. Checked before the first byte of the file is
/// read.
struct Allowed {
    key: Key,
    length: usize,
}

impl FromRequestParts<Janua> for Allowed {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let Path(FileName { name }) = Path::from_request_parts(parts, janua).await?;
        let Query(link) = Query::<Link>::from_request_parts(parts, janua).await?;
        let said = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let allowed = allowed(janua, &name, &link).ok_or(UPLOAD_REFUSED)?;
        let is_type = said(header::CONTENT_TYPE) == link.content_type.as_deref();
        let is_length = said(header::CONTENT_LENGTH).is_none_or(|length| length.parse() == Ok(allowed.length));
        if is_type && is_length { Ok(allowed) } else { Err(UPLOAD_REFUSED.into()) }
    }
}

fn allowed(janua: &Janua, name: &str, link: &Link) -> Option<Allowed> {
    let key = Key::parse(&format!("incoming/{name}"))?;
    let (length, until) = (link.length.as_ref()?.parse().ok()?, Timestamp(link.expires.as_ref()?.parse().ok()?));
    let slot = Slot { key: &key, content_type: link.content_type.as_ref()?, length, sha256: None, until };
    let is_good = objects::is_signed(&janua.vault, &slot, link.signature.as_ref()?) && janua.clock.now() < until;
    is_good.then(|| usize::try_from(length).ok().map(|length| Allowed { key: key.clone(), length }))?
}

impl OperationInput for Allowed {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Path::<FileName>::operation_input(ctx, operation);
        Query::<Link>::operation_input(ctx, operation);
        may_answer(operation, &[UPLOAD_REFUSED]);
    }
}

async fn put_file(State(janua): State<Janua>, allowed: Allowed, Raw(bytes): Raw) -> Result<NoContent> {
    if bytes.len() != allowed.length {
        return Err(UPLOAD_REFUSED.into());
    }
    take(&janua, &allowed.key, bytes.into()).await?;
    Ok(NoContent)
}
