//! Making an account, with or without an invitation.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
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
};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    page::{address, by_field, go, note_of, note_to, page, pages, parameter, shown, status_of},
    sign_in::Onward,
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-up", sign_up_page, "the page to make an account")
        .post("/sign-up", sign_up, "what that page sends")
        .get("/auth/accept-invite", invite_page, "the page behind the link of an invitation")
        .post("/accept-invite", accept, "what that page sends")
}

async fn sign_up_page(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::read(&janua, &parameter(query.as_deref(), "continue")).await;
    match policy::refusal(&janua) {
        None => form(&janua, StatusCode::OK, &onward, ("", ""), None),
        Some(code) => closed(&janua, &onward, code),
    }
}

/// Says in words that nobody signs up here, or not without an invitation.
fn closed(janua: &Janua, onward: &Onward, code: Code) -> Response {
    let title = if code == policy::INVITATION_REQUIRED { "Sign-up by invitation" } else { "Sign-up is closed" };
    let next = vec!["Sign in".to_owned(), address(janua, "/sign-in", "continue", &onward.to)];
    let content = context! { title, text => code.says, brand => onward.brand(janua).as_ref(), sign => "lock", next };
    page(janua, StatusCode::FORBIDDEN, "note.html", content)
}

fn form(janua: &Janua, status: StatusCode, onward: &Onward, typed: (&str, &str), fault: Option<&Fault>) -> Response {
    let (name, email) = typed;
    let content = context! {
        name,
        email,
        onward => &onward.to,
        brand => onward.brand(janua).as_ref(),
        wrong => fault.map(Fault::above_form),
        errors => fault.map(by_field).unwrap_or_default(),
        challenge => fault.and_then(captcha::challenge),
    };
    page(janua, status, "sign_up.html", content)
}

async fn sign_up(State(janua): State<Janua>, _: OwnPage, ToAdmit(mut visitor): ToAdmit, fields: Fields) -> Response {
    let onward = Onward::read(&janua, fields.get("continue")).await;
    visitor.destination = onward.app();
    let made = make(&janua, &mut visitor, &fields).await;
    match made {
        Ok(()) => note_of(
            &janua,
            onward.brand(&janua).as_ref(),
            "Check your email",
            "We sent you a link. Open it to confirm your email. Then you can sign in.",
        ),
        Err(fault) if policy::REFUSALS.contains(&fault.code()) => closed(&janua, &onward, fault.code()),
        Err(fault) => {
            let typed = (fields.get("name"), fields.get("email"));
            form(&janua, status_of(&fault), &onward, typed, Some(&fault))
        }
    }
}

async fn make(janua: &Janua, visitor: &mut Visitor, fields: &Fields) -> Result<()> {
    captcha::solved(janua, visitor, fields).await?;
    let (email, name) = (fields.email()?, fields.short("name", "Enter your name.")?);
    let new = SignUp { email, name, password: fields.secret("password"), accept_marketing: None, invite_token: None };
    register::sign_up(janua, visitor, &new).await.map(drop)
}

async fn invite_page(State(janua): State<Janua>, who: Browser, RawQuery(query): RawQuery) -> Response {
    let token = parameter(query.as_deref(), "token");
    shown(&janua, invitation(&janua, who.own().as_ref(), &token, StatusCode::OK, None).await)
}

/// Looking at it uses nothing up.
async fn invitation(
    janua: &Janua,
    who: Option<&Session>,
    token: &str,
    status: StatusCode,
    fault: Option<&Fault>,
) -> Result<Response> {
    let invite = Invite::look(&janua.db, &token.to_owned().into(), janua.clock.now()).await?.ok_or(TOKEN_SPENT)?;
    let email = Email::parse(&invite.email).ok_or(TOKEN_SPENT)?;
    let is_known = Account::by_email(&janua.db, &email).await?.is_some_and(|account| account.email_verified);
    if who.is_none() && is_known {
        let back = address(janua, "/auth/accept-invite", "token", token);
        let back = back.strip_prefix(&janua.config.base_url()).unwrap_or_default().to_owned();
        return Ok(go(&address(janua, "/sign-in", "continue", &back)));
    }
    let org = Org::find(&janua.db, invite.org_id).await?.ok_or(TOKEN_SPENT)?;
    let content = context! {
        org => org.name,
        email => invite.email,
        role => invite.role.name(),
        token,
        is_new => who.is_none(),
        wrong => fault.map(Fault::above_form),
        errors => fault.map(by_field).unwrap_or_default(),
        challenge => fault.and_then(captcha::challenge),
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
        Err(fault) if [TOKEN_SPENT, SIGN_IN_FIRST].contains(&fault.code()) => shown(&janua, Err(fault)),
        Err(fault) => shown(
            &janua,
            invitation(&janua, who.as_ref(), fields.get("token"), status_of(&fault), Some(&fault)).await,
        ),
    }
}

async fn join(janua: &Janua, visitor: &mut Visitor, who: Option<&Session>, fields: &Fields) -> Result<Response> {
    captcha::solved(janua, visitor, fields).await?;
    let name = if who.is_none() { Some(fields.short("name", "Enter your name.")?) } else { None };
    let body =
        Accept { token: fields.secret("token"), name, password: Some(fields.secret("password")), options: None };
    match invite::accept(janua, visitor, who, body, Delivery::Cookie).await? {
        Accepted::Joined(membership) => Ok(note_to(
            janua,
            &format!("Welcome to {}", membership.org.name),
            "You are a member now.",
            ("Open console", "/console"),
        )),
        Accepted::Entered(entered) => Onward::nowhere().enter_or_ask(janua, *entered),
    }
}
