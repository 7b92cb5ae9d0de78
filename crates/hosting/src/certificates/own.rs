//! The certificate of the service itself: from files, or ordered like those of domains.
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    http::{HeaderValue, Request, StatusCode, header},
    response::IntoResponse as _,
};
use hyper::body::Incoming;
use kernel::{
    Janua,
    http::{Handshake, Intercept, Intercepted, Shaking},
    transact,
};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use tokio::net::TcpStream;

use super::{challenge, model::Certificate, order, tls::Keyring, zone::Zone};
use crate::{
    domains, edge,
    settings::{DnsDriver, Settings, TlsSource},
};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Whether a name is the service's own and its certificate is ordered here.
pub fn is_own_name(janua: &Janua, name: &str) -> bool {
    let is_here = janua.config.of::<Settings>().tls != TlsSource::Off;
    is_here && domains::base_host(janua).is_some_and(|host| host == name)
}

/// Whether a name is a host of the edge's own domain, which one certificate with a wildcard covers.
pub fn is_of_edge(janua: &Janua, name: &str) -> bool {
    let settings = janua.config.of::<edge::Settings>();
    let label = name.strip_suffix(&settings.edge_domain.to_lowercase()).and_then(|rest| rest.strip_suffix('.'));
    label.is_some_and(|label| !label.is_empty() && !label.contains('.'))
}

/// The name with a wildcard for all hosts of the edge's own domain, if its certificate is ordered here.
pub fn wildcard(janua: &Janua) -> Option<String> {
    let settings = janua.config.of::<Settings>();
    if settings.acme_dns == DnsDriver::Off || settings.edge_certificate.is_some() || !settings.orders_certificates() {
        return None;
    }
    Some(format!("*.{}", janua.config.of::<edge::Settings>().edge_domain.to_lowercase()))
}

/// Whether a certificate of this name is ordered for the installation itself.
pub fn is_ordered(janua: &Janua, name: &str) -> bool {
    is_own_name(janua, name) || wildcard(janua).is_some_and(|wildcard| wildcard == name)
}

/// Reads the files, or orders certificates for the base URL's host and the edge's own domain. An error stops the start.
pub async fn start(janua: &Janua) -> Result<(), String> {
    let settings = janua.config.of::<Settings>();
    load(janua)?;
    check_zone(janua, &settings)?;
    if let Some(wildcard) = wildcard(janua) {
        want(janua, &wildcard).await?;
    }
    if settings.tls != TlsSource::Acme {
        return Ok(());
    }
    if !settings.orders_certificates() {
        return Err(
            "tls: acme needs the directory of a certificate authority: set acme, such as acme=letsencrypt".into()
        );
    }
    let host = domains::base_host(janua).filter(|host| domains::host(host).is_some());
    let Some(host) = host.filter(|_| janua.config.is_https()) else {
        return Err("tls: acme needs a base_url with https:// and a public name".into());
    };
    want(janua, &host).await
}

/// Orders a certificate of the installation's own, unless it has a live one.
async fn want(janua: &Janua, name: &str) -> Result<(), String> {
    let now = janua.clock.now();
    let ordered = transact!(janua, async |tx| {
        let there = Certificate::find(&mut *tx, name).await?;
        if there.is_none_or(|there| !there.is_live(now)) {
            Certificate::want(tx, name, None, now).await?;
            order::enqueue(tx, janua, name).await?;
        }
        Ok(())
    });
    ordered.map_err(|fault| fault.to_string())
}

fn check_zone(janua: &Janua, settings: &Settings) -> Result<(), String> {
    let Some(zone) = Zone::of(janua)? else { return Ok(()) };
    let edge_domain = &janua.config.of::<edge::Settings>().edge_domain;
    if domains::host(edge_domain).is_none() {
        return Err("acme_dns needs an edge_domain that is a public name".into());
    }
    if !zone.has(edge_domain) {
        return Err(format!("acme_dns_zone: {} is not a zone that has {edge_domain}", settings.acme_dns_zone));
    }
    Ok(())
}

/// Puts the certificates that come from files in place.
fn load(janua: &Janua) -> Result<(), String> {
    let (settings, keyring) = (janua.config.of::<Settings>(), janua.own::<Arc<Keyring>>());
    let failed = |error: std::io::Error| error.to_string();
    match (settings.tls, &settings.tls_certificate, &settings.tls_key) {
        (TlsSource::Files, Some(chain), Some(key)) => keyring.set_own(read(chain, key)?).map_err(failed)?,
        (TlsSource::Files, ..) => return Err("tls: files needs tls_certificate and tls_key".into()),
        _ => {}
    }
    match (&settings.edge_certificate, &settings.edge_key) {
        (Some(chain), Some(key)) => keyring.set_edge(read(chain, key)?).map_err(failed),
        (None, None) => Ok(()),
        _ => Err("edge_certificate and edge_key are set together".into()),
    }
}

fn read(chain: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| format!("{}: {error}", chain.display()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
    CertifiedKey::from_der(certificates, private, &aws_lc_rs::default_provider())
        .map_err(|error| format!("{}: {error}", chain.display()))
}

/// Keeps certificates ready: reads files again when they have changed, and what was ordered for the service. A file that is
/// wrong changes nothing.
pub async fn watch(janua: Janua) {
    let settings = janua.config.of::<Settings>();
    let files = [&settings.tls_certificate, &settings.tls_key, &settings.edge_certificate, &settings.edge_key];
    let stamp = || -> Vec<Option<SystemTime>> {
        let changed = |file: &PathBuf| std::fs::metadata(file).and_then(|meta| meta.modified()).ok();
        files.iter().map(|file| file.as_ref().and_then(changed)).collect()
    };
    let own = domains::base_host(&janua).filter(|_| settings.tls == TlsSource::Acme);
    if own.is_none() && files.iter().all(|file| file.is_none()) {
        return;
    }
    let mut seen = stamp();
    loop {
        if let Some(host) = &own {
            janua.own::<Arc<Keyring>>().has(&janua, host).await;
        }
        tokio::time::sleep(LOOK).await;
        let now = stamp();
        if now == seen {
            continue;
        }
        match load(&janua) {
            Ok(()) => {
                tracing::info!("certificate files were read again");
                seen = now;
            }
            Err(error) => tracing::warn!(error, "certificate files cannot be read; those in use stay"),
        }
    }
}

/// The listener of the service over TLS.
pub fn handshake(janua: &Janua) -> Handshake {
    let janua = janua.clone();
    Arc::new(move |stream: TcpStream| -> Shaking {
        let janua = janua.clone();
        Box::pin(async move {
            let keyring = janua.own::<Arc<Keyring>>().clone();
            Ok(keyring.accept(&janua, stream).await?.map(|secured| secured.stream))
        })
    })
}

/// Redirects requests for the service over plain http to https, as soon as there is a certificate. Requests by another name,
/// such as those of health checks on this machine, are served; so are checks of a certificate authority.
pub fn redirect(janua: &Janua) -> Intercept {
    let (keyring, base) = (janua.own::<Arc<Keyring>>().clone(), janua.config.base_url());
    let host = domains::base_host(janua).unwrap_or_default();
    let answer = move |request: &Request<Incoming>| {
        let sent = request.headers().get(header::HOST)?.to_str().ok()?;
        let name = sent.split(':').next().unwrap_or_default().trim_end_matches('.');
        let path = request.uri().path_and_query()?.as_str();
        if !name.eq_ignore_ascii_case(&host) || path.starts_with(challenge::PATH) || !keyring.is_ready(&host) {
            return None;
        }
        let location = HeaderValue::from_str(&format!("{base}{path}")).ok()?;
        let mut response = StatusCode::PERMANENT_REDIRECT.into_response();
        response.headers_mut().insert(header::LOCATION, location);
        Some(response)
    };
    Arc::new(move |request| answer(request).map_or(Intercepted::No, Intercepted::Answer))
}
