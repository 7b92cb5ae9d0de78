//! Requests that pages make to the API of the same process.
use super::cookies::Delivery;
use crate::ids::SessionId;

/// The session of such a request, and how the user presented it. The session is checked each time. No request from
/// the network can carry one: it is an extension, not a header.
#[derive(Clone, Copy)]
pub struct Within {
    pub(super) session: SessionId,
    pub(super) delivery: Delivery,
}
