//! A page of ours asks our own interface for the person in front of it.
use std::sync::Arc;

use super::{Living, Session};

/// Who a request from within is made for. No request that comes through the door bears one: it is not part of the wire.
#[derive(Clone)]
pub struct Within(pub(super) Arc<Living>);

impl Within {
    pub fn of(session: &Session) -> Self {
        Self(session.living.clone())
    }
}
