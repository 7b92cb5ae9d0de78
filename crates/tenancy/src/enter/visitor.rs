//! The sender of a request.
use std::sync::Arc;

use axum::http::HeaderValue;
use db::Tx;
use kernel::{Janua, crypto::Secret, http::Client};

use crate::{
    apps::Keyed,
    events::{self, By, Event},
    ids::AccountId,
};

/// The sender of a request: its network, browser, app and trusted device. A handler takes an
/// [`Admitted`](super::Admitted), a [`ToAdmit`](super::ToAdmit) or a [`NotAdmitted`](super::NotAdmitted), and so says what it
/// relies on.
pub struct Visitor {
    pub by: By,
    pub client: Client,
    pub user_agent: String,
    /// The token of a trusted device, if there is one.
    pub trusted_device: Option<Secret>,
    /// The app whose key came with the request.
    pub app: Option<Arc<Keyed>>,
    pub(super) route: String,
    pub(super) pass: Option<Secret>,
}

impl Visitor {
    /// Adds the captcha pass of a page's form.
    pub fn bring(&mut self, pass: Secret) {
        self.pass = Some(pass);
    }

    /// The id of the app whose key came with the request; empty for the service itself.
    pub fn through(&self) -> String {
        self.app.as_ref().map(|keyed| keyed.app_id.to_string()).unwrap_or_default()
    }

    /// Records an event of a user before the visitor was signed in.
    pub async fn record_about(
        &self,
        tx: &mut Tx,
        janua: &Janua,
        person: AccountId,
        event: &dyn Event,
    ) -> db::Result<()> {
        events::record(tx, janua, &self.by, person, event).await
    }
}

pub(super) fn from_where(client: Client, user_agent: Option<&HeaderValue>) -> By {
    By { ip: Some(client.address.to_string()), user_agent: Some(readable(user_agent)), ..By::default() }
}

/// The user agent, without characters that cannot be shown.
fn readable(user_agent: Option<&HeaderValue>) -> String {
    let sent = user_agent.map(|value| String::from_utf8_lossy(value.as_bytes()));
    sent.unwrap_or_default().chars().filter(|c| !c.is_control()).take(400).collect()
}
