//! Mail to people: stored in the transaction that causes it, sent later, in order for each recipient.
//!
//! A mail holds links that sign people in, so it lies sealed in the database and is gone once it is sent. It is
//! retried until it is sent, refused for good, or of no more use. In the last two cases it stays beside its dead job
//! for a while, which `janua jobs retry` sends after all.
use std::time::Duration;

use db::{Db, Reach, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    jobs::{self, Job, JobId, Later},
    ports::SendError,
    telemetry::{self, Figure, MOST_STEPS, Measure, StepKind, TraceStep},
};
use lettre::{
    Message,
    message::{
        Body, Mailbox, MultiPart, SinglePart,
        header::{ContentTransferEncoding, ContentType},
    },
};
use serde::{Deserialize, Serialize};

pub use crate::messages::letters::{Letter, Mail, NOT_YOU, Origin, SECURE, Sample, Written, write};
use crate::{
    accounts::Account,
    apps::ApplicationId,
    email::Email,
    messages::{relay::Relay, sender::Sender},
};

#[derive(Serialize, Deserialize)]
struct Stored {
    to: String,
    /// The display name of the sender, where it is not the installation's.
    #[serde(default)]
    from: Option<String>,
    subject: String,
    text: String,
    html: String,
}

/// What a mail counts against. The owner of an email can always be written to: nothing that strangers cause uses up what the
/// person asks for where they sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// A mail that strangers can request: sign-up, recovery, an invite. `from` is the network or the organization
    /// that requests it, which gets a share of the budget.
    Anybody { from: String },
    /// Recovery that was asked for from a network where the person has signed in.
    Known { from: String },
    /// A warning that any stranger can cause.
    Warning(Warning),
}

/// Each has a budget of its own: one kind must not hide the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    AlreadyRegistered,
    Locked,
}

/// How many mails in an hour and in a day.
#[derive(Clone, Copy)]
struct Most {
    hour: u32,
    day: u32,
}

const WARNINGS: Most = Most { hour: 1, day: 3 };
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

impl Most {
    /// The share of one network or one organization: three quarters.
    fn share(self) -> Self {
        let share = |most: u32| most.saturating_mul(3).div_ceil(4);
        Self { hour: share(self.hour), day: share(self.day) }
    }
}

/// Counts one mail that others can cause against its budget, wherever it was asked for; `false` when the budget is spent, and
/// nothing is to be sent. The windows begin with the first mail.
pub async fn may_send(tx: &mut Tx, janua: &Janua, email: &Email, budget: &Budget) -> db::Result<bool> {
    if !janua.config.rate_limits.is_on() {
        return Ok(true);
    }
    let settings = janua.config.of::<crate::Settings>();
    let (email, most) = (email.key(), Most { hour: settings.mail_per_hour, day: settings.mail_per_day });
    // The share first: what it refuses must not be missing to others.
    let is_counted = match budget {
        Budget::Anybody { from } => {
            count(tx, janua, "mail-from", &format!("{email}\n{from}"), most.share()).await?
                && count(tx, janua, "mail", email, most).await?
        }
        Budget::Known { from } => {
            count(tx, janua, "mail-known-from", &format!("{email}\n{from}"), most.share()).await?
                && count(tx, janua, "mail-known", email, most).await?
        }
        Budget::Warning(Warning::AlreadyRegistered) => count(tx, janua, "mail-registered", email, WARNINGS).await?,
        Budget::Warning(Warning::Locked) => count(tx, janua, "mail-locked", email, WARNINGS).await?,
    };
    if !is_counted {
        janua.metrics.mails_withheld.inc();
        tracing::info!("a mail was not sent: the recipient's hourly or daily budget is used up");
    }
    Ok(is_counted)
}

async fn count(tx: &mut Tx, janua: &Janua, kind: &str, whose: &str, most: Most) -> db::Result<bool> {
    let subject = format!("{kind}:{}", &janua.vault.mac("budget", whose.as_bytes())[..32]);
    let now = janua.clock.now();
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
            params![subject, now, now.minus(HOUR), now.minus(DAY), most.hour, most.day],
        )
        .await?;
    Ok(counted > 0)
}

/// Puts a mail into the transaction.
pub async fn send(tx: &mut Tx, janua: &Janua, to: &str, mail: &dyn Mail) -> db::Result<()> {
    send_for(tx, janua, None, to, mail).await
}

/// Puts a mail into the transaction, in the name of the app that the reader came through.
pub async fn send_for(
    tx: &mut Tx,
    janua: &Janua,
    app: Option<ApplicationId>,
    to: &str,
    mail: &dyn Mail,
) -> db::Result<()> {
    let sender = Sender::find(&mut *tx, janua, app).await?;
    let name = mail.name();
    debug_assert!(
        janua.declared::<Sample>().iter().any(|sample| (sample.0)().name() == name),
        "{name} is in no list that a feature declares"
    );
    // The reader may have no account.
    let zone = match Email::parse(to) {
        Some(email) => Account::time_zone_of(&mut *tx, &email).await?,
        None => None,
    };
    let written = write(janua, &sender, zone.as_deref(), mail);
    let Written { subject, text, html, from, life } =
        written.map_err(|error| db::Error::Driver(format!("the mail {name} cannot be written: {error}")))?;
    let stored = Stored { to: to.to_owned(), from, subject, text, html };
    let now = janua.clock.now();
    let id = JobId::new(&janua.entropy, now);
    let recipient_key = crypto::hash(to.to_lowercase().as_bytes());
    let plain = serde_json::to_vec(&stored).unwrap_or_default();
    let expires_at = now.plus(life.map_or(LONGEST, |life| life.min(LONGEST)));
    tx.exec(
        "INSERT INTO mail (id, recipient_key, sealed, created_at, expires_at, request_id, name)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        params![
            id,
            &recipient_key,
            janua.vault.seal("mail", &place(&id.to_string()), &plain),
            now,
            expires_at,
            telemetry::request_id().as_deref(),
            name
        ],
    )
    .await?;
    let job = SendMail { recipient_key, mail: Some(id.to_string()) };
    // Under the id of its mail, so that jobs begin in the order in which the mails go out.
    jobs::enqueue_as(tx, now, id, &job).await?;
    tx.notify(Reach::ThisNode, "mail", "").await
}

/// How a mail fared that was sent at once.
#[derive(Debug)]
pub struct Outcome {
    pub sent: bool,
    /// The mail server's answer, in words.
    pub answer: String,
}

/// Sends a mail at once, past the queue, once. For the people who run the platform: others wait for no mail server.
pub async fn send_now(janua: &Janua, to: &str, mail: &dyn Mail) -> Outcome {
    let id = JobId::new(&janua.entropy, janua.clock.now()).to_string();
    let written = write(janua, &Sender::installation(janua), None, mail).map_err(|error| error.to_string());
    let message = written.and_then(|Written { subject, text, html, from, .. }| {
        message(janua, &id, Stored { to: to.to_owned(), from, subject, text, html })
    });
    let sent = match message {
        Ok(message) => tokio::time::timeout(HELD, janua.mail.send(&id, &message))
            .await
            .unwrap_or_else(|_| Err(SendError::Away("it took longer than two minutes".into()))),
        Err(why) => Err(SendError::Never(why)),
    };
    let place = janua.mail.describe();
    let answer = match &sent {
        Ok(()) if janua.mail.folder().is_some() => {
            format!("The email was written to {place}. It is not sent: smtp_url is not set.")
        }
        Ok(()) => format!("The email was accepted by {place}."),
        Err(SendError::Away(cause)) => format!("The mail server cannot be used ({place}): {cause}"),
        Err(SendError::Broken(cause)) => format!("The connection to the mail server broke ({place}): {cause}"),
        Err(SendError::Later(cause)) => format!("The mail server refused the email for now ({place}): {cause}"),
        Err(SendError::Never(cause)) => format!("The mail server refused the email ({place}): {cause}"),
    };
    Outcome { sent: sent.is_ok(), answer }
}

fn place(id: &str) -> String {
    format!("mail:sealed:{id}")
}

/// How long a mail is tried; one with a link in it not beyond the life of the link.
const LONGEST: Duration = Duration::from_hours(3 * 24);
/// A mail that the server refuses for now is tried again after this; each further refusal doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_mins(30);
/// While the server is away, mails that wait for long are spread over as long, so that they do not all come at once.
const LONGEST_SPREAD: Duration = Duration::from_mins(10);
/// How long failed mails are kept for the operator.
const DEAD_KEPT: Duration = Duration::from_hours(30 * 24);

/// Sends one mail, once the older ones to the same recipient are sent: a retry never lets a newer mail overtake an older
/// one.
#[derive(Serialize, Deserialize)]
pub struct SendMail {
    recipient_key: String,
    /// A job from before mails had jobs of their own takes the oldest of its recipient.
    #[serde(default)]
    mail: Option<String>,
}

struct Waiting {
    id: String,
    sealed: Vec<u8>,
    created_at: Timestamp,
    attempts: u32,
    expires_at: Option<Timestamp>,
    last_error: Option<String>,
    died_at: Option<Timestamp>,
    request_id: Option<String>,
    name: Option<String>,
}
row!(Waiting { id, sealed, created_at, attempts, expires_at, last_error, died_at, request_id, name });

impl Waiting {
    /// A failed mail that an operator retries has all its time once more.
    fn is_late(&self, now: Timestamp) -> bool {
        self.died_at.is_none() && self.expires_at.unwrap_or_else(|| self.created_at.plus(LONGEST)) <= now
    }

    /// Refused, or too late: the next mail may go, and this one is kept beside its dead job.
    async fn give_up(&self, janua: &Janua, cause: &str) -> Result<(), Later> {
        let sql = "UPDATE mail SET died_at = $2, held_until = NULL, next_at = NULL, last_error = $3 WHERE id = $1";
        janua.db.exec(sql, params![&self.id, janua.clock.now(), cause]).await?;
        janua.metrics.mail_attempted("failed");
        Err(Later::give_up(cause))
    }

    /// Deletes a sent mail. The trace of its request keeps the time.
    async fn forget(&self, janua: &Janua) -> db::Result<()> {
        const SENT: &str = "DELETE FROM mail WHERE id = $1";
        let Some(request) = &self.request_id else {
            return janua.db.exec(SENT, params![&self.id]).await.map(drop);
        };
        let now = janua.clock.now();
        db::transact!(janua.db, async |tx| {
            tx.exec(SENT, params![&self.id]).await?;
            let sql = "INSERT INTO mail_sent (id, request_id, name, attempts, created_at, sent_at)
                       VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING";
            let name = self.name.as_deref();
            tx.exec(sql, params![&self.id, request, name, self.attempts + 1, self.created_at, now]).await.map(drop)
        })
    }

    async fn try_later(&self, janua: &Janua, cause: &str, wait: Duration) -> Result<(), Later> {
        let sql = "UPDATE mail SET held_until = NULL, attempts = $2, next_at = $3, last_error = $4 WHERE id = $1";
        let next_at = janua.clock.now().plus(wait);
        janua.db.exec(sql, params![&self.id, self.attempts + 1, next_at, cause]).await?;
        janua.metrics.mail_attempted("deferred");
        Err(Later::retry_after(cause, wait))
    }

    fn backoff(&self) -> Duration {
        FIRST_WAIT.saturating_mul(1 << self.attempts.min(16)).min(LONGEST_WAIT)
    }
}

impl Job for SendMail {
    const KIND: &'static str = "mail.send";
    /// The mail says how long it is tried.
    const TRIES: u32 = u32::MAX;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let (now, relay) = (janua.clock.now(), janua.own::<Relay>());
        let Some(mail) = self.find(&janua).await? else { return Ok(()) };
        if mail.is_late(now) {
            let cause = mail.last_error.as_deref().unwrap_or("the mail server was away");
            return mail.give_up(&janua, &format!("could not be sent in time: {cause}")).await;
        }
        // The mail first: a place held by a job that waits for an older mail would be missing to that one.
        let Some(mail) = self.take(&janua, &mail).await? else { return Ok(()) };
        let place = match relay.enter(now).await {
            Ok(place) => place,
            Err(wait) => {
                janua.db.exec("UPDATE mail SET held_until = NULL WHERE id = $1", params![&mail.id]).await?;
                let spread = (now.since(mail.created_at) / 4).min(LONGEST_SPREAD).as_millis();
                let spread = janua.entropy.up_to(u64::try_from(spread).unwrap_or_default());
                return Err(Later::retry_after(wait.cause, wait.length + Duration::from_millis(spread)));
            }
        };
        let outcome = deliver(&janua, &mail).await;
        let now = janua.clock.now();
        let fault = match &outcome {
            Err(SendError::Away(cause) | SendError::Broken(cause)) => Some(cause.as_str()),
            _ => None,
        };
        let wait = relay.ended(now, fault);
        drop(place);
        match outcome {
            Ok(()) => {
                janua.metrics.mail_attempted("sent");
                Ok(mail.forget(&janua).await?)
            }
            Err(SendError::Never(cause)) => mail.give_up(&janua, &cause).await,
            Err(SendError::Away(cause)) => mail.try_later(&janua, &cause, wait).await,
            // Perhaps it is this very mail that the server stumbles over.
            Err(SendError::Broken(cause)) => mail.try_later(&janua, &cause, wait.max(mail.backoff())).await,
            Err(SendError::Later(cause)) => mail.try_later(&janua, &cause, mail.backoff()).await,
        }
    }
}

struct TracedMail {
    id: String,
    name: Option<String>,
    state: String,
    attempts: u32,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
}
row!(TracedMail { id, name, state, attempts, created_at, ended_at });

/// How long is known which mails of a request were sent.
pub(crate) const SENT_KEPT: Duration = Duration::from_hours(24 * 7);

/// The mails that a request caused, oldest first: which ones and how they fared, not to whom.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let queued = "SELECT id, name, attempts, created_at, died_at AS ended_at,
                         CASE WHEN died_at IS NULL THEN 'waiting' ELSE 'failed' END AS state
                  FROM mail WHERE request_id = $1 ORDER BY id LIMIT $2";
    let sent = "SELECT id, name, attempts, created_at, sent_at AS ended_at, 'sent' AS state
                FROM mail_sent WHERE request_id = $1 ORDER BY id LIMIT $2";
    let mut mails: Vec<TracedMail> = db.all(sent, params![request, MOST_STEPS]).await?;
    mails.extend(db.all::<TracedMail>(queued, params![request, MOST_STEPS]).await?);
    let step = |mail: TracedMail| {
        let step = TraceStep::new(StepKind::Mail, mail.id, mail.created_at, mail.name.unwrap_or_default());
        step.state(mail.state).tries(mail.attempts).ended_at(mail.ended_at)
    };
    Ok(mails.into_iter().map(step).collect())
}

/// Deletes mails that failed long ago, together with their dead jobs.
#[derive(Default, Serialize, Deserialize)]
pub struct ForgetDead {}

impl Job for ForgetDead {
    const KIND: &'static str = "mail.forget_dead";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let before = janua.clock.now().minus(DEAD_KEPT);
        jobs::forget_dead(&janua.db, SendMail::KIND, before).await?;
        janua.db.exec("DELETE FROM mail WHERE died_at < $1", params![before]).await?;
        Ok(())
    }
}

/// A mail is in one hand for longer than a conversation with a server can take.
const HELD: Duration = Duration::from_mins(2);
/// How long a mail waits for an older one of the same recipient before its job is postponed.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Releases the mails of a dead process. Only for callers that know that no other process is at work.
pub async fn release_all(db: &Db) -> db::Result<()> {
    db.exec("UPDATE mail SET held_until = NULL WHERE held_until IS NOT NULL", params![]).await?;
    Ok(())
}

impl SendMail {
    /// The job's own mail; none when it was sent.
    async fn find(&self, janua: &Janua) -> db::Result<Option<Waiting>> {
        const OWN: &str = "SELECT * FROM mail WHERE id = $1";
        const OLDEST: &str = "SELECT * FROM mail WHERE recipient_key = $1 AND died_at IS NULL
                              ORDER BY created_at, id LIMIT 1";
        match &self.mail {
            Some(id) => janua.db.opt(OWN, params![id]).await,
            None => janua.db.opt(OLDEST, params![&self.recipient_key]).await,
        }
    }

    /// The mail, for us alone; none when another job has sent it meanwhile. An older one to the same recipient that is
    /// in hand or due is waited for a moment; one that is to be tried later is tried first.
    async fn take(&self, janua: &Janua, mail: &Waiting) -> Result<Option<Waiting>, Later> {
        let hold = "UPDATE mail SET held_until = $3,
                        expires_at = CASE WHEN died_at IS NULL THEN expires_at ELSE $4 END, died_at = NULL
             WHERE id = $1 AND (held_until IS NULL OR held_until <= $2)
               AND NOT EXISTS (SELECT 1 FROM mail older WHERE older.recipient_key = mail.recipient_key
                               AND older.died_at IS NULL
                               AND (older.created_at, older.id) < (mail.created_at, mail.id))
             RETURNING *";
        let older = "SELECT next_at FROM mail WHERE recipient_key = $1 AND died_at IS NULL
                     AND (created_at, id) <= ($2, $3) ORDER BY created_at, id LIMIT 1";
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            let now = janua.clock.now();
            let held: Vec<Waiting> =
                janua.db.put(hold, params![&mail.id, now, now.plus(HELD), now.plus(LONGEST)]).await?;
            if let Some(mail) = held.into_iter().next() {
                return Ok(Some(mail));
            }
            let place = params![&self.recipient_key, mail.created_at, &mail.id];
            match janua.db.opt::<(Option<Timestamp>,)>(older, place).await? {
                None => return Ok(None),
                Some((Some(at),)) if at > now => {
                    let wait = at.since(now) + PAUSE;
                    return Err(Later::retry_after("an older mail to the same person is tried first", wait));
                }
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        Err(Later::retry_after("another mail to the same person is on its way", PATIENCE))
    }
}

async fn deliver(janua: &Janua, mail: &Waiting) -> Result<(), SendError> {
    let never = |why: String| SendError::Never(why);
    let plain = janua.vault.open("mail", &place(&mail.id), &mail.sealed).map_err(|e| never(e.to_string()))?;
    let stored: Stored = serde_json::from_slice(&plain).map_err(|e| never(e.to_string()))?;
    janua.mail.send(&mail.id, &message(janua, &mail.id, stored).map_err(never)?).await
}

/// The mail as it goes over the wire.
fn message(janua: &Janua, id: &str, stored: Stored) -> Result<Message, String> {
    let own: Mailbox = janua.config.mail_from.parse().map_err(|_| "mail_from is not an email".to_owned())?;
    let from = Mailbox::new(stored.from.or(own.name), own.email);
    let to: Mailbox = stored.to.parse().map_err(|_| "the recipient is not an email".to_owned())?;
    // A file in the outbox is for people and for `grep`: the text as it is, and nothing else that looks like its link.
    let is_file = janua.mail.folder().is_some();
    let part = |kind: ContentType, body: Body| SinglePart::builder().header(kind).body(body);
    let html = match Body::new_with_encoding(stored.html.clone(), ContentTransferEncoding::Base64) {
        Ok(body) if is_file => body,
        _ => Body::new(stored.html),
    };
    Message::builder()
        .from(from)
        .to(to)
        .subject(stored.subject)
        .message_id(Some(format!("<{id}@{}>", host(janua))))
        .header(AutoSubmitted)
        .multipart(
            MultiPart::alternative()
                .singlepart(part(ContentType::TEXT_PLAIN, text_body(stored.text, is_file)))
                .singlepart(part(ContentType::TEXT_HTML, html)),
        )
        .map_err(|e| e.to_string())
}

/// The longest line of a mail (RFC 5322, 2.1.1), without its end.
const LONGEST_LINE: usize = 998;

/// The text as it is, so that links stay whole. Quoted-printable, which cuts them, only where the wire demands it: not
/// every server takes more than ASCII.
fn text_body(text: String, is_file: bool) -> Body {
    let fits = text.lines().all(|line| line.len() <= LONGEST_LINE);
    let encoding = match text.is_ascii() {
        true if fits => ContentTransferEncoding::SevenBit,
        false if fits && is_file => ContentTransferEncoding::EightBit,
        _ => return Body::new(text),
    };
    let lines: Vec<&str> = text.lines().collect();
    Body::dangerous_pre_encoded((lines.join("\r\n") + "\r\n").into_bytes(), encoding)
}

/// Whether a mail is to go out now. Mail of apps stands back for it.
pub async fn is_due(db: &Db, now: Timestamp) -> db::Result<bool> {
    let sql = "SELECT CAST(1 AS BIGINT) AS n FROM mail WHERE died_at IS NULL AND (next_at IS NULL OR next_at <= $1) LIMIT 1";
    Ok(!db.all::<(i64,)>(sql, params![now]).await?.is_empty())
}

/// How many mails wait, and the last error of one of them. Counting stops at 10,000.
pub async fn waiting(db: &Db) -> db::Result<(i64, Option<String>)> {
    let count = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM mail WHERE died_at IS NULL LIMIT 10000) w";
    let last_error = "SELECT last_error FROM mail WHERE died_at IS NULL AND last_error IS NOT NULL
                      ORDER BY next_at DESC, id LIMIT 1";
    let (waiting,): (i64,) = db.one(count, params![]).await?;
    Ok((waiting, db.opt::<(String,)>(last_error, params![]).await?.map(|(error,)| error)))
}

/// The figures of the queue for `/metrics`, counted up to 10,000.
pub const MEASURE: Measure = Measure(|janua| {
    Box::pin(async move {
        let waiting = "SELECT CAST(COUNT(*) AS BIGINT) AS n
                       FROM (SELECT 1 FROM mail WHERE died_at IS NULL LIMIT 10000) w";
        let oldest = "SELECT created_at FROM mail WHERE died_at IS NULL ORDER BY id LIMIT 1";
        let dead = "SELECT CAST(COUNT(*) AS BIGINT) AS n
                    FROM (SELECT 1 FROM mail WHERE died_at IS NOT NULL LIMIT 10000) d";
        let (count,): (i64,) = janua.db.one(waiting, params![]).await?;
        let oldest: Option<(Timestamp,)> = janua.db.opt(oldest, params![]).await?;
        let (dead,): (i64,) = janua.db.one(dead, params![]).await?;
        let age = oldest.map_or(0.0, |(oldest,)| janua.clock.now().since(oldest).as_secs_f64());
        Ok(vec![
            Figure::count("mails_queued", "Mails that wait to be sent.", count),
            Figure::new("mails_oldest_seconds", "How long the oldest queued mail has waited.", age),
            Figure::count("mails_dead", "Mails that could not be sent and are kept for thirty days.", dead),
        ])
    })
});

fn host(janua: &Janua) -> String {
    let base = janua.config.base_url();
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
