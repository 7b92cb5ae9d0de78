//! A page of ours asks our own interface for the person in front of it.
use super::{Delivery, Session};
use crate::sessions::SessionId;

/// In whose session a request from within is made, and how its person brought it; that it lives is looked at each time. No
/// request that comes through the door bears one: it is not part of the wire.
#[derive(Clone, Copy)]
pub struct Within {
    pub(super) session: SessionId,
    pub(super) delivery: Delivery,
}

impl Within {
    pub fn of(session: &Session) -> Self {
        Self { session: session.id(), delivery: session.delivery }
    }
}
