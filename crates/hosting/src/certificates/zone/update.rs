//! A zone at a name server that takes dynamic updates (RFC 2136), signed with a shared key (TSIG, RFC 8945).
use std::{net::SocketAddr, str::FromStr as _, time::Duration};

use data_encoding::BASE64;
use hickory_proto::{
    op::{Message, OpCode, Query, ResponseCode, UpdateMessage as _},
    rr::{
        DNSClass, Name, RData, Record, RecordType, TSigner,
        rdata::{TXT, tsig::TsigAlgorithm},
    },
};
use kernel::clock::Clock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{LIFE, TIMEOUT};
use crate::settings::{Settings, Tsig};

/// By how many seconds the clocks of both may differ, as the standard recommends.
const FUDGE: u16 = 300;

/// A zone, the server that has it, and the key that may change it.
pub struct UpdatedZone {
    server: SocketAddr,
    origin: Name,
    signer: TSigner,
    /// How long the zone's other servers take.
    pub wait: Duration,
}

impl UpdatedZone {
    /// The error names the setting that is wrong or missing, and shows no secret.
    pub fn of(settings: &Settings) -> Result<Self, String> {
        let missing = |setting: &str| format!("acme_dns: rfc2136 needs {setting}");
        let server = settings.acme_dns_server.ok_or_else(|| missing("acme_dns_server"))?;
        let zone = settings.acme_dns_zone.trim();
        let origin = absolute(zone).filter(|_| !zone.is_empty());
        let origin = origin.ok_or_else(|| missing("acme_dns_zone, the name of the zone"))?;
        let name = settings.acme_dns_key_name.trim();
        let name = absolute(name).filter(|_| !name.is_empty()).ok_or_else(|| missing("acme_dns_key_name"))?;
        let secret = settings.acme_dns_secret_key.as_ref().ok_or_else(|| missing("acme_dns_secret_key"))?;
        let secret = BASE64.decode(secret.expose().trim().as_bytes()).ok().filter(|secret| !secret.is_empty());
        let secret =
            secret.ok_or("acme_dns_secret_key: must be the key in base64, as tsig-keygen and keymgr print it")?;
        let algorithm = match settings.acme_dns_algorithm {
            Tsig::Sha256 => TsigAlgorithm::HmacSha256,
            Tsig::Sha384 => TsigAlgorithm::HmacSha384,
            Tsig::Sha512 => TsigAlgorithm::HmacSha512,
        };
        let signer = TSigner::new(secret, algorithm, name, FUDGE);
        let signer = signer.map_err(|error| format!("acme_dns_algorithm: {error}"))?;
        Ok(Self { server, origin, signer, wait: settings.acme_dns_wait })
    }

    pub fn has(&self, name: &str) -> bool {
        absolute(name).is_some_and(|name| self.origin.zone_of(&name))
    }

    /// One update: the old texts go and the new one comes, or nothing happens.
    pub async fn put(&self, name: &str, value: &str) -> Result<(), String> {
        let (name, text) = self.text(name, value)?;
        // RFC 2136, 2.5.2: a set of records is deleted by its type, with the class ANY and without data.
        let mut old = Record::update0(name, 0, RecordType::TXT).into_record_of_rdata();
        old.dns_class = DNSClass::ANY;
        self.send(vec![old, text]).await
    }

    pub async fn remove(&self, name: &str, value: &str) -> Result<(), String> {
        let (_, mut text) = self.text(name, value)?;
        // 2.5.4: one record is deleted by its data, with the class NONE.
        text.dns_class = DNSClass::NONE;
        text.ttl = 0;
        self.send(vec![text]).await
    }

    fn text(&self, name: &str, value: &str) -> Result<(Name, Record), String> {
        let found = absolute(name).filter(|name| self.origin.zone_of(name));
        let name = found.ok_or_else(|| format!("{name} is not in the zone {}", self.origin))?;
        let text = RData::TXT(TXT::new(vec![value.to_owned()]));
        Ok((name.clone(), Record::from_rdata(name, LIFE, text)))
    }

    async fn send(&self, updates: Vec<Record>) -> Result<(), String> {
        let mut zone = Query::query(self.origin.clone(), RecordType::SOA);
        zone.set_query_class(DNSClass::IN);
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_zone(zone);
        message.add_updates(updates);
        // A name server refuses updates whose time is not its own: a clock that was moved must not matter.
        let now = u64::try_from(Clock::System.now().0 / 1000).unwrap_or_default();
        let verifier = message.finalize(&self.signer, now).map_err(|error| error.to_string())?;
        let bytes = message.to_vec().map_err(|error| error.to_string())?;
        let exchange = tokio::time::timeout(TIMEOUT, exchange(self.server, &bytes)).await;
        let answer = exchange
            .map_err(|_| format!("{} does not answer", self.server))?
            .map_err(|error| format!("{}: {error}", self.server))?;
        let said = Message::from_vec(&answer).map_err(|error| format!("{}: {error}", self.server))?;
        if said.metadata.id != message.metadata.id {
            return Err(format!("{} answered something else", self.server));
        }
        if said.metadata.response_code != ResponseCode::NoError {
            // The server says there what is wrong with the key.
            let key = said.signature().and_then(|record| record.data.error.as_ref());
            let key = key.map(|error| format!(" ({error:?})")).unwrap_or_default();
            return Err(format!("{} refused the update: {}{key}", self.server, said.metadata.response_code));
        }
        let mut verifier = verifier.ok_or("the update could not be signed")?;
        let verified = verifier.verify(&answer);
        verified
            .map(drop)
            .map_err(|error| format!("the answer of {} is not signed as it must be: {error}", self.server))
    }
}

fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_str(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// A message and its answer, over TCP: each after its length.
async fn exchange(server: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(message.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
