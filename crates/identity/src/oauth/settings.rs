//! The settings of the OAuth server.
use kernel::{config::Switch, settings};

settings! {
    /// Which clients beside apps there are.
    pub struct Settings {
        /// `off` knows no clients that describe themselves at an https address of theirs (OAuth client id metadata documents).
        client_documents: Switch = "on";
        /// `on` lets anybody register an OAuth client (RFC 7591).
        client_registration: Switch = "off";
    }
}
