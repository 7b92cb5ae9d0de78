//! The authenticator app, and the recovery codes that come with a second factor.
use axum::{extract::State, response::NoContent};
use fast_qr::{QRBuilder, convert::svg::SvgBuilder};
use kernel::{
    Janua,
    fault::{Code, Result},
    http::{Json, MaybeJson, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        Account,
        factors::{self, Factor, Factors, Totp30},
    },
    enter::{Session, ToAdmit},
    sessions::sign_in::Typed,
};

use super::{FACTOR_NOT_ON, NEW_CODES, changed, end_begun, remove, tell};
use crate::{
    BODY,
    events::RecoveryCodesRegenerated,
    proof::{self, Fresh, WRONG_CODE},
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/2fa/setup", set_up_totp, "generate a TOTP secret")
        .fails(&proof::REFUSALS)
        .post("/auth/2fa/enable", enable_totp, "confirm a TOTP code and activate")
        .fails(&proof::REFUSALS)
        .fails(&[NOT_SET_UP])
        .post("/auth/2fa/disable", disable_totp, "disable TOTP")
        .fails(&proof::REFUSALS)
        .fails(&[FACTOR_NOT_ON])
        .post("/auth/2fa/recovery-codes/regenerate", regenerate_recovery_codes, "regenerate backup codes")
        .fails(&proof::REFUSALS)
        .fails(&[FACTOR_NOT_ON])
}

const NOT_SET_UP: Code =
    Code::new(409, "not_set_up", "Two-factor authentication is not set up yet. Request a secret first.");

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SetUp {
    /// For typing by hand.
    secret: String,
    /// The `otpauth:` URI for authenticator apps.
    otpauth_uri: String,
    /// The same URI as a QR code.
    qr_svg: String,
}

/// The secret counts for nothing until a code confirms it; one that is on stays on until then.
async fn set_up_totp(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<Json<SetUp>> {
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    let account = session.account();
    let person = account.email.as_deref().unwrap_or(&account.name);
    let (secret, otpauth_uri) =
        transact!(janua, async |tx| Ok(Totp30::set_up(tx, &janua, account.id, person).await?))?;
    let qr_svg = QRBuilder::new(otpauth_uri.as_bytes()).build().map(|qr| SvgBuilder::default().to_str(&qr));
    let qr_svg = qr_svg.map_err(|error| kernel::fault::INTERNAL.caused_by(format!("{error:?}")))?;
    Ok(Json(SetUp { secret, otpauth_uri, qr_svg }))
}

#[derive(Deserialize, JsonSchema)]
struct Enable {
    /// The first code the app shows.
    code: Typed,
    /// Required if the last proof is older than ten minutes. A user with a passkey or a second factor sets up again.
    password: Option<Typed>,
}

/// Shown this once.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RecoveryCodes {
    recovery_codes: Vec<String>,
}

async fn enable_totp(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Json(body): Json<Enable>,
) -> Result<Json<RecoveryCodes>> {
    Fresh::by_password(body.password).check(&janua, &visitor, &session).await?;
    let account = session.account().id;
    let attempt = visitor.attempt_factor(&janua, account).await?;
    let recovery_codes = transact!(janua, async |tx| {
        Account::hold(tx, account).await?;
        let enabled = Totp30::enable(tx, &janua, account, &body.code.0).await?.ok_or(NOT_SET_UP)?;
        if !enabled {
            return Err(WRONG_CODE.into());
        }
        attempt.forgive(tx).await?;
        changed(tx, &janua, &session, Factor::Totp, true).await?;
        Ok(factors::new_recovery_codes(tx, &janua, account).await?)
    })?;
    Ok(Json(RecoveryCodes { recovery_codes }))
}

async fn disable_totp(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<NoContent> {
    if !session.factors().totp {
        return Err(FACTOR_NOT_ON.into());
    }
    fresh.unwrap_or_default().check_strictly(&janua, &visitor, &session).await?;
    remove(&janua, &session, Factor::Totp).await
}

async fn regenerate_recovery_codes(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<Json<RecoveryCodes>> {
    fresh.unwrap_or_default().check(&janua, &visitor, &session).await?;
    let account = session.account().id;
    let recovery_codes = transact!(janua, async |tx| {
        if !Factors::of(&mut *tx, account).await?.is_on() {
            return Err(FACTOR_NOT_ON.into());
        }
        end_begun(tx, &janua, &session).await?;
        session.record(tx, &janua, &RecoveryCodesRegenerated).await?;
        tell(tx, &janua, &session, NEW_CODES).await?;
        Ok(factors::new_recovery_codes(tx, &janua, account).await?)
    })?;
    Ok(Json(RecoveryCodes { recovery_codes }))
}
