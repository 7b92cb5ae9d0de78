//! The settings of mail for apps.
use std::{net::SocketAddr, num::NonZeroUsize, time::Duration};

use kernel::{crypto::Secret, settings};

settings! {
    /// Mail that apps send.
    pub struct Settings {
        /// Where the bounce listener accepts SMTP connections, such as `0.0.0.0:2525`. Off when it is not set.
        bounce_listen: Option<SocketAddr> = "";
        /// The domain that bounces of apps' mail go to. Its MX record leads to the bounce listener.
        bounce_domain: Option<String> = "";
        /// The secret in the URL of relay webhooks: `/email/events/{relay}?secret=…`. Off when it is not set.
        email_webhook_secret: Option<Secret> = "";
        /// The maximum number of recipient domains that a node delivers to concurrently.
        email_lanes: NonZeroUsize = "32";
        /// The maximum number of connections to the mail server that a node opens for apps' mail.
        email_connections: NonZeroUsize = "4";
        /// How long bodies are kept after the last delivery ended.
        email_bodies_kept: Duration = "24h";
        /// The maximum number of recipients that one organization may write to in a second.
        email_per_second: u32 = "100";
    }
}
