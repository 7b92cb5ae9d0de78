//! `janua admin org plan`: puts an organization on another plan.
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use kernel::config::Config;
use tenancy::{events::By, orgs::OrgId};

use crate::{Out, say, start::Node};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Look after organizations
    #[command(subcommand)]
    Org(OrgCommand),
}

#[derive(clap::Subcommand)]
pub enum OrgCommand {
    /// Put an organization on a plan. What is over the limits of the new plan stays
    Plan {
        /// The id of the organization
        org: OrgId,
        /// free, pro, enterprise, or a plan of the plans file
        plan: String,
    },
}

pub async fn run(config: Config, command: Command) -> Result<ExitCode> {
    let Command::Org(OrgCommand::Plan { org, plan }) = command;
    let node = Node::beside(config).await?;
    let changed = commerce::set_plan(&node.janua, &By::default(), org, &plan).await;
    let org = changed.map_err(|fault| anyhow!(fault.whole_sentence()))?;
    say(&format!("{} ({}) is on the plan {}", org.name, org.id, org.tier), Out::Plain);
    Ok(ExitCode::SUCCESS)
}
