//! A bare HTTP client, which posts the same again and again over connections that stay open: the library most would take
//! for it, and nothing around it.
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use reqwest::{
    Client,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use tokio::{runtime, task::JoinSet};

use crate::process::{self, Core};

/// What the client says by itself.
const ITS_OWN: [&str; 2] = ["host", "content-length"];

#[derive(clap::Args)]
pub struct Options {
    address: SocketAddr,
    milliseconds: u64,
    /// A request as it went over the wire
    file: PathBuf,
    /// How many are under way at once, each on a connection of its own
    #[arg(long, default_value_t = 1)]
    at_once: usize,
}

/// Runs the client on a core; answers how many posts were answered.
pub fn post(address: SocketAddr, length: Duration, core: Core, at_once: usize, request: &[u8]) -> Result<u64> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), request)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["post", &address.to_string(), &length.as_millis().to_string()]).arg(file.path());
    command.args(["--at-once", &at_once.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let poster = process::spawn(&mut command, core)?.wait_with_output()?;
    ensure!(poster.status.success(), "the bare client: {}", String::from_utf8_lossy(&poster.stderr));
    Ok(serde_json::from_slice(&poster.stdout)?)
}

/// The client itself: prints how many posts were answered.
pub fn run(options: &Options) -> Result<()> {
    let (headers, body) = read(&options.file)?;
    let url = format!("http://{}/", options.address);
    let answered = runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let client = Client::builder().no_proxy().http1_only().pool_max_idle_per_host(options.at_once).build()?;
        let until = Instant::now() + Duration::from_millis(options.milliseconds);
        let mut posters = JoinSet::new();
        for _ in 0..options.at_once {
            let (client, url, headers, body) = (client.clone(), url.clone(), headers.clone(), body.clone());
            posters.spawn(async move {
                let mut answered = 0u64;
                while Instant::now() < until {
                    let post = client.post(&url).headers(headers.clone()).body(body.clone());
                    let answer = post.send().await?.error_for_status()?;
                    answer.bytes().await?;
                    answered += 1;
                }
                anyhow::Ok(answered)
            });
        }
        let mut answered = 0;
        while let Some(poster) = posters.join_next().await {
            answered += poster??;
        }
        anyhow::Ok(answered)
    })?;
    println!("{answered}");
    Ok(())
}

fn read(file: &Path) -> Result<(HeaderMap, String)> {
    let request = std::fs::read_to_string(file)?;
    let (head, body) = request.split_once("\r\n\r\n").context("not a request")?;
    let mut headers = HeaderMap::new();
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").context("not a header")?;
        if !ITS_OWN.contains(&name.to_lowercase().as_str()) {
            headers.insert(name.parse::<HeaderName>()?, HeaderValue::from_str(value)?);
        }
    }
    Ok((headers, body.to_owned()))
}
