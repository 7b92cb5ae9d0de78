//! The settings of the OAuth server.
use kernel::{config::Switch, settings};

settings! {
    /// Which clients beside apps there are.
    pub struct Settings {
        /// `off` disables OAuth clients that are identified by an https URL (client id metadata documents).
        client_documents: Switch = "on";
        /// `on` enables dynamic client registration (RFC 7591).
        client_registration: Switch = "off";
    }
}
