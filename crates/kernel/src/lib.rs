//! The base of all features: the HTTP server and route tables, jobs, settings, clock, randomness, secrets, errors,
//! ports to the outside, and the [`Janua`] through which requests and jobs reach them. It depends on no feature.
pub mod archive;
pub mod clock;
pub mod config;
pub mod crypto;
mod database;
pub mod email;
pub mod entropy;
pub mod fault;
pub mod feature;
pub mod http;
pub mod id;
pub mod installation;
pub mod jobs;
pub mod pages;
pub mod ports;
pub mod recent;
pub mod telemetry;
#[cfg(feature = "testing")]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot start fails")]
pub mod testing;

pub use feature::Janua;
