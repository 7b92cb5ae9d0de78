//! What of this crate's tables has expired, and what ends after a restore or with a member's access.
use std::time::Duration;

use db::params;
use kernel::jobs::{Chore, Job as _};
use tenancy::{gone::Gone, restored::AfterRestore, tidy::SECRETS_KEPT};

use crate::{asked::Asked, first_owner};

/// A client that nobody used is forgotten.
const CLIENTS_KEPT: Duration = Duration::from_hours(24 * 7);

pub const CHORES: &[Chore] = &[
    Chore::sweep(
        "device_code",
        "DELETE FROM device_code WHERE hash IN
             (SELECT hash FROM device_code WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        SECRETS_KEPT,
    ),
    Chore::sweep(
        "oauth_code",
        "DELETE FROM oauth_code WHERE hash IN
             (SELECT hash FROM oauth_code WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        SECRETS_KEPT,
    ),
    Chore::sweep(
        "oauth_client",
        "DELETE FROM oauth_client WHERE id IN
             (SELECT id FROM oauth_client WHERE used_at IS NULL AND created_at < $1 ORDER BY created_at LIMIT $2)",
        CLIENTS_KEPT,
    ),
];

pub const AFTER_RESTORE: &[AfterRestore] = &[
    AfterRestore::remove(
        "DELETE FROM device_code WHERE hash IN
             (SELECT hash FROM device_code WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.secrets,
    ),
    AfterRestore::remove(
        "DELETE FROM oauth_code WHERE hash IN
             (SELECT hash FROM oauth_code WHERE hash > $1 ORDER BY hash LIMIT $2) RETURNING hash",
        |ended| &mut ended.secrets,
    ),
    AfterRestore::delete_jobs(Asked::KIND),
    first_owner::AFTER_RESTORE,
];

/// The device codes of a member whose access ends, also those that were approved and not used yet.
pub const DEVICE_CODES: Gone = Gone::Access(|tx, _, lost| {
    Box::pin(async move {
        let (sql, params) = if lost.is_home {
            ("DELETE FROM device_code WHERE account_id = $1", params![lost.account])
        } else {
            (
                "DELETE FROM device_code WHERE account_id = $1 AND app_id IN (SELECT id FROM app WHERE org_id = $2)",
                params![lost.account, lost.org],
            )
        };
        tx.exec(sql, params).await.map(drop)
    })
});
