//! What happens to certificates, as audit logs tell it.
use tenancy::events;

events! {
    /// The first certificate of a domain was issued.
    CertificateIssued { domain: String, expires_at: String } = "CERTIFICATE_ISSUED";
    /// A certificate was renewed.
    CertificateRenewed { domain: String, expires_at: String } = "CERTIFICATE_RENEWED";
    /// A certificate could not be ordered.
    CertificateFailed { domain: String, reason: &'static str } = "CERTIFICATE_FAILED";
}
