//! The mails about domains.
use tenancy::messages::mail::{Letter, Mail, Sample};

pub const MAILS: &[Sample] = &[
    Sample(|| Box::new(sample(DomainNews::Contested))),
    Sample(|| Box::new(sample(DomainNews::Lost))),
    Sample(|| Box::new(sample(DomainNews::Gained))),
    Sample(|| Box::new(sample(DomainNews::Misconfigured))),
    Sample(|| Box::new(sample(DomainNews::Expiring))),
];

fn sample(news: DomainNews) -> DomainMail {
    let (name, app, domain) = ("Ada".into(), "Tiny notes".into(), "notes.example.com".into());
    DomainMail { name, app, domain, page: "/console/apps/APP/domains".into(), news }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainNews {
    /// Another app is about to have it.
    Contested,
    Lost,
    Gained,
    /// It leads elsewhere.
    Misconfigured,
    /// Its certificate cannot be renewed and expires soon.
    Expiring,
}

/// To those who look after the app.
pub struct DomainMail {
    pub name: String,
    pub app: String,
    pub domain: String,
    /// Where its records are shown.
    pub page: String,
    pub news: DomainNews,
}

impl Mail for DomainMail {
    fn name(&self) -> &'static str {
        match self.news {
            DomainNews::Contested => "domain_contested",
            DomainNews::Lost => "domain_lost",
            DomainNews::Gained => "domain_gained",
            DomainNews::Misconfigured => "domain_misconfigured",
            DomainNews::Expiring => "certificate_expiring",
        }
    }

    fn letter(&self) -> Letter {
        let (app, domain) = (self.app.as_str(), self.domain.as_str());
        let letter = match self.news {
            DomainNews::Contested => Letter::new(
                "Your domain is about to move to another app",
                "The DNS record that proves {} for {} is gone, and another app has added its own. If nothing changes \
                 within 24 hours, the domain moves to that app.",
                "To keep the domain, add the record shown on the app's Domains page again.",
            )
            .with(&[domain, app]),
            DomainNews::Lost => Letter::new(
                "Your domain has moved to another app",
                "Another app has proven that {} is its own, and the DNS record of {} was gone for 24 hours. Tokens for \
                 this domain are now issued to that app's organization.",
                "If the domain is yours, add the record shown on the app's Domains page and verify it again.",
            )
            .with(&[domain, app]),
            DomainNews::Gained => Letter::new(
                "Your domain is verified",
                "The domain {} now belongs to {}. It was verified for another app before.",
                "Keep the DNS record: it is checked every day.",
            )
            .with(&[domain, app]),
            DomainNews::Misconfigured => Letter::new(
                "Your domain leads elsewhere",
                "The domain {} of {} does not lead to this service any more. Visitors may not reach the site, and its \
                 certificate is not renewed. After seven days the domain is switched off.",
                "Add the DNS records shown on the app's Domains page, or remove the domain from the app.",
            )
            .with(&[domain, app]),
            DomainNews::Expiring => Letter::new(
                "The certificate of your domain expires soon",
                "The certificate of {}, a domain of {}, could not be renewed. Browsers will refuse the site when it \
                 expires.",
                "The app's Domains page shows why, and what to do about it. Renewal is tried again by itself.",
            )
            .with(&[domain, app]),
        };
        letter.to(&self.name).button("Open domain", self.page.as_str())
    }
}
