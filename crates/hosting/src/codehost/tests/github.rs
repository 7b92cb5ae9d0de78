//! A server that plays the few routes of GitHub that are used here. It remembers what it is told, checks every token, and knows
//! what each may do.
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use aws_lc_rs::{
    encoding::AsDer as _,
    hmac,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey},
};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use kernel::{clock::Clock, config::Config, testing::TestJanua};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tests::gzip;

pub const APP_ID: &str = "4711";
pub const SLUG: &str = "janua-test";
pub const CLIENT_ID: &str = "Iv1.client";
pub const CLIENT_SECRET: &str = "client-secret";
pub const HOOK_SECRET: &str = "hook-secret";

#[derive(Clone)]
pub struct GitHub {
    pub port: u16,
    pub state: Arc<Mutex<Played>>,
    public_key: Arc<Vec<u8>>,
    signing: Arc<RsaKeyPair>,
    folder: Arc<TempDir>,
}

#[derive(Default)]
pub struct Played {
    /// Codes of the sign-in, which count once, and whose they are.
    codes: HashMap<String, i64>,
    users: BTreeMap<i64, String>,
    pub installations: BTreeMap<i64, Installed>,
    pub repositories: BTreeMap<i64, Repo>,
    tokens: HashMap<String, Token>,
    pub statuses: Vec<(i64, String, Value)>,
    pub comments: BTreeMap<i64, (i64, i64, String)>,
    pub deliveries: Vec<(i64, String, String, Value)>,
    pub calls: Vec<String>,
    /// Answers that are to be 502.
    pub away: bool,
    /// Archives of commits are not sent.
    pub no_archives: bool,
    /// The app may not write statuses.
    pub no_statuses: bool,
    count: i64,
}

#[derive(Clone)]
pub struct Installed {
    pub login: String,
    pub account: i64,
    pub is_org: bool,
    /// Administrators of the account.
    pub admins: Vec<i64>,
    pub repositories: Vec<i64>,
    pub suspended: bool,
}

#[derive(Clone, Default)]
pub struct Repo {
    pub full_name: String,
    pub private: bool,
    /// Who may push, and who may only read.
    pub pushers: Vec<i64>,
    pub readers: Vec<i64>,
    pub branches: BTreeMap<String, String>,
    pub commits: BTreeMap<String, Vec<u8>>,
    pub pulls: BTreeMap<i64, PullRequest>,
}

#[derive(Clone)]
pub struct PullRequest {
    pub is_open: bool,
    pub head_repository: i64,
    pub branch: String,
    pub sha: String,
}

enum Token {
    User(i64),
    Installation { id: i64, repositories: Vec<i64>, permissions: Value },
}

/// The archive of a commit as the host makes it: a global header, and everything below one folder. Odd things lie about in it.
pub fn commit_archive(files: &[(&str, &str)]) -> Vec<u8> {
    use crate::tests::{end, entry};
    let mut bytes = entry(b"pax_global_header", b'g', b"52 comment=0123456789012345678901234567890123456789\n");
    bytes.extend(entry(b"acme-shop-0123456/", b'5', b""));
    bytes.extend(entry(b"acme-shop-0123456/README.md", b'0', b"readme"));
    bytes.extend(entry(b"acme-shop-0123456/link", b'2', b""));
    for (path, content) in files {
        bytes.extend(entry(format!("acme-shop-0123456/{path}").as_bytes(), b'0', content.as_bytes()));
    }
    bytes.extend(end());
    gzip(&bytes)
}

/// A commit hash by its content's number.
pub fn sha(number: u64) -> String {
    format!("{number:040x}")
}

impl GitHub {
    pub async fn start() -> Self {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let signing = RsaKeyPair::from_pkcs8(der.as_ref()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = BASE64.encode(der.as_ref());
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
        std::fs::write(folder.path().join("key.pem"), pem).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let github = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
            public_key: Arc::new(signing.public_key().as_ref().to_vec()),
            signing: Arc::new(signing),
            folder: Arc::new(folder),
        };
        let router = Router::new().fallback(answer).with_state(github.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        github
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn key_file(&self) -> std::path::PathBuf {
        self.folder.path().join("key.pem")
    }

    pub fn config(&self) -> Config {
        let (url, key): (url::Url, _) = (self.url().parse().unwrap(), self.key_file());
        Config::for_tests().with(|settings: &mut crate::codehost::Settings| {
            settings.codehost_app_id = Some(APP_ID.into());
            settings.codehost_app_slug = Some(SLUG.into());
            settings.codehost_client_id = Some(CLIENT_ID.into());
            settings.codehost_client_secret = Some(CLIENT_SECRET.to_owned().into());
            settings.codehost_private_key = Some(key);
            settings.codehost_webhook_secret = Some(HOOK_SECRET.to_owned().into());
            (settings.codehost_url, settings.codehost_api_url) = (url.clone(), url.clone());
            settings.codehost_actions_issuer = url;
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Played> {
        self.state.lock().unwrap()
    }

    /// A user with a code to sign in by.
    pub fn user(&self, id: i64, code: &str) {
        let mut played = self.lock();
        played.users.insert(id, format!("user{id}"));
        played.codes.insert(code.to_owned(), id);
    }

    /// An installation on an organization with a repository that a user may push to.
    pub fn install(&self, id: i64, repository: i64, user: i64) {
        let mut played = self.lock();
        let repositories = vec![repository];
        let (login, account) = (format!("acme{id}"), 100_000 + id);
        let installed = Installed {
            login: login.clone(),
            account,
            is_org: true,
            admins: vec![user],
            repositories,
            suspended: false,
        };
        played.installations.insert(id, installed);
        let full_name = format!("{login}/shop");
        let repo = Repo { full_name, private: true, pushers: vec![user], ..Repo::default() };
        played.repositories.insert(repository, repo);
    }

    /// A commit with files in `out/`, at the tip of a branch.
    pub fn push(&self, repository: i64, branch: &str, number: u64, page: &str) -> String {
        self.commit(repository, number, commit_archive(&[("out/index.html", page), ("src/app.js", "source")]));
        let mut played = self.lock();
        let repo = played.repositories.get_mut(&repository).unwrap();
        repo.branches.insert(branch.to_owned(), sha(number));
        sha(number)
    }

    pub fn commit(&self, repository: i64, number: u64, archive: Vec<u8>) {
        self.lock().repositories.get_mut(&repository).unwrap().commits.insert(sha(number), archive);
    }

    pub fn open_pull(&self, repository: i64, number: i64, pull: PullRequest) {
        self.lock().repositories.get_mut(&repository).unwrap().pulls.insert(number, pull);
    }

    pub fn signature(body: &[u8], secret: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        format!("sha256={}", HEXLOWER.encode(hmac::sign(&key, body).as_ref()))
    }

    /// Delivers an event, as the host does.
    pub async fn delivers(&self, t: &TestJanua, id: &str, event: &str, payload: &Value) -> kernel::testing::Answer {
        let body = payload.to_string();
        let signature = Self::signature(body.as_bytes(), HOOK_SECRET);
        deliver(t, id, event, body, Some(("x-hub-signature-256", &signature))).await
    }

    pub fn push_event(&self, installation: i64, repository: i64, branch: &str) -> Value {
        let played = self.lock();
        let repo = &played.repositories[&repository];
        json!({
            "ref": format!("refs/heads/{branch}"), "after": repo.branches.get(branch),
            "repository": { "id": repository, "full_name": repo.full_name },
            "installation": { "id": installation }, "sender": { "login": "ada" },
        })
    }

    pub fn pull_event(&self, installation: i64, repository: i64, number: i64, action: &str) -> Value {
        let played = self.lock();
        let repo = &played.repositories[&repository];
        let pull = &repo.pulls[&number];
        json!({
            "action": action, "number": number,
            "pull_request": { "head": { "ref": pull.branch, "sha": pull.sha, "repo": { "id": pull.head_repository } } },
            "repository": { "id": repository, "full_name": repo.full_name },
            "installation": { "id": installation }, "sender": { "login": "ada" },
        })
    }

    /// The OpenID Connect token of a CI run.
    pub fn run_token(&self, claims: &Value) -> String {
        self.signed(&json!({ "alg": "RS256", "typ": "JWT", "kid": "run" }), claims)
    }

    pub fn signed(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let text = format!("{}.{}", encode(header), encode(claims));
        let mut signature = vec![0; self.signing.public_modulus_len()];
        let random = aws_lc_rs::rand::SystemRandom::new();
        self.signing.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).unwrap();
        format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))
    }

    /// Whether a token is one of the app, as GitHub checks it: RS256, our app, no longer than ten minutes.
    fn is_app(&self, token: &str) -> bool {
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else { return false };
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).unwrap_or_default();
        let text = format!("{header}.{claims}");
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public_key[..]);
        let header: Value = serde_json::from_slice(&decode(header)).unwrap_or_default();
        let claims: Value = serde_json::from_slice(&decode(claims)).unwrap_or_default();
        let now = Clock::System.now().0 / 1000;
        let (iat, exp) = (claims["iat"].as_i64().unwrap_or(i64::MAX), claims["exp"].as_i64().unwrap_or(0));
        let issuer = claims["iss"].as_str().map_or_else(|| claims["iss"].to_string(), str::to_owned);
        key.verify(text.as_bytes(), &decode(signature)).is_ok()
            && header["alg"] == "RS256"
            && [APP_ID, CLIENT_ID].contains(&issuer.as_str())
            && iat <= now
            && now < exp
            && exp <= now + 600
    }
}

/// A delivery with whatever headers.
pub async fn deliver(
    t: &TestJanua,
    id: &str,
    event: &str,
    body: String,
    signature: Option<(&str, &str)>,
) -> kernel::testing::Answer {
    let mut ask = t.post("/codehost/webhook").header("content-type", "application/json");
    ask = ask.header("x-github-event", event).header("x-github-delivery", id);
    if let Some((name, value)) = signature {
        ask = ask.header(name, value);
    }
    ask.body(body).await
}

#[expect(clippy::needless_pass_by_value, reason = "its callers make the body in the call")]
fn say(status: u16, body: Value) -> Response {
    let head = [("content-type", "application/json")];
    (StatusCode::from_u16(status).unwrap(), head, body.to_string()).into_response()
}

fn not_found() -> Response {
    say(404, json!({ "message": "Not Found" }))
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Octokit's app writes "token …" for tokens of installations.
    value.split_once(' ').map(|(_, token)| token.to_owned()).unwrap_or_default()
}

async fn answer(State(github): State<GitHub>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let (method, path) = (parts.method.as_str().to_owned(), parts.uri.path().to_owned());
    let query: HashMap<String, String> = parts
        .uri
        .query()
        .map(|query| url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
        .unwrap_or_default();
    let token = bearer(&parts.headers);
    let is_app = github.is_app(&token);
    let mut played = github.lock();
    played.calls.push(format!("{method} {path}"));
    if played.away {
        return say(502, json!({ "message": "Bad gateway" }));
    }
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (method.as_str(), &segments[..]) {
        ("POST", ["login", "oauth", "access_token"]) => {
            let form: HashMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
            let is_ours = form.get("client_id").map(String::as_str) == Some(CLIENT_ID)
                && form.get("client_secret").map(String::as_str) == Some(CLIENT_SECRET);
            let code = form.get("code").cloned().unwrap_or_default();
            match played.codes.remove(&code).filter(|_| is_ours) {
                Some(user) => {
                    let token = format!("ghu_{code}");
                    played.tokens.insert(token.clone(), Token::User(user));
                    say(200, json!({ "access_token": token, "token_type": "bearer", "scope": "" }))
                }
                // GitHub answers 200 with an error in it.
                None => say(200, json!({ "error": "bad_verification_code" })),
            }
        }
        (_, ["user", rest @ ..]) => match played.tokens.get(&token) {
            Some(Token::User(user)) => as_user(&played, *user, rest),
            _ => say(401, json!({ "message": "Bad credentials" })),
        },
        (_, ["app", rest @ ..]) => {
            if !is_app {
                return say(401, json!({ "message": "A JSON web token could not be decoded" }));
            }
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            as_app(&github, &mut played, &method, rest, &query, &body)
        }
        (_, ["repositories", number, rest @ ..]) => {
            let number: i64 = number.parse().unwrap_or(-1);
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            as_installation(&github, &mut played, &token, &method, (number, rest), &body)
        }
        ("GET", ["codeload", ..]) if played.no_archives => not_found(),
        ("GET", ["codeload", number, sha]) => {
            assert!(token.is_empty(), "a token is not sent to another host");
            let repo = played.repositories.get(&number.parse().unwrap_or(-1));
            match repo.and_then(|repo| repo.commits.get(*sha)) {
                Some(archive) => archive.clone().into_response(),
                None => not_found(),
            }
        }
        ("GET", [".well-known", "openid-configuration"]) => {
            let base = github.url();
            say(200, json!({ "issuer": base, "jwks_uri": format!("{base}/.well-known/jwks") }))
        }
        ("GET", [".well-known", "jwks"]) => say(200, json!({ "keys": [jwk(&github)] })),
        _ => not_found(),
    }
}

fn jwk(github: &GitHub) -> Value {
    let key = github.signing.public_key();
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let modulus = key.modulus().big_endian_without_leading_zero().to_vec();
    let exponent = key.exponent().big_endian_without_leading_zero().to_vec();
    json!({ "kty": "RSA", "alg": "RS256", "use": "sig", "kid": "run", "n": encode(&modulus), "e": encode(&exponent) })
}

fn described(id: i64, one: &Installed) -> Value {
    json!({
        "id": id, "app_slug": SLUG, "repository_selection": "selected",
        "account": { "id": one.account, "login": one.login, "type": if one.is_org { "Organization" } else { "User" },
                     "avatar_url": "https://avatars.example/1" },
        "permissions": { "contents": "read", "statuses": "write" },
        "suspended_at": one.suspended.then_some("2026-01-31T10:00:00Z"),
    })
}

fn repository(id: i64, repo: &Repo) -> Value {
    json!({ "id": id, "full_name": repo.full_name, "private": repo.private, "default_branch": "main" })
}

fn as_user(played: &Played, user: i64, rest: &[&str]) -> Response {
    let reads = |repo: &Repo| repo.pushers.contains(&user) || repo.readers.contains(&user);
    let sees = |one: &&Installed| {
        one.admins.contains(&user) || one.repositories.iter().any(|id| played.repositories.get(id).is_some_and(reads))
    };
    match rest {
        [] => say(200, json!({ "id": user, "login": played.users[&user] })),
        ["installations"] => {
            let mine = played.installations.iter().filter(|(_, one)| sees(one));
            let mine: Vec<Value> = mine.map(|(id, one)| described(*id, one)).collect();
            say(200, json!({ "total_count": mine.len(), "installations": mine }))
        }
        ["installations", id, "repositories"] => {
            let one = id.parse().ok().and_then(|id: i64| played.installations.get(&id)).filter(sees);
            let Some(one) = one else { return not_found() };
            let listed = one.repositories.iter().filter_map(|id| Some((*id, played.repositories.get(id)?)));
            let listed = listed.filter(|(_, repo)| reads(repo)).map(|(id, repo)| {
                let mut shown = repository(id, repo);
                let may_push = repo.pushers.contains(&user);
                shown["permissions"] = json!({ "pull": true, "push": may_push, "admin": false });
                shown
            });
            let listed: Vec<Value> = listed.collect();
            say(200, json!({ "total_count": listed.len(), "repositories": listed }))
        }
        ["memberships", "orgs", login] => {
            let one = played.installations.values().find(|one| one.login == *login && one.is_org);
            match one.filter(|one| one.admins.contains(&user)) {
                Some(_) => say(200, json!({ "state": "active", "role": "admin" })),
                None => say(403, json!({ "message": "Resource not accessible by integration" })),
            }
        }
        _ => not_found(),
    }
}

fn as_app(
    github: &GitHub,
    played: &mut Played,
    method: &str,
    rest: &[&str],
    query: &HashMap<String, String>,
    body: &Value,
) -> Response {
    match (method, rest) {
        ("GET", []) => say(200, json!({ "id": 4711, "slug": SLUG, "client_id": CLIENT_ID, "name": "Janua" })),
        ("GET", ["installations", id]) => {
            match id.parse().ok().and_then(|id: i64| Some((id, played.installations.get(&id)?))) {
                Some((id, one)) => say(200, described(id, one)),
                None => not_found(),
            }
        }
        ("DELETE", ["installations", id]) => match played.installations.remove(&id.parse().unwrap_or(-1)) {
            Some(_) => StatusCode::NO_CONTENT.into_response(),
            None => not_found(),
        },
        ("POST", ["installations", id, "access_tokens"]) => {
            let id: i64 = id.parse().unwrap_or(-1);
            let Some(one) = played.installations.get(&id).cloned() else { return not_found() };
            if one.suspended {
                return say(403, json!({ "message": "This installation has been suspended" }));
            }
            let wanted: Vec<i64> = match body["repository_ids"].as_array() {
                Some(list) => list.iter().filter_map(Value::as_i64).collect(),
                None => one.repositories.clone(),
            };
            let covers = |id: &i64| one.repositories.contains(id) && played.repositories.contains_key(id);
            if !wanted.iter().all(covers) {
                let message = "There is at least one repository that does not exist or is not accessible";
                return say(422, json!({ "message": message }));
            }
            if played.no_statuses && !body["permissions"]["statuses"].is_null() {
                return say(
                    422,
                    json!({ "message": "The permissions requested are not granted to this installation." }),
                );
            }
            played.count += 1;
            let token = format!("ghs_{}", played.count);
            let permissions = body["permissions"].clone();
            let made = Token::Installation { id, repositories: wanted, permissions: permissions.clone() };
            played.tokens.insert(token.clone(), made);
            let until = kernel::clock::Timestamp(Clock::System.now().0 + 3_600_000).to_string();
            say(
                201,
                json!({ "token": token, "expires_at": until, "permissions": permissions, "repository_selection": "selected" }),
            )
        }
        ("GET", ["hook", "deliveries"]) => {
            // Two a page, newest first.
            let from: usize = query.get("cursor").and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let newest = played.deliveries.iter().rev();
            let listed: Vec<Value> = newest
                .skip(from)
                .take(2)
                .map(|(id, guid, event, payload)| {
                    json!({ "id": id, "guid": guid, "event": event, "status_code": 502, "redelivery": false,
                        "installation_id": payload["installation"]["id"], "delivered_at": "2026-01-31T10:30:00Z" })
                })
                .collect();
            let mut response = say(200, json!(listed));
            if from + 2 < played.deliveries.len() {
                let link =
                    format!("<{}/app/hook/deliveries?per_page=2&cursor={}>; rel=\"next\"", github.url(), from + 2);
                response.headers_mut().insert("link", link.parse().unwrap());
            }
            response
        }
        ("GET", ["hook", "deliveries", number]) => {
            let number: i64 = number.parse().unwrap_or(-1);
            match played.deliveries.iter().find(|one| one.0 == number) {
                Some((id, guid, event, payload)) => say(
                    200,
                    json!({ "id": id, "guid": guid, "event": event, "request": { "headers": {}, "payload": payload } }),
                ),
                None => not_found(),
            }
        }
        _ => not_found(),
    }
}

fn as_installation(
    github: &GitHub,
    played: &mut Played,
    token: &str,
    method: &str,
    (number, rest): (i64, &[&str]),
    body: &Value,
) -> Response {
    let Some(Token::Installation { id, repositories, permissions }) = played.tokens.get(token) else {
        return say(401, json!({ "message": "Bad credentials" }));
    };
    let installed = played.installations.get(id);
    let covers = installed.is_some_and(|one| !one.suspended && one.repositories.contains(&number));
    if !repositories.contains(&number) || !covers || !played.repositories.contains_key(&number) {
        return not_found();
    }
    let may = |name: &str, least: &str| match permissions[name].as_str() {
        Some("write") => true,
        Some("read") => least == "read",
        _ => false,
    };
    let denied = || say(403, json!({ "message": "Resource not accessible by integration" }));
    let repo = played.repositories[&number].clone();
    let tip = |sha: &str| {
        json!({ "sha": sha, "html_url": format!("https://github.example/{}/commit/{sha}", repo.full_name),
                "commit": { "message": "Change the page\n\nMore.", "author": { "name": "Ada" } } })
    };
    match (method, rest) {
        ("GET", []) if may("metadata", "read") => say(200, repository(number, &repo)),
        ("GET", ["branches", name]) if may("contents", "read") => match repo.branches.get(*name) {
            Some(sha) => say(200, json!({ "name": name, "commit": tip(sha) })),
            None => not_found(),
        },
        ("GET", ["pulls", pull]) if may("pull_requests", "read") => {
            match repo.pulls.get(&pull.parse().unwrap_or(-1)) {
                Some(pull) => say(
                    200,
                    json!({ "state": if pull.is_open { "open" } else { "closed" }, "title": "A change",
                            "user": { "login": "ada" }, "html_url": "https://github.example/pull",
                            "head": { "sha": pull.sha, "ref": pull.branch, "repo": { "id": pull.head_repository } } }),
                ),
                None => not_found(),
            }
        }
        ("GET", ["tarball", sha]) if may("contents", "read") => {
            // Another name of this machine, so that it is another host.
            let to = format!("http://localhost:{}/codeload/{number}/{sha}", github.port);
            (StatusCode::FOUND, [("location", to)]).into_response()
        }
        ("POST", ["statuses", sha]) if may("statuses", "write") => {
            played.statuses.push((number, (*sha).to_owned(), body.clone()));
            say(201, json!({ "id": played.statuses.len() }))
        }
        ("GET", ["issues", pull, "comments"]) if may("pull_requests", "write") => {
            let pull: i64 = pull.parse().unwrap_or(-1);
            let listed = played.comments.iter().filter(|(_, one)| (one.0, one.1) == (number, pull));
            say(200, json!(listed.map(|(id, one)| json!({ "id": id, "body": one.2 })).collect::<Vec<_>>()))
        }
        ("POST", ["issues", pull, "comments"]) if may("pull_requests", "write") => {
            played.count += 1;
            let (id, text) = (played.count, body["body"].as_str().unwrap_or_default().to_owned());
            played.comments.insert(id, (number, pull.parse().unwrap_or(-1), text));
            say(201, json!({ "id": id }))
        }
        ("PATCH", ["issues", "comments", id]) if may("pull_requests", "write") => {
            match played.comments.get_mut(&id.parse().unwrap_or(-1)) {
                Some(comment) => {
                    body["body"].as_str().unwrap_or_default().clone_into(&mut comment.2);
                    say(200, json!({ "id": id }))
                }
                None => not_found(),
            }
        }
        (_, ["branches" | "pulls" | "tarball" | "statuses" | "issues", ..]) => denied(),
        _ => not_found(),
    }
}
