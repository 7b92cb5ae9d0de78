//! Full TLS 1.3 handshakes with the edge, each on a connection of its own; nginx with the same certificate, where it is installed.
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, runtime, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::{
    figure::{Figure, Goal},
    identity::{both_ways, side},
    process::{self, Core},
    rounds::{self, Rounds},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const DOMAIN: &str = "sites.example";
const NAME: &str = "shop.sites.example";
const CONNECTIONS: usize = 16;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let (certificate, key) = certificate(&folder)?;
    let (plain, tls) = (process::free_address()?, process::free_address()?);
    let (plain, listen) = (plain.to_string(), tls.to_string());
    let (certificate_file, key_file) = (certificate.to_string_lossy(), key.to_string_lossy());
    let settings = [
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_EDGE_DOMAIN", DOMAIN),
        ("JANUA_EDGE_LISTEN", plain.as_str()),
        ("JANUA_EDGE_TLS_LISTEN", listen.as_str()),
        ("JANUA_EDGE_CERTIFICATE", &*certificate_file),
        ("JANUA_EDGE_KEY", &*key_file),
    ];
    let server = janua.serve_with(&folder, SERVER, &settings)?;
    let Some(nginx) = Nginx::start(&folder, &certificate, &key)? else {
        println!("handshakes: nginx is not installed, nothing is measured");
        return Ok(vec![]);
    };
    let limit = || side(nginx.child.id(), |slice| shake(nginx.address, slice));
    let ours = || side(server.pid(), |slice| shake(tls, slice));
    let sides = rounds::interleave("handshakes", rounds.turn, limit, ours)?;
    let what = "full TLS 1.3 handshakes with the edge by processor time, P-256; nginx";
    Ok(both_ways("handshakes", what, &sides, Some(Goal::Ratio(1.0))))
}

/// A certificate of all names below the domain, made by OpenSSL's own command.
fn certificate(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=bench", "-addext", &format!("subjectAltName=DNS:*.{DOMAIN}")])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .context("openssl runs")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok((certificate, key))
}

struct Nginx {
    child: std::process::Child,
    address: SocketAddr,
}

impl Nginx {
    /// One process on the server's core. None where it is not installed.
    fn start(folder: &Path, certificate: &Path, key: &Path) -> Result<Option<Self>> {
        let address = process::free_address()?;
        let (home, certificate, key) = (folder.display(), certificate.display(), key.display());
        let config = format!(
            "daemon off; master_process off; pid {home}/nginx.pid; error_log {home}/nginx.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; server {{ listen {address} ssl; ssl_certificate {certificate};\n\
             ssl_certificate_key {key}; ssl_protocols TLSv1.3; ssl_session_tickets off; return 200; }} }}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = process::spawn(&mut command, SERVER) else { return Ok(None) };
        let mut nginx = Self { child, address };
        let started = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            ensure!(nginx.child.try_wait()?.is_none() && started.elapsed() < Duration::from_secs(10), "nginx failed");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(nginx))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Handshakes, one after the other on several connections, for so long.
fn shake(address: SocketAddr, slice: Duration) -> Result<u64> {
    process::on(GENERATOR, || {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(config));
        let until = Instant::now() + slice;
        runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
            let mut all = JoinSet::new();
            for _ in 0..CONNECTIONS {
                let connector = connector.clone();
                all.spawn(async move {
                    let mut count = 0;
                    while Instant::now() < until {
                        let stream = TcpStream::connect(address).await?;
                        connector.connect(ServerName::try_from(NAME)?, stream).await?;
                        count += 1;
                    }
                    anyhow::Ok(count)
                });
            }
            let mut count = 0;
            while let Some(one) = all.join_next().await {
                count += one??;
            }
            Ok(count)
        })
    })
}

/// Trusts whoever answers: the server's work is measured, not ours.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
