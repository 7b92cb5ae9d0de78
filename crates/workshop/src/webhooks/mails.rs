//! The mail about webhooks.
use tenancy::messages::mail::{Letter, Mail, Sample};

pub const MAILS: &[Sample] = &[Sample(|| {
    let (name, app) = ("Ada".into(), "Tiny notes".into());
    Box::new(WebhookDisabled { name, app, url: "https://example.com/hook".into() })
})];

/// To those who look after an app whose webhook does not answer.
pub struct WebhookDisabled {
    pub name: String,
    pub app: String,
    pub url: String,
}

impl Mail for WebhookDisabled {
    fn name(&self) -> &'static str {
        "webhook_disabled"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "A webhook was switched off",
            "five deliveries in a row to {} failed, so the webhook of {} was switched off. Nothing is sent to it any \
             more.",
            "Once the receiver answers again, switch the webhook on and recover what it missed; what happened is kept \
             for thirty days.",
        )
        .with(&[&self.url, &self.app])
        .to(&self.name)
    }
}
