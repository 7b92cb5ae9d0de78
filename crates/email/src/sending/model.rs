//! Messages and their recipients as stored, and every statement on them.
use db::{Composed, Db, Read, Sql, Tx, params, row};
use kernel::{
    clock::Timestamp,
    http::Key,
    id::Id,
    telemetry::{self, MOST_STEPS, StepKind, TraceStep},
};
use tenancy::apps::ApplicationId;

use crate::words::{Kind, Status};

pub type MessageId = Id<Message>;
pub type RecipientId = Id<Recipient>;

/// A message, as the log knows it. Its content is sealed, in a column of its own.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: MessageId,
    pub app_id: Option<ApplicationId>,
    pub sender: String,
    pub hostname: Option<String>,
    pub from_header: String,
    pub reply_to: Option<String>,
    pub subject: String,
    pub tags: Vec<String>,
    pub template: Option<String>,
    pub request_hash: Option<String>,
    pub scheduled_at: Option<Timestamp>,
    pub created_at: Timestamp,
}
row!(Message {
    id,
    app_id,
    sender,
    hostname,
    from_header,
    reply_to,
    subject,
    tags,
    template,
    request_hash,
    scheduled_at,
    created_at
});

/// Everything of a message but its content.
macro_rules! columns {
    ($rest:literal) => {
        concat!(
            "SELECT m.id, m.app_id, m.sender, m.hostname, m.from_header, m.reply_to, m.subject, m.tags, m.template,
                    m.request_hash, m.scheduled_at, m.created_at FROM email_message m ",
            $rest
        )
    };
}

struct TracedRecipient {
    id: String,
    message_id: String,
    app_id: Option<String>,
    template: Option<String>,
    status: String,
    attempts: u32,
    created_at: Timestamp,
    sent_at: Option<Timestamp>,
}
row!(TracedRecipient { id, message_id, app_id, template, status, attempts, created_at, sent_at });

/// The mails of apps that a request caused, one step for each recipient, oldest first: how they fared, not to whom.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let sql = "SELECT r.id, r.message_id, m.app_id, m.template, r.status, r.attempts, r.created_at, r.sent_at
               FROM email_message m JOIN email_recipient r ON r.message_id = m.id
               WHERE m.request_id = $1 ORDER BY r.id LIMIT $2";
    let mails: Vec<TracedRecipient> = db.all(sql, params![request, MOST_STEPS]).await?;
    let step = |mail: TracedRecipient| {
        let name = mail.template.unwrap_or_else(|| "mail of an app".to_owned());
        TraceStep::new(StepKind::Mail, mail.id, mail.created_at, name)
            .state(mail.status)
            .tries(mail.attempts)
            .ended_at(mail.sent_at)
            .with("messageId", Some(mail.message_id))
            .with("appId", mail.app_id)
    };
    Ok(mails.into_iter().map(step).collect())
}

/// What the log is searched for.
pub enum Search {
    All,
    Status(Status),
    Email(String),
}

impl Message {
    /// `false` when the sender used the idempotency key before.
    pub async fn insert(&self, tx: &mut Tx, sealed: &[u8], key: Option<&str>) -> db::Result<bool> {
        let inserted = tx
            .exec(
                "INSERT INTO email_message (id, app_id, sender, hostname, from_header, reply_to, subject, tags, template,
                                            sealed, idempotency_key, request_hash, scheduled_at, created_at,
                                            request_id)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
                 ON CONFLICT (sender, idempotency_key) DO NOTHING",
                params![
                    self.id,
                    self.app_id,
                    &self.sender,
                    self.hostname.clone(),
                    &self.from_header,
                    self.reply_to.clone(),
                    &self.subject,
                    &self.tags,
                    self.template.clone(),
                    sealed,
                    key,
                    self.request_hash.clone(),
                    self.scheduled_at,
                    self.created_at,
                    telemetry::request_id().as_deref()
                ],
            )
            .await?;
        Ok(inserted == 1)
    }

    pub async fn by_key(mut from: impl Read, sender: &str, key: &str) -> db::Result<Option<Self>> {
        from.opt(columns!("WHERE m.sender = $1 AND m.idempotency_key = $2"), params![sender, key]).await
    }

    /// Frees an idempotency key whose day is over.
    pub async fn forget_key(tx: &mut Tx, id: MessageId) -> db::Result<()> {
        tx.exec("UPDATE email_message SET idempotency_key = NULL WHERE id = $1", params![id]).await?;
        Ok(())
    }

    pub async fn find(mut from: impl Read, app: ApplicationId, id: MessageId) -> db::Result<Option<Self>> {
        from.opt(columns!("WHERE m.app_id = $1 AND m.id = $2"), params![app, id]).await
    }

    pub async fn any(mut from: impl Read, id: MessageId) -> db::Result<Self> {
        from.one(columns!("WHERE m.id = $1"), params![id]).await
    }

    /// The sealed content, unless it was dropped.
    pub async fn sealed(mut from: impl Read, id: MessageId) -> db::Result<Option<Vec<u8>>> {
        let found: Option<(Option<Vec<u8>>,)> =
            from.opt("SELECT sealed FROM email_message WHERE id = $1", params![id]).await?;
        Ok(found.and_then(|(sealed,)| sealed))
    }

    pub async fn page(
        mut from: impl Read,
        app: ApplicationId,
        search: &Search,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        const ALL: &str = columns!(
            "WHERE m.app_id = $1 AND (m.created_at, m.id) < ($2, $3) ORDER BY m.created_at DESC, m.id DESC LIMIT $4"
        );
        // Recipients of one message stand side by side in the index.
        const BY_STATUS: &str = columns!(
            "JOIN (SELECT DISTINCT created_at, message_id FROM email_recipient
                   WHERE app_id = $1 AND status = $5 AND (created_at, message_id) < ($2, $3)
                   ORDER BY created_at DESC, message_id DESC LIMIT $4) found ON found.message_id = m.id
             ORDER BY m.created_at DESC, m.id DESC"
        );
        const BY_EMAIL: &str = columns!(
            "JOIN (SELECT DISTINCT created_at, message_id FROM email_recipient
                   WHERE app_id = $1 AND email_key = $5 AND (created_at, message_id) < ($2, $3)
                   ORDER BY created_at DESC, message_id DESC LIMIT $4) found ON found.message_id = m.id
             ORDER BY m.created_at DESC, m.id DESC"
        );
        match search {
            Search::All => from.all(ALL, params![app, below.at, &below.id, most]).await,
            Search::Status(status) => from.all(BY_STATUS, params![app, below.at, &below.id, most, *status]).await,
            Search::Email(email) => from.all(BY_EMAIL, params![app, below.at, &below.id, most, email]).await,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Recipient {
    pub id: RecipientId,
    pub message_id: MessageId,
    pub app_id: Option<ApplicationId>,
    pub email: String,
    pub email_key: String,
    pub kind: Kind,
    pub lane: String,
    pub status: Status,
    pub attempts: u32,
    pub next_at: Option<Timestamp>,
    pub expires_at: Timestamp,
    pub answer: Option<String>,
    pub relay_id: Option<String>,
    pub sent_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Recipient {
    id,
    message_id,
    app_id,
    email,
    email_key,
    kind,
    lane,
    status,
    attempts,
    next_at,
    expires_at,
    answer,
    relay_id,
    sent_at,
    created_at,
    updated_at
});

impl Recipient {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "INSERT INTO email_recipient (id, message_id, app_id, email, email_key, kind, lane, status, attempts,
                                          next_at, expires_at, answer, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $11, $12, $12)",
            params![
                self.id,
                self.message_id,
                self.app_id,
                &self.email,
                &self.email_key,
                self.kind,
                &self.lane,
                self.status,
                self.next_at,
                self.expires_at,
                self.answer.clone(),
                self.created_at
            ],
        )
        .await
    }

    pub async fn of(mut from: impl Read, message: MessageId) -> db::Result<Vec<Self>> {
        from.all("SELECT * FROM email_recipient WHERE message_id = $1 ORDER BY id", params![message]).await
    }

    /// Those of some messages of a page.
    pub async fn of_some(db: &Db, messages: &[MessageId]) -> db::Result<Vec<Self>> {
        if messages.is_empty() {
            return Ok(vec![]);
        }
        let mut question = Composed::new("SELECT * FROM email_recipient WHERE message_id IN (");
        question.values(messages.iter().copied()).sql(") ORDER BY id");
        db.find(question).await
    }

    /// The recipients of the messages between two keys of a page.
    pub async fn of_page(
        mut from: impl Read,
        app: ApplicationId,
        newest: &Message,
        oldest: &Message,
    ) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT r.* FROM email_message m JOIN email_recipient r ON r.message_id = m.id
             WHERE m.app_id = $1 AND (m.created_at, m.id) <= ($2, $3) AND (m.created_at, m.id) >= ($4, $5)
             ORDER BY r.id LIMIT 10000",
            params![app, newest.created_at, newest.id, oldest.created_at, oldest.id],
        )
        .await
    }

    pub async fn find(mut from: impl Read, id: RecipientId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM email_recipient WHERE id = $1", params![id]).await
    }

    pub async fn by_relay(mut from: impl Read, relay_id: &str, email: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM email_recipient WHERE relay_id = $1 AND email_key = $2";
        from.opt(sql, params![relay_id, email]).await
    }

    /// Keeps the row as it is until the transaction ends.
    pub async fn hold(tx: &mut Tx, id: RecipientId) -> db::Result<Option<Self>> {
        const HOLD: Sql = Sql::two(
            "SELECT * FROM email_recipient WHERE id = $1",
            "SELECT * FROM email_recipient WHERE id = $1 FOR UPDATE",
        );
        tx.opt(HOLD, params![id]).await
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "UPDATE email_recipient SET status = $2, attempts = $3, next_at = $4, answer = $5, relay_id = $6,
                                        sent_at = $7, updated_at = $8 WHERE id = $1",
            params![
                self.id,
                self.status,
                self.attempts,
                self.next_at,
                self.answer.clone(),
                self.relay_id.clone(),
                self.sent_at,
                self.updated_at
            ],
        )
        .await
    }

    /// Ends all of a message that still wait; answers which.
    pub async fn cancel(tx: &mut Tx, message: MessageId, now: Timestamp) -> db::Result<Vec<Self>> {
        tx.put(
            "UPDATE email_recipient SET status = 'canceled', next_at = NULL, updated_at = $2
             WHERE message_id = $1 AND next_at IS NOT NULL RETURNING *",
            params![message, now],
        )
        .await
    }

    /// How many mails to a recipient failed since a moment.
    pub async fn failed_since(tx: &mut Tx, app: ApplicationId, key: &str, since: Timestamp) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_recipient
                   WHERE app_id = $1 AND email_key = $2 AND created_at >= $3 AND status = 'failed'";
        let (count,): (i64,) = tx.one(sql, params![app, key, since]).await?;
        Ok(count)
    }
}

/// Notes that a message has ended if none of its recipients waits any more: from then on its content is kept for a while.
pub async fn note_end(tx: &mut Tx, message: MessageId, now: Timestamp) -> db::Result<()> {
    tx.send(
        "UPDATE email_message SET ended_at = $2 WHERE id = $1 AND NOT EXISTS
             (SELECT 1 FROM email_recipient WHERE message_id = $1 AND next_at IS NOT NULL)",
        params![message, now],
    )
    .await
}

/// One thing that happened to a mail.
pub struct MailEvent {
    pub recipient_id: RecipientId,
    pub at: Timestamp,
    pub kind: String,
    pub detail: Option<String>,
}
row!(MailEvent { recipient_id, at, kind, detail });

impl MailEvent {
    pub async fn insert(
        tx: &mut Tx,
        janua: &kernel::Janua,
        of: RecipientId,
        kind: &str,
        detail: Option<&str>,
    ) -> db::Result<()> {
        let now = janua.clock.now();
        tx.send(
            "INSERT INTO email_event (id, recipient_id, at, kind, detail) VALUES ($1, $2, $3, $4, $5)",
            params![Id::<Self>::new(&janua.entropy, now), of, now, kind, detail],
        )
        .await
    }

    /// What strangers can repeat is noted so many times and no more.
    pub async fn insert_at_most(
        tx: &mut Tx,
        janua: &kernel::Janua,
        of: RecipientId,
        kind: &str,
        detail: Option<&str>,
        most: i64,
    ) -> db::Result<()> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_event WHERE recipient_id = $1 AND kind = $2";
        let (count,): (i64,) = tx.one(sql, params![of, kind]).await?;
        if count < most { Self::insert(tx, janua, of, kind, detail).await } else { Ok(()) }
    }

    pub async fn of_message(mut from: impl Read, message: MessageId) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT e.recipient_id, e.at, e.kind, e.detail FROM email_recipient r
             JOIN email_event e ON e.recipient_id = r.id WHERE r.message_id = $1 ORDER BY e.at, e.id LIMIT 2000",
            params![message],
        )
        .await
    }
}
