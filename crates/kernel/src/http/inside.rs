//! The service's own interface, asked from within: pages are clients of it like any other, and have no second way to do
//! things.
use std::sync::{Arc, OnceLock, Weak};

use axum::{
    body::Body,
    http::Request,
    response::{IntoResponse as _, Response},
};
use tower::Service as _;

use super::door::Inner;
use crate::fault::{Carried, Fault, INTERNAL, Result, UNAVAILABLE};

/// Known once the door stands. The door owns the [`Janua`](crate::Janua) and not the other way round, so that both can go.
#[derive(Default)]
pub struct Inside(OnceLock<Weak<Inner>>);

impl Inside {
    pub(super) fn set(&self, door: Weak<Inner>) {
        let _ = self.0.set(door);
    }

    /// Past the door: the caller came through it with its own request. A refusal comes back as the fault it is.
    pub async fn ask(&self, request: Request<Body>) -> Result<Response> {
        let door = self.0.get().and_then(Weak::upgrade).ok_or(UNAVAILABLE)?;
        let mut router = door.router.clone();
        drop(door);
        let mut response = router.call(request).await.into_response();
        match response.extensions_mut().remove::<Carried>() {
            Some(Carried(fault)) => Err(Arc::into_inner(fault).unwrap_or_else(|| Fault::from(INTERNAL))),
            None => Ok(response),
        }
    }
}
