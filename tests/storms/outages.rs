//! PostgreSQL that is away, slow, half dead, replaced by its standby, or refuses: what was acknowledged stays, what cannot
//! be done is said soon, and all heals without a restart.
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Server, Visit, extent, janua,
    people::{ALLOW_HOOKS, NEW_HOOK, Owner, PASSWORD, all_hooks, ask, id_in, login, owner, text, well},
    postgres::Postgres,
    run,
    wire::Wire,
};

const MASTER: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const EMAIL: &str = "ada@example.com";
/// What needs no database, in order of how bad it would be to lose it.
const ALWAYS: [&str; 3] = ["/.well-known/jwks.json", "/.well-known/openid-configuration", "/legal/terms"];

fn node(database: &str) -> (TempDir, Server) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = [
        ("JANUA_MASTER_KEY", MASTER),
        ("JANUA_BASE_URL", "http://localhost:9"),
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_REQUEST_TIMEOUT", "5s"),
        ("JANUA_DATABASE_CONNECTIONS", "8"),
        ALLOW_HOOKS,
        ("JANUA_DATABASE_URL", database),
    ];
    let server = Server::start(folder.path(), &settings);
    (folder, server)
}

/// Writers that go on whatever happens. What was acknowledged is kept, and how long each answer took.
struct Storm<'a> {
    address: SocketAddr,
    owner: &'a Owner,
    done: AtomicBool,
    acknowledged: Mutex<Vec<(Instant, String)>>,
    refused: Mutex<Vec<(u16, Duration)>>,
}

impl<'a> Storm<'a> {
    fn on(server: &Server, owner: &'a Owner) -> Self {
        Self {
            address: server.address,
            owner,
            done: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn blow(&self) {
        let mut visit = Visit::try_to(self.address, Duration::from_secs(40)).unwrap();
        while !self.done.load(SeqCst) {
            let started = Instant::now();
            let answer = visit.attempt("POST", &self.owner.hooks(), &self.owner.access, NEW_HOOK);
            // The server itself never goes away here.
            let answer = answer.expect("an answer");
            match answer.status {
                200 => self.acknowledged.lock().unwrap().push((Instant::now(), id_in(&answer.body))),
                status => {
                    self.refused.lock().unwrap().push((status, started.elapsed()));
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// When the first write was acknowledged after a moment.
    fn first_after(&self, moment: Instant) -> Option<Instant> {
        self.acknowledged.lock().unwrap().iter().map(|(at, _)| *at).find(|at| *at > moment)
    }

    /// Runs `work` while four writers write.
    fn around(&self, work: impl FnOnce()) {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| self.blow());
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            self.done.store(true, SeqCst);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// Everything that was acknowledged is there; answers how much that is.
    fn settle(&self, server: &Server) -> usize {
        let there = all_hooks(server, self.owner, &self.owner.access);
        let acknowledged = self.acknowledged.lock().unwrap();
        let ids: BTreeSet<_> = acknowledged.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), acknowledged.len(), "no id was given out twice");
        let lost = ids.iter().filter(|id| !there.contains(**id)).count();
        assert_eq!(lost, 0, "of {} acknowledged writes", ids.len());
        ids.len()
    }

    fn slowest_refusal(&self) -> Duration {
        self.refused.lock().unwrap().iter().map(|(_, took)| *took).max().unwrap_or_default()
    }
}

/// Waits until something is so; fails when it takes longer than it may.
fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "{what} took longer than {limit:?}");
        thread::sleep(Duration::from_millis(10));
    }
    started.elapsed()
}

#[test]
fn f06_a_database_that_goes_and_comes_costs_what_was_not_acknowledged() {
    let postgres = Postgres::start();
    let (folder, server) = node(&postgres.database("flapping"));
    let owner = owner(&server, &[folder.path()], EMAIL);
    let storm = Storm::on(&server, &owner);
    let mut slowest = Duration::ZERO;
    let stops = extent(2, 50, "stops");
    storm.around(|| {
        for _ in 0..stops {
            thread::sleep(Duration::from_millis(300));
            postgres.stop();
            within(Duration::from_secs(4), "noticing", || server.get("/health").0 == 503);
            for path in ALWAYS {
                assert_eq!(server.get(path).0, 200, "{path} needs no database");
            }
            assert_eq!(server.get("/health?part=live").0, 200, "and nobody restarts it");
            postgres.again();
            let back = Instant::now();
            let healed = within(Duration::from_secs(5), "healing", || storm.first_after(back).is_some());
            slowest = slowest.max(healed);
            within(Duration::from_secs(4), "being ready", || server.get("/health").0 == 200);
        }
    });
    let refused = storm.refused.lock().unwrap().clone();
    assert!(refused.iter().all(|(status, _)| *status == 503), "{refused:?}");
    assert!(storm.slowest_refusal() < Duration::from_millis(2500), "{:?}", storm.slowest_refusal());
    let acknowledged = storm.settle(&server);
    println!(
        "{stops} stops, {acknowledged} acknowledged, lost: 0; slowest 503 {:.1?}, slowest healing {slowest:.1?}",
        storm.slowest_refusal()
    );
}

#[test]
fn f07_a_slow_or_half_dead_line_is_noticed_and_left() {
    let postgres = Postgres::start();
    let direct = postgres.database("wire");
    let wire = Wire::to(&postgres.address);
    let through = direct.replace(&postgres.address, &wire.address.to_string());
    let (folder, server) = node(&through);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let (_other_folder, other) = node(&direct);

    wire.slow(Duration::from_millis(500));
    let (status, took) =
        timed(|| ask(&server, "POST", &owner.hooks(), &owner.access, &serde_json::from_str(NEW_HOOK).unwrap()).0);
    assert!(matches!(status, 200 | 503 | 504) && took < Duration::from_secs(6), "{status} after {took:?}");
    let mut waits: Vec<_> = (0..50).map(|i| timed(|| server.get(ALWAYS[i % 3]).0)).collect();
    waits.sort_by_key(|(_, took)| *took);
    assert!(waits.iter().all(|(status, _)| *status == 200));
    assert!(waits[48].1 < Duration::from_millis(100), "what needs no database took {:?}", waits[48].1);
    wire.slow(Duration::ZERO);
    within(Duration::from_secs(5), "healing", || {
        ask(&server, "GET", &owner.hooks(), &owner.access, &Value::Null).0 == 200
    });

    // The line dies without a word: who is signed out elsewhere must be signed out here all the same.
    let session = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    assert_eq!(ask(&server, "GET", "/auth/me", &session, &Value::Null).0, 200);
    wire.die(true);
    assert_eq!(ask(&other, "POST", "/auth/logout", &session, &Value::Null).0, 204);
    let forgotten = within(Duration::from_millis(1500), "forgetting", || {
        let mut visit = Visit::try_to(server.address, Duration::from_millis(200)).unwrap();
        !matches!(visit.attempt("GET", "/auth/me", &session, ""), Ok(answer) if answer.status == 200)
    });
    let (status, took) = timed(|| ask(&server, "GET", &owner.hooks(), &owner.access, &Value::Null).0);
    assert!(matches!(status, 503 | 504) && took < Duration::from_secs(6), "{status} after {took:?}");
    wire.die(false);
    let healed = within(Duration::from_secs(10), "healing", || {
        ask(&server, "GET", &owner.hooks(), &owner.access, &Value::Null).0 == 200
    });
    assert_eq!(ask(&server, "GET", "/auth/me", &session, &Value::Null).0, 401);
    within(Duration::from_secs(10), "letting go of dead connections", || {
        thread::scope(|scope| {
            let all: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| ask(&server, "GET", &owner.hooks(), &owner.access, &Value::Null).0))
                .collect();
            all.into_iter().all(|one| one.join().unwrap() == 200)
        })
    });
    println!(
        "dead line: forgotten after {forgotten:.1?}, 503 after {took:.1?}, healed after {healed:.1?}, {} connections",
        wire.connections()
    );
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    (work(), started.elapsed())
}

#[test]
fn f08_a_synchronous_standby_takes_over_and_nothing_is_lost() {
    let primary = Postgres::start();
    let name = "failover";
    drop(primary.database(name));
    let standby = Postgres::standby(&primary);
    let both = format!("postgres://janua@{},{}/{name}", primary.address, standby.address);
    let (folder, server) = node(&both);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let ended = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    let storm = Storm::on(&server, &owner);
    let mut away = Duration::ZERO;
    storm.around(|| {
        within(Duration::from_secs(10), "writing", || storm.count() > 50);
        assert_eq!(ask(&server, "POST", "/auth/logout", &ended, &Value::Null).0, 204);
        primary.kill();
        let killed = Instant::now();
        standby.promote();
        within(Duration::from_secs(10), "taking over", || storm.first_after(killed).is_some());
        away = storm.first_after(killed).unwrap().duration_since(killed);
        let enough = storm.count() + 50;
        within(Duration::from_secs(10), "writing", || storm.count() > enough);
    });
    assert_eq!(standby.sql(name, "SELECT pg_is_in_recovery()").trim(), "f");
    let acknowledged = storm.settle(&server);
    assert_eq!(ask(&server, "GET", "/auth/me", &ended, &Value::Null).0, 401, "an ended session stays ended");
    println!(
        "failover: {acknowledged} acknowledged, lost: 0; away for {away:.1?}; slowest 503 {:.1?}",
        storm.slowest_refusal()
    );
}

/// The commit happens and nobody hears of it: whoever repeats the request with its key gets what was done.
#[test]
fn a_commit_whose_answer_is_lost_happens_once() {
    let postgres = Postgres::start();
    let direct = postgres.database("unknown");
    let wire = Wire::to(&postgres.address);
    let through = direct.replace(&postgres.address, &wire.address.to_string());
    let (folder, server) = node(&through);
    let owner = owner(&server, &[folder.path()], EMAIL);
    for round in 0..extent(6, 300, "lost answers") {
        let (key, name) = (format!("key-{round}"), format!("Once {round}"));
        let make = || {
            let mut visit = server.visit_patiently();
            visit.attempt_with(&key, "POST", "/org", &owner.access, &format!(r#"{{"name":"{name}"}}"#)).unwrap()
        };
        // The background commits now and then, too: only a request that was hit counts.
        let hit = (0..20).any(|_| {
            wire.cut_at_next_commit();
            let first = make();
            assert!(matches!(first.status, 200 | 503), "{} {}", first.status, first.body);
            first.status == 503
        });
        assert!(hit || round > 0, "the answer to a commit was never cut");
        let mut again = make();
        within(Duration::from_secs(10), "healing", || {
            again = make();
            again.status == 200
        });
        assert_eq!(again.status, 200, "{}", again.body);
        let made = format!("SELECT id FROM org WHERE name = '{name}'");
        assert_eq!(
            postgres.sql("unknown", &made).trim(),
            id_in(&again.body),
            "one organization, and that of the answer"
        );
        assert_eq!(make().body, again.body);
    }
}

/// PostgreSQL itself refuses one write in twenty for having lost against another one, as under contention.
#[test]
fn f22_lost_conflicts_are_tried_again_and_nothing_happens_twice() {
    let postgres = Postgres::start();
    let name = "conflicts";
    let (folder, server) = node(&postgres.database(name));
    let owner = owner(&server, &[folder.path()], EMAIL);
    postgres.sql(
        name,
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF random() < 0.05 THEN
             RAISE EXCEPTION 'lost' USING ERRCODE = CASE WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
           END IF;
           RETURN NEW;
         END $$",
    );
    for table in ["webhook", "audit_event", "session"] {
        let on =
            format!("CREATE TRIGGER lose BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION lose()");
        postgres.sql(name, &on);
    }
    let storm = Storm::on(&server, &owner);
    let wanted = extent(400, 30_000, "writes");
    storm.around(|| {
        within(Duration::from_mins(10), "writing", || storm.count() > wanted);
    });
    let acknowledged = storm.settle(&server);
    let refused = storm.refused.lock().unwrap().len();
    assert!(refused * 100 < acknowledged, "{refused} of {acknowledged} were refused");
    let made = "SELECT COUNT(*) FROM audit_event WHERE type = 'WEBHOOK_CREATED'";
    let hooks = postgres.sql(name, "SELECT COUNT(*) FROM webhook");
    assert_eq!(postgres.sql(name, made), hooks, "each webhook has its one event");
    assert_eq!(hooks.trim().parse::<usize>().unwrap(), acknowledged, "and nothing was made that nobody was told of");
    println!("{acknowledged} acknowledged, refused: {refused}, twice: 0");
}

/// F18: killed again and again while it migrates, and the schema is the same as without.
#[test]
fn f18_a_migration_that_is_cut_off_goes_on_where_it_was() {
    const SHAPE: &str = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
                         WHERE table_schema = 'public' ORDER BY 1, 2";
    const STEPS: &str = "SELECT number, name, checksum FROM schema_migration ORDER BY 1";
    let postgres = Postgres::start();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let migrate = |database: &str| {
        let mut command = janua(folder.path(), &["migrate"]);
        command.env("JANUA_DATABASE_URL", database);
        command
    };
    let whole = postgres.database("whole");
    let ((ran, said), takes) = timed(|| run(migrate(&whole)));
    assert!(ran, "{said}");
    let cut = postgres.database("cut");
    let mut halves = BTreeSet::new();
    let kills = u32::try_from(extent(20, 300, "kills")).unwrap();
    for kill in 1..=kills {
        let mut child = migrate(&cut).stdout(std::process::Stdio::null()).spawn().unwrap();
        thread::sleep(takes * kill / kills);
        let _ = child.kill();
        child.wait().unwrap();
        let there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'public'";
        halves.insert(postgres.sql("cut", there));
    }
    let (ran, said) = run(migrate(&cut));
    assert!(ran, "{said}");
    for question in [SHAPE, STEPS] {
        assert_eq!(postgres.sql("cut", question), postgres.sql("whole", question));
    }
    println!("{kills} kills, {} different states between them, the schema is the same", halves.len());
}
