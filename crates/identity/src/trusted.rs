//! Devices that are not asked for a second factor: which there are, and how they are forgotten.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    http::{Json, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        AccountId,
        factors::{self, TrustedDevice},
    },
    enter::{NotAdmitted, Session, Visitor, cookies},
    events::{self, By},
    sessions::device_name,
};

use crate::{BODY, events::TrustedDeviceRemoved};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .get("/auth/trusted-devices", list_trusted_devices, "trusted devices, which need no second factor")
        .delete("/auth/trusted-devices/{id}", remove_trusted_device, "remove a trusted device")
        .answers_nothing(204)
        .fails(&[NOT_FOUND])
        .delete("/auth/trusted-devices", remove_trusted_devices, "remove all trusted devices")
        .answers_nothing(204)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TrustedDevices {
    trusted_devices: Vec<TrustedDeviceView>,
    next_cursor: Option<String>,
}

/// A trusted device: it needs no second factor for thirty days.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustedDeviceView {
    id: String,
    /// Name of the device, such as "Firefox on Linux".
    name: String,
    /// The IP address of its last use.
    ip: String,
    created_at: Timestamp,
    last_used_at: Option<Timestamp>,
    expires_at: Timestamp,
    /// The one this request came from.
    current: bool,
}

/// The devices of a person, newest first.
pub async fn list(janua: &Janua, visitor: &Visitor, account: AccountId) -> db::Result<Vec<TrustedDeviceView>> {
    let found = TrustedDevice::of(&janua.db, account, janua.clock.now()).await?;
    let view = |device: TrustedDevice| TrustedDeviceView {
        current: visitor.trusted_device.as_ref().is_some_and(|mark| device.bears(mark)),
        name: device_name(&device.user_agent),
        id: device.id,
        ip: device.ip,
        created_at: device.created_at,
        last_used_at: device.last_used_at,
        expires_at: device.expires_at,
    };
    Ok(found.into_iter().map(view).collect())
}

/// Asks for the second factor everywhere again, and writes it down where that changes something.
pub async fn forget_all(tx: &mut Tx, janua: &Janua, by: &By, account: AccountId) -> db::Result<()> {
    if factors::distrust_devices(tx, account).await? > 0 {
        let event = TrustedDeviceRemoved { device: None };
        events::record(tx, janua, by, Some(account), &event).await?;
    }
    Ok(())
}

async fn list_trusted_devices(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    session: Session,
) -> Result<Json<TrustedDevices>> {
    let trusted_devices = list(&janua, &visitor, session.account().id).await?;
    Ok(Json(TrustedDevices { trusted_devices, next_cursor: None }))
}

#[derive(Deserialize, JsonSchema)]
struct OneDevice {
    #[schemars(length(max = 128))]
    id: String,
}

async fn remove_trusted_device(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OneDevice>,
) -> Result<StatusCode> {
    let account = session.account().id;
    transact!(janua, async |tx| {
        let removed = TrustedDevice::remove(tx, account, &path.id).await?;
        let device = Some(device_name(&removed.ok_or(NOT_FOUND)?));
        let event = TrustedDeviceRemoved { device };
        Ok(session.record(tx, &janua, &event).await?)
    })?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_trusted_devices(State(janua): State<Janua>, session: Session) -> Result<Response> {
    let account = session.account().id;
    transact!(janua, async |tx| Ok(forget_all(tx, &janua, &session.by(), account).await?))?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    cookies::clear_trusted(&janua, response.headers_mut());
    Ok(response)
}
