//! What happens to domains, as audit logs tell it.
use tenancy::events;

events! {
    /// A domain was added to an app.
    DomainAdded { domain: String } = "DOMAIN_ADDED";
    /// A domain was proven.
    DomainVerified { domain: String } = "DOMAIN_VERIFIED";
    /// A domain was switched on: requests to it are answered with the app's site.
    DomainAttached { domain: String } = "DOMAIN_ATTACHED";
    /// A domain leads here and is served.
    DomainActive { domain: String } = "DOMAIN_ACTIVE";
    /// An active domain leads elsewhere.
    DomainMisconfigured { domain: String, reason: &'static str } = "DOMAIN_MISCONFIGURED";
    /// What a domain is used for was changed.
    DomainUpdated { domain: String, passkeys: bool } = "DOMAIN_UPDATED";
    /// A domain was removed from an app.
    DomainRemoved { domain: String } = "DOMAIN_REMOVED";
    /// Another app has proven the domain: recorded for both.
    DomainMoved { domain: String, outcome: &'static str } = "DOMAIN_MOVED";
}
