//! The registrar for development: it answers by the beginning of a name, and nothing leaves the machine.
use kernel::clock::Timestamp;

use super::{Answer, Availability, Contact, DomainPrice, Offer, Progress, Registrar, model::Registration};

pub struct Sandbox;

const PRICE: i64 = 1200;
const PREMIUM: i64 = 250_000;
/// How often `slow-` names are polled before they are done.
const SLOW: i64 = 3;

impl Registrar for Sandbox {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    fn offer<'a>(&'a self, domain: &'a str) -> Answer<'a, Offer> {
        Box::pin(async move {
            let usd = |amount| Some(DomainPrice { amount, currency: "USD".into() });
            let (availability, price) = match domain.split_once('-').map_or("", |(prefix, _)| prefix) {
                "taken" => (Availability::Unavailable, None),
                "premium" => (Availability::Premium, usd(PREMIUM)),
                "reserved" => (Availability::Reserved, None),
                "away" => return Err(super::Away { text: "the sandbox plays dead".into(), wait: None }),
                _ => (Availability::Available, usd(PRICE)),
            };
            Ok(Offer { availability, price })
        })
    }

    fn register<'a>(&'a self, wanted: &'a Registration, _: &'a Contact) -> Answer<'a, Progress> {
        Box::pin(async move { Ok(Progress::Running(format!("sandbox-{}", wanted.id))) })
    }

    fn find<'a>(&'a self, _: &'a str) -> Answer<'a, Option<Progress>> {
        Box::pin(async { Ok(None) })
    }

    fn poll<'a>(&'a self, wanted: &'a Registration, _: &'a str) -> Answer<'a, Progress> {
        Box::pin(async move {
            let waited = (wanted.updated_at.0 - wanted.created_at.0) / 60_000;
            let year_ms = 365 * Timestamp::DAY_MS;
            let expires_at = Some(Timestamp(wanted.created_at.0 + wanted.years * year_ms));
            Ok(match wanted.domain.split_once('-').map_or("", |(prefix, _)| prefix) {
                "fail" => Progress::Failed("The sandbox refuses names that begin with fail-.".into()),
                "action" => Progress::ActionRequired("Confirm the email that the sandbox did not send.".into()),
                "slow" if waited < SLOW => Progress::Running(format!("sandbox-{}", wanted.id)),
                _ => Progress::Succeeded { expires_at },
            })
        })
    }
}
