//! Another server, put beside this one: what is asked of it stands in a small TOML file.
//!
//! First what is prepared is asked once, in its order, and values are taken from the answers (a token, a cookie). Then
//! each request that is to be measured is asked again and again. Requests of the same name are set beside each other.
mod file;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail, ensure};
use url::Url;

pub use self::file::Peer;
use crate::{
    client,
    figure::{Figure, Unit},
    load::{self, Ask},
    process::Core,
    rounds::{self, ROUNDS, Rounds, Sides},
};

const GENERATOR: Core = Core::Only(1);

#[derive(clap::Args)]
pub struct Options {
    /// Where the servers are (http://host:port); the first is set beside the others
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Url>,
    /// What is asked of them: one file for all, or one for each in the same order
    #[arg(long = "peer", required = true, value_name = "FILE.toml")]
    peers: Vec<PathBuf>,
    /// A value for `${name}` in the files, besides those they say themselves
    #[arg(long = "set", value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// How many connections ask at once
    #[arg(long, default_value_t = load::CONNECTIONS)]
    connections: usize,
}

/// A server that can be asked.
struct Place {
    name: String,
    address: SocketAddr,
    /// By name.
    requests: Vec<(String, Ask)>,
}

pub fn compare(rounds: &Rounds, options: &Options) -> Result<Vec<Figure>> {
    ensure!(
        options.peers.len() == 1 || options.peers.len() == options.urls.len(),
        "--peer: one file for all servers, or one for each"
    );
    let mut places = vec![];
    for (number, url) in options.urls.iter().enumerate() {
        let path = options.peers.get(number).unwrap_or(&options.peers[0]);
        let text = std::fs::read_to_string(path).with_context(|| format!("--peer {}", path.display()))?;
        let peer = Peer::read(&text).with_context(|| format!("--peer {}", path.display()))?;
        places.push(prepare(url, &peer, &options.values).with_context(|| format!("{} at {url}", peer.name))?);
    }
    let (first, others) = places.split_first().context("no server")?;
    let mut figures = vec![];
    for (name, request) in &first.requests {
        let same: Vec<(&Place, &Ask)> = others
            .iter()
            .filter_map(|other| Some((other, &other.requests.iter().find(|(other, _)| other == name)?.1)))
            .collect();
        if same.is_empty() {
            // Nobody to set it beside: it stands beside itself.
            figures.extend(beside(rounds, options, name, (first, request), (first, request))?);
        }
        for other in same {
            figures.extend(beside(rounds, options, name, (first, request), other)?);
        }
    }
    Ok(figures)
}

/// What is asked once, and the requests that are measured, with all values filled in.
fn prepare(url: &Url, peer: &Peer, given: &[String]) -> Result<Place> {
    ensure!(url.scheme() == "http", "only http:// is spoken; measure TLS at its proxy");
    let host = url.host_str().context("no host")?;
    let port = url.port_or_known_default().context("no port")?;
    let address = (host, port).to_socket_addrs()?.next().with_context(|| format!("{host} is not known"))?;
    let authority = format!("{host}:{port}");
    let mut values: BTreeMap<String, String> = peer.values.clone();
    for pair in given {
        let (name, value) = pair.split_once('=').with_context(|| format!("--set {pair}: wants NAME=VALUE"))?;
        values.insert(name.to_owned(), value.to_owned());
    }
    for request in &peer.prepare {
        let answer = client::send(address, &request.wire(&authority, &values, "close")?)?;
        request.expects(&answer)?;
        for (name, place) in &request.take {
            let found = place.find(&answer).with_context(|| format!("{}: no {name} in {answer}", request.name))?;
            values.insert(name.clone(), found);
        }
    }
    let mut requests = vec![];
    for request in &peer.measure {
        // Once, to see that it is answered as it should be.
        request.expects(&client::send(address, &request.wire(&authority, &values, "close")?)?)?;
        let wire = request.wire(&authority, &values, "keep-alive")?;
        let ask = if request.is_refused() { Ask::Refused(wire) } else { Ask::again(wire) };
        requests.push((request.name.clone(), ask));
    }
    if requests.is_empty() {
        bail!("nothing to measure");
    }
    Ok(Place { name: peer.name.clone(), address, requests })
}

struct Pace {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

fn beside(
    rounds: &Rounds,
    options: &Options,
    name: &str,
    (ours, request): (&Place, &Ask),
    (other, other_request): (&Place, &Ask),
) -> Result<Vec<Figure>> {
    let pace = |place: &Place, ask: &Ask| {
        let heard = load::timed(place.address, rounds.turn, GENERATOR, ask, options.connections)?;
        let mut micros = heard.micros;
        micros.sort_unstable();
        let at = |percent: usize| micros.get((micros.len() * percent / 100).min(micros.len().saturating_sub(1)));
        let millis = |percent| at(percent).map_or(f64::NAN, |micros| f64::from(*micros) / 1e3);
        #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
        let per_second = heard.answered as f64 / (heard.took_ms.max(1) as f64 / 1e3);
        Ok(Pace { per_second, p50_ms: millis(50), p99_ms: millis(99) })
    };
    let samples: Sides<Pace> =
        rounds::alternate("compare", ROUNDS, || pace(other, other_request), || pace(ours, request))?;
    let scenario: &'static str = name.to_owned().leak();
    let figure = |what: &str, unit, pick: fn(&Pace) -> f64| {
        let what: &'static str = format!("{what} of {}; of {}", ours.name, other.name).leak();
        Figure { scenario, what, unit, samples: samples.only(pick), goal: None }
    };
    Ok(vec![
        figure("answers", Unit::PerSecond, |pace| pace.per_second),
        figure("p50", Unit::Milliseconds, |pace| pace.p50_ms),
        figure("p99", Unit::Milliseconds, |pace| pace.p99_ms),
    ])
}
