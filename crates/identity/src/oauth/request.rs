//! What a client asks for when it sends somebody to the authorization endpoint: read, checked, and answered.
//!
//! Until the client and the address to send people back to are known to be right, nobody is sent anywhere.
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::same,
    fault::{Code, Result},
};
use tenancy::{
    apps::scopes::{Scope, Scopes},
    sessions::audience::Audience,
};
use url::{
    Url,
    form_urlencoded::{Serializer, parse},
};

use super::{
    INVALID_REQUEST,
    clients::{Client, Reach, Target},
};

pub const UNKNOWN_CLIENT: Code = Code::new(400, "unknown_client", "Unknown client ID. Contact the app's developer.");
pub const UNREGISTERED_REDIRECT: Code = Code::new(
    400,
    "unregistered_redirect_uri",
    "The redirect URI is not registered for this client. Contact the app's developer.",
);

/// A sign-in that was asked for must be done by then.
const PATIENCE: Duration = Duration::from_mins(10);
/// Says when somebody was asked to sign in again; ours, never the client's.
const ASKED: &str = "asked";

/// A request that can be answered at the client.
pub struct Request {
    pub client: Client,
    pub redirect_uri: String,
    pub scopes: Scopes,
    pub resource: Option<Audience>,
    /// The servers of `resource`.
    pub targets: Vec<Target>,
    pub login_hint: Option<String>,
    pub(super) nonce: Option<String>,
    /// None for a confidential client whose app does not require PKCE.
    pub(super) challenge: Option<String>,
    pub(super) prompt: Prompt,
    pub(super) id_token_hint: Option<String>,
    max_age: Option<Duration>,
    asked_at: Option<Timestamp>,
    state: Option<String>,
    mode: Mode,
    query: String,
}

/// How the client wants its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// In the query of the redirect URI.
    Query,
    /// In a form that a page posts to the redirect URI.
    FormPost,
}

/// An answer to a client, by way of the person's browser.
pub struct Reply {
    redirect_uri: String,
    fields: Vec<(String, String)>,
    mode: Mode,
}

impl Reply {
    fn new(janua: &Janua, to: (&str, Mode), pairs: &[(&str, &str)], state: Option<&str>) -> Self {
        let base = janua.config.base_url();
        let (state, issuer) = (state.map(|state| ("state", state)), ("iss", base.as_str()));
        let fields = pairs.iter().copied().chain(state).chain([issuer]);
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { redirect_uri: to.0.to_owned(), fields, mode: to.1 }
    }

    /// Where a page posts which fields; nothing where the browser is simply sent on.
    pub fn posted(&self) -> Option<(&str, &[(String, String)])> {
        (self.mode == Mode::FormPost).then_some((self.redirect_uri.as_str(), self.fields.as_slice()))
    }

    /// The redirect URI with the answer in its query, added to what it has in it already, which stays to the letter.
    pub fn location(&self) -> String {
        let query = Serializer::new(String::new()).extend_pairs(&self.fields).finish();
        let joint = if self.redirect_uri.contains('?') { '&' } else { '?' };
        format!("{}{joint}{query}", self.redirect_uri)
    }
}

/// What the person must be shown, whatever is remembered.
#[derive(Default, Clone, Copy)]
pub(super) struct Prompt {
    pub(super) nothing: bool,
    pub(super) login: bool,
    pub(super) consent: bool,
}

/// A request, or where to send the person instead: to the client, with an error.
pub enum Reading {
    Good(Box<Request>),
    Refused(Reply),
}

/// The parameters, each at most once but for `resource`.
struct Asked(Vec<(String, String)>);

impl Asked {
    fn read(query: &str) -> Self {
        // One without a value is one left out (RFC 6749, 3.1).
        Self(parse(query.as_bytes()).into_owned().filter(|(_, value)| !value.is_empty()).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    fn is_repeated(&self, name: &str) -> bool {
        self.0.iter().filter(|(key, _)| key == name).count() > 1
    }
}

/// More servers than one token is for.
const MOST_RESOURCES: usize = 8;

/// Everything a client can say here once.
const KNOWN: [&str; 13] = [
    "client_id",
    "redirect_uri",
    "response_type",
    "response_mode",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "prompt",
    "max_age",
    "login_hint",
    "id_token_hint",
];

type Refusal = (&'static str, &'static str);

impl Request {
    /// Refuses by a page of ours, or at the client once it is known to be the client's address.
    pub async fn read(janua: &Janua, reach: Reach<'_>, query: &str) -> Result<Reading> {
        let asked = Asked::read(query);
        if asked.is_repeated("client_id") || asked.is_repeated("redirect_uri") {
            return Err(INVALID_REQUEST.because("client_id or redirect_uri was sent twice."));
        }
        let id = asked.get("client_id").ok_or_else(|| INVALID_REQUEST.because("client_id is missing."))?;
        let client = Client::find(janua, reach, id).await?.ok_or(UNKNOWN_CLIENT)?;
        let redirect_uri =
            asked.owned("redirect_uri").ok_or_else(|| INVALID_REQUEST.because("redirect_uri is missing."))?;
        if !client.may_send_to(&redirect_uri) {
            return Err(UNREGISTERED_REDIRECT.into());
        }
        let refused = |(error, why): Refusal| {
            // Anybody can be a client that is no app, so nobody is sent there before they have said yes (RFC 9700, 4.11).
            if client.app.is_none() {
                return Err(INVALID_REQUEST.because(why));
            }
            let pairs = [("error", error), ("error_description", why)];
            let to = (redirect_uri.as_str(), mode(&asked, &redirect_uri).unwrap_or(Mode::Query));
            Ok(Reading::Refused(Reply::new(janua, to, &pairs, asked.get("state"))))
        };
        let requires_pkce = client.app.as_ref().is_none_or(|owned| owned.require_pkce);
        let read = wish(&asked)
            .and_then(|prompt| Ok((prompt, mode(&asked, &redirect_uri)?, challenge(&asked, requires_pkce)?)));
        let (prompt, mode, challenge) = match read {
            Ok(read) => read,
            Err(refusal) => return refused(refusal),
        };
        let resource = Audience::of(asked.all("resource"));
        let mut targets = vec![];
        for (place, resource) in resource.iter().flat_map(Audience::iter).enumerate() {
            match client.target(janua, resource).await?.filter(|_| place < MOST_RESOURCES) {
                Some(target) => targets.push(target),
                None => return refused(("invalid_target", "No tokens are issued for this resource.")),
            }
        }
        let scope = asked.get("scope").unwrap_or_default();
        if let Some(why) = Target::conflict(&targets, scope) {
            return refused(("invalid_target", why));
        }
        let is_known = |scope: &str| targets.iter().any(|target| target.knows(scope));
        let mut scopes = Scopes::asked(scope, is_known);
        // `offline_access` is a scope of OpenID Connect. A client that speaks plain OAuth, as most MCP clients do, asks for
        // the scopes of its server alone and expects a refresh token.
        if client.app.is_none() && resource.is_some() && !scopes.has(Scope::OpenId) {
            scopes = scopes.and(&Scopes::standard(Scope::OfflineAccess.name()));
        }
        Ok(Reading::Good(Box::new(Self {
            scopes,
            resource,
            targets,
            login_hint: asked.owned("login_hint"),
            nonce: asked.owned("nonce"),
            challenge,
            mode,
            prompt,
            id_token_hint: asked.owned("id_token_hint"),
            max_age: asked.get("max_age").and_then(|text| text.parse().ok()).map(Duration::from_secs),
            asked_at: asked.get(ASKED).and_then(|mark| read_mark(janua, query, mark)),
            state: asked.owned("state"),
            query: query.to_owned(),
            redirect_uri,
            client,
        })))
    }

    /// Back to the client, with an answer.
    pub fn answer(&self, janua: &Janua, pairs: &[(&str, &str)]) -> Reply {
        Reply::new(janua, (&self.redirect_uri, self.mode), pairs, self.state.as_deref())
    }

    pub fn refuse(&self, janua: &Janua, error: &str, why: &str) -> Reply {
        self.answer(janua, &[("error", error), ("error_description", why)])
    }

    /// From when on somebody must have proven who they are; nothing when any time will do.
    pub(super) fn not_before(&self, now: Timestamp) -> Option<Timestamp> {
        let wants_new = self.prompt.login || self.max_age.is_some_and(|age| age.is_zero());
        match (self.asked_at, self.max_age) {
            (Some(asked), _) if wants_new => Some(asked),
            (None, _) if wants_new => Some(now.plus(Duration::from_millis(1))),
            (_, Some(age)) => Some(now.minus(age)),
            _ => None,
        }
    }

    /// Where somebody comes back to who was asked to sign in.
    pub fn again(&self, janua: &Janua) -> String {
        let query = without_mark(&self.query);
        let mark = Serializer::new(String::new()).append_pair(ASKED, &mark(janua, &query)).finish();
        format!("/oauth/authorize?{query}&{mark}")
    }

    /// The origin or scheme that people are sent on to.
    pub(super) fn place(&self) -> String {
        let url = Url::parse(&self.redirect_uri).ok();
        url.map(|url| match url.scheme() {
            "http" | "https" => url.origin().ascii_serialization(),
            scheme => scheme.to_owned(),
        })
        .unwrap_or_default()
    }

    pub fn query(&self) -> &str {
        &self.query
    }
}

/// What is wrong with a request whose client is right, in the standard's words.
fn wish(asked: &Asked) -> Result<Prompt, Refusal> {
    if KNOWN.iter().any(|name| asked.is_repeated(name)) {
        return Err(("invalid_request", "A parameter was sent twice."));
    }
    if asked.get("request").is_some() {
        return Err(("request_not_supported", "Send the parameters in the request itself."));
    }
    if asked.get("request_uri").is_some() {
        return Err(("request_uri_not_supported", "Send the parameters in the request itself."));
    }
    match asked.get("response_type") {
        Some("code") => {}
        Some(_) => return Err(("unsupported_response_type", "The only response_type is code.")),
        None => return Err(("invalid_request", "response_type is missing.")),
    }
    prompt(asked)
}

fn mode(asked: &Asked, redirect_uri: &str) -> Result<Mode, Refusal> {
    match asked.get("response_mode") {
        None | Some("query") => Ok(Mode::Query),
        // A form can be posted to a web server alone.
        Some("form_post") if redirect_uri.starts_with("https://") || redirect_uri.starts_with("http://") => {
            Ok(Mode::FormPost)
        }
        Some("form_post") => Err(("invalid_request", "response_mode=form_post needs an http or https redirect_uri.")),
        Some(_) => Err(("invalid_request", "response_mode must be query or form_post.")),
    }
}

/// The PKCE challenge. What is sent must be right, whether it is required or not.
fn challenge(asked: &Asked, is_required: bool) -> Result<Option<String>, Refusal> {
    let (challenge, method) = (asked.owned("code_challenge"), asked.get("code_challenge_method"));
    if challenge.is_none() && method.is_none() && !is_required {
        return Ok(None);
    }
    let challenge = challenge.ok_or(("invalid_request", "code_challenge is missing (PKCE)."))?;
    if method != Some("S256") {
        return Err(("invalid_request", "code_challenge_method must be S256."));
    }
    if BASE64URL_NOPAD.decode(challenge.as_bytes()).is_ok_and(|digest| digest.len() == 32) {
        Ok(Some(challenge))
    } else {
        Err(("invalid_request", "code_challenge must be a SHA-256 digest in base64url."))
    }
}

fn prompt(asked: &Asked) -> Result<Prompt, Refusal> {
    if asked.get("max_age").is_some_and(|text| text.parse::<u32>().is_err()) {
        return Err(("invalid_request", "max_age must be a number of seconds."));
    }
    let words: Vec<_> = asked.get("prompt").unwrap_or_default().split(' ').filter(|word| !word.is_empty()).collect();
    if words.iter().any(|word| !["none", "login", "consent", "select_account"].contains(word)) {
        return Err(("invalid_request", "prompt must be none, login, consent or select_account."));
    }
    let says = |word: &str| words.contains(&word);
    if says("none") && words.len() > 1 {
        return Err(("invalid_request", "prompt=none goes with nothing else."));
    }
    // Whoever shall choose an account chooses it by signing in.
    Ok(Prompt { nothing: says("none"), login: says("login") || says("select_account"), consent: says("consent") })
}

/// The request as its client made it.
fn without_mark(query: &str) -> String {
    let pairs = parse(query.as_bytes()).filter(|(name, _)| name != ASKED);
    Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// That we asked somebody to sign in just now, for this very request: nobody can say so for us.
fn mark(janua: &Janua, query: &str) -> String {
    let now = janua.clock.now().0;
    format!("{now}.{}", janua.vault.mac("authorize-asked", format!("{now}.{query}").as_bytes()))
}

fn read_mark(janua: &Janua, query: &str, mark: &str) -> Option<Timestamp> {
    let (at, digest) = mark.split_once('.')?;
    let expected = janua.vault.mac("authorize-asked", format!("{at}.{}", without_mark(query)).as_bytes());
    let at = Timestamp(at.parse().ok().filter(|_| same(digest.as_bytes(), expected.as_bytes()))?);
    (janua.clock.now().since(at) <= PATIENCE).then_some(at)
}
