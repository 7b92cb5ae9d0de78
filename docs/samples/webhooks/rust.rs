use std::time::{SystemTime, UNIX_EPOCH};

/// `header` is `Webhook-Signature`, `body` the bytes as received, `now` is `SystemTime::now()`.
pub fn is_genuine(header: &str, body: &[u8], secret: &str, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    // During a rotation there are two signatures, and each is compared.
    janua_client::verify_webhook(header, body, secret, now).is_ok()
}
