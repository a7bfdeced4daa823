//! What a packet shows to the SPD: addresses, upper-layer protocol and ports (the selectors of RFC 4301 section 4.4.1.1), and
//! to the SAs that a policy leads to: its DSCP (section 4.4.2.1).
//!
//! Called for every packet that is classified, so a key is five words, cheap to hash and to compare. Where a selector
//! cannot be seen, because an earlier fragment holds it, it is OPAQUE: `None` here.

use core::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{
    Malformed,
    dscp::Dscp,
    ip::ext::{FRAGMENT_LEN, Fragment as Fragmented},
    ip::{IpVersion, Ipv4, Ipv6, proto, v4, version},
};

/// Whether a packet is a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// It is whole.
    Whole,
    /// It is the first fragment: upper-layer header included.
    First,
    /// It is a later fragment: no upper-layer header in it.
    Later,
}

/// The selectors of one packet, and its DSCP.
///
/// The words are source (two), destination (two), and `DSCP | flags | protocol | ports`; unused bits are 0, so that what is equal
/// has equal words. No selector looks at the DSCP.
#[derive(Clone, Copy, Eq)]
pub struct FlowKey([u64; 5]);

const V6: u64 = 1 << 40;
const OPAQUE_PROTO: u64 = 1 << 41;
const OPAQUE_PORTS: u64 = 1 << 42;
const FIRST: u64 = 1 << 43;
const LATER: u64 = 1 << 44;
/// Where the DSCP begins.
const DSCP: u32 = 45;
/// A first fragment whose later ones do not show the protocol.
const HIDDEN_PROTO: u64 = 1 << 51;

/// What one look at a packet's headers tells a gateway, so that it need not look again.
#[derive(Debug, Clone, Copy)]
pub struct Overview {
    /// The selectors.
    pub key: FlowKey,
    // DF, type of service, total length (32 bits). One word: stored in bytes and loaded whole, they would stall the CPU.
    rest: u64,
}

impl Overview {
    /// Of the IP packet at the start of `packet`.
    // Always inlined, and word by word: a key that is stored in words and loaded in vectors stalls the CPU.
    #[inline(always)]
    pub fn of(packet: &[u8]) -> Result<Self, Malformed> {
        if let Some(common) = Self::of_common_v4(packet) {
            return Ok(common);
        }
        let Self { key: FlowKey([a, b, c, d, e]), rest } = Self::of_any(packet)?;
        Ok(Self { key: FlowKey([a, b, c, d, e]), rest })
    }

    /// Of what most packets are: IPv4 without options, whole, TCP or UDP with its ports. Everything stands at a fixed place
    /// then, which takes half the time.
    #[inline(always)]
    fn of_common_v4(packet: &[u8]) -> Option<Self> {
        let h: &[u8; 24] = packet.first_chunk()?;
        let (proto, flags) = (h[9], h[6]);
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        let is_common = h[0] == 0x45
            && flags & !v4::DF == 0
            && h[7] == 0
            && (proto == proto::TCP || proto == proto::UDP)
            && (h.len()..=packet.len()).contains(&total_len.into());
        if !is_common {
            return None;
        }
        let src = u32::from_be_bytes([h[12], h[13], h[14], h[15]]);
        let dst = u32::from_be_bytes([h[16], h[17], h[18], h[19]]);
        let ports = u32::from_be_bytes([h[20], h[21], h[22], h[23]]);
        let rest = dscp_bits(Dscp::of_tos(h[1])) | u64::from(proto) << 32 | u64::from(ports);
        let key = FlowKey([src.into(), 0, dst.into(), 0, rest]);
        Some(Self::new(key, total_len.into(), h[1], flags != 0))
    }

    /// Of any IP packet.
    #[inline(never)]
    fn of_any(packet: &[u8]) -> Result<Self, Malformed> {
        match version(packet)? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet)?;
                Ok(Self::new(FlowKey::of_v4(&ip), ip.total_len().into(), ip.tos(), ip.df()))
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet)?;
                Ok(Self::new(FlowKey::of_v6(&ip)?, ip.total_len(), ip.traffic_class(), true))
            }
        }
    }

    #[inline(always)]
    fn new(key: FlowKey, total_len: usize, tos: u8, df: bool) -> Self {
        Self { key, rest: u64::from(df) << 40 | u64::from(tos) << 32 | u64::from(total_len as u32) }
    }

    /// Length of header and payload; bytes behind do not belong to the packet.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.rest as u32 as usize
    }

    /// Type of service or traffic class: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        (self.rest >> 32) as u8
    }

    /// Whether routers must not cut it: IPv4's DF bit; always so in IPv6 (RFC 8200 section 5).
    #[inline]
    pub fn df(&self) -> bool {
        self.rest >> 40 != 0
    }
}

impl FlowKey {
    /// The selectors of the IP packet in `packet`. The upper-layer protocol is looked for behind IPv6 extension headers.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        Ok(Overview::of(packet)?.key)
    }

    /// The selectors of a packet that an ICMP error quotes; ports that the quote does not reach are OPAQUE.
    #[inline]
    pub fn parse_quoted(packet: &[u8]) -> Result<Self, Malformed> {
        match version(packet)? {
            IpVersion::V4 => Ok(Self::of_v4(&Ipv4::parse_quoted(packet)?)),
            IpVersion::V6 => Self::of_v6(&Ipv6::parse_quoted(packet)?),
        }
    }

    /// A key of a whole IPv4 packet of the default DSCP; `ports` as [`FlowKey::ports`] gives them.
    #[inline]
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, ports: (u16, u16)) -> Self {
        Self::pack_v4(src, dst, Some(proto), port_bits(ports), Fragment::Whole)
    }

    /// A key of a whole IPv6 packet of the default DSCP; `ports` as [`FlowKey::ports`] gives them.
    #[inline]
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, ports: (u16, u16)) -> Self {
        Self::pack_v6(src, dst, Some(proto), port_bits(ports), Fragment::Whole)
    }

    #[inline(always)]
    fn of_v4<T: AsRef<[u8]>>(ip: &Ipv4<T>) -> Self {
        let fragment = match (ip.is_fragment(), ip.frag_offset()) {
            (false, _) => Fragment::Whole,
            (true, 0) => Fragment::First,
            (true, _) => Fragment::Later,
        };
        let proto = ip.protocol();
        let ports = read_ports(proto, ip.payload(), fragment);
        Self::pack_v4(ip.src(), ip.dst(), Some(proto), ports, fragment).with_dscp(Dscp::of_tos(ip.tos()))
    }

    #[inline(always)]
    fn of_v6<T: AsRef<[u8]>>(ip: &Ipv6<T>) -> Result<Self, Malformed> {
        let chain = ip.chain()?;
        let fragment = match chain.fragment {
            // RFC 6946: an atomic fragment is a whole packet.
            Some(f) if !f.is_atomic() && f.offset == 0 => Fragment::First,
            Some(f) if !f.is_atomic() => Fragment::Later,
            _ => Fragment::Whole,
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
        let Self([a, b, c, d, rest]) = key.with_dscp(Dscp::of_tos(ip.traffic_class()));
        let is_first = |f: &Fragmented| !f.is_atomic() && f.offset == 0;
        let upper_at = |f: &Fragmented| f.at.saturating_add(FRAGMENT_LEN);
        let hides = chain.fragment.is_some_and(|f| is_first(&f) && upper_at(&f) != chain.last.at);
        Ok(Self([a, b, c, d, if hides { rest | HIDDEN_PROTO } else { rest }]))
    }

    #[inline]
    fn pack_v4(src: Ipv4Addr, dst: Ipv4Addr, proto: Option<u8>, ports: u64, fragment: Fragment) -> Self {
        Self([src.to_bits().into(), 0, dst.to_bits().into(), 0, tail(proto, ports, fragment)])
    }

    #[inline]
    fn pack_v6(src: Ipv6Addr, dst: Ipv6Addr, proto: Option<u8>, ports: u64, fragment: Fragment) -> Self {
        let ((s0, s1), (d0, d1)) = (halves(src), halves(dst));
        Self([s0, s1, d0, d1, V6 | tail(proto, ports, fragment)])
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

    /// Source address as a number; an IPv4 address is less than 2^32.
    #[inline]
    pub fn src_bits(&self) -> u128 {
        self.bits(self.0[0], self.0[1])
    }

    /// Destination address as a number; an IPv4 address is less than 2^32.
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

    /// Upper-layer protocol; `None` is OPAQUE: a later fragment of an IPv6 packet in which another extension header follows
    /// the fragment header.
    #[inline]
    pub fn proto(&self) -> Option<u8> {
        (self.0[4] & OPAQUE_PROTO == 0).then_some((self.0[4] >> 32) as u8)
    }

    /// Source and destination port of TCP, UDP, UDP-Lite, SCTP and DCCP; type and code of ICMP; (type, 0) of a Mobility
    /// header; (0, 0) of a protocol without any. `None` is OPAQUE: in a later fragment, and in a packet too short to hold
    /// them.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.0[4] & OPAQUE_PORTS == 0).then_some(((self.0[4] >> 16) as u16, self.0[4] as u16))
    }

    /// Whether the packet is a fragment.
    #[inline]
    pub fn fragment(&self) -> Fragment {
        match (self.0[4] & FIRST, self.0[4] & LATER) {
            (0, 0) => Fragment::Whole,
            (_, 0) => Fragment::First,
            _ => Fragment::Later,
        }
    }

    /// What every fragment of the datagram shows, if the packet is a fragment: no ports, and no protocol if
    /// that is OPAQUE in the later ones. Decisions on it are the same for all fragments of a datagram. A
    /// whole packet shows everything.
    #[must_use]
    pub fn of_all_fragments(self) -> Self {
        let [a, b, c, d, rest] = self.0;
        if self.fragment() == Fragment::Whole {
            return self;
        }
        let hidden = if rest & HIDDEN_PROTO == 0 { rest } else { rest & !(0xff << 32) | OPAQUE_PROTO };
        Self([a, b, c, d, hidden & !u64::from(u32::MAX) & !HIDDEN_PROTO | OPAQUE_PORTS])
    }

    /// The flow in the other direction: addresses and ports change places. What answers a type of ICMP or of a Mobility
    /// header is not said, so these are OPAQUE.
    #[must_use]
    pub fn reversed(self) -> Self {
        let [a, b, c, d, rest] = self.0;
        let without_ports = rest & !u64::from(u32::MAX);
        let tail = match (self.proto(), self.ports()) {
            (Some(proto::ICMP | proto::ICMPV6 | proto::MOBILITY), _) | (_, None) => {
                without_ports | OPAQUE_PORTS
            }
            (_, Some((src, dst))) => without_ports | u64::from(dst) << 16 | u64::from(src),
        };
        Self([c, d, a, b, tail])
    }

    /// Its DSCP.
    #[inline]
    pub fn dscp(&self) -> Dscp {
        Dscp::of_tos(((self.0[4] >> DSCP) as u8) << 2)
    }

    /// The same selectors with this DSCP.
    #[inline]
    #[must_use]
    pub fn with_dscp(self, dscp: Dscp) -> Self {
        let [a, b, c, d, rest] = self.0;
        Self([a, b, c, d, rest & !dscp_bits(Dscp::MAX) | dscp_bits(dscp)])
    }
}

// Word by word: a memory comparison would load a key just packed in wider pieces than it was stored, and stall.
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

// The ports as the key holds them. One word and not a tuple: stored in halves and loaded whole, a tuple stalls the CPU.
#[inline]
fn read_ports(proto: u8, upper: &[u8], fragment: Fragment) -> u64 {
    // Most packets are whole and carry TCP or UDP; they do not pay for the others.
    match upper.first_chunk() {
        Some(&ports) if fragment == Fragment::Whole && (proto == proto::TCP || proto == proto::UDP) => {
            u32::from_be_bytes(ports).into()
        }
        _ => read_other_ports(proto, upper, fragment),
    }
}

/// Where a packet is too short to show its ports they are OPAQUE, as in a later fragment: a policy that asks for them
/// does not match.
#[inline(never)]
fn read_other_ports(proto: u8, upper: &[u8], fragment: Fragment) -> u64 {
    if fragment == Fragment::Later {
        return OPAQUE_PORTS;
    }
    let ports = match proto {
        proto::TCP | proto::UDP | proto::UDP_LITE | proto::SCTP | proto::DCCP => {
            upper.first_chunk().map(|&ports| u32::from_be_bytes(ports).into())
        }
        proto::ICMP | proto::ICMPV6 => {
            upper.first_chunk().map(|&[kind, code]| port_bits((kind.into(), code.into())))
        }
        // RFC 6275 section 6.1.1: the MH type is the third byte.
        proto::MOBILITY => upper.first_chunk().map(|&[_, _, kind]| port_bits((kind.into(), 0))),
        _ => Some(0),
    };
    ports.unwrap_or(OPAQUE_PORTS)
}

#[inline]
fn port_bits((src, dst): (u16, u16)) -> u64 {
    u64::from(src) << 16 | u64::from(dst)
}

#[inline]
fn dscp_bits(dscp: Dscp) -> u64 {
    u64::from(dscp.value()) << DSCP
}

#[inline]
fn tail(proto: Option<u8>, ports: u64, fragment: Fragment) -> u64 {
    let proto = proto.map_or(OPAQUE_PROTO, |p| u64::from(p) << 32);
    let fragment = match fragment {
        Fragment::Whole => 0,
        Fragment::First => FIRST,
        Fragment::Later => LATER,
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
