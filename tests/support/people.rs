//! People in front of the binary: they sign up, read their mail, sign in, and have an app.
use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use super::{Server, mail_with_all, token_in, wait};

pub const PASSWORD: &str = "correct horse battery staple";

/// One request on a connection of its own.
pub fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, said) = server.visit().ask(method, path, token, &text);
    (status, serde_json::from_str(&said).unwrap_or_default())
}

/// The body of an answer that must be a good one.
pub fn well(answer: (u16, Value)) -> Value {
    assert!((200..300).contains(&answer.0), "{answer:?}");
    answer.1
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// A mail that lies in the outbox of any of these folders.
pub fn mail_in(folders: &[&Path], to: &str, words: &str) -> String {
    let said = format!("To: {to}");
    let find = || folders.iter().find_map(|folder| mail_with_all(&folder.join("data/outbox"), &[&said, words]));
    wait(&format!("the mail to {to}"), find)
}

/// An account with a confirmed address.
pub fn member(server: &Server, folders: &[&Path], email: &str) {
    well(ask(server, "POST", "/auth/register", "", &json!({ "email": email, "password": PASSWORD, "name": "Ada" })));
    let token = token_in(&mail_in(folders, email, "?token="));
    well(ask(server, "POST", "/auth/verify-email", "", &json!({ "token": token })));
}

pub fn login(server: &Server, email: &str, password: &str) -> (u16, Value) {
    let body = json!({ "email": email, "password": password, "options": { "tokenDelivery": "body" } });
    ask(server, "POST", "/auth/login", "", &body)
}

/// Somebody who is signed in and has an organization with an app.
pub struct Owner {
    pub access: String,
    pub refresh: String,
    pub org: String,
    pub app: String,
}

pub fn owner(server: &Server, folders: &[&Path], email: &str) -> Owner {
    member(server, folders, email);
    let person = well(login(server, email, PASSWORD));
    let access = text(&person["accessToken"]);
    let org = text(&well(ask(server, "POST", "/org", &access, &json!({ "name": "Example" })))["id"]);
    let app = text(&well(ask(server, "POST", "/apps", &access, &json!({ "name": "Shop", "orgId": org })))["id"]);
    Owner { access, refresh: text(&person["refreshToken"]), org, app }
}

impl Owner {
    pub fn keys(&self) -> String {
        format!("/apps/{}/keys", self.app)
    }

    pub fn hooks(&self) -> String {
        format!("/apps/{}/webhooks", self.app)
    }
}

/// Lets [`NEW_HOOK`] be.
pub const ALLOW_HOOKS: (&str, &str) = ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8");

/// A webhook that hears nothing: a small thing that is written durably, with an event, and can be counted afterwards.
pub const NEW_HOOK: &str = r#"{"url":"https://127.0.0.1:9/","events":["user.mfa_disabled"]}"#;

/// The id in the answer to [`NEW_HOOK`].
pub fn id_in(body: &str) -> String {
    text(&serde_json::from_str::<Value>(body).unwrap_or_default()["id"])
}

/// Every webhook of an app.
pub fn all_hooks(server: &Server, owner: &Owner, access: &str) -> BTreeSet<String> {
    let (mut there, mut cursor) = (BTreeSet::new(), String::new());
    let mut visit = server.visit();
    loop {
        let (status, said) = visit.ask("GET", &format!("{}?limit=200{cursor}", owner.hooks()), access, "");
        assert_eq!(status, 200, "{said}");
        let page: Value = serde_json::from_str(&said).unwrap_or_default();
        there.extend(page["webhooks"].as_array().into_iter().flatten().map(|hook| text(&hook["id"])));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return there,
        }
    }
}

/// What an app's key opens for itself: 200, or 401 when it is none.
pub fn with_key(server: &Server, key: &str) -> u16 {
    let body = "grant_type=client_credentials";
    let head = "POST /oauth/token HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded";
    let request = format!("{head}\r\nX-Service-App-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    server.send(request.as_bytes()).0
}
