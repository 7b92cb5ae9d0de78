//! The marketplace: skills for agents, and their ratings.
mod settings;
mod skills;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
};

pub use settings::Settings;
pub use skills::package;

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(_: &Config) -> Feature {
    skills::feature()
}
