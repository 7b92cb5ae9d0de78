//! Signing in with a password, forgetting it, and choosing another.
use std::time::Duration;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, NoContent, Response},
};
use db::Reach;
use kernel::{
    Janua,
    fault::{Code, Fault, OVERLOADED, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::{
        Account, factors,
        password::{self, Hasher, WEAK_PASSWORD},
    },
    email::Email,
    enter::{ACCOUNT_TOPIC, Delivery, Session, ToAdmit, Visitor},
    events,
    messages::mail::{self, Origin},
    once::{self, Purpose, TOKEN_SPENT},
    sessions::{
        self,
        sign_in::{self, Entered, MayEnter, SignInMethod, Typed},
    },
};

use crate::{
    BODY,
    asked::{self, Accepted, What},
    destination::Destination,
    device,
    events::{EmailVerified, PasswordChanged, PasswordReset},
    magic_link::MAGIC_LINK,
    mails,
    people::ACCOUNT_INVITE,
    proof::{self, WRONG_PASSWORD},
    register::{Address, VERIFY_EMAIL},
    session::turn_over,
};

/// The link in a mail to choose another password.
pub const RESET_PASSWORD: Purpose = Purpose::new("reset_password", Duration::from_hours(1));

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/login", login, "password login; sets access and refresh cookies")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<MayEnter>(200, "application/json")
        .fails(&[INVALID_CREDENTIALS, EMAIL_NOT_VERIFIED, OVERLOADED])
        .post("/auth/forgot-password", forgot_password, "send a password-reset email")
        .post("/auth/reset-password", reset_password, "complete a password reset with a token")
        .fails(&[TOKEN_SPENT, WEAK_PASSWORD])
        .post("/auth/change-password", change_password, "change the password (requires the current one)")
        .answers_nothing(204)
        .fails(&[WRONG_PASSWORD, WEAK_PASSWORD])
}

const INVALID_CREDENTIALS: Code = Code::new(401, "invalid_credentials", "Wrong email or password.");
pub const EMAIL_NOT_VERIFIED: Code =
    Code::new(403, "email_not_verified", "Confirm your email first. You can request a new confirmation mail.");

#[derive(Deserialize, JsonSchema)]
struct Login {
    email: Email,
    password: Typed,
    options: Option<LoginOptions>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginOptions {
    /// `body` for programs that keep their tokens themselves.
    pub token_delivery: Option<Delivery>,
}

async fn login(State(janua): State<Janua>, ToAdmit(visitor): ToAdmit, Json(body): Json<Login>) -> Result<Response> {
    let delivery = body.options.and_then(|options| options.token_delivery).unwrap_or_default();
    sign_in(&janua, &visitor, &body.email, &body.password, delivery).await?.answer(&janua)
}

/// The same for programs and for the page.
pub async fn sign_in(
    janua: &Janua,
    visitor: &Visitor,
    email: &Email,
    password: &Typed,
    delivery: Delivery,
) -> Result<Entered> {
    let attempt = visitor.attempt(janua, email).await?;
    let account = Account::by_email(&janua.db, email).await?;
    let hash = account.as_ref().and_then(|account| account.password_hash.clone());
    let verdict = janua.own::<Hasher>().verify(&password.0, hash.clone()).await?;
    let Some(account) = account.filter(|_| verdict.matches) else {
        // Whatever key the request came with: a failure is written down, and no answer from before stands in for it.
        let noted = asked::keep(
            janua,
            visitor,
            email,
            What::WrongPassword { is_last: attempt.is_last },
            Destination::default(),
        );
        db::aside(noted).await?;
        return Err(INVALID_CREDENTIALS.into());
    };
    if !account.email_verified {
        // The password was right: trying again before the mail is read closes nobody's account.
        transact!(janua, async |tx| Ok(attempt.forgive(tx).await?))?;
        return Err(EMAIL_NOT_VERIFIED.into());
    }
    let mut matched = hash.clone();
    if let Some(old) = hash.filter(|_| verdict.is_outdated) {
        let new = janua.own::<Hasher>().hash(&janua.entropy, &password.0).await?;
        Account::upgrade_hash(&janua.db, account.id, &old, &new).await?;
        matched = Some(new);
    }
    transact!(janua, async |tx| {
        // The password may have been changed since it was compared; who came with the old one is too late.
        let held = Account::hold(tx, account.id).await?.filter(|held| held.password_hash == matched);
        let held = held.ok_or(Fault::from(INVALID_CREDENTIALS))?;
        attempt.forgive(tx).await?;
        sign_in::enter_held(tx, janua, visitor, held, SignInMethod::by("pwd", delivery)).await
    })
}

async fn forgot_password(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Address>,
) -> Result<Json<Accepted>> {
    forget(&janua, &visitor, &body.email, Destination::default()).await.map(Json)
}

/// The same for programs and for the page.
pub async fn forget(janua: &Janua, visitor: &Visitor, email: &Email, destination: Destination) -> Result<Accepted> {
    visitor.admit(janua, Some(email)).await?;
    asked::take(janua, visitor, email, What::ForgotPassword, destination).await
}

#[derive(Deserialize, JsonSchema)]
struct Reset {
    token: Typed,
    password: Typed,
}

/// Sets the password and ends every session; it begins none, so that a second factor is still asked for.
async fn reset_password(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Reset>,
) -> Result<NoContent> {
    reset(&janua, &visitor, &body.token, &body.password, None).await.map(|_| NoContent)
}

/// The same for programs and for the page. The page signs the person in besides, through the gate like everybody: the
/// new password would do the same at once, and a second factor is asked for.
pub async fn reset(
    janua: &Janua,
    visitor: &Visitor,
    token: &Typed,
    new: &Typed,
    sign_in: Option<Delivery>,
) -> Result<Option<Entered>> {
    visitor.admit(janua, None).await?;
    // The password is judged before the link is used up: a weak one costs nobody the link.
    password::check("password", &new.0, None, "")?;
    let now = janua.clock.now();
    let mut purpose = None;
    for known in [RESET_PASSWORD, ACCOUNT_INVITE] {
        if once::look(&janua.db, known, &token.0, now).await?.is_some() {
            purpose = Some(known);
        }
    }
    let purpose = purpose.ok_or(TOKEN_SPENT)?;
    let hash = janua.own::<Hasher>().hash(&janua.entropy, &new.0).await?;
    transact!(janua, async |tx| {
        let spent = once::spend(tx, purpose, &token.0, now).await?;
        let id = spent.and_then(|spent| spent.account_id).ok_or(TOKEN_SPENT)?;
        let account = Account::find(tx, id).await?.ok_or(TOKEN_SPENT)?;
        Account::set_password(tx, id, &hash, now).await?;
        if Account::mark_verified(tx, id, now).await? {
            visitor.record_about(tx, janua, id, &EmailVerified).await?;
        }
        visitor.record_about(tx, janua, id, &PasswordReset).await?;
        end_sessions(tx, janua, &visitor.by, &account, None).await?;
        Ok(match sign_in {
            Some(delivery) => {
                Some(sign_in::enter(tx, janua, visitor, account, SignInMethod::by("mail", delivery)).await?)
            }
            None => None,
        })
    })
}

/// A changed password ends what the old one opened, and the person is told.
async fn end_sessions(
    tx: &mut db::Tx,
    janua: &Janua,
    by: &events::By,
    account: &Account,
    except: Option<sessions::SessionId>,
) -> Result<()> {
    let now = janua.clock.now();
    for purpose in [RESET_PASSWORD, ACCOUNT_INVITE, MAGIC_LINK, VERIFY_EMAIL] {
        once::void(tx, purpose, account.id, now).await?;
    }
    factors::distrust_devices(tx, account.id).await?;
    device::withdraw(tx, account.id).await?;
    sessions::end_all(tx, janua, by, account.id, except, "password_changed").await?;
    if let Some(email) = &account.email {
        let origin = Origin::new(by, now);
        mail::send(tx, janua, email, &mails::PasswordChanged { name: account.name.clone(), origin }).await?;
    }
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Change {
    current_password: Typed,
    new_password: Typed,
}

async fn change_password(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    session: Session,
    Json(body): Json<Change>,
) -> Result<Response> {
    let account = session.account();
    let email = account.email.as_deref().and_then(Email::parse);
    password::check("newPassword", &body.new_password.0, email.as_ref(), &account.name)?;
    let attempt = proof::by_password(&janua, &visitor, &session, &body.current_password).await?;
    let hash = janua.own::<Hasher>().hash(&janua.entropy, &body.new_password.0).await?;
    let turned = transact!(janua, async |tx| {
        attempt.forgive(tx).await?;
        Account::set_password(tx, account.id, &hash, janua.clock.now()).await?;
        session.record(tx, &janua, &PasswordChanged).await?;
        end_sessions(tx, &janua, &session.by(), account, Some(session.id())).await?;
        // Whoever has a copy of this browser's cookies is out, too. A program keeps its refresh token: it hears of no other.
        match session.delivery {
            Delivery::Cookie => turn_over(tx, &janua, session.id()).await,
            Delivery::Body => Ok(None),
        }
    })?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(person) = turned {
        response.headers_mut().extend(person.hand_out(&janua)?.1);
    }
    Ok(response)
}
