//! Deletion of expired rows of this crate's tables, and the rotation of signing keys.
use std::time::Duration;

use kernel::{
    Janua,
    jobs::{Chore, Job, Later},
};
use serde::{Deserialize, Serialize};

use crate::{
    accounts::search,
    apps::end_users,
    messages::{budget, mail},
    quotas,
    sessions::keys,
    uploads,
};

/// Used-up secrets are kept for a while, so that a second use is told apart from a wrong one in the log.
pub const SECRETS_KEPT: Duration = Duration::from_hours(24);

/// Reports of abuse after their last sighting.
const REPORTS_KEPT: Duration = Duration::from_hours(24 * 90);

pub(crate) const CHORES: &[Chore] = &[
    Chore::sweep(
        "once",
        "DELETE FROM once WHERE hash IN
             (SELECT hash FROM once WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        SECRETS_KEPT,
    ),
    Chore::sweep(
        "trusted_device",
        "DELETE FROM trusted_device WHERE hash IN
             (SELECT hash FROM trusted_device WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        Duration::ZERO,
    ),
    Chore::sweep(
        "session",
        "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)",
        Duration::ZERO,
    ),
    Chore::sweep(
        "strike",
        "DELETE FROM strike WHERE (subject, detail) IN
             (SELECT subject, detail FROM strike WHERE last_at < $1 ORDER BY last_at LIMIT $2)",
        SECRETS_KEPT,
    ),
    Chore::sweep(
        "mail_budget",
        "DELETE FROM mail_budget WHERE subject IN
             (SELECT subject FROM mail_budget WHERE day_from < $1 ORDER BY day_from LIMIT $2)",
        SECRETS_KEPT,
    ),
    Chore::sweep(
        "mail_sent",
        "DELETE FROM mail_sent WHERE id IN (SELECT id FROM mail_sent WHERE sent_at < $1 ORDER BY sent_at LIMIT $2)",
        mail::SENT_KEPT,
    ),
    Chore::sweep(
        "slug_hold",
        "DELETE FROM slug_hold WHERE slug IN
             (SELECT slug FROM slug_hold WHERE held_until <= $1 ORDER BY held_until LIMIT $2)",
        Duration::ZERO,
    ),
    Chore::sweep(
        "abuse_report",
        "DELETE FROM abuse_report WHERE id IN (SELECT id FROM abuse_report WHERE last_at < $1 ORDER BY last_at LIMIT $2)",
        REPORTS_KEPT,
    ),
    Chore::sweep(
        "quota",
        "DELETE FROM quota WHERE (org_id, meter, period) IN
             (SELECT org_id, meter, period FROM quota WHERE period > 0 AND period < $1 ORDER BY period LIMIT $2)",
        quotas::KEPT,
    ),
    Chore::sweep(
        "app_quota",
        "DELETE FROM app_quota WHERE (app_id, meter, period) IN
             (SELECT app_id, meter, period FROM app_quota WHERE period < $1 ORDER BY period LIMIT $2)",
        quotas::KEPT,
    ),
    Chore::run("send_budget", |janua| Box::pin(async move { Ok(budget::sweep(&janua).await?) })),
    Chore::run("upload", |janua| Box::pin(async move { Ok(uploads::sweep(&janua).await?) })),
    Chore::run("app_user", |janua| Box::pin(async move { Ok(end_users::note_wordless(&janua).await?) })),
    Chore::run("account", |janua| Box::pin(async move { Ok(search::note_wordless(&janua).await?) })),
];

/// Publishes the next signing key in time. A job of its own: nothing else may stand in its way.
#[derive(Default, Serialize, Deserialize)]
pub struct TurnKeys {}

impl Job for TurnKeys {
    const KIND: &'static str = "tenancy.turn_keys";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        keys::turn_if_due(&janua).await.map_err(Later::retry)
    }
}
