//! The settings of the code host. It is off until all of them are set.
use std::path::PathBuf;

use kernel::{config::Config, crypto::Secret};
use url::Url;

kernel::settings! {
    /// The code host: GitHub, or a server that speaks as GitHub does.
    pub struct Settings {
        /// The number of the GitHub App.
        codehost_app_id: Option<String> = "";
        /// The name of the app in its URL: `https://github.com/apps/NAME`.
        codehost_app_slug: Option<String> = "";
        /// The client ID of the app.
        codehost_client_id: Option<String> = "";
        /// A client secret of the app.
        codehost_client_secret: Option<Secret> = "";
        /// A PEM file with a private key of the app.
        codehost_private_key: Option<PathBuf> = "";
        /// The secret that deliveries are signed with.
        codehost_webhook_secret: Option<Secret> = "";
        /// Where people sign in to the code host.
        codehost_url: Url = "https://github.com";
        /// The URL of the code host's API.
        codehost_api_url: Url = "https://api.github.com";
        /// Who issues the OpenID Connect tokens of CI runs.
        codehost_actions_issuer: Url = "https://token.actions.githubusercontent.com";
    }
}

/// The settings, all there.
#[derive(Clone)]
pub struct Configured {
    pub app_id: String,
    pub slug: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub private_key: PathBuf,
    pub webhook_secret: Secret,
    pub url: Url,
    pub api_url: Url,
}

impl Configured {
    /// None: off. Some settings without the others are a mistake.
    pub fn of(config: &Config) -> Result<Option<Self>, String> {
        let settings = config.of::<Settings>();
        let all = (
            settings.codehost_app_id.clone(),
            settings.codehost_app_slug.clone(),
            settings.codehost_client_id.clone(),
            settings.codehost_client_secret.clone(),
            settings.codehost_private_key.clone(),
            settings.codehost_webhook_secret.clone(),
        );
        match all {
            (None, None, None, None, None, None) => Ok(None),
            (
                Some(app_id),
                Some(slug),
                Some(client_id),
                Some(client_secret),
                Some(private_key),
                Some(webhook_secret),
            ) => {
                let (url, api_url) = (settings.codehost_url.clone(), settings.codehost_api_url.clone());
                Ok(Some(Self { app_id, slug, client_id, client_secret, private_key, webhook_secret, url, api_url }))
            }
            (app_id, slug, client_id, client_secret, private_key, webhook_secret) => {
                let missing = [
                    ("codehost_app_id", app_id.is_none()),
                    ("codehost_app_slug", slug.is_none()),
                    ("codehost_client_id", client_id.is_none()),
                    ("codehost_client_secret", client_secret.is_none()),
                    ("codehost_private_key", private_key.is_none()),
                    ("codehost_webhook_secret", webhook_secret.is_none()),
                ];
                let missing: Vec<_> =
                    missing.into_iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| name).collect();
                Err(format!("code host: {} must be set, too", missing.join(", ")))
            }
        }
    }
}
