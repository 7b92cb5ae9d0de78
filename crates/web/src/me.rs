//! The person in front of a page of the account or the console, and what they may ask. Such a page is drawn from what
//! the interface answers to that very person; it knows nothing else and may do nothing else.
use std::convert::Infallible;

use axum::{
    body::{Body, to_bytes},
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, request::Parts},
    response::Response,
};
use kernel::{
    Janua,
    fault::{Fault, INTERNAL, INVALID, NOT_FOUND, Result, UNAUTHENTICATED},
    http::{Client, GenContext, Operation, OperationInput},
};
use minijinja::{Value as Content, context, value::Serde};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tenancy::{
    accounts::Account,
    enter::{Browser, Session, Within, builders, cookies, is_platform_owner},
    ids::AccountId,
};

use crate::{
    console,
    outcome::{self, FormOutcome},
    page::{address, error, error_for_owner, go, page, parameter, status_of},
};

/// What the navigation of the console offers, beside what a page asks for itself.
const NAVIGATION: [(&str, &str); 2] = [("?my_apps", "/apps?limit=20"), ("?my_orgs", "/user/orgs")];

/// More than any answer of ours.
const LONGEST: usize = 16 * 1024 * 1024;

/// Somebody who is signed in; whoever is not is sent to the page where that is done, and back.
pub struct Me {
    pub janua: Janua,
    session: Session,
    parts: Parts,
    /// New cookies for whoever came with an access token that has run out.
    renewed: Vec<HeaderValue>,
}

impl FromRequestParts<Janua> for Me {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self, Response> {
        let who = Browser::from_request_parts(parts, janua).await.map_err(|fault| error(janua, &fault))?;
        match who.own() {
            Some(session) if !session.is_due => {
                Ok(Self { janua: janua.clone(), session, parts: parts.clone(), renewed: vec![] })
            }
            _ if cookies::read_strictly(janua, &parts.headers, cookies::REFRESH).is_some() => {
                let refused = |fault: Fault| refused(janua, &fault, &parts.method, &parts.uri);
                Self::renewed(janua, parts.clone()).await.map_err(refused)
            }
            _ => Err(to_sign_in(janua, &parts.method, &parts.uri)),
        }
    }
}

/// Somebody, or the way to the sign-in page for whoever sent a form and is not signed in any more: that it is a form at
/// all is looked at first.
pub struct Sender(pub Result<Me, Response>);

impl FromRequestParts<Janua> for Sender {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self, Infallible> {
        Ok(Self(Me::from_request_parts(parts, janua).await))
    }
}

impl OperationInput for Sender {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Me::operation_input(ctx, operation);
    }
}

impl OperationInput for Me {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Browser::operation_input(ctx, operation);
    }
}

fn to_sign_in(janua: &Janua, method: &Method, uri: &Uri) -> Response {
    let here = uri.path_and_query().map(ToString::to_string).filter(|_| method == Method::GET);
    go(&address(janua, "/sign-in", "continue", &here.unwrap_or_default()))
}

/// To whoever may not see a page, or may do so once they have signed in.
fn refused(janua: &Janua, fault: &Fault, method: &Method, uri: &Uri) -> Response {
    match status_of(fault) {
        StatusCode::UNAUTHORIZED => to_sign_in(janua, method, uri),
        _ => error(janua, fault),
    }
}

/// For a person who builds nothing here and belongs to no organization.
fn no_console(janua: &Janua) -> Response {
    let text = "The console is for people who build apps here. You can manage your account, your security and your sessions.";
    let next = vec!["Your account".to_owned(), "/account".to_owned()];
    let brand: Option<Content> = None;
    let content = context! { title => "Nothing to set up here", text, brand, sign => "user", next };
    page(janua, StatusCode::FORBIDDEN, "note.html", content)
}

/// A request from where the person is. What else hangs on the page's own request belongs to the page.
fn request(page: &Parts, method: Method, to: &str) -> Result<Request<Body>> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = to.parse().map_err(|_| NOT_FOUND)?;
    *request.method_mut() = method;
    *request.headers_mut() = page.headers.clone();
    for of_the_page in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::AUTHORIZATION] {
        request.headers_mut().remove(of_the_page);
    }
    if let Some(client) = page.extensions.get::<Client>() {
        request.extensions_mut().insert(*client);
    }
    Ok(request)
}

/// What the interface said.
pub struct ApiAnswer {
    pub body: Value,
    pub headers: HeaderMap,
}

impl Me {
    /// Turns the refresh token over as every client does, so that a copy of it is noticed here, too.
    async fn renewed(janua: &Janua, mut parts: Parts) -> Result<Self> {
        let response = janua.inside.ask(request(&parts, Method::POST, "/auth/refresh")?).await?;
        let renewed: Vec<_> = response.headers().get_all(header::SET_COOKIE).iter().cloned().collect();
        let pairs = renewed.iter().filter_map(|line| line.to_str().ok()?.split(';').next());
        let cookie = HeaderValue::try_from(pairs.collect::<Vec<_>>().join("; ")).map_err(|_| UNAUTHENTICATED)?;
        parts.headers.insert(header::COOKIE, cookie);
        let who = Browser::from_request_parts(&mut parts, janua).await?.own();
        Ok(Self { janua: janua.clone(), session: who.ok_or(UNAUTHENTICATED)?, parts, renewed })
    }

    /// The answer, with the cookies that go on from here.
    pub fn keeps(&self, mut response: Response) -> Response {
        for cookie in &self.renewed {
            response.headers_mut().append(header::SET_COOKIE, cookie.clone());
        }
        response
    }

    pub fn account(&self) -> &Account {
        self.session.account()
    }

    pub fn id(&self) -> AccountId {
        self.session.account().id
    }

    /// Whether this request itself came from within.
    pub fn is_within(&self) -> bool {
        self.parts.extensions.get::<Within>().is_some()
    }

    /// Asks as this person, from where they are.
    pub async fn ask(&self, method: Method, to: &str, body: Option<&Value>) -> Result<ApiAnswer> {
        self.ask_with(method, to, body, &[]).await
    }

    /// The same with headers; those that are empty are left out.
    pub async fn ask_with(
        &self,
        method: Method,
        to: &str,
        body: Option<&Value>,
        headers: &[(HeaderName, String)],
    ) -> Result<ApiAnswer> {
        let mut request = self.request(method, to)?;
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            let value = HeaderValue::try_from(value).map_err(|_| INVALID.at("once", "wrong_form", "is no key"))?;
            request.headers_mut().insert(name, value);
        }
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Body::from(body.to_string());
        }
        self.answer(request).await
    }

    /// The same with a body that is no JSON.
    pub async fn send(&self, method: Method, to: &str, kind: &'static str, body: Body) -> Result<ApiAnswer> {
        let mut request = self.request(method, to)?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *request.body_mut() = body;
        self.answer(request).await
    }

    fn request(&self, method: Method, to: &str) -> Result<Request<Body>> {
        let mut request = request(&self.parts, method, to)?;
        request.extensions_mut().insert(Within::of(&self.session));
        // A page is drawn from what programs get, whatever the browser would rather have.
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        Ok(request)
    }

    async fn answer(&self, request: Request<Body>) -> Result<ApiAnswer> {
        let (parts, body) = self.janua.inside.ask(request).await?.into_parts();
        let body = to_bytes(body, LONGEST).await.map_err(|error| INTERNAL.caused_by(error))?;
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).map_err(|error| INTERNAL.caused_by(error))?
        };
        Ok(ApiAnswer { body, headers: parts.headers })
    }

    /// Sends a file to the interface as this person.
    pub async fn send_file(&self, to: &str, content_type: &str, length: u64, bytes: Body) -> Result<()> {
        let mut request = request(&self.parts, Method::POST, to)?;
        request.extensions_mut().insert(Within::of(&self.session));
        let content_type = HeaderValue::try_from(content_type).map_err(|error| INTERNAL.caused_by(error))?;
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        request.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        *request.body_mut() = bytes;
        self.janua.inside.ask(request).await.map(|_| ())
    }

    /// A header of the page's own request.
    pub fn header(&self, name: &str) -> &str {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// What the interface answers at an address that is filled in as [`show`](Self::show) does.
    pub async fn get(&self, pattern: &str, place: &Value) -> Result<ApiAnswer> {
        self.ask(Method::GET, &self.fill(pattern, place), None).await
    }

    /// A parameter of the page's URL.
    pub fn parameter(&self, name: &str) -> String {
        parameter(self.parts.uri.query(), name)
    }

    /// A page that cannot be shown. Those who run the platform can follow a request that failed.
    fn refused(&self, fault: &Fault) -> Response {
        if fault.code().status >= 500 && self.runs_platform() {
            return error_for_owner(&self.janua, fault);
        }
        refused(&self.janua, fault, &self.parts.method, &self.parts.uri)
    }

    pub fn runs_platform(&self) -> bool {
        is_platform_owner(&self.janua, &self.session)
    }

    /// A file that the API answers, with the page's own query.
    pub async fn file(&self, pattern: &str, place: &impl Serialize) -> Response {
        let place = serde_json::to_value(place).unwrap_or_default();
        let asked = async {
            let mut request = request(&self.parts, Method::GET, &self.fill(&format!("{pattern}?{{query}}"), &place))?;
            request.extensions_mut().insert(Within::of(&self.session));
            self.janua.inside.ask(request).await
        };
        match asked.await {
            Ok(response) => self.keeps(response),
            Err(fault) => self.refused(&fault),
        }
    }

    /// Draws a page from the answers to what it asks, each under its name. `{field}` is filled in from `place`, and
    /// `{query}` is the page's own. Where a name begins with `?` a refusal leaves its place empty.
    pub async fn show(&self, template: &str, place: &impl Serialize, asks: &[(&str, &str)]) -> Response {
        self.show_with(template, place, asks, json!({})).await
    }

    pub async fn show_with(
        &self,
        template: &str,
        place: &impl Serialize,
        asks: &[(&str, &str)],
        more: Value,
    ) -> Response {
        let place = serde_json::to_value(place).unwrap_or_default();
        let mut content = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        let is_console = template.starts_with("console/");
        let standing = async {
            let may_build = builders::may_build(&self.janua, &self.session).await?;
            Ok::<_, Fault>((may_build, may_build || builders::sees_console(&self.janua, &self.session).await?))
        };
        let (may_build, sees_console) = match standing.await {
            Ok(standing) => standing,
            Err(fault) => return self.refused(&fault),
        };
        if is_console && !sees_console {
            return self.keeps(no_console(&self.janua));
        }
        for (name, pattern) in asks.iter().chain(NAVIGATION.iter().filter(|_| is_console)) {
            let said = self.get(pattern, &place).await;
            let (name, answer) = match (name.strip_prefix('?'), said) {
                (kept, Ok(said)) => (kept.unwrap_or(name), said.body),
                (Some(name), Err(fault)) if fault.code().status < 500 => (name, Value::Null),
                (_, Err(fault)) => return self.refused(&fault),
            };
            content.insert(name.to_owned(), answer);
        }
        let role = ["app", "org"].iter().find_map(|of| content.get(*of)?["role"].as_str());
        let nav = console::nav::of(self.parts.uri.path(), role);
        content.insert("nav".into(), json!(nav));
        let told = match parameter(self.parts.uri.query(), outcome::PARAMETER) {
            token if token.is_empty() => None,
            token => outcome::take(&self.janua, self.id(), &token).await,
        };
        let status = told.as_ref().map_or(StatusCode::OK, FormOutcome::status);
        if let Some(told) = told.as_ref().filter(|told| !told.answer.is_null()) {
            let shown = outcome::seal_shown(&self.janua, self.id(), &told.answer);
            content.insert("shown".into(), json!(shown));
        }
        let account = self.session.account();
        content.insert("place".into(), place);
        content.insert("told".into(), json!(told));
        content.insert("path".into(), json!(self.path()));
        content.insert("here".into(), json!(self.parts.uri.path()));
        content.insert("search".into(), json!(parameter(self.parts.uri.query(), "search")));
        // The dialog that is open: `?new=key` shows the form to create a key over the list of keys.
        content.insert("new".into(), json!(parameter(self.parts.uri.query(), "new")));
        content.insert("base".into(), json!(self.janua.config.base_url()));
        content.insert("once".into(), json!(self.janua.entropy.uuid(self.janua.clock.now()).to_string()));
        content.insert("now".into(), json!(self.janua.clock.now()));
        content.insert(
            "me".into(),
            json!({
                "id": account.id, "name": account.name, "email": account.email, "avatarUrl": account.avatar_url, "timeZone": account.time_zone,
                "runsPlatform": self.runs_platform(),
                "mayBuild": may_build, "seesConsole": sees_console,
            }),
        );
        self.keeps(page(&self.janua, status, template, Content::from(Serde(content))))
    }

    fn fill(&self, pattern: &str, place: &Value) -> String {
        let fields = place.as_object().into_iter().flatten();
        let filled = fields.fold(pattern.to_owned(), |text, (name, value)| {
            let value = utf8_percent_encode(value.as_str().unwrap_or_default(), NON_ALPHANUMERIC).to_string();
            text.replace(&format!("{{{name}}}"), &value)
        });
        filled.replace("{query}", &self.query())
    }

    /// The page's own query, without the token of an outcome.
    fn query(&self) -> String {
        let pairs = self.parts.uri.query().unwrap_or_default().split('&');
        let is_own = |pair: &&str| pair.split('=').next() != Some(outcome::PARAMETER);
        pairs.filter(is_own).collect::<Vec<_>>().join("&")
    }

    /// The page's own path and query.
    fn path(&self) -> String {
        match (self.parts.uri.path(), self.query()) {
            (path, query) if query.is_empty() => path.to_owned(),
            (path, query) => format!("{path}?{query}"),
        }
    }
}
