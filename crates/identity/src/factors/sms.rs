//! The phone as a second factor.
use axum::{extract::State, response::NoContent};

use kernel::{
    Janua,
    fault::{Fault, INVALID, RATE_LIMITED, Result},
    http::{Json, MaybeJson, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        Account,
        factors::{self, Factor, Factors, MFA_TICKET, SMS_ENROLL},
    },
    enter::{Admitted, Session, ToAdmit, Visitor},
    messages::sms::{self, Phone},
    once::{self, Purpose, TOKEN_SPENT},
    sessions::sign_in::{self, Typed},
};

use super::{FACTOR_NOT_ON, changed};
use crate::{
    BODY,
    proof::{self, Fresh, WRONG_CODE},
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/mfa/sms/enroll", enroll_sms, "enroll a phone number (E.164)")
        .fails(&proof::REFUSALS)
        .post("/auth/mfa/sms/verify", verify_sms, "verify the OTP to finish enrollment")
        .fails(&proof::REFUSALS)
        .post("/auth/mfa/sms/challenge", challenge_sms, "send a new SMS OTP during login")
        .fails(&[TOKEN_SPENT, FACTOR_NOT_ON])
        .post("/auth/mfa/sms/code", send_sms_code, "send a text message code to the signed-in user")
        .fails(&[FACTOR_NOT_ON])
        .post("/auth/mfa/sms/disable", disable_sms, "disable SMS MFA")
        .fails(&proof::REFUSALS)
        .fails(&[FACTOR_NOT_ON])
}

/// How long somebody should wait who asked for too many messages.
const WAIT: std::time::Duration = std::time::Duration::from_hours(1);

#[derive(Deserialize, JsonSchema)]
struct Enroll {
    /// In E.164 form: a plus, the country, the number.
    #[schemars(length(max = 40))]
    phone: String,
    #[serde(flatten)]
    fresh: Fresh,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Sent {
    sent: bool,
    /// The end of the number it went to.
    sms_phone_suffix: String,
}

impl Sent {
    fn to(phone: &Phone) -> Json<Self> {
        let start = phone.number.len().saturating_sub(4);
        Json(Self { sent: true, sms_phone_suffix: phone.number[start..].to_owned() })
    }
}

/// Sends a code to the number; nothing changes before it comes back.
async fn enroll_sms(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Json(body): Json<Enroll>,
) -> Result<Json<Sent>> {
    let wrong = || INVALID.at("phone", "wrong_form", "must be a phone number in E.164 form, such as +41446681800");
    let phone = Phone::parse(&body.phone).ok_or_else(wrong)?;
    visitor.admit(&janua, None).await?;
    body.fresh.check(&janua, &visitor, &session).await?;
    send(&janua, &visitor, session.account().id, &phone, SMS_ENROLL).await?;
    Ok(Sent::to(&phone))
}

async fn send(
    janua: &Janua,
    visitor: &Visitor,
    account: tenancy::accounts::AccountId,
    phone: &Phone,
    purpose: Purpose,
) -> Result<()> {
    transact!(janua, async |tx| {
        if !sms::send_code(tx, janua, visitor, account, phone, purpose).await? {
            return Err(Fault::from(RATE_LIMITED).retry_after(WAIT));
        }
        Ok(())
    })
}

#[derive(Deserialize, JsonSchema)]
struct Verify {
    /// As it came to the phone.
    code: Typed,
    /// Required if the last proof is older than ten minutes. A user with a passkey or a second factor enrolls again.
    password: Option<Typed>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Enrolled {
    mfa_sms_phone: String,
    /// Shown once, with the user's first factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery_codes: Option<Vec<String>>,
}

async fn verify_sms(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Json(body): Json<Verify>,
) -> Result<Json<Enrolled>> {
    Fresh::by_password(body.password).check(&janua, &visitor, &session).await?;
    let account = session.account().id;
    let attempt = visitor.attempt_factor(&janua, account).await?;
    let (code, now) = (factors::normal(&body.code.0), janua.clock.now());
    let enrolled = transact!(janua, async |tx| {
        Account::hold(tx, account).await?;
        let Some(spent) = once::spend_code(tx, &janua, SMS_ENROLL, account, &code, now).await? else {
            // Committed: a wrong code counts against the right one.
            return Ok(None);
        };
        // The number the code went to, and no other.
        let phone = spent.aside(&janua).and_then(|aside| String::from_utf8(aside).ok()).ok_or(WRONG_CODE)?;
        attempt.forgive(tx).await?;
        let had_one = Factors::of(&mut *tx, account).await?.is_on();
        factors::set_phone(tx, account, &phone, now).await?;
        changed(tx, &janua, &session, Factor::Sms, true).await?;
        let codes = if had_one { None } else { Some(factors::new_recovery_codes(tx, &janua, account).await?) };
        Ok(Some(Enrolled { mfa_sms_phone: phone, recovery_codes: codes }))
    })?;
    enrolled.map(Json).ok_or_else(|| WRONG_CODE.into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Challenge {
    mfa_ticket: Typed,
}

async fn challenge_sms(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    Json(body): Json<Challenge>,
) -> Result<Json<Sent>> {
    let ticket = once::look(&janua.db, MFA_TICKET, &body.mfa_ticket.0, janua.clock.now()).await?;
    let account = ticket.and_then(|ticket| sign_in::holder_of(&janua, &visitor, &ticket)).ok_or(TOKEN_SPENT)?;
    let factors = Factors::of(&janua.db, account).await?;
    send_sign_in_code(&janua, &visitor, account, &factors).await
}

/// Somebody who is signed in proves with it who they are, where that is asked for.
async fn send_sms_code(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    session: Session,
) -> Result<Json<Sent>> {
    send_sign_in_code(&janua, &visitor, session.account().id, session.factors()).await
}

async fn send_sign_in_code(
    janua: &Janua,
    visitor: &Visitor,
    account: tenancy::accounts::AccountId,
    factors: &Factors,
) -> Result<Json<Sent>> {
    let phone = factors.sms_phone.as_deref().and_then(Phone::parse).ok_or(FACTOR_NOT_ON)?;
    send(janua, visitor, account, &phone, sms::SIGN_IN).await?;
    Ok(Sent::to(&phone))
}

async fn disable_sms(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    MaybeJson(fresh): MaybeJson<Fresh>,
) -> Result<NoContent> {
    if session.factors().sms_phone.is_none() {
        return Err(FACTOR_NOT_ON.into());
    }
    fresh.unwrap_or_default().check_strictly(&janua, &visitor, &session).await?;
    super::remove(&janua, &session, Factor::Sms).await
}
