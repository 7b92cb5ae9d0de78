//! How the mail of an app fares: counts by hour, and a breaker that pauses sending when too much of it bounces.
use std::time::Duration;

use axum::extract::State;
use db::{Read, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{Admin, InApp, Member},
    events::{self, About, By},
    messages::mail,
    orgs, quotas,
};

use crate::{
    MAILS,
    events::{SendingPaused, SendingResumed},
    mails::{EmailMail, EmailNews},
};

pub fn routes() -> Routes {
    Routes::new("email")
        .get("/apps/{appId}/email", email_overview, "delivery, bounce and complaint figures of the app's email")
        .post("/apps/{appId}/email/resume", resume_sending, "send again after a pause")
}

const HOUR_MS: i64 = 3_600_000;
const DAY: Duration = Duration::from_hours(24);
/// Fewer mails say nothing.
const ENOUGH: i64 = 100;

/// What is added to the counts of an hour.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub accepted: i64,
    pub sent: i64,
    pub bounced: i64,
    pub complained: i64,
}

pub async fn count(tx: &mut Tx, app: ApplicationId, now: Timestamp, count: Count) -> db::Result<()> {
    let Count { accepted, sent, bounced, complained } = count;
    tx.send(
        "INSERT INTO email_hour (app_id, hour, accepted, sent, bounced, complained) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (app_id, hour) DO UPDATE SET accepted = email_hour.accepted + $3, sent = email_hour.sent + $4,
             bounced = email_hour.bounced + $5, complained = email_hour.complained + $6",
        params![app, now.0.div_euclid(HOUR_MS), accepted, sent, bounced, complained],
    )
    .await
}

#[expect(clippy::struct_field_names, reason = "named as its column")]
struct Hour {
    hour: i64,
    accepted: i64,
    sent: i64,
    bounced: i64,
    complained: i64,
}
row!(Hour { hour, accepted, sent, bounced, complained });

async fn hours(mut from: impl Read, app: ApplicationId, since: Timestamp) -> db::Result<Vec<Hour>> {
    let sql = "SELECT hour, accepted, sent, bounced, complained FROM email_hour
               WHERE app_id = $1 AND hour >= $2 ORDER BY hour";
    from.all(sql, params![app, since.0.div_euclid(HOUR_MS)]).await
}

/// Never below nothing: a mail that bounces is taken from those that were sent, perhaps in an hour before these.
fn sum<'a>(hours: impl IntoIterator<Item = &'a Hour>, of: fn(&Hour) -> i64) -> i64 {
    hours.into_iter().map(of).sum::<i64>().max(0)
}

struct Sending {
    paused_at: Option<Timestamp>,
    reason: Option<String>,
    judged_from: Timestamp,
    warned_at: Option<Timestamp>,
}
row!(Sending { paused_at, reason, judged_from, warned_at });

impl Sending {
    async fn find(mut from: impl Read, app: ApplicationId) -> db::Result<Self> {
        let sql = "SELECT paused_at, reason, judged_from, warned_at FROM email_sending WHERE app_id = $1";
        let none = Self { paused_at: None, reason: None, judged_from: Timestamp(0), warned_at: None };
        Ok(from.opt(sql, params![app]).await?.unwrap_or(none))
    }

    async fn save(&self, tx: &mut Tx, app: ApplicationId) -> db::Result<()> {
        tx.exec(
            "INSERT INTO email_sending (app_id, paused_at, reason, judged_from, warned_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (app_id) DO UPDATE SET paused_at = $2, reason = $3, judged_from = $4, warned_at = $5",
            params![app, self.paused_at, self.reason.clone(), self.judged_from, self.warned_at],
        )
        .await?;
        Ok(())
    }
}

pub async fn is_paused(tx: &mut Tx, app: ApplicationId) -> db::Result<bool> {
    Ok(Sending::find(&mut *tx, app).await?.paused_at.is_some())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    Warn,
    Pause,
}

/// By the share of mails that bounced (5 and 10 in a hundred) or were reported as spam (1 and 3 in a thousand).
fn verdict(mails: i64, bounced: i64, complained: i64) -> Verdict {
    if mails < ENOUGH {
        return Verdict::Fine;
    }
    let at = |part: i64, warn: i64, pause: i64| {
        if part * 1000 >= mails * pause {
            Verdict::Pause
        } else if part * 1000 >= mails * warn {
            Verdict::Warn
        } else {
            Verdict::Fine
        }
    };
    at(bounced, 50, 100).max(at(complained, 1, 3))
}

/// Warns, or pauses an app whose mail bounces or is complained about too often.
pub async fn judge(tx: &mut Tx, janua: &Janua, application: &Application) -> Result<()> {
    let now = janua.clock.now();
    let mut sending = Sending::find(&mut *tx, application.id).await?;
    if sending.paused_at.is_some() {
        return Ok(());
    }
    let since = now.minus(DAY).max(sending.judged_from);
    let hours = hours(&mut *tx, application.id, since).await?;
    let sum = |of: fn(&Hour) -> i64| sum(&hours, of);
    let (mails, bounced, complained) =
        (sum(|h| h.sent) + sum(|h| h.bounced), sum(|h| h.bounced), sum(|h| h.complained));
    let reason =
        format!("{bounced} of {mails} emails bounced and {complained} were reported as spam within 24 hours");
    let news = match verdict(mails, bounced, complained) {
        Verdict::Fine => return Ok(()),
        Verdict::Warn if sending.warned_at.is_some_and(|at| now.since(at) < DAY) => return Ok(()),
        Verdict::Warn => {
            sending.warned_at = Some(now);
            EmailNews::Warned
        }
        Verdict::Pause => {
            (sending.paused_at, sending.reason) = (Some(now), Some(reason.clone()));
            let event = SendingPaused { reason: reason.clone() };
            events::record(tx, janua, &By::default(), About::app(application), &event).await?;
            EmailNews::Paused
        }
    };
    sending.save(tx, application.id).await?;
    tell(tx, janua, application, news, &reason).await
}

/// Writes to the admins of an app.
pub async fn tell(tx: &mut Tx, janua: &Janua, application: &Application, news: EmailNews, about: &str) -> Result<()> {
    for reader in orgs::admins_to_mail(tx, application.org_id).await? {
        let page = format!("/console/apps/{}/{}", application.id, news.page());
        let letter =
            EmailMail { name: reader.name, app: application.name.clone(), about: about.to_owned(), page, news };
        mail::send(tx, janua, &reader.email, &letter).await?;
    }
    Ok(())
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EmailOverview {
    /// Whether the app may send.
    paused: bool,
    paused_at: Option<Timestamp>,
    pause_reason: Option<String>,
    /// Recipients of this month, and the plan's limit.
    used: i64,
    limit: Option<i64>,
    /// The last 24 hours.
    sent: i64,
    bounced: i64,
    complained: i64,
    /// By day, the last 14 days.
    days: Vec<EmailDay>,
}

#[derive(Serialize, JsonSchema)]
struct EmailDay {
    /// As in `2026-01-31`.
    day: String,
    accepted: i64,
    sent: i64,
    bounced: i64,
    complained: i64,
}

async fn email_overview(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<EmailOverview>> {
    let (app, now) = (caller.application.id, janua.clock.now());
    let sending = Sending::find(&janua.db, app).await?;
    let first = Timestamp(now.day().start().0 - 13 * Timestamp::DAY_MS);
    let hours = hours(&janua.db, app, first).await?;
    let recent = now.minus(DAY).0.div_euclid(HOUR_MS);
    let day: Vec<&Hour> = hours.iter().filter(|hour| hour.hour > recent).collect();
    let recent = |of: fn(&Hour) -> i64| sum(day.iter().copied(), of);
    let days = (0..14).map(|n| {
        let start = Timestamp(first.0 + n * Timestamp::DAY_MS);
        let within: Vec<&Hour> =
            hours.iter().filter(|hour| (0..24).contains(&(hour.hour - start.0.div_euclid(HOUR_MS)))).collect();
        let sum = |of: fn(&Hour) -> i64| sum(within.iter().copied(), of);
        EmailDay {
            day: start.day().to_string(),
            accepted: sum(|h| h.accepted),
            sent: sum(|h| h.sent),
            bounced: sum(|h| h.bounced),
            complained: sum(|h| h.complained),
        }
    });
    let org = caller.application.org_id;
    let plan = orgs::Org::find(&janua.db, org).await?.map(|org| org.tier).unwrap_or_default();
    let limit = janua.find::<quotas::Limits>().and_then(|limits| limits.find(&plan, &MAILS.name)?.ceiling());
    Ok(Json(EmailOverview {
        paused: sending.paused_at.is_some(),
        paused_at: sending.paused_at,
        pause_reason: sending.reason,
        used: quotas::used(&janua.db, org, &MAILS, now).await?,
        limit,
        sent: recent(|h| h.sent),
        bounced: recent(|h| h.bounced),
        complained: recent(|h| h.complained),
        days: days.collect(),
    }))
}

/// What happened before is not held against the app any more.
async fn resume_sending(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<axum::response::NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let mut sending = Sending::find(&mut *tx, caller.application.id).await?;
        if sending.paused_at.take().is_none() {
            return Ok(());
        }
        (sending.reason, sending.warned_at) = (None, None);
        // Counts are kept by the hour: judging begins with the next one.
        sending.judged_from = Timestamp((janua.clock.now().0.div_euclid(HOUR_MS) + 1) * HOUR_MS);
        sending.save(tx, caller.application.id).await?;
        Ok(caller.record(tx, &janua, &SendingResumed).await?)
    })?;
    Ok(axum::response::NoContent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_mails_say_nothing_and_many_bounces_pause() {
        assert_eq!(verdict(99, 99, 99), Verdict::Fine);
        assert_eq!(verdict(100, 4, 0), Verdict::Fine);
        assert_eq!(verdict(100, 5, 0), Verdict::Warn);
        assert_eq!(verdict(100, 10, 0), Verdict::Pause);
        assert_eq!(verdict(1000, 0, 1), Verdict::Warn);
        assert_eq!(verdict(1000, 0, 3), Verdict::Pause);
    }
}
