//! Signatures of the processor's webhooks: `t=…,v1=…`, HMAC-SHA256 over the time, a dot and the body as it came.
use axum::http::{HeaderMap, HeaderValue};
use data_encoding::HEXLOWER;
use kernel::{
    clock::Timestamp,
    crypto::{HmacKey, Secret, same},
    fault::Code,
};

pub const MALFORMED_HEADER: Code = Code::new(
    400,
    "malformed_header",
    "The signature header is missing or cannot be read. Send t and v1 in Processor-Signature.",
);
pub const OUTSIDE_TOLERANCE: Code = Code::new(
    400,
    "timestamp_outside_tolerance",
    "The event was signed more than five minutes ago, or more than five minutes ahead.",
);
pub const SIGNATURE_MISMATCH: Code =
    Code::new(400, "signature_mismatch", "The signature does not belong to this body and secret.");

const TOLERANCE_MS: i64 = 300_000;
/// A sender that rotates its secret signs twice.
const MOST_SIGNATURES: usize = 16;

/// Checks the signature of a body against every secret.
pub fn verify(headers: &HeaderMap, body: &[u8], secrets: &[Secret], now: Timestamp) -> Result<(), Code> {
    let header = header_of(headers).ok_or(MALFORMED_HEADER)?;
    let (signed_at, signatures) = read(header).ok_or(MALFORMED_HEADER)?;
    let at_ms = signed_at.parse::<i64>().ok().and_then(|at| at.checked_mul(1000)).ok_or(MALFORMED_HEADER)?;
    if now.0.saturating_sub(at_ms).saturating_abs() > TOLERANCE_MS {
        return Err(OUTSIDE_TOLERANCE);
    }
    let mut is_right = false;
    for secret in secrets {
        let expected = mac(secret, signed_at, body);
        for signature in &signatures {
            is_right |= same(expected.as_bytes(), signature.as_bytes());
        }
    }
    if is_right { Ok(()) } else { Err(SIGNATURE_MISMATCH) }
}

/// The header for a body that is signed now.
pub fn sign(secret: &Secret, now: Timestamp, body: &[u8]) -> String {
    let at = now.0.div_euclid(1000).to_string();
    format!("t={at},v1={}", mac(secret, &at, body))
}

fn mac(secret: &Secret, at: &str, body: &[u8]) -> String {
    HEXLOWER.encode(&HmacKey::new(secret.expose().as_bytes()).sign(&[at.as_bytes(), b".", body]))
}

/// One header, or both with the same value.
fn header_of(headers: &HeaderMap) -> Option<&str> {
    let mut given: Vec<&HeaderValue> = vec![];
    for name in ["processor-signature", "stripe-signature"] {
        given.extend(headers.get_all(name));
    }
    let first = *given.first()?;
    given.iter().all(|one| *one == first).then(|| first.to_str().ok()).flatten()
}

/// The time as it is written, and every `v1`. Other schemes are left out.
fn read(header: &str) -> Option<(&str, Vec<&str>)> {
    let (mut times, mut signatures) = (vec![], vec![]);
    for part in header.split(',') {
        let (name, value) = part.trim().split_once('=')?;
        match name {
            "t" => times.push(value),
            "v1" => signatures.push(value),
            _ => {}
        }
    }
    let [at] = times[..] else { return None };
    let is_time = (1..=12).contains(&at.len()) && at.bytes().all(|b| b.is_ascii_digit());
    let is_right = is_time && (1..=MOST_SIGNATURES).contains(&signatures.len());
    is_right.then_some((at, signatures))
}
