//! What happened, written down in the transaction that made it happen. There is no other way to tell anybody.
use kernel::{
    App,
    db::{self, Tx},
    id::Id,
    params,
};
use serde_json::{Value, json};

use crate::{accounts::AccountId, factors::Factor, sessions::SessionId};

/// Ids and plain facts only: nothing in here is secret, so nothing secret can be told.
#[derive(Debug, Clone)]
pub enum Event {
    AccountCreated,
    EmailVerified,
    SignedIn { session: SessionId, methods: Vec<String>, device: String },
    SignInFailed { reason: &'static str },
    SignInLocked,
    SessionRevoked { session: SessionId, reason: &'static str },
    RefreshTokenReused { session: SessionId },
    PasswordResetRequested,
    PasswordReset,
    PasswordChanged,
    MagicLinkRequested,
    ProfileUpdated { fields: Vec<&'static str> },
    DataExported,
    AccountDeleted,
    MfaEnabled { factor: Factor },
    MfaDisabled { factor: Factor },
    RecoveryCodesRegenerated,
    RecoveryCodeUsed,
    DeviceApproved { device: String, ip: String },
    DeviceDenied,
    SocialLinked { provider: &'static str },
    IncidentReported { incident: String, state: &'static str },
}

impl Event {
    /// The type in the audit log.
    pub fn audit_type(&self) -> &'static str {
        match self {
            Self::AccountCreated => "ACCOUNT_CREATED",
            Self::EmailVerified => "EMAIL_VERIFIED",
            Self::SignedIn { .. } => "SIGNED_IN",
            Self::SignInFailed { .. } => "SIGN_IN_FAILED",
            Self::SignInLocked => "SIGN_IN_LOCKED",
            Self::SessionRevoked { .. } => "SESSION_REVOKED",
            Self::RefreshTokenReused { .. } => "REFRESH_TOKEN_REUSED",
            Self::PasswordResetRequested => "PASSWORD_RESET_REQUESTED",
            Self::PasswordReset => "PASSWORD_RESET",
            Self::PasswordChanged => "PASSWORD_CHANGED",
            Self::MagicLinkRequested => "MAGIC_LINK_REQUESTED",
            Self::ProfileUpdated { .. } => "PROFILE_UPDATED",
            Self::DataExported => "DATA_EXPORTED",
            Self::AccountDeleted => "ACCOUNT_DELETED",
            Self::MfaEnabled { .. } => "MFA_ENABLED",
            Self::MfaDisabled { .. } => "MFA_DISABLED",
            Self::RecoveryCodesRegenerated => "RECOVERY_CODES_REGENERATED",
            Self::RecoveryCodeUsed => "RECOVERY_CODE_USED",
            Self::DeviceApproved { .. } => "DEVICE_APPROVED",
            Self::DeviceDenied => "DEVICE_DENIED",
            Self::SocialLinked { .. } => "SOCIAL_LINKED",
            Self::IncidentReported { .. } => "INCIDENT_REPORTED",
        }
    }

    /// The webhook event it is, beside being an audit event.
    fn webhook(&self) -> Option<&'static str> {
        match self {
            Self::AccountCreated => Some("user.created"),
            Self::EmailVerified => Some("user.email_verified"),
            Self::SignedIn { .. } => Some("user.signed_in"),
            Self::SessionRevoked { .. } => Some("session.revoked"),
            Self::MfaEnabled { .. } => Some("user.mfa_enabled"),
            Self::MfaDisabled { .. } => Some("user.mfa_disabled"),
            _ => None,
        }
    }

    fn details(&self) -> Value {
        match self {
            Self::SignedIn { session, methods, device } => {
                json!({ "sessionId": session, "methods": methods, "device": device })
            }
            Self::SignInFailed { reason } => json!({ "reason": reason }),
            Self::SessionRevoked { session, reason } => json!({ "sessionId": session, "reason": reason }),
            Self::RefreshTokenReused { session } => json!({ "sessionId": session }),
            Self::MfaEnabled { factor } | Self::MfaDisabled { factor } => json!({ "factor": factor }),
            Self::DeviceApproved { device, ip } => json!({ "device": device, "deviceIp": ip }),
            Self::SocialLinked { provider } => json!({ "provider": provider }),
            Self::ProfileUpdated { fields } => json!({ "fields": fields }),
            Self::IncidentReported { incident, state } => json!({ "incidentId": incident, "state": state }),
            _ => json!({}),
        }
    }
}

/// Who did it, and from where.
#[derive(Debug, Clone, Default)]
pub struct By {
    /// The signed-in person; nobody for what happens at the door.
    pub actor: Option<AccountId>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
}

/// Writes down that something happened to a person (or, without one, to the platform).
pub async fn record(tx: &mut Tx, app: &App, by: &By, about: Option<AccountId>, event: &Event) -> db::Result<()> {
    let now = app.clock.now();
    tx.exec(
        "INSERT INTO audit_event (id, type, webhook, account_id, actor, target, ip, user_agent, at, details)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        params![
            Id::<Event>::new(&app.entropy, now),
            event.audit_type(),
            event.webhook(),
            about,
            by.actor,
            about.map(|id| id.to_string()),
            by.ip.clone(),
            by.user_agent.clone(),
            now,
            &event.details()
        ],
    )
    .await?;
    Ok(())
}

/// After a person is gone their past stays, without anything that leads back to them.
pub async fn forget_person(tx: &mut Tx, account_id: AccountId) -> db::Result<()> {
    let sql = "UPDATE audit_event SET ip = NULL, user_agent = NULL, details = '{}' WHERE account_id = $1";
    tx.exec(sql, params![account_id]).await?;
    Ok(())
}
