//! The ground every feature stands on. It knows no feature: it offers a door to the database, a table of routes,
//! jobs, time, chance, secrets and faults, and the [`App`] that carries them through a request.
pub mod app;
pub mod clock;
pub mod config;
pub mod crypto;
mod database;
pub mod email;
pub mod entropy;
pub mod fault;
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

pub use app::App;
