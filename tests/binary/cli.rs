//! The commands for developers, against a running server.
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    JANUA, Server,
    people::{ALLOW_HOOKS, PASSWORD, ask, login, member, owner, text, well},
    receiver::Receiver,
    wait,
    wire::Wire,
};

/// Somebody's machine: a folder with credentials, and one they work in.
pub struct Machine {
    folder: tempfile::TempDir,
    url: String,
    token: Option<String>,
}

/// How a command ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("not JSON: {}{}", self.out, self.err))
    }

    pub fn well(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self
    }
}

impl Machine {
    pub fn new(server: &Server) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder, url: format!("http://{}", server.address), token: None }
    }

    pub fn with_token(server: &Server, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::new(server) }
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(JANUA);
        command.args(arguments).current_dir(self.work()).env_clear();
        command.env("JANUA_CONFIG_HOME", self.folder.path().join("config"));
        command.env("JANUA_URL", &self.url).env("PATH", "/usr/bin:/bin").env("TZ", "UTC");
        command.envs(self.token.as_ref().map(|token| ("JANUA_TOKEN", token)));
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments))
    }

    pub fn well(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        self.run(&arguments).well().json()
    }

    fn credentials(&self) -> PathBuf {
        self.folder.path().join("config/credentials.json")
    }
}

fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command on a terminal of its own, and types once it asks. What the terminal shows in the end.
fn on_a_terminal(machine: &Machine, arguments: &str, question: &str, typed: &str) -> String {
    let environment = machine.command(&[]);
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("{JANUA} {arguments}"), "/dev/null"]);
    command.current_dir(machine.work()).env_clear().env("TERM", "xterm");
    command.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script, of util-linux");
    let (mut shown, mut said) = (vec![], child.stdout.take().unwrap());
    while !String::from_utf8_lossy(&shown).contains(question) {
        let mut some = [0; 256];
        let count = said.read(&mut some).unwrap();
        assert_ne!(count, 0, "it does not ask: {}", String::from_utf8_lossy(&shown));
        shown.extend(&some[..count]);
    }
    let mut keys = child.stdin.take().unwrap();
    writeln!(keys, "{typed}").unwrap();
    said.read_to_end(&mut shown).unwrap();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
}

fn serve(folder: &Path) -> Server {
    Server::start(folder, &[ALLOW_HOOKS, ("JANUA_EDGE_LISTEN", "127.0.0.1:0")])
}

/// Signs in as a person does: the command shows a code, and a browser that is signed in confirms it.
fn sign_in(machine: &Machine, server: &Server, access: &str, arguments: &[&str]) -> Ran {
    let mut command = machine.command(&[&["login", "--no-browser"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut shown = String::new();
    let code = loop {
        let mut line = String::new();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "no code: {shown}");
        shown.push_str(&line);
        if let Some((_, code)) = line.split_once("confirm the code") {
            break code.trim().to_owned();
        }
    };
    assert!(shown.contains("/device"), "{shown}");
    well(ask(server, "POST", "/auth/device/verify", access, &json!({ "user_code": code })));
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    Ran { code: output.status.code().unwrap(), out, err: shown }
}

#[test]
fn a_developer_signs_in_by_device_code_and_stays_signed_in() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    member(&server, &[folder.path()], "ada@example.com");
    let access = text(&well(login(&server, "ada@example.com", PASSWORD))["accessToken"]);
    let machine = Machine::new(&server);

    let nobody = machine.run(&["whoami"]);
    assert_eq!(nobody.code, 4, "{}", nobody.err);
    assert!(nobody.err.contains("janua login"), "it says what to do: {}", nobody.err);

    let signed_in = sign_in(&machine, &server, &access, &["--profile", "work"]).well();
    assert!(signed_in.out.contains("ada@example.com"), "{}", signed_in.out);
    let mode = fs::metadata(machine.credentials()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else reads the tokens");

    // The profile belongs to who names it, and to the folders bound to it.
    assert_eq!(machine.run(&["whoami"]).code, 4);
    machine.run(&["use", "work"]).well();
    fs::create_dir(machine.work().join("inner")).unwrap();
    let mut inner = machine.command(&["whoami", "--json"]);
    inner.current_dir(machine.work().join("inner"));
    let me = ran(inner).well().json();
    assert_eq!((&me["profile"], &me["user"]["email"]), (&json!("work"), &json!("ada@example.com")));
    assert_eq!(machine.run(&["use", "nothing"]).code, 2);

    // An expired token is refreshed, once, however many commands find it so.
    let stored: Value = serde_json::from_str(&fs::read_to_string(machine.credentials()).unwrap()).unwrap();
    let mut expired = stored.clone();
    expired["profiles"]["work"]["expiresAt"] = json!(0);
    fs::write(machine.credentials(), expired.to_string()).unwrap();
    let running: Vec<_> = (0..4)
        .map(|_| machine.command(&["whoami"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let after: Value = serde_json::from_str(&fs::read_to_string(machine.credentials()).unwrap()).unwrap();
    let refresh = |stored: &Value| text(&stored["profiles"]["work"]["refreshToken"]);
    assert_ne!(refresh(&after), refresh(&stored), "the session goes on with another refresh token");

    // A token is never shown to another server than the one that gave it.
    let mut elsewhere = machine.command(&["whoami"]);
    elsewhere.env("JANUA_URL", "http://localhost:1");
    assert_eq!(ran(elsewhere).code, 4);
    let plain = machine.run(&["whoami", "--url", "http://id.example.com"]);
    assert_eq!(plain.code, 2, "{}", plain.err);

    machine.run(&["logout"]).well();
    assert_eq!(machine.run(&["whoami"]).code, 4);
    let held = text(&after["profiles"]["work"]["accessToken"]);
    assert_eq!(ask(&server, "GET", "/auth/me", &held, &Value::Null).0, 401, "the session ended on the server");
}

#[test]
fn a_refusal_says_how_to_go_on() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::new(&server);
    sign_in(&machine, &server, &ada.access, &[]).well();
    for register in [
        ["agents", "register", "Helper", "--framework", "langgraph"],
        ["mcp", "register", "weather", "--domain", "example.com"],
    ] {
        let stale = machine.run(&register);
        assert_eq!(stale.code, 4, "{register:?}: the session has proven nothing: {}", stale.err);
        assert!(stale.err.contains("JANUA_TOKEN to an access token of a sign-in"), "{register:?}: {}", stale.err);
    }
    // On a terminal the command asks for the password, and does not show it.
    let shown = on_a_terminal(&machine, "agents register Helper --framework langgraph", "Password: ", PASSWORD);
    assert!(shown.contains("Registered Helper."), "{shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    machine.run(&["mcp", "register", "weather", "--domain", "example.com"]).well();

    // A folder is bound to the ID, which a secret key needs.
    machine.run(&["use", "default", "--app", "Shop"]).well();
    let bound = fs::read_to_string(machine.work().join(".janua/project.toml")).unwrap();
    assert!(bound.contains(&format!("app = \"{}\"  # Shop\n", ada.app)), "{bound}");
    let unknown = machine.run(&["use", "default", "--app", "Nothing"]);
    assert_eq!(unknown.code, 1, "{}", unknown.err);
    let key = text(&machine.well(&["keys", "create"])["value"]);
    let by_key = Machine::with_token(&server, &key);
    for arguments in [&["deploy", ".", "--app", "Shop"][..], &["deploy", "."]] {
        let refused = by_key.run(arguments);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(
            refused.err.contains("needs the ID of its app") && refused.err.contains("JANUA_APP"),
            "{}",
            refused.err
        );
    }
    let not_for_keys = by_key.run(&["apps", "list"]);
    assert!(not_for_keys.code == 4 && not_for_keys.err.contains("is a secret key"), "{}", not_for_keys.err);
    let expired = Machine::with_token(&server, "nonsense").run(&["whoami"]);
    assert_eq!(expired.code, 4);
    assert!(expired.err.contains("JANUA_TOKEN is invalid or has expired."), "{}", expired.err);
}

#[test]
fn apps_keys_and_people_are_managed_from_the_command_line() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);

    let org = machine.well(&["orgs", "create", "Paper"]);
    let app = machine.well(&["apps", "create", "Press", "--slug", "press", "--org", "Paper"]);
    assert_eq!(app["orgId"], org["id"]);
    let listed = machine.run(&["apps", "list"]).well();
    assert!(listed.out.starts_with("ID ") && listed.out.contains("press"), "{}", listed.out);
    assert!(!listed.out.contains('\u{1b}'), "no colours where nobody sees them: {:?}", listed.out);
    assert_eq!(machine.well(&["apps", "list", "--limit", "1"])["apps"].as_array().unwrap().len(), 1);

    // Without a choice among several, the flag is named.
    let several = machine.run(&["keys", "list"]);
    assert_eq!(several.code, 2);
    assert!(several.err.contains("--app") && several.err.contains("Press"), "{}", several.err);
    let key = machine.well(&["keys", "create", "--app", "press", "--name", "CI"]);
    assert!(text(&key["value"]).starts_with("sk_live_"));
    assert_eq!(machine.well(&["--app", "press", "keys", "list"])["keys"][0]["name"], "CI");

    // Nothing is deleted unasked, and nothing asks where nobody answers.
    let asked = machine.run(&["apps", "delete", "--app", "press"]);
    assert_eq!(asked.code, 2);
    assert!(asked.err.contains("--yes"), "{}", asked.err);
    let invite = machine.well(&["members", "invite", "zoe@example.com", "--role", "admin", "--org", "Paper"]);
    assert_eq!(invite["role"], "admin");
    assert_eq!(machine.well(&["members", "invites", "--org", "Paper"])["invites"][0]["email"], "zoe@example.com");
    assert_eq!(machine.well(&["members", "list", "--org", "Paper"])["members"][0]["role"], "owner");
    assert_eq!(machine.well(&["users", "list", "--app", "press"])["users"], json!([]));
    assert_eq!(machine.well(&["apps", "update", "--name", "Printer", "--app", "press"])["name"], "Printer");

    let send = ["email", "send", "--app", "press", "--to", "ada@example.com", "--subject", "Hi", "--text", "There"];
    let unsent = machine.run(&send);
    assert_eq!(unsent.code, 1);
    assert!(unsent.err.contains("no verified sending domain. Add one in the console"), "{}", unsent.err);
    assert_eq!(machine.well(&["email", "log", "--app", "press"])["messages"], json!([]));
    assert!(machine.run(&["usage", "--org", "Paper"]).well().out.contains("webhooks"));

    let agent = machine.well(&["agents", "register", "Helper", "--framework", "langgraph", "--scope", "orders:read"]);
    let (id, secret) = (text(&agent["clientId"]), text(&agent["clientSecret"]));
    let token = machine.well(&["agents", "token", "--client-id", &id, "--client-secret", &secret]);
    assert_eq!(token["scope"], "orders:read");
    assert_eq!(machine.well(&["agents", "suspend", &id, "--framework"])["agent"]["status"], "suspended");
    machine.run(&["agents", "logs", &id, "--framework"]).well();
    let mcp = machine.well(&["mcp", "register", "weather", "--domain", "example.com"]);
    assert_eq!(machine.well(&["mcp", "list"])["servers"][0]["id"], mcp["server"]["id"]);

    let domain = machine.well(&["domains", "add", "shop.example.com", "--app", "press"]);
    assert!(!domain["records"].as_array().unwrap().is_empty());
    assert!(machine.run(&["domains", "list", "--app", "press"]).well().out.contains("shop.example.com"));
    let tail = machine.run(&["logs", "tail", "--no-follow", "--app", "press"]).well();
    assert!(tail.out.contains("APP_CREATED"), "{}", tail.out);

    // Any route, with its refusals as they come.
    assert_eq!(machine.well(&["api", "GET", "/auth/me"])["email"], "ada@example.com");
    let named = machine.well(&["api", "post", "/org", "-f", "name=Third"]);
    assert_eq!(named["name"], "Third");
    let refused = machine.run(&["api", "POST", "/org", "-d", "{}"]);
    assert_eq!(refused.code, 1);
    assert!(refused.out.contains("\"required\"") && refused.err.contains("name: is required"), "{}", refused.err);
    machine.run(&["apps", "delete", "--app", "press", "--yes"]).well();
}

#[test]
fn objects_are_uploaded_listed_downloaded_and_deleted() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let work = machine.work();
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    fs::write(work.join("large.bin"), &large).unwrap();
    fs::write(work.join("note.txt"), "words").unwrap();

    let put = machine.well(&["storage", "put", "large.bin", "--name", "backups/large.bin"]);
    assert_eq!((&put["size"], &put["status"]), (&json!(3_000_000), &json!("ready")));
    let note = machine.well(&["storage", "put", "note.txt", "--public"]);
    assert_eq!((&note["contentType"], &note["visibility"]), (&json!("text/plain"), &json!("public")));
    let listed = machine.run(&["storage", "ls"]).well();
    assert!(listed.out.contains("backups/large.bin") && listed.out.contains("note.txt"), "{}", listed.out);
    let below = machine.well(&["storage", "ls", "backups/"]);
    assert_eq!(below["objects"].as_array().unwrap().len(), 1);

    // Under the last part of its name, and over no file that is there.
    let there = machine.run(&["storage", "get", "backups/large.bin"]);
    assert_eq!(there.code, 1);
    assert!(there.err.contains("--force"), "{}", there.err);
    fs::remove_file(work.join("large.bin")).unwrap();
    machine.run(&["storage", "get", "backups/large.bin"]).well();
    assert!(fs::read(work.join("large.bin")).unwrap() == large);
    machine.run(&["storage", "get", "note.txt", "copy.txt"]).well();
    assert_eq!(fs::read_to_string(work.join("copy.txt")).unwrap(), "words");
    assert_eq!(machine.run(&["storage", "get", &text(&note["id"]), "-"]).well().out, "words");
    let unknown = machine.run(&["storage", "get", "nothing"]);
    assert!(unknown.code == 1 && unknown.err.contains("storage ls"), "{}", unknown.err);
    assert_eq!(machine.run(&["storage", "put", "nothing.txt"]).code, 2);

    // A name that two objects have names none of them.
    machine.well(&["storage", "put", "note.txt"]);
    let several = machine.run(&["storage", "rm", "note.txt", "--yes"]);
    assert!(several.code == 2 && several.err.contains(&text(&note["id"])), "{}", several.err);
    assert_eq!(machine.run(&["storage", "rm", &text(&note["id"])]).code, 2, "not without --yes");
    machine.run(&["storage", "rm", &text(&note["id"]), "--yes"]).well();
    machine.run(&["storage", "rm", "note.txt", "--yes"]).well();
    assert_eq!(machine.well(&["storage", "ls"])["objects"].as_array().unwrap().len(), 1);
    assert!(
        fs::read_dir(&work).unwrap().all(|entry| !entry.unwrap().file_name().to_string_lossy().ends_with(".part"))
    );
}

#[test]
fn the_log_is_followed_over_a_burst_and_a_lost_connection() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let wire = Wire::to(&server.address.to_string());
    let machine = Machine { url: format!("http://{}", wire.address), ..Machine::with_token(&server, &ada.access) };
    let tail = Going::start(machine.command(&["logs", "tail", "--json"]));
    tail.line("what is there", |line| line["type"] == "APP_CREATED");
    let rename = |name: &str| {
        let path = format!("/apps/{}", ada.app);
        well(ask(&server, "PATCH", &path, &ada.access, &json!({ "name": name })));
    };
    let renamed = |line: &Value| line["type"] == "APP_UPDATED";

    // More than a page between two looks.
    tail.signal("STOP");
    for number in 0..120 {
        rename(&format!("Shop {number}"));
    }
    tail.signal("CONT");
    wait("all of them", || (tail.count(renamed) == 120).then_some(()));

    wire.cut(true);
    thread::sleep(Duration::from_millis(1500));
    rename("Store");
    wire.cut(false);
    wait("what came meanwhile", || (tail.count(renamed) == 121).then_some(()));
}

#[test]
fn a_folder_is_deployed_rolled_back_and_its_log_read() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let key = text(&machine.well(&["keys", "create"])["value"]);
    let site = machine.work().join("dist");
    fs::create_dir(&site).unwrap();
    fs::write(site.join(".env"), "SECRET=1").unwrap();
    fs::write(site.join("index.html"), "<h1>One</h1>").unwrap();

    // As CI does it: with a secret key and the app's ID.
    let ci = Machine::with_token(&server, &key);
    let mut first = ci.command(&["deploy", site.to_str().unwrap(), "--json"]);
    first.env("JANUA_APP", &ada.app);
    let first = ran(first).well().json();
    assert_eq!((&first["status"], &first["active"], &first["files"]), (&json!("ready"), &json!(true), &json!(1)));

    fs::write(site.join("index.html"), "<h1>Two</h1>").unwrap();
    let second = machine.run(&["deploy", "dist", "--message", "Second"]).well();
    assert!(second.out.contains("Deployment 2 (production) is live."), "{}{}", second.out, second.err);
    let preview = machine.well(&["deploy", "dist", "--preview"]);
    assert_eq!((&preview["target"], &preview["active"]), (&json!("preview"), &json!(false)));
    let shown = machine.run(&["deploy", "dist", "--preview"]).well().out;
    assert!(shown.contains("is ready.") && !shown.lines().any(|line| line.starts_with("URL ")), "{shown}");
    let listed = machine.run(&["deployments", "list"]).well();
    assert!(listed.out.contains("Second"), "{}", listed.out);
    let back = machine.well(&["deployments", "rollback", "--reason", "broken"]);
    assert_eq!(back["source"]["redeployOf"], first["id"], "the one before the live one");
    let log = machine.well(&["deployments", "logs", &text(&first["id"])]);
    assert!(!log["logs"].as_array().unwrap().is_empty());
    machine.run(&["deployments", "logs", "--follow"]).well();
    fs::create_dir(machine.work().join("empty")).unwrap();
    assert_eq!(machine.run(&["deploy", "empty"]).code, 2);
}

#[test]
fn client_commands_and_server_commands_are_one_program() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(JANUA);
        command.args(arguments).current_dir(folder.path()).env_clear().env("HOME", folder.path());
        ran(command)
    };
    let help = run(&["--help"]).well().out;
    for name in ["serve", "doctor", "login", "deploy", "webhooks"] {
        assert!(help.contains(&format!("\n  {name} ")), "{name} in {help}");
    }
    assert!(run(&["webhooks", "listen", "--help"]).well().out.contains("--forward"));
    assert!(run(&["keys", "rotate", "--help"]).well().out.contains("--data-dir"), "the server's own");
    let completions = run(&["completions", "bash"]).well().out;
    assert!(completions.contains("serve") && completions.contains("whoami"));
    let mut piped = Command::new("/bin/sh");
    piped.args(["-c", "\"$0\" completions bash | head -n 1", JANUA]).current_dir(folder.path()).env_clear();
    piped.env("HOME", folder.path()).env("PATH", "/usr/bin:/bin");
    let piped = ran(piped);
    assert_eq!((piped.code, piped.err.as_str()), (0, ""), "a reader that has enough is no failure");
    assert_eq!(run(&["apps", "lst"]).code, 2);
    let neither = run(&["agents", "register", "Helper"]);
    assert!(neither.code == 2 && neither.err.contains("--wallet") && neither.err.contains("--framework"));
    let both = run(&["agents", "register", "Helper", "--wallet", "0x", "--framework", "langgraph"]);
    assert_eq!(both.code, 2, "one or the other: {}", both.err);
    assert_eq!(run(&["webhooks", "listen"]).code, 4, "nobody is signed in");
    // What belongs to these commands is no setting of the server.
    let mut config = Command::new(JANUA);
    config.args(["config", "--effective"]).current_dir(folder.path()).env_clear().env("JANUA_TOKEN", "x");
    assert_eq!(ran(config).code, 0);
}

/// A command that goes on, and the lines it printed so far.
struct Going {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Going {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (out, lines) = (BufReader::new(child.stdout.take().unwrap()), Arc::<Mutex<Vec<Value>>>::default());
        let to = lines.clone();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                to.lock().unwrap().push(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        Self { child, lines }
    }

    fn line(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        wait(what, || self.lines.lock().unwrap().iter().find(|line| is_it(line)).cloned())
    }

    fn count(&self, is_it: impl Fn(&Value) -> bool) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| is_it(line)).count()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn code(&mut self) -> i32 {
        let child = &mut self.child;
        wait("its end", || child.try_wait().unwrap()).code().unwrap_or(-1)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn events_reach_a_listener_signed_and_resumed_and_their_results_are_in_the_log() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = serve(folder.path());
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let receiver = Receiver::slow(usize::MAX, Duration::ZERO);
    let listen = |more: &[&str]| {
        machine.command(&[&["webhooks", "listen", "--forward", &receiver.url, "--json"], more].concat())
    };
    let listening = Going::start(listen(&[]));
    let listener = listening.line("the listener", |line| line["listener"].is_object())["listener"].clone();
    let (id, secret) = (text(&listener["id"]), text(&listener["secret"]));

    // An example, and something that really happened.
    machine.well(&["webhooks", "trigger", "user.signed_in"]);
    let example = listening.line("the example", |line| line["event"] == "user.signed_in");
    assert_eq!(example["statusCode"], 200);
    machine.well(&["apps", "update", "--name", "Store"]);
    listening.line("the change of the app", |line| line["event"] == "audit.APP_UPDATED");
    let came = receiver.all().first().cloned().unwrap();
    fs::write(machine.work().join("body"), &came.body).unwrap();
    let verify = |secret: &str| {
        machine.run(&["webhooks", "verify", "--secret", secret, "--signature", &came.signature, "body"])
    };
    verify(&secret).well();
    assert_eq!(verify("another").code, 1);
    let delivery = text(&example["deliveryId"]);
    let log = || {
        let found = machine.well(&["webhooks", "deliveries", "--webhook", &id]);
        found["deliveries"].as_array().unwrap().iter().find(|one| one["deliveryId"] == delivery.as_str()).cloned()
    };
    let logged = wait("the result in the log", || log().filter(|one| one["status"] == "delivered"));
    assert_eq!(logged["statusCode"], 200);

    // Sent again it comes again, under the same ID.
    machine.well(&["webhooks", "redeliver", &delivery, "--webhook", &id]);
    let same = |line: &Value| line["deliveryId"] == delivery.as_str();
    wait("the same once more", || (listening.count(same) == 2).then_some(()));
    assert_eq!(wait("two attempts", || log().filter(|one| one["attemptCount"] == 2))["status"], "delivered");

    // The laptop sleeps, and its connection is gone when it wakes up. Nothing is lost, nothing comes twice.
    listening.signal("STOP");
    machine.well(&["webhooks", "trigger", "user.created", "--webhook", &id]);
    listening.signal("CONT");
    listening.line("what came meanwhile", |line| line["event"] == "user.created");
    assert_eq!(listening.count(|line| line["event"] == "user.created"), 1);

    // A listener is no webhook to be changed, and others do not see it.
    let path = format!("/apps/{}/webhooks/{id}", ada.app);
    let (status, refused) = ask(&server, "PATCH", &path, &ada.access, &json!({ "isActive": false }));
    assert_eq!((status, &refused["code"]), (409, &json!("webhook_is_listener")));
    member(&server, &[folder.path()], "eve@example.com");
    let eve = text(&well(login(&server, "eve@example.com", PASSWORD))["accessToken"]);
    let results = json!({ "results": [{ "deliveryId": delivery, "statusCode": 200, "latencyMs": 1 }] });
    let to = format!("/apps/{}/webhooks/listen/{id}/results", ada.app);
    assert_eq!(ask(&server, "POST", &to, &eve, &results).0, 404);
    assert_eq!(well(ask(&server, "POST", &to, &ada.access, &results))["noted"], 0, "it had its result");
    assert_eq!(ask(&server, "GET", &format!("/apps/{}/webhooks/listen", ada.app), &ada.access, &Value::Null).0, 406);

    // A new listener begins with what happened before, and fails on purpose.
    drop(listening);
    let mut again = Going::start(listen(&["--since", "1h", "--events", "audit.*", "--fail", "100%"]));
    let failed = again.line("the change of the app", |line| line["event"] == "audit.APP_UPDATED");
    assert_eq!(failed["statusCode"], 500);
    assert_eq!(again.count(|line| line["event"] == "user.created"), 0, "only what was asked for");

    // The session ends, and with it the stream.
    let ended = Instant::now();
    well(ask(&server, "POST", "/auth/logout", &ada.access, &Value::Null));
    assert_eq!(again.code(), 4);
    assert!(ended.elapsed() < Duration::from_secs(3), "{:?}", ended.elapsed());
}

#[test]
fn a_listener_hears_along_with_a_webhook_and_survives_a_restart() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let begin = || {
        let mut command = crate::support::janua(folder.path(), &["serve", "--listen", &port]);
        command.env("JANUA_EDGE_LISTEN", "127.0.0.1:0").env("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8");
        Server::of(command)
    };
    let mut server = begin();
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let away = "http://127.0.0.1:9/hook";
    let webhook = machine.well(&["webhooks", "create", away, "--events", "user.signed_in"]);
    let (id, secret) = (text(&webhook["id"]), text(&webhook["secret"]));
    let receiver = Receiver::slow(usize::MAX, Duration::ZERO);
    let command = machine.command(&["webhooks", "listen", "--forward", &receiver.url, "--json", "--webhook", &id]);
    let listening = Going::start(command);
    let listener = listening.line("the listener", |line| line["listener"].is_object())["listener"].clone();
    assert_eq!((&listener["secret"], &listener["events"]), (&Value::Null, &json!(["user.signed_in"])));

    machine.well(&["webhooks", "trigger", "--webhook", &id]);
    listening.line("what the webhook got", |line| line["event"] == "user.signed_in");
    let came = receiver.all().first().cloned().unwrap();
    fs::write(machine.work().join("body"), &came.body).unwrap();
    machine.run(&["webhooks", "verify", "--secret", &secret, "--signature", &came.signature, "body"]).well();

    // The server goes and comes back; the listener is the same one, and goes on.
    server.signal("TERM");
    server.ended(Duration::from_secs(20));
    let server = begin();
    let before = receiver.all().len();
    wait("a stream again", || {
        machine.well(&["webhooks", "trigger", "--webhook", &id]);
        thread::sleep(Duration::from_millis(300));
        (receiver.all().len() > before).then_some(())
    });
    assert_eq!(listening.count(|line| line["listener"].is_object()), 1, "it is resumed, not begun anew");
    drop(server);
}

#[test]
fn a_development_server_has_people_mails_and_a_clock_in_hand() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dev = |arguments: &[&str]| {
        let mut command = Command::new(JANUA);
        command.arg("dev").args(arguments).current_dir(folder.path()).env_clear().env("HOME", folder.path());
        command.env("TMPDIR", folder.path());
        command
    };
    let tell = |arguments: &[&str]| ran(dev(&[arguments, &["--json"]].concat())).well().json();
    assert_eq!(ran(dev(&["clock"])).code, 1, "none runs");
    // Another user of the machine can foresee the number of the process, and put a link there.
    let victim = folder.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("precious"), "x").unwrap();
    let mut planted = Command::new("/bin/sh");
    let line = "ln -s victim \"janua-dev-$$\"; exec \"$0\" \"$@\"";
    planted.args(["-c", line, JANUA, "dev", "--listen", "127.0.0.1:0", "--set", "edge_listen=127.0.0.1:0", "--json"]);
    planted.current_dir(folder.path()).env_clear().env("HOME", folder.path()).env("TMPDIR", folder.path());
    planted.env("PATH", "/usr/bin:/bin");
    let mut going = Going::start(planted);
    let seeded = going.line("the first people", |line| line["people"].is_array());
    assert_eq!(seeded["people"].as_array().unwrap().len(), 4);

    // The owner is signed in, and the app has end users.
    let noted = fs::read_to_string(folder.path().join(".janua/dev")).unwrap();
    let mode = fs::metadata(noted.trim()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else reads the keys in it");
    let config = Path::new(noted.trim()).join("config");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(JANUA);
        command.args(arguments).arg("--json").current_dir(folder.path()).env_clear();
        command.env("JANUA_CONFIG_HOME", &config).env("JANUA_URL", text(&seeded["url"]));
        ran(command)
    };
    let people = |ran: Ran| ran.well().json()["users"].as_array().unwrap().len();
    assert_eq!(people(run(&["users", "list"])), 2);
    assert!(text(&tell(&["mail", "--last", "--to", "owner@example.com"])["text"]).contains("owner@example.com"));

    let read = ran(dev(&["mail", "--last", "--to", "owner@example.com"])).well().out;
    assert!(read.starts_with("To: ") && !read.contains("Content-Transfer-Encoding"), "{read}");

    // Mail of the app goes out to the mailbox: its domain needs no DNS here.
    run(&["email", "send", "--to", "ada@example.com", "--subject", "Your order", "--text", "Thanks."]).well();
    wait("the mail of the app", || {
        let mails = tell(&["mail", "--to", "ada@example.com"]);
        mails["mails"].as_array().unwrap().iter().any(|mail| mail["subject"] == "Your order").then_some(())
    });

    let listed = ran(dev(&["mail"])).well().out;
    let is_neat = |line: &str| matches!(line.len() - line.trim_start().len(), 0 | 4) && line.trim_end() == line;
    assert!(listed.lines().all(is_neat) && listed.contains("Your order"), "{listed}");

    sign_in_with_google(&text(&seeded["url"]));

    // Forty days later the session is over.
    let before = text(&tell(&["clock"])["now"]);
    assert_eq!(tell(&["clock", "+1h"])["sessionsEnded"], false);
    let moved = tell(&["clock", "+400d"]);
    assert_eq!(moved["sessionsEnded"], true);
    let after = text(&moved["now"]);
    assert!(after > before, "{before} {after}");
    assert_eq!(run(&["whoami"]).code, 4, "refresh tokens do not live that long");
    assert_eq!(ran(dev(&["clock", "2020-01-01T00:00:00Z"])).code, 1, "it does not go back");

    assert_eq!(tell(&["reset"])["ready"], true);
    run(&["whoami"]).well();
    wait("people again", || (going.count(|line| line["people"].is_array()) == 2).then_some(()));
    going.signal("INT");
    assert_eq!(going.code(), 0);
    assert!(!Path::new(noted.trim()).exists(), "nothing is left of it");
    let left: Vec<_> = fs::read_dir(&victim).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["precious"], "nothing was written there, and nothing deleted");
}

/// Signs in as somebody new by the stand-in for Google, as a browser would.
fn sign_in_with_google(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let begun = client.get(format!("{url}/auth/oauth/google/url")).send().await.unwrap();
        let cookie = begun.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let begun: Value = begun.json().await.unwrap();
        let there = reqwest::Url::parse(&text(&begun["url"])).unwrap();
        let page = client.get(there.clone()).send().await.unwrap().text().await.unwrap();
        assert!(page.contains("ada@example.com") && page.contains("stands in for Google"), "{page}");
        let mut form: Vec<(String, String)> = there.query_pairs().into_owned().collect();
        form.push(("email".into(), "mary@example.com".into()));
        let chosen = client.post(there).form(&form).send().await.unwrap();
        let back = reqwest::Url::parse(chosen.headers()["location"].to_str().unwrap()).unwrap();
        let back: std::collections::HashMap<_, _> = back.query_pairs().into_owned().collect();
        let body = json!({ "code": back["code"], "state": back["state"], "options": { "tokenDelivery": "body" } });
        let post = async || {
            let asked = client.post(format!("{url}/auth/oauth/google")).header("cookie", &cookie).json(&body);
            asked.send().await.unwrap()
        };
        let answer = post().await;
        let (status, answer) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert_eq!((status, text(&answer["user"]["email"]).as_str()), (200, "mary@example.com"), "{answer}");
        assert!(post().await.status().is_client_error(), "a code counts once");
    });
}
