//! What happens to merchants, for the audit log.
use super::model::{MerchantId, PaymentId};

tenancy::events! {
    /// A merchant was created.
    MerchantCreated { merchant: MerchantId } = "MERCHANT_CREATED";
    /// An admin changed a merchant's names, email or currency.
    MerchantUpdated { merchant: MerchantId, fields: Vec<&'static str> } = "MERCHANT_UPDATED";
    /// A merchant can be paid.
    MerchantEnabled { merchant: MerchantId } = "MERCHANT_ENABLED";
    /// A merchant cannot be paid until something is provided.
    MerchantRestricted { merchant: MerchantId } = "MERCHANT_RESTRICTED";
    /// The processor rejected a merchant.
    MerchantDisabled { merchant: MerchantId } = "MERCHANT_DISABLED";
    /// A merchant is not connected any more.
    MerchantDisconnected { merchant: MerchantId } = "MERCHANT_DISCONNECTED";
    /// A merchant was paid.
    MerchantPaid { payment: PaymentId, amount: i64, currency: String } = "MERCHANT_PAID";
    /// A payment to a merchant was refunded, as a whole or in part.
    MerchantRefunded { payment: PaymentId, amount: i64, currency: String } = "MERCHANT_REFUNDED";
    /// A payment to a merchant was disputed.
    MerchantDisputed { payment: PaymentId, amount: i64, currency: String } = "MERCHANT_DISPUTED";
    /// A link to a merchant's account at the processor was opened.
    MerchantLinkOpened { merchant: MerchantId, link: String } = "MERCHANT_LINK_OPENED";
}
