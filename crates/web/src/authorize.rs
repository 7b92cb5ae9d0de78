//! Somebody comes from a client: they sign in if they have to, say yes if they have to, and go back with a code.
use askama::Template;
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::oauth::{
    authorize::{Step, decide, next},
    request::Request,
};
use kernel::{
    App,
    fault::{Result, UNAUTHENTICATED},
    http::Routes,
};
use tenancy::enter::{Browser, Session, Visitor};
use url::Url;

use crate::{
    form::{Fields, OwnPage},
    page::{HTML, STYLE, go, page, shown, wishes},
};

pub fn routes() -> Routes {
    Routes::new("oauth")
        .body_limit(64 * 1024)
        .get("/oauth/authorize", authorize, "begin the authorization flow (RFC 6749, PKCE, OpenID Connect)")
        .answers_nothing(303)
        .answers::<String>(400, HTML)
        .answers::<String>(403, HTML)
        .answers::<String>(429, HTML)
        .answers::<String>(503, HTML)
        .post("/oauth/authorize", authorize_by_post, "the same, with the parameters in a form")
        .answers_nothing(303)
        .get("/consent", consent_page, "the page that asks whether a client may")
        .answers::<String>(200, HTML)
        .answers_nothing(303)
        .answers::<String>(400, HTML)
        .answers::<String>(503, HTML)
        .post("/consent", decide_consent, "what the consent page sends")
        .answers_nothing(303)
        .answers::<String>(400, HTML)
        .answers::<String>(401, HTML)
        .answers::<String>(503, HTML)
}

#[derive(Template)]
#[template(path = "consent.html")]
struct ConsentPage<'a> {
    name: &'a str,
    host: Option<&'a str>,
    wishes: Vec<&'static str>,
    resource: Option<&'a str>,
    person: &'a str,
    /// Where the person goes on to, as far as it can be shown.
    onward: String,
    request: &'a str,
    style: &'static str,
}

async fn authorize(
    State(app): State<App>,
    visitor: Visitor,
    Browser(who): Browser,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    shown(answer(&app, &visitor, who.as_ref(), &query).await)
}

async fn answer(app: &App, visitor: &Visitor, who: Option<&Session>, query: &str) -> Result<Response> {
    visitor.admit(app, None).await?;
    Ok(match next(app, who, query).await? {
        Step::Go(to) => go(&to),
        Step::SignIn(request) => to_page(app, "sign-in", "continue", &request.again(app)),
        Step::AskConsent(request) => to_page(app, "consent", "request", request.query()),
    })
}

fn to_page(app: &App, name: &str, field: &str, value: &str) -> Response {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(field, value).finish();
    go(&format!("{}/{name}?{query}", app.config.base_url()))
}

/// From another site a form brings no cookies along, so the person is looked for on the way of a link.
async fn authorize_by_post(State(app): State<App>, form: Fields) -> Response {
    go(&format!("{}/oauth/authorize?{}", app.config.base_url(), form.query()))
}

async fn consent_page(State(app): State<App>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let asked = pairs.find(|(name, _)| name == "request").map(|(_, value)| value.into_owned()).unwrap_or_default();
    shown(ask(&app, who.as_ref(), &asked).await)
}

/// Drawn from the request itself, which is looked at again: a link to this page says nothing that is not checked.
async fn ask(app: &App, who: Option<&Session>, query: &str) -> Result<Response> {
    let request = match next(app, who, query).await? {
        Step::Go(to) => return Ok(go(&to)),
        Step::SignIn(request) => return Ok(to_page(app, "sign-in", "continue", &request.again(app))),
        Step::AskConsent(request) => request,
    };
    let account = who.ok_or(UNAUTHENTICATED)?.account();
    let Request { client, redirect_uri, .. } = &*request;
    let shown = ConsentPage {
        name: &client.name,
        host: client.host.as_deref(),
        wishes: wishes(&request.scopes),
        resource: request.resource.as_deref(),
        person: account.email.as_deref().unwrap_or(&account.name),
        onward: place(redirect_uri),
        request: request.query(),
        style: STYLE,
    };
    Ok(page(StatusCode::OK, &shown, Some(redirect_uri)))
}

/// What a person recognises an address by.
fn place(uri: &str) -> String {
    let url = Url::parse(uri).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "an app on this device".into())
}

async fn decide_consent(State(app): State<App>, _: OwnPage, Browser(who): Browser, form: Fields) -> Response {
    let agrees = form.get("decision") == "allow";
    let decided = decide(&app, who.as_ref(), form.get("request"), agrees).await;
    shown(decided.map(|to| go(&to)))
}
