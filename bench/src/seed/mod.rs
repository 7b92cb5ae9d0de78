//! A data folder as it is after a year with many people in it: users who can sign in, organizations with members, a
//! large directory, an app that everybody came in through, webhooks, and what happened.
//!
//! The server makes the folder, the owner and what has secrets; the rest is written straight into its SQLite file, as the
//! server would have left it. All users have one password, under one real hash.
mod people;
mod rows;

use std::{fs, path::Path, time::SystemTime};

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use self::people::User;
pub(crate) use self::{people::uuid, rows::Directory};
use crate::{
    client::text,
    ground::{Ground, database},
    process::Core,
    servers::JanuaBinary,
};

/// How much there is to be.
#[derive(clap::Args, Clone)]
pub struct Wish {
    /// How many users; all of them are in one organization and came in through one app
    #[arg(long, default_value_t = 1_000)]
    pub users: u64,
    /// How many organizations besides, each with ten members; at most one for a hundred users, so that one in ten
    /// is in a second organization at every size
    #[arg(long, default_value_t = 10_000)]
    pub orgs: u64,
    /// How many webhooks, in the apps of these organizations
    #[arg(long, default_value_t = 10_000)]
    pub webhooks: u64,
    /// How many lines each user has in the audit log, spread over a year
    #[arg(long, default_value_t = 3)]
    pub events: u64,
}

impl Wish {
    pub fn of_users(users: u64) -> Self {
        Self { users, orgs: 10_000, webhooks: 10_000, events: 3 }
    }

    pub(crate) fn orgs(&self) -> u64 {
        self.orgs.min(self.users / 100)
    }

    /// Only where there is an app to listen to.
    pub(crate) fn webhooks(&self) -> u64 {
        if self.orgs() == 0 { 0 } else { self.webhooks }
    }
}

/// What one has to know of a folder to use it. It lies in the folder, so that it can be used again.
#[derive(Serialize, Deserialize)]
pub struct Seeded {
    pub users: u64,
    pub org: String,
    pub app: String,
    /// A secret key of the app, and a token of the directory.
    pub app_key: String,
    pub scim_token: String,
}

const NOTE: &str = "seeded.json";

impl Seeded {
    /// What was put into a folder before.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let path = folder.join(NOTE);
        let text = fs::read(&path).with_context(|| format!("{} was not seeded", folder.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// What is in the folder, which is filled if there is nothing yet.
    pub fn ensure(janua: &JanuaBinary, folder: &Path, wish: &Wish) -> Result<Self> {
        if folder.join(NOTE).exists() {
            let there = Self::in_folder(folder)?;
            ensure!(there.users == wish.users, "{} has {} users", folder.display(), there.users);
            return Ok(there);
        }
        fill(janua, folder, wish)
    }
}

/// Fills a folder that holds nothing yet.
pub fn fill(janua: &JanuaBinary, folder: &Path, wish: &Wish) -> Result<Seeded> {
    fs::create_dir_all(folder)?;
    ensure!(fs::read_dir(folder)?.next().is_none(), "{} is not empty", folder.display());
    let ground = Ground::lay(janua, folder, Core::Any, &[("JANUA_RATE_LIMITS", "off")])?;
    let made = ground.asks("POST", &format!("/org/{}/scim-tokens", ground.org), &json!({ "name": "bench" }))?;
    let scim_token = text(&made, "value")?;
    let Ground { org, app, secret, .. } = ground;
    // The server lets go of its file.
    drop(ground.server);
    let seeded = Seeded { users: wish.users, org, app, app_key: secret, scim_token };
    write(&database(folder), &seeded, wish)?;
    fs::write(folder.join(NOTE), serde_json::to_vec_pretty(&seeded)?)?;
    Ok(seeded)
}

/// A million rows would take minutes to look through.
const CHECKED: u64 = 10_000;

fn write(file: &Path, seeded: &Seeded, wish: &Wish) -> Result<()> {
    let mut connection = Connection::open(file)?;
    // Whoever pulls the plug meanwhile begins again; what refers to what is right by construction, and tested.
    for (name, value) in
        [("journal_mode", "OFF"), ("synchronous", "OFF"), ("foreign_keys", "OFF"), ("cache_size", "-600000")]
    {
        connection.pragma_update(None, name, value)?;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now = i64::try_from(now.as_millis())?;
    let owner = "SELECT id, password_hash FROM account LIMIT 1";
    let (owner, hash) = connection.query_row(owner, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows::Writer { seeded, wish, now, owner, hash }.write(&mut connection)?;
    if wish.users <= CHECKED {
        let mut refers_to_nothing = connection.prepare("PRAGMA foreign_key_check")?;
        ensure!(!refers_to_nothing.exists([])?, "a row refers to one that is not there");
    }
    // As the server wants to find it.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}
