//! The outside world as small traits, each with an embedded default and a real driver.
pub mod mail;
