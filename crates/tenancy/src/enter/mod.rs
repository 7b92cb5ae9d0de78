//! Access control as extractors. A handler that takes `Session`, `InOrg<Admin>` or `AppKey` runs only for callers who
//! have that access.
mod abuse;
mod abuse_reports;
mod admitted;
mod app;
mod app_key;
mod app_user;
pub mod builders;
mod captcha;
pub mod cookies;
mod deployer;
mod live;
mod memory;
mod org;
mod own_org;
mod scim;
mod session;
mod visitor;
mod within;

pub use abuse::{Attempt, Standing};
pub use abuse_reports::{AbuseReport, abuse_reports};
pub use admitted::{Admitted, NotAdmitted, ToAdmit};
pub use app::{AppCaller, InApp};
pub use app_key::{AppKey, INVALID_APP_KEY};
pub use app_user::{AppUser, NOT_AN_APP_USER};
pub use captcha::{CAPTCHA_REQUIRED, Captcha, NOT_SOLVED, PASS as CAPTCHA_PASS};
pub(crate) use captcha::{CHALLENGE_PURPOSE, PASS_PURPOSE};
pub use cookies::Delivery;
pub use deployer::{Deployer, SECRET_KEY_REQUIRED};
pub(crate) use live::living;
pub use live::{ACCOUNT_TOPIC, Live, Living, member_by_session, read_origins, recognise, watch};
pub use memory::Memory;
pub use org::{Admin, AdminOrSelf, InOrg, Least, Member, Owner};
pub use own_org::create_own_org;
pub use scim::ScimToken;
pub use session::{
    APP_KEY_MISMATCH, APP_SESSION, AnySession, Browser, Granted, INSUFFICIENT_SCOPE, MaybeSession, PlatformAdmin,
    PlatformOwner, REAUTHENTICATION_REQUIRED, RefreshToken, Session, is_owner_by, is_platform_admin,
    is_platform_owner, may_use_cookie, platform_owners, runs_platform,
};
pub use visitor::Visitor;
pub use within::Within;

/// The credentials of the interface, for the OpenAPI description.
pub(crate) const CREDENTIALS: &[kernel::http::Credential] = &[
    ("bearer", r#"{ "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "An access token." }"#),
    (
        "cookie",
        r#"{ "type": "apiKey", "in": "cookie", "name": "__Host-service_access", "description": "The access token as a cookie; service_access without TLS." }"#,
    ),
    (
        "refreshCookie",
        r#"{ "type": "apiKey", "in": "cookie", "name": "__Host-service_refresh", "description": "The refresh token as a cookie; service_refresh without TLS." }"#,
    ),
    (
        "clientBasic",
        r#"{ "type": "http", "scheme": "basic", "description": "The id of an app and a secret key of it." }"#,
    ),
    (
        "appKey",
        r#"{ "type": "apiKey", "in": "header", "name": "X-Service-App-Key", "description": "A key of an app." }"#,
    ),
    ("secretKey", r#"{ "type": "http", "scheme": "bearer", "description": "A secret key of an app; not a JWT." }"#),
    (
        "scimToken",
        r#"{ "type": "http", "scheme": "bearer", "description": "A SCIM token of an organization; not a JWT." }"#,
    ),
    (
        "machineToken",
        r#"{ "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token of an agent, a framework agent or an MCP server." }"#,
    ),
    (
        "killSwitch",
        r#"{ "type": "http", "scheme": "bearer", "description": "The kill switch of one framework agent; not a JWT." }"#,
    ),
];
