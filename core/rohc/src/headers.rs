//! The headers of a packet that are compressed: up to [`MAX_IP_HEADERS`] IP headers, then UDP, UDP and RTP,
//! ESP or nothing. Fields that the decompressor infers (lengths, IPv4 header checksums) are not stored.

mod ip;
mod transport;

pub(crate) use ip::{Ip, Ipv4, Ipv6};
pub(crate) use transport::{Esp, MAX_CSRC, Rtp, Transport, Udp};

use crate::cursor::{HeaderBytes, Reader};
use crate::{Fault, Profile};
use arrayvec::ArrayVec;
use casemate_wire::ip::proto;

/// Largest number of IP headers, tunnels included.
pub(crate) const MAX_IP_HEADERS: usize = 3;

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

impl Headers {
    /// No headers.
    pub(crate) fn new() -> Self {
        Self { ips: ArrayVec::new(), transport: Transport::None }
    }

    /// Replaces the headers by those of a packet; RTP counts as payload of UDP. Returns the payload; `None`
    /// if no profile but [`Profile::Uncompressed`] can represent the packet exactly: fields that the
    /// decompressor would infer have other values, or there are options, extension headers or fragments.
    pub(crate) fn read<'p>(&mut self, packet: &'p [u8]) -> Option<&'p [u8]> {
        let mut reader = Reader(packet);
        self.ips.clear();
        let protocol = loop {
            // Written in place, because a copy of a value that was just written is slow.
            match reader.0.first()? >> 4 {
                4 => self.ips.try_push(Ip::V4(Ipv4::parse(&mut reader)?)).ok()?,
                6 => self.ips.try_push(Ip::V6(Ipv6::parse(&mut reader)?)).ok()?,
                _ => return None,
            }
            match self.innermost()?.next() {
                proto::IPIP if reader.0.first()? >> 4 == 4 => {}
                proto::IPV6 if reader.0.first()? >> 4 == 6 => {}
                other => break other,
            }
        };
        self.transport = match protocol {
            proto::UDP => Transport::Udp(Udp::parse(&mut reader)?),
            proto::ESP => Transport::Esp(Esp { spi: reader.u32().ok()?, sequence: reader.u32().ok()? }),
            proto::IPIP | proto::IPV6 => return None,
            next if has_unsupported_item(next) => return None,
            _ => Transport::None,
        };
        Some(reader.0)
    }

    /// Replaces UDP by UDP and the RTP header in its payload. Returns the payload of RTP; `None` without a
    /// change if this is not RTP.
    pub(crate) fn read_rtp<'p>(&mut self, payload: &'p [u8]) -> Option<&'p [u8]> {
        let Transport::Udp(udp) = self.transport else { return None };
        let mut reader = Reader(payload);
        self.transport = Transport::Rtp(udp, Rtp::parse(&mut reader)?);
        Some(reader.0)
    }

    /// Takes over the fields that may change, from other headers of the same flow. This is faster than to
    /// replace all fields.
    pub(crate) fn advance_to(&mut self, next: &Self) {
        for pair in self.ips.iter_mut().zip(&next.ips) {
            match pair {
                (Ip::V4(ip), Ip::V4(next)) => {
                    (ip.tos, ip.ttl) = (next.tos, next.ttl);
                    (ip.ident, ip.dont_fragment) = (next.ident, next.dont_fragment);
                }
                (Ip::V6(ip), Ip::V6(next)) => {
                    (ip.traffic_class, ip.hop_limit) = (next.traffic_class, next.hop_limit);
                }
                (ip, next) => *ip = *next,
            }
        }
        match (&mut self.transport, &next.transport) {
            (Transport::Udp(udp), Transport::Udp(next)) => *udp = *next,
            (Transport::Rtp(udp, rtp), Transport::Rtp(next_udp, next)) => {
                *udp = *next_udp;
                rtp.advance_to(next);
            }
            (Transport::Esp(esp), Transport::Esp(next)) => *esp = *next,
            (transport, next) => *transport = next.clone(),
        }
    }

    /// Replaces `out` by the headers of a packet with `payload_len` bytes behind them.
    pub(crate) fn write(&self, payload_len: usize, out: &mut HeaderBytes) -> Result<(), Fault> {
        out.clear();
        let mut rest = self.len().saturating_add(payload_len);
        for ip in &self.ips {
            rest = rest.saturating_sub(ip.len());
            ip.write(rest, out)?;
        }
        self.transport.write(rest, out)
    }

    fn len(&self) -> usize {
        self.ips.iter().map(Ip::len).fold(self.transport.len(), usize::saturating_add)
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
        self.transport.is_same_flow(&other.transport)
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
