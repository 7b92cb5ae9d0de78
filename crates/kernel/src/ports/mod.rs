//! Ports to the outside (mail, text messages, objects), as small traits. Each has an embedded default and a driver
//! for a real service.
pub mod dns;
pub mod mail;
pub mod objects;
pub mod outgoing;
pub mod sms;
pub mod smtp;

use std::pin::Pin;

/// Why something was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The other side is out of reach, or refuses to talk to us at all. That says nothing about what was to be sent.
    #[error("{0}")]
    Away(String),
    /// The conversation broke off in the middle: whether it arrived is not known.
    #[error("{0}")]
    Broken(String),
    /// Refused for now: worth trying again.
    #[error("{0}")]
    Later(String),
    /// Refused for good.
    #[error("{0}")]
    Never(String),
}

pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send + 'a>>;
/// Like [`Sending`], with what the other side said.
pub type Delivering<'a> = Pin<Box<dyn Future<Output = Result<String, SendError>> + Send + 'a>>;
