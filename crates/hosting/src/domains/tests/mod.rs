//! Domains through their front door.
mod onboard;
mod own;

use axum::http::Method;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    testing::{Answer, NameServer, TestJanua},
};
use serde_json::{Value, json};

pub use crate::tests::{feature, id, make_app};
