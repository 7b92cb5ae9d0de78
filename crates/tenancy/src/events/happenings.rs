//! Events of this crate's rows, for audit logs and webhooks.
use crate::ids::{AppKeyId, Role, SessionId};

crate::events! {
    /// A session began.
    SignedIn { session_id: SessionId, methods: Vec<String>, device: String } = "SIGNED_IN" as "user.signed_in";
    /// A session was ended.
    SessionRevoked { session_id: SessionId, reason: &'static str } = "SESSION_REVOKED" as "session.revoked";
    /// The database was put back to an earlier moment.
    DatabaseRestored { ended_sessions: u64 } = "DATABASE_RESTORED";
    /// An organization was created.
    OrgCreated = "ORG_CREATED";
    /// An organization was deleted.
    OrgDeleted = "ORG_DELETED";
    /// An invited person joined.
    InviteAccepted { role: Role } = "INVITE_ACCEPTED";
    /// A user joined by the domain of their verified email.
    MemberJoined { role: Role, domain: String } = "MEMBER_JOINED";
    /// A member left or was removed.
    MemberRemoved = "MEMBER_REMOVED";
    /// An app was deleted.
    AppDeleted = "APP_DELETED";
    /// A key of an app was deleted.
    AppKeyDeleted { key_id: AppKeyId } = "APP_KEY_DELETED";
}
