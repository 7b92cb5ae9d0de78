//! A name server whose zone grows while it answers, a certificate authority behind a wire, and browsers that trust it.
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use kernel::testing::{Authority, NameServer};
use rustls::{AlertDescription, ClientConfig, ClientConnection, StreamOwned, crypto::aws_lc_rs};
use tokio::runtime::Runtime;

use crate::{deploys::exchange, support::wire::Wire};

const ZONE: &str = "test";

pub struct Names {
    server: NameServer,
    authority: Authority,
    /// The way to the authority.
    pub wire: Wire,
    /// The port of all names: it leads to the nodes in turn.
    front: Wire,
    /// By name: its records.
    records: Mutex<BTreeMap<String, Vec<String>>>,
    trusts: Arc<ClientConfig>,
    runtime: Runtime,
}

/// What a browser got: the certificate, the status and the body.
pub struct Page {
    pub certificate: Vec<u8>,
    pub status: u16,
    pub body: Vec<u8>,
}

impl Names {
    /// `edges` are the places of the nodes' edges, separated by commas.
    pub fn start(edges: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let front = Wire::to(edges);
        let (server, authority, roots) = runtime.block_on(async {
            let server = NameServer::of(ZONE).await;
            let authority = Authority::start(server.address(), front.address.port(), 9, &[]).await;
            let roots = authority.issuers().await;
            (server, authority, roots)
        });
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let trusts = Arc::new(builder.with_no_client_auth());
        let wire = Wire::to(&authority.address().to_string());
        Self { server, authority, wire, front, records: Mutex::default(), trusts, runtime }
    }

    pub fn settings(&self) -> [(&'static str, String); 4] {
        [
            ("JANUA_DNS_SERVERS", self.server.address().to_string()),
            ("JANUA_EDGE_PROBE_PORT", self.front.address.port().to_string()),
            ("JANUA_ACME", format!("https://{}/dir", self.wire.address)),
            ("JANUA_ACME_CA", self.authority.root().display().to_string()),
        ]
    }

    /// Adds records, each as in `1 IN A 127.0.0.1`; answers whether they are served.
    pub fn add(&self, name: &str, records: &[String]) -> bool {
        self.amend(|all| all.entry(name.to_owned()).or_default().extend_from_slice(records))
    }

    /// Removes all records of a name.
    pub fn remove(&self, name: &str) -> bool {
        self.amend(|all| _ = all.remove(name))
    }

    fn amend(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<String>>)) -> bool {
        let mut all = self.records.lock().unwrap();
        change(&mut all);
        let lines: Vec<_> = all
            .iter()
            .flat_map(|(name, records)| records.iter().map(move |record| format!("{name}. {record}")))
            .collect();
        let version = self.server.amend(&lines);
        drop(all);
        self.runtime.block_on(self.server.serves(version))
    }

    /// The name server is silent for a while.
    pub fn hush(&self, away: Duration) {
        self.server.hush(true);
        std::thread::sleep(away);
        self.server.hush(false);
    }

    /// A request as a browser sends it; none where the edge has no certificate of the name.
    pub fn fetch(&self, to: SocketAddr, name: &str, path: &str) -> io::Result<Option<Page>> {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let client = ClientConnection::new(self.trusts.clone(), name.to_owned().try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(client, stream);
        let head = format!("GET {path} HTTP/1.1\r\nHost: {name}");
        match exchange(&mut stream, &head, b"") {
            Ok((status, body)) => {
                let certificate = stream.conn.peer_certificates().map(|all| all[0].to_vec()).unwrap_or_default();
                Ok(Some(Page { certificate, status, body }))
            }
            Err(error) if is_without_certificate(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_without_certificate(error: &io::Error) -> bool {
    let cause: Option<&rustls::Error> = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)))
}
