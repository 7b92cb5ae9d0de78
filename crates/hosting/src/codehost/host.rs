//! The code host as we speak to it: as our app, as an installation of it, and for a moment as a user.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use data_encoding::BASE64URL_NOPAD;
use kernel::{
    Janua,
    clock::{Clock, Timestamp},
    crypto::Secret,
    fault::{Code, Result},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use url::Url;

use super::{model::Repository, settings::Configured};

pub const NOT_CONFIGURED: Code =
    Code::new(503, "codehost_not_configured", "No code host is connected to this installation.");
pub const UNAVAILABLE: Code =
    Code::new(503, "codehost_unavailable", "The code host does not answer. Try again shortly.");

const TIMEOUT: Duration = Duration::from_secs(20);
/// An archive takes longer.
const ARCHIVE_TIMEOUT: Duration = Duration::from_mins(4);
const MOST_REPOSITORIES: usize = 1000;
const A_PAGE: usize = 100;
/// Tokens of installations live for an hour; they are used for less.
const TOKEN_LIFE: Duration = Duration::from_mins(50);
const MOST_TOKENS: usize = 1000;
const LONGEST_ANSWER: usize = 8 << 20;

/// Why the host gave no answer that counts.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It said no, and would again.
    #[error("the code host refused: {status} {message}")]
    Refused { status: u16, message: String },
    #[error("the code host does not answer: {text}")]
    Away { text: String, wait: Option<Duration> },
}

impl HostError {
    #[expect(clippy::needless_pass_by_value, reason = "the error ends here, so that it can be named in map_err")]
    fn away(text: impl ToString) -> Self {
        Self::Away { text: text.to_string(), wait: None }
    }

    /// Whether what was asked for is not there, or not for us.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403 | 404 | 410 | 422 | 451, .. })
    }
}

/// What a token of an installation is for. It opens one repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum For {
    Reading,
    Reporting,
}

/// An installation as the host describes it.
#[derive(Debug, Clone)]
pub struct Described {
    pub id: i64,
    pub account_id: i64,
    pub account_login: String,
    pub account_type: String,
    pub account_avatar: Option<String>,
    pub repository_selection: String,
    pub permissions: Value,
    pub is_suspended: bool,
}

impl Described {
    fn read(value: &Value) -> Option<Self> {
        let account = &value["account"];
        Some(Self {
            id: value["id"].as_i64()?,
            account_id: account["id"].as_i64()?,
            account_login: short(&account["login"])?,
            account_type: short(&account["type"]).unwrap_or_else(|| "User".into()),
            account_avatar: short(&account["avatar_url"]).filter(|url| url.starts_with("https://")),
            repository_selection: if value["repository_selection"] == "all" { "all" } else { "selected" }.into(),
            permissions: value["permissions"].as_object().map_or(json!({}), |all| json!(all)),
            is_suspended: !value["suspended_at"].is_null(),
        })
    }
}

fn short(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.chars().filter(|c| !c.is_control()).take(255).collect())
}

/// A commit that a branch or a pull request points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    pub sha: String,
    pub message: Option<String>,
    pub author: Option<String>,
    pub url: Option<String>,
}

/// A pull request.
#[derive(Debug, Clone)]
pub struct Pull {
    pub is_open: bool,
    /// The repository its commits come from; none when that was deleted.
    pub head_repository: Option<i64>,
    pub branch: String,
    pub tip: Tip,
}

/// A delivery in the host's own list.
#[derive(Debug, Clone)]
pub struct Listed {
    pub number: i64,
    pub guid: String,
    pub event: String,
    pub installation: Option<i64>,
    pub delivered_at: Option<Timestamp>,
}

type Tokens = HashMap<(i64, i64, For), (Secret, Timestamp)>;

pub struct Host {
    pub configured: Configured,
    client: Client,
    key: RsaKeyPair,
    tokens: Mutex<Tokens>,
    keys_asked_at: Mutex<Option<Timestamp>>,
}

/// The code host of this installation, if there is one.
pub struct CodeHost(Option<Host>);

impl CodeHost {
    pub fn new(configured: Result<Option<Configured>, String>) -> Result<Self, String> {
        configured?.map(Host::new).transpose().map(Self)
    }

    pub fn none() -> Self {
        Self(None)
    }

    pub fn host(janua: &Janua) -> Result<&Host> {
        janua.own::<Self>().0.as_ref().ok_or_else(|| NOT_CONFIGURED.into())
    }

    pub fn find(janua: &Janua) -> Option<&Host> {
        janua.own::<Self>().0.as_ref()
    }
}

impl Host {
    pub fn new(configured: Configured) -> Result<Self, String> {
        let path = &configured.private_key;
        let wrong = |error: &dyn std::fmt::Display| format!("codehost_private_key {}: {error}", path.display());
        let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(&error))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(wrong(&"must be an RSA key")),
        };
        let key = key.map_err(|_| wrong(&"must be an RSA key of at least 2048 bits"))?;
        // An archive is at another host. Tokens are not sent there: the library takes them off.
        let follow = redirect::Policy::custom(|attempt| {
            let first = attempt.previous().first().map(|url| url.scheme().to_owned()).unwrap_or_default();
            let is_as_safe = attempt.url().scheme() == "https" || attempt.url().scheme() == first;
            if attempt.previous().len() > 3 || !is_as_safe { attempt.stop() } else { attempt.follow() }
        });
        let client = Client::builder().timeout(TIMEOUT).redirect(follow).no_proxy().user_agent("Janua").build();
        let client = client.map_err(|error| format!("code host: {error}"))?;
        Ok(Self { configured, client, key, tokens: Mutex::default(), keys_asked_at: Mutex::default() })
    }

    fn api(&self, path: &str) -> Result<Url, HostError> {
        let base = self.configured.api_url.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path}")).map_err(HostError::away)
    }

    fn ask(&self, method: Method, path: &str, token: &str) -> Result<RequestBuilder, HostError> {
        let ask = self.client.request(method, self.api(path)?).header("accept", "application/vnd.github+json");
        Ok(ask.header("x-github-api-version", "2022-11-28").header("authorization", format!("Bearer {token}")))
    }

    /// A token by which we are the app itself, for a few minutes (RFC 7519, RS256).
    pub fn app_token(&self) -> Result<String, HostError> {
        // The host refuses tokens whose time is not its own: a clock that was moved must not matter. A minute back, because
        // its clock may be behind ours.
        let now = Clock::System.now().0.div_euclid(1000);
        let encode = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let head = encode(json!({ "alg": "RS256", "typ": "JWT" }));
        let claims = encode(json!({ "iat": now - 60, "exp": now + 540, "iss": self.configured.app_id }));
        let text = format!("{head}.{claims}");
        let mut signature = vec![0; self.key.public_modulus_len()];
        let signed = self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature);
        signed.map_err(|_| HostError::away("the private key does not sign"))?;
        Ok(format!("{text}.{}", BASE64URL_NOPAD.encode(&signature)))
    }

    /// A token of an installation for one repository, kept in memory while it is good.
    async fn token(
        &self,
        janua: &Janua,
        installation: i64,
        repository: i64,
        purpose: For,
    ) -> Result<Secret, HostError> {
        let (place, now) = ((installation, repository, purpose), janua.clock.now());
        {
            let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((token, until)) = tokens.get(&place)
                && *until > now
            {
                return Ok(token.clone());
            }
        }
        let permissions = match purpose {
            For::Reading => json!({ "contents": "read", "metadata": "read", "pull_requests": "read" }),
            For::Reporting => json!({ "statuses": "write", "pull_requests": "write" }),
        };
        let body = json!({ "repository_ids": [repository], "permissions": permissions });
        let path = format!("/app/installations/{installation}/access_tokens");
        let made = self.ask(Method::POST, &path, &self.app_token()?)?.json(&body);
        let made = read(made.send().await).await?;
        let token = made["token"].as_str().ok_or_else(|| HostError::away("no token"))?;
        let token = Secret::from(token.to_owned());
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST_TOKENS {
            tokens.clear();
        }
        tokens.insert(place, (token.clone(), now.plus(TOKEN_LIFE)));
        Ok(token)
    }

    /// Forgets a token, for one that the host no longer takes and before access is checked again.
    pub fn forget(&self, installation: i64, repository: i64) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|(of, to, _), _| (*of, *to) != (installation, repository));
    }

    async fn get(&self, janua: &Janua, at: (i64, i64), path: &str) -> Result<Value, HostError> {
        let token = self.token(janua, at.0, at.1, For::Reading).await?;
        read(self.ask(Method::GET, path, token.expose())?.send().await).await
    }

    // As a user, once.

    /// What a code of the sign-in buys: a token of the user. `None` for a code that does not count.
    pub async fn exchange(&self, code: &str, redirect_uri: &str) -> Result<Option<Secret>, HostError> {
        let base = self.configured.url.as_str().trim_end_matches('/');
        let form = [
            ("client_id", self.configured.client_id.as_str()),
            ("client_secret", self.configured.client_secret.expose()),
            ("code", code),
            ("redirect_uri", redirect_uri),
        ];
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let sent = self
            .client
            .post(format!("{base}/login/oauth/access_token"))
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body)
            .send()
            .await;
        match read(sent).await {
            Ok(answer) => Ok(answer["access_token"].as_str().map(|token| token.to_owned().into())),
            Err(HostError::Refused { status: 400 | 401, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get_as(&self, user: &Secret, path: &str) -> Result<Value, HostError> {
        read(self.ask(Method::GET, path, user.expose())?.send().await).await
    }

    /// The host's number of the user.
    pub async fn who(&self, user: &Secret) -> Result<i64, HostError> {
        self.get_as(user, "/user").await?["id"].as_i64().ok_or_else(|| HostError::away("a user without a number"))
    }

    /// The installations of our app that a user can see.
    pub async fn installations(&self, user: &Secret) -> Result<Vec<Described>, HostError> {
        let mut found = vec![];
        for page in 1..=10 {
            let path = format!("/user/installations?per_page={A_PAGE}&page={page}");
            let answer = self.get_as(user, &path).await?;
            let listed = answer["installations"].as_array().cloned().unwrap_or_default();
            found.extend(listed.iter().filter_map(Described::read));
            if listed.len() < A_PAGE {
                break;
            }
        }
        Ok(found)
    }

    /// The repositories of an installation that a user may push to: these they may link.
    pub async fn repositories(&self, user: &Secret, installation: i64) -> Result<Vec<Repository>, HostError> {
        let mut found = vec![];
        for page in 1..=MOST_REPOSITORIES / A_PAGE {
            let path = format!("/user/installations/{installation}/repositories?per_page={A_PAGE}&page={page}");
            let answer = self.get_as(user, &path).await?;
            let listed = answer["repositories"].as_array().cloned().unwrap_or_default();
            let may_push = |one: &&Value| one["permissions"]["push"] == true || one["permissions"]["admin"] == true;
            found.extend(listed.iter().filter(may_push).filter_map(repository));
            if listed.len() < A_PAGE {
                break;
            }
        }
        Ok(found)
    }

    /// Whether a user owns the account of an installation, or administers the organization that it is.
    pub async fn administers(&self, user: &Secret, number: i64, of: &Described) -> bool {
        if of.account_type == "User" {
            return of.account_id == number;
        }
        let path = format!("/user/memberships/orgs/{}", encode(&of.account_login));
        let membership = self.get_as(user, &path).await.unwrap_or_default();
        membership["role"] == "admin" && membership["state"] == "active"
    }

    /// The keys of whoever issues the tokens of CI runs; `None` when there are none to be had.
    pub async fn issuer_keys(&self, janua: &Janua, issuer: &str) -> Result<Option<Value>, HostError> {
        const OFTEN: Duration = Duration::from_secs(5);
        {
            let now = janua.clock.now();
            let mut asked = self.keys_asked_at.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.is_some_and(|asked| now < asked.plus(OFTEN)) {
                return Ok(None);
            }
            *asked = Some(now);
        }
        let described =
            read(self.client.get(format!("{issuer}/.well-known/openid-configuration")).send().await).await?;
        let address = described["jwks_uri"].as_str().unwrap_or_default();
        // The keys are at the issuer, and nowhere else.
        let is_its_own = described["issuer"] == issuer && address.starts_with(&format!("{issuer}/"));
        if !is_its_own {
            return Err(HostError::away("an issuer that describes another one"));
        }
        read(self.client.get(address).send().await).await.map(Some)
    }

    /// Whether the place where users sign in answers.
    pub async fn greet(&self) -> Result<(), HostError> {
        let answer = self.client.get(self.configured.url.clone()).send().await.map_err(from_reqwest)?;
        if answer.status().is_server_error() { Err(HostError::away(answer.status())) } else { Ok(()) }
    }

    // As the app.

    /// The app itself, as the host describes it.
    pub async fn app(&self) -> Result<Value, HostError> {
        read(self.ask(Method::GET, "/app", &self.app_token()?)?.send().await).await
    }

    pub async fn installation(&self, id: i64) -> Result<Option<Described>, HostError> {
        let sent = self.ask(Method::GET, &format!("/app/installations/{id}"), &self.app_token()?)?.send().await;
        match read(sent).await {
            Ok(answer) => Ok(Described::read(&answer)),
            Err(HostError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn uninstall(&self, id: i64) -> Result<(), HostError> {
        let sent = self.ask(Method::DELETE, &format!("/app/installations/{id}"), &self.app_token()?)?.send().await;
        match read(sent).await {
            Err(HostError::Refused { status: 404, .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The newest deliveries of the host's own list, a page at a time.
    pub async fn deliveries(&self, cursor: Option<&str>) -> Result<(Vec<Listed>, Option<String>), HostError> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", encode(cursor))).unwrap_or_default();
        let path = format!("/app/hook/deliveries?per_page={A_PAGE}{cursor}");
        let sent = self.ask(Method::GET, &path, &self.app_token()?)?.send().await.map_err(from_reqwest)?;
        let next = sent.headers().get("link").and_then(|link| link.to_str().ok()).and_then(next_cursor);
        let answer = read(Ok(sent)).await?;
        let listed = answer.as_array().into_iter().flatten().filter_map(|one| {
            Some(Listed {
                number: one["id"].as_i64()?,
                guid: one["guid"].as_str()?.to_owned(),
                event: one["event"].as_str()?.to_owned(),
                installation: one["installation_id"].as_i64(),
                delivered_at: serde_json::from_value(one["delivered_at"].clone()).ok(),
            })
        });
        Ok((listed.collect(), next))
    }

    /// What was delivered.
    pub async fn delivered(&self, number: i64) -> Result<Value, HostError> {
        let path = format!("/app/hook/deliveries/{number}");
        let mut answer = read(self.ask(Method::GET, &path, &self.app_token()?)?.send().await).await?;
        Ok(answer["request"]["payload"].take())
    }

    // As an installation, for one repository: `at` is the numbers of both.

    pub async fn repository(&self, janua: &Janua, at: (i64, i64)) -> Result<Repository, HostError> {
        let answer = self.get(janua, at, &format!("/repositories/{}", at.1)).await?;
        repository(&answer)
            .filter(|found| found.repository_id == at.1)
            .ok_or_else(|| HostError::Refused { status: 404, message: "another repository".into() })
    }

    /// Where a branch points to; `None` when it is gone.
    pub async fn branch(&self, janua: &Janua, at: (i64, i64), name: &str) -> Result<Option<Tip>, HostError> {
        match self.get(janua, at, &format!("/repositories/{}/branches/{}", at.1, encode(name))).await {
            Ok(answer) if answer["name"] == name => Ok(tip(&answer["commit"])),
            Ok(_) | Err(HostError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn pull(&self, janua: &Janua, at: (i64, i64), number: i64) -> Result<Option<Pull>, HostError> {
        let answer = match self.get(janua, at, &format!("/repositories/{}/pulls/{number}", at.1)).await {
            Ok(answer) => answer,
            Err(HostError::Refused { status: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let head = &answer["head"];
        let Some(sha) = head["sha"].as_str().filter(|sha| is_sha(sha)) else { return Ok(None) };
        Ok(Some(Pull {
            is_open: answer["state"] == "open",
            head_repository: head["repo"]["id"].as_i64(),
            branch: short(&head["ref"]).unwrap_or_default(),
            tip: Tip {
                sha: sha.to_owned(),
                message: short(&answer["title"]),
                author: short(&answer["user"]["login"]),
                url: short(&answer["html_url"]).filter(|url| url.starts_with("http")),
            },
        }))
    }

    /// The archive of a commit, as it comes.
    pub async fn archive(&self, janua: &Janua, at: (i64, i64), sha: &str) -> Result<Response, HostError> {
        let token = self.token(janua, at.0, at.1, For::Reading).await?;
        let ask = self.ask(Method::GET, &format!("/repositories/{}/tarball/{sha}", at.1), token.expose())?;
        let answer = ask.timeout(ARCHIVE_TIMEOUT).send().await.map_err(from_reqwest)?;
        if answer.status().is_success() { Ok(answer) } else { Err(refused(answer).await) }
    }

    pub async fn set_status(
        &self,
        janua: &Janua,
        at: (i64, i64),
        sha: &str,
        status: &Value,
    ) -> Result<(), HostError> {
        let token = self.token(janua, at.0, at.1, For::Reporting).await?;
        let path = format!("/repositories/{}/statuses/{sha}", at.1);
        read(self.ask(Method::POST, &path, token.expose())?.json(status).send().await).await.map(drop)
    }

    /// Writes the one comment of a pull request: the one that is known, or one that has the mark, or a new one.
    pub async fn comment(
        &self,
        janua: &Janua,
        at: (i64, i64),
        pull: i64,
        (known, mark): (Option<i64>, &str),
        body: &str,
    ) -> Result<i64, HostError> {
        let token = self.token(janua, at.0, at.1, For::Reporting).await?;
        let text = json!({ "body": body });
        for looks in [false, true] {
            let found = if looks { self.marked(&token, at.1, pull, mark).await? } else { known };
            let Some(found) = found else { continue };
            let path = format!("/repositories/{}/issues/comments/{found}", at.1);
            match read(self.ask(Method::PATCH, &path, token.expose())?.json(&text).send().await).await {
                Ok(_) => return Ok(found),
                // Somebody deleted it.
                Err(HostError::Refused { status: 404, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let path = format!("/repositories/{}/issues/{pull}/comments", at.1);
        let made = read(self.ask(Method::POST, &path, token.expose())?.json(&text).send().await).await?;
        made["id"].as_i64().ok_or_else(|| HostError::away("a comment without a number"))
    }

    /// The comment of a pull request that has the mark.
    async fn marked(&self, token: &Secret, repository: i64, pull: i64, mark: &str) -> Result<Option<i64>, HostError> {
        let path = format!("/repositories/{repository}/issues/{pull}/comments?per_page={A_PAGE}");
        let listed = read(self.ask(Method::GET, &path, token.expose())?.send().await).await?;
        let has_mark = |one: &&Value| one["body"].as_str().is_some_and(|body| body.contains(mark));
        Ok(listed.as_array().into_iter().flatten().find(has_mark).and_then(|one| one["id"].as_i64()))
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

pub fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn repository(value: &Value) -> Option<Repository> {
    Some(Repository {
        repository_id: value["id"].as_i64()?,
        full_name: short(&value["full_name"])?,
        is_private: value["private"].as_bool().unwrap_or(true),
        default_branch: short(&value["default_branch"]).unwrap_or_else(|| "main".into()),
    })
}

fn tip(value: &Value) -> Option<Tip> {
    let sha = value["sha"].as_str().filter(|sha| is_sha(sha))?;
    Some(Tip {
        sha: sha.to_owned(),
        message: value["commit"]["message"].as_str().map(|text| text.lines().next().unwrap_or_default().to_owned()),
        author: short(&value["commit"]["author"]["name"]),
        url: short(&value["html_url"]).filter(|url| url.starts_with("http")),
    })
}

/// The cursor of the next page, from a `Link` header.
fn next_cursor(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let url = next.split('<').nth(1)?.split('>').next()?;
    Url::parse(url).ok()?.query_pairs().find(|(name, _)| name == "cursor").map(|(_, cursor)| cursor.into_owned())
}

fn from_reqwest(error: reqwest::Error) -> HostError {
    HostError::away(error.without_url())
}

async fn refused(answer: Response) -> HostError {
    let status = answer.status();
    let seconds = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let wait = seconds("retry-after").map(|wait| Duration::from_secs(wait.min(3600)));
    let is_spent = seconds("x-ratelimit-remaining") == Some(0);
    let text = answer.text().await.unwrap_or_default();
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let message: String = said["message"].as_str().unwrap_or_default().chars().take(200).collect();
    let is_paced =
        status == StatusCode::TOO_MANY_REQUESTS || (status == StatusCode::FORBIDDEN && (wait.is_some() || is_spent));
    if status.is_server_error() || is_paced {
        let wait = wait.or(is_paced.then_some(Duration::from_mins(1)));
        return HostError::Away { text: format!("{} {message}", status.as_u16()), wait };
    }
    HostError::Refused { status: status.as_u16(), message }
}

async fn read(sent: reqwest::Result<Response>) -> Result<Value, HostError> {
    let mut answer = sent.map_err(from_reqwest)?;
    if !answer.status().is_success() {
        return Err(refused(answer).await);
    }
    let mut body = vec![];
    while let Some(part) = answer.chunk().await.map_err(from_reqwest)? {
        if body.len() + part.len() > LONGEST_ANSWER {
            return Err(HostError::away("an answer that is too long"));
        }
        body.extend_from_slice(&part);
    }
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&body).map_err(|_| HostError::away("an answer that is not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_named_in_the_link_header() {
        let link = "<https://api.github.com/app/hook/deliveries?per_page=100&cursor=v1_123>; rel=\"next\"";
        assert_eq!(next_cursor(link).as_deref(), Some("v1_123"));
        assert_eq!(next_cursor("<https://api.github.com/x?cursor=1>; rel=\"first\""), None);
        assert_eq!(next_cursor("nonsense"), None);
    }
}
