//! Storage objects in the export of an app's data and of a user's: their metadata, without URLs.
use kernel::{
    Janua,
    fault::{INTERNAL, Result},
};
use serde_json::Value;
use tenancy::exports::Export;

use super::{model::StorageObject, view::StorageObjectView};

/// How many an export has at the most; the lists have them all, page by page. The export says how many it leaves out.
const MOST: u32 = 10_000;

pub const EXPORTS: &[Export] = &[
    Export::App("storageObjects", |janua, app| {
        Box::pin(async move { views(janua, StorageObject::exported_of_app(&janua.db, app, MOST).await?) })
    }),
    Export::App("storageObjectsLeftOut", |janua, app| {
        Box::pin(async move { Ok(left_out(StorageObject::count_of_app(&janua.db, app).await?).into()) })
    }),
    Export::Account("storageObjects", |janua, owner| {
        Box::pin(async move { views(janua, StorageObject::exported_of_owner(&janua.db, owner, MOST).await?) })
    }),
    Export::Account("storageObjectsLeftOut", |janua, owner| {
        Box::pin(async move { Ok(left_out(StorageObject::count_of_owner(&janua.db, owner).await?).into()) })
    }),
];

fn views(janua: &Janua, objects: Vec<StorageObject>) -> Result<Value> {
    let views: Vec<_> =
        objects.into_iter().map(|object| StorageObjectView::without_download(janua, object)).collect();
    serde_json::to_value(views).map_err(|error| INTERNAL.caused_by(error))
}

/// How many of so many objects are not in the export.
pub fn left_out(objects: i64) -> i64 {
    (objects - i64::from(MOST)).max(0)
}
