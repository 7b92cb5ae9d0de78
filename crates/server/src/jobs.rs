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
    /// List the jobs that were given up, newest first, as JSON lines
    Dead {
        /// How many at most
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Give one of them all its tries again
    Retry { id: JobId },
    /// Throw one of them away
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
        Command::Retry { id } => (jobs::revive(&db, id, Clock::shared(&db).now()).await?, "will be tried again"),
        Command::Forget { id } => (jobs::forget(&db, id).await?, "is gone"),
    };
    if found {
        say(done, Out::Plain);
        Ok(ExitCode::SUCCESS)
    } else {
        say("there is no dead job with this id; `janua jobs dead` lists them", Out::Error);
        Ok(ExitCode::FAILURE)
    }
}
