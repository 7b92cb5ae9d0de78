//! What a page says after an act. A form names one of these sentences in its field `done`; no other text is said.
use serde_json::Value;

/// Names and sentences. `{field}` is a field of the API's answer; without it, the second sentence is said.
const NOTICES: &[(&str, &str, &str)] = &[
    ("done", "Done.", ""),
    ("saved", "Saved.", ""),
    // The account.
    ("confirmation_sent", "Confirmation email sent. Check your email.", ""),
    ("password_changed", "Password changed. All other sessions were ended.", ""),
    ("totp_on", "Authenticator app turned on.", ""),
    ("totp_off", "Authenticator app turned off.", ""),
    ("code_sent", "Code sent.", ""),
    ("sms_on", "Codes by text message turned on.", ""),
    ("sms_off", "Codes by text message turned off.", ""),
    ("recovery_codes_created", "Recovery codes created. The old ones no longer work.", ""),
    ("passkey_renamed", "Passkey renamed.", ""),
    ("passkey_removed", "Passkey removed.", ""),
    ("picture_saved", "Picture saved.", ""),
    ("session_ended", "Session ended.", ""),
    ("device_forgotten", "Device forgotten.", ""),
    ("devices_forgotten", "All trusted devices forgotten.", ""),
    ("access_revoked", "Access revoked.", ""),
    // Organizations.
    ("org_created", "Organization created.", ""),
    ("org_deleted", "Organization deleted.", ""),
    ("org_left", "You left the organization.", ""),
    ("metadata_updated", "Metadata updated.", ""),
    ("invite_sent", "Invitation sent to {email}.", "Invitation sent."),
    ("invite_resent", "Invitation sent again to {email}.", "Invitation sent again."),
    ("invite_canceled", "Invitation canceled.", ""),
    ("role_changed", "Role changed.", ""),
    ("member_removed", "Member removed.", ""),
    ("token_created", "Token created.", ""),
    ("token_revoked", "Token revoked.", ""),
    ("time_zone_changed", "Time zone saved. It counts from the next day on.", ""),
    ("plan_canceled", "Plan canceled. It ends with the period that is paid for.", ""),
    ("plan_kept", "The plan continues.", ""),
    ("app_connected", "App connected to billing.", ""),
    ("merchant_disconnected", "Merchant disconnected.", ""),
    ("event_replayed", "The event is processed again.", ""),
    // Apps.
    ("app_created", "App created.", ""),
    ("app_deleted", "App deleted.", ""),
    ("redirect_added", "Redirect URL added.", ""),
    ("logo_removed", "Logo removed.", ""),
    ("rolled_back", "Rolled back. The chosen files are live.", ""),
    ("deployment_stopped", "Deployment stopped. Nothing went live.", ""),
    ("site_saved", "Site settings saved.", ""),
    ("key_created", "Key created.", ""),
    ("key_revoked", "Key revoked.", ""),
    ("object_deleted", "Object deleted.", ""),
    ("object_uploaded", "File uploaded.", ""),
    ("domain_added", "Domain added. Add the DNS record to verify it.", ""),
    ("domain_removed", "Domain removed.", ""),
    ("site_domain_added", "Domain added. Create the DNS records shown on its page.", ""),
    ("domain_checked", "Domain checked.", ""),
    ("purchase_begun", "Purchase started.", ""),
    ("passkeys_on", "Pages of the domain can ask for passkeys.", ""),
    ("passkeys_off", "Pages of the domain can no longer ask for passkeys.", ""),
    ("endpoint_added", "Endpoint added.", ""),
    ("endpoint_deleted", "Endpoint deleted.", ""),
    ("endpoint_on", "Endpoint turned on.", ""),
    ("endpoint_off", "Endpoint turned off.", ""),
    ("test_sent", "Test event queued. Its delivery appears below.", ""),
    ("delivery_queued", "Delivery queued.", ""),
    ("events_queued", "Missed events are being sent again.", ""),
    ("secret_rotated", "Secret rotated.", ""),
    ("rotation_finished", "Rotation finished. The old secret no longer works.", ""),
    // Machines.
    ("machine_created", "Registered.", ""),
    ("machine_suspended", "Suspended. All of its tokens are invalid.", ""),
    ("machine_reactivated", "Reactivated.", ""),
    ("machine_deleted", "Deleted.", ""),
    ("switch_created", "Kill switch created. The old one no longer works.", ""),
    ("domain_verified", "Domain verified.", ""),
    ("server_revoked", "Revoked. All of its tokens and its secret are invalid.", ""),
    // Skills.
    ("skill_starred", "Starred.", ""),
    ("skill_unstarred", "Star removed.", ""),
    ("skill_installed", "Installed {version}. Your agents read it over MCP.", "Installed."),
    ("skill_uninstalled", "Uninstalled.", ""),
    ("skill_reported", "Report sent. Thank you.", ""),
    ("skill_rated", "Rating saved.", ""),
    ("skill_published", "Published.", ""),
    ("skill_waits", "Uploaded. A platform owner reviews this version before it is published.", ""),
    ("skill_saved", "Visibility changed.", ""),
    ("version_decided", "Decision saved.", ""),
    // The code host.
    ("link_saved", "Repository linked. Its production branch is being deployed.", ""),
    ("link_removed", "Link removed.", ""),
    ("delivery_run", "The delivery is being run again.", ""),
    ("installation_disconnected", "Disconnected.", ""),
    // Email.
    ("email_domain_added", "Sending domain added. Create its DNS records.", ""),
    ("email_domain_removed", "Sending domain removed.", ""),
    ("email_keys_created", "New keys created. Create their DNS records; the old keys sign until then.", ""),
    ("email_resent", "Message queued again.", ""),
    ("email_canceled", "Message canceled.", ""),
    ("email_test_sent", "Test email queued.", ""),
    ("sending_resumed", "Sending resumed.", ""),
    ("recipient_suppressed", "{email} is not written to any more.", "Recipient suppressed."),
    ("suppression_removed", "Recipient may be written to again.", ""),
    ("template_saved", "Template saved.", ""),
    ("template_deleted", "Template deleted.", ""),
    // The platform.
    ("account_created", "Account created.", ""),
    ("account_disabled", "Account disabled. All its sessions were ended.", ""),
    ("account_enabled", "Account enabled.", ""),
    ("account_deleted", "Account deleted.", ""),
    ("factors_reset", "Two-factor authentication and passkeys removed. All sessions were ended.", ""),
    ("password_required", "Password removed. The user gets a link to set a new one.", ""),
    ("confirmation_sent_to_user", "Confirmation email sent.", ""),
    ("sessions_ended", "Sessions ended.", ""),
    ("user_blocked", "User blocked from this app.", ""),
    ("user_unblocked", "User unblocked.", ""),
    ("plan_changed", "Plan changed.", ""),
    ("incident_published", "Incident published.", ""),
    ("update_published", "Update published.", ""),
];

/// The sentence with this name, filled in. An unknown name says nothing.
pub fn sentence(name: &str, answer: &Value) -> Option<String> {
    let (_, sentence, without) = NOTICES.iter().find(|(known, ..)| *known == name)?;
    let Some((before, rest)) = sentence.split_once('{') else { return Some((*sentence).to_owned()) };
    let (field, after) = rest.split_once('}')?;
    Some(match answer[field].as_str() {
        Some(value) => format!("{before}{value}{after}"),
        None => (*without).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_sentence_is_filled_from_the_answer() {
        assert_eq!(sentence("saved", &Value::Null).as_deref(), Some("Saved."));
        let answer = json!({ "email": "ada@example.com" });
        assert_eq!(sentence("invite_sent", &answer).as_deref(), Some("Invitation sent to ada@example.com."));
        assert_eq!(sentence("invite_sent", &Value::Null).as_deref(), Some("Invitation sent."));
        assert_eq!(sentence("You won <b>a car</b>", &answer), None);
    }

    #[test]
    fn templates_name_known_notices_alone() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        for folder in [root.to_owned(), format!("{root}/console"), format!("{root}/account")] {
            for file in fs::read_dir(folder).expect("templates").flatten().filter(|file| file.path().is_file()) {
                let text = fs::read_to_string(file.path()).expect("text");
                for named in text.split("done=\"").skip(1) {
                    let name = named.split('"').next().unwrap_or_default();
                    // An empty one says that the page itself shows the result.
                    assert!(
                        name.is_empty() || NOTICES.iter().any(|(known, ..)| *known == name),
                        "{name} in {:?}",
                        file.path()
                    );
                }
            }
        }
    }
}
