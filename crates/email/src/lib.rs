//! Mail that apps send: messages, sending domains, bounces and suppressions.
//!
//! `sending` takes a message in: recipients, quota and lanes in one transaction. `queue` delivers, a lane for each recipient
//! domain. `domains` proves hosts by their DKIM records and signs. `bounces` hears what comes back. `log`, `suppressions`,
//! `templates` and `health` are what people look at.
mod access;
mod bounces;
mod domains;
mod events;
mod health;
mod log;
mod mails;
mod pace;
mod queue;
mod sending;
mod settings;
mod suppressions;
mod templates;
mod unsubscribe;
mod words;
mod workers;

use std::time::Duration;

use db::params;
use kernel::{
    Janua,
    config::{Config, Listed},
    feature::{Feature, Part},
    http::Routes,
    jobs::{Chore, Later},
    telemetry::{Figure, Measure, Traced},
};
use tenancy::{
    gone::Gone,
    quotas::{Meter, Period},
};

pub use bounces::dsn;
pub use queue::{Report, ReportKind, deliver_due};
pub use settings::{Delivery, Settings};

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

/// Recipients that mail was accepted for, in a month.
const MAILS: Meter = Meter::platform("mails", "emails", Period::Month);

/// How long the log is kept.
const LOG_KEPT: Duration = Duration::from_hours(30 * 24);
const HOURS_KEPT: Duration = Duration::from_hours(60 * 24);
const KEYS_KEPT: Duration = Duration::from_hours(24);

const CHORES: &[Chore] = &[
    suppressions::CHORE,
    Chore::sweep(
        "email_message",
        "DELETE FROM email_message WHERE id IN
             (SELECT id FROM email_message WHERE created_at < $1 AND NOT EXISTS
                  (SELECT 1 FROM email_recipient r WHERE r.message_id = email_message.id AND r.next_at IS NOT NULL)
              ORDER BY created_at LIMIT $2)",
        LOG_KEPT,
    ),
    Chore::sweep(
        "email_message.idempotency_key",
        "UPDATE email_message SET idempotency_key = NULL WHERE id IN
             (SELECT id FROM email_message WHERE created_at < $1 AND idempotency_key IS NOT NULL
              ORDER BY created_at LIMIT $2)",
        KEYS_KEPT,
    ),
    Chore::run("email_message.sealed", |janua| Box::pin(drop_bodies(janua))),
    Chore::run("email_hour", |janua| Box::pin(forget_hours(janua))),
    Chore::sweep(
        "email_policy",
        "DELETE FROM email_policy WHERE domain IN
             (SELECT domain FROM email_policy WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        KEYS_KEPT,
    ),
];

const GONE: &[Gone] = &[
    domains::GONE,
    Gone::ManyOfApp(
        "DELETE FROM email_event WHERE id IN
             (SELECT e.id FROM email_recipient r JOIN email_event e ON e.recipient_id = r.id WHERE r.app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp("DELETE FROM email_recipient WHERE id IN (SELECT id FROM email_recipient WHERE app_id = $1 LIMIT $2)"),
    Gone::ManyOfApp("DELETE FROM email_message WHERE id IN (SELECT id FROM email_message WHERE app_id = $1 LIMIT $2)"),
    Gone::ManyOfApp(
        "DELETE FROM email_suppression WHERE app_id = $1 AND email_key IN
             (SELECT email_key FROM email_suppression WHERE app_id = $1 LIMIT $2)",
    ),
];

/// Contents of messages that ended a while ago.
async fn drop_bodies(janua: Janua) -> Result<(), Later> {
    let sql = "UPDATE email_message SET sealed = NULL WHERE id IN
                   (SELECT id FROM email_message WHERE ended_at < $1 AND sealed IS NOT NULL ORDER BY ended_at LIMIT $2)";
    let before = janua.clock.now().minus(janua.config.of::<Settings>().email_bodies_kept);
    janua.db.sweep(sql, params![before]).await?;
    Ok(())
}

async fn forget_hours(janua: Janua) -> Result<(), Later> {
    let sql = "DELETE FROM email_hour WHERE (app_id, hour) IN (SELECT app_id, hour FROM email_hour WHERE hour < $1 LIMIT $2)";
    let before = janua.clock.now().minus(HOURS_KEPT).0.div_euclid(3_600_000);
    janua.db.sweep(sql, params![before]).await?;
    Ok(())
}

/// The figures of the queue for `/metrics`, counted up to 10,000.
const MEASURE: Measure = Measure(|janua| {
    Box::pin(async move {
        let waiting = queue::lanes::waiting(&janua.db).await?;
        Ok(vec![Figure::count("app_mails_queued", "Mails of apps that wait to be sent.", waiting)])
    })
});

/// The mails of apps that a request caused.
const TRACED: Traced =
    Traced(|janua, request| Box::pin(async move { sending::of_request(&janua.db, &request).await }));

/// Takes the records of a host for created, as long as the process lives. For a development server: it has no DNS of its own, and
/// its mail stays on the machine.
pub fn take_for_proven(janua: &Janua, hostname: &str) {
    let _ = janua.own::<domains::MailDns>().taken_for_proven.set(hostname.to_owned());
}

pub fn feature(config: &Config) -> Feature {
    with_courier(config, queue::Courier::of(config))
}

fn with_courier(config: &Config, courier: queue::Courier) -> Feature {
    let routes = Routes::new("email")
        .and(sending::routes())
        .and(log::routes())
        .and(domains::routes())
        .and(suppressions::routes())
        .and(templates::routes())
        .and(health::routes())
        .and(unsubscribe::routes())
        .and(bounces::routes());
    Feature::new(routes)
        .own(domains::MailDns::at(&config.dns_servers))
        .own(domains::keys::Keyring::default())
        .own(courier)
        .own(pace::Pace::default())
        .own(workers::Workers::default())
        .own(queue::Routes::default())
        .declares(&[config.of::<Settings>().permit()])
        .jobs(domains::jobs())
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(CHORES)
        .declares(GONE)
        .declares(&[MAILS])
        .declares(&[MEASURE])
        .declares(&[TRACED])
        .release(|janua| {
            Box::pin(async move { queue::lanes::release_all(&janua.db).await.map_err(|error| error.to_string()) })
        })
        .task("mail.queue", |janua| Box::pin(queue::run(janua)))
        .task("mail.bounces", |janua| Box::pin(bounces::run(janua)))
}

#[cfg(test)]
mod tests;
