//! `janua jobs`: the dead letters, for people to look at.
use std::process::ExitCode;

use anyhow::Result;
use kernel::{
    clock::Clock,
    config::Config,
    jobs::{self, JobId},
};

use crate::{Out, say, start};

#[derive(clap::Subcommand)]
pub enum Command {
    /// List failed jobs as JSON lines, newest first
    Dead {
        /// Maximum number of jobs
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Retry a failed job
    Retry { id: JobId },
    /// Delete a failed job
    Forget { id: JobId },
}

pub async fn run(config: &Config, command: Command) -> Result<ExitCode> {
    let db = start::open(config).await?;
    let (found, done) = match command {
        Command::Dead { limit } => {
            for job in jobs::dead(&db, limit).await? {
                say(&serde_json::to_string(&job)?, Out::Plain);
            }
            return Ok(ExitCode::SUCCESS);
        }
        Command::Retry { id } => (jobs::revive(&db, id, Clock::shared(&db).now()).await?, "the job will be retried"),
        Command::Forget { id } => (jobs::forget(&db, id).await?, "the job was deleted"),
    };
    if found {
        say(done, Out::Plain);
        Ok(ExitCode::SUCCESS)
    } else {
        say("no failed job has this id; `janua jobs dead` lists them", Out::Error);
        Ok(ExitCode::FAILURE)
    }
}
