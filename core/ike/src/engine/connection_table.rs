//! The configured connections, and an index by the address of the peer: a gateway with thousands of peers
//! looks at the connections of one address for each IKE_SA_INIT and IKE_AUTH request, not at all connections.

use crate::config::{AddrPattern, Connection};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::table::ByteIndex;
use core::net::IpAddr;

/// Key of the connections that accept more than single addresses, or a host with a name. Addresses have
/// longer keys.
const OTHERS: &[u8] = &[];

/// Connections in the order of the configuration.
pub(crate) struct ConnectionTable {
    connections: Vec<Arc<Connection>>,
    /// Positions in `connections` by the peer's address, or by [`OTHERS`].
    by_peer: ByteIndex,
}

impl ConnectionTable {
    /// Builds the index.
    pub(crate) fn new(connections: Vec<Arc<Connection>>) -> Self {
        let mut by_peer = ByteIndex::new();
        for (position, connection) in (0..).zip(&connections) {
            // Without addresses, no peer matches.
            for pattern in &connection.remote_addrs {
                match single_addr(pattern) {
                    Some(addr) => by_peer.insert(&addr_key(addr), [position, 0]),
                    None => by_peer.insert(OTHERS, [position, 0]),
                };
            }
        }
        Self { connections, by_peer }
    }

    /// All connections.
    pub(crate) fn all(&self) -> &[Arc<Connection>] {
        &self.connections
    }

    /// Whether the connection is configured. An IKE SA of another one is to be closed.
    pub(crate) fn contains(&self, connection: &Arc<Connection>) -> bool {
        self.connections.iter().any(|known| Arc::ptr_eq(known, connection))
    }

    /// Positions of connections and connections: those that accept this address of a peer, and others. A
    /// connection may be there twice.
    pub(crate) fn candidates(&self, peer: IpAddr) -> impl Iterator<Item = (u64, &Arc<Connection>)> {
        let positions = self.by_peer.get_all(&addr_key(peer)).chain(self.by_peer.get_all(OTHERS));
        positions.filter_map(|[position, _]| {
            Some((position, self.connections.get(usize::try_from(position).ok()?)?))
        })
    }
}

/// The address of a pattern that never matches another one.
fn single_addr(pattern: &AddrPattern) -> Option<IpAddr> {
    match pattern {
        AddrPattern::Range(range) => Some(range.first()).filter(|first| *first == range.last()),
        AddrPattern::Any | AddrPattern::Host(_) => None,
    }
}

/// Key of an address. Equal keys do not prove equal addresses.
fn addr_key(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Identity;
    use alloc::string::ToString;
    use casemate_sa::AddrRange;

    fn connection(name: &str, remote_addrs: &[AddrPattern]) -> Arc<Connection> {
        let named = |name: &str| Identity::Fqdn(name.into());
        let connection = Connection::with_shared_key(name, named("left"), named("right"));
        Arc::new(Connection { remote_addrs: remote_addrs.into(), ..connection })
    }

    fn single(addr: &str) -> AddrPattern {
        AddrPattern::Range(AddrRange::single(addr.parse().unwrap()))
    }

    #[test]
    fn connections_with_other_single_addresses_are_not_looked_at() {
        let subnet = AddrPattern::Range(AddrRange::prefix("192.0.2.0".parse().unwrap(), 24).unwrap());
        let table = ConnectionTable::new(alloc::vec![
            connection("host", &[AddrPattern::Host("peer.example.org".into())]),
            connection("one", &[single("192.0.2.1")]),
            connection("both", &[single("2001:db8::1"), single("192.0.2.2")]),
            connection("one again", &[single("192.0.2.1")]),
            connection("subnet or one", &[subnet, single("192.0.2.1")]),
            connection("any", &[AddrPattern::Any]),
        ]);
        let at = |addr: &str| {
            let candidates = table.candidates(addr.parse().unwrap());
            candidates.map(|(position, found)| (position, found.name.to_string())).collect::<Vec<_>>()
        };
        let others = [(0, "host".into()), (4, "subnet or one".into()), (5, "any".into())];
        let with = |first: &[(u64, &str)]| {
            let first = first.iter().map(|(position, name)| (*position, name.to_string()));
            first.chain(others.clone()).collect::<Vec<_>>()
        };
        assert_eq!(at("192.0.2.1"), with(&[(1, "one"), (3, "one again"), (4, "subnet or one")]));
        assert_eq!(at("192.0.2.2"), with(&[(2, "both")]));
        assert_eq!(at("2001:db8::1"), with(&[(2, "both")]));
        assert_eq!(at("192.0.2.3"), with(&[]));
    }
}
