//! What an organization's programs keep with it: a record of their own, changed key by key.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use serde_json::Value;
use tenancy::{
    enter::{Admin, InOrg, Member},
    records::{self, Record},
};

use crate::events::MetadataUpdated;

pub fn routes() -> Routes {
    Routes::new("org").get("/orgs/{id}/metadata", get_metadata, "get org metadata").patch(
        "/orgs/{id}/metadata",
        update_metadata,
        "update org metadata; null deletes a key",
    )
}

async fn get_metadata(caller: InOrg<Member>) -> Json<Record> {
    Json(records::of(&caller.org().metadata))
}

async fn update_metadata(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(change): Json<Record>,
) -> Result<Json<Record>> {
    let merged = transact!(janua, async |tx| {
        let mut org = caller.hold(tx).await?.org;
        let merged = records::merge("metadata", records::of(&org.metadata), &change)?;
        org.metadata = Value::Object(merged.clone());
        org.updated_at = janua.clock.now();
        org.save_metadata(tx).await?;
        let event = MetadataUpdated { keys: change.keys().cloned().collect() };
        caller.record(tx, &janua, &event).await?;
        Ok(merged)
    })?;
    Ok(Json(merged))
}
