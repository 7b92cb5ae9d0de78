//! What happens to plans and payments, for the audit log.
tenancy::events! {
    /// A checkout for a plan was started.
    CheckoutStarted { plan: String, interval: String } = "BILLING_CHECKOUT_STARTED";
    /// A trial of a plan began.
    TrialStarted { plan: String } = "BILLING_TRIAL_STARTED";
    /// A subscription will end at the end of its period.
    CancelScheduled { plan: String } = "BILLING_CANCEL_SCHEDULED";
    /// A subscription ended.
    Canceled { plan: String } = "BILLING_CANCELED";
    /// An invoice was paid.
    PaymentSucceeded { invoice: String, amount: i64, currency: String } = "BILLING_PAYMENT_SUCCEEDED";
    /// A payment failed. The plan is kept for a while.
    PaymentFailed { plan: String } = "BILLING_PAYMENT_FAILED";
    /// A payment was refunded, as a whole or in part.
    Refunded { invoice: String, amount: i64, currency: String } = "BILLING_REFUNDED";
    /// A payment was disputed.
    Disputed { invoice: String, currency: String } = "BILLING_DISPUTED";
    /// The customer portal was opened.
    PortalOpened = "BILLING_PORTAL_OPENED";
    /// What was stored differed from what the processor says, and was corrected.
    Reconciled { before: String, after: String } = "BILLING_RECONCILED";
    /// An event of the payment processor was refused.
    EventRejected { reason: String } = "BILLING_EVENT_REJECTED";
    /// An app was connected to billing.
    AppConnected { payer: String } = "APP_BILLING_CONNECTED";
}
