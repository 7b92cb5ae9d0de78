//! Clients and people through the front door: codes, consents, pages.
mod account;
mod attacks;
mod billing;
mod branding;
mod challenges;
mod clients;
mod code;
mod codes;
mod consents;
mod console;
mod dead_ends;
mod deployments;
mod devices;
mod docs;
mod domains;
mod email;
mod feedback;
mod first_owner;
mod form_post;
mod forms;
mod hosted;
mod insights;
mod leaving;
mod look;
mod machines;
mod mails;
mod overview;
mod pages;
mod people;
mod reference;
mod resources;
mod skills;
mod status;
mod stock_clients;
mod storage;
mod usage;
mod way_back;

use data_encoding::BASE64URL_NOPAD;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    crypto,
    feature::Feature,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};
use url::{Url, form_urlencoded::Serializer};

fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(hosting::feature(config))
        .and(market::feature(config))
        .and(crate::feature(config))
}

/// With what the service says about itself.
fn whole(config: &Config) -> Feature {
    feature(config).and(site::feature(config))
}

async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

const REDIRECT: &str = "https://app.example/cb?tenant=1";
const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";
const FORM: &str = "application/x-www-form-urlencoded";

fn challenge() -> String {
    BASE64URL_NOPAD.encode(&crypto::digest(VERIFIER.as_bytes()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An app, as a client of the standard.
struct Client {
    id: String,
    secret: String,
    publishable: String,
}

async fn client(t: &TestJanua, owner: &Person, name: &str) -> Client {
    let body = json!({ "name": name, "redirectUris": [REDIRECT, "http://127.0.0.1/cb", "com.example.app:/cb"],
        "allowedOrigins": ["https://app.example"] });
    let made = owner.asks(t.post("/apps").json(&body)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["id"]);
    let mut keys = vec![];
    for kind in ["publishable", "secret"] {
        let body = json!({ "type": kind, "environment": "live" });
        let made = owner.asks(t.post(&format!("/apps/{id}/keys")).json(&body)).await;
        keys.push(text(&made.body["value"]));
    }
    Client { id, secret: keys.remove(1), publishable: keys.remove(0) }
}

fn query(pairs: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// What a good client asks for, with some of it changed; an empty value leaves something out.
fn asked(client: &str, changes: &[(&str, &str)]) -> String {
    let digest = challenge();
    let mut pairs = vec![
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("scope", "openid profile email offline_access"),
        ("state", "xyz"),
        ("nonce", "n-1"),
        ("code_challenge", digest.as_str()),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in changes {
        pairs.retain(|(known, _)| known != name);
        pairs.push((name, value));
    }
    pairs.retain(|(_, value)| !value.is_empty());
    query(&pairs)
}

async fn authorize(t: &TestJanua, who: Option<&Person>, query: &str) -> Answer {
    let ask = t.get(&format!("/oauth/authorize?{query}"));
    match who {
        Some(person) => person.asks(ask).await,
        None => ask.await,
    }
}

/// Where somebody is sent, and what is said there.
fn sent(answer: &Answer) -> (String, Vec<(String, String)>) {
    assert_eq!(answer.status, 303, "{}", answer.text);
    let to = Url::parse(answer.header("location")).expect("an address");
    let pairs = to.query_pairs().into_owned().collect();
    (to[..url::Position::AfterPath].to_owned(), pairs)
}

fn field(answer: &Answer, name: &str) -> Option<String> {
    sent(answer).1.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

async fn code(t: &TestJanua, who: &Person, client: &Client) -> String {
    let answer = authorize(t, Some(who), &asked(&client.id, &[])).await;
    field(&answer, "code").unwrap_or_else(|| panic!("no code: {:?}", answer.headers))
}

/// As clients of the standard send it.
async fn form(t: &TestJanua, path: &str, fields: &[(&str, &str)], header: Option<(&str, &str)>) -> Answer {
    let ask = t.post(path).header("content-type", FORM).body(query(fields));
    match header {
        Some((name, value)) => ask.header(name, value).await,
        None => ask.await,
    }
}

/// Redeems a code as a public client, with some of it changed.
async fn redeem(t: &TestJanua, client: &str, code: &str, changes: &[(&str, &str)]) -> Answer {
    let mut fields = vec![
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ];
    for (name, value) in changes {
        fields.retain(|(known, _)| known != name);
        fields.push((name, value));
    }
    fields.retain(|(_, value)| !value.is_empty());
    form(t, "/oauth/token", &fields, None).await
}

fn error_of(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.body["error"].as_str().unwrap_or_default())
}

async fn with_token(t: &TestJanua, path: &str, token: &str) -> Answer {
    t.get(path).header("authorization", &format!("Bearer {token}")).await
}

/// The claims of a token.
fn claims(token: &Value) -> Value {
    let token = token.as_str().expect("a token");
    let part = token.split('.').nth(1).expect("claims");
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).expect("base64")).expect("JSON")
}

/// The cookies an answer sets, as a browser sends them back.
fn cookies(answer: &Answer) -> String {
    let lines = answer.headers.get_all("set-cookie").iter().filter_map(|line| line.to_str().ok());
    lines.filter_map(|line| line.split(';').next()).collect::<Vec<_>>().join("; ")
}

/// The value of a hidden field.
fn hidden(page: &Answer, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let at = page.text.find(&start).unwrap_or_else(|| panic!("no {name} in {}", page.text)) + start.len();
    let value = page.text[at..].split('"').next().unwrap_or_default();
    let marks = [("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    marks.iter().fold(value.to_owned(), |text, (mark, plain)| text.replace(mark, plain))
}

/// Posts a form as a browser does from our own page.
async fn submit(t: &TestJanua, path: &str, fields: &[(&str, &str)], cookies: &str) -> Answer {
    let sent = post_form(t, path, fields, cookies).await;
    if path == "/act" { followed(t, sent, fields, cookies).await } else { sent }
}

async fn post_form(t: &TestJanua, path: &str, fields: &[(&str, &str)], cookies: &str) -> Answer {
    let ask = t.post(path).header("content-type", FORM).header("origin", &base(t)).body(query(fields));
    if cookies.is_empty() { ask.await } else { ask.header("cookie", cookies).await }
}

/// Every act answers with a redirect. What was refused, or is shown once, stands on the page it leads to; otherwise this is
/// the redirect itself, without the token of its outcome.
async fn followed(t: &TestJanua, mut sent: Answer, fields: &[(&str, &str)], cookies: &str) -> Answer {
    let to = sent.header("location").to_owned();
    let Some((page, _)) = to.split_once("?told=").or_else(|| to.split_once("&told=")) else { return sent };
    assert_eq!(sent.status, 303, "{}", sent.text);
    let shown = visit(t, &to, cookies).await;
    if shown.status != 200 || fields.iter().any(|(name, _)| *name == "show") {
        return shown;
    }
    sent.headers.insert("location", page.parse().expect("a location"));
    sent
}

/// What the script on a page does with the challenge in it.
fn solve(page: &str) -> String {
    let (_, challenge) = page.split_once("data-challenge=\"").expect("a challenge");
    let challenge = challenge.split('"').next().expect("its end").replace("&quot;", "\"").replace("&#x2f;", "/");
    let challenge: altcha::Challenge = serde_json::from_str(&challenge).expect("a challenge");
    let solution = altcha::solve_challenge(altcha::SolveChallengeOptions::new(&challenge)).unwrap().expect("solved");
    data_encoding::BASE64.encode(json!({ "challenge": challenge, "solution": solution }).to_string().as_bytes())
}

/// The page of the second factor, where a sign-in leads before anybody is signed in.
async fn at_factor(t: &TestJanua, sent: &Answer) -> Answer {
    assert_eq!((sent.status, sent.header("location")), (303, "/sign-in/factor"), "{}", sent.text);
    let waiting = cookies(sent);
    assert!(waiting.starts_with("service_waiting=") && !waiting.contains("; "), "no session: {waiting}");
    visit(t, "/sign-in/factor", &waiting).await
}

fn base(t: &TestJanua) -> String {
    t.janua.config.base_url()
}

/// Somebody's browser.
async fn browser(t: &TestJanua, email: &str) -> String {
    let fields = [("email", email), ("password", identity::testing::PASSWORD)];
    let entered = submit(t, "/sign-in", &fields, "").await;
    assert!(["/account", "/console"].contains(&entered.header("location")), "{}", entered.text);
    cookies(&entered)
}

async fn visit(t: &TestJanua, to: &str, cookies: &str) -> Answer {
    t.get(to.strip_prefix(&base(t)).unwrap_or(to)).header("cookie", cookies).await
}

/// Answers the consent page.
async fn decide(t: &TestJanua, page: &Answer, decision: &str, cookies: &str) -> Answer {
    let fields = [("request", hidden(page, "request")), ("mark", hidden(page, "mark"))];
    let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
    submit(t, "/consent", &[fields[0], fields[1], ("decision", decision)], cookies).await
}

/// Sends a form of the account or the console: one request to the interface, from the page at `back`.
async fn act(t: &TestJanua, cookies: &str, call: &str, back: &str, fields: &[(&str, &str)]) -> Answer {
    let mut all = vec![("call", call), ("back", back)];
    if !fields.iter().any(|(name, _)| *name == "form") {
        all.push(("form", "it"));
    }
    let fields: Vec<_> = all.into_iter().chain(fields.iter().copied()).collect();
    submit(t, "/act", &fields, cookies).await
}
