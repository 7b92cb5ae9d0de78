//! Mail: an outbox folder by default, an SMTP server when one is configured.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use lettre::{Message, address::Envelope, message::Mailbox};
use tokio::fs;

use super::{
    Delivering, SendError, Sending,
    smtp::{Patience, Smtp},
};
use crate::config::Config;

/// A way out for mail.
pub trait Mail: Send + Sync {
    /// Hands over a mail as it stands, for the recipients of the envelope. Answers what the server said.
    fn deliver<'a>(&'a self, id: &'a str, envelope: &'a Envelope, bytes: &'a [u8]) -> Delivering<'a>;
    fn send<'a>(&'a self, id: &'a str, message: &'a Message) -> Sending<'a> {
        Box::pin(async move {
            let bytes = message.formatted();
            self.deliver(id, message.envelope(), &bytes).await.map(drop)
        })
    }
    /// Whether mail would go out now.
    fn check(&self) -> Sending<'_>;
    /// Where mail goes, for people.
    fn describe(&self) -> String;
    /// Where mails lie for people to look at, if they do.
    fn folder(&self) -> Option<&Path> {
        None
    }
}

/// The driver the settings ask for; the error names the wrong setting.
pub fn from_config(config: &Config) -> Result<Arc<dyn Mail>, String> {
    with_patience(config, Patience::DEFAULT)
}

/// The same, for mail that waits longer or shorter for a server than the platform's own.
pub fn with_patience(config: &Config, patience: Patience) -> Result<Arc<dyn Mail>, String> {
    config.mail_from.parse::<Mailbox>().map_err(|e| format!("mail_from: {e}"))?;
    Ok(match &config.smtp_url {
        None => Arc::new(Outbox(config.data_dir.join("outbox"))),
        Some(url) => {
            let smtp = Smtp::from_url(&encrypted(url.expose())?, patience);
            Arc::new(smtp.map_err(|e| format!("smtp_url: {e}"))?)
        }
    })
}

/// `smtp://` alone would talk in the clear, the password included: away from this machine STARTTLS is asked for
/// unless the address says otherwise (`?tls=…`).
fn encrypted(address: &str) -> Result<String, String> {
    let mut url = url::Url::parse(address).map_err(|e| format!("smtp_url: {e}"))?;
    let host = url.host_str().unwrap_or_default();
    let here = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if url.scheme() == "smtp" && !here && !url.query_pairs().any(|(name, _)| name == "tls") {
        url.query_pairs_mut().append_pair("tls", "required");
    }
    Ok(url.into())
}

/// Writes each mail to a file of its own, for development.
struct Outbox(PathBuf);

impl Mail for Outbox {
    fn deliver<'a>(&'a self, id: &'a str, _: &'a Envelope, bytes: &'a [u8]) -> Delivering<'a> {
        Box::pin(async move {
            let failed = |e: std::io::Error| SendError::Away(format!("{}: {e}", self.0.display()));
            fs::create_dir_all(&self.0).await.map_err(failed)?;
            // Renamed into place, so that whoever watches the folder never reads half a mail.
            let (aside, file) = (self.0.join(format!(".{id}")), self.0.join(format!("{id}.eml")));
            // The lines of a text file, so that tools for text find whole lines.
            let mut lines = bytes.to_vec();
            lines.retain(|byte| *byte != b'\r');
            fs::write(&aside, lines).await.map_err(failed)?;
            fs::rename(&aside, &file).await.map_err(failed)?;
            Ok("written to the outbox".to_owned())
        })
    }

    fn check(&self) -> Sending<'_> {
        Box::pin(async move {
            let failed = |e: std::io::Error| SendError::Away(format!("{}: {e}", self.0.display()));
            fs::create_dir_all(&self.0).await.map_err(failed)?;
            let probe = self.0.join(".check");
            fs::write(&probe, b"").await.map_err(failed)?;
            fs::remove_file(&probe).await.map_err(failed)
        })
    }

    fn describe(&self) -> String {
        format!("the folder {}", self.0.display())
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::encrypted;

    #[test]
    fn away_from_this_machine_a_password_is_not_sent_in_the_clear() {
        assert_eq!(encrypted("smtp://u:p@mail.example:587").unwrap(), "smtp://u:p@mail.example:587?tls=required");
        assert_eq!(
            encrypted("smtp://mail.example?tls=opportunistic").unwrap(),
            "smtp://mail.example?tls=opportunistic"
        );
        assert_eq!(encrypted("smtps://u:p@mail.example").unwrap(), "smtps://u:p@mail.example");
        assert_eq!(encrypted("smtp://127.0.0.1:25").unwrap(), "smtp://127.0.0.1:25");
    }
}
