//! Commands for developers that manage one thing each: all against one server, in the order in which a developer needs them.
use std::{fs, time::Instant};

use serde_json::{Value, json};

use crate::{
    cli::Machine,
    support::{
        Server,
        people::{ALLOW_HOOKS, PASSWORD, ask, login, mail_in, member, owner, text, well},
        token_in,
    },
};

/// A user signs in to an app.
fn enter(server: &Server, key: &str, email: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let body = json!({ "email": email, "password": PASSWORD });
    let asked = reqwest::Client::new().post(format!("http://{}/auth/login", server.address)).json(&body);
    let answer = runtime.block_on(asked.header("x-service-app-key", key).send()).unwrap();
    assert_eq!(answer.status(), 200);
}

/// The field of an answer, or of the first entry of its list.
#[derive(Debug)]
enum Says {
    Field(&'static str, Value),
    Lists(&'static str, usize),
    Text(&'static str),
    /// An exit code, and a part of what is printed.
    Refuses(i32, &'static str),
}
use Says::{Field, Lists, Refuses, Text};

fn check(machine: &Machine, command: &str, says: &Says) {
    let arguments: Vec<&str> = command.split_whitespace().collect();
    match says {
        Text(words) => {
            let ran = machine.run(&arguments).well();
            assert!(ran.out.contains(words), "{command}: {}{}", ran.out, ran.err);
        }
        Refuses(code, words) => {
            let ran = machine.run(&arguments);
            assert_eq!(ran.code, *code, "{command}: {}{}", ran.out, ran.err);
            assert!(ran.err.contains(words), "{command}: {}{}", ran.out, ran.err);
        }
        Field(path, value) => {
            let answer = machine.well(&arguments);
            let found = path.split('.').fold(&answer, |value, name| &value[name]);
            assert_eq!(found, value, "{command}: {path} in {answer}");
        }
        Lists(field, count) => {
            let answer = machine.well(&arguments);
            let list = answer[*field].as_array().unwrap_or_else(|| panic!("{command}: no {field} in {answer}"));
            assert_eq!(list.len(), *count, "{command}: {answer}");
        }
    }
}

#[test]
fn organizations_apps_keys_members_and_users_are_managed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &[ALLOW_HOOKS, ("JANUA_EDGE_LISTEN", "127.0.0.1:0")]);
    let folders = [folder.path()];
    let ada = owner(&server, &folders, "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);

    // Loose: a start that suddenly takes seconds is seen, and a busy machine is not.
    let fastest = (0..3).map(|_| {
        let begun = Instant::now();
        machine.run(&["--version"]).well();
        begun.elapsed().as_millis()
    });
    assert!(fastest.min().unwrap() < 1500, "a command starts at once");

    let publishable = text(&machine.well(&["keys", "create", "--type", "publishable"])["value"]);
    let spare = text(&machine.well(&["keys", "create", "--name", "spare"])["id"]);
    member(&server, &folders, "bob@example.com");
    enter(&server, &publishable, "bob@example.com");
    machine.well(&["members", "invite", "bob@example.com"]);
    let bob = well(login(&server, "bob@example.com", PASSWORD));
    let token = token_in(&mail_in(&folders, "bob@example.com", "invite"));
    let access = text(&bob["accessToken"]);
    well(ask(&server, "POST", "/auth/accept-invite", &access, &json!({ "token": token })));
    let bob = text(&bob["user"]["id"]);

    for (command, says) in [
        (
            "openapi".to_owned(),
            Field("info.title", machine.well(&["api", "GET", "/openapi.json"])["info"]["title"].clone()),
        ),
        ("orgs list".to_owned(), Lists("orgs", 1)),
        ("orgs list".to_owned(), Text("Example")),
        ("orgs show".to_owned(), Field("id", json!(ada.org))),
        ("apps show".to_owned(), Field("id", json!(ada.app))),
        ("apps show".to_owned(), Text("Shop")),
        ("keys list".to_owned(), Lists("keys", 2)),
        (format!("keys delete {spare}"), Refuses(2, "--yes")),
        (format!("keys delete {spare} --yes"), Text("")),
        ("keys list".to_owned(), Lists("keys", 1)),
        (format!("members role {bob} admin"), Field("role", json!("admin"))),
        ("members list".to_owned(), Lists("members", 2)),
        (format!("members remove {bob}"), Refuses(2, "--yes")),
        (format!("members remove {bob} --yes"), Field("removed", json!(true))),
        ("members list".to_owned(), Lists("members", 1)),
        ("users list".to_owned(), Lists("users", 1)),
        (format!("users show {bob}"), Text("bob@example.com")),
        (format!("users block {bob}"), Field("blocked", json!(true))),
        (format!("users unblock {bob}"), Field("blocked", json!(false))),
        (format!("users show {bob}"), Field("blockedAt", Value::Null)),
        (format!("users sign-out {bob}"), Field("signedOut", json!(true))),
        (format!("users show {bob}"), Lists("sessions", 0)),
        ("usage --meter orders".to_owned(), Refuses(1, "no meter")),
        ("email show 019c137e-c107-7f36-aa03-c8508b253019".to_owned(), Refuses(1, "Check the ID;")),
        ("domains add shop.example.com".to_owned(), Field("domain", json!("shop.example.com"))),
        ("domains check shop.example.com".to_owned(), Field("domain", json!("shop.example.com"))),
        ("domains remove shop.example.com".to_owned(), Refuses(2, "--yes")),
        ("domains remove shop.example.com --yes".to_owned(), Text("")),
        ("domains list".to_owned(), Lists("domains", 0)),
        ("apps delete --yes".to_owned(), Text("")),
        ("orgs delete".to_owned(), Refuses(2, "--yes")),
        ("orgs delete --yes".to_owned(), Text("")),
        ("orgs list".to_owned(), Lists("orgs", 0)),
    ] {
        check(&machine, &command, &says);
    }
}

#[test]
fn webhooks_deployments_agents_and_mcp_servers_are_managed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &[ALLOW_HOOKS, ("JANUA_EDGE_LISTEN", "127.0.0.1:0")]);
    let ada = owner(&server, &[folder.path()], "ada@example.com");
    let machine = Machine::with_token(&server, &ada.access);
    let site = machine.work().join("dist");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<h1>One</h1>").unwrap();
    fs::write(
        machine.work().join("server.json"),
        json!({ "version": "1.1.0", "description": "Forecasts." }).to_string(),
    )
    .unwrap();

    let deployed = text(&machine.well(&["deploy", "dist"])["id"]);
    let webhook = machine.well(&["webhooks", "create", "http://127.0.0.1:9/hook", "--events", "user.signed_in"]);
    let webhook = text(&webhook["id"]);
    let agent = machine.well(&["agents", "register", "Helper", "--framework", "langgraph"]);
    let agent = text(&agent["clientId"]);
    let wallet = "0x52908400098527886e0f7030069857d2e4169ee7";
    machine.well(&["agents", "register", "Trader", "--wallet", wallet]);
    let challenge = machine.well(&["agents", "token", "--wallet", wallet]);
    assert!(text(&challenge["message"]).to_lowercase().contains(&wallet[2..]), "{challenge}");
    let challenge = text(&challenge["challenge"]);
    let signature = format!("0x{}", "1b".repeat(65));
    let signed = machine.run(&["agents", "token", "--challenge", &challenge, "--signature", &signature]);
    assert_ne!(signed.code, 0, "a signature of another wallet: {}", signed.out);
    let mcp = text(&machine.well(&["mcp", "register", "weather", "--domain", "mcp.example.com"])["server"]["id"]);

    for (command, says) in [
        (format!("deployments show {deployed}"), Field("status", json!("ready"))),
        (format!("deployments show {deployed}"), Text("production")),
        ("webhooks list".to_owned(), Lists("webhooks", 1)),
        (format!("webhooks recover --since 1h --webhook {webhook}"), Text("missed since")),
        (format!("webhooks delete {webhook}"), Refuses(2, "--yes")),
        (format!("webhooks delete {webhook} --yes"), Field("deleted", json!(true))),
        ("webhooks list".to_owned(), Lists("webhooks", 0)),
        ("agents list".to_owned(), Lists("agents", 1)),
        ("agents list --framework".to_owned(), Lists("agents", 1)),
        (format!("agents suspend {agent} --framework"), Field("agent.status", json!("suspended"))),
        (format!("agents reactivate {agent} --framework"), Field("agent.status", json!("active"))),
        (format!("mcp publish {mcp}"), Field("server.version", json!("1.1.0"))),
        (format!("mcp logs {mcp}"), Text("")),
        (format!("mcp revoke {mcp}"), Refuses(2, "--yes")),
        (format!("mcp revoke {mcp} --yes"), Field("server.id", json!(mcp))),
    ] {
        check(&machine, &command, &says);
    }
    // There is no such record, or no resolver.
    let verified = machine.run(&["mcp", "verify", &mcp, "--method", "dns"]);
    assert_ne!(verified.code, 0, "{}", verified.out);
    assert!(verified.err.contains("proof of the domain"), "{}", verified.err);
}
