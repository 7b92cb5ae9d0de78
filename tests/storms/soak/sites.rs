//! Files of users, and a site that is deployed again and again while visitors read it.
use std::{
    fs,
    net::SocketAddr,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Area, Soak};
use crate::{one_node::Dice, support::people::text};

const BASE: &str = "http://localhost:9";
pub const SITE: &str = "\r\nHost: shop.localhost";

impl Soak {
    pub fn store(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.upload(dice);
            Self::pause(dice, 300);
        }
    }

    fn user(&self) -> String {
        format!("{}{}", self.bearer(), Self::key(&self.public))
    }

    /// Uploads a file, reads it, and deletes every fourth one.
    fn upload(&self, dice: &mut Dice) -> Option<()> {
        let (length, seed) = (usize::try_from(1 + dice.roll(60_000)).unwrap(), dice.roll(u64::MAX));
        let bytes = content(length, seed);
        let wish = json!({ "name": format!("{seed}.txt"), "contentType": "text/plain", "size": length });
        let offer =
            self.ask(Area::Storage, dice, "POST /storage/presign-upload", &self.user(), &wish, &[200])?.json();
        let put = format!("\r\nContent-Type: text/plain{}", further(&offer["headers"]));
        self.at_url(dice, "PUT", &text(&offer["uploadUrl"]), &put, &bytes, &[200, 204])?;
        let id = text(&offer["objectId"]);
        let path = format!("POST /storage/finalize/{id}");
        let done = self.ask(Area::Storage, dice, &path, &self.user(), &json!({}), &[200])?.json();
        if done["status"] != "ready" {
            self.wrong(format!("a finalized object is not ready: {done}"));
        }
        self.note(|ledger| ledger.objects.insert(id.clone(), (length, seed)));
        self.is_stored(dice, &id, length, seed)?;
        if dice.roll(4) == 0 {
            let object = format!("/storage/objects/{id}");
            // From here on it may be gone.
            self.note(|ledger| ledger.objects.remove(&id));
            let user = self.user();
            let reply =
                self.ask(Area::Storage, dice, &format!("DELETE {object}"), &user, &Value::Null, &[204, 404])?;
            if reply.status == 404 && reply.unanswered == 0 {
                self.wrong(format!("object {id} was lost before it was deleted"));
            }
            self.everywhere(Area::Storage, "a deleted object", &format!("GET {object}"), &user, b"", 404);
            self.note(|ledger| ledger.deleted_objects.insert(id));
        }
        Some(())
    }

    /// Reads an object and compares it byte for byte.
    pub fn is_stored(&self, dice: &mut Dice, id: &str, length: usize, seed: u64) -> Option<()> {
        let path = format!("GET /storage/objects/{id}");
        let object = self.ask(Area::Storage, dice, &path, &self.user(), &Value::Null, &[200])?.json();
        let bytes = self.at_url(dice, "GET", &text(&object["downloadUrl"]), "", b"", &[200])?;
        if bytes != content(length, seed) {
            self.wrong(format!("object {id} of {length} bytes is read as {} other bytes", bytes.len()));
        }
        Some(())
    }

    /// A signed URL leads to any node, or to the bucket.
    fn at_url(
        &self,
        dice: &mut Dice,
        method: &str,
        url: &str,
        more: &str,
        body: &[u8],
        good: &[u16],
    ) -> Option<Vec<u8>> {
        if let Some(path) = url.strip_prefix(BASE) {
            let reply = self.ask_with(Area::Storage, dice, &format!("{method} {path}"), more, body, good)?;
            return Some(reply.body);
        }
        let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'))?;
        let (to, began): (SocketAddr, _) = (host.parse().ok()?, Instant::now());
        let head = format!("{method} /{path} HTTP/1.1\r\nHost: {host}{more}");
        loop {
            match self.once(Area::Storage, None, to, &head, body) {
                Some((status, body)) if good.contains(&status) => return Some(body),
                Some((status, body)) => {
                    let said = String::from_utf8_lossy(&body);
                    self.wrong(format!("{method} at the bucket: {status} {said}"));
                    return None;
                }
                None if began.elapsed() > Duration::from_mins(3) => return None,
                None => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    pub fn deploy(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.publish(dice);
            Self::pause(dice, 800);
        }
    }

    /// Makes the next number live.
    pub fn publish(&self, dice: &mut Dice) -> Option<()> {
        let number = self.note(|ledger| {
            ledger.begun += 1;
            ledger.begun
        });
        let more = format!("\r\nAuthorization: Bearer {}\r\nContent-Type: application/gzip", self.secret);
        let path = format!("POST /apps/{}/deploy", self.app);
        let reply = self.ask_with(Area::Deploys, dice, &path, &more, &archive(number), &[200])?;
        if reply.json()["status"] != "ready" {
            self.wrong(format!("deployment {number}: {}", reply.json()));
        }
        self.note(|ledger| ledger.deployed.push((Instant::now(), number)));
        Some(())
    }

    /// A visitor of one node's edge: what is read is one whole deployment, and not an older one than was acknowledged.
    pub fn visit(&self, node: usize) {
        let mut turn = 0;
        while !self.is_over() {
            turn += 1;
            self.look(node, ["/", "/long.txt"][turn % 2]);
            thread::sleep(Duration::from_millis(40));
        }
    }

    pub fn look(&self, node: usize, path: &str) -> Option<u64> {
        let began = Instant::now();
        let head = format!("GET {path} HTTP/1.1{SITE}");
        let (status, body) = self.once(Area::Sites, Some(node), self.world.nodes[node].edge, &head, b"")?;
        self.is_whole(node, path, began, status, &body)
    }

    /// The number of the deployment that was read.
    pub fn is_whole(&self, node: usize, path: &str, began: Instant, status: u16, body: &[u8]) -> Option<u64> {
        let body = String::from_utf8_lossy(body).into_owned();
        let number = body.lines().next().and_then(|line| line.parse::<u64>().ok());
        let Some(number) = number.filter(|number| status == 200 && body == page(path, *number)) else {
            let body: String = body.chars().take(200).collect();
            self.wrong(format!("{path} at the edge of node {node} is no whole deployment: {status} {body}"));
            return None;
        };
        let (known, begun) = self.note(|ledger| {
            let settled = ledger.deployed.iter().filter(|(at, _)| began.duration_since(*at) > Duration::from_secs(2));
            (settled.max_by_key(|(_, number)| *number).copied(), ledger.begun)
        });
        if let Some((at, known)) = known
            && (number < known && !self.windows.cut_off(at) || number > begun)
        {
            self.wrong(format!(
                "node {node} serves {number}, and {known} was acknowledged {:.1?} before",
                began.duration_since(at)
            ));
        }
        Some(number)
    }
}

/// Headers that an offer names.
fn further(headers: &Value) -> String {
    let all = headers.as_object().into_iter().flatten();
    let others = all.filter(|(name, _)| !["content-type", "content-length"].contains(&name.to_lowercase().as_str()));
    let lines: Vec<_> = others.map(|(name, value)| format!("\r\n{name}: {}", text(value))).collect();
    lines.concat()
}

fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let words: Vec<u8> = (0..64).map(|_| b'a' + u8::try_from(dice.roll(26)).unwrap()).collect();
    words.into_iter().cycle().take(length).collect()
}

fn page(path: &str, number: u64) -> String {
    let line = format!("{number}\n");
    if path == "/" { line } else { line.repeat(40_000) }
}

/// A site whose every file says its number.
fn archive(number: u64) -> Vec<u8> {
    let room = tempfile::tempdir().unwrap();
    fs::write(room.path().join("index.html"), page("/", number)).unwrap();
    fs::write(room.path().join("long.txt"), page("/long.txt", number)).unwrap();
    for n in 0..5 {
        fs::write(room.path().join(format!("{n}.txt")), format!("{number}-{n}\n")).unwrap();
    }
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(room.path()).arg(".").output().expect("tar runs");
    packed.stdout
}
