//! The client of a request: the peer of the connection, or the client behind trusted proxies.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, header, request::Parts},
};
use ipnet::IpNet;

use crate::{
    Janua,
    fault::{Fault, INTERNAL},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The caller's IP address; put into each request by the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub address: IpAddr,
    /// Whether the request comes straight from a proxy of ours, whose other headers may be believed too.
    pub by_our_proxy: bool,
}

impl Client {
    /// The nearest IP address that is not one of our proxies. A header from any other peer is not believed.
    pub(super) fn of(peer: SocketAddr, headers: &HeaderMap, proxies: &[IpNet]) -> Self {
        let is_proxy = |address: IpAddr| proxies.iter().any(|net| net.contains(&address));
        let peer = peer.ip().to_canonical();
        let by_our_proxy = !proxies.is_empty() && is_proxy(peer);
        if !by_our_proxy {
            return Self { address: peer, by_our_proxy };
        }
        let lists = headers.get_all(FORWARDED_FOR);
        let said: Vec<&str> =
            lists.iter().filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(',')).collect();
        let mut address = peer;
        for hop in said.into_iter().rev() {
            // What is not an address was not written by our proxy: the chain is known up to here.
            let Ok(next) = hop.trim().parse::<IpAddr>() else { break };
            address = next.to_canonical();
            if !is_proxy(address) {
                break;
            }
        }
        Self { address, by_our_proxy }
    }

    /// Whether something between the caller and us says that it passed the request on.
    pub fn is_forwarded(headers: &HeaderMap) -> bool {
        [FORWARDED_FOR, header::FORWARDED, header::VIA].iter().any(|name| headers.contains_key(name))
    }

    /// The network that limits count by.
    pub fn network(&self) -> IpAddr {
        network_of(self.address)
    }

    /// The larger network around it: an IPv6 /48. What counts by network counts by this, too, with a larger bound
    /// ([`NETWORKS_OF_A_SITE`]).
    pub fn site(&self) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(first_bits(address, 48)),
        }
    }

    /// A much larger network, for when there are too many to tell apart.
    pub(super) fn region(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & 0xffff_0000).into(),
            IpAddr::V6(address) => first_bits(address, 32),
        }
    }
}

/// A /48 holds 65,536 networks, and one customer may have it whole. It has as many budgets as this.
pub const NETWORKS_OF_A_SITE: u32 = 16;

/// The network of an IP address: an IPv4 address, or an IPv6 /64, which is what one subscriber gets.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => first_bits(address, 64),
    }
}

fn first_bits(address: Ipv6Addr, bits: u32) -> IpAddr {
    Ipv6Addr::from(u128::from(address) & (u128::MAX << (128 - bits))).into()
}

impl FromRequestParts<Janua> for Client {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self, Fault> {
        parts.extensions.get().copied().ok_or_else(|| INTERNAL.caused_by("the pipeline left no client address"))
    }
}
impl aide::OperationInput for Client {}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: &str, forwarded_for: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for list in forwarded_for {
            headers.append("x-forwarded-for", list.parse().unwrap());
        }
        let proxies: Vec<IpNet> = proxies.iter().map(|net| net.parse().unwrap()).collect();
        Client::of(SocketAddr::new(peer.parse().unwrap(), 1), &headers, &proxies).address.to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_about_the_hop_before_it() {
        let proxies = &["10.0.0.0/8", "fd00::/8"];
        assert_eq!(seen("203.0.113.9", &["198.51.100.1"], proxies), "203.0.113.9", "a stranger's header");
        assert_eq!(seen("10.0.0.1", &["198.51.100.1"], &[]), "10.0.0.1", "no proxy is trusted");
        assert_eq!(seen("10.0.0.1", &["198.51.100.1"], proxies), "198.51.100.1");
        assert_eq!(
            seen("10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.0.0.2"], proxies),
            "198.51.100.1",
            "the rest is forged"
        );
        assert_eq!(
            seen("10.0.0.1", &["1.1.1.1", "198.51.100.1"], proxies),
            "198.51.100.1",
            "two headers are one list"
        );
        assert_eq!(seen("10.0.0.1", &["evil, 10.0.0.2"], proxies), "10.0.0.2", "not an address");
        assert_eq!(
            seen("::ffff:10.0.0.1", &["2001:db8::1"], proxies),
            "2001:db8::1",
            "a mapped peer is the same peer"
        );
    }

    fn alone(address: IpAddr) -> Client {
        Client { address, by_our_proxy: false }
    }

    #[test]
    fn one_ipv6_subscriber_is_one_network() {
        let network = |text: &str| alone(text.parse().unwrap()).network();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::"));
        assert_ne!(network("2001:db8:1:2::"), network("2001:db8:1:3::"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        let site = |text: &str| alone(text.parse().unwrap()).site();
        assert_eq!(site("2001:db8:1:2::"), site("2001:db8:1:3::"));
        assert_ne!(site("2001:db8:1:2::"), site("2001:db8:2:2::"));
        assert_eq!(site("192.0.2.1"), None);
    }
}
