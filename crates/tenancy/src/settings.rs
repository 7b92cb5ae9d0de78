//! The settings of accounts, sessions and messages.
use std::time::Duration;

use kernel::settings;

settings! {
    /// How long sessions live, who runs the platform, and how much is sent to whom.
    pub struct Settings {
        /// How long an access token is good for.
        access_token_life: Duration = "15m";
        /// How long a session lives without being used.
        session_idle_life: Duration = "30d";
        /// How long a session lives at the most, however much it is used.
        session_life: Duration = "90d";
        /// 2048, 3072 or 4096.
        signing_key_bits: u32 = "2048";
        /// Addresses of the people who run the platform; they may see abuse reports and write incidents.
        platform_owners: Vec<String> = "";
        /// How many passwords may wait to be hashed; past that sign-in answers 503 at once.
        password_queue: usize = "1024";
        /// How many text messages an hour go to one country.
        sms_per_country: u32 = "100";
        /// How many mails an hour go to one email that anybody can ask for: forgotten password, sign-in link, sign-up, invite.
        mail_per_hour: u32 = "5";
        /// How many of them a day.
        mail_per_day: u32 = "20";
    }
}
