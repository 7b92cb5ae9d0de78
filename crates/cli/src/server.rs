//! Requests to the server: who asks, refreshing their token, pages of lists.
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode, header::HeaderMap};
use serde_json::{Value, json};

use crate::{
    Options,
    failure::{Failure, Result},
    output::{Output, text_at},
    profile::{self, Locked, Profile, Project},
    proof,
};

/// How long the server may be silent before and within an answer. Streams send something every 15 seconds.
const SILENCE: Duration = Duration::from_mins(1);
/// A body that is larger takes its time on a slow line, and so may its answer.
const LARGE: usize = 64 * 1024;
const LONGEST_UPLOAD: Duration = Duration::from_hours(2);
/// A refresh is quick, and other commands wait for it.
const LONGEST_REFRESH: Duration = Duration::from_secs(30);

pub const LOCAL: &str = "http://localhost:8080";

/// How the caller is known.
enum Caller {
    /// `JANUA_TOKEN`: used as it is, never refreshed.
    Token(String),
    /// The session of the profile, which is read again for each request: another command may have refreshed it.
    Profile,
    Nobody,
}

pub struct Server {
    pub url: String,
    pub profile: String,
    pub project: Project,
    pub out: Output,
    pub options: Options,
    caller: Caller,
    client: reqwest::Client,
    /// For large bodies: a client with a limit on silence counts the upload as silence.
    patient: reqwest::Client,
}

/// What is sent besides the method and the path.
#[derive(Default)]
pub struct Extra {
    pub body: Option<Vec<u8>>,
    pub content_type: &'static str,
    pub headers: HeaderMap,
}

impl Server {
    pub fn open(options: Options) -> Result<Self> {
        let project = Project::find(&std::env::current_dir()?)?;
        let named = options.profile.clone().or_else(|| profile::variable("JANUA_PROFILE"));
        let name = named.or_else(|| project.profile.clone()).unwrap_or_else(|| profile::DEFAULT.into());
        let stored = profile::read()?.profiles.remove(&name);
        let url = options.url.clone().or_else(|| profile::variable("JANUA_URL"));
        let caller = match (profile::variable("JANUA_TOKEN"), stored.clone()) {
            (Some(token), _) => Caller::Token(token),
            // A token is for the server that gave it, and for no other one.
            (None, Some(profile)) if url.as_ref().is_none_or(|url| same_server(url, &profile.url)) => Caller::Profile,
            _ => Caller::Nobody,
        };
        let url = url.or_else(|| stored.map(|profile| profile.url)).unwrap_or_else(|| LOCAL.into());
        let url = checked(&url)?;
        let client = clients().read_timeout(SILENCE).build().map_err(|error| Failure::failed(error.to_string()))?;
        let patient =
            clients().timeout(LONGEST_UPLOAD).build().map_err(|error| Failure::failed(error.to_string()))?;
        let out = Output::new(options.json);
        Ok(Self { url, profile: name, project, out, options, caller, client, patient })
    }

    pub fn is_signed_in(&self) -> bool {
        !matches!(self.caller, Caller::Nobody)
    }

    /// Whether the token comes from the environment.
    pub fn has_own_token(&self) -> bool {
        matches!(self.caller, Caller::Token(_))
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.at(path))
    }

    /// For a body that takes its time.
    pub fn upload(&self, method: Method, path: &str) -> RequestBuilder {
        self.patient.request(method, self.at(path))
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// A token that is good for some time.
    pub async fn token(&self) -> Result<Option<String>> {
        match &self.caller {
            Caller::Nobody => Ok(None),
            Caller::Token(token) => Ok(Some(token.clone())),
            Caller::Profile => self.fresh(None).await.map(Some),
        }
    }

    /// The profile's access token, refreshed when it is about to expire or is the one that was just refused.
    async fn fresh(&self, refused: Option<&str>) -> Result<String> {
        const MARGIN: i64 = 30;
        let is_good = |profile: &Profile| {
            profile.expires_at > now() + MARGIN && refused.is_none_or(|refused| refused != profile.access_token)
        };
        let gone = || self.signed_out();
        let stored = profile::read()?.profiles.remove(&self.profile).ok_or_else(gone)?;
        if is_good(&stored) {
            return Ok(stored.access_token);
        }
        let mut locked = tokio::task::spawn_blocking(Locked::open).await.map_err(|_| gone())??;
        let stored = locked.credentials.profiles.get(&self.profile).cloned().ok_or_else(gone)?;
        // Another command was faster.
        if is_good(&stored) {
            return Ok(stored.access_token);
        }
        let refresh = stored.refresh_token.clone().ok_or_else(gone)?;
        let asked = self.request(Method::POST, "/auth/refresh").json(&json!({ "refreshToken": refresh }));
        let answer = asked.timeout(LONGEST_REFRESH).send().await.map_err(|error| self.unreachable(&error))?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(gone());
        }
        let body = body_of(answer).await?;
        let profile = Profile::from_answer(&self.url, &body).ok_or_else(gone)?;
        let token = profile.access_token.clone();
        let profile = Profile { refresh_token: profile.refresh_token.or(Some(refresh)), ..profile };
        locked.credentials.profiles.insert(self.profile.clone(), profile);
        locked.save()?;
        Ok(token)
    }

    fn signed_out(&self) -> Failure {
        let message = format!("Your session at {} has ended.", self.url);
        Failure::auth(message).hint(self.how_to_sign_in())
    }

    pub fn how_to_sign_in(&self) -> String {
        let profile =
            if self.profile == profile::DEFAULT { String::new() } else { format!(" --profile {}", self.profile) };
        format!("Run `janua login{profile}`, or set JANUA_TOKEN.")
    }

    pub fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let why = if error.is_timeout() { "no answer in time" } else { "cannot connect" };
        let url = &self.url;
        Failure::failed(format!("{url}: {why}.")).hint("Start the server, or choose another with --url or JANUA_URL.")
    }

    /// One request; a token that was refused is refreshed once. The answer may be a refusal.
    pub async fn send(&self, method: Method, path: &str, extra: &Extra) -> Result<Response> {
        let mut token = self.token().await?;
        for is_last in [false, true] {
            let is_large = extra.body.as_ref().is_some_and(|body| body.len() > LARGE);
            let client = if is_large { &self.patient } else { &self.client };
            let mut request = client.request(method.clone(), self.at(path)).headers(extra.headers.clone());
            if let Some(token) = &token {
                request = request.bearer_auth(token);
            }
            if let Some(body) = &extra.body {
                request = request.header("Content-Type", extra.content_type).body(body.clone());
            }
            let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
            if answer.status() != StatusCode::UNAUTHORIZED || is_last || !matches!(self.caller, Caller::Profile) {
                return Ok(answer);
            }
            token = Some(self.fresh(token.as_deref()).await?);
        }
        Err(self.signed_out())
    }

    /// A JSON request that must succeed.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        if !self.is_signed_in() {
            return Err(Failure::auth(format!("Not signed in at {}.", self.url)).hint(self.how_to_sign_in()));
        }
        let body = body.map(|body| body.to_string().into_bytes());
        let extra = Extra { body, content_type: "application/json", ..Extra::default() };
        let answer = body_of(self.send(method.clone(), path, &extra).await?).await;
        let can_ask = self.out.asks && matches!(self.caller, Caller::Profile);
        match answer {
            Err(refused) if can_ask && refused.code == "reauthentication_required" => {
                if !proof::confirm(self).await? {
                    return Err(refused);
                }
                body_of(self.send(method, path, &extra).await?).await
            }
            answer => answer,
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value> {
        self.ask(Method::DELETE, path, None).await
    }

    /// The entries of a list, over its pages.
    pub async fn list(&self, path: &str, field: &str, most: usize) -> Result<Vec<Value>> {
        let mut rows: Vec<Value> = vec![];
        let mut cursor: Option<String> = None;
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let size = (most - rows.len()).min(100);
            let after = cursor.as_ref().map(|cursor| format!("&cursor={}", encoded(cursor))).unwrap_or_default();
            let mut page = self.get(&format!("{path}{mark}limit={size}{after}")).await?;
            if let Value::Array(found) = page[field].take() {
                rows.extend(found);
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() || rows.len() >= most {
                rows.truncate(most);
                return Ok(rows);
            }
        }
    }

    /// The app a command is about: `--app`, `JANUA_APP`, the folder's, or the only one.
    pub async fn app(&self) -> Result<String> {
        let wanted = self.options.app.clone().or_else(|| profile::variable("JANUA_APP"));
        let wanted = wanted.or_else(|| self.project.app.clone());
        self.pick("app", "--app", wanted, "/apps", "apps").await
    }

    /// The organization a command is about.
    pub async fn org(&self) -> Result<String> {
        let wanted = self.options.org.clone().or_else(|| self.project.org.clone());
        self.pick("organization", "--org", wanted, "/user/orgs", "orgs").await
    }

    async fn pick(&self, what: &str, flag: &str, wanted: Option<String>, path: &str, field: &str) -> Result<String> {
        if let Some(id) = wanted.as_ref().filter(|wanted| is_id(wanted)) {
            return Ok(id.clone());
        }
        // It is the key of one app, and lists none.
        if what == "app" && matches!(&self.caller, Caller::Token(token) if token.starts_with("sk_")) {
            return Err(
                Failure::usage("A secret key needs the ID of its app.").hint("Set JANUA_APP to the app's ID.")
            );
        }
        let rows = self.list(path, field, 1000).await?;
        let id = |row: &Value| text_at(row, "id");
        if let Some(wanted) = wanted {
            let is_it = |row: &&Value| row["slug"] == wanted.as_str() || row["name"] == wanted.as_str();
            let found: Vec<&Value> = rows.iter().filter(is_it).collect();
            return match found.as_slice() {
                [one] => Ok(id(one)),
                [] => Err(Failure::failed(format!("No {what} is called {wanted:?}."))
                    .hint(format!("`janua {field} list` shows yours."))),
                _ => Err(Failure::usage(format!("Several {what}s are called {wanted:?}. Give the ID with {flag}."))),
            };
        }
        match rows.as_slice() {
            [] => Err(Failure::failed(format!("You have no {what} yet."))
                .hint(format!("Create one with `janua {field} create NAME`."))),
            [one] => Ok(id(one)),
            _ => {
                let names: Vec<String> =
                    rows.iter().map(|row| format!("{}  {}", id(row), text_at(row, "name"))).collect();
                self.out.choose(what, flag, &names).map(|at| id(&rows[at]))
            }
        }
    }
}

/// The body of an answer, or the refusal it is.
pub async fn body_of(answer: Response) -> Result<Value> {
    let status = answer.status();
    let retry = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = answer.text().await.map_err(|_| Failure::failed("The connection was lost before the answer."))?;
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
    if status.is_success() {
        return Ok(if text.is_empty() { Value::Null } else { body });
    }
    let mut failure = Failure::refused(status.as_u16(), body);
    if let (Some(seconds), None) = (retry, &failure.hint) {
        failure.hint = Some(format!("Try again in {seconds} seconds."));
    }
    Err(failure)
}

impl Profile {
    /// The session in the answer to a sign-in or a refresh.
    pub fn from_answer(url: &str, body: &Value) -> Option<Self> {
        Some(Self {
            url: url.to_owned(),
            email: body["user"]["email"].as_str().map(str::to_owned),
            access_token: body["accessToken"].as_str()?.to_owned(),
            refresh_token: body["refreshToken"].as_str().map(str::to_owned),
            expires_at: now() + body["expiresIn"].as_i64().unwrap_or(0),
        })
    }
}

/// A server's URL without a slash at its end. Tokens travel over https, or stay on this machine.
pub fn checked(text: &str) -> Result<String> {
    let wrong = |why: &str| Failure::usage(format!("--url {text}: {why}"));
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url: url::Url = with_scheme.parse().map_err(|_| wrong("must be a URL such as https://id.example.com"))?;
    match url.scheme() {
        "https" => {}
        "http" if is_on_this_machine(&url) => {}
        "http" => return Err(wrong("use https: over http to another machine your token could be read on the way")),
        _ => return Err(wrong("must begin with https://")),
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

pub fn is_on_this_machine(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn clients() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("janua-cli/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::none())
}

fn same_server(one: &str, other: &str) -> bool {
    checked(one).is_ok_and(|one| checked(other).is_ok_and(|other| one == other))
}

pub fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

pub fn is_id(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock; a command has no other one")]
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
impl Server {
    /// A server that is asked with a token.
    pub fn at_address(address: std::net::SocketAddr) -> Self {
        Self {
            url: format!("http://{address}"),
            profile: profile::DEFAULT.into(),
            project: Project::default(),
            out: Output::new(true),
            options: Options::default(),
            caller: Caller::Token("x".into()),
            client: clients().read_timeout(SILENCE).build().unwrap(),
            patient: clients().timeout(LONGEST_UPLOAD).build().unwrap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::at_address(silent.local_addr().unwrap());
        let begun = tokio::time::Instant::now();
        let failure = server.get("/auth/me").await.unwrap_err();
        assert!(failure.message.contains("no answer in time"), "{}", failure.message);
        assert!(begun.elapsed() <= 2 * SILENCE, "{:?}", begun.elapsed());
        drop(silent);
    }

    #[test]
    fn tokens_go_over_https_or_stay_here() {
        assert_eq!(checked("id.example.com").unwrap(), "https://id.example.com");
        assert_eq!(checked("http://localhost:8080/").unwrap(), "http://localhost:8080");
        assert_eq!(checked("http://[::1]:8080").unwrap(), "http://[::1]:8080");
        for refused in ["http://id.example.com", "ftp://x", "http://127.0.0.1.example.com", "https://"] {
            assert!(checked(refused).is_err(), "{refused}");
        }
    }
}
