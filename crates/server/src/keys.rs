//! `janua keys`: the keys that sign access tokens.
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use kernel::config::Config;
use tenancy::sessions::keys;

use crate::{Out, say, start::Node};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Sign with the next key as soon as verifiers have seen it; existing tokens stay valid until they expire
    Rotate,
}

pub async fn run(config: Config, command: Command) -> Result<ExitCode> {
    let Command::Rotate = command;
    // Beside a running server: it hears of the new keys from the database, at once or within a minute.
    let node = Node::beside(config).await?;
    let takes_over = keys::rotate(&node.janua).await.map_err(|wrong| anyhow!(wrong))?;
    let when = if takes_over <= node.janua.clock.now() {
        "from now on".to_owned()
    } else {
        format!("from {takes_over}, when all verifiers have seen it")
    };
    say(&format!("the next key signs {when}; the key after it is published now"), Out::Plain);
    Ok(ExitCode::SUCCESS)
}
