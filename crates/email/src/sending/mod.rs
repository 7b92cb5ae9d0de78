//! Sending: what may be asked for, what is stored of it, and what goes over the wire.
mod api;
pub mod content;
mod model;
mod platform;
mod request;
mod store;
mod text;

use kernel::{fault::Code, http::Routes};

pub use model::{MailEvent, Message, MessageId, Recipient, RecipientId, Search, note_end, of_request};
pub use request::{Address, Findings, TemplateUse, is_locale};
pub use store::{Sent, deliver_again};

pub const SENDER_NOT_VERIFIED: Code =
    Code::new(403, "sender_not_verified", "The app has not verified the domain of this sender.");
pub const NO_VERIFIED_DOMAIN: Code = Code::new(
    409,
    "no_verified_domain",
    "The app has no verified sending domain. Add one in the console (Email, Domains).",
);
pub const SENDING_PAUSED: Code =
    Code::new(403, "sending_paused", "Sending is paused because of bounces or complaints. Resume it in the console.");
pub const RECIPIENT_NOT_ALLOWED: Code = Code::new(
    403,
    "recipient_not_allowed",
    "The platform's sender writes to yourself and, for admins, to members of the organization.",
);

/// Room for ten megabytes of attachments in base64.
pub const LARGEST_BODY: usize = 15 * 1024 * 1024;

pub fn routes() -> Routes {
    Routes::new("email").and(api::routes()).and(platform::routes())
}
