//! A message as it enters the queue: quota, recipients and lanes in one transaction.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    email::Email,
    fault::{IDEMPOTENCY_MISMATCH, NOT_FOUND, Result},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    apps::{Application, ApplicationId},
    quotas::{self, Pool},
};

use super::{
    MailEvent, Message, MessageId, Recipient, RecipientId, note_end,
    request::{CheckedMail, Emails},
};
use crate::{
    MAILS, health,
    queue::{lanes, on_the_list},
    suppressions::Suppression,
    words::{Kind, Status},
};

/// How long a mail is tried after it was to go out.
const TRIED: std::time::Duration = std::time::Duration::from_hours(3 * 24);
const KEY_COUNTS: std::time::Duration = std::time::Duration::from_hours(24);

/// The outcome of a request to send.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the specification's names")]
pub struct Sent {
    pub message_id: MessageId,
    pub to: Emails,
    pub subject: String,
    /// Whether it is stored and will go out.
    pub sent: bool,
    /// `suppressed` when every recipient is on the suppression list.
    pub status: Status,
}

/// A message that is ready to be stored.
pub struct Prepared {
    pub message: Message,
    /// A closure that runs again does not copy it.
    pub sealed: Arc<[u8]>,
    pub recipients: Vec<(Kind, Email)>,
    pub idempotency_key: Option<String>,
}

impl Prepared {
    /// Everybody once, in the place where they stand first.
    pub fn recipients(mail: &CheckedMail) -> Vec<(Kind, Email)> {
        let mut seen = BTreeSet::new();
        let kinds = [(Kind::To, &mail.to), (Kind::Cc, &mail.cc), (Kind::Bcc, &mail.bcc)];
        let all = kinds.into_iter().flat_map(|(kind, list)| list.iter().map(move |one| (kind, one.email.clone())));
        all.filter(|(_, email)| seen.insert(email.key().to_owned())).collect()
    }
}

/// Stores messages of one sender, all of them or none. `pool` pays for them.
pub async fn store(tx: &mut Tx, janua: &Janua, pool: Option<Pool>, mails: &[Prepared]) -> Result<Vec<Sent>> {
    let (mut answers, mut wake) = (vec![], BTreeMap::new());
    let (mut count, mut app) = (0, None);
    for mail in mails {
        if let Some(known) = known(tx, janua, mail).await? {
            answers.push(known);
            continue;
        }
        let (answer, mails) = insert(tx, janua, mail, &mut wake).await?;
        count += mails;
        app = mail.message.app_id;
        answers.push(answer);
    }
    if count > 0 {
        if let Some(pool) = pool {
            quotas::spend(tx, janua, pool, &MAILS, count).await?;
        }
        if let Some(app) = app {
            health::count(tx, app, janua.clock.now(), health::Count { accepted: count, ..health::Count::default() })
                .await?;
        }
        lanes::wake(tx, &wake).await?;
    }
    Ok(answers)
}

/// What makes a request the same as another one.
pub struct Request {
    pub idempotency_key: Option<String>,
    pub hash: String,
}

/// The answers to requests that were all stored before under their idempotency keys.
pub async fn find_repeated(janua: &Janua, sender: &str, requests: &[Request]) -> Result<Option<Vec<Sent>>> {
    let mut answers = vec![];
    for request in requests {
        let Some(key) = &request.idempotency_key else { return Ok(None) };
        let earlier = Message::by_key(&janua.db, sender, key).await?;
        let counts = |one: &Message| janua.clock.now().since(one.created_at) <= KEY_COUNTS;
        let Some(earlier) = earlier.filter(counts) else { return Ok(None) };
        if earlier.request_hash.as_ref() != Some(&request.hash) {
            return Err(IDEMPOTENCY_MISMATCH.into());
        }
        answers.push(answer(&earlier, &Recipient::of(&janua.db, earlier.id).await?));
    }
    Ok((!answers.is_empty()).then_some(answers))
}

/// Inserts the message, or finds the one that was stored under the same key before.
async fn known(tx: &mut Tx, janua: &Janua, mail: &Prepared) -> Result<Option<Sent>> {
    let key = mail.idempotency_key.as_deref();
    for _ in 0..2 {
        if mail.message.insert(tx, &mail.sealed, key).await? {
            return Ok(None);
        }
        let earlier =
            Message::by_key(&mut *tx, &mail.message.sender, key.unwrap_or_default()).await?.ok_or(NOT_FOUND)?;
        if janua.clock.now().since(earlier.created_at) > KEY_COUNTS {
            Message::forget_key(tx, earlier.id).await?;
            continue;
        }
        if earlier.request_hash != mail.message.request_hash {
            return Err(IDEMPOTENCY_MISMATCH.into());
        }
        let recipients = Recipient::of(&mut *tx, earlier.id).await?;
        return Ok(Some(answer(&earlier, &recipients)));
    }
    Err(IDEMPOTENCY_MISMATCH.into())
}

async fn insert(
    tx: &mut Tx,
    janua: &Janua,
    mail: &Prepared,
    wake: &mut BTreeMap<String, Timestamp>,
) -> Result<(Sent, i64)> {
    let (now, message) = (janua.clock.now(), &mail.message);
    let due = message.scheduled_at.unwrap_or(now);
    let mut rows = vec![];
    for (kind, email) in &mail.recipients {
        let suppressed = match message.app_id {
            Some(app) => Suppression::find(&mut *tx, app, email.key(), now).await?,
            None => None,
        };
        let (status, next_at) = match (&suppressed, message.scheduled_at) {
            (Some(_), _) => (Status::Suppressed, None),
            (None, Some(at)) => (Status::Scheduled, Some(at)),
            (None, None) => (Status::Queued, Some(now)),
        };
        rows.push(Recipient {
            id: RecipientId::new(&janua.entropy, now),
            message_id: message.id,
            app_id: message.app_id,
            email: email.as_str().to_owned(),
            email_key: email.key().to_owned(),
            kind: *kind,
            lane: email.domain().to_owned(),
            status,
            attempts: 0,
            next_at,
            expires_at: due.plus(TRIED),
            answer: suppressed.map(|one| on_the_list(one.reason)),
            relay_id: None,
            sent_at: None,
            created_at: message.created_at,
            updated_at: now,
        });
    }
    let mut count = 0;
    for row in &rows {
        row.insert(tx).await?;
        MailEvent::insert(tx, janua, row.id, row.status.name(), row.answer.as_deref()).await?;
        if let Some(at) = row.next_at {
            count += 1;
            let earliest = wake.entry(row.lane.clone()).or_insert(at);
            *earliest = at.min(*earliest);
        }
    }
    if count == 0 {
        note_end(tx, message.id, now).await?;
    }
    Ok((answer(message, &rows), count))
}

fn answer(message: &Message, recipients: &[Recipient]) -> Sent {
    let waiting = recipients.iter().filter(|one| one.status != Status::Suppressed).map(|one| one.status);
    let mut to: Vec<String> =
        recipients.iter().filter(|one| one.kind == Kind::To).map(|one| one.email.clone()).collect();
    let to = if to.len() == 1 { Emails::One(to.remove(0)) } else { Emails::Many(to) };
    let status = waiting.min().unwrap_or(Status::Suppressed);
    let (message_id, subject) = (message.id, message.subject.clone());
    Sent { message_id, to, subject, sent: status != Status::Suppressed, status }
}

/// What two requests under one key are compared by.
pub fn digest(janua: &Janua, request: &impl Serialize) -> String {
    janua.vault.mac("email-request", &serde_json::to_vec(request).unwrap_or_default())
}

/// Sends a message of the log once more, under a new id, to everybody it was for.
pub async fn deliver_again(
    tx: &mut Tx,
    janua: &Janua,
    application: &Application,
    id: MessageId,
) -> Result<Option<Sent>> {
    let Some(old) = Message::find(&mut *tx, application.id, id).await? else { return Err(NOT_FOUND.into()) };
    let Some(sealed) = Message::sealed(&mut *tx, id).await? else { return Ok(None) };
    let content = super::content::Content::open(janua, id, &sealed)?;
    let now = janua.clock.now();
    let fresh = MessageId::new(&janua.entropy, now);
    let message = Message { id: fresh, created_at: now, scheduled_at: None, request_hash: None, ..old };
    let recipients = Recipient::of(&mut *tx, id).await?;
    let recipients = recipients.iter().filter_map(|one| Some((one.kind, Email::parse(&one.email)?))).collect();
    let sealed = content.seal(janua, fresh)?.into();
    let mail = Prepared { message, sealed, recipients, idempotency_key: None };
    let sent = store(tx, janua, Some(Pool::from(application)), &[mail]).await?;
    Ok(sent.into_iter().next())
}

/// Whose idempotency keys count.
pub fn sender_of(app: ApplicationId) -> String {
    format!("app:{app}")
}

/// A key for each message of a batch.
pub fn key_of(key: Option<&str>, index: Option<usize>) -> Option<String> {
    key.map(|key| match index {
        Some(index) => format!("{}#{index}", crypto::hash(key.as_bytes())),
        None => key.to_owned(),
    })
}
