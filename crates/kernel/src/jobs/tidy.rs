//! Deletes expired rows: one hourly job runs the chores that all features declare.
use std::time::Duration;

use db::params;
use serde::{Deserialize, Serialize};

use super::{Job, Later, Running};
use crate::Janua;

/// One chore of the hourly job. A feature declares the chores of its own tables:
/// `Feature::declares(&[Chore::sweep(…)])`.
#[derive(Clone, Copy)]
pub struct Chore {
    /// The table. Named in the error when the chore fails.
    what: &'static str,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Sweep { sql: &'static str, kept: Duration },
    Run(fn(Janua) -> Running),
}

impl Chore {
    /// Runs a DELETE or UPDATE again and again until it finds nothing more. `$1` is the moment `kept` ago, `$2` how many
    /// rows one run may change.
    pub const fn sweep(table: &'static str, sql: &'static str, kept: Duration) -> Self {
        Self { what: table, work: Work::Sweep { sql, kept } }
    }

    /// Anything else, in small transactions.
    pub const fn run(what: &'static str, run: fn(Janua) -> Running) -> Self {
        Self { what, work: Work::Run(run) }
    }

    async fn done(self, janua: &Janua) -> Result<(), Later> {
        match self.work {
            Work::Sweep { sql, kept } => {
                Ok(janua.db.sweep(sql, params![janua.clock.now().minus(kept)]).await.map(drop)?)
            }
            Work::Run(run) => run(janua.clone()).await,
        }
    }
}

/// Runs all chores. A chore that fails does not stop the others; the job is then tried again.
#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "tidy";
    /// Long, because there may be many rows after a long downtime. Finished batches stay finished.
    const LIMIT: Duration = Duration::from_mins(50);

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let mut failed = vec![];
        for chore in janua.declared::<Chore>() {
            if let Err(Later::Retry { cause, .. } | Later::GiveUp { cause }) = chore.done(&janua).await {
                failed.push(format!("{}: {cause}", chore.what));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Later::retry(failed.join("; "))) }
    }
}
