//! `janua billing` and `janua sandbox`: prices, lost events, and the clock of the sandbox processor.
use std::{process::ExitCode, time::Duration};

use anyhow::{Result, anyhow};
use kernel::config::{Config, Setting as _};

use crate::{Out, say, start::Node};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Create the prices of the plans file at the payment processor, and compare those that exist
    Sync,
    /// Fetch lost events and compare every subscription with the payment processor
    Reconcile {
        /// Only print the differences
        #[arg(long)]
        dry_run: bool,
    },
    /// Print a plans file to start from
    SamplePlans,
}

#[derive(clap::Subcommand)]
pub enum SandboxCommand {
    /// Move the sandbox's clock ahead, such as 31d: subscriptions renew, trials end
    Advance {
        /// A length such as 90m, 12h or 31d
        by: String,
    },
}

pub async fn run(config: Config, command: Command) -> Result<ExitCode> {
    if let Command::SamplePlans = command {
        say(commerce::commands::SAMPLE_PLANS.trim_end(), Out::Plain);
        return Ok(ExitCode::SUCCESS);
    }
    let node = Node::beside(config).await?;
    let lines = match command {
        Command::Sync => commerce::commands::sync(&node.janua).await,
        Command::Reconcile { dry_run } => commerce::commands::reconcile(&node.janua, dry_run).await,
        Command::SamplePlans => Ok(vec![]),
    };
    let lines = lines.map_err(|wrong| anyhow!(wrong))?;
    say(if lines.is_empty() { "nothing differs".into() } else { lines.join("\n") }.as_str(), Out::Plain);
    Ok(ExitCode::SUCCESS)
}

pub async fn run_sandbox(config: Config, command: SandboxCommand) -> Result<ExitCode> {
    let SandboxCommand::Advance { by } = command;
    let by = Duration::parse(&by).map_err(|wrong| anyhow!("{by}: {wrong}"))?;
    let node = Node::beside(config).await?;
    let said = commerce::commands::advance_sandbox(&node.janua, by).await.map_err(|wrong| anyhow!(wrong))?;
    say(&said, Out::Plain);
    Ok(ExitCode::SUCCESS)
}
