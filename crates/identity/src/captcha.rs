//! The answer to a challenge, for a pass.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Captcha, NOT_SOLVED, NotAdmitted},
    once::TOKEN_SPENT,
    sessions::sign_in::Typed,
};

use crate::BODY;

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/captcha/verify", verify_captcha, "verify a captcha challenge token")
        .fails(&[NOT_SOLVED, TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
struct Solved {
    /// The challenge and its solution as the ALTCHA widget gives them: JSON in base64.
    token: Typed,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Pass {
    /// Send it with the request that was refused, in the header `X-Service-Captcha-Pass`. It works once.
    captcha_pass: String,
}

async fn verify_captcha(
    State(janua): State<Janua>,
    NotAdmitted(_): NotAdmitted,
    Json(solved): Json<Solved>,
) -> Result<Json<Pass>> {
    let pass = transact!(janua, async |tx| Captcha::redeem(tx, &janua, &solved.token.0).await)?;
    Ok(Json(Pass { captcha_pass: pass.expose().to_owned() }))
}
