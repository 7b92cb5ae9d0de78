//! Signing up and proving that an address is one's own.
use askama::Template;
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use db::{Reach, Tx};
use kernel::{
    App,
    crypto::Secret,
    fault::{INVALID, Result},
    http::{Form, Json, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::{Account, AccountId},
    email::Email,
    enter::{ACCOUNT_TOPIC, Admitted, CAPTCHA_REQUIRED, ToAdmit, Visitor},
    once::{self, Purpose, Spent, TOKEN_SPENT},
    password::{self, Hasher, WEAK_PASSWORD},
    sign_in::Typed,
};

use crate::events::EmailVerified;
use crate::{
    BODY,
    asked::{self, Accepted, Registration, What},
    invite,
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/register", register, "register a user account")
        .fails(&[WEAK_PASSWORD, CAPTCHA_REQUIRED, TOKEN_SPENT])
        .post("/auth/resend-verification", resend_verification, "resend the verification message")
        .post("/auth/verify-email", verify_email, "verify an email address with a code or token")
        .fails(&[TOKEN_SPENT])
        .get("/auth/verify", verify_link, "verify an email-link token; a browser is asked to confirm")
        .answers::<Verified>(200, "application/json")
        .answers::<String>(200, "text/html; charset=utf-8")
        .fails(&[TOKEN_SPENT])
        .post("/auth/verify", confirm_link, "the confirm button of the page behind the link")
        .answers::<String>(200, "text/html; charset=utf-8")
        .answers::<String>(410, "text/html; charset=utf-8")
        .fails(&[TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignUp {
    pub email: Email,
    /// 8 to 256 characters that nobody would guess.
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
    State(app): State<App>,
    ToAdmit(visitor): ToAdmit,
    Json(new): Json<SignUp>,
) -> Result<Json<SignedUp>> {
    let requires_verification = sign_up(&app, &visitor, &new).await?;
    Ok(Json(SignedUp { requires_verification, email: new.email }))
}

/// The same for programs and for the page. Answers whether the address must still be confirmed.
pub async fn sign_up(app: &App, visitor: &Visitor, new: &SignUp) -> Result<bool> {
    visitor.admit(app, Some(&new.email)).await?;
    password::check("password", &new.password.0, Some(&new.email), &new.name)?;
    if let Some(token) = &new.invite_token {
        // Refused at once: not everybody's password is worth hashing.
        invite::look(app, &new.email, &token.0).await?;
    }
    let password_hash = app.own::<Hasher>().hash(&app.entropy, &new.password.0).await?;
    if let Some(token) = &new.invite_token
        && !Account::by_email(&app.db, &new.email).await?.is_some_and(|account| account.email_verified)
    {
        // The link came to this very address, so there is nothing left to confirm.
        let (now, name) = (app.clock.now(), new.name.trim());
        let newcomer = Account {
            password_hash: Some(password_hash),
            accepts_marketing: new.accept_marketing.unwrap_or(false),
            ..Account::new(AccountId::new(&app.entropy, now), Some(&new.email), name, now)
        };
        transact!(app, async |tx| invite::newcomer(tx, app, visitor, newcomer.clone(), &token.0).await)?;
        return Ok(false);
    }
    let what = What::Register {
        name: new.name.trim().to_owned(),
        password_hash,
        accepts_marketing: new.accept_marketing.unwrap_or(false),
        likeness: Some(
            app.vault.mac("sign-up", format!("{}\n{}", new.email.key(), new.password.0.expose()).as_bytes()),
        ),
    };
    asked::keep(app, visitor, &new.email, what).await?;
    Ok(true)
}

#[derive(Deserialize, JsonSchema)]
pub struct Address {
    pub email: Email,
}

async fn resend_verification(
    State(app): State<App>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Address>,
) -> Result<Json<Accepted>> {
    visitor.admit(&app, Some(&body.email)).await?;
    asked::take(&app, &visitor, &body.email, What::ResendVerification).await.map(Json)
}

/// Either the token of the link, or the address and the code.
#[derive(Deserialize, JsonSchema)]
struct Proof {
    token: Option<Typed>,
    email: Option<Email>,
    #[schemars(length(min = 6, max = 6))]
    code: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Verified {
    email_verified: bool,
    email: Option<String>,
}

async fn verify_email(
    State(app): State<App>,
    ToAdmit(visitor): ToAdmit,
    Json(proof): Json<Proof>,
) -> Result<Json<Verified>> {
    let verified = match (proof.token, proof.email, proof.code) {
        (Some(token), _, _) => {
            visitor.admit(&app, None).await?;
            by_token(&app, &visitor, &token.0).await?
        }
        (None, Some(email), Some(code)) => by_code(&app, &visitor, &email, &code.into()).await?,
        _ => return Err(INVALID.at("token", "required", "is required, or email and code instead")),
    };
    verified.map(Json).ok_or_else(|| TOKEN_SPENT.into())
}

async fn by_token(app: &App, visitor: &Visitor, token: &Secret) -> Result<Option<Verified>> {
    transact!(app, async |tx| {
        match once::spend(tx, Purpose::VerifyEmail, token, app.clock.now()).await? {
            Some(spent) => complete(tx, app, visitor, spent).await,
            None => Ok(None),
        }
    })
}

async fn by_code(app: &App, visitor: &Visitor, email: &Email, code: &Secret) -> Result<Option<Verified>> {
    let attempt = visitor.attempt_mailed_code(app, email).await?;
    // Who has no account takes as long as who has one.
    let account = Account::by_email(&app.db, email).await?;
    let id = account.map_or_else(|| AccountId::new(&app.entropy, app.clock.now()), |account| account.id);
    transact!(app, async |tx| {
        match once::spend_code(tx, app, Purpose::VerifyEmail, id, code, app.clock.now()).await? {
            Some(spent) => {
                attempt.forgive(tx).await?;
                complete(tx, app, visitor, spent).await
            }
            None => Ok(None),
        }
    })
}

/// The address is proven: the account takes over what came with the proof.
async fn complete(tx: &mut Tx, app: &App, visitor: &Visitor, spent: Spent) -> Result<Option<Verified>> {
    let now = app.clock.now();
    let aside = spent.aside(app).unwrap_or_default();
    let (Some(id), Ok(registration)) = (spent.account_id, serde_json::from_slice::<Registration>(&aside)) else {
        return Ok(None);
    };
    let Some(account) = Account::find(tx, id).await? else { return Ok(None) };
    Account::verified(tx, id, &registration.name, registration.password_hash.as_deref(), now).await?;
    once::void(tx, Purpose::VerifyEmail, id, now).await?;
    visitor.record_about(tx, app, id, &EmailVerified).await?;
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, id.to_string()).await?;
    Ok(Some(Verified { email_verified: true, email: account.email }))
}

#[derive(Deserialize, JsonSchema)]
struct Link {
    token: Typed,
}

#[derive(Template)]
#[template(path = "verify.html")]
struct Page<'a> {
    state: PageState<'a>,
}

enum PageState<'a> {
    Ask { token: &'a str },
    Done,
    Spent,
}

/// A mail scanner that looks at the link must not use it up: a HEAD, a prefetch or a browser gets a page with a button;
/// a program that asks for JSON means it.
async fn verify_link(
    State(app): State<App>,
    Admitted(visitor): Admitted,
    method: Method,
    headers: HeaderMap,
    Query(link): Query<Link>,
) -> Result<Response> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_lowercase();
    let only_looks = method == Method::HEAD
        || ["purpose", "sec-purpose", "x-purpose", "x-moz"].iter().any(|name| text(name).contains("prefetch"));
    if only_looks || text("accept").contains("text/html") {
        return Ok(page(StatusCode::OK, PageState::Ask { token: link.token.0.expose() }));
    }
    let verified = by_token(&app, &visitor, &link.token.0).await?.ok_or(TOKEN_SPENT)?;
    Ok(Json(verified).into_response())
}

async fn confirm_link(
    State(app): State<App>,
    Admitted(visitor): Admitted,
    Form(link): Form<Link>,
) -> Result<Response> {
    Ok(match by_token(&app, &visitor, &link.token.0).await? {
        Some(_) => page(StatusCode::OK, PageState::Done),
        None => page(StatusCode::GONE, PageState::Spent),
    })
}

/// Lets the page have the stylesheet and the icon of this server, and send its form here.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                           frame-ancestors 'none'";

fn page(status: StatusCode, state: PageState<'_>) -> Response {
    let html = Page { state }.render().unwrap_or_default();
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}
