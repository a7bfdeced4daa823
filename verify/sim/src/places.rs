//! Addresses: of the nodes, of the hosts that they protect, and what packets go between them.

use crate::style::{Layout, Style, VirtualAddrs};
use casemate_ike::config::Pool;
use casemate_sa::AddrRange;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name of the pool of virtual addresses.
pub(crate) const POOL: &str = "pool";

/// Both ends of packets of protected hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// UDP port, the same at both ends.
    pub(crate) port: u16,
}

/// What a host is for, which its number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Its packets are protected.
    Protected = 5,
    /// Its packets go in clear, if the configuration says so.
    Clear = 100,
    /// Its packets go nowhere, if the configuration says so.
    Barred = 101,
    /// No policy knows it.
    Outside = 200,
}

/// An address that reads alike in both versions.
fn addr(v6: bool, bytes: [u8; 4]) -> IpAddr {
    if v6 {
        let [a, b, c, d] = bytes.map(u16::from);
        Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, c, d).into()
    } else {
        Ipv4Addr::from(bytes).into()
    }
}

/// The range around an address. IPv6 ranges are as wide, so that both divide networks alike.
pub(crate) fn range(around: IpAddr, bits: u8) -> AddrRange {
    let len = if around.is_ipv6() { 128 - bits } else { 32 - bits };
    let mask = |bits: u8| (1_u128 << bits) - 1;
    let first = match around {
        IpAddr::V4(addr) => IpAddr::from(Ipv4Addr::from_bits(addr.to_bits() & !(mask(bits) as u32))),
        IpAddr::V6(addr) => IpAddr::from(Ipv6Addr::from_bits(addr.to_bits() & !mask(bits))),
    };
    AddrRange::prefix(first, len).unwrap()
}

/// Where a node is in the world. A client behind a NAT has another address there.
pub(crate) fn outer(style: &Style, node: usize) -> IpAddr {
    addr(style.outer_v6, [192, 0, 2, 1 + node as u8])
}

/// The address of a node behind its NAT.
pub(crate) fn private(style: &Style, node: usize) -> IpAddr {
    addr(style.outer_v6, [10, 99, node as u8, 2])
}

/// The address of a node, as it knows it.
pub(crate) fn own(style: &Style, node: usize) -> IpAddr {
    if style.nat && node > 0 { private(style, node) } else { outer(style, node) }
}

/// Bits of the number of a host within what the child's networks have.
const CHILD_BITS: u8 = 8;

/// A host within the network that node `node` has for its child `child`.
pub(crate) fn host(style: &Style, node: usize, child: usize, which: u8) -> IpAddr {
    match addr(style.inner_v6, [10, 1 + node as u8, child as u8, which]) {
        // The number of the child is next to that of the host, as with IPv4.
        IpAddr::V6(addr) => {
            let low = (child as u128) << CHILD_BITS | u128::from(which);
            Ipv6Addr::from_bits(addr.to_bits() >> 32 << 32 | low).into()
        }
        v4 => v4,
    }
}

/// Packets between two nodes' hosts; an address that a node got is not known here.
pub(crate) fn flow(style: &Style, (from, to, child): (usize, usize, usize), kind: HostKind) -> Flow {
    if style.layout == Layout::Ports {
        let port = if kind == HostKind::Protected { port(child) } else { 9 };
        return Flow { src: own(style, from), dst: own(style, to), port };
    }
    // The first network may hold those of all children.
    let network = if kind == HostKind::Outside { child + 4 } else { child };
    let end = |node| host(style, node, network, kind as u8);
    Flow { src: end(from), dst: end(to), port: 2_000 }
}

/// The port of a Child SA that carries one.
pub(crate) fn port(child: usize) -> u16 {
    2_000 + child as u16
}

/// The virtual addresses that a gateway gives.
pub(crate) fn pool(style: &Style) -> Pool {
    let bits = if style.virtual_addrs == VirtualAddrs::One { 0 } else { 4 };
    let addrs = range(addr(style.inner_v6, [10, 200, 0, 16]), bits);
    Pool { name: POOL.into(), addrs, dns: vec![], subnets: vec![] }
}
