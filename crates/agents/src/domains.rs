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

/// Whether a host is a domain or lies below it.
pub fn covers(domain: &str, host: &str) -> bool {
    host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}
