//! The quick start of an app: each sample that the console shows signs a person in to the running binary.
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::support::{
    Server,
    browser::Browser,
    people::{self, Owner, PASSWORD},
    wait,
};

#[path = "../../docs/samples/quick-start/rust.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "a program of its own, of which the test runs the server")]
mod in_rust;

const EMAIL: &str = "ada@example.com";
const SIGNED_IN: &str = "Signed in as ada@example.com.";

struct Stage {
    server: Server,
    owner: Owner,
    folder: tempfile::TempDir,
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples/quick-start").join(name).canonicalize().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap().port()
}

/// The status, the head and the body of an answer.
fn get(port: u16, path: &str, cookie: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{cookie}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, head.to_owned(), body.to_owned())
}

fn header(head: &str, name: &str) -> String {
    let found = head.lines().filter_map(|line| line.split_once(": ")).find(|(one, _)| one.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("{name} in {head}")).1.to_owned()
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), &[]);
        let owner = people::owner(&server, &[folder.path()], EMAIL);
        let redirects = json!({ "redirectUris": ["http://127.0.0.1/callback"] });
        people::well(people::ask(&server, "PATCH", &format!("/apps/{}", owner.app), &owner.access, &redirects));
        Self { server, owner, folder }
    }

    fn issuer(&self) -> String {
        format!("http://localhost:{}", self.server.address.port())
    }

    fn environment(&self, port: u16) -> [(&'static str, String); 3] {
        let redirect = format!("http://127.0.0.1:{port}/callback");
        [("ISSUER", self.issuer()), ("CLIENT_ID", self.owner.app.clone()), ("REDIRECT_URL", redirect)]
    }

    /// A site that listens on this port: its page, the way to the sign-in and back, and a stranger's way back.
    fn visit(&self, language: &str, port: u16) {
        wait(language, || TcpStream::connect(("127.0.0.1", port)).ok());
        let (status, _, page) = get(port, "/", "");
        assert!(status == 200 && page.contains("href=\"/login\""), "{language}: {page}");
        let (status, head, _) = get(port, "/login", "");
        assert_eq!(status, 302, "{language}");
        let cookie = header(&head, "set-cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{language}: {cookie}");
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
        let back = Browser::new(&self.server).go_through(&header(&head, "location"), EMAIL, PASSWORD);
        let path = &back[back.find("/callback").unwrap()..];
        assert_eq!(get(port, path, "").0, 400, "{language}: somebody else's browser");
        let (status, _, body) = get(port, path, &cookie);
        assert!(status == 200 && body.contains(SIGNED_IN), "{language}: {status} {body}");
        assert_eq!(get(port, path, &cookie).0, 400, "{language}: the code is used up");
    }

    /// A program that says where its person must go, and reads where they came back to.
    fn talk(&self, language: &str, mut command: Command) -> String {
        command.envs(self.environment(free_port())).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running(command.spawn().unwrap_or_else(|error| panic!("{language}: {error}")));
        let mut output = BufReader::new(running.0.stdout.take().unwrap());
        let mut link = String::new();
        output.read_line(&mut link).unwrap();
        let back = Browser::new(&self.server).go_through(link.trim(), EMAIL, PASSWORD);
        writeln!(running.0.stdin.take().unwrap(), "{back}").unwrap();
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(running.0.wait().unwrap().success(), "{language}: {said}");
        said
    }
}

/// Just enough of a browser for the page: what it stores, where it goes, what it shows.
const IN_A_PAGE: &str = "
import { createInterface } from 'node:readline'
const [page] = process.argv.slice(2)
const stored = new Map()
let leave
const left = new Promise((resolve) => { leave = resolve })
const elements = { who: { textContent: '' }, 'sign-in': { addEventListener: (_, act) => { elements.act = act } } }
Object.assign(globalThis, {
  document: { getElementById: (id) => elements[id] },
  history: { replaceState: () => {} },
  location: { search: '', pathname: '/callback', assign: (to) => leave(to) },
  sessionStorage: {
    getItem: (name) => stored.get(name) ?? null,
    setItem: (name, value) => stored.set(name, value),
    removeItem: (name) => stored.delete(name),
  },
})
await import(`file://${page}?1`)
await elements.act()
console.log(await left)
for await (const back of createInterface({ input: process.stdin })) {
  location.search = new URL(back).search
  await import(`file://${page}?2`)
  console.log(elements.who.textContent)
  break
}
process.exit(0)
";

#[test]
fn every_sample_of_the_quick_start_signs_a_person_in() {
    let stage = Stage::set();
    let start = |command: &mut Command, port: u16| {
        Running(command.envs(stage.environment(port)).stdout(Stdio::null()).spawn().expect("the sample starts"))
    };

    let port = free_port();
    let node = start(Command::new("node").arg(sample("node.mjs")), port);
    stage.visit("Node", port);
    drop(node);

    let port = free_port();
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
    let python = start(Command::new(python).arg(sample("python.py")).stderr(Stdio::null()), port);
    stage.visit("Python", port);
    drop(python);

    let port = free_port();
    let [issuer, client_id, redirect_url] = stage.environment(port).map(|(_, value)| value);
    let settings = in_rust::Settings { issuer, client_id, redirect_url: redirect_url.parse().unwrap() };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(in_rust::serve(settings)).unwrap();
    });
    stage.visit("Rust", port);

    let said = stage.talk("curl", {
        let mut shell = Command::new("bash");
        shell.arg(sample("curl.sh"));
        shell
    });
    assert!(said.contains("\"email\":\"ada@example.com\""), "curl: {said}");

    // The page as the console shows it, with the values of the app in it.
    let page = fs::read_to_string(sample("browser.html")).unwrap();
    let [issuer, client_id, _] = stage.environment(0).map(|(_, value)| value);
    let page = page.replace("https://id.example.com", &issuer).replace("YOUR_CLIENT_ID", &client_id);
    let page = page.replace("http://localhost:3000/callback", "http://127.0.0.1:3000/callback");
    let script = page.split("<script type=\"module\">").nth(1).unwrap().split("</script>").next().unwrap();
    let folder = stage.folder.path();
    fs::write(folder.join("page.mjs"), script).unwrap();
    fs::write(folder.join("browser.mjs"), IN_A_PAGE).unwrap();
    let mut browser = Command::new("node");
    browser.arg(folder.join("browser.mjs")).arg(folder.join("page.mjs"));
    assert_eq!(stage.talk("JavaScript", browser).trim(), SIGNED_IN);

    let port = free_port();
    fs::copy(sample("go.go"), folder.join("main.go")).unwrap();
    let built = Command::new("go").args(["build", "-o", "sample", "main.go"]).current_dir(folder).status();
    assert!(built.expect("go: scripts/setup installs it").success(), "Go");
    let go = start(&mut Command::new(folder.join("sample")), port);
    stage.visit("Go", port);
    drop(go);
}
