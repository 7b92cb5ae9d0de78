//! Making an account, with or without an invitation.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use identity::{
    invite::{self, Accept, Accepted, SIGN_IN_FIRST},
    policy,
    register::{self, SignUp},
};
use kernel::{
    Janua,
    email::Email,
    fault::{Code, Fault, Result},
    http::Routes,
};
use minijinja::context;
use tenancy::{
    accounts::Account,
    enter::{Browser, Delivery, Session, ToAdmit, Visitor},
    once::TOKEN_SPENT,
    orgs::{Org, invites::Invite},
    sessions::sign_in::renew,
};
use url::form_urlencoded::Serializer;

use crate::{
    began::{Began, RequestedMail},
    captcha,
    check_email::wait,
    form::{Fields, OwnPage},
    onward::{Onward, refused},
    page::{address, error, go, note_with, page, pages, parameter, status_of},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-up", sign_up_page, "the sign-up page")
        .post("/sign-up", sign_up, "submit the sign-up form")
        .get("/auth/accept-invite", invite_page, "the page behind the link of an invitation")
        .get("/accept-invite", to_home, "leads to the home page")
        .post("/accept-invite", accept, "accept an invitation from its page")
}

async fn sign_up_page(State(janua): State<Janua>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::asked(&janua, &headers, query.as_deref()).await;
    match policy::refusal(&janua) {
        None => form(&janua, StatusCode::OK, &onward, ("", ""), None),
        Some(code) => closed(&janua, &onward, code),
    }
}

/// Says in words that sign-up is closed, or needs an invitation.
fn closed(janua: &Janua, onward: &Onward, code: Code) -> Response {
    let title = if code == policy::INVITATION_REQUIRED { "Sign-up by invitation" } else { "Sign-up is closed" };
    let next = vec!["Sign in".to_owned(), address(janua, "/sign-in", "continue", &onward.to)];
    onward.page(
        janua,
        StatusCode::FORBIDDEN,
        "note.html",
        context! { title, text => code.says, sign => "lock", next },
    )
}

fn form(janua: &Janua, status: StatusCode, onward: &Onward, typed: (&str, &str), fault: Option<&Fault>) -> Response {
    let (name, email) = typed;
    onward.page(janua, status, "sign_up.html", context! { name, email, ..refused(fault) })
}

async fn sign_up(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, fields.get("continue")).await;
    match make(&janua, &mut visitor, &headers, &fields, &onward).await {
        Ok(began) => wait(&janua, &began, &onward, false),
        Err(fault) if policy::REFUSALS.contains(&fault.code()) => closed(&janua, &onward, fault.code()),
        Err(fault) => {
            let typed = (fields.get("name"), fields.get("email"));
            form(&janua, status_of(&fault), &onward, typed, Some(&fault))
        }
    }
}

async fn make(
    janua: &Janua,
    visitor: &mut Visitor,
    headers: &HeaderMap,
    fields: &Fields,
    onward: &Onward,
) -> Result<Began> {
    captcha::solved(janua, visitor, fields).await?;
    let (email, name) = (fields.email()?, fields.short("name", "Enter your name.")?);
    let new = SignUp { email, name, password: fields.secret("password"), accept_marketing: None, invite_token: None };
    let began = Began::new(janua, headers, new.email.as_str(), RequestedMail::Confirmation);
    register::sign_up(janua, visitor, &new, began.destination(onward)).await?;
    Ok(began)
}

async fn invite_page(State(janua): State<Janua>, who: Browser, RawQuery(query): RawQuery) -> Response {
    let token = parameter(query.as_deref(), "token");
    let drawn = invitation(&janua, who.own().as_ref(), &token, StatusCode::OK, None).await;
    drawn.unwrap_or_else(|fault| not_joined(&janua, &fault))
}

/// An invitation cannot be requested by the invited person, so the page says who can send a new one.
fn not_joined(janua: &Janua, fault: &Fault) -> Response {
    if fault.code() != TOKEN_SPENT {
        return error(janua, fault);
    }
    let mut response = note_with(
        janua,
        "Invitation expired",
        "This invitation is invalid, was accepted or has expired. Ask the person who invited you to send a new one.",
        "clock",
        ("Go to home page", "/"),
    );
    *response.status_mut() = StatusCode::GONE;
    response
}

fn page_of_invite(token: &str) -> String {
    let query = Serializer::new(String::new()).append_pair("token", token).finish();
    format!("/auth/accept-invite?{query}")
}

/// The invited email has an account: its user signs in and comes back to the invitation.
fn to_sign_in_for(janua: &Janua, token: &str) -> Response {
    go(&address(janua, "/sign-in", "continue", &page_of_invite(token)))
}

/// The invitation is in the link of its mail, and this URL has none.
async fn to_home() -> Response {
    go("/")
}

fn name_of(account: &Account) -> String {
    account.email.clone().unwrap_or_else(|| account.name.clone())
}

/// Looking at it uses nothing up. An invitation for another email than that of the session asks to sign out first. A refusal
/// comes with the name that was typed.
async fn invitation(
    janua: &Janua,
    who: Option<&Session>,
    token: &str,
    status: StatusCode,
    refusal: Option<(&Fault, &str)>,
) -> Result<Response> {
    let invite = Invite::look(&janua.db, &token.to_owned().into(), janua.clock.now()).await?.ok_or(TOKEN_SPENT)?;
    let email = Email::parse(&invite.email).ok_or(TOKEN_SPENT)?;
    let is_known = Account::by_email(&janua.db, &email).await?.is_some_and(|account| account.email_verified);
    if who.is_none() && is_known {
        return Ok(to_sign_in_for(janua, token));
    }
    let org = Org::find(&janua.db, invite.org_id).await?.ok_or(TOKEN_SPENT)?;
    let content = context! {
        org => org.name,
        email => invite.email,
        role => invite.role.name(),
        token,
        is_new => who.is_none(),
        signed_in_as => who.map(Session::account).filter(|account| account.email_key.as_deref() != Some(email.key())).map(name_of),
        here => page_of_invite(token),
        name => refusal.map(|(_, name)| name).unwrap_or_default(),
        ..refused(refusal.map(|(fault, _)| fault))
    };
    Ok(page(janua, status, "invite.html", content))
}

async fn accept(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    who: Browser,
    fields: Fields,
) -> Response {
    let who = who.own();
    match join(&janua, &mut visitor, who.as_ref(), &fields).await {
        Ok(response) => response,
        Err(fault) if fault.code() == SIGN_IN_FIRST => to_sign_in_for(&janua, fields.get("token")),
        Err(fault) => {
            let (token, name) = (fields.get("token"), fields.get("name"));
            let again = invitation(&janua, who.as_ref(), token, status_of(&fault), Some((&fault, name))).await;
            again.unwrap_or_else(|fault| not_joined(&janua, &fault))
        }
    }
}

async fn join(janua: &Janua, visitor: &mut Visitor, who: Option<&Session>, fields: &Fields) -> Result<Response> {
    captcha::solved(janua, visitor, fields).await?;
    let name = if who.is_none() { Some(fields.short("name", "Enter your name.")?) } else { None };
    let body =
        Accept { token: fields.secret("token"), name, password: Some(fields.secret("password")), options: None };
    let invited = Invite::look(&janua.db, &body.token.0, janua.clock.now()).await?.ok_or(TOKEN_SPENT)?;
    let org = format!("/console/orgs/{}", invited.org_id);
    match (invite::accept(janua, visitor, who, body, Delivery::Cookie).await?, who) {
        (Accepted::Joined(membership), Some(session)) => {
            let renewed = renew(janua, session, &membership)?;
            let mut response = go(&org);
            for cookie in renewed.headers().get_all(header::SET_COOKIE) {
                response.headers_mut().append(header::SET_COOKIE, cookie.clone());
            }
            Ok(response)
        }
        (Accepted::Joined(_), None) => Ok(go(&org)),
        (Accepted::Entered(entered), _) => {
            Onward::to_page(&org).in_zone_of(fields).enter_or_ask(janua, *entered, "password").await
        }
    }
}
