//! The settings of webhooks.
use std::num::NonZeroUsize;

use kernel::{
    config::{IpNet, Switch},
    ports::outgoing::Permit,
    settings,
};

settings! {
    /// Where webhooks may go, and how many.
    pub struct Settings {
        /// Private networks that webhooks may be sent to, such as `127.0.0.0/8`; for development.
        webhook_allow_nets: Vec<IpNet> = "";
        /// `on` allows http:// endpoints; for development. `WEBHOOK_ALLOW_HTTP=1` does the same.
        webhook_allow_http: Switch = "off";
        /// The maximum number of webhooks that a node delivers to concurrently.
        webhook_lanes: NonZeroUsize = "256";
        /// The maximum number of webhooks of one app for one host.
        webhooks_per_host: NonZeroUsize = "10";
    }
}

impl Settings {
    /// What these settings allow beside the public internet.
    pub fn permit(&self) -> Permit {
        Permit { networks: self.webhook_allow_nets.clone(), plain_http: self.webhook_allow_http.is_on() }
    }
}

#[cfg(test)]
mod tests {
    use kernel::config::Config;

    use super::Settings;

    #[test]
    fn the_switch_for_plain_http_has_two_names() {
        for name in ["WEBHOOK_ALLOW_HTTP", "JANUA_WEBHOOK_ALLOW_HTTP"] {
            let variables = [(name.to_owned(), "1".to_owned())];
            let config = Config::load(None, variables, [], crate::PART.settings).unwrap();
            assert!(config.of::<Settings>().webhook_allow_http.is_on(), "{name}");
        }
    }
}
