//! For services whose people sign in with Janua.
//!
//! [`verify_webhook`] tells whether a delivery is genuine; [`Verifier`] tells whose access token a request carries.
mod token;
mod webhook;

pub use token::{Claims, TokenError, Verifier, presented};
pub use webhook::{WebhookError, verify_webhook};
