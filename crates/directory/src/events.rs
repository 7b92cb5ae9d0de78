//! What happens in organizations, as audit logs tell it.
use tenancy::{events, orgs::Role};

events! {
    /// Name, slug, logo or settings of an organization changed.
    OrgUpdated { fields: Vec<&'static str> } = "ORG_UPDATED";
    /// A copy of an organization's data was taken.
    OrgExported = "ORG_EXPORTED";
    /// Metadata of an organization changed.
    MetadataUpdated { keys: Vec<String> } = "ORG_METADATA_UPDATED";
    /// Somebody was invited.
    MemberInvited { email: String, role: Role } = "MEMBER_INVITED";
    /// An invitation was sent again.
    InviteResent { email: String } = "INVITE_RESENT";
    /// An invitation was taken back.
    InviteCancelled { email: String } = "INVITE_CANCELLED";
    /// A member got another role.
    MemberRoleChanged { from: Role, to: Role } = "MEMBER_ROLE_CHANGED";
}
