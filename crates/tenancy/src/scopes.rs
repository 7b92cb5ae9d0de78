//! What a person lets a client know and do.
use std::fmt;

use kernel::db::{FromValue, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Who the person is: an id, nothing more.
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

/// In the order of [`Scope::ALL`], each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Those we know of a list with spaces; the standard wants the others ignored.
    pub fn read(text: &str) -> Self {
        let is_asked = |scope: &Scope| text.split(' ').any(|word| word == scope.name());
        Self(Scope::ALL.into_iter().filter(is_asked).collect())
    }

    pub fn all() -> Self {
        Self(Scope::ALL.to_vec())
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|scope| self.has(*scope))
    }

    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(Scope::ALL.into_iter().filter(|scope| self.has(*scope) || other.has(*scope)).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = Scope> {
        self.0.iter().copied()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|scope| scope.name()).collect();
        f.write_str(&names.join(" "))
    }
}

impl From<&Scopes> for Value {
    fn from(scopes: &Scopes) -> Self {
        scopes.to_string().into()
    }
}

impl FromValue for Scopes {
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(|text| Self::read(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_kept_once_and_in_order() {
        let read = Scopes::read("email admin openid  email OPENID");
        assert_eq!(read.to_string(), "openid email");
        assert!(Scopes::all().covers(&read) && !read.covers(&Scopes::all()));
        assert_eq!(read.and(&Scopes::read("profile")).to_string(), "openid profile email");
        assert_eq!(Scopes::read("").to_string(), "");
    }
}
