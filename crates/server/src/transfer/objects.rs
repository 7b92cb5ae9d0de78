//! `janua move --objects`: every object of the data folder into the bucket of the settings, or back.
//!
//! What a name stands for never changes. So a run can be broken off and repeated, and one beside a working server leaves
//! little for the last one: what is there is only compared.
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use db::migrate;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use kernel::{
    clock::Clock,
    config::Config,
    ports::objects::{self, Hasher, KEPT_FOR_GOOD, Key, Listed, New, Objects, Sha256},
};

use crate::{Out, say, start};

/// How many objects are on their way at once.
const AT_ONCE: usize = 8;

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum To {
    /// From the data folder to the S3 bucket in the settings
    Bucket,
    /// From the S3 bucket in the settings to the data folder
    Folder,
}

type Store = Arc<dyn Objects>;

#[derive(Default)]
struct Moved {
    sent: u64,
    there: u64,
    bytes: u64,
}

pub async fn run(config: &Config, to: To) -> Result<()> {
    let db = start::open(config).await.context("run this with the settings of the installation")?;
    ensure!(migrate::is_current(&db).await, "the database needs migrations first: `janua migrate`");
    let vault = start::vault(config, &db).await?;
    let both = objects::folder_and_bucket(config, &vault, &Clock::shared(&db));
    let objects::Places { folder, bucket } = both.map_err(|wrong| anyhow::anyhow!(wrong))?;
    let bucket = bucket.context("--objects: set s3_url, s3_bucket, s3_access_key and s3_secret_key")?;
    let (from, to) = match to {
        To::Bucket => (folder, bucket),
        To::Folder => (bucket, folder),
    };
    to.check().await.with_context(|| to.describe())?;
    let Moved { sent, there, bytes } = copy(&from, &to).await?;
    let size = HumanBytes(bytes);
    let done = format!("{sent} objects ({size}) were copied, read back and compared; {there} were there already");
    say(&format!("{done}. From {} to {}", from.describe(), to.describe()), Out::Plain);
    Ok(())
}

async fn copy(from: &Store, to: &Store) -> Result<Moved> {
    let (bar, mut moved, mut after) = (bar(), Moved::default(), None::<Key>);
    loop {
        let listed = from.list("", after.as_ref()).await.with_context(|| from.describe())?;
        let Some(last) = listed.last() else { break };
        after = Some(last.key.clone());
        bar.inc_length(listed.iter().map(|object| object.length).sum());
        let mut outcomes = stream::iter(listed)
            .map(async |object| {
                let was_sent = one(from, to, &object).await.with_context(|| object.key.to_string())?;
                bar.inc(object.length);
                anyhow::Ok((was_sent, object.length))
            })
            .buffer_unordered(AT_ONCE);
        while let Some((was_sent, length)) = outcomes.try_next().await? {
            match was_sent {
                Some(true) => (moved.sent, moved.bytes) = (moved.sent + 1, moved.bytes + length),
                Some(false) => moved.there += 1,
                None => {}
            }
        }
    }
    bar.finish_and_clear();
    Ok(moved)
}

/// Whether it was sent now or was there before; nothing when it was deleted meanwhile.
async fn one(from: &Store, to: &Store, object: &Listed) -> Result<Option<bool>> {
    let key = &object.key;
    let is_there = to.head(key).await? == Some(object.length);
    let sent = if is_there {
        let Some(sha256) = digest(from, key).await? else { return Ok(None) };
        sha256
    } else {
        let Some(content) = from.get(key, None).await? else { return Ok(None) };
        let cache_control = key.as_str().starts_with("pictures/").then_some(KEPT_FOR_GOOD);
        let new = New { length: Some(content.total), cache_control, ..New::at(key, content_type(key)) };
        to.put(new, content.into_source()).await?.sha256
    };
    let Some(found) = digest(to, key).await? else { bail!("it is gone again from {}", to.describe()) };
    ensure!(found == sent, "it has other bytes in {}: {found} instead of {sent}", to.describe());
    Ok(Some(!is_there))
}

async fn digest(store: &Store, key: &Key) -> Result<Option<Sha256>> {
    let Some(mut content) = store.get(key, None).await? else { return Ok(None) };
    let mut hash = Hasher::new();
    while let Some(piece) = content.bytes.try_next().await? {
        hash.update(&piece);
    }
    ensure!(hash.length == content.total, "it is cut off in {}", store.describe());
    Ok(Some(hash.finish()))
}

/// Only pictures are read from a bucket without us; whoever may read other objects is told their type by the address.
fn content_type(key: &Key) -> &'static str {
    match key.as_str().rsplit_once('.').map(|(_, extension)| extension) {
        Some("png") => "image/png",
        Some("jpg") => "image/jpeg",
        Some("webp") => "image/webp",
        Some("gif") => "image/gif",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// Hidden where the output is no terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("objects {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
