//! Accounts as platform owners see them.
use kernel::{Janua, clock::Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    accounts::{
        Account, AccountId,
        factors::{Factors, TrustedDevice},
        passkeys::Passkey,
        search::{AccountLine, AccountState},
        social::Identity,
    },
    apps::UsedApp,
    enter::{is_owner_by, runs_platform},
    events::audit::{AuditEntry, AuditFilter},
    ids::SessionId,
    orgs::{Membership, OrgView},
    sessions::StoredSession,
};

/// An account in the list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserLine {
    id: AccountId,
    email: Option<String>,
    name: String,
    avatar_url: Option<String>,
    email_verified: bool,
    state: AccountState,
    /// How the account began: `email`, or a provider's name.
    auth_provider: String,
    /// Whether the person has a second factor or a passkey.
    has_second_factor: bool,
    is_platform_owner: bool,
    created_at: Timestamp,
    /// Null when the person has not signed in for as long as sessions are kept.
    last_sign_in_at: Option<Timestamp>,
}

impl UserLine {
    pub fn of(janua: &Janua, line: AccountLine) -> Self {
        Self {
            is_platform_owner: is_owner_by(janua, line.email_key.as_deref(), line.email_verified, line.runs_platform),
            state: line.state(),
            id: line.id,
            email: line.email,
            name: line.name,
            avatar_url: line.avatar_url,
            email_verified: line.email_verified,
            auth_provider: line.auth_provider,
            has_second_factor: line.has_second_factor,
            created_at: line.created_at,
            last_sign_in_at: line.last_sign_in_at,
        }
    }
}

/// An account with all that is known of it but its secrets.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlatformUser {
    id: AccountId,
    email: Option<String>,
    name: String,
    bio: Option<String>,
    avatar_url: Option<String>,
    email_verified: bool,
    state: AccountState,
    disabled_at: Option<Timestamp>,
    auth_provider: String,
    is_platform_owner: bool,
    has_password: bool,
    factors: FactorsView,
    /// The providers that open the account.
    providers: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The newest 200.
    sessions: Vec<UserSession>,
    orgs: Vec<OrgView>,
    /// The apps the person came in through.
    apps: Vec<UsedApp>,
    /// The newest 50 audit events of the person.
    activity: Vec<AuditEntry>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FactorsView {
    totp: bool,
    /// The last digits of the phone that gets codes.
    sms_phone_suffix: Option<String>,
    recovery_codes_left: i64,
    passkeys: Vec<Passkey>,
    trusted_devices: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UserSession {
    id: SessionId,
    device: String,
    ip: String,
    created_at: Timestamp,
    last_seen_at: Timestamp,
    expires_at: Timestamp,
    /// The app or client it belongs to; null for a session of the service itself.
    holder: Option<String>,
    methods: Vec<String>,
}

impl From<StoredSession> for UserSession {
    fn from(session: StoredSession) -> Self {
        Self {
            id: session.id,
            holder: session.holder(),
            device: session.device,
            ip: session.ip,
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            expires_at: session.expires_at,
            methods: session.methods,
        }
    }
}

const SHOWN_EVENTS: u32 = 50;

impl PlatformUser {
    pub async fn of(janua: &Janua, account: Account) -> db::Result<Self> {
        let (id, now) = (account.id, janua.clock.now());
        let factors = Factors::of(&janua.db, id).await?;
        let sessions = StoredSession::of(&janua.db, id, now).await?;
        let memberships = Membership::all_of(&janua.db, id).await?;
        let newest = kernel::http::Key::newest();
        Ok(Self {
            is_platform_owner: runs_platform(janua, &account),
            state: match (account.disabled_at, account.email_verified) {
                (Some(_), _) => AccountState::Disabled,
                (None, true) => AccountState::Active,
                (None, false) => AccountState::Unverified,
            },
            id,
            email: account.email,
            name: account.name,
            bio: account.bio,
            avatar_url: account.avatar_url,
            email_verified: account.email_verified,
            disabled_at: account.disabled_at,
            auth_provider: account.auth_provider,
            has_password: account.password_hash.is_some(),
            factors: FactorsView {
                totp: factors.totp,
                sms_phone_suffix: factors.phone_suffix(),
                recovery_codes_left: factors.recovery_left,
                trusted_devices: TrustedDevice::of(&janua.db, id, now).await?.len(),
                passkeys: factors.passkeys,
            },
            providers: Identity::of(&janua.db, id).await?.into_iter().map(|one| one.provider).collect(),
            created_at: account.created_at,
            updated_at: account.updated_at,
            sessions: sessions.into_iter().map(Into::into).collect(),
            orgs: memberships.iter().map(OrgView::of).collect(),
            apps: UsedApp::of(&janua.db, id).await?,
            activity: AuditEntry::of_person(&janua.db, id, &AuditFilter::default(), &newest, SHOWN_EVENTS).await?,
        })
    }
}
