//! A fresh database for each test: a copy of a migrated SQLite file or of a migrated PostgreSQL template.
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use tokio::sync::Mutex;
use tokio_postgres::NoTls;

use crate::{Db, Durability};

/// 2026-01-31T10:00:00.000Z, in milliseconds since 1970: when the schema of every test was made.
pub const START: i64 = 1_769_853_600_000;

const FILE: &str = "test.db";

/// Connections of each database; few, because many tests run at once.
const CONNECTIONS: usize = 8;

/// A database of one test. It runs on PostgreSQL if `TEST_DATABASE_URL` is set, and on SQLite otherwise.
pub struct TestDb {
    pub db: Db,
    pub url: String,
    kept: Place,
}

#[derive(Clone)]
enum Place {
    Folder(Arc<tempfile::TempDir>),
    Postgres { server: String, name: String },
}

impl TestDb {
    /// Whether this run is on PostgreSQL.
    pub fn on_postgres() -> bool {
        server().is_some()
    }

    /// A database with all migrations applied.
    pub async fn migrated() -> Self {
        match server() {
            None => {
                let folder = tempfile::tempdir().unwrap();
                std::fs::write(folder.path().join(FILE), &*migrated_file().await).unwrap();
                Self::file_in(folder, Durability::Off).await
            }
            Some(server) => {
                let template = template(&server).await;
                Self::postgres(server, Some(template)).await
            }
        }
    }

    /// A database without any tables.
    pub async fn empty() -> Self {
        match server() {
            None => Self::sqlite(Durability::Off).await,
            Some(server) => Self::postgres(server, None).await,
        }
    }

    /// A SQLite file, also when the run is on PostgreSQL.
    pub async fn sqlite(durability: Durability) -> Self {
        Self::file_in(tempfile::tempdir().unwrap(), durability).await
    }

    async fn file_in(folder: tempfile::TempDir, durability: Durability) -> Self {
        let url = format!("sqlite:{}", folder.path().join(FILE).display());
        let db = Db::open(&url, 1, durability).await.unwrap();
        Self { db, url, kept: Place::Folder(Arc::new(folder)) }
    }

    async fn postgres(server: String, template: Option<String>) -> Self {
        let name = next_name();
        let from = template.map(|template| format!(" TEMPLATE {template}")).unwrap_or_default();
        admin(&server, &format!("CREATE DATABASE {name}{from}")).await;
        let url = within(&server, &name);
        let db = Db::open(&url, CONNECTIONS, Durability::Full).await.unwrap();
        Self { db, url, kept: Place::Postgres { server, name } }
    }

    /// The same database, opened again.
    pub async fn again(&self) -> Self {
        Self { db: self.another_node().await, url: self.url.clone(), kept: self.kept.clone() }
    }

    /// Opens the same database a second time, as another node would.
    pub async fn another_node(&self) -> Db {
        Db::open(&self.url, CONNECTIONS, Durability::Off).await.unwrap()
    }

    /// Drops the database of a test on PostgreSQL.
    pub async fn remove(&self) {
        if let Place::Postgres { server, name } = &self.kept {
            admin(server, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }

    /// The folder of the SQLite file.
    pub fn folder(&self) -> Option<&std::path::Path> {
        match &self.kept {
            Place::Folder(folder) => Some(folder.path()),
            Place::Postgres { .. } => None,
        }
    }
}

fn server() -> Option<String> {
    std::env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty())
}

fn next_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// The same server, another database.
fn within(server: &str, name: &str) -> String {
    let (address, query) = server.split_once('?').map_or((server, String::new()), |(a, q)| (a, format!("?{q}")));
    let (host, _) = address.rsplit_once('/').expect("TEST_DATABASE_URL ends with /database");
    format!("{host}/{name}{query}")
}

/// A migrated SQLite file, which is made once for each test program.
async fn migrated_file() -> Arc<[u8]> {
    static MADE: Mutex<Option<Arc<[u8]>>> = Mutex::const_new(None);
    let mut made = MADE.lock().await;
    if let Some(file) = &*made {
        return file.clone();
    }
    let first = TestDb::sqlite(Durability::Off).await;
    first.db.migrate(START).await.unwrap();
    let folder = first.folder().expect("a SQLite file");
    let whole = folder.join("whole.db");
    let connection = rusqlite::Connection::open(folder.join(FILE)).unwrap();
    connection.execute("VACUUM INTO ?1", [whole.to_str().expect("a path of letters")]).unwrap();
    let file: Arc<[u8]> = std::fs::read(whole).unwrap().into();
    *made = Some(file.clone());
    file
}

/// The name of the template, which is made once for each test program.
async fn template(server: &str) -> String {
    static MADE: Mutex<Option<String>> = Mutex::const_new(None);
    let mut made = MADE.lock().await;
    if let Some(name) = &*made {
        return name.clone();
    }
    let name = next_name();
    admin(server, &format!("CREATE DATABASE {name}")).await;
    let db = Db::open(&within(server, &name), 1, Durability::Full).await.unwrap();
    db.migrate(START).await.unwrap();
    // A template must have no connections, and a `Db` keeps one open to listen.
    admin(server, &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '";
    admin(server, &format!("{end}{name}'")).await;
    *made = Some(name.clone());
    name
}

async fn admin(server: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.expect("the test server is up");
    tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}
