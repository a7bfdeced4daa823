//! The headers of a packet that are compressed: up to [`MAX_IP_HEADERS`] IP headers, then UDP, UDP and RTP,
//! ESP or nothing. Fields that the decompressor infers (lengths, IPv4 header checksums) are not stored.

use crate::cursor::{HeaderBytes, Packed, Reader, Write};
use crate::{Fault, Profile};
use arrayvec::ArrayVec;
use casemate_wire::checksum::Sum;
use casemate_wire::ip::proto;

/// Largest number of IP headers, tunnels included.
pub(crate) const MAX_IP_HEADERS: usize = 3;
/// Largest number of CSRC identifiers of an RTP header.
pub(crate) const MAX_CSRC: usize = 15;

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const RTP_LEN: usize = 12;

/// Minimal encapsulation (RFC 2004).
const MINIMAL_ENCAPSULATION: u8 = 55;

/// Whether the chains of RFC 5225 have an item for this header behind an IP header. Such headers are not
/// supported.
pub(crate) const fn has_unsupported_item(next: u8) -> bool {
    matches!(
        next,
        proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::DEST_OPTS
            | proto::GRE
            | proto::AH
            | MINIMAL_ENCAPSULATION
    )
}

/// The IP headers of a packet, the outermost first, and the transport header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Headers {
    /// At least one.
    pub(crate) ips: ArrayVec<Ip, MAX_IP_HEADERS>,
    pub(crate) transport: Transport,
}

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

/// The header behind the IP headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The packet is compressed up to its innermost IP header.
    None,
    Udp(Udp),
    Rtp(Udp, Rtp),
    Esp(Esp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Udp {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) checksum: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rtp {
    pub(crate) padding: bool,
    pub(crate) extension: bool,
    pub(crate) marker: bool,
    /// 7 bits.
    pub(crate) payload_type: u8,
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
    pub(crate) ssrc: u32,
    pub(crate) csrc: ArrayVec<u32, MAX_CSRC>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Esp {
    pub(crate) spi: u32,
    pub(crate) sequence: u32,
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

    /// Parses a header that extends over the rest of the packet. `None` if it cannot be compressed.
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        match reader.0.first()? >> 4 {
            4 => Ipv4::parse(reader).map(Self::V4),
            6 => Ipv6::parse(reader).map(Self::V6),
            _ => None,
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::V4(_) => IPV4_LEN,
            Self::V6(_) => IPV6_LEN,
        }
    }

    /// Writes the header; `rest` is the number of bytes behind it.
    fn write(&self, rest: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        match self {
            Self::V4(ip) => ip.write(rest, out),
            Self::V6(ip) => ip.write(rest, out),
        }
    }
}

impl Ipv4 {
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let packet_len = reader.0.len();
        let bytes: [u8; IPV4_LEN] = reader.array().ok()?;
        let [version_len, tos, l0, l1, i0, i1, f0, f1, ttl, protocol, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3] =
            bytes;
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
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
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

impl Udp {
    /// Parses a header whose length field covers the rest of the packet.
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let datagram_len = reader.0.len();
        let (src_port, dst_port) = (reader.u16().ok()?, reader.u16().ok()?);
        let (len, checksum) = (reader.u16().ok()?, reader.u16().ok()?);
        (usize::from(len) == datagram_len).then_some(Self { src_port, dst_port, checksum })
    }

    fn write(&self, rest: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        let len = rest.checked_add(UDP_LEN).and_then(|len| u16::try_from(len).ok()).ok_or(Fault::TooLong)?;
        [self.src_port, self.dst_port, len, self.checksum]
            .iter()
            .try_for_each(|field| out.put(&field.to_be_bytes()))
    }
}

impl Rtp {
    /// Parses a header of version 2 with all its CSRC identifiers.
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let [flags, marker_type, s0, s1] = reader.array().ok()?;
        let (timestamp, ssrc) = (reader.u32().ok()?, reader.u32().ok()?);
        let csrc = (0..flags & 0x0f).map(|_| reader.u32().ok()).collect::<Option<_>>()?;
        (flags >> 6 == 2).then_some(Self {
            padding: flags & 0x20 != 0,
            extension: flags & 0x10 != 0,
            marker: marker_type & 0x80 != 0,
            payload_type: marker_type & 0x7f,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp,
            ssrc,
            csrc,
        })
    }

    fn write(&self, out: &mut HeaderBytes) -> Result<(), Fault> {
        let count = u32::try_from(self.csrc.len()).map_err(|_| Fault::TooLong)?;
        let flags =
            Packed::default().with(2, 2).with_flag(self.padding).with_flag(self.extension).with(count, 4);
        let first = flags.with_flag(self.marker).with(self.payload_type.into(), 7);
        first.write(out)?;
        out.put(&self.sequence.to_be_bytes())?;
        [self.timestamp, self.ssrc].iter().chain(&self.csrc).try_for_each(|word| out.put(&word.to_be_bytes()))
    }
}

impl Headers {
    /// Parses the headers of a packet. Returns them and the bytes behind them; `None` if no profile but
    /// [`Profile::Uncompressed`] can represent the packet exactly: fields that the decompressor would infer
    /// have other values, or there are options, extension headers or fragments.
    pub(crate) fn parse(packet: &[u8], is_rtp: impl FnOnce(&Udp, &Rtp) -> bool) -> Option<(Self, &[u8])> {
        let mut reader = Reader(packet);
        let mut ips = ArrayVec::new();
        let protocol = loop {
            let ip = Ip::parse(&mut reader)?;
            ips.try_push(ip).ok()?;
            match ip.next() {
                proto::IPIP if reader.0.first()? >> 4 == 4 => {}
                proto::IPV6 if reader.0.first()? >> 4 == 6 => {}
                other => break other,
            }
        };
        let transport = match protocol {
            proto::UDP => {
                let udp = Udp::parse(&mut reader)?;
                let mut rest = reader;
                match Rtp::parse(&mut rest).filter(|rtp| is_rtp(&udp, rtp)) {
                    Some(rtp) => {
                        reader = rest;
                        Transport::Rtp(udp, rtp)
                    }
                    None => Transport::Udp(udp),
                }
            }
            proto::ESP => Transport::Esp(Esp { spi: reader.u32().ok()?, sequence: reader.u32().ok()? }),
            proto::IPIP | proto::IPV6 => return None,
            next if has_unsupported_item(next) => return None,
            _ => Transport::None,
        };
        Some((Self { ips, transport }, reader.0))
    }

    /// Replaces `out` by the headers of a packet with `payload_len` bytes behind them.
    pub(crate) fn write(&self, payload_len: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        out.clear();
        let mut rest = self.len().saturating_add(payload_len);
        for ip in &self.ips {
            rest = rest.saturating_sub(ip.len());
            ip.write(rest, out)?;
        }
        match &self.transport {
            Transport::None => {}
            Transport::Udp(udp) => udp.write(rest.saturating_sub(UDP_LEN), out)?,
            Transport::Rtp(udp, rtp) => {
                udp.write(rest.saturating_sub(UDP_LEN), out)?;
                rtp.write(out)?;
            }
            Transport::Esp(esp) => {
                out.put(&esp.spi.to_be_bytes())?;
                out.put(&esp.sequence.to_be_bytes())?;
            }
        }
        Ok(())
    }

    fn len(&self) -> usize {
        let transport = match &self.transport {
            Transport::None => 0,
            Transport::Udp(_) | Transport::Esp(_) => UDP_LEN,
            Transport::Rtp(_, rtp) => {
                UDP_LEN.saturating_add(RTP_LEN).saturating_add(rtp.csrc.len().saturating_mul(4))
            }
        };
        self.ips.iter().map(Ip::len).fold(transport, usize::saturating_add)
    }

    /// The profile for these headers.
    pub(crate) const fn profile(&self) -> Profile {
        match self.transport {
            Transport::None => Profile::Ip,
            Transport::Udp(_) => Profile::Udp,
            Transport::Rtp(..) => Profile::Rtp,
            Transport::Esp(_) => Profile::Esp,
        }
    }

    /// The innermost IP header.
    pub(crate) fn innermost(&self) -> Option<&Ip> {
        self.ips.last()
    }

    /// Whether both packets belong to one flow: the fields of the static chain are equal.
    pub(crate) fn is_same_flow(&self, other: &Self) -> bool {
        let transport = match (&self.transport, &other.transport) {
            (Transport::None, Transport::None) => true,
            (Transport::Udp(a), Transport::Udp(b)) => a.has_ports_of(b),
            (Transport::Rtp(a, x), Transport::Rtp(b, y)) => a.has_ports_of(b) && x.ssrc == y.ssrc,
            (Transport::Esp(a), Transport::Esp(b)) => a.spi == b.spi,
            _ => false,
        };
        transport
            && self.ips.len() == other.ips.len()
            && self.ips.iter().zip(&other.ips).all(|(a, b)| match (a, b) {
                (Ip::V4(a), Ip::V4(b)) => (a.protocol, a.src, a.dst) == (b.protocol, b.src, b.dst),
                (Ip::V6(a), Ip::V6(b)) => {
                    (a.next_header, a.flow_label, a.src, a.dst) == (b.next_header, b.flow_label, b.src, b.dst)
                }
                _ => false,
            })
    }
}

impl Udp {
    const fn has_ports_of(&self, other: &Self) -> bool {
        self.src_port == other.src_port && self.dst_port == other.dst_port
    }
}
