//! The installation under load: its nodes, and everything that they depend on, each behind a wire that can be cut.
use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::Command,
    sync::Mutex,
    thread,
    time::Duration,
};

use kernel::testing::S3Server;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{Options, names::Names, payments::PLANS};
use crate::support::{
    JANUA, Server, people::ALLOW_HOOKS, postgres::Postgres, receiver::Receiver, smtp::Moody, wire::Wire,
};

pub const OWNER: &str = "ada@example.com";
const MASTER: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

pub struct Node {
    pub address: SocketAddr,
    pub edge: SocketAddr,
    /// The edge over TLS.
    pub secured: SocketAddr,
    folder: TempDir,
    running: Mutex<Option<Server>>,
}

pub struct World {
    pub nodes: Vec<Node>,
    pub database: Option<Database>,
    pub smtp: Moody,
    pub mail: Wire,
    pub receiver: Receiver,
    pub hooks: Wire,
    pub store: Option<Store>,
    pub names: Names,
    /// For files that the settings name.
    _folder: TempDir,
    settings: Vec<(&'static str, String)>,
    binary: PathBuf,
}

/// A bucket that all nodes share.
pub struct Store {
    pub wire: Wire,
    bucket: S3Server,
    _runtime: Runtime,
}

/// A primary and the standby that follows it, at two addresses that stay the same.
pub struct Database {
    servers: Mutex<Servers>,
    wires: [Wire; 2],
}

struct Servers {
    primary: Postgres,
    standby: Postgres,
    /// Which of the wires leads to the primary.
    first: usize,
}

impl World {
    pub fn start(options: &Options) -> Self {
        let binary = std::env::var_os("SOAK_JANUA").map_or_else(|| JANUA.into(), PathBuf::from);
        let nodes: Vec<Node> = (0..options.nodes).map(|_| Node::new()).collect();
        let edges: Vec<_> = nodes.iter().map(|node| node.edge.to_string()).collect();
        // While the others start.
        let names = thread::spawn(move || Names::start(&edges.join(",")));
        let mut smtp = Moody::new();
        smtp.mood("ok");
        smtp.start();
        let mail = Wire::to(&format!("127.0.0.1:{}", smtp.port));
        let receiver = Receiver::slow(usize::MAX, Duration::ZERO);
        let hooks = Wire::to(receiver.url.trim_start_matches("http://").trim_end_matches('/'));
        let mut settings = vec![
            ("JANUA_MASTER_KEY", MASTER.to_owned()),
            ("JANUA_BASE_URL", "http://localhost:9".to_owned()),
            ("JANUA_RATE_LIMITS", "off".to_owned()),
            ("JANUA_PLATFORM_OWNERS", OWNER.to_owned()),
            ("JANUA_SMTP_URL", format!("smtp://{}", mail.address)),
            ("JANUA_DATABASE_CONNECTIONS", "8".to_owned()),
            ("JANUA_LOG_FORMAT", "text".to_owned()),
            ("WEBHOOK_ALLOW_HTTP", "1".to_owned()),
            (ALLOW_HOOKS.0, ALLOW_HOOKS.1.to_owned()),
        ];
        let (mut database, mut store) = (None, None);
        if options.postgres {
            let both = Database::start();
            let hosts = both.wires.each_ref().map(|wire| wire.address.to_string()).join(",");
            settings.push(("JANUA_DATABASE_URL", format!("postgres://janua@{hosts}/soak")));
            database = Some(both);
            let shared = Store::start();
            settings.extend(shared.settings());
            store = Some(shared);
        }
        let names = names.join().unwrap();
        settings.extend(names.settings());
        let folder = tempfile::tempdir().unwrap();
        let plans = folder.path().join("plans.toml");
        fs::write(&plans, PLANS).unwrap();
        settings.push(("JANUA_PLANS_FILE", plans.display().to_string()));
        let world =
            Self { nodes, database, smtp, mail, receiver, hooks, store, names, _folder: folder, settings, binary };
        for node in 0..options.nodes {
            world.begin(node).expect("a node starts");
        }
        world
    }

    /// Starts a node that does not run; where it does not start, the end of its log.
    pub fn begin(&self, node: usize) -> Result<(), String> {
        let node = &self.nodes[node];
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--listen", &node.address.to_string()]).current_dir(node.folder.path());
        command.env_clear().env("RUST_BACKTRACE", "0").env("JANUA_EDGE_LISTEN", node.edge.to_string());
        command.env("JANUA_EDGE_TLS_LISTEN", node.secured.to_string());
        command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        let path = node.folder.path().join("log");
        let log = File::options().create(true).append(true).open(&path).unwrap();
        let start = AssertUnwindSafe(|| Server::logging_to(command, log.into()));
        let server = catch_unwind(start).map_err(|_| {
            let log = fs::read_to_string(&path).unwrap_or_default();
            log.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
        })?;
        *node.running.lock().unwrap() = Some(server);
        Ok(())
    }

    pub fn kill(&self, node: usize) {
        drop(self.nodes[node].running.lock().unwrap().take());
    }

    /// Asks a node to end and waits until it has; answers whether it ended well. A stopped node has all the time it needs.
    pub fn end(&self, node: usize) -> bool {
        let mut server = self.nodes[node].running.lock().unwrap().take().expect("it runs");
        server.signal("TERM");
        while is_stopped(&server) {
            thread::sleep(Duration::from_millis(100));
        }
        server.ended(Duration::from_mins(2)).0
    }

    /// Whether a node was stopped from outside (SIGSTOP), as when the machine is needed for something else.
    pub fn has_stopped_node(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.running.try_lock().is_ok_and(|server| server.as_ref().is_some_and(is_stopped)))
    }

    /// Lines of the nodes' logs that no fault explains.
    pub fn panics(&self) -> Vec<String> {
        let logs =
            self.nodes.iter().map(|node| fs::read_to_string(node.folder.path().join("log")).unwrap_or_default());
        let lines = logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|line| line.contains("panic")).collect()
    }

    /// How many rows a statement counts.
    pub fn count(&self, sql: &str) -> u64 {
        match &self.database {
            Some(database) => database.servers.lock().unwrap().primary.sql("soak", sql).trim().parse().unwrap(),
            None => {
                let file = self.nodes[0].folder.path().join("data/janua.db");
                let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
                let count: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
                count.unsigned_abs()
            }
        }
    }

    /// Leaves the folders of the nodes, with their logs, and answers where they are.
    pub fn keep(self) -> Vec<PathBuf> {
        self.nodes.into_iter().map(|node| node.folder.keep()).collect()
    }
}

fn is_stopped(server: &Server) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

impl Node {
    fn new() -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { address: free(), edge: free(), secured: free(), folder, running: Mutex::default() }
    }
}

impl Store {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let bucket = runtime.block_on(S3Server::start());
        let wire = Wire::to(bucket.url.trim_start_matches("http://"));
        Self { wire, bucket, _runtime: runtime }
    }

    fn settings(&self) -> [(&'static str, String); 4] {
        let config = self.bucket.config();
        let secret = |key: &Option<kernel::crypto::Secret>| key.as_ref().unwrap().expose().to_owned();
        [
            ("JANUA_S3_URL", format!("http://{}", self.wire.address)),
            ("JANUA_S3_BUCKET", config.s3_bucket.clone()),
            ("JANUA_S3_ACCESS_KEY", secret(&config.s3_access_key)),
            ("JANUA_S3_SECRET_KEY", secret(&config.s3_secret_key)),
        ]
    }
}

impl Database {
    fn start() -> Self {
        let primary = Postgres::start();
        drop(primary.database("soak"));
        let standby = Postgres::standby(&primary);
        let wires = [Wire::to(&primary.address), Wire::to(&standby.address)];
        Self { servers: Mutex::new(Servers { primary, standby, first: 0 }), wires }
    }

    /// Stops the primary at once and starts it again after a while.
    pub fn stop(&self, away: Duration) {
        let servers = self.servers.lock().unwrap();
        servers.primary.stop();
        thread::sleep(away);
        servers.primary.again();
    }

    /// The primary loses power and, after a while, the standby takes over.
    pub fn fail_over(&self, away: Duration) {
        let servers = self.servers.lock().unwrap();
        servers.primary.kill();
        thread::sleep(away);
        servers.standby.promote();
    }

    /// After a failover: a new standby at the place of the dead primary.
    pub fn follow(&self) {
        let mut servers = self.servers.lock().unwrap();
        let next = Postgres::standby(&servers.standby);
        self.wires[servers.first].point(&next.address);
        servers.first = 1 - servers.first;
        servers.primary = std::mem::replace(&mut servers.standby, next);
    }
}
