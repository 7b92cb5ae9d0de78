//! Signing in with a link in a mail.
use std::time::Duration;

use axum::{extract::State, response::Response};
use db::{Reach, Tx};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::Account,
    email::Email,
    enter::{ACCOUNT_TOPIC, Delivery, ToAdmit, Visitor},
    once::{self, Purpose, TOKEN_SPENT},
    sessions::sign_in::{self, Entered, MayEnter, SignInMethod, Typed},
};

use crate::{
    BODY,
    asked::{self, Accepted, What},
    destination::Destination,
    events::EmailVerified,
    password::LoginOptions,
    register::{Address, VERIFY_EMAIL},
};

/// The link in a mail that signs in.
pub const MAGIC_LINK: Purpose = Purpose::new("magic_link", Duration::from_mins(15));

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/magic-link/request", request_magic_link, "send a magic-link email")
        .post("/auth/magic-link/verify", verify_magic_link, "verify the magic-link token and issue a session")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<MayEnter>(200, "application/json")
        .fails(&[TOKEN_SPENT])
}

async fn request_magic_link(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Address>,
) -> Result<Json<Accepted>> {
    ask(&janua, &visitor, &body.email, Destination::default()).await.map(Json)
}

/// The same for programs and for the page.
pub async fn ask(janua: &Janua, visitor: &Visitor, email: &Email, destination: Destination) -> Result<Accepted> {
    visitor.admit(janua, Some(email)).await?;
    asked::take(janua, visitor, email, What::MagicLink, destination).await
}

#[derive(Deserialize, JsonSchema)]
struct Follow {
    token: Typed,
    options: Option<LoginOptions>,
}

async fn verify_magic_link(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Follow>,
) -> Result<Response> {
    let delivery = body.options.and_then(|options| options.token_delivery).unwrap_or_default();
    follow(&janua, &visitor, &body.token, delivery).await?.answer(&janua)
}

/// The same for programs and for the page.
pub async fn follow(janua: &Janua, visitor: &Visitor, token: &Typed, delivery: Delivery) -> Result<Entered> {
    visitor.admit(janua, None).await?;
    transact!(janua, async |tx| {
        let spent = once::spend(tx, MAGIC_LINK, &token.0, janua.clock.now()).await?;
        let id = spent.and_then(|spent| spent.account_id).ok_or(TOKEN_SPENT)?;
        once::void(tx, MAGIC_LINK, id, janua.clock.now()).await?;
        let mut account = Account::find(tx, id).await?.ok_or(TOKEN_SPENT)?;
        if !account.email_verified {
            account = confirmed(tx, janua, visitor, account).await?;
        }
        sign_in::enter(tx, janua, visitor, account, SignInMethod::by("mail", delivery)).await
    })
}

/// The link proves the address. Whoever signed up with it before, and what password they chose, is not known to be the
/// same person, so that password does not count.
async fn confirmed(tx: &mut Tx, janua: &Janua, visitor: &Visitor, account: Account) -> Result<Account> {
    let now = janua.clock.now();
    Account::clear_password(tx, account.id, now).await?;
    Account::mark_verified(tx, account.id, now).await?;
    once::void(tx, VERIFY_EMAIL, account.id, now).await?;
    visitor.record_about(tx, janua, account.id, &EmailVerified).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    Ok(Account::find(tx, account.id).await?.ok_or(TOKEN_SPENT)?)
}
