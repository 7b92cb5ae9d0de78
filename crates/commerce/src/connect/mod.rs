//! Connected merchants: people and companies who are paid through an app.
mod api;
mod checkout;
mod events;
mod merchant;
mod merchants;
pub mod model;
mod onboarding;
mod refunds;
mod rules;
mod seller;

use std::{pin::Pin, time::Duration};

use db::Tx;
use kernel::{Janua, feature::Feature};
use tenancy::{apps::ApplicationId, gone::Gone, once::Purpose};

pub use self::{
    model::Merchant,
    rules::{finish_begun, handle, handle_intent, handle_payment, read_again},
};
use crate::payments::money::Exact;

/// The way back from an onboarding, once.
const RETURN: Purpose = Purpose::new("merchant_return", Duration::from_hours(1));

/// The operator's share of payments to merchants, from the plans file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    pub fee_percent: Exact,
    pub fee_fixed: i64,
    /// Whether the operator may be merchant of record.
    pub destination: bool,
}

impl Terms {
    /// Rounded down, and never more than the payment.
    pub fn fee_of(&self, amount: i64) -> i64 {
        self.fee_percent.percent_of(amount).saturating_add(self.fee_fixed).clamp(0, amount.max(0))
    }
}

pub fn feature() -> Feature {
    Feature::new(api::routes()).declares(events::EVENTS).declares(&[RETURN]).declares(&[Gone::App(app_gone)])
}

fn app_gone<'a>(
    tx: &'a mut Tx,
    janua: &'a Janua,
    id: ApplicationId,
) -> Pin<Box<dyn Future<Output = db::Result<()>> + Send + 'a>> {
    Box::pin(async move { Merchant::end_all(tx, id, janua.clock.now()).await })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fee_is_rounded_down_and_never_more_than_the_payment() {
        let terms = Terms { fee_percent: Exact::parse("2.5").unwrap(), fee_fixed: 30, destination: false };
        assert_eq!(terms.fee_of(10_000), 280);
        assert_eq!(terms.fee_of(1_039), 55);
        assert_eq!(terms.fee_of(10), 10);
        assert_eq!(Terms::default().fee_of(10_000), 0);
    }
}
