//! The running binary with software of others: published clients, a browser, a SCIM tester.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests on the real clock, which fail by panicking"
)]
#[path = "../support/mod.rs"]
mod support;

mod cdn;
mod clients;
mod pages;
mod proxies;
mod samples;
mod scim;
