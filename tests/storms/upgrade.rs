//! From 0.1 to this version: a database on which the binary of 0.1 was killed (`tests/fixtures/0.1`), taken over under
//! load, on both engines. The clock goes on where it stopped, so that nothing expires meanwhile.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use janua_client::verify_webhook;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Server, Visit,
    clock::Wound,
    extent, janua,
    people::{ask, login, mail_in, text, well, with_key},
    postgres::Postgres,
    receiver::{Came, Receiver},
    token_in, wait,
};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/0.1");
/// More than a lease that a dead node left behind, less than anything in the fixture lives.
const LATER: i64 = 90;
/// A connection may wait for the migrations of its node.
const PATIENCE: Duration = Duration::from_mins(1);

enum Store {
    Sqlite(PathBuf),
    Postgres(Box<Postgres>),
}

impl Store {
    /// The first column of each row, which is text.
    fn texts(&self, sql: &str) -> BTreeSet<String> {
        match self {
            Self::Sqlite(path) => {
                let connection = Connection::open(path).unwrap();
                connection.busy_timeout(PATIENCE).unwrap();
                let mut statement = connection.prepare(sql).unwrap();
                statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            }
            Self::Postgres(server) => server.sql("janua", sql).lines().map(str::to_owned).collect(),
        }
    }
}

struct World {
    folders: Vec<TempDir>,
    store: Store,
    kept: Value,
    clock: Wound,
    /// What this machine's clock must be put forward by, in seconds.
    offset: i64,
    receiver: Receiver,
    settings: Vec<(&'static str, String)>,
}

impl World {
    fn of(engine: &str, nodes: usize) -> Self {
        let kept = fs::read(format!("{FIXTURES}/{engine}.json")).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let (at, now) = (kept["at"].as_i64().unwrap() / 1000, seconds());
        let (clock, offset) = (Wound::new(), at + LATER - now);
        clock.by(offset);
        let folder = || {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            unpack(engine, folder.path());
            folder
        };
        let folders: Vec<TempDir> = (0..nodes).map(|_| folder()).collect();
        let here = |name: &str, value: String| -> (&'static str, String) { (String::leak(name.to_owned()), value) };
        let mut settings: Vec<_> = [
            ("JANUA_BASE_URL", text(&kept["base"])),
            ("JANUA_RATE_LIMITS", "off".into()),
            ("JANUA_CLIENT_REGISTRATION", "on".into()),
            ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8".into()),
            ("WEBHOOK_ALLOW_HTTP", "1".into()),
            ("JANUA_PLATFORM_OWNERS", "ada@example.com".into()),
            ("JANUA_DNS_SERVERS", "127.0.0.1:9".into()),
        ]
        .map(|(name, value)| here(name, value))
        .into();
        let store = if engine == "sqlite" {
            Store::Sqlite(folders[0].path().join("data/janua.db"))
        } else {
            let server = Postgres::by(&clock);
            settings.push(("JANUA_DATABASE_URL", server.database("janua")));
            let dump = fs::read_to_string(folders[0].path().join("dump.sql")).unwrap();
            let mut psql = Command::new("psql");
            psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", "-f", "-", &server.url("janua")]);
            feed(psql, &dump);
            Store::Postgres(Box::new(server))
        };
        let receiver = Receiver::at(kept["receiver"].as_str().unwrap());
        Self { folders, store, kept, clock, offset, receiver, settings }
    }

    fn start(&self, node: usize, listen: SocketAddr) -> Server {
        let mut command = janua(self.folders[node].path(), &["serve", "--listen", &listen.to_string()]);
        command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        self.clock.hold(&mut command);
        Server::of(command)
    }

    fn folders(&self) -> Vec<&Path> {
        self.folders.iter().map(TempDir::path).collect()
    }

    fn now(&self) -> i64 {
        seconds() + self.offset
    }

    fn list(&self, name: &str) -> Vec<&Value> {
        self.kept[name].as_array().unwrap().iter().collect()
    }
}

fn seconds() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn unpack(engine: &str, folder: &Path) {
    let mut tar = Command::new("tar");
    tar.args(["-xzf", &format!("{FIXTURES}/{engine}.tar.gz")]).current_dir(folder);
    assert!(tar.status().unwrap().success());
}

fn feed(mut command: Command, input: &str) {
    use std::{io::Write as _, process::Stdio};
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}");
}

/// Clients that were there before the upgrade and go on asking: a refused connection is tried again until a node has
/// answered once, and every answer must be the right one.
struct Load {
    nodes: Vec<SocketAddr>,
    stop: AtomicBool,
    answers: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Load {
    fn ask(&self, turn: usize, method: &str, path: &str, token: &str, body: &Value) -> Option<Value> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let address = self.nodes[turn % self.nodes.len()];
        loop {
            let visit = Visit::try_to(address, PATIENCE);
            // One that was refused before it was sent may be sent again.
            let Ok(mut visit) = visit else {
                if self.stop.load(SeqCst) {
                    return None;
                }
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let answer = visit.attempt(method, path, token, &text);
            self.answers.fetch_add(1, SeqCst);
            return match answer {
                Ok(answer) if answer.status == 200 => Some(serde_json::from_str(&answer.body).unwrap_or_default()),
                other => {
                    let said = other.map(|answer| (answer.status, answer.body));
                    self.wrong.lock().unwrap().push(format!("{method} {path}: {said:?}"));
                    None
                }
            };
        }
    }

    /// Signs in, again and again.
    fn sign_in(&self, email: &str, password: &str) {
        let body = json!({ "email": email, "password": password, "options": { "tokenDelivery": "body" } });
        for turn in 0.. {
            if self.stop.load(SeqCst) {
                return;
            }
            let Some(entered) = self.ask(turn, "POST", "/auth/login", "", &body) else { return };
            let me = self.ask(turn + 1, "GET", "/auth/me", &text(&entered["accessToken"]), &Value::Null);
            assert!(me.is_none_or(|me| me["email"] == email));
        }
    }

    /// Goes on with a session that 0.1 began; answers its last refresh token.
    fn refresh(&self, mut token: String) -> String {
        for turn in 0.. {
            let body = json!({ "refreshToken": token });
            let Some(fresh) = self.ask(turn, "POST", "/auth/refresh", "", &body) else { break };
            token = text(&fresh["refreshToken"]);
            self.ask(turn + 1, "GET", "/auth/me", &text(&fresh["accessToken"]), &Value::Null);
            if self.stop.load(SeqCst) {
                break;
            }
        }
        token
    }

    /// Keeps asking with an access token of 0.1.
    fn look(&self, access: &str) {
        for turn in 0.. {
            if self.ask(turn, "GET", "/auth/me", access, &Value::Null).is_none() || self.stop.load(SeqCst) {
                return;
            }
        }
    }
}

const AUDIT: &str =
    "SELECT id || ' ' || type || ' ' || COALESCE(account_id, '') || ' ' || COALESCE(app_id, '') FROM audit_event";
const HOURS: &str =
    "SELECT app_id || ' ' || CAST(hour AS TEXT) || ' ' || kind || ' ' || CAST(n AS TEXT) FROM event_hour";
const RECOUNT: &str =
    "SELECT app_id || ' ' || CAST(at / 3600000 AS TEXT) || ' ' || type || ' ' || CAST(COUNT(*) AS TEXT)
                       FROM audit_event WHERE app_id IS NOT NULL GROUP BY app_id, at / 3600000, type";
const PEOPLE: &str = "SELECT scope || ' ' || account_id FROM active_user WHERE scope IN (SELECT id FROM app)";
const PEOPLE_RECOUNT: &str = "SELECT DISTINCT app_id || ' ' || account_id FROM audit_event
                              WHERE app_id IS NOT NULL AND account_id IN (SELECT id FROM account) AND type = 'SIGNED_IN'";

fn upgrade(engine: &str, addresses: &[&str]) {
    let world = World::of(engine, addresses.len());
    let kept = &world.kept;
    let before = |sql: &str| match &world.store {
        // Opening the database applies the log that the killed server left: that is for this version to do.
        Store::Sqlite(_) => {
            let aside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            unpack(engine, aside.path());
            Store::Sqlite(aside.path().join("data/janua.db")).texts(sql)
        }
        Store::Postgres(_) => world.store.texts(sql),
    };
    let (audit, jobs) = (before(AUDIT), before("SELECT id FROM job"));
    let waiting = before("SELECT id FROM webhook_delivery WHERE state = 'pending'");
    assert!(audit.len() > 80 && !jobs.is_empty() && waiting.len() > 20, "the fixture holds what is counted");
    assert_eq!(before("SELECT CAST(MAX(number) AS TEXT) FROM schema_migration"), ["20".into()].into());

    let nodes: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let load = Load { nodes: nodes.clone(), stop: false.into(), answers: 0.into(), wrong: Mutex::default() };
    let password = kept["password"].as_str().unwrap();
    let began = Instant::now();
    let (servers, fresh) = thread::scope(|scope| {
        for email in ["bob@example.com", "eve@example.com"] {
            let load = &load;
            scope.spawn(move || load.sign_in(email, password));
        }
        let sessions: Vec<_> = world.list("sessions").iter().map(|one| text(&one["refresh"])).collect();
        let refreshing: Vec<_> = sessions.into_iter().map(|token| scope.spawn(|| load.refresh(token))).collect();
        scope.spawn(|| load.look(&text(&kept["sessions"][0]["access"])));
        let world = &world;
        let starting = |(node, listen): (usize, &SocketAddr)| {
            let listen = *listen;
            scope.spawn(move || world.start(node, listen))
        };
        let starting: Vec<_> = nodes.iter().enumerate().map(starting).collect();
        let servers: Vec<Server> = starting.into_iter().map(|server| server.join().unwrap()).collect();
        println!("{engine}: {} nodes are there after {:?}", servers.len(), began.elapsed());
        thread::sleep(Duration::from_secs(extent(4, 30, "seconds of load") as u64));
        load.stop.store(true, SeqCst);
        (servers, refreshing.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>())
    });
    let wrong = load.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{engine}: {} answers under load, each the right one", load.answers.load(SeqCst));
    let (one, other) = (&servers[0], &servers[servers.len() - 1]);

    let numbers = world.store.texts("SELECT CAST(number AS TEXT) FROM schema_migration");
    let known: BTreeSet<String> = db::migrate::ALL.iter().map(|step| step.number.to_string()).collect();
    assert_eq!(numbers, known, "every migration, each once");

    sessions_go_on(&world, one, &fresh);
    everybody_signs_in(&world, one, other);
    what_waited_goes_on(&world, one, other);
    programs_go_on(&world, one, other);
    what_ended_stays_so(&world, other);
    for server in &servers {
        what_is_pending_ends(&world, server, &waiting, &jobs);
    }
    let now = world.store.texts(AUDIT);
    let lost: Vec<_> = audit.difference(&now).collect();
    assert!(lost.is_empty(), "lines of the audit log are gone: {lost:?}");
    analytics_know_the_past(&world);
    passwords_change(&world, one, other);
}

fn sessions_go_on(world: &World, one: &Server, fresh: &[String]) {
    for token in fresh {
        well(ask(one, "POST", "/auth/refresh", "", &json!({ "refreshToken": token })));
    }
    let linked = &world.kept["linked"];
    let gil = well(ask(one, "POST", "/auth/refresh", "", &json!({ "refreshToken": linked["refresh"] })));
    let me = well(ask(one, "GET", "/auth/me", &text(&gil["accessToken"]), &Value::Null));
    assert_eq!((&me["email"], &me["githubUsername"]), (&linked["email"], &json!("gil")), "{me}");
    let body = json!({ "refreshToken": world.kept["inApp"]["refresh"] });
    let key = text(&world.kept["keys"]["publishable"]);
    let (status, said) = post(one, "/auth/refresh", &format!("X-Service-App-Key: {key}"), &body);
    assert_eq!(status, 200, "a session of an app: {said}");
    let picture = text(&world.kept["avatar"]);
    let path = picture.strip_prefix(world.kept["base"].as_str().unwrap()).unwrap();
    assert_eq!(one.get(path).0, 200, "the picture is there");
}

fn everybody_signs_in(world: &World, one: &Server, other: &Server) {
    let password = world.kept["password"].as_str().unwrap();
    for email in world.list("people") {
        well(login(one, email.as_str().unwrap(), password));
    }
    // The second factor, a recovery code, a trusted device.
    let totp = &world.kept["totp"];
    let half = |server| text(&well(login(server, totp["email"].as_str().unwrap(), password))["mfaTicket"]);
    let verify = |server: &Server, ticket: String, code: &str, factor: &str| {
        let body = json!({ "mfaTicket": ticket, "code": code, "factor": factor });
        ask(server, "POST", "/auth/2fa/login-verify", "", &body)
    };
    let code = totp_at(totp["secret"].as_str().unwrap(), world.now());
    well(verify(one, half(other), &code, "totp"));
    assert_eq!(verify(other, half(one), &code, "totp").0, 401, "a code counts once");
    assert_eq!(verify(one, half(one), totp["spentCode"].as_str().unwrap(), "recovery").0, 401, "it was spent in 0.1");
    well(verify(one, half(one), totp["code"].as_str().unwrap(), "recovery"));
    let body = json!({ "email": totp["email"], "password": password, "options": { "tokenDelivery": "body" } });
    let (status, said) = post(one, "/auth/login", &format!("Cookie: {}", totp["trusted"].as_str().unwrap()), &body);
    assert!(status == 200 && said.contains("accessToken"), "the device is trusted still: {said}");
    // The passkey.
    let asked = well(ask(one, "POST", "/auth/passkey/login-options", "", &Value::Null));
    let body = json!({ "credential": signed(world, &asked), "options": { "tokenDelivery": "body" } });
    let kay = well(ask(other, "POST", "/auth/passkey/login-verify", "", &body));
    assert_eq!(kay["user"]["email"], world.kept["passkey"]["email"]);
}

/// With one more header.
fn post(server: &Server, path: &str, header: &str, body: &Value) -> (u16, String) {
    let (body, head) = (body.to_string(), "Host: x\r\nConnection: close\r\nContent-Type: application/json");
    let length = body.len();
    let request = format!("POST {path} HTTP/1.1\r\n{head}\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}");
    server.send(request.as_bytes())
}

fn totp_at(secret: &str, now: i64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &BASE32_NOPAD.decode(secret.as_bytes()).unwrap());
    let tag = hmac::sign(&key, &u64::try_from(now / 30).unwrap().to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// What an authenticator answers with the key that it made for 0.1.
fn signed(world: &World, asked: &Value) -> Value {
    let passkey = &world.kept["passkey"];
    let key = BASE64URL_NOPAD.decode(passkey["key"].as_str().unwrap().as_bytes()).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key).unwrap();
    let challenge = &asked["publicKey"]["challenge"];
    let client = json!({ "type": "webauthn.get", "challenge": challenge, "origin": world.kept["base"],
                         "crossOrigin": false })
    .to_string();
    let data = [digest(&SHA256, b"localhost").as_ref(), &[0x05, 0, 0, 0, 1]].concat();
    let text = [data.as_slice(), digest(&SHA256, client.as_bytes()).as_ref()].concat();
    let signature = key.sign(&SystemRandom::new(), &text).unwrap();
    let coded = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    json!({ "id": passkey["id"], "rawId": passkey["id"], "type": "public-key", "clientExtensionResults": {},
            "response": { "clientDataJSON": coded(client.as_bytes()), "authenticatorData": coded(&data),
                          "signature": coded(signature.as_ref()), "userHandle": passkey["userHandle"] } })
}

/// Links, invitations and devices that were on their way.
fn what_waited_goes_on(world: &World, one: &Server, other: &Server) {
    let (kept, password) = (&world.kept, world.kept["password"].as_str().unwrap());
    let uma = kept["unconfirmed"]["email"].as_str().unwrap();
    assert_eq!(login(one, uma, password).0, 403, "not confirmed yet");
    well(ask(one, "POST", "/auth/verify-email", "", &json!({ "token": kept["unconfirmed"]["token"] })));
    well(login(other, uma, password));
    let link = json!({ "token": kept["magic"]["token"], "options": { "tokenDelivery": "body" } });
    well(ask(one, "POST", "/auth/magic-link/verify", "", &link));
    assert_eq!(ask(other, "POST", "/auth/magic-link/verify", "", &link).0, 410, "a link counts once");
    let invite = &kept["invite"];
    let cyd = text(&well(login(one, invite["email"].as_str().unwrap(), password))["accessToken"]);
    well(ask(one, "POST", "/auth/accept-invite", &cyd, &json!({ "token": invite["token"] })));
    let orgs = well(ask(other, "GET", "/user/orgs", &cyd, &Value::Null));
    let mine = orgs["orgs"].as_array().unwrap().iter().find(|org| org["id"] == kept["org"]);
    assert_eq!(mine.map(|org| &org["role"]), Some(&invite["role"]), "{orgs}");
    well(ask(one, "POST", "/auth/device/token", "", &json!({ "device_code": kept["device"] })));
    let once = &kept["once"];
    // Byte for byte as the client of 0.1 wrote it.
    let body = format!("{{\"name\": {}}}", once["body"]["name"]);
    let (key, token) = (text(&once["key"]), text(&once["token"]));
    let again = one.visit().attempt_with(&key, "POST", "/org", &token, &body);
    let answer: Value = serde_json::from_str(&again.unwrap().body).unwrap();
    assert_eq!(answer, once["answer"], "what a key stands for was done in 0.1, and is not done again");
}

fn programs_go_on(world: &World, one: &Server, other: &Server) {
    let (kept, password) = (&world.kept, world.kept["password"].as_str().unwrap());
    assert_eq!(with_key(other, kept["keys"]["secret"].as_str().unwrap()), 200);
    // Keys that verify what 0.1 signed, in the same place.
    let now = well(ask(other, "GET", "/.well-known/jwks.json", "", &Value::Null));
    for key in kept["jwks"]["keys"].as_array().unwrap() {
        assert!(now["keys"].as_array().unwrap().contains(key), "{key} is not among {now}");
    }
    for granted in world.list("oauth") {
        let person = well(ask(one, "GET", "/oauth/userinfo", &text(&granted["access"]), &Value::Null));
        assert!(person["email"].is_string(), "{person}");
        let body = format!(
            "grant_type=refresh_token&client_id={}&refresh_token={}",
            granted["client"].as_str().unwrap(),
            granted["refresh"].as_str().unwrap()
        );
        let head = "Host: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded";
        let length = body.len();
        let request = format!("POST /oauth/token HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        let (status, said) = one.send(request.as_bytes());
        assert!(status == 200 && said.contains("access_token"), "{said}");
    }
    let token = kept["scim"]["token"].as_str().unwrap();
    for (kind, name) in [("Users", "user"), ("Groups", "group")] {
        let path = format!("/scim/v2/{kind}/{}", kept["scim"][name].as_str().unwrap());
        let found = well(ask(one, "GET", &path, token, &Value::Null));
        assert_eq!(found["id"], kept["scim"][name], "{found}");
    }
    let ada = text(&well(login(one, "ada@example.com", password))["accessToken"]);
    for (app, domain) in kept["domains"].as_object().unwrap() {
        let shown = well(ask(other, "GET", &format!("/apps/{app}/domain"), &ada, &Value::Null));
        assert_eq!(&shown["domain"], domain);
        let is_proven = domain == "proven.example.test";
        assert_eq!(shown["verifiedAt"].is_string(), is_proven, "{shown}");
    }
    let groups = well(ask(one, "GET", &format!("/org/{}/scim-groups", text(&kept["org"])), &ada, &Value::Null));
    assert_eq!(groups["groups"][0]["role"], "admin");
}

fn what_ended_stays_so(world: &World, server: &Server) {
    let (kept, password) = (&world.kept, world.kept["password"].as_str().unwrap());
    for token in world.list("revoked") {
        let said = ask(server, "POST", "/auth/refresh", "", &json!({ "refreshToken": token }));
        assert_eq!(said.0, 401, "{said:?}");
    }
    for token in world.list("revokedAccess") {
        assert_eq!(ask(server, "GET", "/auth/me", token.as_str().unwrap(), &Value::Null).0, 401);
    }
    assert_eq!(login(server, kept["deleted"].as_str().unwrap(), password).0, 401);
    for session in world.list("sessions") {
        let again = ask(server, "POST", "/auth/refresh", "", &json!({ "refreshToken": session["refresh"] }));
        assert_eq!(again.0, 401, "a refresh token of 0.1 that was used up ends its session: {again:?}");
    }
    assert_eq!(with_key(server, kept["keys"]["deleted"].as_str().unwrap()), 401);
    assert_eq!(ask(server, "GET", "/scim/v2/Users", kept["scim"]["gone"].as_str().unwrap(), &Value::Null).0, 401);
}

/// Deliveries, mails and jobs of 0.1.
fn what_is_pending_ends(world: &World, server: &Server, waiting: &BTreeSet<String>, jobs: &BTreeSet<String>) {
    wait("every delivery that waited is made", || {
        let there = world.store.texts("SELECT id FROM webhook_delivery WHERE state = 'delivered'");
        waiting.is_subset(&there).then_some(())
    });
    let secrets: Vec<String> = world.list("webhooks").iter().map(|hook| text(&hook["secret"])).collect();
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    for Came { signature, body, at } in world.receiver.all().iter() {
        let at = at.saturating_add_signed(world.offset);
        let is_genuine = secrets.iter().any(|secret| verify_webhook(signature, body, secret, at).is_ok());
        assert!(is_genuine, "signed with a secret of 0.1");
        let body: Value = serde_json::from_slice(body).unwrap();
        *came.entry(text(&body["deliveryId"])).or_default() += 1;
    }
    let missing: Vec<_> = waiting.iter().filter(|delivery| !came.contains_key(*delivery)).collect();
    assert!(missing.is_empty(), "{missing:?} of {came:?}");
    let mail = mail_in(&world.folders(), world.kept["mailWaits"].as_str().unwrap(), "reset-password?token=");
    assert!(!token_in(&mail).is_empty());
    wait("the jobs of 0.1 end", || jobs.is_disjoint(&world.store.texts("SELECT id FROM job")).then_some(()));
    assert_eq!(server.get("/health").0, 200);
}

fn analytics_know_the_past(world: &World) {
    wait("the past is counted", || {
        let left = "SELECT id FROM audit_event WHERE app_id IS NOT NULL AND NOT is_tallied
                    UNION ALL SELECT id FROM event_tally";
        world.store.texts(left).is_empty().then_some(())
    });
    let counted = world.store.texts(HOURS);
    assert!(!counted.is_empty());
    assert_eq!(counted, world.store.texts(RECOUNT));
    assert_eq!(world.store.texts(PEOPLE), world.store.texts(PEOPLE_RECOUNT));
}

fn passwords_change(world: &World, one: &Server, other: &Server) {
    let (reset, password) = (&world.kept["reset"], world.kept["password"].as_str().unwrap());
    let change = json!({ "token": reset["token"], "password": "another horse, another battery" });
    well(ask(one, "POST", "/auth/reset-password", "", &change));
    assert_eq!(login(other, reset["email"].as_str().unwrap(), password).0, 401);
    well(login(other, reset["email"].as_str().unwrap(), "another horse, another battery"));
}

#[test]
fn an_embedded_database_of_0_1_is_taken_over_under_load() {
    upgrade("sqlite", &["127.83.1.7:8331"]);
}

/// Two nodes start at once: one migrates, and both serve.
#[test]
fn a_postgresql_database_of_0_1_is_taken_over_by_two_nodes_under_load() {
    upgrade("postgres", &["127.83.1.8:8331", "127.83.1.8:8332"]);
}
