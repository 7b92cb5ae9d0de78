//! Storage objects as the interface shows them.
use std::time::Duration;

use kernel::{Janua, clock::Timestamp, ports::objects::View};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tenancy::{
    apps::{ApplicationId, Environment},
    ids::AccountId,
    records,
};

use super::{
    download,
    model::{ObjectId, Status, StorageObject, Usage, Visibility},
    rules::{Showing, disposition, in_path},
};

/// How long a download URL is valid.
const READABLE: Duration = Duration::from_mins(15);

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageObjectView {
    id: ObjectId,
    app_id: ApplicationId,
    owner_id: AccountId,
    name: String,
    content_type: String,
    /// In bytes.
    size: i64,
    /// The digest of the bytes in hexadecimal. Null for a large object in a bucket that was uploaded without one.
    sha256: Option<String>,
    status: Status,
    visibility: Visibility,
    metadata: Map<String, Value>,
    environment: Environment,
    /// The public URL of the object, if it is public.
    url: Option<String>,
    /// Where it can be read for 15 minutes. The URL contains its own authorization: keep it secret.
    download_url: Option<String>,
    download_url_expires_at: Option<Timestamp>,
    /// While it is pending: when the upload URL expires. Then: when it is deleted.
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
    finalized_at: Option<Timestamp>,
}

impl StorageObjectView {
    /// For the dashboard, without a download URL.
    pub fn without_download(janua: &Janua, object: StorageObject) -> Self {
        let is_public = object.is_ready() && object.visibility == Visibility::Public;
        Self {
            url: is_public.then(|| public_url(janua, &object)),
            download_url: None,
            download_url_expires_at: None,
            id: object.id,
            app_id: object.app_id,
            owner_id: object.owner_id,
            name: object.name,
            content_type: object.content_type,
            size: object.size,
            sha256: object.sha256,
            status: object.status,
            visibility: object.visibility,
            metadata: records::of(&object.metadata),
            environment: object.environment,
            expires_at: object.expires_at,
            created_at: object.created_at,
            updated_at: object.updated_at,
            finalized_at: object.finalized_at,
        }
    }

    /// For its owner.
    pub fn of(janua: &Janua, object: StorageObject) -> Self {
        let until = janua.clock.now().plus(READABLE);
        let download_url = download_url(janua, &object, until);
        let download_url_expires_at = download_url.as_ref().map(|_| until);
        Self { download_url, download_url_expires_at, ..Self::without_download(janua, object) }
    }
}

fn public_url(janua: &Janua, object: &StorageObject) -> String {
    format!("{}/files/o/{}/{}", janua.config.base_url(), object.id, in_path(&object.name))
}

/// From the bucket itself, or from this server.
fn download_url(janua: &Janua, object: &StorageObject, until: Timestamp) -> Option<String> {
    let file = object.file.as_ref().filter(|_| object.is_ready())?;
    let disposition = disposition(Showing::of(&object.content_type), &object.name);
    let view = View { key: file, content_type: &object.content_type, disposition: &disposition, until };
    let here = || format!("{}?{}", public_url(janua, object), download::signed_query(janua, object.id, until));
    Some(janua.objects.signed_get(&view).unwrap_or_else(here))
}

/// Stored amounts, beside their limits.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    /// Open uploads included.
    objects: i64,
    bytes: i64,
    /// Null where no plan limits it.
    limit_bytes: Option<i64>,
    /// The bytes that the limit is about: those of the user, or, for the dashboard, of all apps of the organization.
    counted_bytes: i64,
}

impl UsageView {
    pub fn of(usage: Usage, limit_bytes: Option<i64>, counted_bytes: i64) -> Self {
        Self { objects: usage.objects, bytes: usage.bytes, limit_bytes, counted_bytes }
    }
}

/// A page of objects.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageObjects {
    pub objects: Vec<StorageObjectView>,
    pub next_cursor: Option<String>,
    pub usage: UsageView,
}
