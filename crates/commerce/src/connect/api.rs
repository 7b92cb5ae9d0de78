//! The routes of `/connect`: merchants of an app, their onboarding, and payments to them.
use kernel::{
    fault::{BAD_CURSOR, Code, FORBIDDEN, IDEMPOTENCY_KEY_REQUIRED, IDEMPOTENCY_MISMATCH, NOT_FOUND},
    http::Routes,
};
use tenancy::once::TOKEN_SPENT;

use super::{
    checkout::{create_payment, list_payments},
    merchant::{act_on_merchant, change_merchant, delete_merchant, show_merchant},
    merchants::{delete_merchant_account, list_merchants},
    onboarding::{change_merchant_account, create_merchant, finish_onboarding, return_from_onboarding},
    refunds::{change_payment, delete_payment},
};
use crate::{
    billing::urls::REDIRECT_NOT_ALLOWED,
    payments::{NOT_CONFIGURED, wire},
    usage::SECRET_KEY_REQUIRED,
};

pub const MERCHANT_BUSY: Code =
    Code::new(409, "merchant_busy", "Payments or refunds of this merchant are under way. Wait until they ended.");
pub const MERCHANT_NOT_READY: Code =
    Code::new(409, "merchant_not_ready", "The merchant cannot be paid yet. Finish the onboarding first.");
pub const NOT_REFUNDABLE: Code =
    Code::new(409, "not_refundable", "The refund exceeds the remaining amount of the payment.");

const COMMON: &[Code] = &[
    NOT_FOUND,
    FORBIDDEN,
    NOT_CONFIGURED,
    REDIRECT_NOT_ALLOWED,
    MERCHANT_BUSY,
    MERCHANT_NOT_READY,
    wire::REFUSED,
    wire::AWAY,
];

pub fn routes() -> Routes {
    Routes::new("connect")
        .each(|routes| routes.fails(COMMON))
        .get("/connect/onboard/accounts", list_merchants, "merchants of an app, or one of them")
        .fails(&[BAD_CURSOR])
        .post("/connect/onboard/accounts", create_merchant, "create a merchant and a link to onboard")
        .patch("/connect/onboard/accounts", change_merchant_account, "change a merchant, or make a new link")
        .put("/connect/onboard/accounts", change_merchant_account, "change a merchant, or make a new link")
        .named("put_merchant_account")
        .delete("/connect/onboard/accounts", delete_merchant_account, "disconnect a merchant")
        .get("/connect/onboard/done", return_from_onboarding, "return page of the merchant's onboarding")
        .fails(&[TOKEN_SPENT])
        .answers_nothing(303)
        .post("/connect/onboard/done", finish_onboarding, "read the merchant's account again")
        .get("/connect/merchants/{accountId}", show_merchant, "merchant details")
        .post("/connect/merchants/{accountId}", act_on_merchant, "a link to the merchant's account, or a fresh read")
        .patch("/connect/merchants/{accountId}", change_merchant, "change a merchant")
        .put("/connect/merchants/{accountId}", change_merchant, "change a merchant")
        .named("put_merchant")
        .delete("/connect/merchants/{accountId}", delete_merchant, "disconnect a merchant")
        .each(|routes| routes.fails(COMMON).fails(&[SECRET_KEY_REQUIRED]))
        .get("/connect/checkout/sessions", list_payments, "payments to merchants, or one of them")
        .fails(&[BAD_CURSOR])
        .post("/connect/checkout/sessions", create_payment, "create a checkout for a merchant")
        .fails(&[IDEMPOTENCY_MISMATCH])
        .patch("/connect/checkout/sessions", change_payment, "expire or refund a payment")
        .fails(&[IDEMPOTENCY_KEY_REQUIRED, NOT_REFUNDABLE, IDEMPOTENCY_MISMATCH])
        .put("/connect/checkout/sessions", change_payment, "expire or refund a payment")
        .named("put_payment")
        .fails(&[IDEMPOTENCY_KEY_REQUIRED, NOT_REFUNDABLE, IDEMPOTENCY_MISMATCH])
        .delete("/connect/checkout/sessions", delete_payment, "expire a payment")
}
