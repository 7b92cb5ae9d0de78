//! The mails about signing in and about the account.
use kernel::crypto::Secret;
use tenancy::messages::mail::{Letter, Mail, NOT_YOU, Sample};

use crate::{magic_link::MAGIC_LINK, password::RESET_PASSWORD, register::VERIFY_EMAIL};

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
