//! The mails to the admins of an app about its email.
use tenancy::messages::mail::{Letter, Mail, Sample};

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(sample(EmailNews::DomainFailing))),
    Sample(|| Box::new(sample(EmailNews::DomainFailed))),
    Sample(|| Box::new(sample(EmailNews::DomainLost))),
    Sample(|| Box::new(sample(EmailNews::Warned))),
    Sample(|| Box::new(sample(EmailNews::Paused))),
];

fn sample(news: EmailNews) -> EmailMail {
    let about = match news {
        EmailNews::DomainFailing | EmailNews::DomainFailed | EmailNews::DomainLost => "mail.example.com".to_owned(),
        _ => "12 of 110 emails bounced and 0 were reported as spam within 24 hours".to_owned(),
    };
    EmailMail { name: "Ada".into(), app: "Tiny notes".into(), about, page: "/console/apps/APP/email".into(), news }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmailNews {
    DomainFailing,
    DomainFailed,
    DomainLost,
    Warned,
    Paused,
}

impl EmailNews {
    /// Where something can be done about it, below the app.
    pub fn page(self) -> &'static str {
        match self {
            Self::DomainFailing | Self::DomainFailed | Self::DomainLost => "email/domains",
            Self::Warned | Self::Paused => "email",
        }
    }
}

pub struct EmailMail {
    pub name: String,
    pub app: String,
    /// The domain, or the figures.
    pub about: String,
    pub page: String,
    pub news: EmailNews,
}

impl Mail for EmailMail {
    fn name(&self) -> &'static str {
        match self.news {
            EmailNews::DomainFailing => "email_domain_failing",
            EmailNews::DomainFailed => "email_domain_failed",
            EmailNews::DomainLost => "email_domain_lost",
            EmailNews::Warned => "email_warned",
            EmailNews::Paused => "email_paused",
        }
    }

    fn letter(&self) -> Letter {
        let (app, about) = (self.app.as_str(), self.about.as_str());
        let letter = match self.news {
            EmailNews::DomainFailing => Letter::new(
                "DNS records of your sending domain are gone",
                "The records that let {} send email from {} were not found. Email is still sent for 72 hours.",
                "Add the records shown on the domain's page again. They are checked every hour.",
            )
            .with(&[app, about]),
            EmailNews::DomainFailed => Letter::new(
                "Your sending domain does not send any more",
                "{} sends no more email from {}, because its DNS records are missing.",
                "Add the records shown on the domain's page, then check them there.",
            )
            .with(&[app, about]),
            EmailNews::DomainLost => Letter::new(
                "Another organization sends from your domain now",
                "{} sends no more email from {}, because another organization has proven that the domain is its own.",
                "If the domain is yours, prove it for your app by a TXT record, then check the sending domain again.",
            )
            .with(&[app, about]),
            EmailNews::Warned => Letter::new(
                "Many of your emails bounce",
                "Of the emails that {} sends, too many do not arrive: {}. Sending is paused if it gets worse.",
                "Remove recipients that do not exist, and write only to people who asked for it.",
            )
            .with(&[app, about]),
            EmailNews::Paused => Letter::new(
                "Sending of email is paused",
                "{} sends no more email: {}. Emails that wait are kept.",
                "Look at what bounced in the log, then resume sending on the Email page.",
            )
            .with(&[app, about]),
        };
        letter.to(&self.name).button("Open email", self.page.as_str())
    }
}
