//! `janua update --check`: whether there is a newer version. It installs nothing, and asks nobody unless `update_url` is set.
use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use kernel::config::Config;
use semver::Version;
use serde::Deserialize;
use serde_json::json;
use url::{Host, Url};

use crate::{Out, say, start::VERSION};

kernel::settings! {
    /// Looking for newer versions.
    pub struct Settings {
        /// Where janua update --check reads which version is the newest: a JSON document {"version", "url", "sha256"}. Empty:
        /// nowhere.
        update_url: Option<Url> = "";
    }
}

#[derive(clap::Args)]
pub struct Update {
    /// Say whether there is a newer version. Installing it is left to you
    #[arg(long, required = true)]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long the server may take, and how much it may answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 * 1024;

/// The exit code that says that there is a newer version.
const IS_NEWER: u8 = 10;

/// What stands at `update_url`.
#[derive(Deserialize)]
struct Release {
    version: String,
    url: Url,
    sha256: String,
}

pub async fn run(config: &Config, wishes: &Update) -> Result<ExitCode> {
    let Some(at) = config.of::<Settings>().update_url.clone() else {
        bail!("update_url is not set, so no server is asked. Set it to the URL of a release document");
    };
    let release = fetch(&at).await.with_context(|| format!("cannot read {at}"))?;
    let running: Version = VERSION.parse().context("the version of this program")?;
    let newest: Version = release.version.parse().context("not a release document: version")?;
    let is_newer = newest > running;
    if wishes.json {
        let Release { version, url, sha256 } = &release;
        let said = json!({ "current": running.to_string(), "newest": version, "isNewer": is_newer,
            "url": url, "sha256": sha256 });
        say(&said.to_string(), Out::Plain);
    } else if is_newer {
        let Release { version, url, sha256 } = &release;
        say(&format!("Janua {version} is available; this is {running}.\n  {url}\n  SHA-256 {sha256}"), Out::Plain);
    } else {
        say(&format!("Janua {running} is the newest version."), Out::Plain);
    }
    Ok(if is_newer { IS_NEWER.into() } else { ExitCode::SUCCESS })
}

async fn fetch(at: &Url) -> Result<Release> {
    if !is_trusted(at) {
        bail!("the URL must begin with https://");
    }
    let client = reqwest::Client::builder()
        .user_agent(concat!("janua/", env!("CARGO_PKG_VERSION")))
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let mut response = client.get(at.clone()).send().await?;
    if !response.status().is_success() {
        bail!("the server answered {}", response.status());
    }
    let mut body = vec![];
    while let Some(part) = response.chunk().await? {
        body.extend_from_slice(&part);
        if body.len() > LONGEST {
            bail!("the answer is longer than {LONGEST} bytes");
        }
    }
    let release: Release = serde_json::from_slice(&body).context("not a release document")?;
    let is_digest = release.sha256.len() == 64 && release.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest || !is_trusted(&release.url) {
        bail!("not a release document: sha256 must be 64 hexadecimal digits, and url must begin with https://");
    }
    Ok(release)
}

/// Whether nobody in between can change what is there: over TLS, or on this machine.
fn is_trusted(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || url.scheme() == "http" && is_here
}
