//! Deletes what has expired, and publishes the next signing key in time.
use std::{fmt, time::Duration};

use db::params;
use kernel::{
    App,
    jobs::{Job, Later},
};
use serde::{Deserialize, Serialize};

use crate::{end_users, keys, uploads};

/// Used-up secrets are kept for a while, so that a second use is told apart from a wrong one in the log.
pub const SECRETS_KEPT: Duration = Duration::from_hours(24);

/// How long a job that tidies may take after long neglect. Every batch of it stays done.
pub const TIDY_LIMIT: Duration = Duration::from_mins(50);

const SECRETS: &str = "DELETE FROM once WHERE hash IN
    (SELECT hash FROM once WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
const DEVICES: &str = "DELETE FROM trusted_device WHERE hash IN
    (SELECT hash FROM trusted_device WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
const SESSIONS: &str = "DELETE FROM session WHERE id IN
    (SELECT id FROM session WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)";
const MAIL_BUDGETS: &str = "DELETE FROM mail_budget WHERE subject IN
    (SELECT subject FROM mail_budget WHERE day_from < $1 ORDER BY day_from LIMIT $2)";
const STRIKES: &str = "DELETE FROM strike WHERE (subject, detail) IN
    (SELECT subject, detail FROM strike WHERE last_at < $1 ORDER BY last_at LIMIT $2)";

/// Deletes what has expired in the tables of this crate.
#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "tenancy.tidy";
    const LIMIT: Duration = TIDY_LIMIT;

    async fn run(self, app: App) -> Result<(), Later> {
        let (now, mut chores) = (app.clock.now(), Chores::default());
        let day_ago = now.minus(SECRETS_KEPT);
        chores.note("once", app.db.sweep(SECRETS, params![day_ago]).await);
        chores.note("trusted_device", app.db.sweep(DEVICES, params![now]).await);
        chores.note("session", app.db.sweep(SESSIONS, params![now]).await);
        chores.note("strike", app.db.sweep(STRIKES, params![day_ago]).await);
        chores.note("mail_budget", app.db.sweep(MAIL_BUDGETS, params![day_ago]).await);
        chores.note("uploads", uploads::sweep(&app).await);
        chores.note("words of end users", end_users::note_wordless(&app).await);
        chores.outcome()
    }
}

/// Chores of one job: each is done, whatever becomes of the others.
#[derive(Default)]
pub struct Chores(Vec<String>);

impl Chores {
    pub fn note<T, E: Into<Later>>(&mut self, what: &str, outcome: Result<T, E>) {
        if let Err(error) = outcome {
            let cause = match error.into() {
                Later::Retry { cause, .. } | Later::GiveUp { cause } => cause,
            };
            self.0.push(format!("{what}: {cause}"));
        }
    }

    /// The job is tried again if any of them failed.
    pub fn outcome(self) -> Result<(), Later> {
        if self.0.is_empty() { Ok(()) } else { Err(Later::retry(self)) }
    }
}

impl fmt::Display for Chores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Publishes the next signing key in time. A job of its own: nothing else may stand in its way.
#[derive(Default, Serialize, Deserialize)]
pub struct TurnKeys {}

impl Job for TurnKeys {
    const KIND: &'static str = "tenancy.turn_keys";

    async fn run(self, app: App) -> Result<(), Later> {
        keys::turn_if_due(&app).await.map_err(Later::retry)
    }
}
