//! What of this crate's tables has expired.
use std::time::Duration;

use kernel::jobs::Chore;
use tenancy::tidy::SECRETS_KEPT;

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
