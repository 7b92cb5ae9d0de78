//! Whether a delivery is genuine.
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac};
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};

/// How far the receiver's clock and the sender's may be apart.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Why a delivery is not to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("malformed_header")]
    MalformedHeader,
    #[error("timestamp_outside_tolerance")]
    TimestampOutsideTolerance,
    #[error("signature_mismatch")]
    SignatureMismatch,
}

/// Whether `body`, exactly as it was received, was signed with `secret` not long ago. `header` is `Webhook-Signature`,
/// `now` is in seconds since 1970. [`verify_delivery`] takes the deliveries of a webhook with `standardHeaders`, too.
///
/// ```
/// let refused = janua_client::verify_webhook("t=1", b"{}", "secret", 1);
/// assert_eq!(refused, Err(janua_client::WebhookError::MalformedHeader));
/// ```
pub fn verify_webhook(header: &str, body: &[u8], secret: &str, now: u64) -> Result<(), WebhookError> {
    let mut at = None;
    let mut signatures = vec![];
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", value)) => at = Some(value),
            Some(("v1", value)) => signatures.push(value),
            _ => {}
        }
    }
    let at = at.unwrap_or_default();
    let macs =
        signatures.iter().map(|text| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).unwrap_or_default()).collect();
    Signed { at, head: format!("{at}."), key: secret.as_bytes(), macs }.verify(body, now)
}

/// Whether a delivery is genuine, in the form that its secret says: `secret` of a webhook (64 characters), or
/// `standardSecret` (`whsec_…`) of one with `standardHeaders`. `header` finds a header by its name in lower case.
///
/// ```
/// let headers = std::collections::HashMap::from([("webhook-signature", "t=1")]);
/// let refused = janua_client::verify_delivery(|name| headers.get(name).copied(), b"{}", "secret", 1);
/// assert_eq!(refused, Err(janua_client::WebhookError::MalformedHeader));
/// ```
pub fn verify_delivery<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    body: &[u8],
    secret: &str,
    now: u64,
) -> Result<(), WebhookError> {
    let text = |name| header(name).unwrap_or_default();
    // The secret decides the form, never the request.
    let Some(key) = secret.strip_prefix("whsec_") else {
        return verify_webhook(text("webhook-signature"), body, secret, now);
    };
    let (id, at) = (text("webhook-id"), text("webhook-timestamp"));
    let key = BASE64.decode(key.as_bytes()).unwrap_or_default();
    let macs = text("webhook-signature").split(' ').filter_map(|part| part.strip_prefix("v1,"));
    let macs = macs.map(|text| BASE64.decode(text.as_bytes()).unwrap_or_default()).collect();
    let at = if id.is_empty() { "" } else { at };
    Signed { at, head: format!("{id}.{at}."), key: &key, macs }.verify(body, now)
}

/// What a signature says: when it was made, what stands before the body, and the codes of which one must match.
struct Signed<'a> {
    at: &'a str,
    head: String,
    key: &'a [u8],
    macs: Vec<Vec<u8>>,
}

impl Signed<'_> {
    fn verify(self, body: &[u8], now: u64) -> Result<(), WebhookError> {
        let is_number = !self.at.is_empty() && self.at.bytes().all(|b| b.is_ascii_digit());
        if !is_number || self.macs.is_empty() {
            return Err(WebhookError::MalformedHeader);
        }
        let seconds: u64 = self.at.parse().map_err(|_| WebhookError::MalformedHeader)?;
        if seconds.abs_diff(now) > TOLERANCE.as_secs() {
            return Err(WebhookError::TimestampOutsideTolerance);
        }
        let signed = [self.head.as_bytes(), body].concat();
        let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.key), &signed);
        // Every one is compared, so that the time tells nothing of which it was.
        let matches =
            self.macs.iter().filter(|mac| constant_time::verify_slices_are_equal(mac, expected.as_ref()).is_ok());
        // With an empty key, everybody could sign.
        if matches.count() > 0 && !self.key.is_empty() { Ok(()) } else { Err(WebhookError::SignatureMismatch) }
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    const NOW: u64 = 1_769_853_600;

    fn mac(secret: &str, at: u64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        HEXLOWER.encode(hmac::sign(&key, format!("{at}.{body}").as_bytes()).as_ref())
    }

    #[test]
    fn a_genuine_delivery_is_taken_also_while_the_secret_turns() {
        let (one, two) = (mac("new", NOW, "{}"), mac("old", NOW, "{}"));
        let both = format!("t={NOW},v1={one},v1={two}");
        for secret in ["new", "old"] {
            assert_eq!(verify_webhook(&both, b"{}", secret, NOW), Ok(()), "{secret}");
        }
        assert_eq!(verify_webhook(&format!("v1={one}, t={NOW} ,v0=x"), b"{}", "new", NOW), Ok(()));
        assert_eq!(verify_webhook(&both, b"{}", "older", NOW), Err(WebhookError::SignatureMismatch));
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let good = mac("s", NOW, "{}");
        for header in ["", "t=", "t=x,v1=00", &format!("t={NOW}"), &format!("v1={good}"), "t=-1,v1=00", "garbage"] {
            assert_eq!(verify_webhook(header, b"{}", "s", NOW), Err(WebhookError::MalformedHeader), "{header}");
        }
        let header = format!("t={NOW},v1={good}");
        for now in [NOW - 300, NOW, NOW + 300] {
            assert_eq!(verify_webhook(&header, b"{}", "s", now), Ok(()), "{now}");
        }
        for now in [0, NOW - 301, NOW + 301, u64::MAX] {
            let refused = verify_webhook(&header, b"{}", "s", now);
            assert_eq!(refused, Err(WebhookError::TimestampOutsideTolerance), "{now}");
        }
        for (body, secret) in [("{} ", "s"), ("{}", "t")] {
            let refused = verify_webhook(&header, body.as_bytes(), secret, NOW);
            assert_eq!(refused, Err(WebhookError::SignatureMismatch));
        }
        let short = format!("t={NOW},v1={}", &good[..62]);
        assert_eq!(verify_webhook(&short, b"{}", "s", NOW), Err(WebhookError::SignatureMismatch));
        assert_eq!(WebhookError::SignatureMismatch.to_string(), "signature_mismatch");
    }

    /// The clients in TypeScript and Python read the same files.
    #[test]
    fn the_shared_vectors_are_judged_alike() {
        for (vectors, least) in
            [(include_str!("../vectors/webhooks.json"), 30), (include_str!("../vectors/standard-webhooks.json"), 14)]
        {
            let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
            let cases = vectors["cases"].as_array().unwrap();
            assert!(cases.len() > least, "{}", cases.len());
            for case in cases {
                let text = |name: &str| case[name].as_str().unwrap();
                let now = case["now"].as_u64().unwrap();
                let header = |name: &str| case["headers"][name].as_str();
                let judged = verify_delivery(header, text("body").as_bytes(), text("secret"), now);
                let reason = judged.err().map(|error| error.to_string());
                assert_eq!(reason.as_deref(), case["reason"].as_str(), "{}", case["name"]);
            }
        }
    }

    #[test]
    fn a_malformed_secret_verifies_nothing() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"");
        let mac = BASE64.encode(hmac::sign(&key, format!("id.{NOW}.{{}}").as_bytes()).as_ref());
        let (at, signature) = (NOW.to_string(), format!("v1,{mac}"));
        let header = |name: &str| match name {
            "webhook-id" => Some("id"),
            "webhook-timestamp" => Some(at.as_str()),
            _ => Some(signature.as_str()),
        };
        for secret in ["whsec_", "whsec_!"] {
            assert_eq!(verify_delivery(header, b"{}", secret, NOW), Err(WebhookError::SignatureMismatch), "{secret}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_refused_without_ado(header in "\\PC*", body: Vec<u8>) {
            assert!(verify_webhook(&header, &body, "s", NOW).is_err());
        }
    }
}
