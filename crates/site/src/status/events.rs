//! What happens to the status page, as audit logs tell it.
use tenancy::events;

events! {
    /// An incident began or changed.
    IncidentReported { incident_id: String, state: &'static str } = "INCIDENT_REPORTED";
}
