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
