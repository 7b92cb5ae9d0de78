//! Redirect URIs of an app, and origins whose pages may call: each is checked when it is stored, so that later it is
//! only compared.
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

/// Whether a redirect URI is registered: compared exactly, except for the port on loopback, which a native app learns
/// late.
pub fn is_registered(registered: &[String], asked: &str) -> bool {
    let portless = without_loopback_port(asked);
    registered.iter().any(|known| known == asked || (portless.is_some() && without_loopback_port(known) == portless))
}

/// A loopback URI without its port; none for any other URI. Works on the text itself: a text that is compared exactly
/// must not be parsed and written first.
fn without_loopback_port(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("http://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = ["127.0.0.1", "[::1]", "localhost"].into_iter().find(|host| {
        let port = authority.strip_prefix(host);
        port.is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    })?;
    Some(format!("http://{host}{path}"))
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Origins as browsers write them.
pub fn origins(given: &[String]) -> Vec<String> {
    given.iter().filter_map(|origin| origin_of(origin)).collect()
}

fn origin_of(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= LONGEST && !text.contains(['*', '\\']))?;
    let is_bare = has_plain_host(&url)
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && is_nameless(&url);
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
    (is_bare && is_safe).then(|| url.origin().ascii_serialization())
}

/// The reason why a text is no redirect URI; none when it is one.
pub fn wrong_redirect(text: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(text) else { return Some("must be a complete URL") };
    if text.len() > LONGEST || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Some("must have at most 2000 characters and no spaces");
    }
    if url.fragment().is_some() || text.contains('#') {
        return Some("must have no fragment");
    }
    if text.contains(['*', '\\']) || !is_nameless(&url) {
        return Some("must have no wildcard, no backslash and no user name");
    }
    if !has_plain_host(&url) {
        return Some("must have a host of letters, digits, dots, hyphens and underscores");
    }
    // What is compared to the letter is written as it is read.
    if url.host().is_some() && !text.starts_with(&format!("{}://", url.scheme())) {
        return Some("must be written out, with its scheme and two slashes");
    }
    match url.scheme() {
        "https" => None,
        "http" if is_loopback(&url) => None,
        "http" => Some("must be https, but for loopback"),
        scheme if DANGEROUS.contains(&scheme) => Some("must not have a scheme that browsers or systems act on"),
        // A native app's own scheme is a domain turned around (RFC 8252), which none of the dangerous ones is.
        scheme if scheme.contains('.') => None,
        // Editors use a plain word. With two slashes and a host behind it, it is no command to the system.
        scheme if scheme.len() > 1 && url.host_str().is_some_and(|host| !host.is_empty()) => None,
        _ => Some("must be https, http on loopback, or a scheme of your own such as com.example.app or app://host"),
    }
}

/// Schemes that a browser runs, opens itself or hands to the system, also when they are written with a host.
const DANGEROUS: [&str; 40] = [
    "about",
    "app",
    "blob",
    "chrome",
    "chrome-extension",
    "content",
    "data",
    "devtools",
    "edge",
    "file",
    "filesystem",
    "ftp",
    "ftps",
    "git",
    "intent",
    "itms-services",
    "jar",
    "javascript",
    "ldap",
    "ldaps",
    "livescript",
    "magnet",
    "mailto",
    "market",
    "mhtml",
    "mocha",
    "moz-extension",
    "ms-msdt",
    "resource",
    "res",
    "search-ms",
    "sftp",
    "shell",
    "smb",
    "ssh",
    "telnet",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];

/// Whether this is an http URL on loopback that names its port.
pub fn names_loopback_port(uri: &str) -> bool {
    without_loopback_port(uri).is_some_and(|portless| portless != uri)
}

/// A host, if there is one, holds nothing that separates in a header: it is named in the policies of our pages.
fn has_plain_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => true,
    }
}

fn is_nameless(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none()
}

pub fn is_loopback(url: &Url) -> bool {
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
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "vscode://publisher.extension/cb",
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
            "javascript://host/%0aalert(1)",
            "data:text/html,x",
            "data://host/x",
            "file:///etc/passwd",
            "blob:https://a.example/x",
            "about://blank",
            "wss://a.example/",
            "intent://a.example/",
            "x://a/b",
            "cursor:",
            "cursor:/x",
            "cursor:///x",
            "/callback",
            "https://app.example.com/a b",
            "https://a.example\\@evil.example/cb",
            "https:a.example/cb",
            "https:/a.example/cb",
            "https://a;b.example/cb",
            "https://a.example,b.example/cb",
            "https://a'b.example/cb",
            "cursor://a;b/cb",
            "cursor://a,b/cb",
            "",
        ] {
            assert!(wrong_redirect(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn p08_people_are_sent_to_what_was_written_down_and_nowhere_near_it() {
        let registered: Vec<String> =
            ["https://a.example/cb", "http://127.0.0.1/cb", "http://localhost:3000/cb?x=1"].map(Into::into).into();
        for same in [
            "https://a.example/cb",
            "http://127.0.0.1/cb",
            "http://127.0.0.1:49152/cb",
            "http://localhost/cb?x=1",
            "http://localhost:65535/cb?x=1",
        ] {
            assert!(is_registered(&registered, same), "{same}");
        }
        for other in [
            "https://a.example/cb2",
            "https://a.example/cb/",
            "https://a.example/cb/../x",
            "https://a.example/cb?x=1",
            "https://a.example/cb#f",
            "http://a.example/cb",
            "https://a.example:8443/cb",
            "https://a.example:443/cb",
            "https://A.example/cb",
            "https://a.example@evil.example/cb",
            "https://a.example.evil.example/cb",
            "https://aXexample/cb",
            "http://127.0.0.1:49152/other",
            "http://127.0.0.1:x/cb",
            "http://127.0.0.1:@evil.example/cb",
            "http://127.0.0.1:65536/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://127.0.0.2/cb",
            "http://[::1]/cb",
            "https://127.0.0.1/cb",
            "http://localhost:1/cb",
            "",
        ] {
            assert!(!is_registered(&registered, other), "{other}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        assert_eq!(origin_of("https://App.Example.com"), Some("https://app.example.com".into()));
        assert_eq!(origin_of("https://app.example.com:443/"), Some("https://app.example.com".into()));
        assert_eq!(origin_of("http://localhost:3000"), Some("http://localhost:3000".into()));
        for bad in [
            "https://a.example/x",
            "http://a.example",
            "null",
            "*",
            "https://u@a.example",
            "https://a.example?x",
            "https://a;b.example",
            "https://a,b.example",
        ] {
            assert_eq!(origin_of(bad), None, "{bad}");
        }
    }
}
