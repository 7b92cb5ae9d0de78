//! The settings of plans, usage and payments.
use std::path::PathBuf;

use kernel::{
    config::{Setting, Switch},
    crypto::Secret,
    settings,
};
use url::Url;

settings! {
    /// Plans, what they include, and how they are paid for.
    pub struct Settings {
        /// A TOML file with plans, meters, limits and prices; see docs/usage.md. Empty: nothing is sold or limited.
        plans_file: Option<PathBuf> = "";
        /// The payment processor: auto, off, sandbox or stripe. auto is the sandbox while the base URL leads to this machine, and
        /// off otherwise; see docs/billing.md.
        payments: PaymentsSetting = "auto";
        /// Confirms that a sandbox on a public base URL is meant: no money moves, and plans are given away.
        sandbox_is_not_money: Switch = "off";
        /// The secret key of Stripe, sk_live_… or sk_test_….
        stripe_secret_key: Option<Secret> = "";
        /// Where Stripe's API is; another one only for tests.
        stripe_api_url: Url = "https://api.stripe.com";
        /// Signing secrets of the endpoint POST /billing/webhook, separated by commas while one is rotated.
        billing_webhook_secrets: Vec<Secret> = "";
        /// Signing secrets of the endpoint POST /connect/webhook/payments. Never one of billing_webhook_secrets.
        connect_webhook_secrets: Vec<Secret> = "";
    }
}

/// Which processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentsSetting {
    Auto,
    Off,
    Sandbox,
    Stripe,
}

impl Setting for PaymentsSetting {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "sandbox" => Ok(Self::Sandbox),
            "stripe" => Ok(Self::Stripe),
            _ => Err("must be auto, off, sandbox or stripe".into()),
        }
    }
}
