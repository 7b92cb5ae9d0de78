//! `janua mail`: whether mail goes out.
use std::process::ExitCode;

use anyhow::{Result, bail};
use kernel::{config::Config, email::Email};

use crate::{Out, say, start::Node};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Send a test mail at once, and print the answer of the mail server
    Test {
        /// The recipient
        email: String,
    },
}

pub async fn run(config: Config, command: Command) -> Result<ExitCode> {
    let Command::Test { email } = command;
    let Some(email) = Email::parse(&email) else { bail!("{email} is not an email") };
    let node = Node::beside(config).await?;
    let outcome = identity::platform::test_mail_from_shell(&node.janua, &email).await?;
    say(&outcome.answer, if outcome.sent { Out::Plain } else { Out::Error });
    Ok(if outcome.sent { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
