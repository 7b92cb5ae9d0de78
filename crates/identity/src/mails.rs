//! The mails about signing in and about the account.
use kernel::crypto::Secret;
use tenancy::messages::mail::{Letter, Mail, NOT_YOU, Origin, SECURE, Sample};

use crate::{magic_link::MAGIC_LINK, password::RESET_PASSWORD, people::ACCOUNT_INVITE, register::VERIFY_EMAIL};

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(Verify { name: sample_name(), token: sample(), code: sample_code() })),
    Sample(|| Box::new(VerifyAgain { name: sample_name(), token: sample(), code: sample_code() })),
    Sample(|| Box::new(AlreadyRegistered { name: sample_name() })),
    Sample(|| Box::new(ResetPassword { name: sample_name(), token: sample(), origin: Some(Origin::sample()) })),
    Sample(|| Box::new(MagicLink { name: sample_name(), token: sample(), origin: Some(Origin::sample()) })),
    Sample(|| Box::new(PasswordChanged { name: sample_name(), origin: Origin::sample() })),
    Sample(|| Box::new(AccountDeleted { name: sample_name(), origin: Origin::sample() })),
    Sample(|| {
        let what = "A phone was added to your account as a second factor.";
        Box::new(FactorChanged { name: sample_name(), what, origin: Origin::sample() })
    }),
    Sample(|| Box::new(Locked { name: sample_name(), origin: Origin::sample() })),
    Sample(|| Box::new(Test)),
    Sample(|| Box::new(AccountInvite { name: sample_name(), token: sample() })),
    Sample(|| Box::new(NewPasswordRequired { name: sample_name(), token: sample() })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Disabled })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Enabled })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::FactorsReset })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::SessionsEnded })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::EmailChanged })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::EmailReplaces { is_verified: true } })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::EmailReplaces { is_verified: false } })),
    Sample(|| Box::new(OwnerActed { name: sample_name(), act: OwnerAct::Deleted })),
    Sample(|| Box::new(ProviderLinked { name: sample_name(), provider: "Google", origin: Origin::sample() })),
];

/// To see whether mail goes out.
pub struct Test;

impl Mail for Test {
    fn name(&self) -> &'static str {
        "test"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Test email from {service}",
            "This is a test email. If you can read it, this installation can send email to you.",
            "It was requested on the platform page or with the command janua mail test.",
        )
        .button("Open console", "/console/platform")
    }
}

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
        let before = "Confirm your email to finish creating your account. The link works for 24 hours, the code for 15 \
                      minutes.";
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
        let before = "Confirm your email to finish creating your account. The link works for 24 hours, the code for 15 \
                      minutes. There was more than one sign-up with this email, so no password was saved. After you \
                      confirm, choose one with \"Forgot password\".";
        verify(before, &self.token, &self.code).to(&self.name)
    }
}

fn verify(before: &'static str, token: &Secret, code: &Secret) -> Letter {
    let after = "If you did not sign up, ignore this email. The account cannot be used until the email is confirmed.";
    Letter::new("Confirm your email for {service}", before, after)
        .link("Confirm email", "/auth/verify", token, VERIFY_EMAIL.life)
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
            "There was a sign-up with this email, which has an account already. Sign in with your password. If you have \
             forgotten it, choose \"Forgot password\" on the sign-in page.",
            "If you did not sign up, ignore this email. Your account was not changed.",
        )
        .to(&self.name)
        .button("Sign in", "/sign-in")
    }
}

pub struct ResetPassword {
    pub name: String,
    pub token: Secret,
    /// Only for readers who have proven the email: a stranger may have asked for the mail.
    pub origin: Option<Origin>,
}

impl Mail for ResetPassword {
    fn name(&self) -> &'static str {
        "reset_password"
    }

    fn letter(&self) -> Letter {
        let letter = Letter::new(
            "Choose a new password",
            "You can choose a new password for your account. The link works for one hour. A new password ends all your \
             other sessions.",
            "If you did not request this, ignore this email. Your password is not changed.",
        )
        .to(&self.name)
        .link("Choose new password", "/auth/reset-password", &self.token, RESET_PASSWORD.life);
        match &self.origin {
            Some(origin) => letter.origin(origin),
            None => letter,
        }
    }
}

pub struct MagicLink {
    pub name: String,
    pub token: Secret,
    /// Only for readers who have proven the email: a stranger may have asked for the mail.
    pub origin: Option<Origin>,
}

impl Mail for MagicLink {
    fn name(&self) -> &'static str {
        "magic_link"
    }

    fn letter(&self) -> Letter {
        let letter = Letter::new(
            "Your sign-in link for {service}",
            "Open the link to sign in. It works once, within 15 minutes.",
            "If you did not request this, ignore this email. Do not forward it: the link signs in to your account.",
        )
        .to(&self.name)
        .link("Sign in", "/auth/magic-link/verify", &self.token, MAGIC_LINK.life);
        match &self.origin {
            Some(origin) => letter.origin(origin),
            None => letter,
        }
    }
}

pub struct PasswordChanged {
    pub name: String,
    pub origin: Origin,
}

impl Mail for PasswordChanged {
    fn name(&self) -> &'static str {
        "password_changed"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your password was changed",
            "The password of your account was changed. All other sessions were ended.",
            "Was this not you? Secure your account: choose a new password now.",
        )
        .to(&self.name)
        .origin(&self.origin)
        .button(SECURE.0, "/forgot-password")
    }
}

pub struct AccountDeleted {
    pub name: String,
    pub origin: Origin,
}

impl Mail for AccountDeleted {
    fn name(&self) -> &'static str {
        "account_deleted"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Your account was deleted",
            "Your account and its data were deleted, as requested.",
            "This cannot be undone. You can create a new account at any time. Was this not you? Contact the operator of \
             {service} at once.",
        )
        .to(&self.name)
        .origin(&self.origin)
        .button("Contact the operator", "/legal/privacy")
    }
}

pub struct FactorChanged {
    pub name: String,
    /// A whole sentence.
    pub what: &'static str,
    pub origin: Origin,
}

impl Mail for FactorChanged {
    fn name(&self) -> &'static str {
        "factor_changed"
    }

    fn letter(&self) -> Letter {
        Letter::new("Your second factor was changed", self.what, NOT_YOU)
            .to(&self.name)
            .origin(&self.origin)
            .button(SECURE.0, SECURE.1)
    }
}

pub struct Locked {
    pub name: String,
    pub origin: Origin,
}

impl Mail for Locked {
    fn name(&self) -> &'static str {
        "locked"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "Failed sign-ins to your account",
            "A wrong password was entered ten times. From there, sign-in now needs a wait or a security check. On your \
             trusted devices and where you have signed in before, sign-in works as usual.",
            "Was this you? Wait 15 minutes or choose a new password. Was this not you? Your password was not guessed. A \
             second factor protects your account even from a known password.",
        )
        .to(&self.name)
        .origin(&self.origin)
        .button(SECURE.0, SECURE.1)
    }
}

pub struct ProviderLinked {
    pub name: String,
    /// As people call it.
    pub provider: &'static str,
    pub origin: Origin,
}

impl Mail for ProviderLinked {
    fn name(&self) -> &'static str {
        "provider_linked"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "A new way to sign in to your account",
            "{} was connected to your account, because the email there is the same and confirmed. It now signs in to your \
             account.",
            "Was this not you? Somebody else can read your email or uses your account there. Secure both, then secure \
             your account here.",
        )
        .with(&[self.provider])
        .to(&self.name)
        .origin(&self.origin)
        .button(SECURE.0, SECURE.1)
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
            "An account was created for you. Follow the link within seven days to choose your password.",
            "If you do not want this account, do nothing: without a password it cannot be used.",
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
            "The people who run {service} ask you to choose a new password. Your old password no longer works, and \
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
    /// The new email, which hears that it opens the account.
    EmailReplaces {
        is_verified: bool,
    },
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
            OwnerAct::EmailReplaces { is_verified: true } => "email_replaces",
            OwnerAct::EmailReplaces { is_verified: false } => "email_replaces_unverified",
            OwnerAct::Deleted => "account_deleted_by_owner",
        }
    }

    fn letter(&self) -> Letter {
        let (subject, before, after) = match self.act {
            OwnerAct::Disabled => (
                "Your account was disabled",
                "The people who run {service} disabled your account. You were signed out everywhere and cannot sign in.",
                ASK_THEM,
            ),
            OwnerAct::Enabled => (
                "Your account is enabled again",
                "The people who run {service} enabled your account. You can sign in again.",
                ASK_THEM,
            ),
            OwnerAct::FactorsReset => (
                "Your two-factor authentication was reset",
                "The people who run {service} removed the second factors and passkeys of your account, and signed you \
                 out everywhere. Sign in with your password, then set up two-factor authentication again.",
                "If you did not ask for this, change your password at once and contact them.",
            ),
            OwnerAct::SessionsEnded => (
                "You were signed out everywhere",
                "The people who run {service} ended all sessions of your account. You can sign in again.",
                ASK_THEM,
            ),
            OwnerAct::EmailChanged => (
                "The email of your account was changed",
                "The people who run {service} changed the email of your account. This email no longer opens it.",
                "If you did not ask for this, contact them at once.",
            ),
            OwnerAct::EmailReplaces { is_verified: true } => (
                "This is the email of your account now",
                "The people who run {service} changed the email of your account to this one. Sign in with it from now on.",
                NOT_YOURS,
            ),
            OwnerAct::EmailReplaces { is_verified: false } => (
                "This is the email of your account now",
                "The people who run {service} changed the email of your account to this one. Before you can sign in with \
                 it, confirm it: on the sign-in page, ask for a confirmation mail.",
                NOT_YOURS,
            ),
            OwnerAct::Deleted => (
                "Your account was deleted",
                "The people who run {service} deleted your account and what belonged to it.",
                "This cannot be undone. Contact them if you have questions.",
            ),
        };
        let letter = Letter::new(subject, before, after).to(&self.name);
        match self.act {
            OwnerAct::FactorsReset => letter.button(SECURE.0, SECURE.1),
            OwnerAct::Enabled | OwnerAct::SessionsEnded | OwnerAct::EmailReplaces { .. } => {
                letter.button("Sign in", "/sign-in")
            }
            OwnerAct::Disabled | OwnerAct::EmailChanged | OwnerAct::Deleted => {
                letter.button("Contact the operator", "/legal/privacy")
            }
        }
    }
}

const NOT_YOURS: &str = "If you have no account there, contact the people who run this service.";
const ASK_THEM: &str = "If you have questions, contact the people who run this service.";
