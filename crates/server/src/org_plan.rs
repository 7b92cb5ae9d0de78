//! `janua admin org plan`: puts an organization on another plan.
use anyhow::{Result, anyhow};
use kernel::Janua;
use tenancy::{events::By, orgs::OrgId};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Put an organization on a plan. What is over the limits of the new plan stays
    Plan {
        /// The ID of the organization
        org: OrgId,
        /// free, pro, enterprise, or a plan of the plans file
        plan: String,
    },
}

pub async fn run(janua: &Janua, command: Command) -> Result<String> {
    let Command::Plan { org, plan } = command;
    let changed = commerce::set_plan(janua, &By::shell(), org, &plan).await;
    let org = changed.map_err(|fault| anyhow!(fault.whole_sentence()))?;
    Ok(format!("{} ({}) is on the plan {}", org.name, org.id, org.tier))
}
