//! Requests and jobs of a whole service, on the engine the run chose.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
mod carried;
mod jobs;
mod pipeline;
mod serve;
