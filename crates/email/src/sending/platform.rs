//! `POST /email/send`: mail from the platform's own sender. It is no open relay: users write to themselves, admins to the
//! members of their organization, and platform owners to anybody. The HTML of such mail says who sent it and can do little.
use std::collections::HashSet;

use axum::extract::State;
use kernel::{
    Janua,
    email::Email,
    fault::{FORBIDDEN, Fault, IDEMPOTENCY_MISMATCH, INVALID, RATE_LIMITED, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Session, is_platform_owner},
    messages::{budget, sender::installation_name},
    orgs::{Role, members::OrgMember},
    quotas::{Pool, QUOTA_EXCEEDED},
};

use super::{
    Address, LARGEST_BODY, Message, MessageId, RECIPIENT_NOT_ALLOWED, Sent,
    content::Content,
    request::{CheckedMail, Emails, NewMail},
    store::{self, Prepared, Request},
    text::{has_more_tags, text_of, without_tags},
};
use crate::{access::OnceKey, workers};

/// How many mails one account sends in an hour by this sender.
const HOURLY: u32 = 20;
/// Each mark that stays open is opened again in each paragraph. HTML with more tags becomes its bare words.
const MOST_TAGS: usize = 1_000;

pub fn routes() -> Routes {
    Routes::new("email")
        .body_limit(LARGEST_BODY)
        .post("/email/send", send_platform_email, "transactional email from the platform sender")
        .fails(&[RECIPIENT_NOT_ALLOWED, QUOTA_EXCEEDED, RATE_LIMITED, FORBIDDEN, IDEMPOTENCY_MISMATCH])
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlatformMail {
    /// Yourself; for admins also members of the active organization.
    to: Emails,
    subject: String,
    /// Forms, scripts, styles and pictures are removed.
    html: Option<String>,
    text: Option<String>,
    /// Your own email, or that of a member.
    reply_to: Option<String>,
    /// A display name. The email is the platform's.
    from: Option<String>,
}

async fn send_platform_email(
    State(janua): State<Janua>,
    session: Session,
    OnceKey(key): OnceKey,
    Json(new): Json<PlatformMail>,
) -> Result<Json<Sent>> {
    let now = janua.clock.now();
    let request = Request { idempotency_key: key, hash: store::digest(&janua, &new) };
    let sender_key = format!("account:{}", session.account().id);
    let repeated = store::find_repeated(&janua, &sender_key, std::slice::from_ref(&request)).await?;
    if let Some(sent) = repeated.and_then(|sent| sent.into_iter().next()) {
        return Ok(Json(sent));
    }
    let name = new.from.clone();
    let PlatformMail { to, subject, html, text, reply_to, .. } = new;
    let mail = NewMail {
        to,
        subject: Some(subject),
        html,
        text,
        reply_to,
        cc: None,
        bcc: None,
        from: None,
        headers: None,
        attachments: None,
        tags: None,
        template: None,
        locale: None,
        unsubscribe: false,
        scheduled_at: None,
    };
    let mut mail = mail.check(now, "")?;
    let name = name.as_deref().map(display_name).transpose()?;
    let says = who_says(&janua, &session);
    let (content, vault, id) =
        (std::mem::take(&mut mail.content), janua.clone(), MessageId::new(&janua.entropy, now));
    let sealed = workers::run(&janua, move || framed(&says, content).seal(&vault, id)).await??.into();
    let sender = janua.config.mail_from.parse::<lettre::message::Mailbox>().map(|own| own.email.to_string());
    let sender = sender.map_err(|error| kernel::fault::INTERNAL.caused_by(error))?;
    let service = installation_name(&janua);
    let from = match name {
        Some(name) => format!("{name} via {service} <{sender}>"),
        None => format!("{service} <{sender}>"),
    };
    let message = Message {
        id,
        app_id: None,
        sender: sender_key,
        hostname: None,
        from_header: from,
        reply_to: mail.reply_to.as_ref().map(Address::header),
        subject: mail.subject.clone().unwrap_or_default(),
        tags: vec![],
        template: None,
        request_hash: Some(request.hash),
        scheduled_at: None,
        created_at: now,
    };
    let recipients = Prepared::recipients(&mail);
    let prepared = [Prepared { message, sealed, recipients, idempotency_key: request.idempotency_key }];
    let sent = transact!(janua, async |tx| {
        may_write(tx, &janua, &session, &mail).await?;
        if !is_platform_owner(&janua, &session)
            && !budget::spend(tx, &janua, "platform-mail", &session.account().id.to_string(), HOURLY).await?
        {
            return Err(Fault::from(RATE_LIMITED).retry_after(budget::HOUR));
        }
        let pool = session.org().map(|membership| Pool::from(membership.org.id));
        store::store(tx, &janua, pool, &prepared).await
    })?;
    sent.into_iter().next().map(Json).ok_or_else(|| INVALID.into())
}

/// Everybody who would get it, and the one who is answered, must be somebody this user may write to.
async fn may_write(tx: &mut db::Tx, janua: &Janua, session: &Session, mail: &CheckedMail) -> Result<()> {
    if is_platform_owner(janua, session) {
        return Ok(());
    }
    let account = session.account();
    let own = account.email.as_deref().filter(|_| account.email_verified).and_then(Email::parse);
    let is_own = |address: &Address| own.as_ref().is_some_and(|own| own.key() == address.email.key());
    let is_admin = session.org().is_some_and(|membership| membership.role >= Role::Admin);
    for address in mail.to.iter().chain(mail.reply_to.as_ref()) {
        if is_own(address) {
            continue;
        }
        let is_member = match session.org().filter(|_| is_admin) {
            Some(membership) => OrgMember::has_verified_email(tx, membership.org.id, address.email.key()).await?,
            None => false,
        };
        if !is_member {
            return Err(RECIPIENT_NOT_ALLOWED.into());
        }
    }
    Ok(())
}

fn display_name(name: &str) -> Result<String> {
    let probe = Address::parse(&format!("{name} <a@example.com>")).and_then(|address| address.name);
    probe.ok_or_else(|| INVALID.at("from", "wrong_form", "must be a display name without an email in it"))
}

fn who_says(janua: &Janua, session: &Session) -> String {
    let (account, base) = (session.account(), janua.config.base_url());
    let of = session.org().map(|membership| format!(" of {}", membership.org.name)).unwrap_or_default();
    let email = account.email.as_deref().unwrap_or_default();
    let service = installation_name(janua);
    format!(
        "{}{of} ({email}) sent this message through {service}. {service} did not write it. Report misuse at {base}.",
        account.name
    )
}

/// The content with who sent it, before and after it.
fn framed(says: &str, content: Content) -> Content {
    let html = content.html.as_deref().map(sanitized);
    let words = content.text.clone().unwrap_or_else(|| html.as_deref().map(text_of).unwrap_or_default());
    let text = format!("{says}\n\n{words}\n\n--\n{says}\n");
    let frame = ammonia::clean_text(says);
    let html = html.map(|html| {
        format!("<html><head></head><body><p>{frame}</p><hr>\n<div>{html}</div>\n<hr><p>{frame}</p></body></html>")
    });
    Content { text: Some(text), html, ..content }
}

/// Words, lists, tables and links that show where they lead. No script, form, style, or anything from elsewhere.
fn sanitized(html: &str) -> String {
    if has_more_tags(html, MOST_TAGS) {
        return ammonia::clean_text(&without_tags(html));
    }
    let schemes: HashSet<&str> = ["https", "http", "mailto"].into();
    let clean = ammonia::Builder::default()
        .rm_tags(["img", "map", "area", "video", "audio", "picture", "source"])
        .rm_generic_attributes(["style", "class", "id"])
        .url_schemes(schemes)
        .url_relative(ammonia::UrlRelative::Deny)
        .clean(html)
        .to_string();
    show_targets(&clean)
}

/// Writes the host of each link behind it: words can say anything.
fn show_targets(html: &str) -> String {
    let (mut rest, mut shown, mut host) = (html, String::with_capacity(html.len()), String::new());
    while let Some(start) = rest.find('<') {
        shown.push_str(&rest[..start]);
        let end = rest[start..].find('>').map_or(rest.len(), |end| start + end + 1);
        let tag = &rest[start..end];
        shown.push_str(tag);
        if tag.starts_with("<a ") {
            let target = tag.split_once("href=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(url, _)| url);
            let url = target.and_then(|target| url::Url::parse(target).ok());
            host = url.map(|url| url.host_str().unwrap_or_else(|| url.path()).to_owned()).unwrap_or_default();
        } else if tag == "</a>" && !host.is_empty() {
            shown.push_str(" [");
            shown.push_str(&ammonia::clean_text(&host));
            shown.push(']');
            host.clear();
        }
        rest = &rest[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pc22_html_of_the_platforms_sender_can_only_be_read() {
        let evil = "<meta http-equiv=refresh content='0;url=https://evil.example'><script>x()</script><form action=/x>\
                    <input name=password></form><img src=https://evil.example/p.gif><p style='position:fixed'>hi</p>\
                    <a href='https://evil.example/login'>https://bank.example</a><style>p{display:none}</style>";
        let clean = sanitized(evil);
        for gone in ["script", "form", "input", "img", "style", "meta", "x()", "display"] {
            assert!(!clean.contains(gone), "{gone}: {clean}");
        }
        assert!(clean.contains("https://bank.example</a> [evil.example]"), "{clean}");
        let marks = (0..20_000).fold(String::new(), |marks, n| marks + &format!("<b title={n}>"));
        let bare = sanitized(&(marks + &"<p>word".repeat(20_000)));
        assert!(bare.len() < 1_000_000 && bare.contains("word") && !bare.contains('<'), "{} bytes", bare.len());
        assert!(sanitized("<a href='javascript:x()'>y</a>").contains(">y</a>"));
        assert!(!sanitized("<a href='javascript:x()'>y</a>").contains("javascript"));
    }
}
