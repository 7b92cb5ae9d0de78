//! Throws away what nobody can use any more, and publishes the next signing key in time.
use std::time::Duration;

use kernel::{
    App,
    jobs::{Job, Later},
    params,
};
use serde::{Deserialize, Serialize};

use crate::{end_users, keys, uploads};

/// Used-up secrets are kept for a while, so that a second use is told apart from a wrong one in the log.
const SECRETS_KEPT: Duration = Duration::from_hours(24);

/// A client that nobody used is forgotten.
const CLIENTS_KEPT: Duration = Duration::from_hours(24 * 7);

#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "tenancy.tidy";

    async fn run(self, app: App) -> Result<(), Later> {
        let now = app.clock.now();
        app.db.exec("DELETE FROM once WHERE expires_at < $1", params![now.minus(SECRETS_KEPT)]).await?;
        app.db.exec("DELETE FROM trusted_device WHERE expires_at < $1", params![now]).await?;
        app.db.exec("DELETE FROM device_code WHERE expires_at < $1", params![now.minus(SECRETS_KEPT)]).await?;
        app.db.exec("DELETE FROM oauth_code WHERE expires_at < $1", params![now.minus(SECRETS_KEPT)]).await?;
        let sql = "DELETE FROM oauth_client WHERE used_at IS NULL AND created_at < $1";
        app.db.exec(sql, params![now.minus(CLIENTS_KEPT)]).await?;
        app.db.exec("DELETE FROM session WHERE ends_at < $1", params![now]).await?;
        app.db.exec("DELETE FROM strike WHERE last_at < $1", params![now.minus(SECRETS_KEPT)]).await?;
        app.db.exec("DELETE FROM mail_budget WHERE day_from < $1", params![now.minus(SECRETS_KEPT)]).await?;
        uploads::sweep(&app).await?;
        end_users::note_wordless(&app).await.map_err(Later::retry)?;
        keys::turn_if_due(&app).await.map_err(Later::retry)
    }
}
