//! For operators: the access log, the metrics, and what the doctor finds.
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    SERVE, Server, janua,
    people::{PASSWORD, ask, owner, text, well},
    run,
    smtp::Moody,
    wait,
};

/// A server whose log goes to a file.
fn logging(folder: &Path, settings: &[(&str, &str)]) -> Server {
    let mut command = janua(folder, SERVE);
    command.env("JANUA_LOG_FORMAT", "json").envs(settings.iter().copied());
    Server::logging_to(command, fs::File::create(folder.join("log")).unwrap().into())
}

fn access_lines(folder: &Path) -> Vec<Value> {
    let log = fs::read_to_string(folder.join("log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "access").collect()
}

fn line_with(folder: &Path, field: &str, value: &str) -> Value {
    wait(&format!("a line with {field} {value}"), || {
        access_lines(folder).into_iter().find(|line| line[field] == value)
    })
}

#[test]
fn the_access_log_names_routes_and_never_paths_or_queries() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [("JANUA_LOG_REQUESTS", "all"), ("JANUA_TRUSTED_PROXIES", "127.0.0.1")];
    let server = logging(folder.path(), &settings);
    server.get("/auth/verify?token=hunter2");
    server.get("/legal/hunter2");
    server.get("/hunter2/nowhere?code=hunter2");
    server.send(b"HUNTER2 /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    server.send(
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: request-of-the-test\r\nX-Forwarded-For: 2001:db8:1:2:3::4\r\n\
          Connection: close\r\n\r\n",
    );
    let line = line_with(folder.path(), "request", "request-of-the-test");
    assert_eq!((&line["method"], &line["route"], &line["status"]), (&"GET".into(), &"/health".into(), &200.into()));
    assert_eq!(line["network"], "2001:db8:1:2::", "the client's network behind the proxy");
    assert!(line["bytes"].as_u64().unwrap() > 50 && line["ms"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(line_with(folder.path(), "route", "/auth/verify")["method"], "GET");
    assert_eq!(line_with(folder.path(), "route", "unknown")["status"], 404);
    assert_eq!(line_with(folder.path(), "method", "other")["status"], 405);
    let log = fs::read_to_string(folder.path().join("log")).unwrap().to_lowercase();
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn the_access_log_names_the_app() {
    let folder = tempfile::tempdir().unwrap();
    let server = logging(folder.path(), &[("JANUA_LOG_REQUESTS", "all")]);
    let owner = owner(&server, &[folder.path()], "ada@example.com");
    let body = serde_json::json!({ "type": "publishable", "environment": "live", "name": "web" });
    let key = text(&well(ask(&server, "POST", &owner.keys(), &owner.access, &body))["value"]);
    assert_eq!(line_with(folder.path(), "route", "/apps/{appId}/keys")["app"], owner.app.as_str());
    let body = format!(r#"{{"email":"ada@example.com","password":"{PASSWORD}"}}"#);
    let request = format!(
        "POST /auth/login HTTP/1.1\r\nHost: x\r\nX-Service-App-Key: {key}\r\nX-Request-Id: with-the-key\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(server.send(request.as_bytes()).0, 200);
    assert_eq!(line_with(folder.path(), "request", "with-the-key")["app"], owner.app.as_str());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains(&key) && !log.contains(PASSWORD), "no credentials");
}

#[test]
fn the_access_log_is_off_unless_asked_for_and_can_be_limited_to_errors() {
    let folder = tempfile::tempdir().unwrap();
    let server = logging(folder.path(), &[]);
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.get("/nowhere").0, 404);
    drop(server);
    assert!(access_lines(folder.path()).is_empty());
    let server = logging(folder.path(), &[("JANUA_LOG_REQUESTS", "errors")]);
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.get("/nowhere").0, 404);
    line_with(folder.path(), "route", "unknown");
    assert_eq!(access_lines(folder.path()).len(), 1, "refusals and errors alone");
}

/// How long as many requests take, on one connection.
fn time_of(server: &Server, requests: usize) -> Duration {
    let mut visit = server.visit();
    let started = Instant::now();
    for _ in 0..requests {
        assert_eq!(visit.ask("GET", "/health?part=live", "", "").0, 200);
    }
    started.elapsed()
}

#[test]
fn an_access_log_that_nobody_reads_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // The pipe has room for 64 KiB, and the queue for 8,192 lines.
    let (unread, pipe) = std::io::pipe().unwrap();
    let mut command = janua(folder.path(), SERVE);
    command.env("JANUA_LOG_REQUESTS", "all").env("JANUA_RATE_LIMITS", "off");
    let server = Server::logging_to(command, pipe.into());
    let took = time_of(&server, 9_000);
    assert!(took < Duration::from_secs(30), "{took:?}");
    let (_, said) = server.get("/metrics");
    let dropped = said.lines().find_map(|line| line.strip_prefix("janua_log_lines_dropped_total "));
    assert!(dropped.unwrap().trim().parse::<u64>().unwrap() > 0, "lines were dropped, and counted");
    drop(unread);
}

fn figure(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing:\n{metrics}")).trim().parse().unwrap()
}

#[test]
fn the_metrics_tell_of_process_database_queues_mails_and_webhooks() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    owner(&server, &[folder.path()], "ada@example.com");
    let (status, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let started = figure(&metrics, "process_start_time_seconds");
    assert!((now - 120.0..=now + 2.0).contains(&started), "{started} and it is {now}");
    assert!(figure(&metrics, "process_cpu_seconds_total") > 0.0);
    let resident = figure(&metrics, "process_resident_memory_bytes");
    assert!((10e6..1e9).contains(&resident), "{resident}");
    assert!(figure(&metrics, "process_open_fds") >= 8.0 && figure(&metrics, "process_max_fds") >= 256.0);
    assert!(figure(&metrics, "janua_database_connections_max") >= 2.0);
    for name in ["janua_database_waiting", "janua_database_writes_waiting", "janua_jobs_dead", "janua_mails_queued"] {
        assert!(figure(&metrics, name) >= 0.0);
    }
    assert!(figure(&metrics, "janua_mails_total{outcome=\"sent\"}") >= 1.0);
    assert!(figure(&metrics, "janua_mails_total{outcome=\"failed\"}").abs() < 0.1, "there from the start");
    for name in ["janua_webhook_deliveries_queued", "janua_webhook_oldest_due_seconds", "janua_mails_oldest_seconds"]
    {
        assert!(figure(&metrics, name).abs() < 0.1, "{name}");
    }
    assert!(figure(&metrics, "janua_webhook_attempts_total{outcome=\"delivered\"}").abs() < 0.1);
    let documented = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md")).unwrap();
    for line in metrics.lines().filter(|line| !line.starts_with('#') && line.contains("janua_")) {
        let name = line.split(['{', ' ']).next().unwrap();
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(documented.contains(name), "docs/operate.md does not list {name}");
    }
}

fn doctor(folder: &Path, settings: &[(&str, &str)]) -> (bool, String) {
    let mut command = janua(folder, &["doctor"]);
    command.envs(settings.iter().copied());
    run(command)
}

#[test]
fn the_doctor_says_what_a_public_installation_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (well, said) = doctor(folder.path(), &[]);
    assert!(well && said.contains("ok    proxy: none") && said.contains("note  mail: goes to"), "{said}");
    assert!(said.contains("note  operator:") && said.contains("MiB free in"), "{said}");

    let public = [("JANUA_BASE_URL", "https://id.example.com")];
    let (well, said) = doctor(folder.path(), &public);
    assert!(!well && said.contains("WRONG mail:") && said.contains("Set JANUA_SMTP_URL"), "{said}");
    assert!(said.contains("note  proxy: the base URL is https, but trusted_proxies is empty"), "{said}");
    assert!(said.contains("note  operator:") && said.contains("JANUA_OPERATOR_NAME"), "{said}");

    let mut smtp = Moody::new();
    smtp.mood("ok");
    smtp.start();
    let url = format!("smtp://127.0.0.1:{}", smtp.port);
    let better = [
        public[0],
        ("JANUA_TRUSTED_PROXIES", "127.0.0.1"),
        ("JANUA_OPERATOR_NAME", "Example Ltd"),
        ("JANUA_OPERATOR_EMAIL", "hello@example.com"),
        ("JANUA_OPERATOR_ADDRESS", "1 Main Street"),
        ("JANUA_SMTP_URL", url.as_str()),
    ];
    let (well, said) = doctor(folder.path(), &better);
    assert!(well && said.contains("note  mail:") && said.contains("Set JANUA_MAIL_FROM"), "{said}");
    let mut best = better.to_vec();
    best.push(("JANUA_MAIL_FROM", "Example <no-reply@mail.example.com>"));
    let (well, said) = doctor(folder.path(), &best);
    assert!(well && said.contains("ok    mail:") && said.contains("ok    proxy: X-Forwarded-For"), "{said}");
    assert!(said.contains("ok    operator: Example Ltd"), "{said}");
    best.push(("JANUA_MAIL_FROM", "Example <no-reply@example.org>"));
    assert!(doctor(folder.path(), &best).1.contains("SPF, DKIM and DMARC of example.org"));
    best.push(("JANUA_TRUSTED_PROXIES", "0.0.0.0/0"));
    let (well, said) = doctor(folder.path(), &best);
    assert!(!well && said.contains("WRONG proxy: trusted_proxies contains every IP address"), "{said}");
}
