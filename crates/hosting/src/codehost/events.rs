//! What happens to installations, for the audit log and webhooks.
use super::model::InstallationId;

tenancy::events! {
    /// An organization connected an installation at the code host.
    CodehostConnected { installation_id: InstallationId, account: String } = "CODEHOST_CONNECTED";
    /// The links or settings of an installation were changed.
    CodehostUpdated { installation_id: InstallationId, fields: Vec<String> } = "CODEHOST_UPDATED";
    /// The code host suspended an installation.
    CodehostSuspended { installation_id: InstallationId, account: String } = "CODEHOST_SUSPENDED";
    /// The code host lifted a suspension.
    CodehostResumed { installation_id: InstallationId, account: String } = "CODEHOST_RESUMED";
    /// An installation was disconnected: here, or at the code host.
    CodehostDisconnected { installation_id: InstallationId, account: String } = "CODEHOST_DISCONNECTED";
}
