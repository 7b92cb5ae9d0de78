//! Mail to people: stored in the transaction that causes it, sent later, in order for each recipient.
//!
//! A mail holds links that sign people in, so it lies sealed in the database and is gone once it is sent.
use askama::Template;
use kernel::{
    App,
    crypto::{self, Secret},
    db::{self, Reach, Tx},
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

/// What is written to people. The words are in `templates/mail`, in English; another language is another folder.
#[derive(Debug, Clone)]
pub enum Kind {
    Verify {
        name: String,
        token: Secret,
        code: Secret,
    },
    AlreadyRegistered {
        name: String,
    },
    ResetPassword {
        name: String,
        token: Secret,
    },
    MagicLink {
        name: String,
        token: Secret,
    },
    PasswordChanged {
        name: String,
    },
    NewDevice {
        name: String,
        device: String,
        ip: String,
        at: String,
    },
    AccountDeleted {
        name: String,
    },
    FactorChanged {
        name: String,
        what: &'static str,
    },
    Locked {
        name: String,
    },
    /// `provider` as people call it.
    ProviderLinked {
        name: String,
        provider: &'static str,
    },
}

/// One mail as people read it: a heading, paragraphs, perhaps a link and a code.
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

struct Letter {
    subject: &'static str,
    greeting: String,
    before: String,
    link: Option<(&'static str, String)>,
    code: Option<String>,
    after: &'static str,
}

impl Kind {
    fn letter(&self, base_url: &str) -> Letter {
        let hello = |name: &str| format!("Hello {},", one_line(name));
        let link = |path: &str, token: &Secret| format!("{base_url}{path}?token={}", token.expose());
        let not_you = "If this was not you, change your password and look at your sessions at once.";
        match self {
            Self::Verify { name, token, code } => Letter {
                subject: "Confirm your email address",
                greeting: hello(name),
                before:
                    "please confirm that this address is yours. Follow the link within 24 hours, or type the code \
                         within 15 minutes."
                        .into(),
                link: Some(("Confirm this address", link("/auth/verify", token))),
                code: Some(code.expose().to_owned()),
                after: "If you did not sign up, do nothing: without your confirmation nobody can use this address.",
            },
            Self::AlreadyRegistered { name } => Letter {
                subject: "You already have an account",
                greeting: hello(name),
                before: "somebody, probably you, tried to sign up with this address, which has an account already. \
                         Sign in with your password, or ask for a new one if you have forgotten it."
                    .into(),
                link: None,
                code: None,
                after: "If this was not you, do nothing: your account is as it was.",
            },
            Self::ResetPassword { name, token } => Letter {
                subject: "Choose a new password",
                greeting: hello(name),
                before: "follow the link within one hour to choose a new password. All your other sessions end then."
                    .into(),
                link: Some(("Choose a new password", link("/auth/reset-password", token))),
                code: None,
                after: "If you did not ask for this, do nothing: your password stays as it is.",
            },
            Self::MagicLink { name, token } => Letter {
                subject: "Your sign-in link",
                greeting: hello(name),
                before: "follow the link within 15 minutes to sign in. It works once.".into(),
                link: Some(("Sign in", link("/auth/magic-link/verify", token))),
                code: None,
                after: "If you did not ask for this, do nothing. Never pass this link on: it signs in whoever has it.",
            },
            Self::PasswordChanged { name } => Letter {
                subject: "Your password was changed",
                greeting: hello(name),
                before: "the password of your account was changed, and every other session was ended.".into(),
                link: None,
                code: None,
                after: "If this was not you, ask for a new password at once.",
            },
            Self::NewDevice { name, device, ip, at } => Letter {
                subject: "A new sign-in to your account",
                greeting: hello(name),
                before: format!(
                    "somebody signed in from a device we have not seen before: {} ({ip}), {at}.",
                    one_line(device)
                ),
                link: None,
                code: None,
                after: not_you,
            },
            Self::FactorChanged { name, what } => Letter {
                subject: "Your second factor was changed",
                greeting: hello(name),
                before: (*what).to_owned(),
                link: None,
                code: None,
                after: not_you,
            },
            Self::ProviderLinked { name, provider } => provider_linked(hello(name), provider),
            Self::Locked { name } => Letter {
                subject: "Somebody tries to sign in to your account",
                greeting: hello(name),
                before:
                    "a wrong password was given ten times. For a quarter of an hour no password is tried any more; \
                         where you are signed in you stay so."
                        .into(),
                link: None,
                code: None,
                after: "If this was you, wait, or ask for a new password. If not, your password has held; a second \
                        factor makes it safer still.",
            },
            Self::AccountDeleted { name } => Letter {
                subject: "Your account was deleted",
                greeting: hello(name),
                before: "your account and what belonged to it were deleted, as you asked.".into(),
                link: None,
                code: None,
                after: "This cannot be undone. You are welcome to come back with a new account.",
            },
        }
    }
}

fn provider_linked(greeting: String, provider: &str) -> Letter {
    Letter {
        subject: "A new way to sign in to your account",
        greeting,
        before: format!(
            "somebody signed in with {provider}, which says that this address is theirs. From now on that opens your \
             account too."
        ),
        link: None,
        code: None,
        after: "If this was not you, somebody else can read your mail or has your account there: secure both, then \
                change your password here.",
    }
}

/// A name is a name, whatever somebody typed into it: no second line, no address that programs turn into a link.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace("://", ":// ").replace("www.", "www ")
}

#[derive(Serialize, Deserialize)]
struct Stored {
    to: String,
    subject: String,
    text: String,
    html: String,
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
        let sql = "SELECT id, sealed FROM mail WHERE recipient_key = $1 ORDER BY created_at, id LIMIT 1";
        let next: Option<Waiting> = app.db.opt(sql, params![&self.recipient_key]).await?;
        let Some(mail) = next else { return Ok(()) };
        let outcome = deliver(&app, &mail).await;
        if let Err(SendError::Later(cause)) = outcome {
            return Err(Later::retry(cause));
        }
        app.db.exec("DELETE FROM mail WHERE id = $1", params![&mail.id]).await?;
        // Refused for good: the mail is gone, and the dead letter says why without its contents.
        outcome.map_err(Later::give_up)
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
