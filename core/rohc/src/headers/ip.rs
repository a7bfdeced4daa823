//! IP headers without options.

use crate::Fault;
use crate::cursor::{HeaderBytes, Reader, Write};
use casemate_wire::checksum::Sum;

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// An IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ip {
    V4(Ipv4),
    V6(Ipv6),
}

/// An IPv4 header without options that is no fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4 {
    pub(crate) tos: u8,
    pub(crate) ident: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) src: [u8; 4],
    pub(crate) dst: [u8; 4],
}

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv6 {
    pub(crate) traffic_class: u8,
    /// 20 bits.
    pub(crate) flow_label: u32,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
}

impl Ip {
    /// Protocol of the header behind this one.
    pub(crate) const fn next(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.protocol,
            Self::V6(ip) => ip.next_header,
        }
    }

    /// Type of Service or Traffic Class.
    pub(crate) const fn tos(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.tos,
            Self::V6(ip) => ip.traffic_class,
        }
    }

    /// Time to Live or Hop Limit.
    pub(crate) const fn ttl(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.ttl,
            Self::V6(ip) => ip.hop_limit,
        }
    }

    pub(crate) const fn set_tos(&mut self, tos: u8) {
        match self {
            Self::V4(ip) => ip.tos = tos,
            Self::V6(ip) => ip.traffic_class = tos,
        }
    }

    pub(crate) const fn set_ttl(&mut self, ttl: u8) {
        match self {
            Self::V4(ip) => ip.ttl = ttl,
            Self::V6(ip) => ip.hop_limit = ttl,
        }
    }

    pub(super) const fn len(&self) -> usize {
        match self {
            Self::V4(_) => IPV4_LEN,
            Self::V6(_) => IPV6_LEN,
        }
    }

    /// Writes the header; `rest` is the number of bytes behind it.
    pub(super) fn write(&self, rest: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        match self {
            Self::V4(ip) => ip.write(rest, out),
            Self::V6(ip) => ip.write(rest, out),
        }
    }
}

impl Ipv4 {
    /// Parses a header that extends over the rest of the packet. `None` if it cannot be compressed.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let packet_len = reader.0.len();
        let bytes: [u8; IPV4_LEN] = reader.array().ok()?;
        let [version_len, tos, l0, l1, i0, i1, f0, f1, ttl, protocol, c0, c1, addrs @ ..] = bytes;
        let [s0, s1, s2, s3, d0, d1, d2, d3] = addrs;
        let is_whole = usize::from(u16::from_be_bytes([l0, l1])) == packet_len;
        // The bit in front of DF is reserved; MF or an offset mean a fragment.
        let dont_fragment = match [f0, f1] {
            [0, 0] => false,
            [0x40, 0] => true,
            _ => return None,
        };
        // A checksum of all ones is valid as well where it should be 0, but would be restored as 0.
        let has_checksum = Sum::of(&bytes).is_valid() && [c0, c1] != [0xff; 2];
        (version_len == 0x45 && is_whole && has_checksum).then_some(Self {
            tos,
            ident: u16::from_be_bytes([i0, i1]),
            dont_fragment,
            ttl,
            protocol,
            src: [s0, s1, s2, s3],
            dst: [d0, d1, d2, d3],
        })
    }

    fn write(&self, rest: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        let len = rest.checked_add(IPV4_LEN).and_then(|len| u16::try_from(len).ok()).ok_or(Fault::TooLong)?;
        let ([l0, l1], [i0, i1]) = (len.to_be_bytes(), self.ident.to_be_bytes());
        let flags = if self.dont_fragment { 0x40 } else { 0 };
        let (Self { tos, ttl, protocol, .. }, [s0, s1, s2, s3], [d0, d1, d2, d3]) =
            (*self, self.src, self.dst);
        let bytes = |c0, c1| {
            [0x45, tos, l0, l1, i0, i1, flags, 0, ttl, protocol, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3]
        };
        let [c0, c1] = Sum::of(&bytes(0, 0)).finish().to_be_bytes();
        out.put(&bytes(c0, c1))
    }
}

impl Ipv6 {
    /// Parses a header that extends over the rest of the packet.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let first = reader.u32().ok()?;
        let len = reader.u16().ok()?;
        let [next_header, hop_limit] = reader.array().ok()?;
        let (src, dst) = (reader.array().ok()?, reader.array().ok()?);
        let traffic_class = (first >> 20 & 0xff) as u8;
        (usize::from(len) == reader.0.len()).then_some(Self {
            traffic_class,
            flow_label: first & 0xf_ffff,
            next_header,
            hop_limit,
            src,
            dst,
        })
    }

    fn write(&self, rest: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        let len = u16::try_from(rest).map_err(|_| Fault::TooLong)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        out.put(&first.to_be_bytes())?;
        out.put(&len.to_be_bytes())?;
        out.put(&[self.next_header, self.hop_limit])?;
        out.put(&self.src)?;
        out.put(&self.dst)
    }
}
