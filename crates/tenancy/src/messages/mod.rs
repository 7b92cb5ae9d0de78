//! Mail and text messages to people: what is written, how much of it, and its way out.
pub mod budget;
pub(crate) mod letters;
pub mod mail;
pub(crate) mod relay;
pub mod sender;
pub mod sms;
