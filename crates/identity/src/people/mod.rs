//! Administration of people by platform owners: finding, creating, changing, disabling and deleting accounts, and helping
//! people who lost a password or a second factor. The shell (`janua admin`) does the same by the same rules.
pub mod acts;
mod api;
mod views;

use std::time::Duration;

use kernel::fault::Code;
use tenancy::once::Purpose;

pub use api::routes;

/// The link that a platform owner has mailed: it chooses a password, the first or a new one.
pub const ACCOUNT_INVITE: Purpose = Purpose::new("account_invite", Duration::from_hours(7 * 24));

pub const EMAIL_TAKEN: Code = Code::new(409, "email_taken", "Another account has this email.");
pub const NO_EMAIL: Code = Code::new(409, "no_email", "This account has no email to send a link to.");
pub const ALREADY_VERIFIED: Code =
    Code::new(409, "already_verified", "The email of this account is verified already.");
pub const OWN_ACCOUNT: Code = Code::new(
    409,
    "own_account",
    "This is your own account. Another platform owner can do this, or you in your account.",
);
pub const LAST_PLATFORM_OWNER: Code =
    Code::new(409, "last_platform_owner", "This is the last platform owner. Make another person an owner first.");
