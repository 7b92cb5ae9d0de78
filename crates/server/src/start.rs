//! Putting a node together: folder, database, keys, features, door.
use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, Result, anyhow, bail};
use db::{Db, Durability, sqlite_path};
use kernel::{
    Janua,
    clock::Clock,
    config::{Config, Listed},
    crypto::{MasterKey, Vault},
    entropy::Entropy,
    feature::{Feature, Leaving, Part, Parts, Start, Task},
    http::{Description, Door, Inside, Routes},
    jobs::{self, Jobs},
    ports::{mail, objects, outgoing::Outgoing, sms},
    telemetry::Metrics,
};

use crate::update;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Everything the binary is made of: a line for each crate of features.
const PARTS: &[Part] = &[
    tenancy::PART,
    identity::PART,
    directory::PART,
    workshop::PART,
    commerce::PART,
    hosting::PART,
    email::PART,
    agents::PART,
    insights::PART,
    market::PART,
    web::PART,
    site::PART,
];

pub fn features(config: &Config) -> Feature {
    let none = Feature::new(Routes::new("janua"));
    PARTS.iter().fold(none, |features, part| features.and((part.feature)(config)))
}

/// The settings of all features, and those of commands.
pub fn sections() -> Vec<Listed> {
    let of_parts = PARTS.iter().flat_map(|part| part.settings).copied();
    of_parts.chain([Listed::of::<update::Settings>()]).collect()
}

/// A node that is ready to serve.
pub struct Node {
    pub janua: Janua,
    pub door: Door,
    pub jobs: Arc<Jobs>,
    pub tasks: Vec<Task>,
    releases: Vec<Start>,
    /// Held for as long as the node lives.
    _lock: Option<fs::File>,
}

impl Node {
    /// The one server of an embedded database, or one of many on PostgreSQL.
    pub async fn start(config: Config) -> Result<Self> {
        Self::start_by(config, None).await
    }

    /// The same by another clock than that of the machine or the database server.
    pub async fn start_by(config: Config, clock: Option<Clock>) -> Result<Self> {
        make_folder(&config.data_dir)?;
        let lock = lock(&config)?;
        let alone = lock.is_some();
        let node = Self::assemble(config, lock, clock).await?;
        if alone {
            jobs::release_all(&node.janua.db, node.janua.clock.now()).await?;
            for release in &node.releases {
                release(node.janua.clone()).await.map_err(|wrong| anyhow!(wrong))?;
            }
        }
        Ok(node)
    }

    /// A command that works on the database while a server may be running on it.
    pub async fn beside(config: Config) -> Result<Self> {
        make_folder(&config.data_dir)?;
        Self::assemble(config, None, None).await
    }

    async fn assemble(config: Config, lock: Option<fs::File>, clock: Option<Clock>) -> Result<Self> {
        let db = open(&config).await?;
        // All nodes on one PostgreSQL server go by its clock.
        let clock = clock.unwrap_or_else(|| Clock::shared(&db));
        let applied = db.migrate(clock.now().0).await?;
        if !applied.is_empty() {
            tracing::info!(count = applied.len(), "database migrations were applied");
            tracing::debug!(steps = applied.join(", "), "the names of the database migrations");
        }
        let vault = vault(&config, &db).await?;
        let mail = mail::from_config(&config).map_err(|wrong| anyhow!(wrong))?;
        let sms = sms::from_config(&config).map_err(|wrong| anyhow!(wrong))?;
        let objects = objects::from_config(&config, &vault, &clock).map_err(|wrong| anyhow!(wrong))?;
        let Feature { routes, jobs, own, starts, releases, tasks } = features(&config);
        let janua = Janua::new(Parts {
            db,
            vault,
            mail,
            sms,
            objects,
            outgoing: Outgoing::from_config(&config, own.declared()).map_err(|wrong| anyhow!(wrong))?,
            metrics: Metrics::new(VERSION, own.declared()),
            own,
            clock,
            entropy: Entropy::system(),
            description: Description::default(),
            inside: Inside::default(),
            leaving: Leaving::default(),
            config,
        });
        for start in starts {
            start(janua.clone()).await.map_err(|wrong| anyhow!(wrong))?;
        }
        let door = Door::new(janua.clone(), routes, VERSION).map_err(|wrong| anyhow!(wrong))?;
        Ok(Self { janua, door, jobs: Arc::new(jobs), tasks, releases, _lock: lock })
    }
}

/// The data folder, for its owner alone.
pub fn make_folder(folder: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("data_dir: cannot make {}", folder.display()))
}

/// What was renamed in the folder stays so, even if the power goes now.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot sync {}", folder.display()))
}

/// An embedded database belongs to one node. PostgreSQL can have many.
pub fn lock(config: &Config) -> Result<Option<fs::File>> {
    let url = config.database_url();
    let Some(database) = sqlite_path(url.expose()) else { return Ok(None) };
    let path = std::path::PathBuf::from(format!("{database}.lock"));
    let file = fs::OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
    let file = file.with_context(|| format!("database_url: cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "another janua is running on {database}. Stop it, choose another folder with --data-dir, or use \
             PostgreSQL, which several nodes can share"
        ),
        Err(fs::TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

pub async fn open(config: &Config) -> Result<Db> {
    let url = config.database_url();
    if let Some(path) = sqlite_path(url.expose()) {
        // Made here, before SQLite makes it readable for everybody; its log files take over the mode.
        let made = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        made.with_context(|| format!("database_url: cannot write {path}"))?;
    } else if !url.expose().starts_with("postgres://") && !url.expose().starts_with("postgresql://") {
        bail!("database_url: must start with sqlite: or postgres://");
    }
    let db = Db::open(url.expose(), config.database_connections, Durability::Full).await;
    db.context("cannot open the database (setting database_url)")
}

/// The vault with the one key that opens this database. A key is made only for a database that has none.
pub async fn vault(config: &Config, db: &Db) -> Result<Vault> {
    let file = config.data_dir.join("master.key");
    let master = match &config.master_key {
        Some(text) => MasterKey::parse(text).context("master_key")?,
        None if !file.exists() && Vault::is_claimed(db).await? => bail!(
            "{} is missing, and the database was set up with it. Put it back, or set JANUA_MASTER_KEY to its text; \
             without it what is sealed in the database cannot be read",
            file.display()
        ),
        None => MasterKey::from_file(&file, &Entropy::system())?,
    };
    let vault = Vault::new(master);
    vault.claim(db).await?;
    Ok(vault)
}
