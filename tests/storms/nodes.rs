//! Several nodes on one PostgreSQL database and one object store, and nothing else between them.
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use db::{Db, Durability, Reach, params};
use kernel::testing::{S3Server, join_all};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    SERVE, Server, Visit,
    clock::Wound,
    extent, janua,
    people::{
        ALLOW_HOOKS, NEW_HOOK, Owner, PASSWORD, all_hooks, ask, id_in, login, mail_in, member, owner, text, well,
        with_key,
    },
    postgres::Postgres,
    receiver::Receiver,
    run, token_in, wait,
    wire::Wire,
};

const MASTER: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const EMAIL: &str = "ada@example.com";
/// What another node may take to notice.
const A_SECOND: Duration = Duration::from_secs(1);

/// One server for the tests that run at the same time, a database for each. It ends with the last of them.
pub fn postgres() -> Arc<Postgres> {
    static RUNNING: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::start());
        *running = Arc::downgrade(&server);
        server
    })
}

/// Nodes that share a database: each with a folder of its own.
struct Cluster {
    settings: Vec<(&'static str, String)>,
    folders: Vec<TempDir>,
}

impl Cluster {
    fn on(database: String, nodes: usize, more: &[(&'static str, &str)]) -> Self {
        let shared = [
            ("JANUA_MASTER_KEY", MASTER),
            ("JANUA_BASE_URL", "http://localhost:9"),
            ("JANUA_RATE_LIMITS", "off"),
            ("JANUA_DATABASE_CONNECTIONS", "8"),
            ALLOW_HOOKS,
        ];
        let mut settings: Vec<_> =
            shared.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect();
        settings.push(("JANUA_DATABASE_URL", database));
        let folder = |_| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { settings, folders: (0..nodes).map(folder).collect() }
    }

    fn start(&self, node: usize) -> Server {
        let settings: Vec<_> = self.settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Server::start(self.folders[node].path(), &settings)
    }

    fn folders(&self) -> Vec<&Path> {
        self.folders.iter().map(TempDir::path).collect()
    }

    fn command(&self, node: usize, arguments: &[&str]) -> std::process::Command {
        let mut command = janua(self.folders[node].path(), arguments);
        command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }
}

/// How long it took until the other node noticed.
fn noticed(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < A_SECOND, "{what}: the other node did not notice within a second");
        thread::sleep(Duration::from_millis(2));
    }
    started.elapsed()
}

/// Somebody in the organization with a role, signed in.
fn join(one: &Server, folders: &[&Path], owner: &Owner, email: &str, role: &str) -> (String, String) {
    member(one, folders, email);
    let access = text(&well(login(one, email, PASSWORD))["accessToken"]);
    let invite = json!({ "email": email, "role": role });
    well(ask(one, "POST", &format!("/org/{}/members", owner.org), &owner.access, &invite));
    let token = token_in(&mail_in(folders, email, "invite"));
    well(ask(one, "POST", "/auth/accept-invite", &access, &json!({ "token": token })));
    let id = text(&well(ask(one, "GET", "/auth/me", &access, &Value::Null))["id"]);
    (access, id)
}

#[test]
fn what_ends_on_one_node_ends_on_the_other_within_a_second() {
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database("notices"), 2, &[]);
    let (one, other) = (cluster.start(0), cluster.start(1));
    let owner = owner(&one, &cluster.folders(), EMAIL);
    let (admin, admin_id) = join(&one, &cluster.folders(), &owner, "bob@example.com", "admin");
    let mut slowest: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut note = |what, took: Duration| {
        let longest = slowest.entry(what).or_default();
        *longest = took.max(*longest);
    };
    let status = |server: &Server, path: &str, token: &str| ask(server, "GET", path, token, &Value::Null).0;
    let rounds = extent(5, 100, "rounds");
    for round in 0..rounds {
        let session = well(login(&one, EMAIL, PASSWORD));
        let access = text(&session["accessToken"]);
        assert_eq!(status(&other, "/auth/me", &access), 200, "any node takes it, and remembers it");
        assert_eq!(ask(&one, "POST", "/auth/logout", &access, &Value::Null).0, 204);
        note("a session ends", noticed("a session", || status(&other, "/auth/me", &access) == 401));
        let refresh = json!({ "refreshToken": session["refreshToken"] });
        assert_eq!(ask(&other, "POST", "/auth/refresh", "", &refresh).0, 401);

        let change = |role: &str| {
            let path = format!("/org/{}/members/{admin_id}", owner.org);
            well(ask(&one, "PATCH", &path, &owner.access, &json!({ "role": role })));
        };
        // What only admins may see.
        let path = format!("/org/{}/scim-tokens", owner.org);
        assert_eq!(status(&other, &path, &admin), 200, "round {round}");
        change("member");
        note("a role is taken", noticed("a role", || status(&other, &path, &admin) == 403));
        change("admin");
        note("a role is given", noticed("a role", || status(&other, &path, &admin) == 200));

        let secret = json!({ "type": "secret", "environment": "live" });
        let key = well(ask(&one, "POST", &owner.keys(), &owner.access, &secret));
        let value = text(&key["value"]);
        assert_eq!(with_key(&other, &value), 200);
        let path = format!("{}/{}", owner.keys(), text(&key["id"]));
        assert_eq!(ask(&one, "DELETE", &path, &owner.access, &Value::Null).0, 204);
        note("a key is deleted", noticed("a key", || with_key(&other, &value) == 401));
    }
    println!("slowest of {rounds} rounds: {slowest:?}");
}

/// `pg_notify` in a transaction holds a lock of the whole server until the commit is on the disk.
#[test]
fn commits_with_notices_share_the_disk() {
    const AT_ONCE: usize = 32;
    let commit = Duration::from_millis(20);
    let postgres = Postgres::on_slow_disk(commit);
    let url = postgres.database("slow");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (ours, by_itself) = runtime.block_on(async {
        let db = Db::open(&url, AT_ONCE, Durability::Full).await.unwrap();
        db.migrate(0).await.unwrap();
        let write = async |name: String, by_itself: bool| {
            let written: db::Result<()> = db::transact!(db, async |tx| {
                tx.send("INSERT INTO setting (name, value) VALUES ($1, '')", params![&name]).await?;
                if by_itself {
                    let sql = "SELECT CAST(pg_notify('other', CAST($1 AS TEXT)) AS TEXT) AS told";
                    tx.all::<(String,)>(sql, params![&name]).await.map(drop)
                } else {
                    tx.notify(Reach::EveryNode, "thing", &*name).await
                }
            });
            written.unwrap();
        };
        let quickest = async |by_itself: bool| {
            let mut quickest = Duration::MAX;
            for round in 0..3 {
                let started = Instant::now();
                join_all((0..AT_ONCE).map(|one| write(format!("{by_itself}-{round}-{one}"), by_itself))).await;
                quickest = quickest.min(started.elapsed());
            }
            quickest
        };
        (quickest(false).await, quickest(true).await)
    });
    println!("{AT_ONCE} commits: {ours:.0?}; with pg_notify in each of them {by_itself:.0?}");
    let one_by_one = commit * u32::try_from(AT_ONCE).unwrap();
    assert!(by_itself >= one_by_one / 2, "the disk is not slow: {by_itself:?}");
    assert!(ours < one_by_one / 2, "they wait for one another: {ours:?}");
}

/// The connection on which a node hears the others is dead, and nobody says so.
#[test]
fn what_ends_elsewhere_ends_on_a_node_that_hears_nothing_within_a_second() {
    let postgres = postgres();
    let wire = Wire::to(&postgres.address);
    let cluster = Cluster::on(postgres.database("deaf"), 2, &[]);
    let one = cluster.start(0);
    let far = format!("postgres://janua@{}/deaf", wire.address);
    let settings = cluster.settings.iter().filter(|(name, _)| *name != "JANUA_DATABASE_URL");
    let settings =
        settings.map(|(name, value)| (*name, value.as_str())).chain([("JANUA_DATABASE_URL", far.as_str())]);
    let other = Server::start(cluster.folders[1].path(), &settings.collect::<Vec<_>>());
    let owner = owner(&one, &cluster.folders(), EMAIL);
    let (admin, admin_id) = join(&one, &cluster.folders(), &owner, "bob@example.com", "admin");
    let status = |server: &Server, path: &str, token: &str| ask(server, "GET", path, token, &Value::Null).0;
    let mut slowest = Duration::ZERO;
    let rounds = extent(3, 100, "rounds");
    for round in 0..rounds {
        let access = text(&well(login(&one, EMAIL, PASSWORD))["accessToken"]);
        let only_admins = format!("/org/{}/scim-tokens", owner.org);
        let secret = json!({ "type": "secret", "environment": "live" });
        let key = well(ask(&one, "POST", &owner.keys(), &owner.access, &secret));
        let role = |role: &str| {
            let path = format!("/org/{}/members/{admin_id}", owner.org);
            well(ask(&one, "PATCH", &path, &owner.access, &json!({ "role": role })));
        };
        role("admin");
        noticed("a role", || status(&other, &only_admins, &admin) == 200);
        assert_eq!(status(&other, "/auth/me", &access), 200, "it is remembered there");
        assert_eq!(with_key(&other, &text(&key["value"])), 200);

        // In the second round the line was dead for a while before anything happened.
        wire.deafen(true);
        thread::sleep(Duration::from_millis(if round % 2 == 0 { 0 } else { 1_500 }));
        assert_eq!(status(&other, "/auth/me", &access), 200, "it goes on without hearing anything");
        role("member");
        slowest = slowest.max(noticed("a role", || status(&other, &only_admins, &admin) == 403));
        assert_eq!(ask(&one, "POST", "/auth/logout", &access, &Value::Null).0, 204);
        slowest = slowest.max(noticed("a session", || status(&other, "/auth/me", &access) == 401));
        let path = format!("{}/{}", owner.keys(), text(&key["id"]));
        assert_eq!(ask(&one, "DELETE", &path, &owner.access, &Value::Null).0, 204);
        slowest = slowest.max(noticed("a key", || with_key(&other, &text(&key["value"])) == 401));
        wire.deafen(false);
    }
    println!("slowest of {rounds} rounds without hearing anything: {slowest:.1?}");
}

/// What a node has in hand is its own for as long as the lease is, whatever time another node believes it is.
#[test]
fn a_node_whose_clock_is_wrong_takes_over_no_live_lease() {
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database("clocks"), 2, &[("WEBHOOK_ALLOW_HTTP", "1")]);
    let clock = Wound::new();
    clock.by(120);
    let settings: Vec<_> = cluster.settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let nodes = [cluster.start(0), clock.start(cluster.folders[1].path(), &settings)];
    let owner = owner(&nodes[0], &cluster.folders(), EMAIL);
    for (offset, ahead) in [(120, "ahead"), (-120, "behind")] {
        clock.by(offset);
        // Each delivery is in hand for a few seconds, in which the other node looks for work several times.
        let receiver = Receiver::slow(1, Duration::from_millis(2_500));
        let hook = json!({ "url": receiver.url, "events": ["audit.*"] });
        let mut hooks = vec![];
        for i in 0..6 {
            let node = &nodes[i % 2];
            hooks.push(text(&well(ask(node, "POST", &owner.hooks(), &owner.access, &hook))["id"]));
        }
        let count = |which: &str| -> usize {
            let there = "SELECT COUNT(*) FROM webhook_delivery WHERE webhook_id IN (SELECT id FROM webhook)";
            postgres.sql("clocks", &format!("{there} AND {which}")).trim().parse().unwrap()
        };
        wait("every delivery", || {
            (count("state = 'delivered'") >= 6 && count("ready_at IS NOT NULL") == 0).then_some(())
        });
        // Whatever would come a second time has the time to do so.
        thread::sleep(Duration::from_secs(3));
        let (made, came) = (count("TRUE"), receiver.all().len());
        println!("two minutes {ahead}: {made} deliveries, {came} requests");
        assert_eq!(came, made, "two minutes {ahead}: each arrives once");
        for id in hooks {
            let path = format!("{}/{id}", owner.hooks());
            assert_eq!(ask(&nodes[0], "DELETE", &path, &owner.access, &Value::Null).0, 204);
        }
    }
}

/// F15: events and mails made on both nodes, worked off by both, each once.
#[test]
fn f15_each_row_of_the_queues_is_worked_once() {
    let more = [("WEBHOOK_ALLOW_HTTP", "1")];
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database("queues"), 2, &more);
    let nodes = [cluster.start(0), cluster.start(1)];
    let owner = owner(&nodes[0], &cluster.folders(), EMAIL);
    let receiver = Receiver::start(Duration::ZERO);
    let hook = json!({ "url": receiver.url, "events": ["audit.*"] });
    let hook = well(ask(&nodes[0], "POST", &owner.hooks(), &owner.access, &hook))["id"].clone();

    let each = extent(40, 300, "events and mails");
    let made: BTreeSet<String> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (node, owner) = (&nodes[writer % 2], &owner);
                scope.spawn(move || {
                    let mut visit = node.visit();
                    let made = (0..each).map(|_| {
                        let (status, said) = visit.ask("POST", &owner.hooks(), &owner.access, NEW_HOOK);
                        assert_eq!(status, 200, "{said}");
                        id_in(&said)
                    });
                    made.collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let addresses: Vec<_> = (0..each / 4).map(|i| format!("person-{i}@example.com")).collect();
    for (i, email) in addresses.iter().enumerate() {
        let body = json!({ "email": email, "password": PASSWORD, "name": "P" });
        well(ask(&nodes[i % 2], "POST", "/auth/register", "", &body));
    }

    let arrived = || {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for came in receiver.all().iter() {
            let body: Value = serde_json::from_slice(&came.body).unwrap();
            if body["event"] == "audit.WEBHOOK_CREATED" && body["details"]["webhookId"] != hook {
                *times.entry(text(&body["details"]["webhookId"])).or_default() += 1;
            }
        }
        times
    };
    wait("every event", || (arrived().len() >= made.len()).then_some(()));
    let mails = |email: &str| -> usize {
        let said = format!("To: {email}");
        let files =
            cluster.folders().into_iter().filter_map(|folder| std::fs::read_dir(folder.join("data/outbox")).ok());
        let texts = files.flatten().filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        texts.filter(|text| text.contains(&said)).count()
    };
    wait("every mail", || addresses.iter().all(|email| mails(email) > 0).then_some(()));
    // Whatever would come a second time has the time to do so.
    thread::sleep(Duration::from_millis(1500));
    let arrived = arrived();
    assert_eq!(arrived.keys().cloned().collect::<BTreeSet<_>>(), made, "lost: 0, and none that was not made");
    assert!(arrived.values().all(|times| *times == 1), "{:?}", arrived.values().max());
    assert!(addresses.iter().all(|email| mails(email) == 1), "each mail once");
    let worked = nodes.iter().map(|node| {
        let (_, said) = node.get("/metrics");
        let done = said.lines().filter(|line| line.starts_with("janua_jobs_total") && line.contains("\"done\""));
        done.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    });
    let worked: Vec<_> = worked.collect();
    println!("{} events and {} mails, each once; jobs by node: {worked:?}", made.len(), addresses.len());
}

/// The nodes that say they are ready, as a proxy knows them.
#[derive(Default)]
struct Proxy {
    known: Mutex<Vec<SocketAddr>>,
    ready: Mutex<Vec<SocketAddr>>,
    done: AtomicBool,
}

impl Proxy {
    /// Looks at each node again and again, as proxies do.
    fn watch(&self) {
        while !self.done.load(SeqCst) {
            let known = self.known.lock().unwrap().clone();
            let is_ready = |address: &SocketAddr| {
                let asked = Visit::try_to(*address, Duration::from_millis(500));
                asked
                    .and_then(|mut visit| visit.attempt("GET", "/health", "", ""))
                    .is_ok_and(|said| said.status == 200)
            };
            *self.ready.lock().unwrap() = known.into_iter().filter(is_ready).collect();
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pick(&self, turn: usize) -> SocketAddr {
        let ready = self.ready.lock().unwrap();
        assert!(!ready.is_empty(), "no node is ready");
        ready[turn % ready.len()]
    }

    /// One who asks all the time, keeps connections for as long as they are kept, and tries nothing twice.
    fn load(&self, owner: &Owner, writes: bool) -> Vec<String> {
        let (mut made, mut visit, mut turn) = (Vec::new(), None, usize::from(writes));
        while !self.done.load(SeqCst) {
            let node = self.pick(turn);
            let mut open = match visit.take() {
                Some(open) => open,
                None => {
                    Visit::try_to(node, Duration::from_secs(10)).unwrap_or_else(|error| panic!("{node}: {error}"))
                }
            };
            let (method, path, body) =
                if writes { ("POST", owner.hooks(), NEW_HOOK) } else { ("GET", "/auth/me".to_owned(), "") };
            let answer = open.attempt(method, &path, &owner.access, body);
            let answer = answer.unwrap_or_else(|error| panic!("{method} {path} failed: {error}"));
            assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
            made.push(if writes { id_in(&answer.body) } else { String::new() });
            if !answer.is_last {
                visit = Some(open);
            }
            turn += 1;
            thread::sleep(Duration::from_millis(5));
        }
        made
    }
}

/// F04: each node is replaced under load, twice, and whoever asks notices nothing.
#[test]
fn f04_a_rolling_restart_fails_no_request() {
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database("rolling"), 2, &[("JANUA_LEAVE_DELAY", "700ms")]);
    let mut nodes = [cluster.start(0), cluster.start(1)];
    let owner = owner(&nodes[0], &cluster.folders(), EMAIL);
    let proxy = Proxy::default();
    *proxy.known.lock().unwrap() = nodes.iter().map(|node| node.address).collect();
    let (asked, made, slowest) = thread::scope(|scope| {
        scope.spawn(|| proxy.watch());
        wait("both nodes are ready", || (proxy.ready.lock().unwrap().len() == 2).then_some(()));
        let clients: Vec<_> = (0..6)
            .map(|client| {
                let (proxy, owner, writes) = (&proxy, &owner, client % 2 == 0);
                scope.spawn(move || (writes, proxy.load(owner, writes)))
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let mut slowest = Duration::ZERO;
        for turn in 0..2 * extent(1, 20, "restarts of each node") {
            let node = turn % 2;
            nodes[node].signal("TERM");
            let (well, took) = nodes[node].ended(Duration::from_secs(10));
            assert!(well, "it ends well");
            slowest = slowest.max(took);
            nodes[node] = cluster.start(node);
            *proxy.known.lock().unwrap() = nodes.iter().map(|node| node.address).collect();
            wait("both nodes are ready", || (proxy.ready.lock().unwrap().len() == 2).then_some(()));
        }
        proxy.done.store(true, SeqCst);
        let (mut asked, mut made) = (0, Vec::new());
        for client in clients {
            let (writes, answered) = client.join().unwrap();
            asked += answered.len();
            made.extend(answered.into_iter().filter(|_| writes));
        }
        (asked, made, slowest)
    });
    let there = all_hooks(&nodes[0], &owner, &owner.access);
    let lost = made.iter().filter(|id| !there.contains(*id)).count();
    assert!(asked > 100, "only {asked} were asked");
    assert_eq!(lost, 0, "of {} acknowledged writes", made.len());
    println!("{asked} requests, failed: 0; {} acknowledged writes, lost: 0; slowest stop {slowest:.1?}", made.len());
}

/// F18: on an empty database everybody wants to migrate at once; an older binary stays away from a newer schema.
#[test]
fn f18_many_migrate_at_once_and_each_step_is_taken_once() {
    let name = "migrations";
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database(name), 7, &[]);
    let migrating: Vec<_> = (0..4)
        .map(|node| {
            cluster.command(node, &["migrate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let nodes = thread::scope(|scope| {
        let starting: Vec<_> = (4..7)
            .map(|node| {
                scope.spawn({
                    let cluster = &cluster;
                    move || cluster.start(node)
                })
            })
            .collect();
        starting.into_iter().map(|node| node.join().unwrap()).collect::<Vec<_>>()
    });
    for child in migrating {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    for node in &nodes {
        assert_eq!(node.get("/health").0, 200);
    }
    let steps = db::migrate::ALL.len().to_string();
    let count = "SELECT COUNT(*) || ' ' || COUNT(DISTINCT number) FROM schema_migration";
    assert_eq!(postgres.sql(name, count).trim(), format!("{steps} {steps}"));
    let keys =
        postgres.sql(name, "SELECT COUNT(*) FROM signing_key WHERE signs_from <= extract(epoch FROM now()) * 1000");
    assert_eq!(keys.trim(), "1", "one of them made the first key");

    postgres.sql(name, "INSERT INTO schema_migration VALUES (9999, 'later', 'x', 1)");
    for arguments in [&["migrate"][..], SERVE, &["keys", "rotate"]] {
        let (ran, said) = run(cluster.command(0, arguments));
        assert!(!ran && said.contains("used by a newer janua"), "{arguments:?}: {said}");
    }
    assert_eq!(nodes[0].get("/health").0, 200, "those that run go on");
}

/// A picture put through one node is seen through the other: the bucket is shared, the folders are not.
#[test]
fn one_object_store_serves_all_nodes() {
    const PNG: &str = "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc00000\
                       03010100c9fe92ef0000000049454e44ae426082";
    let png: Vec<u8> = (0..PNG.len()).step_by(2).map(|i| u8::from_str_radix(&PNG[i..i + 2], 16).unwrap()).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bucket = runtime.block_on(S3Server::start());
    let settings = bucket.config();
    let secret = |key: &Option<kernel::crypto::Secret>| key.as_ref().unwrap().expose().to_owned();
    let (access_key, secret_key) = (secret(&settings.s3_access_key), secret(&settings.s3_secret_key));
    let more = [
        ("JANUA_S3_URL", bucket.url.as_str()),
        ("JANUA_S3_BUCKET", settings.s3_bucket.as_str()),
        ("JANUA_S3_ACCESS_KEY", access_key.as_str()),
        ("JANUA_S3_SECRET_KEY", secret_key.as_str()),
    ];
    let postgres = postgres();
    let cluster = Cluster::on(postgres.database("objects"), 2, &more);
    let (one, other) = (cluster.start(0), cluster.start(1));
    member(&one, &cluster.folders(), EMAIL);
    let access = text(&well(login(&one, EMAIL, PASSWORD))["accessToken"]);
    let wish = json!({ "contentType": "image/png", "size": png.len() });
    let offer = well(ask(&one, "POST", "/user/avatar/upload-url", &access, &wish));
    let url = text(&offer["uploadUrl"]);
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let head = format!("PUT /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: image/png\r\n");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n", png.len()).as_bytes()).unwrap();
    stream.write_all(&png).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let shown = wait("the picture", || {
        let person = well(ask(&other, "GET", "/auth/me", &access, &Value::Null));
        person["avatarUrl"].as_str().map(str::to_owned)
    });
    let path = &shown[shown.find("/files/").unwrap()..];
    for node in [&one, &other] {
        assert_eq!(node.get(path).0, 200);
    }
}
