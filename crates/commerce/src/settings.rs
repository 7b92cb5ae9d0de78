//! The settings of plans and usage.
use std::path::PathBuf;

use kernel::settings;

settings! {
    /// Plans, and what they include.
    pub struct Settings {
        /// A TOML file with plans, meters, limits and prices; see docs/usage.md. Empty: nothing is sold, and nobody is limited.
        plans_file: Option<PathBuf> = "";
    }
}
