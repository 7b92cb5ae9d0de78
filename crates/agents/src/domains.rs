//! Names of domains, in the one form they have in DNS.
use kernel::Janua;
use public_suffix::EffectiveTLDProvider as _;
use url::{Host, Url};

/// A domain that somebody can own, as it stands in DNS: no IP address, no port, no public suffix, not our own host.
pub fn parse(janua: &Janua, text: &str) -> Option<String> {
    if text.contains([':', '/', '@', '?', '#', '\\', '%']) {
        return None;
    }
    let Ok(Host::Domain(name)) = Host::parse(text.trim().trim_end_matches('.')) else { return None };
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let ours = Url::parse(&janua.config.base_url()).ok().and_then(|url| url.domain().map(str::to_owned));
    let is_registrable = public_suffix::DEFAULT_PROVIDER.effective_tld_plus_one(&name).is_ok();
    let is_whole = name.contains('.') && name.split('.').all(is_label) && name.len() <= 230;
    (is_whole && is_registrable && Some(&name) != ours.as_ref()).then_some(name)
}

/// The labels from right to left: `com.example` for `example.com`.
pub fn reversed(domain: &str) -> String {
    domain.split('.').rev().collect::<Vec<_>>().join(".")
}

/// The host of an https URL. Variables in braces may stand in its path alone: their values come from elsewhere.
pub fn host(url: &str) -> Option<String> {
    let authority = url.strip_prefix("https://")?.split(['/', '?', '#', '\\']).next()?;
    if authority.contains(['{', '}', '@', '%']) {
        return None;
    }
    Url::parse(url).ok()?.domain().map(str::to_owned)
}

/// Whether a host is a domain or lies below it.
pub fn covers(domain: &str, host: &str) -> bool {
    host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_never_decides_the_host() {
        assert_eq!(host("https://mcp.example.com/{tenant}/mcp").as_deref(), Some("mcp.example.com"));
        assert_eq!(host("https://MCP.example.com:8443").as_deref(), Some("mcp.example.com"));
        for url in [
            "https://{tenant}.example.com/mcp",
            "https://{host}\\.example.com/",
            "https://evil.test%2f.example.com/",
            "https://user@example.com/",
            "http://example.com/",
            "{base}/mcp",
            "https://127.0.0.1/",
            "",
        ] {
            assert_eq!(host(url), None, "{url}");
        }
    }
}
