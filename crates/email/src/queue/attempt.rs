//! One attempt at one mail: read, sign, hand over.
use std::{sync::Arc, time::Duration};

use kernel::{
    Janua,
    config::Config,
    fault::Result,
    ports::{
        SendError,
        mail::{self, Mail},
        smtp::Patience,
    },
};
use lettre::address::Envelope;
use tenancy::messages::relay::Relay;
use tokio::sync::Semaphore;

use super::{direct, lanes::Due};
use crate::{
    Delivery, Settings,
    bounces::return_path,
    domains::keys::Keyring,
    sending::{Message, Recipient, content::Content},
    suppressions::Suppression,
    words::Reason,
};

/// A relay looks at what is in a mail before it takes it. Without waiting for its answer the mail goes out twice, so it has
/// half of what RFC 5321 (4.5.3.2.6) gives it.
const RELAY: Patience = Patience { message: Duration::from_mins(5), ..Patience::DEFAULT };

/// How apps' mail leaves this node: by connections of its own, so that it takes none from the platform's mail.
pub struct Courier {
    /// To the recipients' own servers, where the settings say so.
    is_direct: bool,
    /// None where mail goes to the node's own port: the outbox of a development server, or the mailbox of a test.
    driver: Option<Arc<dyn Mail>>,
    relay: Relay,
    connections: Semaphore,
    #[cfg(test)]
    pub in_hand: InHand,
}

/// How many mails are ready to be sent, and the most there were at once.
#[cfg(test)]
#[derive(Default)]
pub struct InHand(std::sync::Mutex<(usize, usize)>);

#[cfg(test)]
impl InHand {
    fn one_more(&self) -> impl Drop {
        struct One<'a>(&'a InHand);
        impl Drop for One<'_> {
            fn drop(&mut self) {
                db::lock(&self.0.0).0 -= 1;
            }
        }
        let mut counts = db::lock(&self.0);
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        One(self)
    }

    /// Now, and at most.
    pub fn counts(&self) -> (usize, usize) {
        *db::lock(&self.0)
    }
}

impl Courier {
    pub fn of(config: &Config) -> Self {
        Self::with_patience(config, RELAY)
    }

    pub fn with_patience(config: &Config, patience: Patience) -> Self {
        let settings = config.of::<Settings>();
        let connections = settings.email_connections.get();
        let driver = config.smtp_url.as_ref().and_then(|_| mail::with_patience(config, patience).ok());
        let is_direct = settings.email_delivery == Delivery::Direct;
        Self {
            is_direct,
            driver,
            relay: Relay::with_places(connections),
            connections: Semaphore::new(connections),
            #[cfg(test)]
            in_hand: InHand::default(),
        }
    }

    /// Why nothing is tried now, and for how long.
    pub fn is_away(&self, janua: &Janua) -> Option<Duration> {
        self.relay.waits(janua.clock.now())
    }

    pub fn width(janua: &Janua) -> usize {
        janua.config.of::<Settings>().email_connections.get()
    }

    /// Mail of the platform's own sender goes by the platform's own relay.
    fn is_direct(&self, due: &Due) -> bool {
        self.is_direct && due.app_id.is_some()
    }

    async fn deliver(&self, janua: &Janua, due: &Due, envelope: &Envelope, bytes: &[u8]) -> Tried {
        let id = &due.id.to_string();
        if self.is_direct(due) {
            // A server that is away is one recipient domain's, and so is the lane that rests.
            return match direct::deliver(janua, envelope, bytes).await {
                Ok(answer) => Tried::Delivered(answer),
                Err(why) => Tried::Done(Err(why)),
            };
        }
        let Ok(_turn) = self.relay.enter(janua.clock.now()).await else {
            return Tried::Postponed(self.relay.waits(janua.clock.now()).unwrap_or(Duration::from_secs(1)));
        };
        let outcome = match &self.driver {
            Some(driver) => driver.deliver(id, envelope, bytes).await,
            None => janua.mail.deliver(id, envelope, bytes).await,
        };
        let fault = match &outcome {
            Err(SendError::Away(cause) | SendError::Broken(cause)) => Some(cause.as_str()),
            _ => None,
        };
        let wait = self.relay.ended(janua.clock.now(), fault);
        match outcome {
            // The server says nothing about this mail: it stays as it is.
            Err(SendError::Away(_)) => Tried::Postponed(wait.max(Duration::from_secs(1))),
            outcome => Tried::Done(outcome),
        }
    }
}

/// What came of an attempt.
pub enum Tried {
    Done(Result<String, SendError>),
    /// The server of the recipient's own domain has it.
    Delivered(String),
    /// Nothing was tried, and the lane rests for so long.
    Postponed(Duration),
    /// It may not be sent: the sender was removed, or it cannot be put into words.
    Refused(String),
    /// The app may not send for now.
    Paused,
    /// The recipient is on the suppression list since it was stored.
    Suppressed(Reason),
    /// It is gone, or was canceled.
    Gone,
}

/// Makes one attempt. A mail is read and signed once it has its turn, so no more are in memory than there are connections.
pub async fn attempt(janua: &Janua, due: &Due) -> Tried {
    let courier = janua.own::<Courier>();
    let Ok(_place) = courier.connections.acquire().await else { return Tried::Postponed(Duration::from_secs(1)) };
    if let Some(wait) = courier.is_away(janua).filter(|_| !courier.is_direct(due)) {
        return Tried::Postponed(wait.max(Duration::from_secs(1)));
    }
    match prepare(janua, due).await {
        Ok(Ready::Mail { envelope, bytes }) => {
            #[cfg(test)]
            let _in_hand = courier.in_hand.one_more();
            courier.deliver(janua, due, &envelope, &bytes).await
        }
        Ok(Ready::Not(tried)) => tried,
        Err(fault) => {
            let cause = fault.cause().map_or_else(|| fault.to_string(), |(cause, _)| cause.to_owned());
            tracing::warn!(cause, message = %due.message_id, "cannot prepare a mail");
            Tried::Postponed(Duration::from_secs(10))
        }
    }
}

enum Ready {
    Mail { envelope: Envelope, bytes: Vec<u8> },
    Not(Tried),
}

async fn prepare(janua: &Janua, due: &Due) -> Result<Ready> {
    if due.paused_at.is_some() {
        return Ok(Ready::Not(Tried::Paused));
    }
    if due.app_id.is_some() && !due.domain_status.is_some_and(crate::words::DomainStatus::may_send) {
        return Ok(Ready::Not(Tried::Refused("sender_removed: the sending domain is gone or failed".into())));
    }
    let recipient = Recipient::find(&janua.db, due.id).await?.filter(|one| one.next_at.is_some());
    let Some(recipient) = recipient else { return Ok(Ready::Not(Tried::Gone)) };
    if let Some(app) = due.app_id
        && let Some(entry) = Suppression::find(&janua.db, app, &recipient.email_key, janua.clock.now()).await?
    {
        return Ok(Ready::Not(Tried::Suppressed(entry.reason)));
    }
    let message: Message = Message::any(&janua.db, due.message_id).await?;
    let Some(sealed) = Message::sealed(&janua.db, due.message_id).await? else {
        return Ok(Ready::Not(Tried::Refused("the content is gone".into())));
    };
    let content = Content::open(janua, due.message_id, &sealed)?;
    let mut bytes = match content.mime(janua, &message, &recipient) {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Ready::Not(Tried::Refused(why))),
    };
    if let (Some(app), Some(host), Some(generation)) = (due.app_id, &due.hostname, due.signing) {
        bytes = janua.own::<Keyring>().sign(janua, app, host, generation, bytes).await?;
    }
    let sender = return_path(janua, &message, &recipient, due.has_return_path.unwrap_or(false));
    let (Ok(sender), Ok(to)) = (sender.parse(), recipient.email.parse()) else {
        return Ok(Ready::Not(Tried::Refused("not an email".into())));
    };
    let envelope = match Envelope::new(Some(sender), vec![to]) {
        Ok(envelope) => envelope,
        Err(error) => return Ok(Ready::Not(Tried::Refused(error.to_string()))),
    };
    Ok(Ready::Mail { envelope, bytes })
}
