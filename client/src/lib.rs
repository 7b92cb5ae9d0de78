//! For services whose people sign in with Janua.
//!
//! [`verify_delivery`] and [`verify_webhook`] tell whether a delivery is genuine; [`Verifier`] tells whose access token a
//! request carries.
mod token;
mod webhook;

pub use token::{Claims, TokenError, Verifier, presented};
pub use webhook::{WebhookError, verify_delivery, verify_webhook};
