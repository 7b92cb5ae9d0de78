//! Reading objects: whole or in part, again only when changed, and never as a page of this origin.
use std::{convert::Infallible, ops::Range};

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::same,
    fault::{Code, Fault, INTERNAL, NOT_FOUND, Result},
    http::{OperationInput, Path, Query, Routes},
    ports::objects::{Sha256, checked},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    egress::Egress,
    model::{ObjectId, StorageObject, Visibility},
    rules::{Showing, disposition},
};
use crate::ranges::{self, Part};

/// What the key that signs download URLs is for.
const PURPOSE: &str = "storage:get";
const RANGE_NOT_SATISFIABLE: Code =
    Code::new(416, "range_not_satisfiable", "The requested range lies outside of the object.");
/// A cache may show a public object this long after it was deleted or made private.
const PUBLIC: &str = "public, max-age=60";
const PRIVATE: &str = "private, no-cache";

pub fn routes() -> Routes {
    Routes::new("storage")
        .get("/files/o/{id}/{name}", download_object, "read an object at its URL or download URL")
        .answers::<String>(200, "application/octet-stream")
        .answers::<String>(206, "application/octet-stream")
        .answers_nothing(304)
        .fails(&[RANGE_NOT_SATISFIABLE])
        .for_any_origin()
}

#[derive(Deserialize, JsonSchema)]
struct DownloadPath {
    id: ObjectId,
    /// For people; any will do.
    #[expect(dead_code, reason = "the id is enough")]
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct DownloadQuery {
    expires: Option<String>,
    signature: Option<String>,
}

/// The parameters of a download URL.
pub fn signed_query(janua: &Janua, id: ObjectId, until: Timestamp) -> String {
    format!("expires={}&signature={}", until.0, sign(janua, id, until))
}

fn sign(janua: &Janua, id: ObjectId, until: Timestamp) -> String {
    janua.vault.mac(PURPOSE, format!("GET\n{id}\n{}", until.0).as_bytes())
}

fn is_signed(janua: &Janua, id: ObjectId, query: &DownloadQuery) -> bool {
    let (Some(expires), Some(signature)) = (&query.expires, &query.signature) else { return false };
    let Ok(until) = expires.parse().map(Timestamp) else { return false };
    janua.clock.now() < until && same(sign(janua, id, until).as_bytes(), signature.as_bytes())
}

async fn download_object(
    State(janua): State<Janua>,
    Path(DownloadPath { id, .. }): Path<DownloadPath>,
    Query(query): Query<DownloadQuery>,
    conditions: Conditions,
) -> Result<Response> {
    let object = StorageObject::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let is_public = object.visibility == Visibility::Public;
    if !is_public && !is_signed(&janua, id, &query) {
        return Err(NOT_FOUND.into());
    }
    serve(&janua, &object, &conditions, if is_public { PUBLIC } else { PRIVATE }).await
}

/// What a client has already, and what it asks for.
pub struct Conditions {
    method: Method,
    headers: HeaderMap,
}

impl FromRequestParts<Janua> for Conditions {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self, Infallible> {
        Ok(Self { method: parts.method.clone(), headers: parts.headers.clone() })
    }
}

impl OperationInput for Conditions {}

impl Conditions {
    fn text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the client has this representation.
    fn has(&self, tag: &str) -> bool {
        let Some(known) = self.text(&header::IF_NONE_MATCH) else { return false };
        known.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
    }

    /// The one range that is asked for; several are answered as the whole, which is allowed.
    fn range(&self, tag: &str, total: u64) -> Result<Option<Range<u64>>> {
        let is_same = self.text(&header::IF_RANGE).is_none_or(|known| known == tag);
        let Some(asked) = self.text(&header::RANGE).filter(|_| is_same) else { return Ok(None) };
        match ranges::parse(asked, total) {
            Part::Whole => Ok(None),
            Part::Bytes(range) => Ok(Some(range)),
            Part::Outside => {
                let says = HeaderValue::try_from(format!("bytes */{total}")).map_err(|e| INTERNAL.caused_by(e))?;
                Err(Fault::from(RANGE_NOT_SATISFIABLE).with_header(header::CONTENT_RANGE, says))
            }
        }
    }
}

/// Answers an object, or the part of it that is asked for.
pub async fn serve(
    janua: &Janua,
    object: &StorageObject,
    conditions: &Conditions,
    cache_control: &'static str,
) -> Result<Response> {
    let is_there = object.is_ready() && !object.is_over(janua.clock.now());
    let file = object.file.as_ref().filter(|_| is_there).ok_or(NOT_FOUND)?;
    let total = u64::try_from(object.size).unwrap_or_default();
    // Bytes never change under an id.
    let tag = format!("\"{}\"", object.sha256.clone().unwrap_or_else(|| object.id.to_string()));
    let showing = Showing::of(&object.content_type);
    let mut response = StatusCode::OK.into_response();
    let mut put = |name: HeaderName, text: &str| {
        let value = HeaderValue::from_str(text).map_err(|error| INTERNAL.caused_by(error))?;
        response.headers_mut().insert(name, value);
        Ok::<_, Fault>(())
    };
    put(header::ETAG, &tag)?;
    put(header::CACHE_CONTROL, cache_control)?;
    put(header::ACCEPT_RANGES, "bytes")?;
    put(header::CONTENT_TYPE, &shown_type(&object.content_type))?;
    put(header::CONTENT_DISPOSITION, &disposition(showing, &object.name))?;
    put(header::CONTENT_SECURITY_POLICY, showing.policy())?;
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff")?;
    put(HeaderName::from_static("cross-origin-resource-policy"), "cross-origin")?;
    if conditions.has(&tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let range = conditions.range(&tag, total)?;
    let length = range.as_ref().map_or(total, |range| range.end - range.start);
    if let Some(range) = &range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let says = format!("bytes {}-{}/{total}", range.start, range.end - 1);
        let says = HeaderValue::try_from(says).map_err(|error| INTERNAL.caused_by(error))?;
        response.headers_mut().insert(header::CONTENT_RANGE, says);
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    if conditions.method == Method::HEAD {
        return Ok(response);
    }
    let is_whole = range.is_none();
    let content = janua.objects.get(file, range).await?;
    let content = content.ok_or_else(|| INTERNAL.caused_by(format!("the file {file} of an object is missing")))?;
    let content = match object.sha256.as_deref().and_then(Sha256::parse).filter(|_| is_whole) {
        Some(sha256) => checked(content, sha256),
        None => content,
    };
    janua.own::<Egress>().count(object.org_id, length);
    *response.body_mut() = content.into_body();
    Ok(response)
}

/// Text is what it says, in the encoding of our time.
fn shown_type(content_type: &str) -> String {
    if content_type == "text/plain" { "text/plain; charset=utf-8".to_owned() } else { content_type.to_owned() }
}
