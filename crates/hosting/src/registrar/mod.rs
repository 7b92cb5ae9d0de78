//! Registering domains: whether one is free and for how much, buying it once, and following the purchase to its end.
//!
//! A purchase is a row before anybody is asked. The job that asks the registrar notes first that it does; one that finds such a
//! note asks whether the domain is ours by now before it buys.
mod api;
mod jobs;
mod model;
mod route53;
mod sandbox;

use std::{pin::Pin, time::Duration};

use kernel::{clock::Timestamp, config::Config, feature::Feature};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::model::Registration;
use crate::settings::{RegistrarKind, Settings};

pub fn feature(config: &Config) -> Feature {
    let settings = config.of::<Settings>();
    let registrar: Box<dyn Registrar> = match settings.registrar {
        RegistrarKind::Sandbox => Box::new(sandbox::Sandbox),
        RegistrarKind::Route53 => Box::new(route53::Route53::new(&settings)),
    };
    Feature::new(api::routes())
        .jobs(jobs::jobs())
        .declares(api::EVENTS)
        .declares(&[api::REGISTRATIONS])
        .own(registrar)
        .start(|janua| {
            Box::pin(async move {
                let settings = janua.config.of::<Settings>();
                let has_keys = settings.registrar_access_key.is_some() && settings.registrar_secret_key.is_some();
                if settings.registrar == RegistrarKind::Route53 && !has_keys {
                    return Err("registrar: route53 needs registrar_access_key and registrar_secret_key".into());
                }
                Ok(())
            })
        })
}

/// A price in minor units: 1300 USD is 13 dollars.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DomainPrice {
    #[schemars(range(min = 0, max = 100_000_000))]
    pub amount: i64,
    #[schemars(length(equal = 3), regex(pattern = "^[A-Z]{3}$"))]
    pub currency: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    Available,
    Unavailable,
    /// Free, for a price above the usual one; it cannot be registered here.
    Premium,
    Reserved,
    /// The registrar did not say.
    Unknown,
}

/// What the registrar says about a name.
#[derive(Debug, Clone)]
pub struct Offer {
    pub availability: Availability,
    /// For one year.
    pub price: Option<DomainPrice>,
}

/// The registrant of a domain.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    #[schemars(length(min = 1, max = 255))]
    pub first_name: String,
    #[schemars(length(min = 1, max = 255))]
    pub last_name: String,
    #[schemars(length(max = 255))]
    pub organization: Option<String>,
    #[schemars(length(min = 3, max = 254))]
    pub email: String,
    /// As in `+49.15112345678`.
    #[schemars(length(max = 30), regex(pattern = "^\\+[0-9]{1,3}\\.[0-9]{4,20}$"))]
    pub phone: String,
    #[schemars(length(min = 1, max = 255))]
    pub address_line1: String,
    #[schemars(length(max = 255))]
    pub address_line2: Option<String>,
    #[schemars(length(min = 1, max = 255))]
    pub city: String,
    #[schemars(length(max = 255))]
    pub state: Option<String>,
    #[schemars(length(min = 1, max = 255))]
    pub zip_code: String,
    /// Two letters, such as `DE`.
    #[schemars(regex(pattern = "^[A-Z]{2}$"))]
    pub country_code: String,
}

/// How a purchase stands at the registrar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The registrar works on it, and calls it this.
    Running(String),
    Succeeded {
        expires_at: Option<Timestamp>,
    },
    Failed(String),
    /// Somebody has to do something, as the message says.
    ActionRequired(String),
}

/// Why the registrar gave no answer that counts.
#[derive(Debug, thiserror::Error)]
#[error("the registrar does not answer: {text}")]
pub struct Away {
    pub text: String,
    pub wait: Option<Duration>,
}

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Away>> + Send + 'a>>;

/// A registrar. Nothing here is repeated by itself.
pub trait Registrar: Send + Sync {
    fn name(&self) -> &'static str;
    fn offer<'a>(&'a self, domain: &'a str) -> Answer<'a, Offer>;
    /// Asks to register; called once for a purchase unless [`find`](Self::find) says that nothing came of it.
    fn register<'a>(&'a self, wanted: &'a Registration, contact: &'a Contact) -> Answer<'a, Progress>;
    /// Whether a purchase of this domain is under way or done, for one whose first answer was lost.
    fn find<'a>(&'a self, domain: &'a str) -> Answer<'a, Option<Progress>>;
    fn poll<'a>(&'a self, wanted: &'a Registration, operation: &'a str) -> Answer<'a, Progress>;
}

#[cfg(test)]
mod tests;
