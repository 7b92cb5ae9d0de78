//! `POST /apps/{appId}/email/send` and `…/batch`: mail from a verified domain of the app.
use std::{mem, sync::Arc};

use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, IDEMPOTENCY_MISMATCH, INVALID, RATE_LIMITED, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    enter::Deployer,
    quotas::{Pool, QUOTA_EXCEEDED},
};

use super::{
    Address, LARGEST_BODY, Message, MessageId, NO_VERIFIED_DOMAIN, SENDER_NOT_VERIFIED, SENDING_PAUSED, Sent,
    request::{CheckedMail, Findings, NewMail, check_subject},
    store::{self, Prepared, Request},
};
use crate::{
    access::OnceKey,
    domains::{self, Domain},
    health,
    pace::Pace,
    templates::{self, UNKNOWN_TEMPLATE},
    workers,
};

const MOST_MESSAGES: usize = 100;
/// What the messages of one request carry together. All of it is in memory until it is stored.
const LARGEST_BATCH: usize = 20 * 1024 * 1024;

pub fn routes() -> Routes {
    let codes = &[
        SENDER_NOT_VERIFIED,
        NO_VERIFIED_DOMAIN,
        SENDING_PAUSED,
        QUOTA_EXCEEDED,
        UNKNOWN_TEMPLATE,
        RATE_LIMITED,
        IDEMPOTENCY_MISMATCH,
    ];
    Routes::new("email")
        .body_limit(LARGEST_BODY)
        .post("/apps/{appId}/email/send", send_email, "transactional email from the app's sender")
        .fails(codes)
        .post("/apps/{appId}/email/batch", send_emails, "up to 100 emails at once, all of them or none")
        .fails(codes)
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct NewMails {
    #[schemars(length(min = 1, max = 100))]
    messages: Vec<NewMail>,
}

#[derive(Serialize, JsonSchema)]
struct SentMails {
    messages: Vec<Sent>,
}

async fn send_email(
    State(janua): State<Janua>,
    caller: Deployer,
    OnceKey(key): OnceKey,
    Json(new): Json<NewMail>,
) -> Result<Json<Sent>> {
    let sent = send(&janua, &Order { caller: &caller, key: key.as_deref(), is_batch: false }, vec![new]).await?;
    sent.into_iter().next().map(Json).ok_or_else(|| INVALID.into())
}

async fn send_emails(
    State(janua): State<Janua>,
    caller: Deployer,
    OnceKey(key): OnceKey,
    Json(new): Json<NewMails>,
) -> Result<Json<SentMails>> {
    if new.messages.len() > MOST_MESSAGES {
        return Err(INVALID.at("messages", "too_long", "must have at most 100 messages"));
    }
    let order = Order { caller: &caller, key: key.as_deref(), is_batch: true };
    let sent = send(&janua, &order, new.messages).await?;
    Ok(Json(SentMails { messages: sent }))
}

/// Who asks, and under which idempotency key.
struct Order<'a> {
    caller: &'a Deployer,
    key: Option<&'a str>,
    is_batch: bool,
}

/// A message whose words are there; only its sender is still to be found.
struct Draft {
    id: MessageId,
    /// Without its content, which is sealed.
    mail: CheckedMail,
    sealed: Arc<[u8]>,
    subject: String,
    request: Request,
}

async fn send(janua: &Janua, order: &Order<'_>, mails: Vec<NewMail>) -> Result<Vec<Sent>> {
    let (now, application) = (janua.clock.now(), &order.caller.application);
    let requests: Vec<Request> = mails
        .iter()
        .enumerate()
        .map(|(index, new)| Request {
            idempotency_key: store::key_of(order.key, order.is_batch.then_some(index)),
            hash: store::digest(janua, new),
        })
        .collect();
    // What is stored already is answered as it was, whatever has become of templates, objects and domains since.
    if let Some(sent) = store::find_repeated(janua, &store::sender_of(application.id), &requests).await? {
        return Ok(sent);
    }
    let (mut drafts, mut room) = (vec![], LARGEST_BATCH);
    for (index, (new, request)) in mails.into_iter().zip(requests).enumerate() {
        let prefix = if order.is_batch { format!("messages.{index}.") } else { String::new() };
        drafts.push(draft(janua, application.id, new, request, &prefix, &mut room).await?);
    }
    let recipients: usize = drafts.iter().map(|draft| Prepared::recipients(&draft.mail).len()).sum();
    janua.own::<Pace>().take(janua, application.org_id, recipients)?;
    transact!(janua, async |tx| {
        order.caller.hold(tx).await?;
        if health::is_paused(tx, application.id).await? {
            return Err(SENDING_PAUSED.into());
        }
        let prepared = prepare(tx, order, &drafts, now).await?;
        store::store(tx, janua, Some(Pool::from(application)), &prepared).await
    })
}

async fn draft(
    janua: &Janua,
    app: ApplicationId,
    new: NewMail,
    request: Request,
    prefix: &str,
    room: &mut usize,
) -> Result<Draft> {
    let now = janua.clock.now();
    let mut mail = new.check(now, prefix)?;
    let subject = match &mail.template {
        None => mail.subject.clone().unwrap_or_default(),
        Some(used) => {
            let locale = mail.locale.as_deref();
            let drawn = templates::draw(janua, app, used, locale, prefix).await?;
            (mail.content.html, mail.content.text) = (drawn.html, drawn.text);
            let subject = mail.subject.clone().unwrap_or(drawn.subject);
            let mut wrong = Findings::below(prefix.to_owned());
            check_subject(&mut wrong, &subject);
            wrong.end()?;
            subject
        }
    };
    mail.fetch_stored(janua, app, prefix, *room).await?;
    *room = room.checked_sub(mail.content.size()).ok_or_else(too_large)?;
    let id = MessageId::new(&janua.entropy, now);
    let (mut content, vault) = (mem::take(&mut mail.content), janua.clone());
    let sealed = workers::run(janua, move || {
        content.complete();
        content.seal(&vault, id)
    });
    Ok(Draft { id, mail, sealed: sealed.await??.into(), subject, request })
}

/// The refusal of a batch that carries too much.
pub fn too_large() -> Fault {
    INVALID.at("messages", "too_long", "must carry at most 20 MiB together, with attachments and drawn templates")
}

/// Finds the sender of each: a verified domain of this app, and of no other.
async fn prepare(tx: &mut Tx, order: &Order<'_>, drafts: &[Draft], now: Timestamp) -> Result<Vec<Prepared>> {
    let app = order.caller.application.id;
    let domains: Vec<Domain> = Domain::of_app(&mut *tx, app).await?;
    let usable: Vec<&Domain> = domains.iter().filter(|domain| domain.status.may_send()).collect();
    let first = usable.first().ok_or(NO_VERIFIED_DOMAIN)?;
    let mut prepared = vec![];
    for draft in drafts {
        let (from, domain) = match &draft.mail.from {
            None => (format!("no-reply@{}", first.hostname), *first),
            Some(from) => {
                let host = from.email.domain();
                let domain =
                    usable.iter().filter(|domain| domain.covers(host)).max_by_key(|domain| domain.hostname.len());
                let domain = *domain.ok_or(SENDER_NOT_VERIFIED)?;
                if domains::is_of_another(&mut *tx, host, domain).await? {
                    return Err(SENDER_NOT_VERIFIED.into());
                }
                (from.header(), domain)
            }
        };
        let message = Message {
            id: draft.id,
            app_id: Some(app),
            sender: store::sender_of(app),
            hostname: Some(domain.hostname.clone()),
            from_header: from,
            reply_to: draft.mail.reply_to.as_ref().map(Address::header),
            subject: draft.subject.clone(),
            tags: draft.mail.tags.clone(),
            template: draft.mail.template.as_ref().map(|used| used.name.clone()),
            request_hash: Some(draft.request.hash.clone()),
            scheduled_at: draft.mail.scheduled_at,
            created_at: now,
        };
        prepared.push(Prepared {
            message,
            sealed: draft.sealed.clone(),
            recipients: Prepared::recipients(&draft.mail),
            idempotency_key: draft.request.idempotency_key.clone(),
        });
    }
    Ok(prepared)
}
