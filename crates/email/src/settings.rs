//! The settings of mail for apps.
use std::{net::SocketAddr, num::NonZeroUsize, time::Duration};

use kernel::{
    config::{IpNet, Setting},
    crypto::Secret,
    ports::outgoing::Permit,
    settings,
};

/// How apps' mail leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// By the mail server of `smtp_url`.
    Relay,
    /// To the servers of the recipients' domains.
    Direct,
}

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
        /// How apps' mail leaves: `relay` by the server of smtp_url, or `direct` to the servers of the recipients' domains, which
        /// needs port 25 outward, a name that leads back to this address, and a reputation; see docs/email.md.
        email_delivery: Delivery = "relay";
        /// The name this server gives itself when it delivers mail; left out: the host of the base URL.
        email_hello: Option<String> = "";
        /// The port of recipients' servers; another one only for tests.
        email_direct_port: u32 = "25";
        /// The port at which recipients' domains publish their MTA-STS policies; another one only for tests.
        email_policy_port: u32 = "443";
        /// Private networks that mail may be delivered to, such as `127.0.0.0/8`; for development.
        email_allow_nets: Vec<IpNet> = "";
    }
}

impl Settings {
    /// What these settings allow beside the public internet.
    pub fn permit(&self) -> Permit {
        Permit { networks: self.email_allow_nets.clone(), plain_http: false }
    }
}

impl Setting for Delivery {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "relay" => Ok(Self::Relay),
            "direct" => Ok(Self::Direct),
            _ => Err("must be relay or direct".into()),
        }
    }
}
