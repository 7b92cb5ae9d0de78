//! Who runs this installation.
use kernel::{config::Switch, settings};
use url::Url;

settings! {
    /// The operator, as legal documents and `security.txt` name them, and what the status page does by itself.
    pub struct Operator {
        /// The name of the operator in the legal documents.
        operator_name: String = "The operator of this service";
        /// The operator's postal address.
        operator_address: String = "";
        /// The email of the operator in the legal documents.
        operator_email: String = "operator@localhost";
        /// The country whose law applies.
        operator_country: String = "";
        /// Where security reports go (RFC 9116): a mailto: or https: URL. Empty: the operator's email.
        security_contact: Option<Url> = "";
        /// Whether the status page shows incidents that the installation notices by itself, and platform owners get mails about them.
        status_alarms: Switch = "on";
    }
}

impl Operator {
    /// Where security reports go.
    pub fn security_contact(&self) -> String {
        self.security_contact.as_ref().map_or_else(|| format!("mailto:{}", self.operator_email), Url::to_string)
    }
}
