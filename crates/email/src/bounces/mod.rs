//! Bounces and complaints that come after a mail was accepted: by mail to a return path of our own, or from the relay.
pub mod dsn;
mod listener;
mod relays;

use std::time::Duration;

use kernel::{Janua, crypto::same, http::Routes};

pub use listener::run;
#[cfg(test)]
pub use listener::serve;

use crate::{
    Settings,
    sending::{Address, Message, Recipient, RecipientId},
};

const MAC_LEN: usize = 16;
/// Bounces of older mails are not accepted.
const LIFE: Duration = Duration::from_hours(30 * 24);

pub fn routes() -> Routes {
    relays::routes()
}

fn mac(janua: &Janua, id: RecipientId) -> String {
    let mut mac = janua.vault.mac("email-bounce", id.to_string().as_bytes());
    mac.truncate(MAC_LEN);
    mac
}

/// Where a mail that cannot be delivered goes back to: an email for this one mail, or its sender where nobody listens.
pub fn return_path(janua: &Janua, message: &Message, recipient: &Recipient, has_return_path: bool) -> String {
    let Some(bounces) = &janua.config.of::<Settings>().bounce_domain else {
        let sender = Address::parse(&message.from_header);
        return sender.map(|address| address.email.as_str().to_owned()).unwrap_or_default();
    };
    let domain = match &message.hostname {
        Some(host) if has_return_path => format!("bounce.{host}"),
        _ => bounces.clone(),
    };
    format!("b.{}.{}@{domain}", recipient.id.uuid().simple(), mac(janua, recipient.id))
}

/// The mail that a return path belongs to. Its keyed digest is what counts, and not the domain: that may be any host whose
/// bounces come here.
fn recipient_of(janua: &Janua, email: &str) -> Option<RecipientId> {
    let (local, _) = email.rsplit_once('@')?;
    let mut parts = local.split('.');
    let (Some(start), Some(id), Some(given), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let id = (id.len() == 32 && id.is_ascii()).then(|| {
        format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]).to_ascii_lowercase()
    })?;
    let id: RecipientId = id.parse().ok()?;
    let is_ours = start.eq_ignore_ascii_case("b")
        && same(given.to_ascii_lowercase().as_bytes(), mac(janua, id).to_ascii_lowercase().as_bytes());
    (is_ours && janua.clock.now().since(id.moment()) <= LIFE).then_some(id)
}
