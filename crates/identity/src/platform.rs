//! For the people who run the platform: who misbehaves, which keys sign, and what the outbox holds.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INTERNAL, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes, Scope},
    id::Id,
    transact,
};
use mail_parser::{Address, Message, MessageParser};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    email::Email,
    enter::{AbuseReport, PlatformOwner, abuse_reports},
    events::{self, By},
    messages::mail::{self, Outcome},
    sessions::keys::{Ring, SigningKey},
};
use tokio::fs;

use crate::{events::MailTested, mails};

pub fn routes() -> Routes {
    Routes::new("platform")
        .get("/admin/abuse-reports", list_abuse_reports, "abuse reports, newest first")
        .get("/admin/signing-keys", list_signing_keys, "the keys that sign, signed or will sign access tokens")
        .get("/admin/outbox", list_outbox, "mails in the outbox folder, newest first")
        .fails(&[NOT_FOUND])
        .get("/admin/outbox/{id}", get_outbox_mail, "one mail of the outbox folder")
        .fails(&[NOT_FOUND])
        .post("/admin/mail/test", test_mail, "send a test mail at once and show the mail server's answer")
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reports {
    reports: Vec<AbuseReport>,
    next_cursor: Option<String>,
}

async fn list_abuse_reports(State(janua): State<Janua>, _owner: PlatformOwner, page: Page) -> Result<Json<Reports>> {
    let fetch = async |below, most| abuse_reports(&janua.db, &below, most).await;
    let key = |report: &AbuseReport| Key { at: report.last_at, id: report.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "abuse-reports", Scope::platform(), fetch, key).await?;
    Ok(Json(Reports { reports: rows, next_cursor }))
}

#[derive(Serialize, JsonSchema)]
struct SigningKeys {
    keys: Vec<SigningKey>,
}

async fn list_signing_keys(State(janua): State<Janua>, _owner: PlatformOwner) -> Json<SigningKeys> {
    Json(SigningKeys { keys: janua.own::<Ring>().list(janua.clock.now()) })
}

/// The name of its file, which is the name under which it was sent.
type MailId = Id<MailView>;

/// A mail, by its head.
#[derive(Serialize, JsonSchema)]
struct MailView {
    id: MailId,
    to: String,
    subject: String,
    at: Timestamp,
}

impl MailView {
    fn of(id: MailId, mail: &Message<'_>) -> Self {
        let to = mail.to().and_then(Address::first).and_then(|to| to.address()).unwrap_or_default();
        let subject = mail.subject().unwrap_or_default();
        Self { id, to: to.to_owned(), subject: subject.to_owned(), at: id.moment() }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Mails {
    mails: Vec<MailView>,
    next_cursor: Option<String>,
}

async fn list_outbox(State(janua): State<Janua>, _owner: PlatformOwner, page: Page) -> Result<Json<Mails>> {
    let folder = janua.mail.folder().ok_or(NOT_FOUND)?;
    let fetch = async |below, most| mails_below(folder, &below, most).await;
    let key = |id: &MailId| Key { at: id.moment(), id: id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "outbox", Scope::platform(), fetch, key).await?;
    let mut mails = vec![];
    for id in rows {
        // One that was cleared away meanwhile is not shown.
        let Ok(bytes) = fs::read(folder.join(format!("{id}.eml"))).await else { continue };
        mails.extend(MessageParser::new().parse(&bytes).map(|mail| MailView::of(id, &mail)));
    }
    Ok(Json(Mails { mails, next_cursor }))
}

/// The mails of the folder, newest first.
async fn mails_below(folder: &std::path::Path, below: &Key, most: u32) -> Result<Vec<MailId>> {
    let mut ids = vec![];
    // A folder that is not there yet is an empty one.
    if let Ok(mut entries) = fs::read_dir(folder).await {
        while let Some(entry) = entries.next_entry().await.map_err(|error| INTERNAL.caused_by(error))? {
            let name = entry.file_name().to_string_lossy().into_owned();
            ids.extend(name.strip_suffix(".eml").and_then(|id| id.parse::<MailId>().ok()));
        }
    }
    ids.retain(|id| id.to_string() < below.id);
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.truncate(usize::try_from(most).unwrap_or_default());
    Ok(ids)
}

#[derive(Deserialize, JsonSchema)]
struct MailPath {
    id: MailId,
}

/// A mail as the recipient sees it.
#[derive(Serialize, JsonSchema)]
struct WholeMail {
    #[serde(flatten)]
    head: MailView,
    text: String,
    html: Option<String>,
}

async fn get_outbox_mail(
    State(janua): State<Janua>,
    _owner: PlatformOwner,
    Path(MailPath { id }): Path<MailPath>,
) -> Result<Json<WholeMail>> {
    let folder = janua.mail.folder().ok_or(NOT_FOUND)?;
    let bytes = fs::read(folder.join(format!("{id}.eml"))).await.map_err(|_| NOT_FOUND)?;
    let mail = MessageParser::new().parse(&bytes).ok_or(NOT_FOUND)?;
    let text = mail.body_text(0).unwrap_or_default().into_owned();
    let html = mail.body_html(0).map(std::borrow::Cow::into_owned);
    Ok(Json(WholeMail { head: MailView::of(id, &mail), text, html }))
}

#[derive(Deserialize, JsonSchema)]
struct TestMail {
    email: Email,
}

/// The outcome of a test mail.
#[derive(Serialize, JsonSchema)]
struct Tested {
    /// Whether the mail server took it.
    sent: bool,
    /// The mail server's answer, in words.
    answer: String,
}

async fn test_mail(
    State(janua): State<Janua>,
    owner: PlatformOwner,
    Json(TestMail { email }): Json<TestMail>,
) -> Result<Json<Tested>> {
    let Outcome { sent, answer } = mail::send_now(&janua, email.as_str(), &mails::Test).await;
    transact!(janua, async |tx| Ok(owner.record(tx, &janua, &MailTested { sent }).await?))?;
    Ok(Json(Tested { sent, answer }))
}

/// The same from the shell, where nobody is signed in.
pub async fn test_mail_from_shell(janua: &Janua, email: &Email) -> db::Result<Outcome> {
    let outcome = mail::send_now(janua, email.as_str(), &mails::Test).await;
    let event = MailTested { sent: outcome.sent };
    db::transact!(janua.db, async |tx| events::record(tx, janua, &By::default(), None, &event).await)?;
    Ok(outcome)
}
