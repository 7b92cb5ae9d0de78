//! The two servers that are measured: `janua serve`, and a bare one that says the same.
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process::{self, Core, Server};

/// The binary `janua`.
pub struct JanuaBinary(PathBuf);

impl JanuaBinary {
    pub fn at_or_built(path: Option<PathBuf>) -> Result<Self> {
        let path = path.map_or_else(build, Ok)?;
        // Made absolute, because it is started in its data folder.
        Ok(Self(path.canonicalize().with_context(|| format!("there is no {}", path.display()))?))
    }

    pub fn serve(&self, data: &Path, core: Core) -> Result<Server> {
        self.serve_with(data, core, &[("JANUA_RATE_LIMITS", "off")])
    }

    pub fn serve_with(&self, data: &Path, core: Core, settings: &[(&str, &str)]) -> Result<Server> {
        let address = process::free_address()?;
        let mut command = Command::new(&self.0);
        command.arg("serve").arg("--data-dir").arg(data).args(["--listen", &address.to_string()]);
        // In its data folder, so that no janua.toml of whoever runs the bench is read.
        command.envs(settings.iter().copied()).current_dir(data);
        Server::start(command, core, address, &data.join("janua.log"))
    }
}

/// The bare server of [`crate::bare`], which always answers this.
pub fn bare(answer: &str, folder: &Path, core: Core) -> Result<Server> {
    let address = process::free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bare", &address.to_string(), answer]);
    Server::start(command, core, address, &folder.join("bare.log"))
}

/// Builds the binary as the bench itself was built, and asks cargo where it put it.
fn build() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("release");
    let profile = if folder == "debug" { "dev" } else { folder };
    let built = Command::new("cargo")
        .args(["build", "--profile", profile, "-p", "server", "--message-format=json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo; build janua yourself and give its path with --janua")?;
    ensure!(built.status.success(), "janua does not build");
    let messages = String::from_utf8(built.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == "janua");
    let path = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.context("cargo does not say where it put janua")
}
