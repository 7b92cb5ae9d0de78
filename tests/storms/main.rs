//! Faults that are made on purpose, each against a ledger of what was acknowledged: docs/faults.md lists them.
//!
//! The default run is short and says for each test what it leaves out. `TEST_STORMS=long` runs everything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests on the real clock, which fail by panicking and print what they counted"
)]
#[path = "../support/mod.rs"]
mod support;

mod crash_points;
mod deploys;
mod failover;
mod faults;
mod mail;
mod nodes;
mod one_node;
mod outages;
mod payments;
mod skills;
mod soak;
mod storage;
mod transfer;
mod upgrade;
mod usage;
mod webhooks;
