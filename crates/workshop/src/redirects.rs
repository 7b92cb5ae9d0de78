//! Addresses an app may send people to, and origins whose pages may call: each is checked when it is written down, so
//! that later it only has to be compared.
use kernel::fault::{Fault, INVALID, Result};
use url::{Host, Url};

const LONGEST: usize = 2000;

/// Refuses what cannot be one, and names every one that cannot.
pub fn check(redirect_uris: &[String], allowed_origins: &[String]) -> Result<()> {
    let uris = redirect_uris
        .iter()
        .enumerate()
        .filter_map(|(i, uri)| wrong_redirect(uri).map(|message| (format!("redirectUris.{i}"), message)));
    let origins = allowed_origins.iter().enumerate().filter_map(|(i, origin)| {
        let message = "must be a scheme and a host, such as https://app.example.com";
        origin_of(origin).is_none().then(|| (format!("allowedOrigins.{i}"), message))
    });
    let wrong: Vec<_> = uris.chain(origins).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let fault =
        wrong.into_iter().fold(Fault::from(INVALID), |fault, (field, say)| fault.and(field, "wrong_form", say));
    Err(fault)
}

/// Origins as browsers write them.
pub fn origins(given: &[String]) -> Vec<String> {
    given.iter().filter_map(|origin| origin_of(origin)).collect()
}

fn origin_of(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= LONGEST && !text.contains(['*', '\\']))?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && is_nameless(&url);
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    (is_bare && is_safe).then(|| url.origin().ascii_serialization())
}

/// Why this is no address to send people to; nothing when it is one.
fn wrong_redirect(text: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(text) else { return Some("must be a whole address") };
    if text.len() > LONGEST || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Some("must have at most 2000 characters and no spaces");
    }
    if url.fragment().is_some() || text.contains('#') {
        return Some("must have no fragment");
    }
    if text.contains(['*', '\\']) || !is_nameless(&url) {
        return Some("must have no wildcard, no backslash and no user name");
    }
    // What is compared to the letter is written as it is read.
    if url.host().is_some() && !text.starts_with(&format!("{}://", url.scheme())) {
        return Some("must be written out, with its scheme and two slashes");
    }
    match url.scheme() {
        "https" => None,
        "http" if is_loopback(&url) => None,
        "http" => Some("must be https, but for loopback"),
        // A native app's own scheme is a domain turned around (RFC 8252), which none of the dangerous ones is.
        scheme if scheme.contains('.') => None,
        _ => Some("must be https, http on loopback, or a scheme of your own such as com.example.app"),
    }
}

fn is_nameless(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_pass_and_dangerous_ones_do_not() {
        for good in [
            "https://app.example.com/callback",
            "https://app.example.com/callback?tenant=1",
            "http://localhost:3000/callback",
            "http://127.0.0.1/cb",
            "http://[::1]:9/cb",
            "com.example.app:/oauth",
        ] {
            assert_eq!(wrong_redirect(good), None, "{good}");
        }
        for bad in [
            "http://app.example.com/cb",
            "https://app.example.com/cb#x",
            "https://app.example.com/cb#",
            "https://*.example.com/cb",
            "https://user:pw@app.example.com/cb",
            "javascript:alert(1)",
            "data:text/html,x",
            "/callback",
            "https://app.example.com/a b",
            "https://a.example\\@evil.example/cb",
            "https:a.example/cb",
            "https:/a.example/cb",
            "",
        ] {
            assert!(wrong_redirect(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        assert_eq!(origin_of("https://App.Example.com"), Some("https://app.example.com".into()));
        assert_eq!(origin_of("https://app.example.com:443/"), Some("https://app.example.com".into()));
        assert_eq!(origin_of("http://localhost:3000"), Some("http://localhost:3000".into()));
        for bad in
            ["https://a.example/x", "http://a.example", "null", "*", "https://u@a.example", "https://a.example?x"]
        {
            assert_eq!(origin_of(bad), None, "{bad}");
        }
    }
}
