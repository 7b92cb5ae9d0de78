//! Starting: with nothing at all, with something wrong, and again after a crash.
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use crate::support::{Server, janua, run};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Fails to start, and says why.
fn refusal(folder: &Path, settings: &[(&str, &str)]) -> String {
    let mut command = janua(folder, &["serve", "--listen", "127.0.0.1:0"]);
    command.envs(settings.iter().copied());
    let (started, said) = run(command);
    assert!(!started, "it started: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn with_no_configuration_it_makes_its_folder_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let server = Server::start(folder.path(), &[]);
    let (status, answer) = server.get("/health");
    assert_eq!(status, 200, "{answer}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let data = folder.path().join("data");
    assert_eq!(mode(&data), 0o700, "its owner's alone");
    for file in ["janua.db", "janua.db-wal", "master.key", "janua.db.lock"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    let (status, description) = server.get("/openapi.json");
    assert!(status == 200 && description.contains("\"openapi\":\"3.1.0\""));
}

/// Reads both formats with the parsers of Prometheus' own library, and says how many samples there are.
const PARSER: &str = r#"
import sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
seen = []
for parse, accept, kind in [
    (prometheus, "*/*", "text/plain; version=0.0.4; charset=utf-8"),
    (open_metrics, "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
     "application/openmetrics-text; version=1.0.0; charset=utf-8"),
]:
    request = urllib.request.Request(sys.argv[1] + "/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Type"] == kind, answer.headers["Content-Type"]
        families = {family.name: family for family in parse(answer.read().decode())}
    types = {name: family.type for name, family in families.items()}
    samples = [sample for family in families.values() for sample in family.samples]
    assert types["janua_http_request_duration_seconds"] == "histogram", types
    assert types["janua_http_requests"] == "counter" and types["janua_jobs_waiting"] == "gauge", types
    health = {"method": "GET", "route": "/health", "status": "2xx"}
    assert [s.value for s in samples if s.name == "janua_http_requests_total" and s.labels == health] == [1.0], samples
    errors = [s.value for s in samples if s.name == "janua_http_responses_total" and s.labels == {"status": "5xx"}]
    assert errors == [0.0], "there from the start"
    seen.append(len(samples))
print(*seen)
"#;

#[test]
fn the_figures_are_read_by_the_parsers_of_prometheus_and_few_on_an_idle_server() {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/health").0, 200);
    let url = format!("http://{}", server.address);
    let ran = std::process::Command::new(python).args(["-c", PARSER, &url]).output().expect("Python runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let samples: Vec<usize> = said.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    assert!(samples.len() == 2 && samples.iter().all(|count| *count < 150), "samples: {said}");
}

#[test]
fn it_starts_again_on_what_a_crash_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut server = Server::start(folder.path(), &[]);
        assert_eq!(server.get("/status/canary").0, 200);
        server.signal("KILL");
        server.child.wait().unwrap();
    }
}

/// Whether the system gives a process huge pages, as it tells.
fn has_huge_pages(server: &Server) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).unwrap().trim() == "1"
}

#[test]
fn pages_are_small_again_after_a_password_was_hashed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert!(!has_huge_pages(&server), "from the start");
    let nobody = r#"{"email":"nobody@example.com","password":"correct horse battery"}"#;
    assert_eq!(server.visit().ask("POST", "/auth/login", "", nobody).0, 401);
    assert!(!has_huge_pages(&server), "for what came with the password alone");
}

#[test]
fn an_embedded_database_belongs_to_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let said = refusal(folder.path(), &[]);
    assert!(said.contains("another janua is running"), "{said}");
    assert_eq!(server.get("/health").0, 200, "the first one does not notice");
}

#[test]
fn a_wrong_setting_stops_the_start_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value, expected) in [
        ("JANUA_LISTN", "x", "JANUA_LISTN: there is no such setting; did you mean JANUA_LISTEN?"),
        ("JANUA_WORKERS", "some", "JANUA_WORKERS: must be a whole number"),
        ("JANUA_BASE_URL", "id.example.com", "JANUA_BASE_URL: must be a URL"),
        ("JANUA_OTLP_HEADERS", "tenant=acme,hush", "JANUA_OTLP_HEADERS: must be headers such as api-key=secret"),
        ("JANUA_DATABASE_URL", "mysql://x", "database_url: must start with sqlite: or postgres://"),
        ("JANUA_DATABASE_URL", "postgres://u@127.0.0.1:1/d", "cannot open the database (setting database_url)"),
        ("JANUA_MASTER_KEY", "abc", "master_key: the master key must be 64 hexadecimal characters"),
        ("JANUA_DATA_DIR", "/dev/null/x", "data_dir: cannot make /dev/null/x"),
        ("JANUA_SMTP_URL", "gopher://x", "smtp_url:"),
        ("JANUA_GITHUB_CLIENT_ID", "x", "github_client_secret:"),
        ("JANUA_DISCORD_CLIENT_SECRET", "hunter2", "discord_client_id:"),
        ("JANUA_PROVIDER_ENDPOINTS", "gogle.token=https://x.example", "there is no provider \"gogle\""),
        ("JANUA_PROVIDER_ENDPOINTS", "google", "JANUA_PROVIDER_ENDPOINTS: \"google\" is not a part of a provider"),
        ("JANUA_LOG", "a=b=c", "log:"),
    ] {
        let said = refusal(folder.path(), &[(name, value)]);
        assert!(said.contains(expected), "{name}={value}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    fs::write(folder.path().join("janua.toml"), "listen = [").unwrap();
    assert!(refusal(folder.path(), &[]).contains("janua.toml"));
    let (ran, said) = run(janua(folder.path(), &["serve", "--config", "nowhere.toml"]));
    assert!(!ran && said.contains("nowhere.toml"), "{said}");
}

#[test]
fn a_taken_port_is_said_before_anything_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (started, said) = run(janua(folder.path(), &["serve", "--listen", &address]));
    assert!(!started && said.contains(&format!("cannot listen on {address}")), "{said}");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn another_master_key_or_none_does_not_open_the_database_and_makes_no_new_one() {
    let folder = tempfile::tempdir().unwrap();
    drop(Server::start(folder.path(), &[]));
    let key = folder.path().join("data/master.key");
    let original = fs::read_to_string(&key).unwrap();

    let said = refusal(folder.path(), &[("JANUA_MASTER_KEY", &"ab".repeat(32))]);
    assert!(said.contains("does not open this database"), "{said}");
    fs::write(&key, "cd".repeat(32)).unwrap();
    assert!(refusal(folder.path(), &[]).contains("does not open this database"));
    fs::write(&key, "half a key").unwrap();
    assert!(refusal(folder.path(), &[]).contains("64 hexadecimal characters"));
    fs::remove_file(&key).unwrap();
    assert!(refusal(folder.path(), &[]).contains("master.key is missing"));
    assert!(!key.exists(), "no new key over old data");

    drop(Server::start(folder.path(), &[("JANUA_MASTER_KEY", &original)]));
    fs::write(&key, &original).unwrap();
    assert_eq!(Server::start(folder.path(), &[]).get("/health").0, 200);
}

#[test]
fn doctor_finds_what_is_wrong_and_says_how_to_mend_it() {
    let folder = tempfile::tempdir().unwrap();
    let (well, said) = run(janua(folder.path(), &["doctor"]));
    assert!(well, "a fresh folder is fine: {said}");
    assert!(!folder.path().join("data/master.key").exists(), "looking makes no key");

    drop(Server::start(folder.path(), &[]));
    let (well, said) = run(janua(folder.path(), &["doctor"]));
    assert!(well && said.contains("opens this database") && said.contains("up to date"), "{said}");

    let key = folder.path().join("data/master.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = janua(folder.path(), &["doctor"]);
    command.env("JANUA_SMTP_URL", "smtp://127.0.0.1:1").env("JANUA_GITHUB_CLIENT_ID", "x");
    let (well, said) = run(command);
    assert!(!well);
    assert!(said.contains("chmod 600") && said.contains("WRONG mail"), "{said}");
    assert!(said.contains("WRONG providers: github_client_secret"), "{said}");
}

#[test]
fn the_other_commands_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (ran, said) = run(janua(folder.path(), &["migrate"]));
    assert!(ran && said.contains("applied foundation"), "{said}");
    let (ran, said) = run(janua(folder.path(), &["migrate"]));
    assert!(ran && said.contains("up to date"), "{said}");
    let (ran, said) = run(janua(folder.path(), &["jobs", "dead"]));
    assert!(ran && said.is_empty(), "{said}");
    let (ran, said) = run(janua(folder.path(), &["jobs", "retry", "019c137e-c107-7f36-aa03-c8508b253019"]));
    assert!(!ran && said.contains("no failed job"), "{said}");
    let (ran, said) = run(janua(folder.path(), &["config"]));
    assert!(ran && said.contains("JANUA_DATABASE_URL"), "{said}");
    let mut command =
        janua(folder.path(), &["config", "--effective", "--set", "smtp_url=smtps://u:hunter2@mail.example"]);
    command.env("JANUA_OPERATOR_NAME", "Example Ltd");
    let (ran, said) = run(command);
    assert!(ran && said.contains("smtp_url = set  (flag)") && !said.contains("hunter2"), "{said}");
    assert!(said.contains("operator_name = Example Ltd  (variable JANUA_OPERATOR_NAME)"), "{said}");
    let (ran, said) = run(janua(folder.path(), &["config", "--effective", "--json", "--listen", "127.0.0.1:9"]));
    let settings: serde_json::Value = serde_json::from_str(&said).unwrap();
    let listen = settings.as_array().unwrap().iter().find(|setting| setting["name"] == "listen").unwrap();
    assert!(ran && listen["value"] == "127.0.0.1:9" && listen["source"] == "flag", "{listen}");
    let (ran, said) = run(janua(folder.path(), &["config", "--effective", "--set", "workers=many"]));
    assert!(!ran && said.contains("workers: must be a whole number"), "{said}");
    let (ran, said) = run(janua(folder.path(), &["--version"]));
    assert!(ran && said.starts_with("janua 0."), "{said}");
    let (ran, said) = run(janua(folder.path(), &["--help"]));
    assert!(ran && said.contains("janua doctor") && said.contains("Examples"), "{said}");
}
