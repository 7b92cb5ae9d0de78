//! Who may sign up: everybody, people with an invitation, or nobody. Platform owners can always create accounts.
use db::Read;
use kernel::{
    Janua,
    config::Setting,
    fault::{Code, Result},
    settings,
};
use tenancy::{email::Email, orgs::invites::Invite};

settings! {
    /// Who may sign up.
    pub struct Settings {
        /// Who may create an account for themselves: `open` (everyone), `invited` (people with an invitation to an
        /// organization) or `closed` (no one; platform owners create accounts).
        sign_up: SignUpPolicy = "open";
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignUpPolicy {
    Open,
    Invited,
    Closed,
}

impl Setting for SignUpPolicy {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "open" => Ok(Self::Open),
            "invited" => Ok(Self::Invited),
            "closed" => Ok(Self::Closed),
            _ => Err("must be open, invited or closed".into()),
        }
    }
}

pub const SIGN_UP_CLOSED: Code =
    Code::new(403, "sign_up_closed", "Sign-up is closed. Ask the people who run this service for an account.");
pub const INVITATION_REQUIRED: Code = Code::new(
    403,
    "invitation_required",
    "You need an invitation to create an account. Open the link in your invitation email.",
);

/// What every route can answer by which somebody signs up.
pub const REFUSALS: [Code; 2] = [SIGN_UP_CLOSED, INVITATION_REQUIRED];

/// Why somebody without an invitation cannot sign up; `None` when they can.
pub fn refusal(janua: &Janua) -> Option<Code> {
    match janua.config.of::<Settings>().sign_up {
        SignUpPolicy::Open => None,
        SignUpPolicy::Invited => Some(INVITATION_REQUIRED),
        SignUpPolicy::Closed => Some(SIGN_UP_CLOSED),
    }
}

/// Refuses a sign-up that the policy does not allow. Asked before anything is looked up, so that the answer is the same
/// whether or not the email has an account.
pub fn check(janua: &Janua, is_invited: bool) -> Result<()> {
    match refusal(janua) {
        Some(INVITATION_REQUIRED) if is_invited => Ok(()),
        Some(code) => Err(code.into()),
        None => Ok(()),
    }
}

/// The same for somebody whom a provider vouches for: an open invitation for the email is one.
pub async fn check_proven(from: impl Read, janua: &Janua, email: Option<&Email>) -> Result<()> {
    let is_invited = match (refusal(janua), email) {
        (Some(INVITATION_REQUIRED), Some(email)) => Invite::is_open_for(from, email.key(), janua.clock.now()).await?,
        _ => false,
    };
    check(janua, is_invited)
}
