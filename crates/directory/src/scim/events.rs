//! What identity providers do, as audit logs tell it.
use tenancy::{
    events,
    orgs::{Role, people::PersonId, scim_tokens::ScimTokenId},
};

events! {
    /// A SCIM token was created.
    ScimTokenCreated { token_id: ScimTokenId, name: String } = "SCIM_TOKEN_CREATED";
    /// A SCIM token was deleted.
    ScimTokenDeleted { token_id: ScimTokenId } = "SCIM_TOKEN_DELETED";
    /// A directory announced a person.
    PersonProvisioned { person_id: PersonId } = "PERSON_PROVISIONED";
    /// A directory changed a person.
    PersonUpdated { person_id: PersonId } = "PERSON_UPDATED";
    /// A directory shut a person out.
    PersonDeactivated { person_id: PersonId } = "PERSON_DEACTIVATED";
    /// A directory let a person in again.
    PersonReactivated { person_id: PersonId } = "PERSON_REACTIVATED";
    /// A directory announced a group.
    GroupPushed { group_id: String } = "GROUP_PUSHED";
    /// A directory changed a group.
    GroupUpdated { group_id: String } = "GROUP_UPDATED";
    /// A directory deleted a group.
    GroupDeleted { group_id: String } = "GROUP_DELETED";
    /// A group got a role, or lost it.
    GroupMapped { group_id: String, role: Option<Role> } = "GROUP_MAPPED";
}
