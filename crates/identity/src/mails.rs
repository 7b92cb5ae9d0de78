//! The mails about signing in and about the account.
use kernel::crypto::Secret;
use tenancy::messages::mail::{Letter, Mail, NOT_YOU, Sample};

use crate::{magic_link::MAGIC_LINK, password::RESET_PASSWORD, people::ACCOUNT_INVITE, register::VERIFY_EMAIL};

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(Verify { name: sample_name(), token: sample(), code: sample_code() })),
    Sample(|| Box::new(VerifyAgain { name: sample_name(), token: sample(), code: sample_code() })),
    Sample(|| Box::new(AlreadyRegistered { name: sample_name() })),
    Sample(|| Box::new(ResetPassword { name: sample_name(), token: sample() })),
    Sample(|| Box::new(MagicLink { name: sample_name(), token: sample() })),
    Sample(|| Box::new(PasswordChanged { name: sample_name() })),
    Sample(|| Box::new(AccountDeleted { name: sample_name() })),
    Sample(|| Box::new(FactorChanged { name: sample_name(), what: "a phone was added to your account." })),
    Sample(|| Box::new(Locked { name: sample_name() })),
    Sample(|| Box::new(AccountInvite { name: sample_name(), token: sample() })),
    Sample(|| Box::new(NewPasswordRequired { name: sample_name(), token: sample() })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Disabled })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Enabled })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::FactorsReset })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::SessionsEnded })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::EmailChanged })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Deleted })),
    Sample(|| Box::new(ProviderLinked { name: sample_name(), provider: "Google" })),
];

fn sample_name() -> String {
    "Ada".into()
}

fn sample() -> Secret {
    "sample-token".to_owned().into()
}

fn sample_code() -> Secret {
    "123456".to_owned().into()
}

pub struct Verify {
    pub name: String,
    pub token: Secret,
    pub code: Secret,
}

impl Mail for Verify {
    fn name(&self) -> &'static str {
        "verify"
    }

    fn letter(&self) -> Letter {
        let before = "please confirm that this address is yours. Follow the link within 24 hours, or type the code \
                      within 15 minutes.";
        verify(before, &self.token, &self.code).to(&self.name)
    }
}

/// After several sign-ups with one email, of which no password is kept.
pub struct VerifyAgain {
    pub name: String,
    pub token: Secret,
    pub code: Secret,
}

impl Mail for VerifyAgain {
    fn name(&self) -> &'static str {
        "verify_again"
    }

    fn letter(&self) -> Letter {
        let before = "please confirm that this address is yours. Follow the link within 24 hours, or type the code \
                      within 15 minutes. Somebody signed up with it more than once, so no password was kept: \
                      afterwards ask for a new one, as if you had forgotten it.";
        verify(before, &self.token, &self.code).to(&self.name)
    }
}

fn verify(before: &'static str, token: &Secret, code: &Secret) -> Letter {
    let after = "If you did not sign up, do nothing: without your confirmation nobody can use this address.";
    Letter::new("Confirm your email address", before, after)
        .link("Confirm this address", "/auth/verify", token, VERIFY_EMAIL.life)
        .code(code)
}

pub struct AlreadyRegistered {
    pub name: String,
}

impl Mail for AlreadyRegistered {
    fn name(&self) -> &'static str {
        "already_registered"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "You already have an account",
            "somebody, probably you, tried to sign up with this address, which has an account already. Sign in with \
             your password, or ask for a new one if you have forgotten it.",
            "If this was not you, do nothing: your account is as it was.",
        )
        .to(&self.name)
    }
}

pub struct ResetPassword {
    pub name: String,
    pub token: Secret,
}

impl Mail for ResetPassword {
    fn name(&self) -> &'static str {
        "reset_password"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Choose a new password",
            "follow the link within one hour to choose a new password. All your other sessions end then.",
            "If you did not ask for this, do nothing: your password stays as it is.",
        )
        .to(&self.name)
        .link("Choose a new password", "/auth/reset-password", &self.token, RESET_PASSWORD.life)
    }
}

pub struct MagicLink {
    pub name: String,
    pub token: Secret,
}

impl Mail for MagicLink {
    fn name(&self) -> &'static str {
        "magic_link"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your sign-in link",
            "follow the link within 15 minutes to sign in. It works once.",
            "If you did not ask for this, do nothing. Never pass this link on: it signs in whoever has it.",
        )
        .to(&self.name)
        .link("Sign in", "/auth/magic-link/verify", &self.token, MAGIC_LINK.life)
    }
}

pub struct PasswordChanged {
    pub name: String,
}

impl Mail for PasswordChanged {
    fn name(&self) -> &'static str {
        "password_changed"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your password was changed",
            "the password of your account was changed, and every other session was ended.",
            "If this was not you, ask for a new password at once.",
        )
        .to(&self.name)
    }
}

pub struct AccountDeleted {
    pub name: String,
}

impl Mail for AccountDeleted {
    fn name(&self) -> &'static str {
        "account_deleted"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your account was deleted",
            "your account and what belonged to it were deleted, as you asked.",
            "This cannot be undone. You are welcome to come back with a new account.",
        )
        .to(&self.name)
    }
}

pub struct FactorChanged {
    pub name: String,
    /// A whole sentence.
    pub what: &'static str,
}

impl Mail for FactorChanged {
    fn name(&self) -> &'static str {
        "factor_changed"
    }

    fn letter(&self) -> Letter {
        Letter::new("Your second factor was changed", self.what, NOT_YOU).to(&self.name)
    }
}

pub struct Locked {
    pub name: String,
}

impl Mail for Locked {
    fn name(&self) -> &'static str {
        "locked"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Somebody tries to sign in to your account",
            "a wrong password was given ten times. Whoever tries has to wait or to solve a puzzle now. Where you have \
             signed in before, and on devices you trust, you can sign in as always.",
            "If this was you, wait a quarter of an hour, or ask for a new password. If not, your password has held; a \
             second factor makes it safer still.",
        )
        .to(&self.name)
    }
}

pub struct ProviderLinked {
    pub name: String,
    /// As people call it.
    pub provider: &'static str,
}

impl Mail for ProviderLinked {
    fn name(&self) -> &'static str {
        "provider_linked"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "A new way to sign in to your account",
            "somebody signed in with {}, which says that this address is theirs. From now on that opens your account \
             too.",
            "If this was not you, somebody else can read your mail or has your account there: secure both, then change \
             your password here.",
        )
        .with(&[self.provider])
        .to(&self.name)
    }
}

/// To a person for whom a platform owner created an account.
pub struct AccountInvite {
    pub name: String,
    pub token: Secret,
}

impl Mail for AccountInvite {
    fn name(&self) -> &'static str {
        "account_invite"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your new account",
            "an account was created for you. Follow the link within seven days to choose your password.",
            "If you do not want this account, do nothing: without a password nobody can use it.",
        )
        .to(&self.name)
        .link("Choose your password", "/auth/reset-password", &self.token, ACCOUNT_INVITE.life)
    }
}

/// A platform owner removed the password.
pub struct NewPasswordRequired {
    pub name: String,
    pub token: Secret,
}

impl Mail for NewPasswordRequired {
    fn name(&self) -> &'static str {
        "new_password_required"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Choose a new password",
            "the people who run this service ask you to choose a new password. Your old password no longer works, and \
             you were signed out everywhere. Follow the link within seven days.",
            "If the link has expired, use \"Forgot password\" on the sign-in page.",
        )
        .to(&self.name)
        .link("Choose a new password", "/auth/reset-password", &self.token, ACCOUNT_INVITE.life)
    }
}

/// What a platform owner did to somebody's account.
#[derive(Clone, Copy)]
pub enum OwnerAct {
    Disabled,
    Enabled,
    FactorsReset,
    SessionsEnded,
    EmailChanged,
    Deleted,
}

pub struct OwnerActed {
    pub name: String,
    pub act: OwnerAct,
}

impl Mail for OwnerActed {
    fn name(&self) -> &'static str {
        match self.act {
            OwnerAct::Disabled => "account_disabled",
            OwnerAct::Enabled => "account_enabled",
            OwnerAct::FactorsReset => "factors_reset",
            OwnerAct::SessionsEnded => "sessions_ended",
            OwnerAct::EmailChanged => "email_changed",
            OwnerAct::Deleted => "account_deleted_by_owner",
        }
    }

    fn letter(&self) -> Letter {
        let (subject, before, after) = match self.act {
            OwnerAct::Disabled => (
                "Your account was disabled",
                "the people who run this service disabled your account. You were signed out everywhere and cannot sign in.",
                ASK_THEM,
            ),
            OwnerAct::Enabled => (
                "Your account is enabled again",
                "the people who run this service enabled your account. You can sign in again.",
                ASK_THEM,
            ),
            OwnerAct::FactorsReset => (
                "Your two-factor authentication was reset",
                "the people who run this service removed the second factors and passkeys of your account, and signed you \
                 out everywhere. Sign in with your password, then set up two-factor authentication again.",
                "If you did not ask for this, change your password at once and contact them.",
            ),
            OwnerAct::SessionsEnded => (
                "You were signed out everywhere",
                "the people who run this service ended all sessions of your account. You can sign in again.",
                ASK_THEM,
            ),
            OwnerAct::EmailChanged => (
                "The email of your account was changed",
                "the people who run this service changed the email of your account. This email no longer opens it.",
                "If you did not ask for this, contact them at once.",
            ),
            OwnerAct::Deleted => (
                "Your account was deleted",
                "the people who run this service deleted your account and what belonged to it.",
                "This cannot be undone. Contact them if you have questions.",
            ),
        };
        Letter::new(subject, before, after).to(&self.name)
    }
}

const ASK_THEM: &str = "If you have questions, contact the people who run this service.";
