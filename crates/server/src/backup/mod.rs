//! `janua backup`, `janua restore`, `janua after-restore`: backups of an embedded database and its uploaded pictures.
mod archive;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, anyhow, bail};
use db::sqlite_path;
use indicatif::{ProgressBar, ProgressStyle};
use kernel::{clock::Clock, config::Config};
use tenancy::restored::{self, Ended, Keys};

use self::archive::{Archive, Progress};
use crate::{
    Out, say,
    start::{self, Node},
};

#[derive(clap::Args)]
pub struct Wishes {
    /// Keep secret app keys and SCIM tokens valid, including those deleted after the backup
    #[arg(long)]
    keep_keys: bool,
}

impl Wishes {
    fn keys(&self) -> Keys {
        if self.keep_keys { Keys::Keep } else { Keys::End }
    }
}

const ELSEWHERE: &str = "the database is PostgreSQL, which has tools of its own: pg_dump or pg_basebackup, and after the \
                         database was put back, with all nodes stopped, `janua after-restore`";

pub async fn backup(config: Config, to: PathBuf) -> Result<ExitCode> {
    let database = embedded(&config)?;
    if !database.exists() {
        bail!("there is nothing to back up: {} is not there", database.display());
    }
    let objects = objects(&config);
    let made = tokio::task::spawn_blocking(move || {
        let bar = bar();
        archive::make(&database, objects.as_deref(), &to, Clock::System.now(), |progress| show(&bar, progress))
            .inspect(|_| bar.finish_and_clear())
            .map(|contents| (contents, to))
    });
    let (contents, to) = made.await??;
    let size = fs::metadata(&to).map_or(0, |meta| meta.len());
    say(
        &format!(
            "{} holds everything up to {} ({} kB, {} pictures)",
            to.display(),
            contents.made_at,
            size / 1000,
            contents.objects
        ),
        Out::Plain,
    );
    say(
        "The master key is not in it, and without the key it cannot be used: keep a copy of the key in another place",
        Out::Plain,
    );
    Ok(ExitCode::SUCCESS)
}

pub async fn restore(config: Config, file: PathBuf, wishes: &Wishes) -> Result<ExitCode> {
    let database = embedded(&config)?;
    start::make_folder(&config.data_dir)?;
    // Held to the end: no server starts on what is not whole yet.
    let lock = start::lock(&config)?;
    let objects = objects(&config);
    refuse_what_is_there(&database, objects.as_deref())?;

    let aside =
        Staging { database: suffixed(&database, ".restoring"), objects: config.data_dir.join("objects.restoring") };
    aside.clear();
    let made_at = unpack(file, aside.database.clone(), objects.is_some().then(|| aside.objects.clone())).await?;
    let ended = {
        let url = format!("sqlite:{}", aside.database.display());
        let node = Node::beside(Config { database_url: Some(url.into()), ..config.clone() }).await?;
        end(&node, wishes.keys()).await?
    };
    let unsettled = aside.database.clone();
    tokio::task::spawn_blocking(move || archive::settle(&unsettled)).await??;
    // The database last: with it in its place the restore is done.
    if let Some(objects) = objects {
        let _ = fs::remove_dir(&objects);
        put(&aside.objects, &objects)?;
    }
    put(&aside.database, &database)?;
    start::sync_folder(&config.data_dir)?;
    start::sync_folder(database.parent().unwrap_or(&config.data_dir))?;
    drop(lock);
    say(&format!("{} is as it was at {made_at}", config.data_dir.display()), Out::Plain);
    report(&ended);
    Ok(ExitCode::SUCCESS)
}

/// What [`restore`] does at its end, for a database that was put back by other means.
pub async fn after_restore(config: Config, wishes: &Wishes) -> Result<ExitCode> {
    let node = Node::start(config).await?;
    report(&end(&node, wishes.keys()).await?);
    Ok(ExitCode::SUCCESS)
}

async fn end(node: &Node, keys: Keys) -> Result<(Ended, Vec<restored::ValidKey>)> {
    let ended = restored::end(&node.janua, keys).await.map_err(|wrong| anyhow!(wrong))?;
    Ok((ended, restored::kept(&node.janua.db).await?))
}

async fn unpack(file: PathBuf, database: PathBuf, objects: Option<PathBuf>) -> Result<kernel::clock::Timestamp> {
    let work = move || -> Result<_> {
        let archive = Archive::open(&file)?;
        let bar = bar();
        archive.unpack_database(&database, |progress| show(&bar, progress))?;
        match objects {
            Some(folder) => archive.unpack_objects(&folder, |progress| show(&bar, progress))?,
            None if archive.contents.objects > 0 => bail!(
                "the backup holds {} pictures from a data folder, and the settings name an S3 server: restore \
                 without JANUA_S3_URL",
                archive.contents.objects
            ),
            None => {}
        }
        bar.finish_and_clear();
        Ok(archive.contents.made_at)
    };
    tokio::task::spawn_blocking(work).await?
}

fn report((ended, kept): &(Ended, Vec<restored::ValidKey>)) {
    let Ended { sessions, secrets, recovery_codes, trusted_devices, invites, uploads, messages, .. } = ended;
    say(
        &format!(
            "ended, because they may have been used or ended since: {sessions} sessions, {secrets} links and codes, \
             {recovery_codes} recovery codes, {trusted_devices} trusted devices, {invites} invites, {uploads} uploads, \
             {messages} messages on their way, {} secret app keys, {} SCIM tokens, {} secrets \
             of machines, {} registry keys",
            ended.app_keys, ended.scim_tokens, ended.machine_secrets, ended.registry_keys
        ),
        Out::Plain,
    );
    say("the signing keys are new; passwords, passkeys and second factors are as they were then", Out::Plain);
    if !kept.is_empty() {
        say("look at these: they work, and may have been deleted since", Out::Plain);
    }
    for key in kept {
        let name = key.name.as_deref().unwrap_or_default();
        say(&format!("  {}… of {}, made {} {name}", key.prefix, key.owner, key.created_at), Out::Plain);
    }
}

fn embedded(config: &Config) -> Result<PathBuf> {
    let url = config.database_url();
    sqlite_path(url.expose()).map(PathBuf::from).ok_or_else(|| anyhow!(ELSEWHERE))
}

/// Where the objects lie, if they lie here.
fn objects(config: &Config) -> Option<PathBuf> {
    config.s3_url.is_none().then(|| config.data_dir.join("objects"))
}

/// A backup replaces nothing: whoever wants that moves it away first, and still has it.
fn refuse_what_is_there(database: &Path, objects: Option<&Path>) -> Result<()> {
    // A leftover log would be taken for the new database's own.
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = suffixed(database, suffix);
        if path.exists() {
            bail!("{} is there already: move it away, or choose another folder with --data-dir", path.display());
        }
    }
    if let Some(folder) = objects
        && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
    {
        bail!("{} is not empty: move it away, or choose another folder with --data-dir", folder.display());
    }
    Ok(())
}

/// Everything beside the places it will take, gone unless it takes them.
struct Staging {
    database: PathBuf,
    objects: PathBuf,
}

impl Staging {
    fn clear(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(suffixed(&self.database, suffix));
        }
        let _ = fs::remove_dir_all(&self.objects);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.clear();
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn put(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot put {} in place", to.display()))
}

/// Hidden where nobody looks.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg:9} {wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (what, done, all) = match progress {
        Progress::Pages(done, all) => ("database", done, all),
        Progress::Objects(done, all) => ("pictures", done, all),
    };
    bar.set_message(what);
    bar.set_length(all);
    bar.set_position(done);
}
