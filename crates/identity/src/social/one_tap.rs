//! One tap: the provider's script in a page hands over an id token, without anybody being sent anywhere.
use std::time::Duration;

use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Json, Path, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::Admitted,
    once::{self, Purpose},
    sessions::sign_in::{self, SignInMethod, Typed},
};

use super::{
    ByProvider, CookieWish, MayEnterSocially, REFUSALS, answer,
    id_token::{self, INVALID_ID_TOKEN},
    profile,
    providers::Providers,
    who,
};
use crate::{BODY, password::LoginOptions};

/// A token of the provider that was shown to us. It says itself how long it is good.
pub const TOKEN: Purpose = Purpose::new("social_token", Duration::ZERO);

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/oauth/{provider}/onetap", one_tap, "verify a one-tap ID token (google only)")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<MayEnterSocially>(200, "application/json")
        .fails(&REFUSALS)
        .fails(&crate::policy::REFUSALS)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Tapped {
    /// The `credential` that the provider's script handed to the page. It works once.
    id_token: Typed,
    options: Option<LoginOptions>,
}

async fn one_tap(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    Path(path): Path<ByProvider>,
    Query(wish): Query<CookieWish>,
    Json(body): Json<Tapped>,
) -> Result<Response> {
    let provider = janua.own::<Providers>().find(&path.provider)?;
    if provider.row.name != "google" {
        return Err(NOT_FOUND.into());
    }
    let token = &body.id_token.0;
    let verified = id_token::verify(&janua, provider, token).await?;
    let profile = profile::of_token(provider.row, &verified)?;
    let (signed, delivery) = (id_token::signed_part(token), wish.delivery(body.options));
    let (born, until) = (verified.born(), verified.until());
    let (entered, is_new) = transact!(janua, async |tx| {
        if !once::first_use(tx, TOKEN, &signed, born, janua.clock.now(), until).await? {
            return Err(INVALID_ID_TOKEN.into());
        }
        let (account, is_new) = who::recognise(tx, &janua, &visitor, provider.row, &profile, None).await?;
        let entered = sign_in::enter(tx, &janua, &visitor, account, SignInMethod::by("social", delivery)).await?;
        Ok((entered, is_new))
    })?;
    answer(&janua, entered, is_new)
}
