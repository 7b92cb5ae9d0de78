//! Mail to people: stored in the transaction that causes it, sent later, in order for each recipient.
//!
//! A mail holds links that sign people in, so it lies sealed in the database and is gone once it is sent.
use std::time::Duration;

use askama::Template;
use kernel::{
    App, crypto,
    db::{self, Db, Reach, Tx},
    id::Id,
    jobs::{self, Job, Later},
    params,
    ports::SendError,
    row,
};
use lettre::{
    Message,
    message::{Mailbox, MultiPart, header::ContentType},
};
use serde::{Deserialize, Serialize};

pub use crate::letters::Kind;
use crate::{email::Email, letters::Letter};

#[derive(Template)]
#[template(path = "mail/mail.html")]
struct Html<'a> {
    letter: &'a Letter,
}

#[derive(Template)]
#[template(path = "mail/mail.txt", escape = "none")]
struct Text<'a> {
    letter: &'a Letter,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    to: String,
    subject: String,
    text: String,
    html: String,
}

/// Where a mail was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Anywhere.
    Stranger,
    /// Where the person has signed in before. What strangers ask for does not use this up.
    Known,
}

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Counts one mail that anybody can ask for against what an email may get, over all kinds of them and wherever they were asked
/// for; `false` when it had its share, and nothing is to be sent. The windows begin with the first mail.
pub async fn may_send(tx: &mut Tx, app: &App, email: &Email, asker: Asker) -> db::Result<bool> {
    if !app.config.rate_limits.is_on() {
        return Ok(true);
    }
    let kind = match asker {
        Asker::Stranger => "mail",
        Asker::Known => "mail-known",
    };
    let subject = format!("{kind}:{}", &app.vault.mac("budget", email.key().as_bytes())[..32]);
    let now = app.clock.now();
    let counted = tx
        .exec(
            "INSERT INTO mail_budget (subject, hour_from, hour_sent, day_from, day_sent) VALUES ($1, $2, 1, $2, 1)
             ON CONFLICT (subject) DO UPDATE SET
               hour_from = CASE WHEN mail_budget.hour_from <= $3 THEN $2 ELSE mail_budget.hour_from END,
               hour_sent = CASE WHEN mail_budget.hour_from <= $3 THEN 1 ELSE mail_budget.hour_sent + 1 END,
               day_from = CASE WHEN mail_budget.day_from <= $4 THEN $2 ELSE mail_budget.day_from END,
               day_sent = CASE WHEN mail_budget.day_from <= $4 THEN 1 ELSE mail_budget.day_sent + 1 END
             WHERE (mail_budget.hour_from <= $3 OR mail_budget.hour_sent < $5)
               AND (mail_budget.day_from <= $4 OR mail_budget.day_sent < $6)",
            params![subject, now, now.minus(HOUR), now.minus(DAY), app.config.mail_per_hour, app.config.mail_per_day],
        )
        .await?;
    if counted == 0 {
        app.metrics.mails_withheld.inc();
        tracing::info!("a mail is not sent: the email had as many as anybody can ask for in an hour or a day");
    }
    Ok(counted > 0)
}

/// Puts a mail into the transaction.
pub async fn send(tx: &mut Tx, app: &App, to: &str, kind: &Kind) -> db::Result<()> {
    let letter = kind.letter(&app.config.base_url());
    let wrong = |e: askama::Error| db::Error::Driver(format!("a mail cannot be written: {e}"));
    let stored = Stored {
        to: to.to_owned(),
        subject: letter.subject.to_owned(),
        text: Text { letter: &letter }.render().map_err(wrong)?,
        html: Html { letter: &letter }.render().map_err(wrong)?,
    };
    let now = app.clock.now();
    let id = Id::<Stored>::new(&app.entropy, now);
    let recipient_key = crypto::hash(to.to_lowercase().as_bytes());
    let plain = serde_json::to_vec(&stored).unwrap_or_default();
    tx.exec(
        "INSERT INTO mail (id, recipient_key, sealed, created_at) VALUES ($1, $2, $3, $4)",
        params![id, &recipient_key, app.vault.seal("mail", &place(&id.to_string()), &plain), now],
    )
    .await?;
    let unique = format!("mail:{recipient_key}:{id}");
    jobs::enqueue_at(tx, app, now, now, Some(&unique), &SendMail { recipient_key }).await?;
    tx.notify(Reach::ThisNode, "mail", "").await
}

fn place(id: &str) -> String {
    format!("mail:sealed:{id}")
}

/// Sends what waits for one recipient, oldest first: a retry never lets a newer mail overtake an older one.
#[derive(Serialize, Deserialize)]
pub struct SendMail {
    recipient_key: String,
}

struct Waiting {
    id: String,
    sealed: Vec<u8>,
}
row!(Waiting { id, sealed });

impl Job for SendMail {
    const KIND: &'static str = "mail.send";
    /// With the usual backoff that is about a day.
    const TRIES: u32 = 32;

    async fn run(self, app: App) -> Result<(), Later> {
        let Some(mail) = self.next(&app).await? else { return Ok(()) };
        let outcome = deliver(&app, &mail).await;
        if let Err(SendError::Later(cause)) = outcome {
            app.db.exec("UPDATE mail SET held_until = NULL WHERE id = $1", params![&mail.id]).await?;
            return Err(Later::retry(cause));
        }
        app.db.exec("DELETE FROM mail WHERE id = $1", params![&mail.id]).await?;
        // Refused for good: the mail is gone, and the dead letter says why without its contents.
        outcome.map_err(Later::give_up)
    }
}

/// A mail is in one hand for as long as a conversation with a server can take, and no longer than a job that died with
/// it stays taken.
const HELD: Duration = Duration::from_mins(1);
/// Who comes while another has it waits a moment, before going away to come back later.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Frees what a dead process had in hand. Only for whoever knows that no other process is at work.
pub async fn release_all(db: &Db) -> db::Result<()> {
    db.exec("UPDATE mail SET held_until = NULL WHERE held_until IS NOT NULL", params![]).await?;
    Ok(())
}

impl SendMail {
    /// The oldest mail of the recipient, for us alone; none when nothing waits. There is a job for each mail, so what
    /// another job has in hand is waited for: the next one is ours.
    async fn next(&self, app: &App) -> Result<Option<Waiting>, Later> {
        let hold = "UPDATE mail SET held_until = $3
             WHERE id = (SELECT id FROM mail WHERE recipient_key = $1 ORDER BY created_at, id LIMIT 1)
               AND (held_until IS NULL OR held_until <= $2)
             RETURNING id, sealed";
        let waits = "SELECT id FROM mail WHERE recipient_key = $1 LIMIT 1";
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            let now = app.clock.now();
            let held: Vec<Waiting> = app.db.put(hold, params![&self.recipient_key, now, now.plus(HELD)]).await?;
            if let Some(mail) = held.into_iter().next() {
                return Ok(Some(mail));
            }
            if app.db.opt::<(String,)>(waits, params![&self.recipient_key]).await?.is_none() {
                return Ok(None);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Later::retry("another mail to the same person is on its way"))
    }
}

async fn deliver(app: &App, mail: &Waiting) -> Result<(), SendError> {
    let never = |why: String| SendError::Never(why);
    let plain = app.vault.open("mail", &place(&mail.id), &mail.sealed).map_err(|e| never(e.to_string()))?;
    let stored: Stored = serde_json::from_slice(&plain).map_err(|e| never(e.to_string()))?;
    let from: Mailbox = app.config.mail_from.parse().map_err(|_| never("mail_from is no address".into()))?;
    let to: Mailbox = stored.to.parse().map_err(|_| never("the recipient is no address".into()))?;
    let part = |kind, body| lettre::message::SinglePart::builder().header(kind).body(body);
    let message = Message::builder()
        .from(from)
        .to(to)
        .subject(stored.subject)
        .message_id(Some(format!("<{}@{}>", mail.id, host(app))))
        .header(AutoSubmitted)
        .multipart(
            MultiPart::alternative()
                .singlepart(part(ContentType::TEXT_PLAIN, stored.text))
                .singlepart(part(ContentType::TEXT_HTML, stored.html)),
        )
        .map_err(|e| never(e.to_string()))?;
    app.mail.send(&mail.id, &message).await
}

fn host(app: &App) -> String {
    let base = app.config.base_url();
    base.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap_or("localhost").to_owned()
}

/// Tells other programs not to answer (RFC 3834).
#[derive(Clone)]
struct AutoSubmitted;

impl lettre::message::header::Header for AutoSubmitted {
    fn name() -> lettre::message::header::HeaderName {
        lettre::message::header::HeaderName::new_from_ascii_str("Auto-Submitted")
    }
    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }
    fn display(&self) -> lettre::message::header::HeaderValue {
        lettre::message::header::HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}
