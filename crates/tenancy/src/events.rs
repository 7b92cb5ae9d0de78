//! What happened, written down in the transaction that made it happen. There is no other way to tell anybody.
use db::{Db, Tx, params};
use kernel::{App, clock::Timestamp, id::Id};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    accounts::AccountId,
    apps::{AppKeyId, Application, ApplicationId, Environment, KeyKind},
    factors::Factor,
    orgs::{OrgId, Role},
    outbox,
    people::PersonId,
    scim_tokens::ScimTokenId,
    sessions::SessionId,
};

/// Ids and plain facts only: nothing in here is secret, so nothing secret can be told.
#[derive(Debug, Clone)]
pub enum Event {
    AccountCreated,
    PlatformOwnerMade,
    EmailVerified,
    SignedIn {
        session: SessionId,
        methods: Vec<String>,
        device: String,
    },
    SignInFailed {
        reason: &'static str,
    },
    SignInLocked,
    SessionRevoked {
        session: SessionId,
        reason: &'static str,
    },
    RefreshTokenReused {
        session: SessionId,
    },
    PasswordResetRequested,
    PasswordReset,
    PasswordChanged,
    MagicLinkRequested,
    ProfileUpdated {
        fields: Vec<&'static str>,
    },
    DataExported,
    AccountDeleted,
    MfaEnabled {
        factor: Factor,
    },
    MfaDisabled {
        factor: Factor,
    },
    RecoveryCodesRegenerated,
    RecoveryCodeUsed,
    PasskeyAdded {
        credential: String,
        name: String,
    },
    PasskeyRenamed {
        credential: String,
        name: String,
    },
    PasskeyRemoved {
        credential: String,
    },
    DeviceApproved {
        device: String,
        ip: String,
    },
    DeviceDenied,
    /// One device, or all of them.
    TrustedDeviceRemoved {
        device: Option<String>,
    },
    SocialLinked {
        provider: &'static str,
    },
    ConsentGranted {
        client: String,
        scopes: String,
    },
    ConsentRevoked {
        client: String,
    },
    IncidentReported {
        incident: String,
        state: &'static str,
    },
    DatabaseRestored {
        sessions: u64,
    },
    OrgCreated,
    OrgUpdated {
        fields: Vec<&'static str>,
    },
    OrgDeleted,
    OrgExported,
    MetadataUpdated {
        keys: Vec<String>,
    },
    MemberInvited {
        email: String,
        role: Role,
    },
    InviteResent {
        email: String,
    },
    InviteCancelled {
        email: String,
    },
    InviteAccepted {
        role: Role,
    },
    MemberRoleChanged {
        from: Role,
        to: Role,
    },
    MemberRemoved,
    ScimTokenCreated {
        token: ScimTokenId,
        name: String,
    },
    ScimTokenDeleted {
        token: ScimTokenId,
    },
    PersonProvisioned {
        person: PersonId,
    },
    PersonUpdated {
        person: PersonId,
    },
    PersonDeactivated {
        person: PersonId,
    },
    PersonReactivated {
        person: PersonId,
    },
    GroupPushed {
        group: String,
    },
    GroupUpdated {
        group: String,
    },
    GroupDeleted {
        group: String,
    },
    GroupMapped {
        group: String,
        role: Option<Role>,
    },
    AppCreated,
    AppUpdated {
        fields: Vec<&'static str>,
    },
    AppDeleted,
    AppKeyCreated {
        key: AppKeyId,
        kind: KeyKind,
        environment: Environment,
    },
    AppKeyDeleted {
        key: AppKeyId,
    },
    DomainAdded {
        domain: String,
    },
    DomainVerified {
        domain: String,
    },
    DomainRemoved {
        domain: String,
    },
    /// Another app has proven the domain: recorded for both.
    DomainMoved {
        domain: String,
        is_gain: bool,
    },
    WebhookCreated {
        webhook: String,
    },
    WebhookUpdated {
        webhook: String,
        fields: Vec<&'static str>,
    },
    WebhookDeleted {
        webhook: String,
    },
    WebhookSecretRotated {
        webhook: String,
    },
    WebhookSecretFinalized {
        webhook: String,
    },
    WebhookAutoDisabled {
        webhook: String,
    },
}

impl Event {
    /// The type in the audit log.
    pub fn audit_type(&self) -> &'static str {
        match self {
            Self::AccountCreated => "ACCOUNT_CREATED",
            Self::PlatformOwnerMade => "PLATFORM_OWNER_MADE",
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
            Self::PasskeyAdded { .. } => "PASSKEY_ADDED",
            Self::PasskeyRenamed { .. } => "PASSKEY_RENAMED",
            Self::PasskeyRemoved { .. } => "PASSKEY_REMOVED",
            Self::DeviceApproved { .. } => "DEVICE_APPROVED",
            Self::DeviceDenied => "DEVICE_DENIED",
            Self::TrustedDeviceRemoved { .. } => "TRUSTED_DEVICE_REMOVED",
            Self::SocialLinked { .. } => "SOCIAL_LINKED",
            Self::ConsentGranted { .. } => "CONSENT_GRANTED",
            Self::ConsentRevoked { .. } => "CONSENT_REVOKED",
            Self::IncidentReported { .. } => "INCIDENT_REPORTED",
            Self::DatabaseRestored { .. } => "DATABASE_RESTORED",
            Self::OrgCreated => "ORG_CREATED",
            Self::OrgUpdated { .. } => "ORG_UPDATED",
            Self::OrgDeleted => "ORG_DELETED",
            Self::OrgExported => "ORG_EXPORTED",
            Self::MetadataUpdated { .. } => "ORG_METADATA_UPDATED",
            Self::MemberInvited { .. } => "MEMBER_INVITED",
            Self::InviteResent { .. } => "INVITE_RESENT",
            Self::InviteCancelled { .. } => "INVITE_CANCELLED",
            Self::InviteAccepted { .. } => "INVITE_ACCEPTED",
            Self::MemberRoleChanged { .. } => "MEMBER_ROLE_CHANGED",
            Self::MemberRemoved => "MEMBER_REMOVED",
            Self::ScimTokenCreated { .. } => "SCIM_TOKEN_CREATED",
            Self::ScimTokenDeleted { .. } => "SCIM_TOKEN_DELETED",
            Self::PersonProvisioned { .. } => "PERSON_PROVISIONED",
            Self::PersonUpdated { .. } => "PERSON_UPDATED",
            Self::PersonDeactivated { .. } => "PERSON_DEACTIVATED",
            Self::PersonReactivated { .. } => "PERSON_REACTIVATED",
            Self::GroupPushed { .. } => "GROUP_PUSHED",
            Self::GroupUpdated { .. } => "GROUP_UPDATED",
            Self::GroupDeleted { .. } => "GROUP_DELETED",
            Self::GroupMapped { .. } => "GROUP_MAPPED",
            Self::AppCreated => "APP_CREATED",
            Self::AppUpdated { .. } => "APP_UPDATED",
            Self::AppDeleted => "APP_DELETED",
            Self::AppKeyCreated { .. } => "APP_KEY_CREATED",
            Self::AppKeyDeleted { .. } => "APP_KEY_DELETED",
            Self::DomainAdded { .. } => "DOMAIN_ADDED",
            Self::DomainVerified { .. } => "DOMAIN_VERIFIED",
            Self::DomainRemoved { .. } => "DOMAIN_REMOVED",
            Self::DomainMoved { .. } => "DOMAIN_MOVED",
            Self::WebhookCreated { .. } => "WEBHOOK_CREATED",
            Self::WebhookUpdated { .. } => "WEBHOOK_UPDATED",
            Self::WebhookDeleted { .. } => "WEBHOOK_DELETED",
            Self::WebhookSecretRotated { .. } => "WEBHOOK_SECRET_ROTATED",
            Self::WebhookSecretFinalized { .. } => "WEBHOOK_SECRET_FINALIZED",
            Self::WebhookAutoDisabled { .. } => "WEBHOOK_AUTO_DISABLED",
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
            Self::PasskeyAdded { .. } => Some("user.passkey_added"),
            Self::PasskeyRemoved { .. } => Some("user.passkey_removed"),
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
            Self::PasskeyAdded { credential, name } | Self::PasskeyRenamed { credential, name } => {
                json!({ "credentialId": credential, "deviceName": name })
            }
            Self::PasskeyRemoved { credential } => json!({ "credentialId": credential }),
            Self::DeviceApproved { device, ip } => json!({ "device": device, "deviceIp": ip }),
            Self::TrustedDeviceRemoved { device } => json!({ "device": device }),
            Self::SocialLinked { provider } => json!({ "provider": provider }),
            Self::ConsentGranted { client, scopes } => json!({ "clientId": client, "scope": scopes }),
            Self::ConsentRevoked { client } => json!({ "clientId": client }),
            Self::ProfileUpdated { fields } | Self::OrgUpdated { fields } | Self::AppUpdated { fields } => {
                json!({ "fields": fields })
            }
            Self::MetadataUpdated { keys } => json!({ "keys": keys }),
            Self::MemberInvited { email, role } => json!({ "email": email, "role": role }),
            Self::InviteResent { email } | Self::InviteCancelled { email } => json!({ "email": email }),
            Self::InviteAccepted { role } => json!({ "role": role }),
            Self::MemberRoleChanged { from, to } => json!({ "from": from, "to": to }),
            Self::ScimTokenCreated { token, name } => json!({ "tokenId": token, "name": name }),
            Self::ScimTokenDeleted { token } => json!({ "tokenId": token }),
            Self::PersonProvisioned { person }
            | Self::PersonUpdated { person }
            | Self::PersonDeactivated { person }
            | Self::PersonReactivated { person } => json!({ "personId": person }),
            Self::GroupPushed { group } | Self::GroupUpdated { group } | Self::GroupDeleted { group } => {
                json!({ "groupId": group })
            }
            Self::GroupMapped { group, role } => json!({ "groupId": group, "role": role }),
            Self::AppKeyCreated { key, kind, environment } => {
                json!({ "keyId": key, "type": kind, "environment": environment })
            }
            Self::AppKeyDeleted { key } => json!({ "keyId": key }),
            Self::DomainAdded { domain } | Self::DomainVerified { domain } | Self::DomainRemoved { domain } => {
                json!({ "domain": domain })
            }
            Self::DomainMoved { domain, is_gain } => {
                json!({ "domain": domain, "outcome": if *is_gain { "gained" } else { "lost" } })
            }
            Self::WebhookUpdated { webhook, fields } => json!({ "webhookId": webhook, "fields": fields }),
            Self::WebhookCreated { webhook }
            | Self::WebhookDeleted { webhook }
            | Self::WebhookSecretRotated { webhook }
            | Self::WebhookSecretFinalized { webhook }
            | Self::WebhookAutoDisabled { webhook } => json!({ "webhookId": webhook }),
            Self::IncidentReported { incident, state } => json!({ "incidentId": incident, "state": state }),
            Self::DatabaseRestored { sessions } => json!({ "endedSessions": sessions }),
            _ => json!({}),
        }
    }
}

/// Who did it, and from where.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct By {
    /// The signed-in person; nobody for what happens at the door.
    pub actor: Option<AccountId>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    /// The app in which it happened.
    pub app: Option<ApplicationId>,
}

/// What it happened to; the platform itself when nothing is named.
#[derive(Debug, Clone, Copy, Default)]
pub struct About {
    pub(crate) person: Option<AccountId>,
    pub(crate) org: Option<OrgId>,
    pub(crate) app: Option<ApplicationId>,
}

impl About {
    pub fn in_org(org: OrgId) -> Self {
        Self { org: Some(org), ..Self::default() }
    }

    pub fn application(app: ApplicationId, org: OrgId) -> Self {
        Self { org: Some(org), app: Some(app), person: None }
    }

    pub fn app(application: &Application) -> Self {
        Self::application(application.id, application.org_id)
    }

    #[must_use]
    pub fn person(self, person: AccountId) -> Self {
        Self { person: Some(person), ..self }
    }

    /// The narrowest thing it happened to.
    fn target(&self) -> Option<String> {
        let (person, app, org) = (
            self.person.map(|id| id.to_string()),
            self.app.map(|id| id.to_string()),
            self.org.map(|id| id.to_string()),
        );
        person.or(app).or(org)
    }
}

impl From<Option<AccountId>> for About {
    fn from(person: Option<AccountId>) -> Self {
        Self { person, ..Self::default() }
    }
}

/// Writes down that something happened. What nobody in particular it happened to is in the log of whoever did it.
pub async fn record(
    tx: &mut Tx,
    app: &App,
    by: &By,
    about: impl Into<About> + Send,
    event: &Event,
) -> db::Result<()> {
    let (now, about) = (app.clock.now(), about.into());
    let (id, target, details) = (Id::<Event>::new(&app.entropy, now), about.target(), event.details());
    tx.send(
        "INSERT INTO audit_event (id, type, webhook, account_id, actor, target, org_id, app_id, ip, user_agent, at,
                                  details)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        params![
            id,
            event.audit_type(),
            event.webhook(),
            about.person.or(by.actor.filter(|_| about.org.is_some())),
            by.actor,
            target.clone(),
            about.org,
            about.app.or(by.app),
            by.ip.clone(),
            by.user_agent.clone(),
            now,
            &details
        ],
    )
    .await?;
    let happened = Happened { id, name: event.webhook(), kind: event.audit_type(), target, details, at: now };
    outbox::put(tx, app, by, about, &happened).await
}

/// What the outbox is told.
pub(crate) struct Happened {
    pub id: Id<Event>,
    /// As webhooks know it, beside being an audit event.
    pub name: Option<&'static str>,
    pub kind: &'static str,
    pub target: Option<String>,
    pub details: Value,
    pub at: Timestamp,
}

/// What happened to a person or was done by them, as far as it still leads back to them. What happened in an organization
/// is its past, too: it keeps what was done, and loses who it leads to.
macro_rules! nameless {
    ($bound:literal) => {
        [
            concat!(
                "UPDATE audit_event SET ip = NULL, user_agent = NULL,
                                        details = CASE WHEN org_id IS NULL THEN '{}' ELSE details END
                 WHERE id IN (SELECT id FROM audit_event WHERE account_id = $1
                                AND (ip IS NOT NULL OR user_agent IS NOT NULL OR (org_id IS NULL AND details <> '{}'))",
                $bound,
                ")"
            ),
            concat!(
                "UPDATE audit_event SET ip = NULL, user_agent = NULL
                 WHERE id IN (SELECT id FROM audit_event WHERE actor = $1 AND actor <> account_id
                                AND (ip IS NOT NULL OR user_agent IS NOT NULL)",
                $bound,
                ")"
            ),
        ]
    };
}

/// Makes most of a person's past nameless before they are gone, some rows at a time: on SQLite every other writer waits
/// for what is done in one transaction.
pub async fn forget_past(db: &Db, account_id: AccountId) -> db::Result<()> {
    for sql in nameless!(" LIMIT $2") {
        db.sweep(sql, params![account_id]).await?;
    }
    outbox::forget_past(db, account_id).await
}

/// After a person is gone their past stays, without anything that leads back to them. Call [`forget_past`] before.
pub async fn forget_person(tx: &mut Tx, account_id: AccountId) -> db::Result<()> {
    for sql in nameless!("") {
        tx.exec(sql, params![account_id]).await?;
    }
    outbox::forget_person(tx, account_id).await
}
