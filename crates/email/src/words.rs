//! The small words that rows carry.
use db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! words { ($($(#[$meta:meta])* $type:ident { $($(#[$about:meta])* $variant:ident = $word:literal),+ $(,)? })+) => { $(
    $(#[$meta])*
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum $type { $($(#[$about])* $variant),+ }

    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }
    }
    impl From<$type> for Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl FromValue for $type {
        fn from_value(value: Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }

words! {
    /// The state of a mail to one recipient.
    Status {
        /// Waits for the moment it was scheduled for.
        Scheduled = "scheduled",
        Queued = "queued",
        /// A mail server refused it for now; it is tried again.
        Deferred = "deferred",
        /// The next mail server accepted it.
        Sent = "sent",
        /// The relay reported that the recipient's server accepted it.
        Delivered = "delivered",
        /// The recipient's server refused it for good.
        Bounced = "bounced",
        /// The recipient reported it as spam.
        Complained = "complained",
        /// Not sent in time, or the sender was removed.
        Failed = "failed",
        /// The recipient is on the app's suppression list.
        Suppressed = "suppressed",
        Canceled = "canceled",
    }

    /// Where in the header a recipient stands.
    Kind { To = "to", Cc = "cc", Bcc = "bcc" }

    /// The state of a sending domain.
    DomainStatus {
        Pending = "pending",
        Verified = "verified",
        /// Required records are gone. It still sends, for 72 hours.
        TemporaryFailure = "temporary_failure",
        Failed = "failed",
    }

    /// Why an app does not write to a recipient.
    Reason { Bounce = "bounce", Complaint = "complaint", Unsubscribe = "unsubscribe", Manual = "manual" }

    Algorithm { Rsa = "rsa", Ed25519 = "ed25519" }
}

impl Status {
    /// Whether nothing more is tried.
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Deferred)
    }
}

impl DomainStatus {
    pub fn may_send(self) -> bool {
        matches!(self, Self::Verified | Self::TemporaryFailure)
    }
}
