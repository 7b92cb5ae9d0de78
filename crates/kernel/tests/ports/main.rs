//! The ways out of the process: mail, text messages, objects, requests to other servers. None needs a database.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
mod mail;
mod objects;
mod outgoing;
mod sms;
