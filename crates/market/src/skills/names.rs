//! Names of skills: `acme.pdf-tools` is the skill `pdf-tools` of the namespace `acme`. A namespace is the slug of an
//! organization, or a domain that it has proven, from right to left: `com.example`.
use kernel::fault::{Code, Result};
use skillfile::is_name;
use strsim::levenshtein;

pub const INVALID_SLUG: Code = Code::new(
    400,
    "invalid_slug",
    "The slug of a skill is a namespace, a dot and a name, such as acme.pdf-tools or com.example.pdf-tools.",
);

const LONGEST_SLUG: usize = 160;

/// A namespace: labels with dots between them. One alone is the slug of an organization. A label of a domain may have two
/// hyphens, as `xn--` has.
fn is_namespace(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.split('.').all(is_label)
}

/// The two parts of a slug. A name has no dot, so the last one divides them; without a dot there is no namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slug {
    pub namespace: String,
    pub name: String,
}

impl Slug {
    pub fn parse(text: &str) -> Result<Self> {
        let (namespace, name) = text.rsplit_once('.').unwrap_or(("", text));
        let has_dots = text.contains('.');
        let is_good = is_name(name) && text.len() <= LONGEST_SLUG && (!has_dots || is_namespace(namespace));
        if is_good {
            Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
        } else {
            Err(INVALID_SLUG.into())
        }
    }

    pub fn of(namespace: &str, name: &str) -> Result<Self> {
        let text = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") };
        let slug = Self::parse(&text)?;
        if slug.namespace == namespace { Ok(slug) } else { Err(INVALID_SLUG.into()) }
    }

    /// The domain of a namespace with dots.
    pub fn domain(&self) -> Option<String> {
        let labels = self.namespace.split('.');
        self.namespace.contains('.').then(|| labels.rev().collect::<Vec<_>>().join("."))
    }
}

impl std::fmt::Display for Slug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}.{}", self.name),
        }
    }
}

/// The same for two names that people take for one: without hyphens, and with one letter for those that look alike.
pub fn skeleton(name: &str) -> String {
    name.replace('-', "")
        .replace("rn", "m")
        .replace("vv", "w")
        .replace("cl", "d")
        .replace('0', "o")
        .replace(['1', 'i'], "l")
        .replace('5', "s")
}

/// Whether a skeleton is that of another name, or one edit away. Short names are too near to each other for the latter.
pub fn looks_like(skeleton: &str, other: &str) -> bool {
    skeleton == other || skeleton.len().min(other.len()) >= 5 && levenshtein(skeleton, other) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m23_a_slug_has_one_form() {
        let slug = Slug::parse("com.example.pdf-tools").unwrap();
        assert_eq!((slug.namespace.as_str(), slug.name.as_str()), ("com.example", "pdf-tools"));
        assert_eq!(
            (slug.domain().as_deref(), slug.to_string().as_str()),
            (Some("example.com"), "com.example.pdf-tools")
        );
        assert_eq!(Slug::parse("acme.pdf-tools").unwrap().domain(), None);
        assert_eq!(Slug::parse("pdf-tools").unwrap().namespace, "");
        let long = format!("{}.a", "a.".repeat(80));
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "A.b",
            "a.B",
            "a.b_c",
            "a.b--c",
            "a.-b",
            "a.b-",
            "a/b",
            "a%2Fb",
            "a.b/",
            "a b",
            "-a.b",
            "acme.\u{440}df",
            "a.b\0",
            "..",
            &long,
        ] {
            assert!(Slug::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Slug::of("a.b", "c.d").is_err() && Slug::of("", "a.b").is_err(), "a name has no dot");
    }

    #[test]
    fn names_that_look_alike_are_known() {
        for (a, b) in [
            ("pdf-tools", "pdftools"),
            ("pdf-t00ls", "pdf-tools"),
            ("learn", "leam"),
            ("pdf-tool", "pdf-tools"),
            ("git-flow", "g1t-f1ow"),
        ] {
            assert!(looks_like(&skeleton(a), &skeleton(b)), "{a} {b}");
        }
        assert!(!looks_like(&skeleton("csv"), &skeleton("tsv")), "short names");
        assert!(!looks_like(&skeleton("pdf-tools"), &skeleton("git-flow")));
    }
}
