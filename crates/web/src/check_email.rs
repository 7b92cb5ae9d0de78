//! The page that waits for a mail: the code of a confirmation is typed here, and the mail is requested again. And the page
//! behind a link that no longer works.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use identity::{magic_link, password, register};
use kernel::{
    Janua,
    email::Email,
    fault::{Fault, INVALID, Result},
    http::Routes,
};
use minijinja::{Value, context};
use tenancy::enter::{ToAdmit, Visitor};
use url::form_urlencoded::Serializer;

use crate::{
    began::{Began, RequestedMail},
    captcha,
    form::{Fields, OwnPage},
    onward::{Onward, refused},
    page::{go, pages, parameter, status_of},
    verify::go_on,
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/check-email", check_email_page, "the page that asks for the code of the confirmation mail")
        .post("/check-email", enter_code, "submit the code of the confirmation mail")
        .get("/check-email/again", to_check_email, "leads to the page that asks for the code")
        .post("/check-email/again", send_again, "send the confirmation mail again")
}

/// To the page that waits, which knows from a cookie what for. The same whether or not the email has an account.
pub fn wait(janua: &Janua, began: &Began, onward: &Onward, is_again: bool) -> Response {
    let sent = is_again.then_some(("sent", "again"));
    let query = Serializer::new(String::new()).extend_pairs(sent).append_pair("continue", &onward.to).finish();
    began.remember(janua, go(&format!("/check-email?{query}")))
}

async fn check_email_page(State(janua): State<Janua>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::asked(&janua, &headers, query.as_deref()).await;
    let is_again = parameter(query.as_deref(), "sent") == "again";
    form(&janua, StatusCode::OK, &headers, &onward, is_again, None)
}

/// Somebody opened the URL that the button of the page sends to.
async fn to_check_email() -> Response {
    go("/check-email")
}

fn form(
    janua: &Janua,
    status: StatusCode,
    headers: &HeaderMap,
    onward: &Onward,
    is_again: bool,
    fault: Option<&Fault>,
) -> Response {
    let began = Began::read(janua, headers);
    let (email, mail) = began.map_or((String::new(), RequestedMail::Confirmation), |began| (began.email, began.mail));
    waiting(janua, status, (&email, mail), onward, context! { is_again, not_sent => false, ..refused(fault) })
}

/// A mail that could not be requested, with a form of its own to request it.
fn not_sent(janua: &Janua, asked: (&str, RequestedMail), onward: &Onward, fault: &Fault) -> Response {
    let content = context! { is_again => false, not_sent => true, ..refused(Some(fault)) };
    waiting(janua, status_of(fault), asked, onward, content)
}

fn waiting(
    janua: &Janua,
    status: StatusCode,
    (email, mail): (&str, RequestedMail),
    onward: &Onward,
    content: Value,
) -> Response {
    // On a developer's own machine the mail is a file. A server that others reach never says so.
    let outbox = (janua.config.smtp_url.is_none() && janua.config.is_local())
        .then(|| janua.config.data_dir.join("outbox").display().to_string());
    let content = context! { email, mail => mail.name(), outbox, ..content };
    onward.page(janua, status, "check_email.html", content)
}

async fn enter_code(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, fields.get("continue")).await.in_zone_of(&fields);
    let entered = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        let browser = Began::read(&janua, &headers).map(|began| began.secret());
        let code: String = fields.get("code").chars().filter(|c| !c.is_whitespace()).collect();
        let wrong =
            || INVALID.at("code", "wrong_code", "Wrong or expired code. Enter the newest one, or send it again.");
        if code.len() != 6 {
            return Err(wrong());
        }
        let email = fields.email()?;
        let confirmed = register::by_code(&janua, &visitor, &email, &code.into(), browser.as_ref()).await?;
        let confirmed = confirmed.ok_or_else(wrong)?;
        // The page that was waited on may be older than the mail.
        let stored = Onward::read(&janua, &headers, &confirmed.destination.path).await.in_zone_of(&fields);
        go_on(&janua, if onward.to.is_empty() { &stored } else { &onward }, confirmed).await
    }
    .await;
    entered.unwrap_or_else(|fault| form(&janua, status_of(&fault), &headers, &onward, false, Some(&fault)))
}

async fn send_again(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, fields.get("continue")).await;
    let mail = RequestedMail::parse(fields.get("mail")).unwrap_or(RequestedMail::Confirmation);
    let sent = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        let email = fields.email()?;
        let began = Began::new(&janua, &headers, email.as_str(), mail);
        request(&janua, &visitor, &email, &began, &onward).await?;
        Ok::<_, Fault>(wait(&janua, &began, &onward, true))
    }
    .await;
    sent.unwrap_or_else(|fault| not_sent(&janua, (fields.get("email"), mail), &onward, &fault))
}

/// Requests a mail whose link leads on from here. A sign-up has its own way.
pub async fn request(janua: &Janua, visitor: &Visitor, email: &Email, began: &Began, onward: &Onward) -> Result<()> {
    let destination = began.destination(onward);
    match began.mail {
        RequestedMail::Confirmation => register::resend(janua, visitor, email, destination).await,
        RequestedMail::SignInLink => magic_link::ask(janua, visitor, email, destination).await,
        RequestedMail::NewPassword => password::forget(janua, visitor, email, destination).await,
    }
    .map(drop)
}

/// A link that was used or has expired: a button requests a new one, and the way leads on as before.
pub fn expired(janua: &Janua, headers: &HeaderMap, mail: RequestedMail, onward: &Onward) -> Response {
    let email = Began::read(janua, headers).map(|began| began.email).unwrap_or_default();
    onward.page(janua, StatusCode::GONE, "expired.html", context! { email, mail => mail.name(), ..refused(None) })
}
