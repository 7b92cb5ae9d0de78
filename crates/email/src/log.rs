//! The log: every message with what became of it for each recipient.
use std::collections::HashMap;

use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    email::Email,
    fault::{Code, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Query, Routes, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Admin, InApp, Member},
    quotas::QUOTA_EXCEEDED,
};

use crate::{
    health,
    sending::{
        MailEvent, Message, MessageId, Recipient, RecipientId, SENDING_PAUSED, Search, Sent, content::Content,
        deliver_again, note_end,
    },
    words::{Kind, Status},
};

const CONTENT_GONE: Code =
    Code::new(410, "content_gone", "The content of this message was deleted, so it cannot be sent again.");
const NOTHING_TO_CANCEL: Code = Code::new(409, "nothing_to_cancel", "The message waits for no recipient any more.");

pub fn routes() -> Routes {
    Routes::new("email")
        .get("/apps/{appId}/email/messages", list_messages, "messages, newest first")
        .get("/apps/{appId}/email/messages/{messageId}", get_message, "a message with its content and events")
        .post("/apps/{appId}/email/messages/{messageId}/cancel", cancel_message, "cancel a message that waits")
        .fails(&[NOTHING_TO_CANCEL])
        .post("/apps/{appId}/email/messages/{messageId}/resend", resend_message, "send a message once more")
        .fails(&[CONTENT_GONE, SENDING_PAUSED, QUOTA_EXCEEDED])
}

#[derive(Deserialize, JsonSchema)]
struct LogQuery {
    status: Option<Status>,
    /// The email of a recipient.
    #[schemars(length(max = 254))]
    to: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MessagePath {
    message_id: MessageId,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RecipientView {
    id: RecipientId,
    email: String,
    kind: Kind,
    status: Status,
    attempts: u32,
    /// The last answer of the mail server.
    answer: Option<String>,
    next_attempt_at: Option<Timestamp>,
    sent_at: Option<Timestamp>,
    updated_at: Timestamp,
}

impl RecipientView {
    fn of(one: &Recipient) -> Self {
        Self {
            id: one.id,
            email: one.email.clone(),
            kind: one.kind,
            status: one.status,
            attempts: one.attempts,
            answer: one.answer.clone(),
            next_attempt_at: one.next_at,
            sent_at: one.sent_at,
            updated_at: one.updated_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MessageView {
    message_id: MessageId,
    from: String,
    subject: String,
    /// The state of the recipient that is least far.
    status: Status,
    recipients: Vec<RecipientView>,
    tags: Vec<String>,
    template: Option<String>,
    scheduled_at: Option<Timestamp>,
    created_at: Timestamp,
}

impl MessageView {
    fn of(message: Message, recipients: &[Recipient]) -> Self {
        Self {
            message_id: message.id,
            from: message.from_header,
            subject: message.subject,
            status: recipients.iter().map(|one| one.status).min().unwrap_or(Status::Canceled),
            recipients: recipients.iter().map(RecipientView::of).collect(),
            tags: message.tags,
            template: message.template,
            scheduled_at: message.scheduled_at,
            created_at: message.created_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Messages {
    messages: Vec<MessageView>,
    next_cursor: Option<String>,
}

async fn list_messages(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Query(query): Query<LogQuery>,
    page: Page,
) -> Result<Json<Messages>> {
    let app = caller.application.id;
    let email = query.to.as_deref().filter(|to| !to.trim().is_empty());
    let (search, name) = match (email, query.status) {
        (Some(to), _) => {
            let key = Email::parse(to).map_or_else(|| to.trim().to_lowercase(), |email| email.key().to_owned());
            (Search::Email(key.clone()), format!("to {key}"))
        }
        (None, Some(status)) => (Search::Status(status), format!("status {}", status.name())),
        (None, None) => (Search::All, String::new()),
    };
    let fetch = async |below, most| Message::page(&janua.db, app, &search, &below, most).await;
    let key = |one: &Message| Key { at: one.created_at, id: one.id.to_string() };
    let scope = if name.is_empty() { Scope::from(app) } else { Scope::from(app).found_by(&name) };
    let Listed { rows, next_cursor } = page.list(&janua, "email-messages", scope, fetch, key).await?;
    let shown = match (&search, rows.first(), rows.last()) {
        (Search::All, Some(newest), Some(oldest)) => Recipient::of_page(&janua.db, app, newest, oldest).await?,
        // What was searched for may lie far apart.
        _ => Recipient::of_some(&janua.db, &rows.iter().map(|row| row.id).collect::<Vec<_>>()).await?,
    };
    let mut recipients: HashMap<MessageId, Vec<Recipient>> = HashMap::new();
    for one in shown {
        recipients.entry(one.message_id).or_default().push(one);
    }
    let messages = rows.into_iter().map(|row| {
        let own = recipients.remove(&row.id).unwrap_or_default();
        MessageView::of(row, &own)
    });
    Ok(Json(Messages { messages: messages.collect(), next_cursor }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventView {
    email: String,
    at: Timestamp,
    kind: String,
    detail: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AttachmentView {
    filename: String,
    content_type: String,
    /// The size in bytes.
    size: usize,
    inline: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WholeMessage {
    #[serde(flatten)]
    message: MessageView,
    reply_to: Option<String>,
    /// Null once the content was deleted.
    html: Option<String>,
    text: Option<String>,
    headers: Vec<(String, String)>,
    attachments: Vec<AttachmentView>,
    /// Whether the content is still there.
    has_content: bool,
    events: Vec<EventView>,
}

async fn get_message(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(path): Path<MessagePath>,
) -> Result<Json<WholeMessage>> {
    let message = Message::find(&janua.db, caller.application.id, path.message_id).await?.ok_or(NOT_FOUND)?;
    let recipients = Recipient::of(&janua.db, message.id).await?;
    let emails: HashMap<RecipientId, &str> = recipients.iter().map(|one| (one.id, one.email.as_str())).collect();
    let events = MailEvent::of_message(&janua.db, message.id).await?;
    let events = events.into_iter().map(|event| EventView {
        email: emails.get(&event.recipient_id).copied().unwrap_or_default().to_owned(),
        at: event.at,
        kind: event.kind,
        detail: event.detail,
    });
    let events = events.collect();
    let sealed = Message::sealed(&janua.db, message.id).await?;
    let content = sealed.as_deref().map(|sealed| Content::open(&janua, message.id, sealed)).transpose()?;
    let has_content = content.is_some();
    let content = content.unwrap_or_default();
    let size = |content: &str| content.trim_end_matches('=').len() * 3 / 4;
    let attachments = content.attachments.into_iter().map(|one| AttachmentView {
        size: size(&one.content),
        filename: one.filename,
        content_type: one.content_type,
        inline: one.inline,
    });
    Ok(Json(WholeMessage {
        reply_to: message.reply_to.clone(),
        html: content.html,
        text: content.text,
        headers: content.headers,
        attachments: attachments.collect(),
        has_content,
        events,
        message: MessageView::of(message, &recipients),
    }))
}

async fn cancel_message(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<MessagePath>,
) -> Result<Json<MessageView>> {
    let view = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let message = Message::find(&mut *tx, caller.application.id, path.message_id).await?.ok_or(NOT_FOUND)?;
        let canceled = Recipient::cancel(tx, message.id, janua.clock.now()).await?;
        if canceled.is_empty() {
            return Err(NOTHING_TO_CANCEL.into());
        }
        for one in canceled {
            MailEvent::insert(tx, &janua, one.id, Status::Canceled.name(), None).await?;
        }
        note_end(tx, message.id, janua.clock.now()).await?;
        let recipients = Recipient::of(&mut *tx, message.id).await?;
        Ok(MessageView::of(message, &recipients))
    })?;
    Ok(Json(view))
}

async fn resend_message(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<MessagePath>,
) -> Result<Json<Sent>> {
    let sent = transact!(janua, async |tx| {
        let application = caller.hold(tx).await?;
        if health::is_paused(tx, application.id).await? {
            return Err(SENDING_PAUSED.into());
        }
        deliver_again(tx, &janua, &application, path.message_id).await?.ok_or_else(|| CONTENT_GONE.into())
    })?;
    Ok(Json(sent))
}
