//! What `janua doctor` says of the code host: whether its settings are whole, whether the key is that of the app, and whether the
//! host is there.
use kernel::config::Config;

use super::{
    host::{Host, HostError},
    settings::Configured,
};
use crate::doctor::Finding::{self, Fine, Wrong};

pub async fn check(config: &Config) -> Finding {
    let configured = match Configured::of(config) {
        Ok(Some(configured)) => configured,
        Ok(None) => return Fine("none; sites are deployed by upload".into()),
        Err(wrong) => return Wrong(wrong),
    };
    let host = match Host::new(configured) {
        Ok(host) => host,
        Err(wrong) => return Wrong(format!("{wrong}. Create a private key in the settings of the GitHub App")),
    };
    let Configured { app_id, slug, client_id, url, api_url, .. } = &host.configured;
    let app = match host.app().await {
        Ok(app) => app,
        Err(HostError::Refused { status: 401 | 403, message }) => {
            return Wrong(format!(
                "{api_url} refuses the app ({message}): codehost_private_key does not belong to the app with the number \
                 {app_id} (codehost_app_id), or the clock is wrong"
            ));
        }
        Err(HostError::Refused { status, .. }) => {
            return Wrong(format!("{api_url} answers {status}: it is no API of a code host. Check codehost_api_url"));
        }
        Err(HostError::Away { text, .. }) => {
            return Wrong(format!("{api_url} does not answer: {text}. Check codehost_api_url and the network"));
        }
    };
    if app["slug"].as_str().is_some_and(|found| found != slug) {
        return Wrong(format!("the app {app_id} is called {}, but codehost_app_slug says {slug}", app["slug"]));
    }
    if app["client_id"].as_str().is_some_and(|found| found != client_id) {
        return Wrong(format!("codehost_client_id is not the client ID of the app {app_id}"));
    }
    match host.greet().await {
        Err(error) => Wrong(format!("{url}, where users sign in, does not answer: {error}. Check codehost_url")),
        Ok(()) => Fine(format!("the app {slug} at {url}")),
    }
}
