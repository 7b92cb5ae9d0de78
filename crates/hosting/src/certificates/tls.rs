//! TLS by name: which certificate a handshake gets. Certificates are read from the database at their first handshake and kept;
//! a handshake never orders one.
use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest;
use db::Notice;
use kernel::{Janua, clock::Timestamp, recent::Recent};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs as provider,
    pki_types::PrivatePkcs8KeyDer,
    server::{Acceptor, ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{
    leaf,
    model::{self, Certificate, StoredChallenge},
};

/// How many certificates a node keeps ready, and for how long without the database.
const MOST: usize = 20_000;
const KEPT: Duration = Duration::from_hours(24);
/// How long a name without a certificate is remembered as such.
const UNKNOWN: Duration = Duration::from_mins(1);
/// How often a certificate that changes meanwhile is read for one handshake.
const MOST_READS: usize = 3;
/// From the first byte to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
const ALPN_CHALLENGE: &[u8] = b"acme-tls/1";
/// A fatal alert, `unrecognized_name`.
const UNRECOGNIZED: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The certificates of a node.
pub struct Keyring {
    found: Arc<Found>,
    /// Names without a certificate, each with the epoch in which that was read.
    unknown: Recent<String, u64>,
    /// The certificates from files: of the service itself, and of all names of the edge's own domain.
    own: ArcSwapOption<ServerConfig>,
    edge: ArcSwapOption<ServerConfig>,
    /// The certificate that was ordered for all names of the edge's own domain.
    wildcard: ArcSwapOption<(Arc<CertifiedKey>, Arc<ServerConfig>)>,
    config: OnceLock<Arc<ServerConfig>>,
    /// Counts how often notices may have been missed: what was kept before is read again, if the database answers.
    epoch: AtomicU64,
    /// Counts notices, and says by name which was the last: what was read before it is not kept.
    changes: AtomicU64,
    changed: Recent<String, u64>,
    /// Held while a notice is heard and while what was read is kept.
    gate: Mutex<()>,
}

#[derive(Clone)]
struct CachedCertificate {
    key: Arc<CertifiedKey>,
    not_after: Timestamp,
    epoch: u64,
}

impl CachedCertificate {
    fn open(janua: &Janua, name: &str, stored: &Certificate, epoch: u64) -> Option<Self> {
        let (chain, not_after) = (stored.chain.as_deref()?, stored.not_after?);
        let opened = stored.key(janua).ok().flatten()?;
        match leaf::certified(chain, &opened) {
            Ok(key) => Some(Self { key: Arc::new(key), not_after, epoch }),
            Err(error) => {
                tracing::error!(error, name, "a stored certificate cannot be used");
                None
            }
        }
    }
}

struct Found(Recent<String, CachedCertificate>);

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the certificates of a node")
    }
}

impl ResolvesServerCert for Found {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(&hello.server_name()?.to_ascii_lowercase()).map(|kept| kept.key)
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self {
            found: Arc::new(Found(Recent::new(MOST, KEPT))),
            unknown: Recent::new(MOST, UNKNOWN),
            own: ArcSwapOption::empty(),
            edge: ArcSwapOption::empty(),
            wildcard: ArcSwapOption::empty(),
            config: OnceLock::new(),
            epoch: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            changed: Recent::new(MOST, UNKNOWN),
            gate: Mutex::new(()),
        }
    }
}

/// A connection after its handshake, and the name it is for.
pub struct Secured {
    pub stream: TlsStream<TcpStream>,
    pub name: String,
}

impl Keyring {
    /// Forgets what a notice is about.
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if topic == model::TOPIC => {
                let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
                let number = self.changes.fetch_add(1, SeqCst) + 1;
                self.changed.insert(body.clone(), number);
                self.found.0.forget(body);
                self.unknown.forget(body);
            }
            Notice::News { .. } => {}
            Notice::StartOver => {
                self.epoch.fetch_add(1, SeqCst);
            }
        }
    }

    /// Puts another certificate of the service itself in place; connections that are open keep theirs.
    pub fn set_own(&self, key: CertifiedKey) -> io::Result<()> {
        self.own.store(Some(Arc::new(server_config(Arc::new(Always(Arc::new(key))))?)));
        Ok(())
    }

    /// The same for names of the edge's own domain.
    pub fn set_edge(&self, key: CertifiedKey) -> io::Result<()> {
        self.edge.store(Some(Arc::new(server_config(Arc::new(Always(Arc::new(key))))?)));
        Ok(())
    }

    /// The certificate from files that counts for a name.
    fn in_files(&self, janua: &Janua, name: &str) -> Option<Arc<ServerConfig>> {
        let is_own = name.is_empty() || super::is_own_name(janua, name);
        let own = self.own.load_full().filter(|_| is_own);
        own.or_else(|| self.edge.load_full().filter(|_| super::is_of_edge(janua, name)))
    }

    /// Whether the certificate of the service itself is at hand.
    pub fn is_ready(&self, host: &str) -> bool {
        self.own.load().is_some() || self.found.0.get(host).is_some()
    }

    /// Whether a name has a certificate that is valid now.
    pub async fn has(&self, janua: &Janua, name: &str) -> bool {
        self.in_files(janua, name).is_some()
            || self.find(janua, name).await.is_some()
            || self.by_wildcard(janua, name).await.is_some()
    }

    /// The certificate with a wildcard that was ordered, for a name of the edge's own domain.
    async fn by_wildcard(&self, janua: &Janua, name: &str) -> Option<Arc<ServerConfig>> {
        let wildcard = super::wildcard(janua).filter(|_| super::is_of_edge(janua, name))?;
        let key = self.find(janua, &wildcard).await?;
        if let Some(kept) = self.wildcard.load_full().filter(|kept| Arc::ptr_eq(&kept.0, &key)) {
            return Some(kept.1.clone());
        }
        let config = Arc::new(server_config(Arc::new(Always(key.clone()))).ok()?);
        self.wildcard.store(Some(Arc::new((key, config.clone()))));
        Some(config)
    }

    async fn find(&self, janua: &Janua, name: &str) -> Option<Arc<CertifiedKey>> {
        let now = janua.clock.now();
        let kept = self.found.0.get(name).filter(|kept| kept.not_after > now);
        if janua.db.hears_others() {
            let epoch = self.epoch.load(SeqCst);
            if let Some(kept) = kept.as_ref().filter(|kept| kept.epoch == epoch) {
                return Some(kept.key.clone());
            }
            if self.unknown.get(name) == Some(epoch) {
                return None;
            }
        }
        for _ in 0..MOST_READS {
            let (epoch, before) = (self.epoch.load(SeqCst), self.changes.load(SeqCst));
            let stored = match Certificate::find(&janua.db, name).await {
                Ok(stored) => stored.filter(|stored| stored.is_live(now)),
                Err(error) => {
                    tracing::warn!(%error, name, "cannot read a certificate; using what this node has");
                    return kept.map(|kept| kept.key);
                }
            };
            let read = match stored {
                Some(stored) => Some(CachedCertificate::open(janua, name, &stored, epoch)?),
                None => None,
            };
            if self.keep(name, read.clone(), epoch, before) {
                return read.map(|read| read.key);
            }
        }
        None
    }

    /// Keeps what was read, or that there was nothing; `false` where a notice came meanwhile, so that it may be outdated.
    fn keep(&self, name: &str, read: Option<CachedCertificate>, epoch: u64, before: u64) -> bool {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if self.changed.get(name).is_some_and(|number| number > before) {
            return false;
        }
        match read {
            Some(read) => self.found.0.insert(name.to_owned(), read),
            None => {
                self.found.0.forget(&name.to_owned());
                self.unknown.insert(name.to_owned(), epoch);
            }
        }
        true
    }

    fn config(&self) -> io::Result<Arc<ServerConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let made = Arc::new(server_config(self.found.clone())?);
        Ok(self.config.get_or_init(|| made).clone())
    }

    /// Carries out a handshake. None for one that was the check of a certificate authority, or for a name without a certificate.
    pub async fn accept(&self, janua: &Janua, stream: TcpStream) -> io::Result<Option<Secured>> {
        let accepted = timeout(HANDSHAKE, self.handshake(janua, stream)).await;
        accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn handshake(&self, janua: &Janua, stream: TcpStream) -> io::Result<Option<Secured>> {
        let mut start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let (name, is_check) = {
            let hello = start.client_hello();
            let name = hello.server_name().map(str::to_ascii_lowercase).unwrap_or_default();
            let is_check = hello.alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == ALPN_CHALLENGE));
            (name, is_check)
        };
        if is_check {
            if let Some(config) = challenge_config(janua, &name).await {
                let mut stream = start.into_stream(config).await?;
                let _ = stream.shutdown().await;
            }
            return Ok(None);
        }
        if !name.is_empty() && self.find(janua, &name).await.is_some() {
            let stream = start.into_stream(self.config()?).await?;
            return Ok(Some(Secured { stream, name }));
        }
        if let Some(config) = self.in_files(janua, &name) {
            let stream = start.into_stream(config).await?;
            return Ok(Some(Secured { stream, name }));
        }
        if let Some(config) = self.by_wildcard(janua, &name).await {
            let stream = start.into_stream(config).await?;
            return Ok(Some(Secured { stream, name }));
        }
        let _ = start.io.write_all(&UNRECOGNIZED).await;
        Ok(None)
    }
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn server_config(resolver: Arc<dyn ResolvesServerCert>) -> io::Result<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = provider::Ticketer::new().map_err(io::Error::other)?;
    Ok(config)
}

/// For the authority that checks a name over TLS (RFC 8737): a certificate that holds the answer, and nothing else is said.
async fn challenge_config(janua: &Janua, name: &str) -> Option<Arc<ServerConfig>> {
    let stored = StoredChallenge::for_handshake(&janua.db, name).await.ok().flatten()?;
    let digest = digest::digest(&digest::SHA256, stored.answer.as_bytes());
    let mut wanted = CertificateParams::new(vec![name.to_owned()]).ok()?;
    wanted.custom_extensions.push(CustomExtension::new_acme_identifier(digest.as_ref()));
    let key = KeyPair::generate().ok()?;
    let certificate = wanted.self_signed(&key).ok()?;
    // Put together by hand: what checks that a key fits refuses the critical extension, which only authorities know.
    let signing = provider::sign::any_supported_type(&PrivatePkcs8KeyDer::from(key.serialize_der()).into()).ok()?;
    let certified = CertifiedKey::new(vec![certificate.der().clone()], signing);
    let mut config = server_config(Arc::new(Always(Arc::new(certified)))).ok()?;
    config.alpn_protocols = vec![ALPN_CHALLENGE.to_vec()];
    Some(Arc::new(config))
}
