//! A real authoritative name server, for tests of what depends on DNS.
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::ports::dns::Resolver;

/// A name server for `example.test`.
pub struct NameServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
    serial: u32,
}

impl NameServer {
    /// The key whose updates it takes (TSIG, hmac-sha256), and its secret.
    pub const KEY: (&str, &str) = ("janua-tests", "amFudWEgdGVzdHMgdXBkYXRlIHRoZSB6b25lISEhISE=");

    pub async fn start() -> Self {
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
             update-type: TXT\nzone:\n  - domain: example.test\n    storage: {home}\n    \
             file: example.test.zone\n    zonefile-load: whole\n    zonefile-sync: -1\n    acl: update\n"
        );
        std::fs::write(folder.path().join("knot.conf"), config).unwrap();
        write_zone(folder.path(), 1, &[]);
        let process = run(folder.path());
        let server = Self { process, port, folder, serial: 1 };
        server.answers("example.test").await;
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
        self.serial += 1;
        write_zone(self.folder.path(), self.serial, records);
        self.restart("example.test").await;
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
        let (from, to) = if refuses { ("example.test", "other.test") } else { ("other.test", "example.test") };
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

fn write_zone(folder: &Path, serial: u32, records: &[String]) {
    let start = format!("@ 1 IN SOA ns hostmaster {serial} 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 127.0.0.1\n");
    std::fs::write(folder.join("example.test.zone"), start + &records.join("\n") + "\n").unwrap();
}
