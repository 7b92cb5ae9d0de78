//! Sites and previews for members: a browser proves its session at the console once, and the site's own host then knows it by
//! a cookie of its own. The edge never sees a cookie of the console.
//!
//! 1. The site sends the browser to `{base}/edge/enter`, with the hash of a secret that only this browser has in a cookie.
//! 2. The console checks the session and the membership, and sends it back with a code that works once, for this host and
//!    this browser, for a minute.
//! 3. The site uses the code up and sets its cookie. Each request checks that the session lives and that the user is a member.
use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::{NOT_FOUND, Result},
    http::{Query, Routes},
    transact,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Browser, member_by_session},
    ids::SessionId,
    once::{self, Purpose},
};

use super::{
    Edge,
    hosts::{Looked, Route},
    respond::{EdgeResponse, OWN_PATHS, plain, redirect},
    settings::EdgeUrl,
};

const CODE: Purpose = Purpose::new("site_enter", Duration::from_mins(1));
pub const PURPOSES: &[Purpose] = &[CODE];

const COOKIE: [&str; 2] = ["__Host-janua_preview", "janua_preview"];
const STATE: [&str; 2] = ["__Host-janua_preview_state", "janua_preview_state"];
const STAYS: Duration = Duration::from_hours(12);
const STATE_STAYS: Duration = Duration::from_mins(10);
const MAC_PURPOSE: &str = "edge:enter";

pub fn routes() -> Routes {
    Routes::new("deployments")
        .get("/edge/enter", enter_site, "prove membership to a site that is for members")
        .answers_nothing(303)
        .fails(&[NOT_FOUND])
}

fn name_of(janua: &Janua, names: [&'static str; 2]) -> &'static str {
    if EdgeUrl::of(&janua.config).is_secure() { names[0] } else { names[1] }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = sent.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn set_cookie(janua: &Janua, names: [&'static str; 2], value: &str, life: Duration) -> HeaderValue {
    let secure = if EdgeUrl::of(&janua.config).is_secure() { "; Secure" } else { "" };
    let text = format!(
        "{}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
        name_of(janua, names),
        life.as_secs()
    );
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// What the site's cookie says: a session of the console, until when, and for which host.
fn sign(janua: &Janua, host: &str, session: SessionId, until: Timestamp) -> String {
    let mac = janua.vault.mac(MAC_PURPOSE, format!("{host}\n{session}\n{}", until.0).as_bytes());
    format!("{session}.{}.{mac}", until.0)
}

fn read_signed(janua: &Janua, host: &str, value: &str) -> Option<SessionId> {
    let (session, rest) = value.split_once('.')?;
    let (until, _) = rest.split_once('.')?;
    let (session, until) = (session.parse().ok()?, Timestamp(until.parse().ok()?));
    let is_ours = crypto::same(sign(janua, host, session, until).as_bytes(), value.as_bytes());
    (is_ours && janua.clock.now() < until).then_some(session)
}

/// None for a member; for others the way to the console, or a refusal.
pub async fn refuse_strangers(
    janua: &Janua,
    host: &str,
    route: &Arc<Route>,
    request: &Request<()>,
) -> Option<EdgeResponse> {
    let session = cookie(request.headers(), name_of(janua, COOKIE)).and_then(|value| read_signed(janua, host, value));
    if let Some(session) = session {
        match member_by_session(janua, session, route.org).await {
            Ok(true) => return None,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot check a member of a site");
                return Some(plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Your access cannot be checked at the moment.\n",
                ));
            }
        }
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_page = request.method() == Method::GET && accept.is_some_and(|accept| accept.contains("text/html"));
    if !is_page {
        return Some(no_store(plain(StatusCode::UNAUTHORIZED, "This site is for members of its organization.\n")));
    }
    let state = janua.entropy.token();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let to = format!(
        "{}/edge/enter?host={}&state={}&to={}",
        janua.config.base_url(),
        encode(host),
        crypto::hash(state.expose().as_bytes()),
        encode(path)
    );
    let mut response = no_store(redirect(302, &to, false));
    response.headers_mut().insert(header::SET_COOKIE, set_cookie(janua, STATE, state.expose(), STATE_STAYS));
    Some(response)
}

fn no_store(mut response: EdgeResponse) -> EdgeResponse {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// What is put aside with a code.
#[derive(Serialize, Deserialize)]
struct Pass {
    host: String,
    state: String,
    session: SessionId,
}

#[derive(Deserialize, JsonSchema)]
struct EnterQuery {
    /// The host of the site.
    #[schemars(length(min = 1, max = 253))]
    host: String,
    /// The hash of the browser's secret.
    #[schemars(length(min = 16, max = 128))]
    state: String,
    /// The path to go back to.
    #[schemars(length(max = 4000))]
    to: Option<String>,
}

/// A path of the same host, and nothing that a browser could read as another one.
fn local(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains('\\')
        && !path.chars().any(char::is_control)
        && !path.starts_with(OWN_PATHS);
    if is_local { path } else { "/" }
}

async fn enter_site(
    State(janua): State<Janua>,
    browser: Browser,
    Query(query): Query<EnterQuery>,
) -> Result<Response> {
    let host = query.host.to_ascii_lowercase();
    let Looked::Found(route) = janua.own::<Arc<Edge>>().hosts.look_up(&janua, &host).await else {
        return Err(NOT_FOUND.into());
    };
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let to = local(query.to.as_deref().unwrap_or("/"));
    let Some(session) = browser.own() else {
        let back = format!("/edge/enter?host={}&state={}&to={}", encode(&host), encode(&query.state), encode(to));
        return Ok(see_other(&format!("{}/sign-in?continue={}", janua.config.base_url(), encode(&back))));
    };
    if !member_by_session(&janua, session.id(), route.org).await? {
        return Err(NOT_FOUND.into());
    }
    let pass = Pass { host: host.clone(), state: query.state, session: session.id() };
    let aside = serde_json::to_vec(&pass).unwrap_or_default();
    let account = session.account().id;
    let code = transact!(janua, async |tx| Ok(once::issue(tx, &janua, CODE, Some(account), &aside).await?))?;
    let back = EdgeUrl::of(&janua.config).url_of(&host);
    Ok(see_other(&format!("{back}{OWN_PATHS}enter?code={}&to={}", code.expose(), encode(to))))
}

fn see_other(to: &str) -> Response {
    let location = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/"));
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Pages of the edge itself, below [`OWN_PATHS`] of every site.
pub async fn own_page(janua: &Janua, host: &str, route: &Arc<Route>, request: &Request<()>) -> EdgeResponse {
    if request.uri().path() != "/_janua/enter" || request.method() != Method::GET {
        return plain(StatusCode::NOT_FOUND, "Not found.\n");
    }
    let given: Vec<(String, String)> =
        url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect();
    let value = |name: &str| given.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let state = cookie(request.headers(), name_of(janua, STATE)).map(|state| crypto::hash(state.as_bytes()));
    let refusal =
        || no_store(plain(StatusCode::FORBIDDEN, "This link was used or has expired. Open the site again.\n"));
    let (Some(code), Some(state)) = (value("code"), state) else { return refusal() };
    let code = Secret::from(code.to_owned());
    let now = janua.clock.now();
    let spent = transact!(janua, async |tx| Ok(once::spend(tx, CODE, &code, now).await?));
    let pass = match spent {
        Ok(spent) => spent.and_then(|spent| serde_json::from_slice::<Pass>(&spent.aside(janua)?).ok()),
        Err(fault) => {
            tracing::warn!(%fault, "cannot check a code of a site");
            return plain(StatusCode::SERVICE_UNAVAILABLE, "Your access cannot be checked at the moment.\n");
        }
    };
    let Some(pass) = pass.filter(|pass| pass.host == host && crypto::same(pass.state.as_bytes(), state.as_bytes()))
    else {
        return refusal();
    };
    if !matches!(member_by_session(janua, pass.session, route.org).await, Ok(true)) {
        return refusal();
    }
    let mut response = no_store(redirect(302, local(value("to").unwrap_or("/")), false));
    let signed = sign(janua, host, pass.session, now.plus(STAYS));
    response.headers_mut().append(header::SET_COOKIE, set_cookie(janua, COOKIE, &signed, STAYS));
    response.headers_mut().append(header::SET_COOKIE, set_cookie(janua, STATE, "", Duration::ZERO));
    response
}
