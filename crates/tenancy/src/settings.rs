//! The settings of accounts, sessions and messages.
use std::time::Duration;

use kernel::settings;

settings! {
    /// How long sessions live, who runs the platform, and how much is sent to whom.
    pub struct Settings {
        /// The lifetime of an access token.
        access_token_life: Duration = "15m";
        /// A session that is not used for this long expires.
        session_idle_life: Duration = "30d";
        /// The maximum lifetime of a session.
        session_life: Duration = "90d";
        /// The size of signing keys: 2048, 3072 or 4096 bits.
        signing_key_bits: u32 = "2048";
        /// Emails of the platform owners. They manage the installation: abuse reports, incidents, queues.
        platform_owners: Vec<String> = "";
        /// Emails of the platform admins. They see figures of the platform, such as costs; owners are admins, too.
        platform_admins: Vec<String> = "";
        /// The maximum number of passwords in the queue for hashing; further sign-ins are answered with 503 immediately.
        password_queue: usize = "1024";
        /// The maximum number of text messages per hour to one country.
        sms_per_country: u32 = "100";
        /// The maximum number of mails per hour to one email that anyone can request: reset, sign-in link, sign-up, invitation.
        mail_per_hour: u32 = "5";
        /// The same per day.
        mail_per_day: u32 = "20";
    }
}
