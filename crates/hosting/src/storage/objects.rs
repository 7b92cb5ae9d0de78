//! The objects of the calling user.
use std::collections::BTreeMap;

use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Listed, Page, Path, Query, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use tenancy::{enter::AppUser, quotas, records};

use super::{
    BYTES_PER_USER, StorageObjectUpdated, UPLOAD_PENDING, deleted, end,
    model::{ObjectId, Shelf, Status, StorageObject, Usage, Visibility},
    own_shelf,
    rules::{self, Findings},
    view::{StorageObjectView, StorageObjects, UsageView},
};

pub fn routes() -> Routes {
    Routes::new("storage")
        .get("/storage/objects", list_objects, "list the current user's objects in the app")
        .get("/storage/objects/{id}", get_object, "object metadata")
        .patch("/storage/objects/{id}", update_object, "update object metadata")
        .fails(&[UPLOAD_PENDING])
        .delete("/storage/objects/{id}", delete_object, "delete an object")
}

#[derive(Deserialize, JsonSchema)]
struct ObjectPath {
    id: ObjectId,
}

#[derive(Deserialize, JsonSchema)]
pub struct ObjectFilter {
    /// Objects whose names begin with this, in the order of their names. Without it: newest first.
    #[schemars(length(min = 1, max = 512))]
    pub prefix: Option<String>,
    pub status: Option<Status>,
}

async fn list_objects(
    State(janua): State<Janua>,
    caller: AppUser,
    Query(filter): Query<ObjectFilter>,
    page: Page,
) -> Result<Json<StorageObjects>> {
    let shelf = own_shelf(&caller);
    let scope = Scope::from(caller.account()).found_by(&format!("{}/{}", shelf.app, shelf.environment.name()));
    let Listed { rows, next_cursor } = list(&janua, shelf, scope, &filter, &page).await?;
    let limit = quotas::ceiling_of(&janua.db, &janua, caller.keyed.org_id, &BYTES_PER_USER).await?;
    let usage = Usage::find(&janua.db, shelf).await?;
    let usage = UsageView::of(usage, limit, usage.bytes);
    let objects = rows.into_iter().map(|object| StorageObjectView::of(&janua, object)).collect();
    Ok(Json(StorageObjects { objects, next_cursor, usage }))
}

/// One page of a shelf.
pub async fn list(
    janua: &Janua,
    shelf: Shelf,
    scope: Scope,
    filter: &ObjectFilter,
    page: &Page,
) -> Result<Listed<StorageObject>> {
    let now = janua.clock.now();
    let status = filter.status;
    let scope =
        scope.found_by(&format!("{}:{}", status.map_or("", Status::name), filter.prefix.as_deref().unwrap_or("")));
    let mut listed = match &filter.prefix {
        None => {
            let fetch = async |below, most| StorageObject::newest(&janua.db, shelf, status, &below, most).await;
            page.list(janua, "storage", scope, fetch, StorageObject::position).await?
        }
        Some(prefix) => {
            let fetch =
                async |below, most| StorageObject::named(&janua.db, shelf, status, prefix, &below, most).await;
            page.list(janua, "storage by name", scope, fetch, StorageObject::position_by_name).await?
        }
    };
    // Those that expired since the last sweep are gone already.
    listed.rows.retain(|object| !object.is_over(now));
    Ok(listed)
}

async fn find(janua: &Janua, caller: &AppUser, id: ObjectId) -> Result<StorageObject> {
    let found = StorageObject::find_on(&janua.db, own_shelf(caller), id).await?;
    Ok(found.filter(|object| !object.is_over(janua.clock.now())).ok_or(NOT_FOUND)?)
}

async fn get_object(
    State(janua): State<Janua>,
    caller: AppUser,
    Path(ObjectPath { id }): Path<ObjectPath>,
) -> Result<Json<StorageObjectView>> {
    let object = find(&janua, &caller, id).await?;
    Ok(Json(StorageObjectView::of(&janua, object)))
}

/// The changes. All other fields are ignored.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ObjectChange {
    name: Option<String>,
    /// Merged with what is there; null deletes a key.
    metadata: Option<BTreeMap<String, Option<String>>>,
    visibility: Option<Visibility>,
    /// When the object is deleted; null keeps it.
    #[serde(default, deserialize_with = "given")]
    #[expect(clippy::option_option, reason = "null and a missing field mean different things")]
    expires_at: Option<Option<Timestamp>>,
}

/// Tells null from a missing field.
#[expect(clippy::option_option, reason = "null and a missing field mean different things")]
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(from).map(Some)
}

async fn update_object(
    State(janua): State<Janua>,
    caller: AppUser,
    Path(ObjectPath { id }): Path<ObjectPath>,
    Json(change): Json<ObjectChange>,
) -> Result<Json<StorageObjectView>> {
    find(&janua, &caller, id).await?;
    let changed = transact!(janua, async |tx| {
        let now = janua.clock.now();
        let object = StorageObject::hold(tx, id).await?.filter(|object| !object.is_over(now));
        let mut object = object.ok_or(NOT_FOUND)?;
        if object.status == Status::Pending {
            return Err(UPLOAD_PENDING.into());
        }
        let fields = apply(&mut object, &change, now)?;
        if !fields.is_empty() {
            object.updated_at = now;
            object.save(tx).await?;
            let updated = StorageObjectUpdated {
                object_id: object.id,
                name: object.name.clone(),
                size: object.size,
                owner_id: object.owner_id,
                fields,
            };
            caller.record(tx, &janua, &updated).await?;
        }
        Ok(object)
    })?;
    Ok(Json(StorageObjectView::of(&janua, changed)))
}

/// Changes the object; answers the names of the fields that are different now.
fn apply(object: &mut StorageObject, change: &ObjectChange, now: Timestamp) -> Result<Vec<&'static str>> {
    let (mut findings, mut fields) = (Findings::default(), vec![]);
    if let Some(name) = &change.name {
        let name = rules::name(name, &mut findings);
        if name != object.name {
            object.name = name;
            fields.push("name");
        }
    }
    if let Some(metadata) = &change.metadata {
        let merged = rules::merge(records::of(&object.metadata), metadata, &mut findings);
        if merged != object.metadata {
            object.metadata = merged;
            fields.push("metadata");
        }
    }
    if let Some(visibility) = change.visibility.filter(|visibility| *visibility != object.visibility) {
        object.visibility = visibility;
        fields.push("visibility");
    }
    if let Some(expires_at) = change.expires_at.filter(|expires_at| *expires_at != object.expires_at) {
        if expires_at.is_some_and(|at| at <= now) {
            findings.say("expiresAt", "in_the_past", "must be in the future");
        }
        object.expires_at = expires_at;
        fields.push("expiresAt");
    }
    findings.end()?;
    Ok(fields)
}

async fn delete_object(
    State(janua): State<Janua>,
    caller: AppUser,
    Path(ObjectPath { id }): Path<ObjectPath>,
) -> Result<NoContent> {
    find(&janua, &caller, id).await?;
    transact!(janua, async |tx| {
        let object = StorageObject::hold(tx, id).await?.ok_or(NOT_FOUND)?;
        if !end(tx, &object, janua.clock.now()).await? {
            return Err(NOT_FOUND.into());
        }
        if object.is_ready() {
            caller.record(tx, &janua, &deleted(&object, "deleted")).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}
