//! Signing up and proving that an address is one's own.
use std::time::Duration;

use axum::extract::State;
use db::{Reach, Tx};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{INVALID, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{
        Account, AccountId,
        password::{self, Hasher, WEAK_PASSWORD},
    },
    email::Email,
    enter::{ACCOUNT_TOPIC, CAPTCHA_REQUIRED, Delivery, ToAdmit, Visitor},
    once::{self, Purpose, Spent, TOKEN_SPENT},
    sessions::sign_in::{self, Entered, SignInMethod, Typed},
};

use crate::{
    BODY,
    asked::{self, Accepted, Registration, What},
    destination::Destination,
    events::EmailVerified,
    invite, policy,
};

/// The link in a mail that proves an email; the code beside it is good for [`CODE_LIFE`].
pub const VERIFY_EMAIL: Purpose = Purpose::new("verify_email", Duration::from_hours(24));
pub const CODE_LIFE: Duration = Duration::from_mins(15);

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/register", register, "register a user account")
        .fails(&[WEAK_PASSWORD, CAPTCHA_REQUIRED, TOKEN_SPENT])
        .fails(&policy::REFUSALS)
        .post("/auth/resend-verification", resend_verification, "resend the verification message")
        .post("/auth/verify-email", verify_email, "verify an email with a code or token")
        .fails(&[TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignUp {
    pub email: Email,
    /// 8 to 256 characters that are hard to guess.
    pub password: Typed,
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    pub accept_marketing: Option<bool>,
    /// From an invite link.
    pub invite_token: Option<Typed>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SignedUp {
    requires_verification: bool,
    email: Email,
}

async fn register(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(new): Json<SignUp>,
) -> Result<Json<SignedUp>> {
    let requires_verification = sign_up(&janua, &visitor, &new, Destination::default()).await?;
    Ok(Json(SignedUp { requires_verification, email: new.email }))
}

/// The same for programs and for the page. Answers whether the address must still be confirmed.
pub async fn sign_up(janua: &Janua, visitor: &Visitor, new: &SignUp, destination: Destination) -> Result<bool> {
    policy::check(janua, new.invite_token.is_some())?;
    visitor.admit(janua, Some(&new.email)).await?;
    password::check("password", &new.password.0, Some(&new.email), &new.name)?;
    if let Some(token) = &new.invite_token {
        // Refused at once: not everybody's password is worth hashing.
        invite::look(janua, &new.email, &token.0).await?;
    }
    let password_hash = janua.own::<Hasher>().hash(&janua.entropy, &new.password.0).await?;
    if let Some(token) = &new.invite_token
        && !Account::by_email(&janua.db, &new.email).await?.is_some_and(|account| account.email_verified)
    {
        // The link came to this very address, so there is nothing left to confirm.
        let (now, name) = (janua.clock.now(), new.name.trim());
        let newcomer = Account {
            password_hash: Some(password_hash),
            accepts_marketing: new.accept_marketing.unwrap_or(false),
            ..Account::new(AccountId::new(&janua.entropy, now), Some(&new.email), name, now)
        };
        transact!(janua, async |tx| invite::newcomer(tx, janua, visitor, newcomer.clone(), &token.0).await)?;
        return Ok(false);
    }
    let what = What::Register {
        name: new.name.trim().to_owned(),
        password_hash,
        accepts_marketing: new.accept_marketing.unwrap_or(false),
        likeness: Some(
            janua.vault.mac("sign-up", format!("{}\n{}", new.email.key(), new.password.0.expose()).as_bytes()),
        ),
    };
    asked::keep(janua, visitor, &new.email, what, destination).await?;
    Ok(true)
}

#[derive(Deserialize, JsonSchema)]
pub struct Address {
    pub email: Email,
}

async fn resend_verification(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Address>,
) -> Result<Json<Accepted>> {
    resend(&janua, &visitor, &body.email, Destination::default()).await.map(Json)
}

/// The same for programs and for the page.
pub async fn resend(janua: &Janua, visitor: &Visitor, email: &Email, destination: Destination) -> Result<Accepted> {
    visitor.admit(janua, Some(email)).await?;
    asked::take(janua, visitor, email, What::ResendVerification, destination).await
}

/// Either the token of the link, or the email and the code.
#[derive(Deserialize, JsonSchema)]
struct Proof {
    token: Option<Typed>,
    email: Option<Email>,
    #[schemars(length(min = 6, max = 6))]
    code: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    email_verified: bool,
    pub email: Option<String>,
}

/// A confirmed email, and what follows from it.
pub struct Confirmed {
    pub verified: Verified,
    pub destination: Destination,
    /// The sign-in of the person, where the email was confirmed in the browser that signed up. The link and the code
    /// prove that the email is theirs, the browser's secret that the sign-up is: a link that is forwarded, or opened by a
    /// mail scanner within its 24 hours, signs nobody in, and a stranger's link signs nobody in to the stranger's account.
    pub entered: Option<Entered>,
}

async fn verify_email(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(proof): Json<Proof>,
) -> Result<Json<Verified>> {
    let verified = match (proof.token, proof.email, proof.code) {
        (Some(token), _, _) => {
            visitor.admit(&janua, None).await?;
            by_token(&janua, &visitor, &token.0, None).await?
        }
        (None, Some(email), Some(code)) => by_code(&janua, &visitor, &email, &code.into(), None).await?,
        _ => return Err(INVALID.at("token", "required", "is required, or email and code instead")),
    };
    verified.map(|confirmed| Json(confirmed.verified)).ok_or_else(|| TOKEN_SPENT.into())
}

/// The same for programs and for the page behind the link; `None` when the token is invalid or was used.
/// `browser` is the secret of the browser that asks, where it has one.
pub async fn by_token(
    janua: &Janua,
    visitor: &Visitor,
    token: &Secret,
    browser: Option<&Secret>,
) -> Result<Option<Confirmed>> {
    transact!(janua, async |tx| {
        match once::spend(tx, VERIFY_EMAIL, token, janua.clock.now()).await? {
            Some(spent) => complete(tx, janua, visitor, spent, browser).await,
            None => Ok(None),
        }
    })
}

/// As [`by_token`], with the code beside the link.
pub async fn by_code(
    janua: &Janua,
    visitor: &Visitor,
    email: &Email,
    code: &Secret,
    browser: Option<&Secret>,
) -> Result<Option<Confirmed>> {
    let attempt = visitor.attempt_mailed_code(janua, email).await?;
    // Who has no account takes as long as who has one.
    let account = Account::by_email(&janua.db, email).await?;
    let id = account.map_or_else(|| AccountId::new(&janua.entropy, janua.clock.now()), |account| account.id);
    transact!(janua, async |tx| {
        match once::spend_code(tx, janua, VERIFY_EMAIL, id, code, janua.clock.now()).await? {
            Some(spent) => {
                attempt.forgive(tx).await?;
                complete(tx, janua, visitor, spent, browser).await
            }
            None => Ok(None),
        }
    })
}

/// The email is proven. The name and the password are those of the account: what the link was sent with may be older than
/// what the user or a platform owner chose since.
async fn complete(
    tx: &mut Tx,
    janua: &Janua,
    visitor: &Visitor,
    spent: Spent,
    browser: Option<&Secret>,
) -> Result<Option<Confirmed>> {
    let now = janua.clock.now();
    let aside = spent.aside(janua).unwrap_or_default();
    let (Some(id), Ok(registration)) = (spent.account_id, serde_json::from_slice::<Registration>(&aside)) else {
        return Ok(None);
    };
    let Some(account) = Account::find(tx, id).await? else { return Ok(None) };
    if !Account::mark_verified(tx, id, now).await? {
        return Ok(None);
    }
    once::void(tx, VERIFY_EMAIL, id, now).await?;
    visitor.record_about(tx, janua, id, &EmailVerified).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
    let (verified, destination) =
        (Verified { email_verified: true, email: account.email.clone() }, registration.destination);
    let entered = if destination.began_in(browser) {
        Some(sign_in::enter(tx, janua, visitor, account, SignInMethod::by("mail", Delivery::Cookie)).await?)
    } else {
        None
    };
    Ok(Some(Confirmed { verified, destination, entered }))
}
