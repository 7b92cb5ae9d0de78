//! What happens to the mail of apps, as audit logs and webhooks (`audit.EMAIL_…`) tell it. Single mails are in the log of
//! messages.
use tenancy::events;

use crate::sending::MessageId;

events! {
    /// A sending domain was added.
    DomainAdded { hostname: String } = "EMAIL_DOMAIN_ADDED";
    /// The records of a sending domain were found. It may send.
    DomainVerified { hostname: String } = "EMAIL_DOMAIN_VERIFIED";
    /// Required records of a sending domain are gone. It stops sending in 72 hours.
    DomainFailing { hostname: String } = "EMAIL_DOMAIN_FAILING";
    /// A sending domain does not send any more.
    DomainFailed { hostname: String } = "EMAIL_DOMAIN_FAILED";
    /// A sending domain was removed.
    DomainRemoved { hostname: String } = "EMAIL_DOMAIN_REMOVED";
    /// A sending domain got new keys.
    KeyRotated { hostname: String } = "EMAIL_DOMAIN_KEY_ROTATED";
    /// A mail was refused for good.
    Bounced { message_id: MessageId, email: String, answer: String } = "EMAIL_BOUNCED";
    /// A recipient reported a mail as spam.
    Complained { message_id: MessageId, email: String } = "EMAIL_COMPLAINED";
    /// A recipient is not written to any more.
    Suppressed { email: String, reason: &'static str } = "EMAIL_SUPPRESSED";
    /// A recipient may be written to again.
    SuppressionRemoved { email: String } = "EMAIL_SUPPRESSION_REMOVED";
    /// Too many bounces or complaints: the app sends nothing more.
    SendingPaused { reason: String } = "EMAIL_SENDING_PAUSED";
    /// The app sends again.
    SendingResumed = "EMAIL_SENDING_RESUMED";
}
