//! What can be the domain of an app, and how it is written.
use kernel::{Janua, fault::Code};
use url::{Host, Url};

use crate::edge;

pub const INVALID_DOMAIN: Code =
    Code::new(400, "invalid_domain", "This cannot be a domain here. Use a public name such as shop.example.com.");

/// Under which name of the domain the proof stands.
pub const PLACE: &str = "_janua-challenge";

/// Top-level names that no public name server answers for, and that may mean something inside a network. `test` and `example`
/// are left out: they lead nowhere, and tests and documents use them.
const INTERNAL: &[&str] = &[
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa",
    "onion",
    "invalid",
    "alt",
];

/// A name as it stands in DNS; none for what cannot be an app's domain.
pub fn parse(janua: &Janua, text: &str) -> Option<String> {
    let name = host(text)?;
    let (ours, edge) = (base_host(janua), janua.config.of::<edge::Settings>().edge_domain.to_lowercase());
    let is_ours = ours.is_some_and(|ours| name == ours || ours.ends_with(&format!(".{name}")))
        || is_at_or_below(&name, &edge)
        || edge.ends_with(&format!(".{name}"));
    // The proof's own name must fit before it.
    let fits = name.len() + PLACE.len() < 253;
    (fits && !is_ours && registrable(&name).is_some()).then_some(name)
}

/// A name in its one spelling: lower case, punycode, without a dot at its end; none for what is no name with several labels.
pub fn host(text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text.trim().trim_end_matches('.')) else { return None };
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_internal =
        labels.last().is_none_or(|top| INTERNAL.contains(top) || top.bytes().all(|b| b.is_ascii_digit()));
    (labels.len() > 1 && name.len() <= 253 && labels.iter().all(is_label) && !is_internal).then_some(name)
}

pub fn base_host(janua: &Janua) -> Option<String> {
    Url::parse(&janua.config.base_url()).ok().and_then(|url| url.domain().map(str::to_owned))
}

fn is_at_or_below(name: &str, above: &str) -> bool {
    name == above || name.ends_with(&format!(".{above}"))
}

/// The part of a name that somebody registered: `example.co.uk` of `shop.example.co.uk`. None for a public suffix.
pub fn registrable(name: &str) -> Option<&str> {
    psl::domain_str(name)
}

/// What browsers count names by that ask for passkeys of another host: the label that somebody registered, whatever stands
/// behind it. `example` of `shop.example.com` and of `example.co.uk`.
pub fn registered_label(name: &str) -> &str {
    let registered = registrable(name).unwrap_or(name);
    registered.split('.').next().unwrap_or(registered)
}

/// Whether a name is one that was registered, so that it cannot have a CNAME record.
pub fn is_apex(name: &str) -> bool {
    registrable(name) == Some(name)
}

/// The names above one, the nearest first, down to the registered one.
pub fn above(name: &str) -> Vec<&str> {
    let Some(top) = registrable(name) else { return vec![] };
    let mut here = name;
    let mut found = vec![];
    while here != top {
        let Some((_, next)) = here.split_once('.') else { break };
        here = next;
        found.push(here);
    }
    found
}

/// As people write it.
pub fn unicode(name: &str) -> String {
    let (text, outcome) = idna::domain_to_unicode(name);
    if outcome.is_ok() { text } else { name.to_owned() }
}

pub fn record_name(domain: &str) -> String {
    format!("{PLACE}.{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling_and_only_public_ones_count() {
        for (given, name) in [
            (" Shop.Example.COM. ", Some("shop.example.com")),
            ("bücher.example.com", Some("xn--bcher-kva.example.com")),
            ("ｓｈｏｐ.example.com", Some("shop.example.com")),
            ("xn--bcher-kva.example.com", Some("xn--bcher-kva.example.com")),
            ("localhost", None),
            ("a.localhost", None),
            ("printer.local", None),
            ("db.internal", None),
            ("1.0.0.127.in-addr.arpa", None),
            ("127.0.0.1", None),
            ("127.1", None),
            ("0x7f000001", None),
            ("[::1]", None),
            ("*.example.com", None),
            ("a..b.com", None),
            ("-a.example.com", None),
            ("a b.com", None),
            ("https://a.com", None),
            ("com", None),
        ] {
            assert_eq!(host(given).as_deref(), name, "{given}");
        }
        let long = format!("{}.example.com", ["a"; 122].join("."));
        assert!(host(&long).is_none(), "{} bytes", long.len());
    }

    #[test]
    fn a_public_suffix_is_nobodys() {
        for (name, of) in [
            ("shop.example.co.uk", Some("example.co.uk")),
            ("co.uk", None),
            ("github.io", None),
            ("ada.github.io", Some("ada.github.io")),
            ("a.b.example.test", Some("example.test")),
        ] {
            assert_eq!(registrable(name), of, "{name}");
        }
        assert_eq!(above("a.b.example.co.uk"), ["b.example.co.uk", "example.co.uk"]);
        assert!(above("example.co.uk").is_empty());
        assert!(is_apex("example.com") && !is_apex("shop.example.com"));
        assert_eq!(
            (registered_label("a.shop.example.co.uk"), registered_label("example.com")),
            ("example", "example")
        );
        assert_eq!(unicode("xn--bcher-kva.example.com"), "bücher.example.com");
    }
}
