//! Deletes what has expired in the tables of this crate.
use std::time::Duration;

use db::params;
use kernel::{
    App,
    jobs::{Job, Later},
};
use serde::{Deserialize, Serialize};
use tenancy::tidy::{Chores, SECRETS_KEPT, TIDY_LIMIT};

/// A client that nobody used is forgotten.
const CLIENTS_KEPT: Duration = Duration::from_hours(24 * 7);

const DEVICE_CODES: &str = "DELETE FROM device_code WHERE hash IN
    (SELECT hash FROM device_code WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
const CODES: &str = "DELETE FROM oauth_code WHERE hash IN
    (SELECT hash FROM oauth_code WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
const CLIENTS: &str = "DELETE FROM oauth_client WHERE id IN
    (SELECT id FROM oauth_client WHERE used_at IS NULL AND created_at < $1 ORDER BY created_at LIMIT $2)";

#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "identity.tidy";
    const LIMIT: Duration = TIDY_LIMIT;

    async fn run(self, app: App) -> Result<(), Later> {
        let (now, mut chores) = (app.clock.now(), Chores::default());
        chores.note("device_code", app.db.sweep(DEVICE_CODES, params![now.minus(SECRETS_KEPT)]).await);
        chores.note("oauth_code", app.db.sweep(CODES, params![now.minus(SECRETS_KEPT)]).await);
        chores.note("oauth_client", app.db.sweep(CLIENTS, params![now.minus(CLIENTS_KEPT)]).await);
        chores.outcome()
    }
}
