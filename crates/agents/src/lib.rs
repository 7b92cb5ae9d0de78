//! Identities for software: agents, framework agents and MCP servers.
use kernel::{
    config::Config,
    feature::{Feature, Part},
    http::Routes,
};

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    Feature::new(Routes::new("agents"))
}
