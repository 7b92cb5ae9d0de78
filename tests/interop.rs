//! Published clients of OAuth and OpenID Connect against the running binary, with a person who signs in and says yes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test on the real clock that fails when it must"
)]
mod binary;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use binary::{Server, browser::Browser, mail_with, token_in, wait};
use openidconnect::{
    AccessTokenHash, AuthenticationFlow, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest,
    HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, RedirectUrl, Scope,
    TokenResponse as _,
    core::{CoreClient, CoreProviderMetadata, CoreResponseType, CoreUserInfoClaims},
};
use serde_json::{Value, json};

const EMAIL: &str = "ada@example.com";
const PASSWORD: &str = "correct horse battery staple";
const REDIRECT: &str = "http://127.0.0.1:9/callback";

/// A service with somebody in it, and an app of somebody else's.
struct Stage {
    server: Server,
    client_id: String,
    secret: String,
    _folder: tempfile::TempDir,
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.visit().ask(method, path, token, &body);
    assert!(status < 300, "{method} {path}: {status} {answer}");
    serde_json::from_str(&answer).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn sign_up(server: &Server, folder: &Path, email: &str) -> String {
    let body = json!({ "email": email, "password": PASSWORD, "name": "Ada" });
    ask(server, "POST", "/auth/register", "", &body);
    let outbox = folder.join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, &format!("To: {email}")));
    ask(server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
    let body = json!({ "email": email, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    text(&ask(server, "POST", "/auth/login", "", &body)["accessToken"])
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), &[]);
        sign_up(&server, folder.path(), EMAIL);
        let eve = sign_up(&server, folder.path(), "eve@example.com");
        let app = ask(&server, "POST", "/apps", &eve, &json!({ "name": "Eve", "redirectUris": [REDIRECT] }));
        let client_id = text(&app["id"]);
        let key = json!({ "type": "secret", "environment": "live" });
        let secret = text(&ask(&server, "POST", &format!("/apps/{client_id}/keys"), &eve, &key)["value"]);
        Self { server, client_id, secret, _folder: folder }
    }

    fn base(&self) -> String {
        format!("http://localhost:{}", self.server.address.port())
    }

    /// Runs a client that says where its person must go, and answers what it got done.
    fn run(&self, mut command: Command) -> Vec<String> {
        command.args([&self.base(), &self.client_id, &self.secret, REDIRECT]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the client starts");
        let (mut input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (mut browser, mut done) = (Browser::new(&self.server), vec![]);
        for line in output.lines() {
            let line = line.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["open", link] => {
                    let back = browser.go_through(link, EMAIL, PASSWORD);
                    writeln!(input, "{back}").unwrap();
                }
                ["device", link, code] => {
                    browser.approve(link, code, EMAIL, PASSWORD);
                    writeln!(input, "done").unwrap();
                }
                _ => done.push(line),
            }
        }
        assert!(child.wait().unwrap().success(), "{done:?}");
        assert_eq!(done.last().map(String::as_str), Some("done"), "{done:?}");
        done
    }
}

#[test]
fn openid_client_for_node() {
    let node = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let script = Path::new(&node).join("openid-client.mjs");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers/openid-client.mjs"), &script)
        .unwrap();
    let mut command = Command::new("node");
    command.arg(script);
    let done = Stage::set().run(command);
    assert_eq!(done.len(), 11, "{done:?}");
}

#[test]
fn authlib_for_python() {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers/authlib_client.py"));
    let done = Stage::set().run(command);
    assert_eq!(done.len(), 11, "{done:?}");
}

/// What the library sends, over a socket.
fn carry(server: &Server, request: &HttpRequest) -> HttpResponse {
    let path = request.uri().path_and_query().expect("a path").as_str();
    let headers = request.headers().iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    let headers: String = headers.collect();
    let head = format!("{} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}", request.method());
    let body = String::from_utf8(request.body().clone()).unwrap();
    let (status, answer) = server.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let mut response = axum::http::Response::builder().status(status);
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    response.body(body.as_bytes().to_vec()).unwrap()
}

#[test]
fn openidconnect_for_rust() {
    let stage = Stage::set();
    let http = |request: HttpRequest| Ok::<_, std::io::Error>(carry(&stage.server, &request));
    let metadata = CoreProviderMetadata::discover(&IssuerUrl::new(stage.base()).unwrap(), &http).unwrap();
    let userinfo = metadata.userinfo_endpoint().unwrap().clone();
    let secret = Some(ClientSecret::new(stage.secret.clone()));
    let client = CoreClient::from_provider_metadata(metadata, ClientId::new(stage.client_id.clone()), secret)
        .set_redirect_uri(RedirectUrl::new(REDIRECT.into()).unwrap())
        .set_user_info_url(userinfo);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let flow = AuthenticationFlow::<CoreResponseType>::AuthorizationCode;
    let (link, state, nonce) = client
        .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
        .add_scopes(["profile", "email", "offline_access"].map(|scope| Scope::new(scope.into())))
        .set_pkce_challenge(challenge)
        .url();
    let back = Browser::new(&stage.server).go_through(link.as_str(), EMAIL, PASSWORD);
    let back = url::Url::parse(&back).unwrap();
    let get = |name: &str| back.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    assert_eq!(&get("state"), state.secret());
    let code = AuthorizationCode::new(get("code"));
    let tokens = client.exchange_code(code).unwrap().set_pkce_verifier(verifier).request(&http).unwrap();
    let id_token = tokens.id_token().expect("an id token");
    let verifier = client.id_token_verifier();
    let claims = id_token.claims(&verifier, &nonce).unwrap();
    assert_eq!(claims.email().map(|email| email.as_str()), Some(EMAIL));
    let hash = AccessTokenHash::from_token(
        tokens.access_token(),
        id_token.signing_alg().unwrap(),
        id_token.signing_key(&verifier).unwrap(),
    );
    assert_eq!(claims.access_token_hash(), Some(&hash.unwrap()));
    let about: CoreUserInfoClaims =
        client.user_info(tokens.access_token().clone(), Some(claims.subject().clone())).request(&http).unwrap();
    assert_eq!(about.email_verified(), Some(true));
    let turned = client.exchange_refresh_token(tokens.refresh_token().unwrap()).unwrap().request(&http).unwrap();
    assert!(turned.id_token().unwrap().claims(&verifier, |_: Option<&Nonce>| Ok(())).is_ok());
}
