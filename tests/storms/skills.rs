//! A skill that is published while the server dies at each step.
use std::{cell::Cell, fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    deploys::send,
    storage::is_swept,
    support::{
        Server,
        clock::Wound,
        crash::{Before, Heard},
        people::{self, login, member, text, well},
    },
};

const SETTINGS: &[(&str, &str)] = &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9")];

/// A skill with several files, as `tar` packs it. The same content gives the same bytes.
pub fn package(room: &Path, version: &str, words: &str) -> Vec<u8> {
    let folder = room.join("pdf-tools");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("references")).unwrap();
    let skill = "---\nname: pdf-tools\ndescription: Reads PDF files.\nmetadata:\n  version:";
    fs::write(folder.join("SKILL.md"), format!("{skill} \"{version}\"\n---\n\n# {words}\n")).unwrap();
    for number in 0..20 {
        fs::write(folder.join(format!("references/{number}.md")), format!("{words} {number}\n").repeat(500)).unwrap();
    }
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-czf", "-", "-C"]);
    command.arg(room).arg("pdf-tools").output().expect("tar runs").stdout
}

fn publishes(server: &Server, token: &str, package: &[u8]) -> Heard {
    let head = format!(
        "POST /skills?namespace=acme HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/gzip"
    );
    let (status, said) = send(server.address, &head, package).ok()?;
    Some((status, serde_json::from_slice(&said).unwrap_or_default()))
}

fn get(server: &Server, token: &str, path: &str) -> (u16, Vec<u8>) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}");
    send(server.address, &head, b"").expect("an answer")
}

/// All of a published skill: what is listed, the package, and every file as MCP clients read it.
fn is_whole(server: &Server, token: &str, package: &[u8], heard: &Heard) {
    let listed: Value = serde_json::from_slice(&get(server, token, "/skills").1).unwrap();
    assert_eq!(listed["skills"][0]["slug"], "acme.pdf-tools", "{heard:?}");
    let versions = people::ask(server, "GET", "/skills/acme.pdf-tools/versions", token, &Value::Null).1;
    assert_eq!(versions["versions"].as_array().map(Vec::len), Some(1), "{heard:?}: {versions}");
    let (status, bytes) = get(server, token, "/skills/acme.pdf-tools/download");
    assert!(status == 200 && bytes == package, "byte for byte: {status} {heard:?}");
    let ask = |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        well(people::ask(server, "POST", "/mcp", token, &body))["result"].clone()
    };
    let skill = &ask("skills/list", json!({}))["skills"][0];
    let files = skill["resources"].as_array().unwrap_or_else(|| panic!("{heard:?}: {skill}"));
    assert_eq!(files.len(), 21);
    for file in files {
        let read = ask("resources/read", json!({ "uri": file["uri"] }));
        let content = read["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{heard:?}: {read}"));
        assert_eq!(Some(content.len() as u64), file["size"].as_u64(), "{}", file["uri"]);
    }
}

#[test]
fn j5_j6_a_publish_that_is_killed_is_whole_or_nothing_and_can_be_repeated() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], "ada@example.com");
    let token = text(&well(login(&server, "ada@example.com", people::PASSWORD))["accessToken"]);
    well(people::ask(&server, "POST", "/org", &token, &json!({ "name": "Acme", "slug": "acme" })));
    drop(server);
    let room = tempfile::tempdir().unwrap();
    let (first, other) = (package(room.path(), "1.0.0", "first"), package(room.path(), "1.0.0", "other"));
    let (whole, nothing, wound) = (Cell::new(0), Cell::new(0), Wound::new());
    let before = Before { folder: folder.path(), settings: SETTINGS, room: env!("CARGO_TARGET_TMPDIR").into() };
    before.sweep(
        |server| publishes(server, &token, &first),
        |folder, server, heard| {
            assert!(matches!(heard, None | Some((200, _))), "{heard:?}");
            let (status, _) = get(server, &token, "/skills/acme.pdf-tools");
            match (status, heard) {
                (200, _) => {
                    whole.set(whole.get() + 1);
                    is_whole(server, &token, &first, heard);
                }
                (404, None) => {
                    nothing.set(nothing.get() + 1);
                    let listed: Value = serde_json::from_slice(&get(server, &token, "/skills").1).unwrap();
                    assert_eq!(listed["skills"], json!([]), "nothing of it is seen");
                }
                (status, heard) => panic!("what was acknowledged is there: {status} {heard:?}"),
            }
            // The client repeats what it does not know the outcome of.
            let again = publishes(server, &token, &first).expect("an answer");
            assert_eq!(again.0, 200, "{heard:?}: {}", again.1);
            is_whole(server, &token, &first, heard);
            let refused = publishes(server, &token, &other).expect("an answer");
            assert_eq!(refused.0, 409, "other bytes under this version: {}", refused.1);
            // The package and its files, and nothing of what was begun.
            is_swept(&wound, 3, folder, server, ("skills", 2));
        },
    );
    let (whole, nothing) = (whole.get(), nothing.get());
    println!("whole after {whole} runs, nothing after {nothing}");
    assert!(whole > 0 && nothing > 0, "it died before and after the commit");
}
