//! A real authoritative name server, for tests of what depends on DNS.
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::ports::dns::Resolver;

/// A name server for one zone.
pub struct NameServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
    zone: &'static str,
    serial: Mutex<u32>,
}

/// A text in the zone that says which of its versions is served.
const VERSION: &str = "_version";

impl NameServer {
    /// The key whose updates it takes (TSIG, hmac-sha256), and its secret.
    pub const KEY: (&str, &str) = ("janua-tests", "amFudWEgdGVzdHMgdXBkYXRlIHRoZSB6b25lISEhISE=");

    /// For `example.test`.
    pub async fn start() -> Self {
        Self::of("example.test").await
    }

    pub async fn of(zone: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free for both, as far as one can know: name servers speak TCP as well.
        let port = loop {
            let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let home = folder.path().display().to_string();
        let (key, secret) = Self::KEY;
        let config = format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {home}\nlog:\n  \
             - target: stderr\n    any: error\nkey:\n  - id: {key}\n    algorithm: hmac-sha256\n    \
             secret: {secret}\nacl:\n  - id: update\n    key: {key}\n    action: update\n    \
             update-type: TXT\nzone:\n  - domain: {zone}\n    storage: {home}\n    \
             file: {zone}.zone\n    zonefile-load: whole\n    zonefile-sync: -1\n    acl: update\n"
        );
        std::fs::write(folder.path().join("knot.conf"), config).unwrap();
        write_zone(folder.path(), zone, 1, &[]);
        let process = run(folder.path());
        let server = Self { process, port, folder, zone, serial: 1.into() };
        server.answers(zone).await;
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The zone with these records in it, and no others, from now on: each as in `shop 1 IN A 127.0.0.1`.
    pub async fn publish(&mut self, records: &[String]) {
        self.write(records);
        self.restart(self.zone).await;
    }

    /// As [`publish`](Self::publish), while the server goes on answering; answers which version of the zone this is.
    pub fn amend(&self, records: &[String]) -> u32 {
        let version = self.write(records);
        self.signal("HUP");
        version
    }

    /// Waits for a minute at most until a version of the zone, or a later one, is served; answers whether it is.
    pub async fn serves(&self, version: u32) -> bool {
        let (resolver, name) = (Resolver::new(&[self.address()]), format!("{VERSION}.{}", self.zone));
        let there = async {
            loop {
                let texts = resolver.texts(&name).await.unwrap_or_default();
                if texts.iter().any(|text| text.parse::<u32>().is_ok_and(|served| served >= version)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), there).await.is_ok()
    }

    fn write(&self, records: &[String]) -> u32 {
        let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        *serial += 1;
        write_zone(self.folder.path(), self.zone, *serial, records);
        *serial
    }

    /// It is silent from now on, or answers again.
    pub fn hush(&self, hush: bool) {
        self.signal(if hush { "STOP" } else { "CONT" });
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// A name that leads to these addresses, and to no others, from now on.
    pub async fn leads(&mut self, name: &str, addresses: &[&str]) {
        let records: Vec<_> = addresses.iter().map(|address| format!("{name} 1 IN A {address}")).collect();
        self.publish(&records).await;
    }

    /// The zone with these texts in it, from now on.
    pub async fn say(&mut self, texts: &[(&str, &str)]) {
        let records: Vec<_> = texts.iter().map(|(name, text)| format!("{name} 1 IN TXT \"{text}\"")).collect();
        self.publish(&records).await;
    }

    /// It answers for another zone than this one, or for this one again, from now on.
    pub async fn refuse(&mut self, refuses: bool) {
        let file = self.folder.path().join("knot.conf");
        let (from, to) = if refuses { (self.zone, "other.test") } else { ("other.test", self.zone) };
        let config = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, config.replace(&format!("domain: {from}"), &format!("domain: {to}"))).unwrap();
        self.restart(to).await;
        let resolver = Resolver::new(&[self.address()]);
        let known = resolver.texts("sold.example.test").await;
        assert_eq!(known.is_err(), refuses, "a refusal is no answer");
    }

    async fn restart(&mut self, zone: &str) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = run(self.folder.path());
        self.answers(zone).await;
    }

    async fn answers(&self, zone: &str) {
        let resolver = Resolver::new(&[self.address()]);
        let there = async {
            while resolver.texts(zone).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), there).await.expect("the name server answers");
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(folder: &Path) -> Child {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("knotd");
    command.env("PATH", path).arg("-c").arg(folder.join("knot.conf")).stdin(Stdio::null());
    command.spawn().expect("knotd is installed by scripts/setup")
}

fn write_zone(folder: &Path, zone: &str, serial: u32, records: &[String]) {
    let start = format!(
        "@ 1 IN SOA ns hostmaster {serial} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 127.0.0.1\n{VERSION} 1 IN TXT \"{serial}\"\n"
    );
    // In one step: the server may read it at any moment.
    let (draft, file) = (folder.join("draft"), folder.join(format!("{zone}.zone")));
    std::fs::write(&draft, start + &records.join("\n") + "\n").unwrap();
    std::fs::rename(draft, file).unwrap();
}
