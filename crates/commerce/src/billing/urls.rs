//! Where people go after a checkout: pages of ours, or of the app they came from.
use kernel::{
    Janua,
    config::is_loopback,
    fault::{Code, Result},
};
use tenancy::apps::Application;
use url::Url;

pub const REDIRECT_NOT_ALLOWED: Code = Code::new(
    400,
    "redirect_not_allowed",
    "People may be sent to pages of this service, or to an origin or redirect URI registered on the app.",
);

/// A URL that was given, or the page of the console that stands for it.
pub fn checked(
    janua: &Janua,
    apps: &[Application],
    field: &'static str,
    given: Option<&str>,
    otherwise: &str,
) -> Result<String> {
    let Some(given) = given else { return Ok(format!("{}{otherwise}", janua.config.base_url())) };
    if is_allowed(janua, apps, given) {
        Ok(given.to_owned())
    } else {
        Err(REDIRECT_NOT_ALLOWED.at(field, "not_allowed", "must lead to this service or to a registered origin"))
    }
}

fn is_allowed(janua: &Janua, apps: &[Application], given: &str) -> bool {
    if given.len() > 2000
        || given.contains(['\\', '#', '@'])
        || given.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return false;
    }
    let Ok(url) = Url::parse(given) else { return false };
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url);
    // What is compared is what a browser reads: nothing that is written in another way.
    if !is_safe || !given.starts_with(&url.origin().ascii_serialization()) {
        return false;
    }
    let origin = url.origin().ascii_serialization();
    origin == janua.config.base_url()
        || apps.iter().any(|app| {
            let has_origin = app.allowed_origins.contains(&origin);
            let of_redirects = app
                .redirect_uris
                .iter()
                .filter_map(|uri| Url::parse(uri).ok())
                .map(|uri| uri.origin().ascii_serialization());
            has_origin || of_redirects.into_iter().any(|known| known == origin)
        })
}
