//! The mail about webhooks.
use tenancy::messages::mail::{Letter, Mail, Sample};

pub const MAILS: &[Sample] = &[Sample(|| {
    let (name, app) = ("Ada".into(), "Tiny notes".into());
    let (url, page) = ("https://example.com/hook".into(), "/console/apps/APP/webhooks/WEBHOOK".into());
    Box::new(WebhookDisabled { name, app, url, page })
})];

/// To those who look after an app whose webhook does not answer.
pub struct WebhookDisabled {
    pub name: String,
    pub app: String,
    pub url: String,
    /// Where it is switched on again.
    pub page: String,
}

impl Mail for WebhookDisabled {
    fn name(&self) -> &'static str {
        "webhook_disabled"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "A webhook was turned off",
            "Five deliveries in a row to {} failed, so this endpoint of {} was turned off. No more events are sent to it.",
            "When the endpoint answers again, turn it on and send the missed events. Events are kept for 30 days.",
        )
        .with(&[&self.url, &self.app])
        .to(&self.name)
        .button("Open endpoint", self.page.as_str())
    }
}
