//! Addresses of the nodes, of the hosts that they protect, and the flows between those hosts.

use crate::plan::{Layout, Setup, VirtualAddrs};
use casemate_ike::config::Pool;
use casemate_sa::AddrRange;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name of the pool of virtual addresses.
pub(crate) const POOL: &str = "pool";

/// Endpoints of packets between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// UDP port at both ends.
    pub(crate) port: u16,
}

/// How policy treats a host. The value is the host number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Protected by an SA.
    Protected = 5,
    /// Passed in clear by a shunt.
    Clear = 100,
    /// Dropped by a shunt.
    Blocked = 101,
    /// Not covered by any policy.
    Outside = 200,
}

/// IPv4 or IPv6 address built from the same four bytes.
fn addr(v6: bool, bytes: [u8; 4]) -> IpAddr {
    if v6 {
        let [a, b, c, d] = bytes.map(u16::from);
        Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, c, d).into()
    } else {
        Ipv4Addr::from(bytes).into()
    }
}

/// Range of 2^`bits` addresses around an address. IPv6 ranges have the same size as IPv4 ranges.
pub(crate) fn range(around: IpAddr, bits: u8) -> AddrRange {
    let len = if around.is_ipv6() { 128 - bits } else { 32 - bits };
    let mask = |bits: u8| (1_u128 << bits) - 1;
    let first = match around {
        IpAddr::V4(addr) => IpAddr::from(Ipv4Addr::from_bits(addr.to_bits() & !(mask(bits) as u32))),
        IpAddr::V6(addr) => IpAddr::from(Ipv6Addr::from_bits(addr.to_bits() & !mask(bits))),
    };
    AddrRange::prefix(first, len).unwrap()
}

/// Public address of a node. For a client behind a NAT it is the address of the NAT.
pub(crate) fn outer(setup: &Setup, node: usize) -> IpAddr {
    addr(setup.outer_v6, [192, 0, 2, 1 + node as u8])
}

/// Private address of a node behind a NAT.
pub(crate) fn private(setup: &Setup, node: usize) -> IpAddr {
    addr(setup.outer_v6, [10, 99, node as u8, 2])
}

/// Address that the node itself is configured with.
pub(crate) fn own(setup: &Setup, node: usize) -> IpAddr {
    if setup.nat && node > 0 { private(setup, node) } else { outer(setup, node) }
}

/// Bits of the host number within the network of a child.
const CHILD_BITS: u8 = 8;

/// Address of a host in the network of node `node` for child `child`.
pub(crate) fn host(setup: &Setup, node: usize, child: usize, which: u8) -> IpAddr {
    match addr(setup.inner_v6, [10, 1 + node as u8, child as u8, which]) {
        // The child number stands next to the host number, as in the IPv4 address.
        IpAddr::V6(addr) => {
            let low = (child as u128) << CHILD_BITS | u128::from(which);
            Ipv6Addr::from_bits(addr.to_bits() >> 32 << 32 | low).into()
        }
        v4 => v4,
    }
}

/// Hosts of two nodes within the networks of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostPair {
    /// Node of the sender.
    pub(crate) from: usize,
    /// Node of the receiver.
    pub(crate) to: usize,
    /// Number of the child.
    pub(crate) child: usize,
}

impl HostPair {
    /// Opposite direction.
    pub(crate) const fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

/// Flow between the hosts of two nodes. It ignores virtual addresses.
pub(crate) fn flow(setup: &Setup, pair: HostPair, kind: HostKind) -> Flow {
    let HostPair { from, to, child } = pair;
    if setup.layout == Layout::Ports {
        let port = if kind == HostKind::Protected { port(child) } else { 9 };
        return Flow { src: own(setup, from), dst: own(setup, to), port };
    }
    // The first network may contain the networks of all children.
    let network = if kind == HostKind::Outside { child + 4 } else { child };
    let end = |node| host(setup, node, network, kind as u8);
    Flow { src: end(from), dst: end(to), port: 2_000 }
}

/// UDP port of child `child` if a Child SA protects one port.
pub(crate) fn port(child: usize) -> u16 {
    2_000 + child as u16
}

/// Pool of virtual addresses of the gateway.
pub(crate) fn pool(setup: &Setup) -> Pool {
    let bits = if setup.virtual_addrs == VirtualAddrs::One { 0 } else { 4 };
    let addrs = range(addr(setup.inner_v6, [10, 200, 0, 16]), bits);
    Pool { name: POOL.into(), addrs, dns: vec![], dns_domains: vec![], subnets: vec![] }
}
