//! Upload URLs for new objects.
use std::{collections::BTreeMap, time::Duration};

use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, NOT_FOUND, Result},
    http::{Json, Routes},
    ports::objects::{Key, Sha256, Slot},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, Environment},
    enter::AppUser,
    ids::AccountId,
    quotas::{self, Limit, Pool, QUOTA_EXCEEDED, Used},
    uploads::TOO_MANY_UPLOADS,
};

use super::{
    BYTES_PER_USER, GRACE, LARGEST, OBJECT_BYTES, OBJECT_TOO_LARGE, OPEN_OF_APP, OPEN_OF_USER, STORAGE_BYTES,
    TYPE_NOT_ALLOWED, UPLOADS, holder,
    model::{ObjectId, Shelf, Status, StorageObject, Usage, UsageLimit, Visibility, files},
    rules::{self, Findings},
    view::StorageObjectView,
};

const VALID: u32 = 900;

pub fn routes() -> Routes {
    Routes::new("storage")
        .post("/storage/presign-upload", presign_upload, "presigned PUT URL for a new object")
        .fails(&[QUOTA_EXCEEDED, OBJECT_TOO_LARGE, TYPE_NOT_ALLOWED, TOO_MANY_UPLOADS])
}

/// The file to upload.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewObject {
    /// A label, such as `photos/cat.png`. It need not be unique.
    pub name: String,
    pub content_type: String,
    /// In bytes, exactly.
    #[schemars(range(min = 0))]
    pub size: i64,
    /// The digest of the bytes in hexadecimal. They are refused if they have another one.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    #[serde(default)]
    pub visibility: Visibility,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Seconds for which the upload URL is valid. An upload that began in time may end later.
    #[schemars(range(min = 60, max = 3600), extend("default" = 900))]
    pub expires_in: Option<u32>,
    /// Seconds after which the object is deleted, from when it is ready.
    #[schemars(range(min = 60, max = 315_360_000))]
    pub ttl: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UploadOffer {
    object_id: ObjectId,
    /// For one PUT of just this file. The URL contains its own authorization: keep it secret.
    upload_url: String,
    method: &'static str,
    /// To be sent just so.
    headers: BTreeMap<&'static str, String>,
    expires_at: Timestamp,
    object: StorageObjectView,
}

async fn presign_upload(
    State(janua): State<Janua>,
    caller: AppUser,
    Json(new): Json<NewObject>,
) -> Result<Json<UploadOffer>> {
    let place = Place::of_user(&caller);
    let validity = Duration::from_secs(new.expires_in.unwrap_or(VALID).into());
    let object = begin(&janua, &place, new, validity, None).await?;
    let expires_at = object.expires_at.unwrap_or(object.created_at);
    let slot = Slot {
        key: &object.slot,
        content_type: &object.content_type,
        length: u64::try_from(object.size).unwrap_or_default(),
        sha256: object.sha256.as_deref().and_then(Sha256::parse),
        until: expires_at,
    };
    Ok(Json(UploadOffer {
        object_id: object.id,
        upload_url: janua.objects.signed_put(&slot),
        method: "PUT",
        headers: BTreeMap::from([("Content-Type", object.content_type.clone())]),
        expires_at,
        object: StorageObjectView::of(&janua, object),
    }))
}

/// Where a new object goes.
#[derive(Clone)]
pub struct Place {
    pub pool: Pool,
    pub app: tenancy::apps::ApplicationId,
    pub environment: Environment,
    pub owner: AccountId,
}

impl Place {
    pub fn of_user(caller: &AppUser) -> Self {
        let keyed = &caller.keyed;
        Self {
            pool: Pool { org: keyed.org_id, app: Some(keyed.app_id) },
            app: keyed.app_id,
            environment: keyed.environment,
            owner: caller.account(),
        }
    }
}

/// Reserves room and creates a pending object.
pub async fn begin(
    janua: &Janua,
    place: &Place,
    new: NewObject,
    validity: Duration,
    received: Option<i64>,
) -> Result<StorageObject> {
    let now = janua.clock.now();
    let mut findings = Findings::default();
    let name = rules::name(&new.name, &mut findings);
    let content_type = rules::content_type(&new.content_type, &mut findings);
    let metadata = new.metadata.into_iter().map(|(key, value)| (key, Some(value))).collect();
    let metadata = rules::merge(serde_json::Map::new(), &metadata, &mut findings);
    findings.end()?;
    let object = StorageObject {
        id: ObjectId::new(&janua.entropy, now),
        app_id: place.app,
        org_id: place.pool.org,
        owner_id: place.owner,
        environment: place.environment,
        name,
        content_type,
        size: new.size,
        sha256: new.sha256,
        status: Status::Pending,
        visibility: new.visibility,
        metadata,
        slot: Key::new(UPLOADS, "", &janua.entropy),
        file: None,
        file_sha256: None,
        ttl_ms: new.ttl.map(|seconds| i64::from(seconds) * 1000),
        expires_at: Some(now.plus(validity)),
        created_at: now,
        updated_at: now,
        finalized_at: None,
        received,
    };
    let along = Reservation { janua: janua.clone(), place: place.clone(), object, validity };
    janua.carry(along, |tx, reservation| Box::pin(reservation.make(tx))).await
}

/// Room for an upload that is about to begin.
struct Reservation {
    janua: Janua,
    place: Place,
    object: StorageObject,
    validity: Duration,
}

impl Reservation {
    async fn make(&self, tx: &mut Tx) -> Result<StorageObject> {
        let Self { janua, place, object, validity } = self;
        let app = Application::find(&mut *tx, place.app).await?.ok_or(NOT_FOUND)?;
        if !rules::is_allowed(&app.settings, &object.content_type) {
            return Err(TYPE_NOT_ALLOWED.into());
        }
        refuse_too_large(tx, janua, place, object).await?;
        quotas::spend(tx, janua, place.pool, &STORAGE_BYTES, object.size).await?;
        reserve(tx, janua, place, object).await?;
        object.insert(tx).await?;
        if !janua.objects.is_put_here() {
            let doomed_at = object.created_at.plus(*validity).plus(GRACE);
            files::announce_in(tx, holder(object), &object.slot, doomed_at).await?;
        }
        Ok(object.clone())
    }
}

async fn refuse_too_large(tx: &mut Tx, janua: &Janua, place: &Place, object: &StorageObject) -> Result<()> {
    let of_plan = limit(tx, janua, place, &OBJECT_BYTES).await?.map(|(_, most)| most);
    let most = of_plan.unwrap_or(i64::MAX).min(i64::try_from(LARGEST).unwrap_or(i64::MAX));
    if object.size > most {
        let fault = OBJECT_TOO_LARGE.because(format!("The file has {} bytes; the most is {most}.", object.size));
        return Err(fault.with_extra("limit", &most));
    }
    Ok(())
}

/// The plan and its limit, where it has one.
async fn limit(
    tx: &mut Tx,
    janua: &Janua,
    place: &Place,
    meter: &quotas::Meter,
) -> db::Result<Option<(String, i64)>> {
    let found = quotas::limit_of(tx, janua, place.pool.org, meter).await?;
    Ok(found.and_then(|(plan, limit)| Some((plan, limit.as_ref().and_then(Limit::ceiling)?))))
}

/// Counts the upload for the app and for the user.
async fn reserve(tx: &mut Tx, janua: &Janua, place: &Place, object: &StorageObject) -> Result<()> {
    let of_app = Shelf { owner: None, ..object.shelf() };
    if !Usage::begin(tx, of_app, object.size, UsageLimit { bytes: i64::MAX, pending: OPEN_OF_APP }).await? {
        return Err(too_many());
    }
    let of_plan = limit(tx, janua, place, &BYTES_PER_USER).await?;
    let bytes = of_plan.as_ref().map_or(i64::MAX, |(_, most)| *most);
    if Usage::begin(tx, object.shelf(), object.size, UsageLimit { bytes, pending: OPEN_OF_USER }).await? {
        return Ok(());
    }
    let usage = Usage::find(&mut *tx, object.shelf()).await?;
    match of_plan {
        Some((plan, most)) if usage.bytes + object.size > most => {
            let used = Used { plan, used: Some(usage.bytes), limit: Some(Limit::hard(most)) };
            Err(quotas::exceeded(janua, place.pool.org, &BYTES_PER_USER, &used))
        }
        _ => Err(too_many()),
    }
}

fn too_many() -> Fault {
    Fault::from(TOO_MANY_UPLOADS).retry_after(Duration::from_mins(1))
}
