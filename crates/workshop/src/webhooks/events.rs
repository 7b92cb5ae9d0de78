//! What happens to webhooks, as audit logs tell it.
use tenancy::events;

events! {
    /// A webhook was created.
    WebhookCreated { webhook_id: String } = "WEBHOOK_CREATED";
    /// A webhook changed.
    WebhookUpdated { webhook_id: String, fields: Vec<&'static str> } = "WEBHOOK_UPDATED";
    /// A webhook was deleted.
    WebhookDeleted { webhook_id: String } = "WEBHOOK_DELETED";
    /// A webhook got another secret; the old one still counts.
    WebhookSecretRotated { webhook_id: String } = "WEBHOOK_SECRET_ROTATED";
    /// The old secret of a webhook ended.
    WebhookSecretFinalized { webhook_id: String } = "WEBHOOK_SECRET_FINALIZED";
    /// A webhook whose receiver did not answer was switched off.
    WebhookAutoDisabled { webhook_id: String } = "WEBHOOK_AUTO_DISABLED";
    /// A developer began to receive events over a stream.
    WebhookListenerStarted { webhook_id: String } = "WEBHOOK_LISTENER_STARTED";
    /// A listener was deleted.
    WebhookListenerEnded { webhook_id: String } = "WEBHOOK_LISTENER_ENDED";
}
