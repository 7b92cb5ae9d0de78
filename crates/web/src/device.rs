//! Letting a device in: the code is typed, what asks is shown, and the person says yes or no.
use askama::Template;
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::device::approve::{self, Asking};
use kernel::{App, fault::Fault, http::Routes};
use tenancy::enter::{Browser, Session, Visitor};
use url::form_urlencoded::Serializer;

use crate::{
    form::{Fields, OwnPage},
    page::{HTML, STYLE, go, page, said, wishes},
};

pub fn routes() -> Routes {
    let refusals = [400, 401, 403, 404, 429, 503];
    let shows =
        |routes: Routes| refusals.into_iter().fold(routes, |routes, status| routes.answers::<String>(status, HTML));
    let routes = Routes::new("pages")
        .body_limit(64 * 1024)
        .get("/device", device_page, "the page to type a device's code at")
        .answers::<String>(200, HTML)
        .answers_nothing(303)
        .post("/device", look_at_device, "what that page sends: shows what asks")
        .answers::<String>(200, HTML)
        .answers_nothing(303);
    let routes = shows(routes)
        .post("/device/decide", decide_on_device, "let the device in or send it away")
        .answers::<String>(200, HTML)
        .answers_nothing(303);
    shows(routes)
}

#[derive(Template)]
#[template(path = "device.html")]
struct DevicePage<'a> {
    asking: Option<Asking>,
    wishes: Vec<&'static str>,
    asks_code: bool,
    user_code: &'a str,
    wrong: Option<String>,
    style: &'static str,
}

#[derive(Template)]
#[template(path = "note.html")]
struct DonePage {
    title: &'static str,
    text: String,
    style: &'static str,
}

fn to_sign_in(app: &App, user_code: &str) -> Response {
    let back = Serializer::new("/device?".to_owned()).append_pair("user_code", user_code).finish();
    let query = Serializer::new(String::new()).append_pair("continue", &back).finish();
    go(&format!("{}/sign-in?{query}", app.config.base_url()))
}

fn form(status: StatusCode, user_code: &str, wrong: Option<String>) -> Response {
    let shown = DevicePage { asking: None, wishes: vec![], asks_code: false, user_code, wrong, style: STYLE };
    page(status, &shown, None)
}

fn refused(fault: &Fault, user_code: &str) -> Response {
    let status = StatusCode::from_u16(fault.code().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    form(status, user_code, Some(said(fault)))
}

/// A link only fills in the code: what it leads to is shown once somebody says that they see it.
async fn device_page(State(app): State<App>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let code = pairs.find(|(name, _)| name == "user_code").map(|(_, code)| code.into_owned()).unwrap_or_default();
    match who {
        Some(_) => form(StatusCode::OK, &code, None),
        None => to_sign_in(&app, &code),
    }
}

async fn look_at_device(
    State(app): State<App>,
    _: OwnPage,
    visitor: Visitor,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&app, code) };
    match approve::look(&app, &visitor, &session, code).await {
        Ok(asking) => shown(&session, asking, code, StatusCode::OK, None),
        Err(fault) => refused(&fault, code),
    }
}

fn shown(session: &Session, asking: Asking, code: &str, status: StatusCode, wrong: Option<String>) -> Response {
    let wishes = asking.scopes.as_ref().map(wishes).unwrap_or_default();
    let asks_code = !session.passed_gate();
    page(status, &DevicePage { asking: Some(asking), wishes, asks_code, user_code: code, wrong, style: STYLE }, None)
}

async fn decide_on_device(
    State(app): State<App>,
    _: OwnPage,
    visitor: Visitor,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let user_code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&app, user_code) };
    let approved = fields.get("decision") == "allow";
    let code = fields.says("code").then(|| fields.secret("code"));
    match approve::decide(&app, &visitor, &session, user_code, approved, code).await {
        Ok(asking) => {
            let (title, text) = if approved {
                ("The device is in", format!("{} goes on by itself. You can close this page.", asking.device))
            } else {
                ("The device was sent away", "It gets nothing. You can close this page.".to_owned())
            };
            page(StatusCode::OK, &DonePage { title, text, style: STYLE }, None)
        }
        Err(fault) => refused(&fault, user_code),
    }
}
