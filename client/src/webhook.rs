//! Whether a delivery is genuine.
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac};
use data_encoding::HEXLOWER_PERMISSIVE;

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
/// `now` is in seconds since 1970. A webhook with `standardHeaders` is verified by the libraries of Standard Webhooks
/// instead.
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
    let text = at.filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    let text = text.filter(|_| !signatures.is_empty()).ok_or(WebhookError::MalformedHeader)?;
    let seconds: u64 = text.parse().map_err(|_| WebhookError::MalformedHeader)?;
    if seconds.abs_diff(now) > TOLERANCE.as_secs() {
        return Err(WebhookError::TimestampOutsideTolerance);
    }
    let signed = [text.as_bytes(), b".", body].concat();
    let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &signed);
    // Every one is compared, so that the time tells nothing of which it was.
    let matches = signatures.iter().filter(|signature| {
        let given = HEXLOWER_PERMISSIVE.decode(signature.as_bytes()).unwrap_or_default();
        constant_time::verify_slices_are_equal(&given, expected.as_ref()).is_ok()
    });
    if matches.count() > 0 { Ok(()) } else { Err(WebhookError::SignatureMismatch) }
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

    /// The clients in TypeScript and Python read the same file.
    #[test]
    fn the_shared_vectors_are_judged_alike() {
        let vectors: serde_json::Value = serde_json::from_str(include_str!("../vectors/webhooks.json")).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() > 30, "{}", cases.len());
        for case in cases {
            let text = |name: &str| case[name].as_str().unwrap();
            let header = case["headers"]["webhook-signature"].as_str().unwrap();
            let now = case["now"].as_u64().unwrap();
            let judged = verify_webhook(header, text("body").as_bytes(), text("secret"), now);
            let reason = judged.err().map(|error| error.to_string());
            assert_eq!(reason.as_deref(), case["reason"].as_str(), "{}", case["name"]);
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_refused_without_ado(header in "\\PC*", body: Vec<u8>) {
            assert!(verify_webhook(&header, &body, "s", NOW).is_err());
        }
    }
}
