//! Ports that remember what they were told.
use std::sync::{Arc, Mutex};

use lettre::address::Envelope;

use crate::ports::{Delivering, SendError, Sending, mail::Mail, sms::Sms};

/// A way out for mail that keeps everything, or refuses when a test says so.
#[derive(Clone, Default)]
pub struct Mailbox(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    mails: Vec<String>,
    is_down: bool,
    refusal: Option<fn() -> SendError>,
}

impl Mailbox {
    /// Everything sent so far, as it would go over the wire.
    pub fn mails(&self) -> Vec<String> {
        self.0.lock().unwrap().mails.clone()
    }

    pub fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    /// What every mail is answered with from now on.
    pub fn refuse(&self, refusal: Option<fn() -> SendError>) {
        self.0.lock().unwrap().refusal = refusal;
    }

    fn up(&self) -> Result<(), SendError> {
        let inner = self.0.lock().unwrap();
        match inner.refusal {
            Some(refusal) => Err(refusal()),
            None if inner.is_down => Err(SendError::Away("the mailbox is down".into())),
            None => Ok(()),
        }
    }
}

/// A way out for text messages that keeps everything: the number and the text.
#[derive(Clone, Default)]
pub struct Phones(Arc<Mutex<Vec<(String, String)>>>);

impl Phones {
    /// The newest message to a number.
    pub fn message_to(&self, number: &str) -> Option<String> {
        self.0.lock().unwrap().iter().rev().find(|(to, _)| to == number).map(|(_, text)| text.clone())
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Sms for Phones {
    fn send<'a>(&'a self, _id: &'a str, to: &'a str, text: &'a str) -> Sending<'a> {
        Box::pin(async move {
            self.0.lock().unwrap().push((to.to_owned(), text.to_owned()));
            Ok(())
        })
    }

    fn describe(&self) -> String {
        "the test's phones".into()
    }
}

impl Mail for Mailbox {
    fn deliver<'a>(&'a self, _id: &'a str, _: &'a Envelope, bytes: &'a [u8]) -> Delivering<'a> {
        Box::pin(async move {
            self.up()?;
            self.0.lock().unwrap().mails.push(String::from_utf8_lossy(bytes).into_owned());
            Ok("250 kept".to_owned())
        })
    }

    fn check(&self) -> Sending<'_> {
        Box::pin(async move { self.up() })
    }

    fn describe(&self) -> String {
        "the test's mailbox".into()
    }
}
