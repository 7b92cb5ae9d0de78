//! The data that all features share: accounts, sessions, organizations, apps, keys, events and mails, and the
//! extractors that check access. Its only routes are those of uploads.
pub mod accounts;
pub mod apps;
pub mod color;
pub mod enter;
pub mod events;
pub mod exports;
pub mod gone;
pub mod ids;
pub mod lent;
pub mod machines;
pub mod messages;
pub mod once;
pub mod orgs;
pub mod plain_page;
pub mod policy;
pub mod quotas;
pub mod records;
pub mod restored;
pub mod sessions;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tidy;
pub mod uploads;

pub use kernel::email;
pub use settings::Settings;
use std::{sync::Arc, time::Duration};

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::{AppOrigins, Routes},
    jobs::{Jobs, Tidy},
};

const HOURLY: Duration = Duration::from_hours(1);

/// The purposes of one-time secrets that this crate uses.
const PURPOSES: &[once::Purpose] = &[
    enter::PASS_PURPOSE,
    enter::CHALLENGE_PURPOSE,
    accounts::factors::MFA_TICKET,
    accounts::factors::SMS_ENROLL,
    accounts::factors::PASSKEY_REGISTER,
    messages::sms::SIGN_IN,
    machines::assertion::ASSERTION,
];

pub const PART: Part = Part { settings: &[Listed::of::<Settings>(), Listed::of::<policy::Policy>()], feature };

pub fn feature(config: &Config) -> Feature {
    Feature::new(Routes::new("tenancy").credentials(enter::CREDENTIALS).and(uploads::routes()))
        .jobs(Jobs::new().on::<messages::mail::SendMail>().on::<messages::sms::SendSms>())
        .jobs(Jobs::new().every::<Tidy>(HOURLY).every::<tidy::TurnKeys>(HOURLY))
        .jobs(Jobs::new().every::<messages::mail::ForgetDead>(Duration::from_hours(24)))
        .declares(tidy::CHORES)
        .declares(kernel::jobs::CHORES)
        .declares(restored::AFTER_RESTORE)
        .declares(events::happenings::EVENTS)
        .declares(PURPOSES)
        .declares(sessions::sign_in::MAILS)
        .declares(orgs::invites::MAILS)
        .declares(&[messages::mail::MEASURE])
        .declares(quotas::METERS)
        .declares(quotas::EVENTS)
        .declares(quotas::MAILS)
        .declares(machines::EVENTS)
        .declares(machines::MAILS)
        .declares(machines::GONE)
        .declares(machines::CHORES)
        .own(quotas::Limits::default())
        .own(machines::refusals::Refusals::default())
        .own(machines::assertion::KeySets::default())
        .own(messages::letters::Templates::default())
        .release(|janua| {
            Box::pin(async move { messages::mail::release_all(&janua.db).await.map_err(|error| error.to_string()) })
        })
        .own(messages::relay::Relay::new(config.workers))
        .jobs(uploads::jobs())
        .own(uploads::Studio::default())
        .own(sessions::keys::Ring::default())
        .own(Arc::new(enter::Live::default()))
        .own(Arc::new(AppOrigins::default()))
        .own(accounts::password::Hasher::start(config.of::<Settings>().password_queue))
        .start(|janua| {
            Box::pin(async move {
                let live = janua.own::<Arc<enter::Live>>().clone();
                janua.db.on_notice(move |notice| live.hear(notice));
                enter::read_origins(&janua).await.map_err(|error| error.to_string())?;
                sessions::keys::start(&janua).await
            })
        })
        .task("keys.reload", |janua| Box::pin(enter::watch(janua)))
}
