//! Who may enter, as types: a handler that takes one of these has already been let in.
mod abuse;
mod captcha;
pub mod cookies;
mod session;

pub use abuse::{AbuseReport, Attempt, Standing, Visitor, abuse_reports};
pub use captcha::{CAPTCHA_REQUIRED, Captcha, NOT_SOLVED};
pub use cookies::Delivery;
pub use session::{
    ACCOUNT_TOPIC, Live, Living, PlatformOwner, REAUTHENTICATION_REQUIRED, RefreshToken, Session, watch,
};
