//! The documents do what they say: their shell blocks are run as printed, in order, against a freshly started server.
//!
//! A document runs in a network namespace of its own, where port 8080 is free. `cargo run --release -- …` and
//! `target/release/janua` are the binary under test; `curl` fails on an error status.
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::JANUA;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fenced block of a document.
struct Block {
    line: usize,
    info: String,
    text: String,
}

impl Block {
    /// Whether it starts a server, which goes on while later blocks run.
    fn serves(&self) -> bool {
        self.text.trim_end().ends_with(" serve")
    }
}

fn blocks(document: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, bool) = (vec![], false);
    for (number, line) in document.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                open = true;
                found.push(Block { line: number + 1, info: info.trim().to_owned(), text: String::new() });
            }
            None if open => writeln!(found.last_mut().unwrap().text, "{line}").unwrap(),
            None => {}
        }
    }
    found
}

/// What goes before the blocks. A server is stopped before the next one starts, as the text says.
const PRELUDE: &str = r#"
set -euo pipefail
ip link set lo up
server=
stop() { [ -z "$server" ] || { kill "$server"; wait "$server" || true; }; server=; }
trap 'stop; [ -z "${names:-}" ] || kill "$names"' EXIT
begin() {
  stop
  eval "$1" > server.log 2>&1 &
  server=$!
  for _ in $(seq 300); do
    ! curl -o /dev/null localhost:8080/health 2> /dev/null || return 0
    kill -0 "$server" 2>/dev/null || { cat server.log; server=; return 1; }
    sleep 0.05
  done
  cat server.log; return 1
}
"#;

/// A name server: every name leads to an IP address on the internet. Endpoints are looked up when they are registered.
const NAMES: &str = r#"
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, client = server.recvfrom(512)
    end = query.index(0, 12) + 5
    is_a = query[end - 4:end - 2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + bytes([93, 184, 216, 34]) if is_a else b""
    counts = b"\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
    server.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + answer, client)
"#;

/// Programs that stand in for others.
const CARGO: &str =
    "#!/bin/sh\n[ \"$1 $2 $3\" = 'run --release --' ] || exit 1\nshift 3\nexec target/release/janua \"$@\"\n";
const CURL: &str = "#!/bin/sh\nexec /usr/bin/env -i PATH=/usr/bin:/bin curl --silent --show-error --fail-with-body --max-time 20 \\\n  --write-out '\\n' \"$@\"\n";

/// Runs blocks as one script; answers what each printed, and fails with the first that fails.
fn run(folder: &Path, name: &str, before: &[Block], blocks: &[&Block]) -> Vec<String> {
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).unwrap();
    for (name, text) in [("cargo", CARGO), ("curl", CURL)] {
        fs::write(programs.join(name), text).unwrap();
        fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir_all(folder.join("target/release")).unwrap();
    symlink(JANUA, folder.join("target/release/janua")).unwrap();
    let mut script = PRELUDE.to_owned();
    if !blocks.iter().any(|block| block.serves()) {
        writeln!(script, "cat > names.py <<'END'\n{NAMES}END\npython3 names.py & names=$!").unwrap();
        script.push_str("begin 'JANUA_DNS_SERVERS=127.0.0.1:53 exec target/release/janua serve'\n");
    }
    for block in before.iter().filter(|block| is_runnable(block)) {
        write!(script, "\necho '-- {}'\n{}", block.line, block.text).unwrap();
    }
    for block in blocks {
        write!(script, "\necho '== {}'\n", block.line).unwrap();
        if block.serves() {
            let command = block.text.trim_end().replace('\'', "'\\''");
            // The shell becomes the server, so that it can be told to stop.
            let (variables, command) =
                command.split_at(command.find("cargo ").or_else(|| command.find("target/")).unwrap());
            writeln!(script, "begin '{variables} exec {command}'").unwrap();
        } else {
            script.push_str(&block.text);
        }
    }
    script.push_str("\necho '== 0'\nstop\n");
    fs::write(folder.join("script"), script).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "bash", "script"]).current_dir(folder).env_clear();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", programs.display());
    let output = command.env("PATH", path).output().expect("unshare (util-linux) is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.rsplit("== ").next().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}, the block at line {last}\n{errors}");
    let mut printed: Vec<String> = said.split("== ").skip(1).map(str::to_owned).collect();
    printed.pop();
    assert_eq!(printed.len(), blocks.len(), "{said}");
    printed
}

/// A JSON text as documents print it: `…` stands for the rest of a text or for further fields.
fn example(text: &str) -> Value {
    let text = text.replace(", …}", "}").replace(", …]", "]").replace("{…}", "{}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Whether an answer is like the printed one: all printed fields with values of the same kind, and the same words where
/// they are not ids, moments or shortened.
fn is_like(printed: &Value, answer: &Value) -> bool {
    match (printed, answer) {
        (Value::Object(printed), Value::Object(answer)) => {
            printed.iter().all(|(name, value)| answer.get(name).is_some_and(|answer| is_like(value, answer)))
        }
        (Value::Array(printed), Value::Array(answer)) => {
            printed.iter().all(|value| answer.iter().any(|answer| is_like(value, answer)))
        }
        (Value::String(printed), Value::String(answer)) => {
            let varies = printed.contains('…')
                || printed.as_bytes().first().is_some_and(u8::is_ascii_digit) && printed.contains('-');
            varies || printed == answer
        }
        (Value::Number(_), Value::Number(_)) | (Value::Null, _) => true,
        (printed, answer) => printed == answer,
    }
}

/// Runs the blocks that `is_run` picks, and compares printed answers (`json answer`) with what the block before them said.
fn check(name: &str, section: Option<&str>, before: &[Block], is_run: impl Fn(&Block) -> bool) -> usize {
    let text = fs::read_to_string(repository().join(name)).unwrap();
    let text = match section {
        None => text,
        Some(title) => {
            let start = text.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("{name} has no {title}"));
            let end = text[start + 4..].find("\n## ").map_or(text.len(), |end| start + 4 + end);
            // Lines before it are kept empty, so that the numbers are those of the file.
            text[..start].lines().map(|_| "\n").collect::<String>() + &text[start..end]
        }
    };
    let all = blocks(&text);
    let run_blocks: Vec<&Block> = all.iter().filter(|block| is_run(block)).collect();
    assert!(!run_blocks.is_empty(), "{name} has no blocks to run");
    let folder = tempfile::tempdir().unwrap();
    let printed = run(folder.path(), name, before, &run_blocks);
    let mut before: Option<&str> = None;
    let mut compared = 0;
    for block in &all {
        if let Some(at) = run_blocks.iter().position(|run| run.line == block.line) {
            before = Some(&printed[at]);
        } else if let Some(answers) = before.filter(|_| block.info == "json answer") {
            let expected = example(&block.text);
            let answers = answers.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let answers: Vec<Value> = answers.collect();
            let found = answers.iter().any(|answer| is_like(&expected, answer));
            assert!(found, "{name}:{}: printed {expected}\nand the answers are {answers:#?}", block.line);
            compared += 1;
        } else {
            before = None;
        }
    }
    compared
}

#[test]
fn the_first_five_minutes_of_the_readme_go_as_printed() {
    // PostgreSQL is not there; the tests of PostgreSQL have one.
    let is_run = |block: &Block| block.info == "sh" && !block.text.contains("postgres://");
    assert_eq!(check("README.md", Some("The first five minutes"), &[], is_run), 1, "printed answers");
}

/// A block that is run, as its first line says.
fn is_runnable(block: &Block) -> bool {
    block.info == "sh runnable"
}

/// The other pages go on where this one ends.
fn users() -> Vec<Block> {
    blocks(&fs::read_to_string(repository().join("docs/users.md")).unwrap())
}

#[test]
fn the_page_about_users_goes_as_printed() {
    assert!(check("docs/users.md", None, &[], is_runnable) >= 2);
}

#[test]
fn the_page_about_webhooks_goes_as_printed() {
    assert!(check("docs/webhooks.md", None, &users(), is_runnable) >= 1);
}

#[test]
fn the_page_about_the_command_line_goes_as_printed() {
    assert!(check("docs/cli.md", None, &users(), is_runnable) >= 3);
}

#[test]
fn the_page_about_oauth_goes_as_printed() {
    check("docs/oauth.md", None, &users(), is_runnable);
}

#[test]
fn the_page_about_agents_goes_as_printed() {
    assert!(check("docs/agents.md", None, &users(), is_runnable) >= 1);
}

#[test]
fn the_page_about_mcp_servers_goes_as_printed() {
    assert!(check("docs/mcp.md", None, &users(), is_runnable) >= 1);
}
