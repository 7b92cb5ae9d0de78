//! The ids of what exists, and the small words that rows carry. Everything here is a leaf: it uses no other module of
//! this crate, so that modules can name each other's things without using each other.
use db::{FromValue, Value};
use kernel::id::Id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an id is of.
pub mod of {
    pub enum Account {}
    pub enum App {}
    pub enum AppEvent {}
    pub enum AppKey {}
    pub enum AuditEvent {}
    pub enum Machine {}
    pub enum Org {}
    pub enum Person {}
    pub enum ScimToken {}
    pub enum Session {}
    pub enum Upload {}
}

/// Topics of notices between nodes: what was changed, so that caches forget it.
pub mod topic {
    pub const ACCOUNT: &str = "account";
    /// An app or its keys.
    pub const APP: &str = "app";
    /// A machine: its state, its generation or what it may do.
    pub const MACHINE: &str = "machine";
    /// An organization or its members.
    pub const ORG: &str = "org";
    pub const SESSION: &str = "session";
}

pub type AccountId = Id<of::Account>;
pub type AppEventId = Id<of::AppEvent>;
pub type AppKeyId = Id<of::AppKey>;
pub type ApplicationId = Id<of::App>;
/// Of a line in the audit log.
pub type EventId = Id<of::AuditEvent>;
pub type MachineId = Id<of::Machine>;
pub type OrgId = Id<of::Org>;
pub type PersonId = Id<of::Person>;
pub type ScimTokenId = Id<of::ScimToken>;
pub type SessionId = Id<of::Session>;
pub type UploadId = Id<of::Upload>;

/// A role in an organization; each includes the permissions of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Member,
    Admin,
    Owner,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

impl From<Role> for Value {
    fn from(role: Role) -> Self {
        role.name().into()
    }
}

impl FromValue for Role {
    fn from_value(value: Value) -> Option<Self> {
        let name = String::from_value(value)?;
        [Self::Member, Self::Admin, Self::Owner].into_iter().find(|role| role.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Identifies the calling app; not secret.
    Publishable,
    /// Acts for the app; stays on its servers.
    Secret,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    Live,
    Test,
}

macro_rules! words { ($($type:ident { $($variant:ident = $word:literal),+ })+) => { $(
    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }
words! {
    KeyKind { Publishable = "publishable", Secret = "secret" }
    Environment { Live = "live", Test = "test" }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Factor {
    /// An authenticator app.
    Totp,
    /// A code sent to a phone.
    Sms,
    /// One of the codes that were shown once.
    Recovery,
}

impl Factor {
    /// The method as tokens name it (RFC 8176, where it has one).
    pub fn method(self) -> &'static str {
        match self {
            Self::Totp => "otp",
            Self::Sms => "sms",
            Self::Recovery => "recovery",
        }
    }
}
