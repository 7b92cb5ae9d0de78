//! Text messages: an outbox folder by default, a service that speaks Twilio's protocol when one is configured.
use std::{path::PathBuf, sync::Arc, time::Duration};

use reqwest::{Client, StatusCode, redirect::Policy};
use tokio::fs;

use super::{SendError, Sending};
use crate::{config::Config, crypto::Secret};

/// How long one conversation with the service may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A way out for text messages.
pub trait Sms: Send + Sync {
    /// `to` is a number in E.164 form.
    fn send<'a>(&'a self, id: &'a str, to: &'a str, text: &'a str) -> Sending<'a>;
    /// Where messages go, for people.
    fn describe(&self) -> String;
}

/// The driver the settings ask for; the error names the wrong setting.
pub fn from_config(config: &Config) -> Result<Arc<dyn Sms>, String> {
    let Some(url) = &config.sms_url else { return Ok(Arc::new(Outbox(config.data_dir.join("outbox")))) };
    let (Some(account), Some(token)) = (&config.sms_account, &config.sms_token) else {
        return Err("sms_url: needs sms_account and sms_token beside it".into());
    };
    if config.sms_from.is_empty() {
        return Err("sms_from: the number or name messages come from".into());
    }
    let path = format!("2010-04-01/Accounts/{}/Messages.json", account.expose());
    let messages = url.join(&path).map_err(|e| format!("sms_url: {e}"))?;
    // Nowhere but there: no redirect takes the token along, and no proxy of the environment reads it.
    let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
    Ok(Arc::new(Twilio {
        client: client.map_err(|e| format!("sms_url: {e}"))?,
        messages,
        account: account.clone(),
        token: token.clone(),
        from: config.sms_from.clone(),
    }))
}

/// Writes each message to a file of its own, for development.
struct Outbox(PathBuf);

impl Sms for Outbox {
    fn send<'a>(&'a self, id: &'a str, to: &'a str, text: &'a str) -> Sending<'a> {
        Box::pin(async move {
            let failed = |e: std::io::Error| SendError::Later(format!("{}: {e}", self.0.display()));
            fs::create_dir_all(&self.0).await.map_err(failed)?;
            // Renamed into place, so that whoever watches the folder never reads half a message.
            let (aside, file) = (self.0.join(format!(".{id}")), self.0.join(format!("{id}.sms")));
            fs::write(&aside, format!("To: {to}\n\n{text}\n")).await.map_err(failed)?;
            fs::rename(&aside, &file).await.map_err(failed)
        })
    }

    fn describe(&self) -> String {
        format!("the folder {}", self.0.display())
    }
}

struct Twilio {
    client: Client,
    messages: url::Url,
    account: Secret,
    token: Secret,
    from: String,
}

impl Sms for Twilio {
    fn send<'a>(&'a self, _id: &'a str, to: &'a str, text: &'a str) -> Sending<'a> {
        Box::pin(async move {
            let request = self
                .client
                .post(self.messages.clone())
                .basic_auth(self.account.expose(), Some(self.token.expose()))
                .form(&[("To", to), ("From", &self.from), ("Body", text)]);
            // The error would show the address, which holds the account.
            let answer = request.send().await.map_err(|e| SendError::Later(e.without_url().to_string()))?;
            match answer.status() {
                status if status.is_success() => Ok(()),
                status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) => {
                    Err(SendError::Later(format!("the service says {status}")))
                }
                status if status.is_client_error() => Err(SendError::Never(format!("the service says {status}"))),
                status => Err(SendError::Later(format!("the service says {status}"))),
            }
        })
    }

    fn describe(&self) -> String {
        format!("the service at {}", self.messages.host_str().unwrap_or_default())
    }
}
