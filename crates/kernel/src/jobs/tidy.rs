//! Deleting what has expired: one job, once an hour, for the chores that all features declare.
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Job, Later, Running};
use db::params;

use crate::App;

/// One thing to tidy. A feature declares those of its tables: `Feature::declares(&[Chore::sweep(…)])`.
#[derive(Clone, Copy)]
pub struct Chore {
    /// Names it when it fails: the table.
    what: &'static str,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Sweep { sql: &'static str, kept: Duration },
    Run(fn(App) -> Running),
}

impl Chore {
    /// Runs a DELETE or UPDATE again and again until it finds nothing more. `$1` is the moment `kept` ago, `$2` how many
    /// rows one run may change.
    pub const fn sweep(table: &'static str, sql: &'static str, kept: Duration) -> Self {
        Self { what: table, work: Work::Sweep { sql, kept } }
    }

    /// Anything else, in small transactions.
    pub const fn run(what: &'static str, run: fn(App) -> Running) -> Self {
        Self { what, work: Work::Run(run) }
    }

    async fn done(self, app: &App) -> Result<(), Later> {
        match self.work {
            Work::Sweep { sql, kept } => {
                Ok(app.db.sweep(sql, params![app.clock.now().minus(kept)]).await.map(drop)?)
            }
            Work::Run(run) => run(app.clone()).await,
        }
    }
}

/// Does all chores. One that fails does not keep the others from being done; the job is tried again then.
#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "tidy";
    /// After long neglect it may take a while. Every batch of it stays done.
    const LIMIT: Duration = Duration::from_mins(50);

    async fn run(self, app: App) -> Result<(), Later> {
        let mut failed = vec![];
        for chore in app.declared::<Chore>() {
            if let Err(Later::Retry { cause, .. } | Later::GiveUp { cause }) = chore.done(&app).await {
                failed.push(format!("{}: {cause}", chore.what));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Later::retry(failed.join("; "))) }
    }
}
