//! SCIM 2.0 (RFC 7643, 7644): an organization's identity provider adds and deactivates its people.
//!
//! Users are the people of the organization: its members, and those that the provider created ([`provision`] says
//! what happens to existing accounts). Groups are those that the provider pushes, and one for each role.
mod answer;
mod discovery;
pub mod document;
pub mod events;
mod everything;
pub mod filter;
mod group;
mod groups;
mod names;
pub mod patch;
mod provision;
pub mod schema;
mod search;
pub mod sql;
mod tokens;
mod user;
mod users;
mod wording;

use kernel::{http::Routes, jobs::Jobs};
use tenancy::gone::Gone;

pub use events::EVENTS;

pub fn routes() -> Routes {
    Routes::new("scim")
        .worded("/scim/v2", &wording::Scim)
        .and(discovery::routes())
        .and(users::routes())
        .and(groups::routes())
        .and(everything::routes())
        .and(tokens::routes())
        .and(groups::mapping_routes())
}

/// The memberships in groups of an organization that is deleted.
pub const GONE: Gone = Gone::ManyOfOrg(
    "DELETE FROM person_group_member WHERE org_id = $1 AND (group_id, person_id) IN
         (SELECT group_id, person_id FROM person_group_member WHERE org_id = $1 LIMIT $2)",
);

pub fn jobs() -> Jobs {
    Jobs::new().on::<provision::AskIn>().on::<groups::GiveRoles>()
}

#[cfg(test)]
mod tests;
