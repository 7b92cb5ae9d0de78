//! Ports that remember what they were told.
use std::sync::{Arc, Mutex};

use lettre::Message;

use crate::ports::mail::{Mail, MailError, Sending};

/// A way out for mail that keeps everything, or refuses when a test says so.
#[derive(Clone, Default)]
pub struct Mailbox(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    mails: Vec<String>,
    is_down: bool,
}

impl Mailbox {
    /// Everything sent so far, as it would go over the wire.
    pub fn mails(&self) -> Vec<String> {
        self.0.lock().unwrap().mails.clone()
    }

    pub fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    fn up(&self) -> Result<(), MailError> {
        if self.0.lock().unwrap().is_down { Err(MailError::Later("the mailbox is down".into())) } else { Ok(()) }
    }
}

impl Mail for Mailbox {
    fn send<'a>(&'a self, _id: &'a str, message: &'a Message) -> Sending<'a> {
        Box::pin(async move {
            self.up()?;
            self.0.lock().unwrap().mails.push(String::from_utf8_lossy(&message.formatted()).into_owned());
            Ok(())
        })
    }

    fn check(&self) -> Sending<'_> {
        Box::pin(async move { self.up() })
    }

    fn describe(&self) -> String {
        "the test's mailbox".into()
    }
}
