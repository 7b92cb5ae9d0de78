//! A real certificate authority (Pebble), for tests of what orders certificates.
use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde_json::json;
use tokio::net::TcpStream;

/// A certificate authority that checks names at the given ports, and asks the given name server.
pub struct Authority {
    process: Option<Child>,
    folder: tempfile::TempDir,
    port: u16,
    management: u16,
    dns: SocketAddr,
    options: Vec<(&'static str, &'static str)>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Authority {
    /// `http` and `tls` are the ports at which names are checked; `options` go into Pebble's environment.
    pub async fn start(dns: SocketAddr, http: u16, tls: u16, options: &[(&'static str, &'static str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, management) = (free_port(), free_port());
        // The authority's own certificate, and the root it comes from.
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(vec![]).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_certificate = root.self_signed(&root_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&root, &root_key);
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().signed_by(&key, &issuer).unwrap();
        let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        file("root.pem", &root_certificate.pem());
        file("cert.pem", &leaf.pem());
        file("key.pem", &key.serialize_pem());
        let home = folder.path().display();
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"), "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": format!("{home}/cert.pem"), "privateKey": format!("{home}/key.pem"),
            "httpPort": http, "tlsPort": tls, "ocspResponderURL": "", "externalAccountBindingRequired": false,
        }});
        file("pebble.json", &config.to_string());
        let mut authority = Self { process: None, folder, port, management, dns, options: options.to_vec() };
        authority.run().await;
        authority
    }

    /// Starts it again; it has forgotten all accounts and orders.
    pub async fn run(&mut self) {
        let mut command = Command::new("pebble");
        command.arg("-config").arg(self.folder.path().join("pebble.json"));
        command
            .arg("-dnsserver")
            .arg(self.dns.to_string())
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "0");
        for (name, value) in &self.options {
            command.env(name, value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("pebble is installed by scripts/setup"));
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the certificate authority does not listen");
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.address())
    }

    /// The file with the root of the authority's own certificate.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// The roots of the certificates that the authority issues.
    pub async fn issuers(&self) -> RootCertStore {
        let pem = self.shown("roots/0").await;
        let mut store = RootCertStore::empty();
        store.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        store
    }

    /// What the authority shows at its management port.
    pub async fn shown(&self, path: &str) -> String {
        let roots = reqwest::Certificate::from_pem_bundle(&std::fs::read(self.root()).unwrap()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only(roots).no_proxy().build().unwrap();
        let answer = client.get(format!("https://127.0.0.1:{}/{path}", self.management)).send().await.unwrap();
        answer.text().await.unwrap()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.stop();
    }
}
