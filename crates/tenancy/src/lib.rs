//! The data that all features share: accounts, sessions, organizations, apps, keys, events and mails, and the
//! extractors that check access. Its only routes are those of uploads.
pub mod accounts;
pub mod apps;
pub mod audience;
pub mod audit;
pub mod budget;
pub mod end_users;
pub mod enter;
pub mod events;
pub mod factors;
pub mod gone;
pub mod happenings;
pub mod id_tokens;
pub mod invites;
pub mod keys;
mod letters;
pub mod mail;
pub mod members;
pub mod once;
pub mod orgs;
pub mod outbox;
pub mod passkeys;
pub mod password;
pub mod people;
pub mod records;
pub mod redirects;
mod relay;
pub mod restored;
pub mod scim_tokens;
pub mod scopes;
pub mod sessions;
mod settings;
pub mod sign_in;
pub mod slugs;
pub mod sms;
pub mod social;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tidy;
pub mod tokens;
pub mod uploads;

pub use kernel::email;
pub use settings::Settings;
use std::{sync::Arc, time::Duration};

use kernel::{
    app::{Feature, Part},
    config::{Config, Listed},
    http::{AppOrigins, Routes},
    jobs::{Jobs, Tidy},
};

const HOURLY: Duration = Duration::from_hours(1);

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(config: &Config) -> Feature {
    Feature::new(Routes::new("tenancy").credentials(enter::CREDENTIALS).and(uploads::routes()))
        .jobs(Jobs::new().on::<mail::SendMail>().on::<sms::SendSms>())
        .jobs(Jobs::new().every::<Tidy>(HOURLY).every::<tidy::TurnKeys>(HOURLY))
        .jobs(Jobs::new().every::<mail::ForgetDead>(Duration::from_hours(24)))
        .declares(tidy::CHORES)
        .declares(restored::AFTER_RESTORE)
        .declares(happenings::EVENTS)
        .declares(once::PURPOSES)
        .declares(sign_in::MAILS)
        .declares(invites::MAILS)
        .own(letters::Templates::default())
        .release(|app| Box::pin(async move { mail::release_all(&app.db).await.map_err(|error| error.to_string()) }))
        .own(relay::Relay::new(config.workers))
        .jobs(uploads::jobs())
        .own(uploads::Studio::default())
        .own(keys::Ring::default())
        .own(Arc::new(enter::Live::default()))
        .own(Arc::new(AppOrigins::default()))
        .own(password::Hasher::start(config.of::<Settings>().password_queue))
        .start(|app| {
            Box::pin(async move {
                let live = app.own::<Arc<enter::Live>>().clone();
                app.db.on_notice(move |notice| live.hear(notice));
                enter::read_origins(&app).await.map_err(|error| error.to_string())?;
                keys::start(&app).await
            })
        })
        .task(|app| Box::pin(enter::watch(app)))
}
