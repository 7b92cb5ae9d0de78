//! Signing in with a link in a mail.
use axum::{extract::State, response::Response};
use kernel::{
    App,
    fault::{Fault, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::Account,
    enter::Visitor,
    once::{self, Purpose, TOKEN_SPENT},
    sign_in::{self, MayEnter, Typed, Way},
};

use crate::{
    BODY,
    asked::{self, Accepted, What},
    password::LoginOptions,
    register::Address,
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/magic-link/request", request_magic_link, "send a magic-link email")
        .post("/auth/magic-link/verify", verify_magic_link, "verify the magic-link token and issue a session")
        .answers::<MayEnter>(200, "application/json")
        .fails(&[TOKEN_SPENT])
}

async fn request_magic_link(
    State(app): State<App>,
    visitor: Visitor,
    Json(body): Json<Address>,
) -> Result<Json<Accepted>> {
    visitor.admit(&app, Some(&body.email)).await?;
    asked::take(&app, &visitor, &body.email, What::MagicLink).await
}

#[derive(Deserialize, JsonSchema)]
struct Follow {
    token: Typed,
    options: Option<LoginOptions>,
}

async fn verify_magic_link(State(app): State<App>, visitor: Visitor, Json(body): Json<Follow>) -> Result<Response> {
    visitor.admit(&app, None).await?;
    let delivery = body.options.and_then(|options| options.token_delivery).unwrap_or_default();
    let entered = transact!(app.db, tx, {
        let spent = once::spend(tx, Purpose::MagicLink, &body.token.0, app.clock.now()).await?;
        let id = spent.and_then(|spent| spent.account_id).ok_or(TOKEN_SPENT)?;
        let account = Account::find(tx, id).await?.ok_or(TOKEN_SPENT)?;
        Ok::<_, Fault>(sign_in::enter(tx, &app, &visitor, account, Way::by("mail", delivery)).await?)
    })?;
    entered.answer(&app)
}
