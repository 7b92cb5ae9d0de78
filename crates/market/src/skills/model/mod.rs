//! What is stored of skills and their versions, and every statement on those tables.
mod listing;
mod namespace;
mod search_words;
mod skill;
mod version;

use db::{FromValue, Value as Stored, row};
use kernel::{clock::Timestamp, id::Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    listing::{Filter, Sort},
    namespace::Namespace,
    search_words::weight,
    skill::Skill,
    version::{NewVersion, StoredObject, Version},
};

pub type SkillId = Id<Skill>;
pub type VersionId = Id<Version>;

/// An enumeration that is stored and shown as a word.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$case_about:meta])* $case:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name { $($(#[$case_about])* #[serde(rename = $word)] $case),+ }

        impl $name {
            pub fn name(self) -> &'static str {
                match self { $(Self::$case => $word),+ }
            }
        }

        impl From<$name> for Stored {
            fn from(value: $name) -> Self {
                Self::Text(value.name().into())
            }
        }

        impl FromValue for $name {
            fn from_value(value: Stored) -> Option<Self> {
                match String::from_value(value)?.as_str() { $($word => Some(Self::$case),)+ _ => None }
            }
        }
    };
}
pub(super) use words;

words! {
    /// The visibility of a skill.
    Visibility {
        Public = "public",
        /// Everybody who knows its slug.
        Unlisted = "unlisted",
        /// Members of the organization.
        Org = "org",
    }
}

words! {
    SkillState {
        Active = "active",
        /// Hidden after reports, until a platform owner has decided.
        UnderReview = "under_review",
        Removed = "removed",
    }
}

words! {
    VersionState {
        Published = "published",
        /// Waits for a platform owner.
        InReview = "in_review",
        Blocked = "blocked",
        /// Withdrawn by its publisher: still there for those who name it.
        Yanked = "yanked",
        /// Withdrawn by a platform owner: gone for everybody.
        Revoked = "revoked",
    }
}

/// A line of an export.
#[derive(Serialize)]
pub struct Exported {
    slug: String,
    at: Timestamp,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "is_zero")]
    stars: i64,
}
row!(Exported { slug, at, text, stars });

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
