//! Where a person was going when they requested a mail: a page, or an app by way of the authorization endpoint.
//!
//! It is sealed beside the secret that the mail carries, so the link leads there in any browser, and the URL in the mail
//! says nothing that could be changed.
use kernel::{
    Janua,
    crypto::{self, Secret, same},
    fault::Result,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    ids::ApplicationId,
    once::{self, Purpose},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A path of ours; empty for none. Pages check it before it is stored and again before they redirect to it.
    pub path: String,
    /// The app that the path leads to. Mails are written in its name.
    #[serde(default)]
    pub app: Option<ApplicationId>,
    /// The digest of a secret that only the browser holds in which the mail was requested.
    browser: Option<String>,
}

/// What is sealed beside a secret that has nothing else to carry. Other records may have further members.
#[derive(Serialize, Deserialize)]
struct Aside {
    #[serde(default)]
    destination: Destination,
}

impl Destination {
    pub fn new(path: &str, app: Option<ApplicationId>, browser: &Secret) -> Self {
        Self { path: path.to_owned(), app, browser: Some(digest(browser)) }
    }

    /// Whether the mail was requested in the browser that holds this secret.
    pub fn began_in(&self, browser: Option<&Secret>) -> bool {
        match (&self.browser, browser) {
            (Some(known), Some(secret)) => same(known.as_bytes(), digest(secret).as_bytes()),
            _ => false,
        }
    }

    /// What a mail leads to, also when its link was used or has expired: the way back outlives the link.
    pub async fn of(janua: &Janua, purpose: Purpose, token: &Secret) -> Result<Self> {
        let found = once::recall(&janua.db, purpose, token).await?;
        let aside = found.and_then(|found| found.aside(janua)).unwrap_or_default();
        Ok(serde_json::from_slice::<Aside>(&aside).map(|aside| aside.destination).unwrap_or_default())
    }

    pub(crate) fn aside(&self) -> Vec<u8> {
        serde_json::to_vec(&Aside { destination: self.clone() }).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn digest(secret: &Secret) -> String {
    crypto::hash(secret.expose().as_bytes())
}
