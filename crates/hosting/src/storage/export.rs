//! Storage objects in the export of an app's data and of a user's: their metadata, without URLs.
use kernel::{
    Janua,
    fault::{INTERNAL, Result},
};
use serde_json::Value;
use tenancy::exports::Export;

use super::{model::StorageObject, view::StorageObjectView};

/// How many an export has at the most; the lists have them all, page by page.
const MOST: u32 = 10_000;

pub const EXPORTS: &[Export] = &[
    Export::App("storageObjects", |janua, app| {
        Box::pin(async move { views(janua, StorageObject::exported_of_app(&janua.db, app, MOST).await?) })
    }),
    Export::Account("storageObjects", |janua, owner| {
        Box::pin(async move { views(janua, StorageObject::exported_of_owner(&janua.db, owner, MOST).await?) })
    }),
];

fn views(janua: &Janua, objects: Vec<StorageObject>) -> Result<Value> {
    let views: Vec<_> =
        objects.into_iter().map(|object| StorageObjectView::without_download(janua, object)).collect();
    serde_json::to_value(views).map_err(|error| INTERNAL.caused_by(error))
}
