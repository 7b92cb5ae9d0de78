//! What follows from an attempt, and from what relays and recipients' servers report later.
use std::time::Duration;

use db::Tx;
use kernel::{Janua, fault::Result, ports::SendError};
use tenancy::{
    apps::Application,
    events::{self, About, By},
};

use super::{attempt::Tried, lanes::Due};
use crate::{
    events::{Bounced, Complained},
    health::{self, Count},
    sending::{MailEvent, Recipient, note_end},
    suppressions::{self, Suppression},
    words::{Reason, Status},
};

const MOST_TRIES: u32 = 18;
/// After the first refusal; each further one makes it 1.3 times as long. Greylisting servers want five minutes.
const FIRST_WAIT_MS: f64 = 5.0 * 60.0 * 1000.0;
const GROWTH: f64 = 1.3;
const PAUSED_WAIT: Duration = Duration::from_mins(15);
/// So many mails that failed in a week are a recipient that does not read them.
const SOFT_BOUNCES: i64 = 5;
/// Reports of one mail that is still being tried elsewhere.
const MOST_SOFT: i64 = 20;
const WEEK: Duration = Duration::from_hours(7 * 24);
const HARD_KEPT: Duration = Duration::from_hours(180 * 24);

/// Writes down how an attempt ended.
pub async fn note(tx: &mut Tx, janua: &Janua, due: &Due, tried: &Tried) -> Result<()> {
    if matches!(tried, Tried::Gone) {
        return Ok(());
    }
    let Some(mut mail) = Recipient::hold(tx, due.id).await? else { return Ok(()) };
    if mail.next_at.is_none() {
        return note_late(tx, janua, &mut mail, tried).await;
    }
    match tried {
        Tried::Gone => {}
        Tried::Postponed(_) => {
            if mail.expires_at <= janua.clock.now() {
                fail(tx, janua, &mut mail, "could not be sent in time: the mail server was away").await?;
            }
        }
        Tried::Paused => {
            (mail.status, mail.answer) = (Status::Deferred, Some("sending is paused".into()));
            mail.next_at = Some(janua.clock.now().plus(PAUSED_WAIT));
            mail.save(tx).await?;
        }
        Tried::Suppressed(reason) => {
            end(tx, janua, &mut mail, Status::Suppressed, &on_the_list(*reason)).await?;
        }
        Tried::Refused(why) => fail(tx, janua, &mut mail, why).await?,
        Tried::Done(Ok(answer)) => sent(tx, janua, &mut mail, Status::Sent, answer).await?,
        Tried::Delivered(answer) => sent(tx, janua, &mut mail, Status::Delivered, answer).await?,
        Tried::Done(Err(SendError::Never(answer))) => {
            mail.attempts += 1;
            bounce(tx, janua, &mut mail, answer).await?;
        }
        Tried::Done(Err(SendError::Later(why) | SendError::Broken(why) | SendError::Away(why))) => {
            defer(tx, janua, &mut mail, why).await?;
        }
    }
    Ok(())
}

/// The mail ended while it was being sent: it was canceled, or a report was faster. It never waits again, but what went out
/// is not called canceled.
async fn note_late(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, tried: &Tried) -> Result<()> {
    match tried {
        Tried::Done(Ok(answer)) if mail.status == Status::Canceled => {
            sent(tx, janua, mail, Status::Sent, answer).await
        }
        Tried::Delivered(answer) if mail.status == Status::Canceled => {
            sent(tx, janua, mail, Status::Delivered, answer).await
        }
        _ => Ok(()),
    }
}

/// Why nothing goes to a recipient.
pub fn on_the_list(reason: Reason) -> String {
    format!("on the suppression list: {}", reason.name())
}

async fn sent(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, status: Status, answer: &str) -> Result<()> {
    let now = janua.clock.now();
    mail.status = status;
    (mail.next_at, mail.sent_at, mail.updated_at) = (None, Some(now), now);
    mail.attempts += 1;
    mail.answer = Some(answer.to_owned());
    mail.relay_id = relay_id(answer);
    mail.save(tx).await?;
    MailEvent::insert(tx, janua, mail.id, mail.status.name(), Some(answer)).await?;
    if let Some(app) = mail.app_id {
        health::count(tx, app, now, Count { sent: 1, ..Count::default() }).await?;
    }
    Ok(note_end(tx, mail.message_id, now).await?)
}

/// The server's own id of a mail: the last word of `250 2.0.0 Ok: queued as 4F2A…`.
fn relay_id(answer: &str) -> Option<String> {
    let last = answer.split_whitespace().last()?.trim_matches(['<', '>', '.', ',', '"']);
    (last.len() >= 8 && last.bytes().any(|byte| byte.is_ascii_digit())).then(|| last.to_owned())
}

async fn defer(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, why: &str) -> Result<()> {
    let now = janua.clock.now();
    let wait = backoff(mail.attempts, janua.entropy.up_to(1000));
    mail.attempts += 1;
    let next = now.plus(wait);
    if mail.attempts >= MOST_TRIES || next > mail.expires_at {
        return fail(tx, janua, mail, &format!("could not be sent in time: {why}")).await;
    }
    (mail.status, mail.answer, mail.next_at) = (Status::Deferred, Some(why.to_owned()), Some(next));
    mail.updated_at = now;
    mail.save(tx).await?;
    Ok(MailEvent::insert(tx, janua, mail.id, Status::Deferred.name(), Some(why)).await?)
}

/// With up to a tenth more, so that mails do not come back all at once.
fn backoff(attempts: u32, chance: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    let jitter = 1.0 + chance as f64 / 10_000.0;
    Duration::from_secs_f64(FIRST_WAIT_MS * GROWTH.powi(attempts.min(30).cast_signed()) * jitter / 1000.0)
}

async fn fail(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, why: &str) -> Result<()> {
    let now = janua.clock.now();
    end(tx, janua, mail, Status::Failed, why).await?;
    if let Some(app) = mail.app_id.filter(|_| !why.starts_with("sender_removed"))
        && Recipient::failed_since(tx, app, &mail.email_key, now.minus(WEEK)).await? >= SOFT_BOUNCES
    {
        suppress(tx, janua, mail, Reason::Bounce, why, Some(WEEK)).await?;
    }
    Ok(())
}

async fn end(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, status: Status, why: &str) -> Result<()> {
    let now = janua.clock.now();
    (mail.status, mail.next_at, mail.answer, mail.updated_at) = (status, None, Some(why.to_owned()), now);
    mail.save(tx).await?;
    MailEvent::insert(tx, janua, mail.id, status.name(), Some(why)).await?;
    Ok(note_end(tx, mail.message_id, now).await?)
}

async fn bounce(tx: &mut Tx, janua: &Janua, mail: &mut Recipient, answer: &str) -> Result<()> {
    end(tx, janua, mail, Status::Bounced, answer).await?;
    let Some(application) = application(tx, mail).await? else { return Ok(()) };
    let event = Bounced { message_id: mail.message_id, email: mail.email.clone(), answer: answer.to_owned() };
    events::record(tx, janua, &By::default(), About::app(&application), &event).await?;
    if is_hard(answer) {
        suppress(tx, janua, mail, Reason::Bounce, answer, Some(HARD_KEPT)).await?;
        // One that comes back later was counted as sent before.
        let sent = if mail.sent_at.is_some() { -1 } else { 0 };
        let count = Count { bounced: 1, sent, ..Count::default() };
        health::count(tx, application.id, janua.clock.now(), count).await?;
        health::judge(tx, janua, &application).await?;
    }
    Ok(())
}

/// Whether an answer says that there is no such recipient, now and tomorrow.
pub fn is_hard(answer: &str) -> bool {
    const STATUSES: &[&str] = &["5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1"];
    let lower = answer.to_lowercase();
    let mut words = lower.split(|c: char| c.is_whitespace() || c == '-');
    let statuses: Vec<&str> =
        words.by_ref().filter(|word| word.starts_with("5.") && word.matches('.').count() == 2).collect();
    if statuses.is_empty() {
        let is_550 = ["550", "551", "553"].iter().any(|code| lower.starts_with(code));
        let unknown =
            ["unknown", "no such", "not exist", "not found", "invalid", "disabled", "unavailable", "no mailbox"];
        return is_550 && unknown.iter().any(|words| lower.contains(words));
    }
    statuses.iter().any(|status| STATUSES.contains(status))
}

async fn application(tx: &mut Tx, mail: &Recipient) -> db::Result<Option<Application>> {
    match mail.app_id {
        Some(app) => Application::find(&mut *tx, app).await,
        None => Ok(None),
    }
}

async fn suppress(
    tx: &mut Tx,
    janua: &Janua,
    mail: &Recipient,
    reason: Reason,
    detail: &str,
    kept: Option<Duration>,
) -> Result<()> {
    let Some(application) = application(tx, mail).await? else { return Ok(()) };
    let now = janua.clock.now();
    let entry = Suppression {
        email_key: mail.email_key.clone(),
        email: mail.email.clone(),
        reason,
        detail: Some(detail.to_owned()),
        created_at: now,
        expires_at: kept.map(|kept| now.plus(kept)),
    };
    suppressions::add(tx, janua, &By::default(), &application, &entry).await
}

/// What somebody says about a mail that was sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    Delivered,
    /// The recipient's server is still trying, or refused it for another reason than the recipient.
    Soft,
    Hard,
    Complaint,
    Unsubscribed,
}

/// Notes a report; one that comes again changes nothing.
pub async fn report(tx: &mut Tx, janua: &Janua, mail: &Recipient, report: &Report) -> Result<()> {
    let Some(mut mail) = Recipient::hold(tx, mail.id).await? else { return Ok(()) };
    let detail = report.detail.as_str();
    match report.kind {
        ReportKind::Delivered if mail.status == Status::Sent => {
            end(tx, janua, &mut mail, Status::Delivered, detail).await
        }
        ReportKind::Hard if !matches!(mail.status, Status::Bounced | Status::Complained) => {
            bounce(tx, janua, &mut mail, detail).await
        }
        ReportKind::Complaint if mail.status != Status::Complained => {
            end(tx, janua, &mut mail, Status::Complained, detail).await?;
            let Some(application) = application(tx, &mail).await? else { return Ok(()) };
            let event = Complained { message_id: mail.message_id, email: mail.email.clone() };
            events::record(tx, janua, &By::default(), About::app(&application), &event).await?;
            suppress(tx, janua, &mail, Reason::Complaint, detail, None).await?;
            health::count(tx, application.id, janua.clock.now(), Count { complained: 1, ..Count::default() }).await?;
            health::judge(tx, janua, &application).await
        }
        ReportKind::Unsubscribed => {
            MailEvent::insert_at_most(tx, janua, mail.id, "unsubscribed", None, 1).await?;
            suppress(tx, janua, &mail, Reason::Unsubscribe, detail, None).await
        }
        ReportKind::Soft => {
            Ok(MailEvent::insert_at_most(tx, janua, mail.id, "soft_bounce", Some(detail), MOST_SOFT).await?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recipient_that_does_not_exist_is_a_hard_bounce() {
        for hard in [
            "550 5.1.1 no such user",
            "550-5.1.1 The email account",
            "553 5.1.10 null mx",
            "550 user unknown",
            "550 5.2.1 off",
        ] {
            assert!(is_hard(hard), "{hard}");
        }
        for soft in
            ["552 5.2.2 mailbox full", "550 5.7.1 spam", "554 5.7.1 blocked", "550 rejected by policy", "554 no", ""]
        {
            assert!(!is_hard(soft), "{soft}");
        }
    }

    #[test]
    fn a_mail_is_tried_for_about_a_day_and_a_half() {
        assert_eq!(backoff(0, 0), Duration::from_mins(5));
        let all: Duration = (0..MOST_TRIES).map(|n| backoff(n, 0)).sum();
        assert!(all > Duration::from_hours(24) && all < Duration::from_hours(72), "{all:?}");
    }

    #[test]
    fn the_id_of_a_relay_is_the_last_word_of_its_answer() {
        assert_eq!(relay_id("250 2.0.0 Ok: queued as 4F2A1B3C9D"), Some("4F2A1B3C9D".into()));
        assert_eq!(relay_id("250 OK"), None);
    }
}
