//! Somebody comes from a client: they sign in if they have to, say yes if they have to, and go back with a code.
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
use minijinja::context;
use tenancy::enter::{Browser, Session, Visitor};
use url::Url;

use crate::{
    form::{Fields, OwnPage},
    page::{address, drawn, go, page_onward, parameter, shown, wishes},
};

pub fn routes() -> Routes {
    let routes = Routes::new("oauth").body_limit(64 * 1024).get(
        "/oauth/authorize",
        authorize,
        "begin the authorization flow (RFC 6749, PKCE, OpenID Connect)",
    );
    let routes = drawn(routes)
        .post("/oauth/authorize", authorize_by_post, "the same, with the parameters in a form")
        .answers_nothing(303)
        .get("/consent", consent_page, "the page that asks whether a client may");
    let routes = drawn(routes).post("/consent", decide_consent, "what the consent page sends");
    drawn(routes)
}

async fn authorize(
    State(app): State<App>,
    visitor: Visitor,
    Browser(who): Browser,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&app, answer(&app, &visitor, who.as_ref(), &query.unwrap_or_default()).await)
}

async fn answer(app: &App, visitor: &Visitor, who: Option<&Session>, query: &str) -> Result<Response> {
    visitor.admit(app, None).await?;
    Ok(match next(app, who, query).await? {
        Step::Go(to) => go(&to),
        Step::SignIn(request) => go(&address(app, "/sign-in", "continue", &request.again(app))),
        Step::AskConsent(request) => go(&address(app, "/consent", "request", request.query())),
    })
}

/// From another site a form brings no cookies along, so the person is looked for on the way of a link.
async fn authorize_by_post(State(app): State<App>, form: Fields) -> Response {
    go(&format!("{}/oauth/authorize?{}", app.config.base_url(), form.query()))
}

async fn consent_page(State(app): State<App>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    let asked = parameter(query.as_deref(), "request");
    shown(&app, ask(&app, who.as_ref(), &asked).await)
}

/// Drawn from the request itself, which is looked at again: a link to this page says nothing that is not checked.
async fn ask(app: &App, who: Option<&Session>, query: &str) -> Result<Response> {
    let request = match next(app, who, query).await? {
        Step::Go(to) => return Ok(go(&to)),
        Step::SignIn(request) => return Ok(go(&address(app, "/sign-in", "continue", &request.again(app)))),
        Step::AskConsent(request) => request,
    };
    let account = who.ok_or(UNAUTHENTICATED)?.account();
    let Request { client, redirect_uri, .. } = &*request;
    let content = context! {
        name => &client.name,
        host => &client.host,
        wishes => wishes(&request.scopes),
        resource => &request.resource,
        person => account.email.as_deref().unwrap_or(&account.name),
        onward => place(redirect_uri),
        request => request.query(),
    };
    Ok(page_onward(app, StatusCode::OK, "consent.html", content, [redirect_uri.as_str()]))
}

/// What a person recognises an address by.
fn place(uri: &str) -> String {
    let url = Url::parse(uri).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "an app on this device".into())
}

async fn decide_consent(State(app): State<App>, _: OwnPage, Browser(who): Browser, form: Fields) -> Response {
    let agrees = form.get("decision") == "allow";
    let decided = decide(&app, who.as_ref(), form.get("request"), agrees).await;
    shown(&app, decided.map(|to| go(&to)))
}
