//! What we read of the processor's objects. Only what is used is read, and what is missing is said by name.
use kernel::clock::Timestamp;
use serde_json::Value;

use super::NoAnswer;

/// A text at a path; an object that was expanded counts by its id.
pub fn text(of: &Value, pointer: &str) -> Option<String> {
    let found = of.pointer(pointer)?;
    found.as_str().or_else(|| found["id"].as_str()).map(str::to_owned)
}

fn needed(of: &Value, pointer: &str) -> Result<String, NoAnswer> {
    text(of, pointer).ok_or_else(|| NoAnswer::away(format!("its answer has no {pointer}")))
}

fn number(of: &Value, pointer: &str) -> i64 {
    of.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn moment(of: &Value, pointer: &str) -> Option<Timestamp> {
    of.pointer(pointer).and_then(Value::as_i64).and_then(|seconds| seconds.checked_mul(1000)).map(Timestamp)
}

#[derive(Debug, Clone)]
pub struct CheckoutSession {
    pub id: String,
    pub url: Option<String>,
    /// open, complete or expired
    pub status: String,
    pub subscription: Option<String>,
    pub payment_intent: Option<String>,
    pub expires_at: Option<Timestamp>,
}

impl CheckoutSession {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        Ok(Self {
            id: needed(of, "/id")?,
            url: text(of, "/url"),
            status: needed(of, "/status")?,
            subscription: text(of, "/subscription"),
            payment_intent: text(of, "/payment_intent"),
            expires_at: moment(of, "/expires_at"),
        })
    }
}

#[derive(Debug, Clone)]
pub struct Subscription {
    pub id: String,
    pub status: String,
    pub livemode: bool,
    pub item: String,
    pub price: String,
    pub amount: i64,
    pub currency: String,
    pub interval: String,
    pub quantity: i64,
    pub period_start: Option<Timestamp>,
    pub period_end: Option<Timestamp>,
    pub trial_end: Option<Timestamp>,
    pub cancel_at_period_end: bool,
    pub cancel_at: Option<Timestamp>,
    pub latest_invoice: Option<String>,
    /// The card's fingerprint, where the processor tells it.
    pub fingerprint: Option<String>,
}

impl Subscription {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        Ok(Self {
            id: needed(of, "/id")?,
            status: needed(of, "/status")?,
            livemode: of["livemode"] == true,
            item: needed(of, "/items/data/0/id")?,
            price: needed(of, "/items/data/0/price")?,
            amount: number(of, "/items/data/0/price/unit_amount"),
            currency: text(of, "/items/data/0/price/currency").unwrap_or_default(),
            interval: text(of, "/items/data/0/price/recurring/interval").unwrap_or_default(),
            quantity: number(of, "/items/data/0/quantity").max(1),
            // The period is the item's, not the subscription's.
            period_start: moment(of, "/items/data/0/current_period_start"),
            period_end: moment(of, "/items/data/0/current_period_end"),
            trial_end: moment(of, "/trial_end"),
            cancel_at_period_end: of["cancel_at_period_end"] == true,
            cancel_at: moment(of, "/cancel_at"),
            latest_invoice: text(of, "/latest_invoice"),
            fingerprint: text(of, "/default_payment_method/card/fingerprint"),
        })
    }
}

#[derive(Debug, Clone)]
pub struct InvoiceLine {
    pub description: String,
    pub amount: i64,
    pub quantity: i64,
    pub period_start: Option<Timestamp>,
    pub period_end: Option<Timestamp>,
    /// Our item, if the line is one of ours.
    pub item: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Invoice {
    pub id: String,
    pub subscription: Option<String>,
    pub livemode: bool,
    pub status: String,
    pub reason: String,
    pub number: Option<String>,
    pub total: i64,
    pub paid: i64,
    pub currency: String,
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    pub url: Option<String>,
    pub payment_intent: Option<String>,
    pub created: Timestamp,
    pub paid_at: Option<Timestamp>,
    pub lines: Vec<InvoiceLine>,
}

impl Invoice {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        let lines = of.pointer("/lines/data").and_then(Value::as_array).into_iter().flatten();
        let lines = lines.map(|line| InvoiceLine {
            description: text(line, "/description").unwrap_or_default(),
            amount: number(line, "/amount"),
            quantity: number(line, "/quantity").max(1),
            period_start: moment(line, "/period/start"),
            period_end: moment(line, "/period/end"),
            item: text(line, "/metadata/janua_item"),
        });
        let created = moment(of, "/created").unwrap_or(Timestamp(0));
        Ok(Self {
            id: needed(of, "/id")?,
            subscription: text(of, "/parent/subscription_details/subscription"),
            livemode: of["livemode"] == true,
            status: text(of, "/status").unwrap_or_else(|| "draft".into()),
            reason: text(of, "/billing_reason").unwrap_or_default(),
            number: text(of, "/number"),
            total: number(of, "/total"),
            paid: number(of, "/amount_paid"),
            currency: needed(of, "/currency")?,
            period_start: moment(of, "/period_start").unwrap_or(created),
            period_end: moment(of, "/period_end").unwrap_or(created),
            url: text(of, "/hosted_invoice_url"),
            payment_intent: text(of, "/payments/data/0/payment/payment_intent"),
            created,
            paid_at: moment(of, "/status_transitions/paid_at"),
            lines: lines.collect(),
        })
    }
}

/// A payment with its charge: what came in, what went back, and what the processor kept.
#[derive(Debug, Clone)]
pub struct Payment {
    pub status: String,
    pub charge: Option<String>,
    pub refunded: i64,
    pub disputed: bool,
    pub fee: i64,
    pub fee_refunded: i64,
}

impl Payment {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        Ok(Self {
            status: needed(of, "/status")?,
            charge: text(of, "/latest_charge"),
            refunded: number(of, "/latest_charge/amount_refunded"),
            disputed: of.pointer("/latest_charge/disputed").and_then(Value::as_bool).unwrap_or_default(),
            fee: number(of, "/latest_charge/balance_transaction/fee"),
            fee_refunded: number(of, "/latest_charge/application_fee/amount_refunded"),
        })
    }
}

#[derive(Debug, Clone)]
pub struct Dispute {
    pub status: String,
    pub amount: i64,
    pub payment_intent: Option<String>,
}

impl Dispute {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        Ok(Self {
            status: needed(of, "/status")?,
            amount: number(of, "/amount"),
            payment_intent: text(of, "/payment_intent"),
        })
    }
}

/// A merchant's account.
#[derive(Debug, Clone)]
pub struct Account {
    pub id: String,
    pub charges_enabled: bool,
    pub payouts_enabled: bool,
    pub details_submitted: bool,
    pub currently_due: Vec<String>,
    pub past_due: Vec<String>,
    pub deadline: Option<Timestamp>,
    pub disabled_reason: Option<String>,
    pub default_currency: Option<String>,
}

impl Account {
    pub fn read(of: &Value) -> Result<Self, NoAnswer> {
        let texts = |pointer: &str| {
            let found = of.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            found.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Ok(Self {
            id: needed(of, "/id")?,
            charges_enabled: of["charges_enabled"] == true,
            payouts_enabled: of["payouts_enabled"] == true,
            details_submitted: of["details_submitted"] == true,
            currently_due: texts("/requirements/currently_due"),
            past_due: texts("/requirements/past_due"),
            deadline: moment(of, "/requirements/current_deadline"),
            disabled_reason: text(of, "/requirements/disabled_reason"),
            default_currency: text(of, "/default_currency"),
        })
    }
}

/// An event, as far as it says what to read.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub kind: String,
    pub livemode: bool,
    pub account: Option<String>,
    pub object: Option<String>,
}

impl Event {
    pub fn read(of: &Value) -> Option<Self> {
        Some(Self {
            id: text(of, "/id")?,
            kind: text(of, "/type")?,
            livemode: of["livemode"].as_bool()?,
            account: text(of, "/account"),
            object: text(of, "/data/object"),
        })
    }
}
