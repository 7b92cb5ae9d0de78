//! What happens to accounts, as audit logs and webhooks tell it.
use tenancy::{accounts::factors::Factor, events, sessions::SessionId};

events! {
    /// Somebody signed up, by whatever way.
    AccountCreated = "ACCOUNT_CREATED" as "user.created";
    /// The first owner of the installation came by the link of its start.
    PlatformOwnerMade = "PLATFORM_OWNER_MADE";
    /// A person proved that the email is theirs.
    EmailVerified = "EMAIL_VERIFIED" as "user.email_verified";
    /// A sign-in was refused, or a proof in a session.
    SignInFailed { reason: &'static str } = "SIGN_IN_FAILED";
    /// Too many wrong passwords came from one network.
    SignInLocked = "SIGN_IN_LOCKED";
    /// A refresh token came a second time, so its session was ended.
    RefreshTokenReused { session_id: SessionId } = "REFRESH_TOKEN_REUSED";
    /// A link to choose a new password was asked for.
    PasswordResetRequested = "PASSWORD_RESET_REQUESTED";
    /// A new password was chosen by a link.
    PasswordReset = "PASSWORD_RESET";
    /// A signed-in person changed the password.
    PasswordChanged = "PASSWORD_CHANGED";
    /// A sign-in link was asked for.
    MagicLinkRequested = "MAGIC_LINK_REQUESTED";
    /// Name, picture or other facts of a person changed.
    ProfileUpdated { fields: Vec<&'static str> } = "PROFILE_UPDATED";
    /// A person took a copy of their data.
    DataExported = "DATA_EXPORTED";
    /// A platform owner sent the link to choose the first password of an account.
    AccountInvited = "ACCOUNT_INVITED";
    /// A platform owner changed the email of an account.
    EmailChanged = "EMAIL_CHANGED";
    /// A platform owner disabled an account. Nobody signs in to it.
    AccountDisabled = "ACCOUNT_DISABLED";
    /// A platform owner enabled an account again.
    AccountEnabled = "ACCOUNT_ENABLED";
    /// A platform owner removed all second factors and passkeys of an account.
    FactorsReset = "FACTORS_RESET";
    /// A platform owner removed the password of an account. The person chooses a new one.
    NewPasswordRequired = "NEW_PASSWORD_REQUIRED";
    /// A platform owner sent another confirmation mail.
    VerificationResent = "VERIFICATION_RESENT";
    /// A person was made a platform owner.
    PlatformOwnerAdded = "PLATFORM_OWNER_ADDED";
    /// A person is no longer a platform owner.
    PlatformOwnerRemoved = "PLATFORM_OWNER_REMOVED";
    /// A new link for a first owner was made.
    OwnerLinkRenewed = "OWNER_LINK_RENEWED";
    /// An account was deleted.
    AccountDeleted = "ACCOUNT_DELETED";
    /// A second factor was added.
    MfaEnabled { factor: Factor } = "MFA_ENABLED" as "user.mfa_enabled";
    /// A second factor was removed.
    MfaDisabled { factor: Factor } = "MFA_DISABLED" as "user.mfa_disabled";
    /// A person got new recovery codes.
    RecoveryCodesRegenerated = "RECOVERY_CODES_REGENERATED";
    /// A recovery code was used up.
    RecoveryCodeUsed = "RECOVERY_CODE_USED";
    /// A passkey was added.
    PasskeyAdded { credential_id: String, device_name: String } = "PASSKEY_ADDED" as "user.passkey_added";
    /// A passkey got another name.
    PasskeyRenamed { credential_id: String, device_name: String } = "PASSKEY_RENAMED";
    /// A passkey was removed.
    PasskeyRemoved { credential_id: String } = "PASSKEY_REMOVED" as "user.passkey_removed";
    /// A person let a device in.
    DeviceApproved { device: String, device_ip: String } = "DEVICE_APPROVED";
    /// A person refused to let a device in.
    DeviceDenied = "DEVICE_DENIED";
    /// One trusted device was forgotten, or all of them.
    TrustedDeviceRemoved { device: Option<String> } = "TRUSTED_DEVICE_REMOVED";
    /// A provider became a way to sign in.
    SocialLinked { provider: &'static str } = "SOCIAL_LINKED";
    /// A person let a client act for them.
    ConsentGranted { client_id: String, scope: String } = "CONSENT_GRANTED";
    /// A person took that back.
    ConsentRevoked { client_id: String } = "CONSENT_REVOKED";
    /// A test mail was sent by the people who run the platform.
    MailTested { sent: bool } = "MAIL_TESTED";
}
