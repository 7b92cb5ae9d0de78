//! People in tests: they sign up, read their mail, sign in. Other features' tests need them, too.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]
use kernel::{
    config::Config,
    testing::{Answer, Ask, TestJanua},
};
use serde_json::{Value, json};

pub use crate::social::Settings as SocialSettings;

pub const PASSWORD: &str = "correct horse battery staple";

pub fn feature(config: &Config) -> kernel::feature::Feature {
    tenancy::feature(config).and(crate::feature(config))
}

pub async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

/// The newest mail to somebody, decoded.
pub fn mail_to(t: &TestJanua, address: &str) -> Option<String> {
    let mails = t.mailbox.mails();
    let found = mails.iter().rev().find(|mail| mail.contains(&format!("To: {address}")))?;
    Some(readable(found))
}

/// A mail as it goes over the wire, with its text and its HTML decoded.
pub fn readable(mail: &str) -> String {
    let head = mail.split("\r\n\r\n").next().unwrap_or_default();
    let parsed = mail_parser::MessageParser::new().parse(mail.as_bytes()).expect("a mail");
    let (text, html) = (parsed.body_text(0).unwrap_or_default(), parsed.body_html(0).unwrap_or_default());
    format!("{head}\r\n\r\n{text}\r\n{html}")
}

/// The token of the link in a mail.
pub fn token_in(mail: &str) -> String {
    let start = mail.find("?token=").expect("a link") + "?token=".len();
    mail[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// The code in a mail.
pub fn code_in(mail: &str) -> String {
    let start = mail.find("Code: ").expect("a code") + "Code: ".len();
    mail[start..start + 6].to_owned()
}

pub fn sign_up_body(email: &str) -> Value {
    json!({ "email": email, "password": PASSWORD, "name": "Ada" })
}

/// Signs up and lets the mail come.
pub async fn register(t: &TestJanua, email: &str) -> Answer {
    let answer = t.post("/auth/register").json(&sign_up_body(email)).await;
    t.run_jobs().await;
    answer
}

/// An account with a confirmed address.
pub async fn member(t: &TestJanua, email: &str) {
    register(t, email).await;
    let token = token_in(&mail_to(t, email).expect("a mail"));
    let answer = t.post("/auth/verify-email").json(&json!({ "token": token })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

pub async fn login(t: &TestJanua, email: &str, password: &str) -> Answer {
    let body = json!({ "email": email, "password": password, "options": { "tokenDelivery": "body" } });
    t.post("/auth/login").json(&body).header("user-agent", FIREFOX).await
}

pub const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
pub const SAFARI: &str =
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile Safari/604.1";

/// A signed-in person with tokens in hand.
pub struct Person {
    pub access: String,
    pub refresh: String,
    pub id: String,
}

impl Person {
    pub fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            access: text(&answer.body["accessToken"]),
            refresh: text(&answer.body["refreshToken"]),
            id: text(&answer.body["user"]["id"]),
        }
    }

    pub fn asks<'a>(&self, ask: Ask<'a>) -> Ask<'a> {
        ask.header("authorization", &format!("Bearer {}", self.access))
    }
}

/// Somebody who has an account and is signed in.
pub async fn signed_in(t: &TestJanua, email: &str) -> Person {
    member(t, email).await;
    Person::of(&login(t, email, PASSWORD).await)
}

pub async fn refresh(t: &TestJanua, token: &str) -> Answer {
    t.post("/auth/refresh").json(&json!({ "refreshToken": token })).await
}
