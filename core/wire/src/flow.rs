//! Flow keys: what a packet shows to the SPD, namely addresses, upper-layer protocol and ports (the selectors
//! of RFC 4301 section 4.4.1.1), and its DSCP, which selects one of several SAs of a policy (section
//! 4.4.2.1).
//!
//! Every classified packet needs a key, so a key is five words that are cheap to hash and compare. A selector
//! is OPAQUE (`None` in this module) if it is only in an earlier fragment.

mod summary;

pub use summary::HeaderSummary;

use core::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{
    Malformed,
    dscp::Dscp,
    ip::ext::{FRAGMENT_LEN, FragmentHeader},
    ip::{IpVersion, Ipv4, Ipv6, proto, version},
};

/// Fragmentation status of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentKind {
    /// A whole packet.
    Whole,
    /// The first fragment, which contains the upper-layer header.
    First,
    /// A later fragment, which contains no upper-layer header.
    Later,
}

/// The port selectors of a packet: source and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP, type and
/// code of ICMP, the type of a Mobility header and 0. Both are 0 for a protocol without ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPorts {
    /// Source port or type.
    pub src: u16,
    /// Destination port or code.
    pub dst: u16,
}

impl FlowPorts {
    /// The ports of a protocol without ports.
    pub const NONE: Self = Self::new(0, 0);

    /// Creates the ports of a packet.
    #[inline]
    pub const fn new(src: u16, dst: u16) -> Self {
        Self { src, dst }
    }

    /// Returns the ports of the opposite direction.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }

    /// As the last word of a key stores them.
    #[inline]
    const fn to_bits(self) -> u64 {
        (self.src as u64) << 16 | self.dst as u64
    }
}

/// The selectors of a packet, and its DSCP.
///
/// The words are the source (two), the destination (two), and `DSCP | flags | protocol | ports`. Unused bits
/// are 0, so equal keys have equal words. Selectors do not depend on the DSCP.
#[derive(Clone, Copy, Eq)]
pub struct FlowKey([u64; 5]);

const V6: u64 = 1 << 40;
const OPAQUE_PROTO: u64 = 1 << 41;
const OPAQUE_PORTS: u64 = 1 << 42;
const FIRST: u64 = 1 << 43;
const LATER: u64 = 1 << 44;
/// Position of the DSCP.
const DSCP: u32 = 45;
/// A first fragment whose later fragments do not show the protocol.
const HIDDEN_PROTO: u64 = 1 << 51;

impl FlowKey {
    /// Returns the selectors of an IP packet. The upper-layer protocol is searched behind IPv6 extension
    /// headers.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        Ok(HeaderSummary::parse(packet)?.key)
    }

    /// Returns the selectors of a packet that an ICMP error quotes. Ports beyond the end of the quote are
    /// OPAQUE.
    #[inline]
    pub fn parse_quoted(packet: &[u8]) -> Result<Self, Malformed> {
        match version(packet)? {
            IpVersion::V4 => Ok(Self::from_v4(&Ipv4::parse_quoted(packet)?)),
            IpVersion::V6 => Self::from_v6(&Ipv6::parse_quoted(packet)?),
        }
    }

    /// Creates the key of a whole IPv4 packet with the default DSCP.
    #[inline]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, ports: FlowPorts) -> Self {
        Self::pack_v4(src, dst, Some(proto), ports.to_bits(), FragmentKind::Whole)
    }

    /// Creates the key of a whole IPv6 packet with the default DSCP.
    #[inline]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, ports: FlowPorts) -> Self {
        Self::pack_v6(src, dst, Some(proto), ports.to_bits(), FragmentKind::Whole)
    }

    #[inline(always)]
    fn from_v4<T: AsRef<[u8]>>(ip: &Ipv4<T>) -> Self {
        let fragment = match (ip.is_fragment(), ip.frag_offset()) {
            (false, _) => FragmentKind::Whole,
            (true, 0) => FragmentKind::First,
            (true, _) => FragmentKind::Later,
        };
        let proto = ip.protocol();
        let ports = read_ports(proto, ip.payload(), fragment);
        Self::pack_v4(ip.src(), ip.dst(), Some(proto), ports, fragment).with_dscp(Dscp::from_tos(ip.tos()))
    }

    #[inline(always)]
    fn from_v6<T: AsRef<[u8]>>(ip: &Ipv6<T>) -> Result<Self, Malformed> {
        let chain = ip.chain()?;
        let fragment = match chain.fragment {
            // RFC 6946: an atomic fragment is a whole packet.
            Some(f) if !f.is_atomic() && f.offset == 0 => FragmentKind::First,
            Some(f) if !f.is_atomic() => FragmentKind::Later,
            _ => FragmentKind::Whole,
        };
        let upper = chain.upper();
        let ports = match upper {
            Some(proto) => {
                let rest = ip.packet().get(chain.last.at..).unwrap_or_default();
                read_ports(proto, rest, fragment)
            }
            None => OPAQUE_PORTS,
        };
        let key = Self::pack_v6(ip.src(), ip.dst(), upper, ports, fragment);
        let Self([a, b, c, d, rest]) = key.with_dscp(Dscp::from_tos(ip.traffic_class()));
        let is_first = |f: &FragmentHeader| !f.is_atomic() && f.offset == 0;
        let upper_at = |f: &FragmentHeader| f.at.saturating_add(FRAGMENT_LEN);
        let hides = chain.fragment.is_some_and(|f| is_first(&f) && upper_at(&f) != chain.last.at);
        Ok(Self([a, b, c, d, if hides { rest | HIDDEN_PROTO } else { rest }]))
    }

    #[inline]
    fn pack_v4(src: Ipv4Addr, dst: Ipv4Addr, proto: Option<u8>, ports: u64, fragment: FragmentKind) -> Self {
        Self([src.to_bits().into(), 0, dst.to_bits().into(), 0, last_word(proto, ports, fragment)])
    }

    #[inline]
    fn pack_v6(src: Ipv6Addr, dst: Ipv6Addr, proto: Option<u8>, ports: u64, fragment: FragmentKind) -> Self {
        let ((s0, s1), (d0, d1)) = (halves(src), halves(dst));
        Self([s0, s1, d0, d1, V6 | last_word(proto, ports, fragment)])
    }

    /// IP version.
    #[inline]
    pub fn version(&self) -> IpVersion {
        if self.0[4] & V6 == 0 { IpVersion::V4 } else { IpVersion::V6 }
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> IpAddr {
        self.address(self.0[0], self.0[1])
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> IpAddr {
        self.address(self.0[2], self.0[3])
    }

    #[inline]
    fn address(&self, first: u64, second: u64) -> IpAddr {
        match self.version() {
            IpVersion::V4 => Ipv4Addr::from_bits(first as u32).into(),
            IpVersion::V6 => Ipv6Addr::from_bits(u128::from(first) << 64 | u128::from(second)).into(),
        }
    }

    /// Source address as a number; IPv4 addresses are less than 2^32.
    #[inline]
    pub fn src_bits(&self) -> u128 {
        self.bits(self.0[0], self.0[1])
    }

    /// Destination address as a number; IPv4 addresses are less than 2^32.
    #[inline]
    pub fn dst_bits(&self) -> u128 {
        self.bits(self.0[2], self.0[3])
    }

    #[inline]
    fn bits(&self, first: u64, second: u64) -> u128 {
        match self.version() {
            IpVersion::V4 => first.into(),
            IpVersion::V6 => u128::from(first) << 64 | u128::from(second),
        }
    }

    /// Upper-layer protocol. `None` is OPAQUE: a later fragment of an IPv6 packet with another extension
    /// header after the fragment header.
    #[inline]
    pub fn proto(&self) -> Option<u8> {
        (self.0[4] & OPAQUE_PROTO == 0).then_some((self.0[4] >> 32) as u8)
    }

    /// Ports. `None` is OPAQUE: a later fragment, or a packet that is too short to contain its ports.
    #[inline]
    pub fn ports(&self) -> Option<FlowPorts> {
        (self.0[4] & OPAQUE_PORTS == 0).then_some(FlowPorts::new((self.0[4] >> 16) as u16, self.0[4] as u16))
    }

    /// Fragmentation status of the packet.
    #[inline]
    pub fn fragment(&self) -> FragmentKind {
        match (self.0[4] & FIRST, self.0[4] & LATER) {
            (0, 0) => FragmentKind::Whole,
            (_, 0) => FragmentKind::First,
            _ => FragmentKind::Later,
        }
    }

    /// Reduces the key of a fragment to the selectors that all fragments of its datagram show: without ports,
    /// and without the protocol if later fragments do not show it. Decisions based on the result are equal
    /// for all fragments of a datagram. The key of a whole packet stays unchanged.
    #[must_use]
    pub fn common_to_all_fragments(self) -> Self {
        let [a, b, c, d, rest] = self.0;
        if self.fragment() == FragmentKind::Whole {
            return self;
        }
        let hidden = if rest & HIDDEN_PROTO == 0 { rest } else { rest & !(0xff << 32) | OPAQUE_PROTO };
        Self([a, b, c, d, hidden & !u64::from(u32::MAX) & !HIDDEN_PROTO | OPAQUE_PORTS])
    }

    /// Returns the key of the opposite direction: addresses and ports are swapped. The types of ICMP and of
    /// the Mobility header become OPAQUE, because the type of a reply is not defined by the type of the
    /// request.
    #[must_use]
    pub fn reversed(self) -> Self {
        let [a, b, c, d, rest] = self.0;
        let without_ports = rest & !u64::from(u32::MAX);
        let last_word = match (self.proto(), self.ports()) {
            (Some(proto::ICMP | proto::ICMPV6 | proto::MOBILITY), _) | (_, None) => {
                without_ports | OPAQUE_PORTS
            }
            (_, Some(ports)) => without_ports | ports.reversed().to_bits(),
        };
        Self([c, d, a, b, last_word])
    }

    /// DSCP of the packet.
    #[inline]
    pub fn dscp(&self) -> Dscp {
        Dscp::from_tos(((self.0[4] >> DSCP) as u8) << 2)
    }

    /// Returns the same selectors with another DSCP.
    #[inline]
    #[must_use]
    pub fn with_dscp(self, dscp: Dscp) -> Self {
        let [a, b, c, d, rest] = self.0;
        Self([a, b, c, d, rest & !dscp_bits(Dscp::MAX) | dscp_bits(dscp)])
    }
}

// Compares word by word: a memory comparison would load a new key in wider pieces than it was stored, and
// stall.
impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [v, w, x, y, z]) = (self.0, other.0);
        (a ^ v) | (b ^ w) | (c ^ x) | (d ^ y) | (e ^ z) == 0
    }
}

impl Hash for FlowKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0 {
            state.write_u64(word);
        }
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey")
            .field("src", &self.src())
            .field("dst", &self.dst())
            .field("proto", &self.proto())
            .field("ports", &self.ports())
            .field("fragment", &self.fragment())
            .field("dscp", &self.dscp())
            .finish()
    }
}

// Returns the ports as the key stores them. One word and not a tuple: loading a tuple that was stored in
// halves stalls the CPU.
#[inline]
fn read_ports(proto: u8, upper: &[u8], fragment: FragmentKind) -> u64 {
    // Fast path: most packets are whole and carry TCP or UDP.
    match upper.first_chunk() {
        Some(&ports) if fragment == FragmentKind::Whole && (proto == proto::TCP || proto == proto::UDP) => {
            u32::from_be_bytes(ports).into()
        }
        _ => read_other_ports(proto, upper, fragment),
    }
}

/// Returns OPAQUE ports if a packet is too short to contain them, as for a later fragment: policies with port
/// selectors do not match such packets.
#[inline(never)]
fn read_other_ports(proto: u8, upper: &[u8], fragment: FragmentKind) -> u64 {
    if fragment == FragmentKind::Later {
        return OPAQUE_PORTS;
    }
    let ports = match proto {
        proto::TCP | proto::UDP | proto::UDP_LITE | proto::SCTP | proto::DCCP => {
            upper.first_chunk().map(|&ports| u32::from_be_bytes(ports).into())
        }
        proto::ICMP | proto::ICMPV6 => {
            upper.first_chunk().map(|&[kind, code]| FlowPorts::new(kind.into(), code.into()).to_bits())
        }
        // RFC 6275 section 6.1.1: the MH type is the third byte.
        proto::MOBILITY => upper.first_chunk().map(|&[_, _, kind]| FlowPorts::new(kind.into(), 0).to_bits()),
        _ => Some(0),
    };
    ports.unwrap_or(OPAQUE_PORTS)
}

#[inline]
fn dscp_bits(dscp: Dscp) -> u64 {
    u64::from(dscp.value()) << DSCP
}

#[inline]
fn last_word(proto: Option<u8>, ports: u64, fragment: FragmentKind) -> u64 {
    let proto = proto.map_or(OPAQUE_PROTO, |p| u64::from(p) << 32);
    let fragment = match fragment {
        FragmentKind::Whole => 0,
        FragmentKind::First => FIRST,
        FragmentKind::Later => LATER,
    };
    proto | ports | fragment
}

#[inline]
fn halves(address: Ipv6Addr) -> (u64, u64) {
    let bits = address.to_bits();
    ((bits >> 64) as u64, bits as u64)
}

#[cfg(test)]
mod tests;
