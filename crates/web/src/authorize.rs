//! Somebody comes from a client: they sign in if they have to, say yes if they have to, and go back with a code.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::oauth::{
    authorize::{Step, decide, next},
    clients::{Reach, Target},
    request::{Reply, Request, UNKNOWN_CLIENT, UNREGISTERED_REDIRECT},
};
use kernel::{
    Janua,
    crypto::same,
    fault::{Fault, Result, UNAUTHENTICATED},
    http::Routes,
};
use minijinja::{Value, context};
use tenancy::{
    apps::{Application, ApplicationId, Reached, scopes::Scopes},
    enter::{Browser, Delivery, Session, ToAdmit, Visitor},
};
use url::Url;

use crate::{
    brand::Brand,
    captcha,
    form::{Fields, OwnPage},
    page::{
        address, error, form_post, go, page, page_onward, pages, parameter, request_id, shown, status_of, wishes,
    },
};

pub fn routes() -> Routes {
    pages("oauth")
        .body_limit(64 * 1024)
        .get("/oauth/authorize", authorize, "begin the authorization flow (RFC 6749, PKCE, OpenID Connect)")
        .get("/consent", consent_page, "the consent page of an OAuth client")
        .post("/consent", decide_consent, "submit the consent form")
        .and(by_post())
}

/// Sends the browser to the page, and answers none itself.
fn by_post() -> Routes {
    Routes::new("oauth")
        .body_limit(64 * 1024)
        .post("/oauth/authorize", authorize_by_post, "begin the authorization flow, with the parameters in a form")
        .answers_nothing(303)
}

async fn authorize(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Browser(who): Browser,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    match answer(&janua, &visitor, who.as_ref(), &query).await {
        Ok(response) => response,
        Err(fault) if [UNKNOWN_CLIENT, UNREGISTERED_REDIRECT].contains(&fault.code()) => {
            let viewer = Browser(who).own();
            shown(&janua, wrong_request(&janua, viewer.as_ref(), &query, &fault).await)
        }
        Err(fault) => error(&janua, &fault),
    }
}

/// Names what was sent; and what is registered to the members of the app's organization, who can change it. Nobody else
/// learns anything about the app.
async fn wrong_request(janua: &Janua, viewer: Option<&Session>, query: &str, fault: &Fault) -> Result<Response> {
    let (client_id, redirect_uri) = (parameter(Some(query), "client_id"), parameter(Some(query), "redirect_uri"));
    let app = match (viewer, client_id.parse::<ApplicationId>()) {
        (Some(session), Ok(id)) => Application::reach(&janua.db, id, session.account().id).await?,
        _ => None,
    };
    let app = app.map(|Reached { application: app, .. }| {
        context! { id => app.id.to_string(), name => app.name, redirect_uris => app.redirect_uris }
    });
    let problem = fault.problem("");
    let content = context! {
        title => problem.title,
        detail => problem.detail,
        client_id,
        redirect_uri,
        app,
        request_id => request_id(),
    };
    Ok(page(janua, status_of(fault), "oauth_error.html", content))
}

async fn answer(janua: &Janua, visitor: &Visitor, who: Option<&Session>, query: &str) -> Result<Response> {
    captcha::weigh(janua, visitor).await?;
    Ok(match next(janua, Reach::Asked(visitor), who, query).await? {
        Step::Go(reply) => answered(janua, &reply),
        Step::SignIn(request) => go(&address(janua, "/sign-in", "continue", &request.again(janua))),
        Step::AskConsent(request) => go(&address(janua, "/consent", "request", request.query())),
    })
}

/// Sends the browser on to the client, or hands it a page that posts the answer there.
fn answered(janua: &Janua, reply: &Reply) -> Response {
    match reply.posted() {
        Some((to, fields)) => form_post(janua, to, fields),
        None => go(&reply.location()),
    }
}

/// From another site a form brings no cookies along, so the person is looked for on the way of a link.
async fn authorize_by_post(State(janua): State<Janua>, form: Fields) -> Response {
    go(&format!("{}/oauth/authorize?{}", janua.config.base_url(), form.query()))
}

async fn consent_page(State(janua): State<Janua>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    let asked = parameter(query.as_deref(), "request");
    shown(&janua, ask(&janua, who.as_ref(), &asked).await)
}

/// Drawn from the request itself, which is looked at again: a link to this page says nothing that is not checked.
async fn ask(janua: &Janua, who: Option<&Session>, query: &str) -> Result<Response> {
    let request = match next(janua, Reach::Known, who, query).await? {
        Step::Go(reply) => return Ok(answered(janua, &reply)),
        Step::SignIn(request) => return Ok(go(&address(janua, "/sign-in", "continue", &request.again(janua)))),
        Step::AskConsent(request) => request,
    };
    let session = who.ok_or(UNAUTHENTICATED)?;
    let account = session.account();
    let Request { client, redirect_uri, .. } = &*request;
    let content = context! {
        name => &client.name,
        brand => Brand::of(janua, client).as_ref(),
        host => &client.host,
        wishes => wishes(&request.scopes),
        servers => request.targets.iter().map(|target| server(target, &request.scopes)).collect::<Vec<_>>(),
        person => account.email.as_deref().unwrap_or(&account.name),
        onward => place(redirect_uri),
        request => request.query(),
        is_checked => client.app.is_some(),
        person_mark => mark(janua, session, request.query()),
    };
    Ok(page_onward(janua, StatusCode::OK, "consent.html", content, [redirect_uri.as_str()]))
}

/// A server that tokens are wanted for, with what its own app says about the scopes there: the words of one organization
/// never stand beside the server of another.
fn server(target: &Target, scopes: &Scopes) -> Value {
    let scopes = target.of_scopes(scopes).map(|(name, says)| context! { name, says }).collect::<Vec<_>>();
    context! { resource => &target.resource, app => &target.app_name, scopes }
}

/// What a person recognises an address by.
fn place(uri: &str) -> String {
    let url = Url::parse(uri).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "an app on this device".into())
}

/// Who was asked what: a page that was drawn for one person is not answered by another.
fn mark(janua: &Janua, session: &Session, request: &str) -> String {
    janua.vault.mac("consent-page", format!("{}\n{request}", session.account().id).as_bytes())
}

async fn decide_consent(State(janua): State<Janua>, _: OwnPage, Browser(who): Browser, form: Fields) -> Response {
    // Somebody in front of the page, not a program that holds their token.
    let who = who.filter(|session| session.delivery == Delivery::Cookie);
    let request = form.get("request");
    let was_asked = |session: &Session| same(form.get("mark").as_bytes(), mark(&janua, session, request).as_bytes());
    let who = who.filter(was_asked);
    let decided = decide(&janua, who.as_ref(), request, form.get("decision") == "allow").await;
    shown(&janua, decided.map(|reply| answered(&janua, &reply)))
}
