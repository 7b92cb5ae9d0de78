//! The outside world as small traits, each with an embedded default and a real driver.
pub mod dns;
pub mod mail;
pub mod objects;
pub mod outgoing;
pub mod sms;

use std::pin::Pin;

/// Why something was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Worth trying again: the other side is away or said "not now".
    #[error("{0}")]
    Later(String),
    /// Will not get better: the other side refused it for good.
    #[error("{0}")]
    Never(String),
}

pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send + 'a>>;
