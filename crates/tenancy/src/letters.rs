//! What is written to people, in English; another language is another table like this one.
use std::time::Duration;

use kernel::crypto::Secret;

use crate::{invites, once::Purpose};

#[derive(Debug, Clone)]
pub enum Kind {
    Verify {
        name: String,
        token: Secret,
        code: Secret,
    },
    /// After several sign-ups with one address, of which no password is kept.
    VerifyAgain {
        name: String,
        token: Secret,
        code: Secret,
    },
    AlreadyRegistered {
        name: String,
    },
    ResetPassword {
        name: String,
        token: Secret,
    },
    MagicLink {
        name: String,
        token: Secret,
    },
    PasswordChanged {
        name: String,
    },
    NewDevice {
        name: String,
        device: String,
        ip: String,
        at: String,
    },
    AccountDeleted {
        name: String,
    },
    FactorChanged {
        name: String,
        what: &'static str,
    },
    Locked {
        name: String,
    },
    /// `provider` as people call it.
    ProviderLinked {
        name: String,
        provider: &'static str,
    },
    /// To those who look after an app whose webhook nobody answers.
    WebhookDisabled {
        name: String,
        app: String,
        url: String,
    },
    /// To those who look after an app whose domain two apps claim.
    Domain {
        name: String,
        app: String,
        domain: String,
        news: DomainNews,
    },
    Invite {
        inviter: String,
        org: String,
        token: Secret,
    },
    /// From an organization whose directory has the person in it.
    Announced {
        org: String,
        token: Secret,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainNews {
    /// Another app is about to have it.
    Contested,
    Lost,
    Gained,
}

/// One mail as people read it: a heading, paragraphs, perhaps a link and a code.
pub struct Letter {
    pub subject: &'static str,
    pub greeting: String,
    pub before: String,
    pub link: Option<(&'static str, String)>,
    pub code: Option<String>,
    pub after: &'static str,
}

const NOT_YOU: &str = "If this was not you, change your password and look at your sessions at once.";

impl Letter {
    fn new(subject: &'static str, before: impl Into<String>, after: &'static str) -> Self {
        Self { subject, greeting: "Hello,".into(), before: before.into(), link: None, code: None, after }
    }

    /// Nothing is said of a name that is not known to be the reader's.
    fn to(self, name: &str) -> Self {
        if name.is_empty() { self } else { Self { greeting: format!("Hello {},", one_line(name)), ..self } }
    }

    fn link(self, label: &'static str, address: String) -> Self {
        Self { link: Some((label, address)), ..self }
    }

    fn code(self, code: &Secret) -> Self {
        Self { code: Some(code.expose().to_owned()), ..self }
    }
}

impl Kind {
    /// How long the link in it is good; nothing for a mail without one.
    pub fn life(&self) -> Option<Duration> {
        match self {
            Self::Verify { .. } | Self::VerifyAgain { .. } => Some(Purpose::VerifyEmail.life()),
            Self::ResetPassword { .. } => Some(Purpose::ResetPassword.life()),
            Self::MagicLink { .. } => Some(Purpose::MagicLink.life()),
            Self::Invite { .. } | Self::Announced { .. } => Some(invites::LIFE),
            _ => None,
        }
    }

    pub fn letter(&self, base_url: &str) -> Letter {
        let at = |path: &str, token: &Secret| format!("{base_url}{path}?token={}", token.expose());
        match self {
            Self::Verify { name, token, code } => Letter::new(
                "Confirm your email address",
                "please confirm that this address is yours. Follow the link within 24 hours, or type the code within \
                 15 minutes.",
                "If you did not sign up, do nothing: without your confirmation nobody can use this address.",
            )
            .to(name)
            .link("Confirm this address", at("/auth/verify", token))
            .code(code),
            Self::VerifyAgain { name, token, code } => Letter::new(
                "Confirm your email address",
                "please confirm that this address is yours. Follow the link within 24 hours, or type the code within \
                 15 minutes. Somebody signed up with it more than once, so no password was kept: afterwards ask for a \
                 new one, as if you had forgotten it.",
                "If you did not sign up, do nothing: without your confirmation nobody can use this address.",
            )
            .to(name)
            .link("Confirm this address", at("/auth/verify", token))
            .code(code),
            Self::AlreadyRegistered { name } => Letter::new(
                "You already have an account",
                "somebody, probably you, tried to sign up with this address, which has an account already. Sign in \
                 with your password, or ask for a new one if you have forgotten it.",
                "If this was not you, do nothing: your account is as it was.",
            )
            .to(name),
            Self::ResetPassword { name, token } => Letter::new(
                "Choose a new password",
                "follow the link within one hour to choose a new password. All your other sessions end then.",
                "If you did not ask for this, do nothing: your password stays as it is.",
            )
            .to(name)
            .link("Choose a new password", at("/auth/reset-password", token)),
            Self::MagicLink { name, token } => Letter::new(
                "Your sign-in link",
                "follow the link within 15 minutes to sign in. It works once.",
                "If you did not ask for this, do nothing. Never pass this link on: it signs in whoever has it.",
            )
            .to(name)
            .link("Sign in", at("/auth/magic-link/verify", token)),
            Self::PasswordChanged { name } => Letter::new(
                "Your password was changed",
                "the password of your account was changed, and every other session was ended.",
                "If this was not you, ask for a new password at once.",
            )
            .to(name),
            Self::NewDevice { name, device, ip, at } => {
                let device = one_line(device);
                let what = format!("somebody signed in from a device we have not seen before: {device} ({ip}), {at}.");
                Letter::new("A new sign-in to your account", what, NOT_YOU).to(name)
            }
            Self::FactorChanged { name, what } => {
                Letter::new("Your second factor was changed", *what, NOT_YOU).to(name)
            }
            Self::Locked { name } => Letter::new(
                "Somebody tries to sign in to your account",
                "a wrong password was given ten times. Whoever tries has to wait or to solve a puzzle now. Where you have \
                 signed in before, and on devices you trust, you can sign in as always.",
                "If this was you, wait a quarter of an hour, or ask for a new password. If not, your password has held; a \
                 second factor makes it safer still.",
            )
            .to(name),
            Self::ProviderLinked { name, provider } => Letter::new(
                "A new way to sign in to your account",
                format!(
                    "somebody signed in with {provider}, which says that this address is theirs. From now on that \
                     opens your account too."
                ),
                "If this was not you, somebody else can read your mail or has your account there: secure both, then \
                 change your password here.",
            )
            .to(name),
            Self::WebhookDisabled { name, app, url } => webhook_disabled(app, url).to(name),
            Self::Domain { name, app, domain, news } => domain_news(app, domain, *news).to(name),
            Self::Invite { inviter, org, token } => Letter::new(
                "You are invited",
                format!(
                    "{} asks you to join {}. Follow the link within seven days; it is for this address and works once.",
                    one_line(inviter),
                    one_line(org)
                ),
                "If you do not know what this is about, do nothing.",
            )
            .link("Accept the invitation", at("/auth/accept-invite", token)),
            Self::Announced { org, token } => announced(org).link("Join", at("/auth/accept-invite", token)),
            Self::AccountDeleted { name } => Letter::new(
                "Your account was deleted",
                "your account and what belonged to it were deleted, as you asked.",
                "This cannot be undone. You are welcome to come back with a new account.",
            )
            .to(name),
        }
    }
}

fn announced(org: &str) -> Letter {
    let what = format!(
        "{} has put you into its directory. Follow the link within seven days to join; it is for this address and works \
         once. If you have no account yet, one is made for you, which the organization can close when you leave it. An \
         account you have stays your own.",
        one_line(org)
    );
    Letter::new("There is a place for you", what, "If you do not know what this is about, do nothing.")
}

fn webhook_disabled(app: &str, url: &str) -> Letter {
    let what = format!(
        "five deliveries in a row to {} failed, so the webhook of {} was switched off. Nothing is sent to it any more.",
        one_line(url),
        one_line(app)
    );
    Letter::new(
        "A webhook was switched off",
        what,
        "Once the receiver answers again, switch the webhook on and recover what it missed; what happened is kept for \
         thirty days.",
    )
}

fn domain_news(app: &str, domain: &str, news: DomainNews) -> Letter {
    let (app, domain) = (one_line(app), one_line(domain));
    match news {
        DomainNews::Contested => Letter::new(
            "Your domain is about to move to another app",
            format!(
                "the DNS record that proves {domain} for {app} is gone, and another app has added its own. If nothing \
                 changes within 24 hours, the domain moves to that app."
            ),
            "To keep the domain, add the record shown on the app's Domain page again.",
        ),
        DomainNews::Lost => Letter::new(
            "Your domain has moved to another app",
            format!(
                "another app has proven that {domain} is its own, and the DNS record of {app} was gone for 24 hours. \
                 Tokens for this domain are now issued to that app's organization."
            ),
            "If the domain is yours, add the record shown on the app's Domain page and verify it again.",
        ),
        DomainNews::Gained => Letter::new(
            "Your domain is verified",
            format!("the domain {domain} now belongs to {app}. It was verified for another app before."),
            "Keep the DNS record: it is checked every day.",
        ),
    }
}

/// A name is a name, whatever somebody typed into it: no second line, no address that programs turn into a link.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace("://", ":// ").replace("www.", "www ")
}
