//! Who runs this installation.
use kernel::settings;
use url::Url;

settings! {
    /// The operator, as legal documents and `security.txt` name them.
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
    }
}

impl Operator {
    /// Where security reports go.
    pub fn security_contact(&self) -> String {
        self.security_contact.as_ref().map_or_else(|| format!("mailto:{}", self.operator_email), Url::to_string)
    }
}
