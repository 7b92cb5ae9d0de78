//! Writing to the zone of the edge's own domain: an authority checks names with a wildcard by a DNS record alone.
mod route53;
mod update;

use std::time::Duration;

use kernel::Janua;
use tokio::time::Instant;

use self::route53::HostedZone;
pub use self::update::UpdatedZone;
use crate::settings::{DnsDriver, Settings};

/// How long a zone may take for one request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long name servers may remember a record, in seconds.
const LIFE: u32 = 60;

/// A zone that can be written to.
pub enum Zone {
    Route53(HostedZone),
    /// At a name server that takes updates by RFC 2136.
    Update(UpdatedZone),
}

/// A record that was written, and takes a while to reach all servers of the zone.
pub enum Change {
    /// Its ID at Route 53.
    Named(String),
    /// The moment at which the other servers have it, as the settings say.
    ReadyAt(Instant),
}

impl Zone {
    /// None where the settings name no zone.
    pub fn of(janua: &Janua) -> Result<Option<Self>, String> {
        let settings = janua.config.of::<Settings>();
        match settings.acme_dns {
            DnsDriver::Off => Ok(None),
            DnsDriver::Route53 => HostedZone::of(&settings).map(Self::Route53).map(Some),
            DnsDriver::Rfc2136 => UpdatedZone::of(&settings).map(Self::Update).map(Some),
        }
    }

    /// Whether a name is in the zone, as far as its settings say.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Route53(_) => true,
            Self::Update(zone) => zone.has(name),
        }
    }

    /// Puts a TXT record in place of what stands at a name.
    pub async fn put(&self, name: &str, value: &str) -> Result<Change, String> {
        match self {
            Self::Route53(zone) => zone.put(name, value).await.map(Change::Named),
            Self::Update(zone) => zone.put(name, value).await.map(|()| Change::ReadyAt(Instant::now() + zone.wait)),
        }
    }

    /// Takes it away again.
    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        match self {
            Self::Route53(zone) => zone.remove(name, value).await,
            Self::Update(zone) => zone.remove(name, value).await,
        }
    }

    /// Whether every server of the zone has the change.
    pub async fn is_everywhere(&self, change: &Change) -> Result<bool, String> {
        match (self, change) {
            (Self::Route53(zone), Change::Named(id)) => zone.is_everywhere(id).await,
            (_, Change::ReadyAt(at)) => Ok(Instant::now() >= *at),
            (Self::Update(_), Change::Named(_)) => Ok(true),
        }
    }
}
