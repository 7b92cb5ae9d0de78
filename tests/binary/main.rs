//! The running binary: its start, its sockets, its commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests on the real clock, which fail by panicking"
)]
#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod admin;
mod backup;
mod cli;
mod cli_skills;
mod commands;
mod documents;
mod operators;
mod packages;
mod samples;
mod seeded;
mod sockets;
mod startup;
