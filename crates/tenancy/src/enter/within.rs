//! A page of ours asks our own interface for the person in front of it.
use super::Session;
use crate::sessions::SessionId;

/// In whose session a request from within is made; that it lives is looked at each time. No request that comes through the
/// door bears one: it is not part of the wire.
#[derive(Clone, Copy)]
pub struct Within(pub(super) SessionId);

impl Within {
    pub fn of(session: &Session) -> Self {
        Self(session.id())
    }
}
