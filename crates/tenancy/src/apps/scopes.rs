//! Scopes that a user grants to a client: those of the standard, and those that apps declare for their own servers.
use std::fmt;

use db::{FromValue, Value};
use kernel::{
    Janua,
    fault::{Fault, INVALID, Result},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The user's id, nothing more.
    OpenId,
    Profile,
    Email,
    /// To stay signed in.
    OfflineAccess,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::OpenId, Self::Profile, Self::Email, Self::OfflineAccess];

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenId => "openid",
            Self::Profile => "profile",
            Self::Email => "email",
            Self::OfflineAccess => "offline_access",
        }
    }
}

/// The standard's in the order of [`Scope::ALL`], then those that apps declare, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes {
    standard: Vec<Scope>,
    declared: Vec<String>,
}

/// How many scopes an app may declare, and how many of them are granted at once.
pub const MOST_DECLARED: usize = 50;
const LONGEST_NAME: usize = 128;
/// Names that mean something in OpenID Connect.
const RESERVED: [&str; 6] = ["openid", "profile", "email", "address", "phone", "offline_access"];

/// A scope of an app's own servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeclaredScope {
    /// As clients ask for it, such as `mcp:tools`.
    #[schemars(regex(pattern = r"^[!#-\[\]-~]{1,128}$"))]
    pub name: String,
    /// A description of the access; shown on the consent page.
    #[schemars(length(max = 200), regex(pattern = "\\S"))]
    pub description: String,
}

/// The scopes an app declares, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredScopes(pub Vec<DeclaredScope>);

impl DeclaredScopes {
    pub fn find(&self, name: &str) -> Option<&DeclaredScope> {
        self.0.iter().find(|scope| scope.name == name)
    }
}

/// A part of this server that clients get tokens for as for a server of an app: `Feature::declares(&[OwnResource { … }])`.
#[derive(Clone, Copy)]
pub struct OwnResource {
    /// Below the base URL, such as `/mcp`.
    pub path: &'static str,
    /// What the consent page calls it.
    pub name: &'static str,
    /// The scopes there, and what each allows.
    pub scopes: &'static [(&'static str, &'static str)],
}

impl OwnResource {
    pub fn url(&self, janua: &Janua) -> String {
        format!("{}{}", janua.config.base_url(), self.path)
    }

    pub fn find(janua: &Janua, url: &str) -> Option<Self> {
        janua.declared::<Self>().iter().find(|own| own.url(janua) == url).copied()
    }

    pub fn declared_scopes(&self) -> DeclaredScopes {
        let scope = |(name, description): &(&str, &str)| DeclaredScope {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
        };
        DeclaredScopes(self.scopes.iter().map(scope).collect())
    }
}

/// Refuses names that stand there twice or mean something else already.
pub fn check(declared: &[DeclaredScope]) -> Result<()> {
    let wrong = declared.iter().enumerate().filter_map(|(place, scope)| {
        let field = format!("scopes.{place}.name");
        if RESERVED.contains(&scope.name.as_str()) {
            return Some((field, "reserved", "is a scope of OpenID Connect"));
        }
        let is_repeated = declared[..place].iter().any(|before| before.name == scope.name);
        is_repeated.then_some((field, "repeated", "is declared twice"))
    });
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.into_iter().fold(Fault::from(INVALID), |fault, (field, code, say)| fault.and(field, code, say)))
}

/// A scope-token of RFC 6749 (3.3), within a sane length.
pub fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}

impl Scopes {
    /// The standard's of a list with spaces; the standard wants the others ignored.
    pub fn standard(text: &str) -> Self {
        Self::asked(text, |_| false)
    }

    /// The standard's of a list with spaces, and others that are known where the client wants to use them.
    pub fn asked(text: &str, is_known: impl Fn(&str) -> bool) -> Self {
        let is_asked = |scope: &Scope| text.split(' ').any(|word| word == scope.name());
        let standard = Scope::ALL.into_iter().filter(is_asked).collect();
        let mut declared: Vec<String> = vec![];
        for name in text.split(' ').filter(|name| is_token(name) && !RESERVED.contains(name) && is_known(name)) {
            if declared.len() < MOST_DECLARED && !declared.iter().any(|before| before == name) {
                declared.push(name.to_owned());
            }
        }
        Self { standard, declared }
    }

    /// Reads stored scopes.
    fn stored(text: &str) -> Self {
        Self::asked(text, |_| true)
    }

    pub fn all() -> Self {
        Self { standard: Scope::ALL.to_vec(), declared: vec![] }
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.standard.contains(&scope)
    }

    pub fn covers(&self, other: &Self) -> bool {
        let has_declared = |name: &String| self.declared.contains(name);
        other.standard.iter().all(|scope| self.has(*scope)) && other.declared.iter().all(has_declared)
    }

    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let standard = Scope::ALL.into_iter().filter(|scope| self.has(*scope) || other.has(*scope)).collect();
        let more = other.declared.iter().filter(|name| !self.declared.contains(name));
        // The newest stay where there would be too many: they are what a client asks for now.
        let mut declared: Vec<String> = self.declared.iter().chain(more).cloned().collect();
        declared.drain(..declared.len().saturating_sub(MOST_DECLARED));
        Self { standard, declared }
    }

    /// What this service itself goes by.
    #[must_use]
    pub fn without_declared(&self) -> Self {
        Self { standard: self.standard.clone(), declared: vec![] }
    }

    pub fn iter(&self) -> impl Iterator<Item = Scope> {
        self.standard.iter().copied()
    }

    /// Those that mean something at servers of apps.
    pub fn declared(&self) -> &[String] {
        &self.declared
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.standard.iter().map(|scope| scope.name()).chain(self.declared.iter().map(String::as_str))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

impl From<&Scopes> for Value {
    fn from(scopes: &Scopes) -> Self {
        scopes.to_string().into()
    }
}

impl FromValue for Scopes {
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(|text| Self::stored(&text))
    }
}

impl From<&DeclaredScopes> for Value {
    fn from(declared: &DeclaredScopes) -> Self {
        serde_json::to_string(&declared.0).unwrap_or_default().into()
    }
}

impl FromValue for DeclaredScopes {
    fn from_value(value: Value) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_kept_once_and_in_order() {
        let read = Scopes::standard("email admin openid  email OPENID");
        assert_eq!(read.to_string(), "openid email");
        assert!(Scopes::all().covers(&read) && !read.covers(&Scopes::all()));
        assert_eq!(read.and(&Scopes::standard("profile")).to_string(), "openid profile email");
        assert_eq!(Scopes::standard("").to_string(), "");
    }

    #[test]
    fn declared_scopes_stand_behind_those_of_the_standard() {
        let asked = Scopes::asked("b openid a b made-up", |name| ["a", "b"].contains(&name));
        assert_eq!(asked.to_string(), "openid b a");
        assert_eq!(Scopes::stored("openid b a"), asked);
        assert!(asked.covers(&Scopes::stored("a")) && !asked.covers(&Scopes::stored("c")));
        assert_eq!(asked.and(&Scopes::stored("email c a")).to_string(), "openid email b a c");
        let many = (0..60).map(|number| format!("s{number}")).collect::<Vec<_>>().join(" ");
        assert_eq!(Scopes::asked(&many, |_| true).declared().len(), MOST_DECLARED);
    }

    #[test]
    fn a_scope_is_a_word_of_printable_ascii() {
        for good in ["mcp:tools", "notes.read", "https://a.example/x", "!", "a[b]"] {
            assert!(is_token(good), "{good}");
        }
        for bad in ["", "two words", "quo\"te", "back\\slash", "caf\u{e9}", "\n", &"x".repeat(129)] {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
