//! The objects of an app, for the members of its organization.
use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{NoContent, Response},
};
use kernel::{
    Janua,
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, Listed, Page, Path, Query, Routes, Scope, Streamed},
    ports::objects::{ObjectError, Source, limited},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    apps::Environment,
    enter::{Admin, InApp, Least, Member},
    ids::AccountId,
    quotas::{self, Pool, QUOTA_EXCEEDED},
    uploads::{TOO_MANY_UPLOADS, UPLOAD_REFUSED},
};

use super::{
    LARGEST, OBJECT_TOO_LARGE, STORAGE_BYTES, TYPE_NOT_ALLOWED, UPLOAD_MISMATCH, deleted, download, end,
    finalize::{self, ObjectPath},
    model::{Shelf, Status, StorageObject, Usage, Visibility},
    objects::{ObjectFilter, list},
    presign::{self, NewObject, Place},
    upload::{self, Expected},
    view::{StorageObjectView, StorageObjects, UsageView},
};

/// How long an upload in one request may take until its end is noted.
const LONGEST: Duration = Duration::from_mins(30);

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps/{appId}/storage", list_app_objects, "list storage objects (dashboard)")
        .delete("/apps/{appId}/storage/{objectId}", delete_app_object, "delete a storage object (dashboard)")
        .get("/apps/{appId}/storage/{objectId}/content", read_app_object, "the bytes of a storage object (dashboard)")
        .answers::<String>(200, "application/octet-stream")
        .answers_nothing(304)
        .post("/apps/{appId}/storage", upload_app_object, "upload a storage object in one request (dashboard)")
        .streams(usize::try_from(LARGEST).unwrap_or(usize::MAX))
        .fails(&[
            QUOTA_EXCEEDED,
            OBJECT_TOO_LARGE,
            TYPE_NOT_ALLOWED,
            TOO_MANY_UPLOADS,
            UPLOAD_MISMATCH,
            UPLOAD_REFUSED,
        ])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DashboardFilter {
    /// The objects of one user.
    owner_id: Option<AccountId>,
    /// Objects whose names begin with this, in the order of their names. Without it: newest first.
    #[schemars(length(min = 1, max = 512))]
    prefix: Option<String>,
    status: Option<Status>,
    /// `live` unless `test` is asked for.
    environment: Option<Environment>,
}

async fn list_app_objects(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Query(filter): Query<DashboardFilter>,
    page: Page,
) -> Result<Json<StorageObjects>> {
    let environment = filter.environment.unwrap_or(Environment::Live);
    let shelf = Shelf { app: caller.application.id, environment, owner: filter.owner_id };
    let owner = filter.owner_id.map(|owner| owner.to_string()).unwrap_or_default();
    let scope = Scope::from(shelf.app).found_by(&format!("{owner}/{}", environment.name()));
    let wanted = ObjectFilter { prefix: filter.prefix, status: filter.status };
    let Listed { rows, next_cursor } = list(&janua, shelf, scope, &wanted, &page).await?;
    let org = caller.application.org_id;
    let limit = quotas::ceiling_of(&janua.db, &janua, org, &STORAGE_BYTES).await?;
    let counted = quotas::used(&janua.db, org, &STORAGE_BYTES, janua.clock.now()).await?;
    let usage = UsageView::of(Usage::find(&janua.db, shelf).await?, limit, counted);
    let objects = rows.into_iter().map(|object| StorageObjectView::without_download(&janua, object)).collect();
    Ok(Json(StorageObjects { objects, next_cursor, usage }))
}

/// In either environment.
async fn find<R: Least>(janua: &Janua, caller: &InApp<R>, id: super::ObjectId) -> Result<StorageObject> {
    let found = StorageObject::find(&janua.db, id).await?;
    let found = found.filter(|object| object.app_id == caller.application.id);
    Ok(found.filter(|object| !object.is_over(janua.clock.now())).ok_or(NOT_FOUND)?)
}

async fn delete_app_object(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(ObjectPath { object_id }): Path<ObjectPath>,
) -> Result<NoContent> {
    find(&janua, &caller, object_id).await?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let object = StorageObject::hold(tx, object_id).await?.ok_or(NOT_FOUND)?;
        if !end(tx, &object, janua.clock.now()).await? {
            return Err(NOT_FOUND.into());
        }
        if object.is_ready() {
            caller.record(tx, &janua, &deleted(&object, "deleted_by_admin")).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}

async fn read_app_object(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(ObjectPath { object_id }): Path<ObjectPath>,
    headers: download::Conditions,
) -> Result<Response> {
    let object = find(&janua, &caller, object_id).await?;
    download::serve(&janua, &object, &headers, "private, no-cache").await
}

#[derive(Deserialize, JsonSchema)]
struct UploadQuery {
    /// The name of the object.
    name: String,
    visibility: Option<Visibility>,
    environment: Option<Environment>,
}

/// The headers of the body.
struct BodyHeaders(HeaderMap);

impl axum::extract::FromRequestParts<Janua> for BodyHeaders {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &Janua) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.headers.clone()))
    }
}

impl kernel::http::OperationInput for BodyHeaders {}

/// `Content-Type` says what it is, `Content-Length` how long. The object belongs to the caller and is ready at once.
async fn upload_app_object(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Query(query): Query<UploadQuery>,
    BodyHeaders(headers): BodyHeaders,
    body: Streamed,
) -> Result<Json<StorageObjectView>> {
    let said = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let length = said(header::CONTENT_LENGTH).and_then(|text| text.parse().ok()).or(body.announced());
    let Some(length) = length.and_then(|length: u64| i64::try_from(length).ok()) else {
        return Err(INVALID.at("Content-Length", "required", "must say how long the file is"));
    };
    let content_type = said(header::CONTENT_TYPE).unwrap_or("application/octet-stream");
    let new = NewObject {
        name: query.name,
        content_type: content_type.split(';').next().unwrap_or_default().to_owned(),
        size: length,
        sha256: None,
        visibility: query.visibility.unwrap_or_default(),
        metadata: BTreeMap::new(),
        expires_in: None,
        ttl: None,
    };
    let place = Place {
        pool: Pool::from(&caller.application),
        app: caller.application.id,
        environment: query.environment.unwrap_or(Environment::Live),
        owner: caller.session.account().id,
    };
    let object = presign::begin(&janua, &place, new, LONGEST, None).await?;
    let by = caller.session.by();
    match store(&janua, &object, body.into_source(), &by).await {
        Ok(done) => Ok(Json(StorageObjectView::of(&janua, done))),
        Err(fault) => {
            // Its room is free at once, and not only when the upload lapses.
            transact!(janua, async |tx| Ok(end(tx, &object, janua.clock.now()).await?))?;
            Err(fault)
        }
    }
}

async fn store(
    janua: &Janua,
    object: &StorageObject,
    bytes: Source<'_>,
    by: &tenancy::events::By,
) -> Result<StorageObject> {
    let length = u64::try_from(object.size).unwrap_or_default();
    let expected = Expected { length: Some(length), sha256: None };
    let (file, stored) = match upload::receive(janua, object, expected, limited(bytes, length)).await {
        Err(ObjectError::Unlike(_)) => return Err(UPLOAD_REFUSED.into()),
        outcome => outcome?,
    };
    upload::set_file(janua, object, &file, stored).await?;
    let object = StorageObject::find(&janua.db, object.id).await?.ok_or(NOT_FOUND)?;
    finalize::finish(janua, object, None, by).await
}
