//! The session cookies: their names, how they are set and how they are read.
//!
//! Values are tokens of our own that need no quoting, so a line of text does what a cookie library would.
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use kernel::{Janua, crypto::Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const ACCESS: [&str; 2] = ["__Host-service_access", "service_access"];
pub const REFRESH: [&str; 2] = ["__Host-service_refresh", "service_refresh"];

/// A device on which the second factor was proven not long ago.
pub const TRUSTED: [&str; 2] = ["__Host-service_mfa_trusted", "service_mfa_trusted"];

/// The sign-in at another provider that this browser started.
pub const SOCIAL: [&str; 2] = ["__Host-service_oauth", "service_oauth"];

/// The cookie of a browser that requested a mail. It proves to the link in the mail that it is the same browser.
pub const BEGAN: [&str; 2] = ["__Host-service_began", "service_began"];

/// The sign-in of this browser that waits for its second factor.
pub const WAITING: [&str; 2] = ["__Host-service_waiting", "service_waiting"];

/// How a client wants its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// In cookies that scripts cannot read.
    #[default]
    Cookie,
    /// In the answer, for programs that are no browsers.
    Body,
}

/// A cookie by either of its names, the stricter one first.
pub fn read(headers: &HeaderMap, names: [&str; 2]) -> Option<Secret> {
    peek(headers, names).map(|value| value.to_owned().into())
}

/// Borrows the cookie. Used for every request, because wiping a copied secret costs time.
pub(super) fn peek<'h>(headers: &'h HeaderMap, names: [&str; 2]) -> Option<&'h str> {
    names.into_iter().find_map(|name| {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        found.filter(|value| !value.is_empty())
    })
}

/// A cookie by the name that this server sets it by. Where that is the strict one, no neighbouring host can have set
/// it.
pub fn read_strictly(janua: &Janua, headers: &HeaderMap, names: [&str; 2]) -> Option<Secret> {
    let name = if janua.config.is_https() { names[0] } else { names[1] };
    read(headers, [name, name])
}

/// Sets a cookie for this many seconds; 0 deletes it.
fn set(janua: &Janua, names: [&str; 2], value: &str, seconds: i64, out: &mut HeaderMap) {
    if !value.is_empty() {
        db::answer_opens_account();
    }
    let is_https = janua.config.is_https();
    let name = if is_https { names[0] } else { names[1] };
    let secure = if is_https { "; Secure" } else { "" };
    let line = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    if let Ok(mut line) = HeaderValue::try_from(line) {
        line.set_sensitive(true);
        out.append(header::SET_COOKIE, line);
    }
}

pub fn set_session(
    janua: &Janua,
    access: &str,
    access_seconds: i64,
    refresh: &Secret,
    refresh_seconds: i64,
    out: &mut HeaderMap,
) {
    set_access(janua, access, access_seconds, out);
    set(janua, REFRESH, refresh.expose(), refresh_seconds, out);
}

pub fn set_access(janua: &Janua, access: &str, seconds: i64, out: &mut HeaderMap) {
    set(janua, ACCESS, access, seconds, out);
}

pub fn set_trusted(janua: &Janua, token: &Secret, life: Duration, out: &mut HeaderMap) {
    set(janua, TRUSTED, token.expose(), i64::try_from(life.as_secs()).unwrap_or(i64::MAX), out);
}

pub fn clear_trusted(janua: &Janua, out: &mut HeaderMap) {
    set(janua, TRUSTED, "", 0, out);
}

pub fn set_social(janua: &Janua, token: &Secret, life: Duration, out: &mut HeaderMap) {
    set(janua, SOCIAL, token.expose(), i64::try_from(life.as_secs()).unwrap_or(i64::MAX), out);
}

pub fn clear_social(janua: &Janua, out: &mut HeaderMap) {
    set(janua, SOCIAL, "", 0, out);
}

pub fn set_began(janua: &Janua, sealed: &str, life: Duration, out: &mut HeaderMap) {
    set(janua, BEGAN, sealed, i64::try_from(life.as_secs()).unwrap_or(i64::MAX), out);
}

pub fn set_waiting(janua: &Janua, sealed: &str, life: Duration, out: &mut HeaderMap) {
    set(janua, WAITING, sealed, i64::try_from(life.as_secs()).unwrap_or(i64::MAX), out);
}

pub fn clear_waiting(janua: &Janua, out: &mut HeaderMap) {
    set(janua, WAITING, "", 0, out);
}

pub fn clear_session(janua: &Janua, out: &mut HeaderMap) {
    set(janua, ACCESS, "", 0, out);
    set(janua, REFRESH, "", 0, out);
}
