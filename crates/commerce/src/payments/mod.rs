//! The port to the payment processor: what we ask of it, and what we read of its answers.
//!
//! Nothing here is called inside of a transaction. A change has three steps: our row is committed with what is meant, the
//! processor is called with an `Idempotency-Key` that follows from the row, and the answer is committed. A job finishes what a
//! dead process left after the first step.
pub mod calls;
pub mod money;
pub mod read;
pub mod signature;
pub mod wire;

use std::sync::Arc;

use kernel::{
    Janua,
    clock::Timestamp,
    config::{Config, Switch},
    crypto::Secret,
    fault::{Code, Result},
};

pub use self::wire::{NoAnswer, Transport, Wire};
use crate::{
    sandbox::Sandbox,
    settings::{PaymentsSetting, Settings},
    stripe::Stripe,
};

pub const NOT_CONFIGURED: Code = Code::new(
    503,
    "payments_not_configured",
    "This installation has no payment processor. Its operator can set one up; see docs/billing.md.",
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sandbox,
    Stripe,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Stripe => "stripe",
        }
    }
}

/// The processor of this installation.
pub struct Driver {
    pub kind: Kind,
    /// Whether its money is real.
    pub livemode: bool,
    pub(crate) transport: Arc<dyn Transport>,
    billing_secrets: Vec<Secret>,
    connect_secrets: Vec<Secret>,
}

/// Which of the two webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Billing,
    Connect,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::Billing => "billing",
            Self::Connect => "connect",
        }
    }
}

impl Driver {
    /// The secrets that the webhook's signatures are checked with.
    pub fn secrets(&self, janua: &Janua, source: Source) -> Vec<Secret> {
        match (self.kind, source) {
            (Kind::Sandbox, source) => vec![sandbox_secret(janua, source)],
            (Kind::Stripe, Source::Billing) => self.billing_secrets.clone(),
            (Kind::Stripe, Source::Connect) => self.connect_secrets.clone(),
        }
    }

    /// The time by the processor's clock. The sandbox's can be ahead of ours.
    pub async fn now(&self, janua: &Janua) -> db::Result<Timestamp> {
        match self.kind {
            Kind::Sandbox => crate::sandbox::now(janua).await,
            Kind::Stripe => Ok(janua.clock.now()),
        }
    }
}

/// The sandbox signs with a secret that follows from the master key, so none has to be kept.
pub fn sandbox_secret(janua: &Janua, source: Source) -> Secret {
    format!("whsec_{}", janua.vault.mac("sandbox-webhook", source.name().as_bytes())).into()
}

/// The processor that the settings ask for, or none, or what is wrong with the settings.
pub struct Payments(std::result::Result<Option<Driver>, String>);

impl Payments {
    pub fn from_config(config: &Config) -> Self {
        Self(choose(config))
    }

    pub fn of(janua: &Janua) -> Option<&Driver> {
        janua.own::<Self>().driver()
    }

    pub fn driver(&self) -> Option<&Driver> {
        self.0.as_ref().ok().and_then(Option::as_ref)
    }

    /// The processor, or 503.
    pub fn required(janua: &Janua) -> Result<&Driver> {
        Self::of(janua).ok_or_else(|| NOT_CONFIGURED.into())
    }

    pub fn wrong(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }
}

fn choose(config: &Config) -> std::result::Result<Option<Driver>, String> {
    let settings = config.of::<Settings>();
    let sandbox = || Driver {
        kind: Kind::Sandbox,
        livemode: false,
        transport: Arc::new(Sandbox),
        billing_secrets: vec![],
        connect_secrets: vec![],
    };
    match settings.payments {
        PaymentsSetting::Off => Ok(None),
        PaymentsSetting::Auto => Ok(config.has_loopback_url().then(sandbox)),
        PaymentsSetting::Sandbox if config.has_loopback_url() || settings.sandbox_is_not_money == Switch::On => {
            Ok(Some(sandbox()))
        }
        PaymentsSetting::Sandbox => Err(format!(
            "payments: the sandbox takes test cards and gives plans away, and {} is a public base URL. Use stripe or off, or \
             confirm it with sandbox_is_not_money = on",
            config.base_url()
        )),
        PaymentsSetting::Stripe => stripe(config, &settings).map(Some),
    }
}

fn stripe(config: &Config, settings: &Settings) -> std::result::Result<Driver, String> {
    let Some(key) = &settings.stripe_secret_key else {
        return Err("stripe_secret_key: is needed with payments = stripe".into());
    };
    let livemode = match key.expose() {
        key if key.starts_with("sk_live_") || key.starts_with("rk_live_") => true,
        key if key.starts_with("sk_test_") || key.starts_with("rk_test_") => false,
        _ => return Err("stripe_secret_key: must begin with sk_live_ or sk_test_".into()),
    };
    let shared = |secret: &Secret| {
        settings
            .connect_webhook_secrets
            .iter()
            .any(|other| kernel::crypto::same(other.expose().as_bytes(), secret.expose().as_bytes()))
    };
    if settings.billing_webhook_secrets.iter().any(shared) {
        return Err("connect_webhook_secrets: must not have a secret of billing_webhook_secrets".into());
    }
    if !livemode && !config.has_loopback_url() {
        tracing::warn!("stripe_secret_key is a test key on a public base URL: no money moves");
    }
    let api = &settings.stripe_api_url;
    if api.scheme() != "https" && !kernel::config::is_loopback(api) {
        return Err("stripe_api_url: must be https, but for loopback".into());
    }
    Ok(Driver {
        kind: Kind::Stripe,
        livemode,
        transport: Arc::new(Stripe::new(api.clone(), key.clone())?),
        billing_secrets: settings.billing_webhook_secrets.clone(),
        connect_secrets: settings.connect_webhook_secrets.clone(),
    })
}
