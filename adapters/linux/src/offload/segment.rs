//! A TCP segment or a UDP datagram in an IP packet, which is what the kernel cuts and joins. IPv4 options and IPv6 extension
//! headers belong to the IP header: each segment has the same ones (the kernel's `inet_gso_segment` and `ipv6_gso_segment`).

use casemate_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v6, version};
use casemate_wire::{tcp, udp};

/// Where TCP's fields stand in its header (RFC 9293 section 3.1).
pub(super) const SEQUENCE_AT: usize = 4;
pub(super) const FLAGS_AT: usize = 13;
const TCP_CHECKSUM_AT: usize = 16;
/// Where those of UDP stand (RFC 768).
const LENGTH_AT: usize = 4;
const UDP_CHECKSUM_AT: usize = 6;

/// Flags of TCP.
pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const CWR: u8 = 0x80;

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upper {
    Tcp,
    Udp,
}

/// Where what stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: IpVersion,
    pub(super) upper: Upper,
    /// Where the header of `upper` begins, behind IPv4 options and IPv6 extension headers.
    pub(super) upper_at: usize,
    /// Where the payload begins.
    pub(super) payload_at: usize,
    /// Where the packet ends.
    pub(super) end: usize,
}

impl Layout {
    /// Of a packet that is such a one, and no fragment.
    #[inline]
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (version, protocol, upper_at, end) = match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                if ip.is_fragment() {
                    return None;
                }
                (IpVersion::V4, ip.protocol(), ip.header_len(), usize::from(ip.total_len()))
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let chain = ip.chain().ok()?;
                if chain.fragment.is_some() {
                    return None;
                }
                (IpVersion::V6, chain.last.next_header, chain.last.at, ip.total_len())
            }
        };
        let (upper, header_len) = match protocol {
            proto::TCP => {
                let words = packet.get(upper_at.checked_add(12)?)? >> 4;
                (Upper::Tcp, usize::from(words).checked_mul(4).filter(|len| *len >= tcp::HEADER_LEN)?)
            }
            proto::UDP => (Upper::Udp, udp::HEADER_LEN),
            _ => return None,
        };
        let payload_at = upper_at.checked_add(header_len).filter(|at| *at <= end && end <= packet.len())?;
        Some(Self { version, upper, upper_at, payload_at, end })
    }

    pub(super) fn checksum_offset(&self) -> usize {
        match self.upper {
            Upper::Tcp => TCP_CHECKSUM_AT,
            Upper::Udp => UDP_CHECKSUM_AT,
        }
    }

    /// The sum of the pseudo header, for `len` bytes from the header of `upper` on.
    #[inline]
    pub(super) fn pseudo(&self, packet: &[u8], len: usize) -> Option<Sum> {
        let protocol = match self.upper {
            Upper::Tcp => proto::TCP,
            Upper::Udp => proto::UDP,
        };
        Some(match self.version {
            IpVersion::V4 => {
                let (src, dst) =
                    (packet.get(12..)?.first_chunk::<4>()?, packet.get(16..)?.first_chunk::<4>()?);
                pseudo_v4((*src).into(), (*dst).into(), protocol, u16::try_from(len).ok()?)
            }
            IpVersion::V6 => {
                let (src, dst) =
                    (packet.get(8..)?.first_chunk::<16>()?, packet.get(24..)?.first_chunk::<16>()?);
                pseudo_v6((*src).into(), (*dst).into(), protocol, u32::try_from(len).ok()?)
            }
        })
    }

    /// The sum of the pseudo header for a length of 0, from the checksum field of a packet whose checksum the kernel left open: it
    /// holds the sum for the whole length. With a routing header or a source route, the final destination is summed and not
    /// the one in the IP header (RFC 8200 section 8.1); the kernel knows which one that is.
    pub(super) fn unfinished_pseudo(&self, packet: &[u8]) -> Option<Sum> {
        let field = packet.get(self.upper_at.checked_add(self.checksum_offset())?..)?.first_chunk()?;
        let len = u16::try_from(self.end.checked_sub(self.upper_at)?).ok()?;
        Some(Sum::ZERO.add_u16(u16::from_be_bytes(*field)).add_u16(!len))
    }

    /// Whether the checksum above IP is there, and right.
    #[inline]
    pub(super) fn is_intact(&self, packet: &[u8]) -> bool {
        let Some(upper) = packet.get(self.upper_at..self.end) else { return false };
        // RFC 768: a datagram without a checksum has 0 there.
        if self.upper == Upper::Udp && matches!(upper.get(6..8), Some([0, 0])) {
            return false;
        }
        self.pseudo(packet, upper.len()).is_some_and(|pseudo| pseudo.add_bytes(upper).is_valid())
    }

    /// Whether a UDP datagram fills its IP packet; always true for TCP. Bytes behind a datagram, such as UDP options (RFC 9868),
    /// are no payload.
    #[inline]
    pub(super) fn has_no_surplus(&self, packet: &[u8]) -> bool {
        let len = || packet.get(self.upper_at.checked_add(LENGTH_AT)?..)?.first_chunk().copied();
        self.upper == Upper::Tcp
            || len().is_some_and(|len| {
                self.upper_at.checked_add(u16::from_be_bytes(len).into()) == Some(self.end)
            })
    }

    /// Writes lengths and checksums anew for a packet that ends with its bytes. `pseudo` is the sum of its pseudo header for a
    /// length of 0.
    #[inline]
    pub(super) fn settle(&self, packet: &mut [u8], pseudo: Sum) -> Option<()> {
        let len = packet.len();
        self.settle_lengths(packet, len)?;
        self.set_checksum(packet, [0; 2])?;
        let pseudo = pseudo.add_u16(u16::try_from(len.checked_sub(self.upper_at)?).ok()?);
        let sum = pseudo.add_bytes(packet.get(self.upper_at..)?);
        self.set_checksum(packet, finished(sum, self.upper).to_be_bytes())
    }

    /// Writes the lengths of a packet of `len` bytes, and the checksum of an IPv4 header.
    #[inline]
    fn settle_lengths(&self, packet: &mut [u8], len: usize) -> Option<()> {
        if self.upper == Upper::Udp {
            let field = packet.get_mut(self.upper_at.checked_add(LENGTH_AT)?..)?.first_chunk_mut()?;
            *field = u16::try_from(len.checked_sub(self.upper_at)?).ok()?.to_be_bytes();
        }
        match self.version {
            IpVersion::V4 => {
                *packet.get_mut(2..)?.first_chunk_mut()? = u16::try_from(len).ok()?.to_be_bytes();
                *packet.get_mut(10..)?.first_chunk_mut()? = [0; 2];
                let sum = Sum::of(packet.get(..self.upper_at)?).finish();
                *packet.get_mut(10..)?.first_chunk_mut()? = sum.to_be_bytes();
            }
            IpVersion::V6 => {
                let payload_len = u16::try_from(len.checked_sub(v6::HEADER_LEN)?).ok()?;
                *packet.get_mut(4..)?.first_chunk_mut()? = payload_len.to_be_bytes();
            }
        }
        Some(())
    }

    /// Makes the headers of a packet those of many of its kind, `len` bytes in all: what the kernel needs to finish them.
    pub(super) fn settle_joined(&self, head: &mut [u8], len: usize) -> Option<()> {
        self.settle_lengths(head, len)?;
        let pseudo = self.pseudo(head, len.checked_sub(self.upper_at)?)?;
        self.set_checksum(head, (!pseudo.finish()).to_be_bytes())
    }

    /// Writes the checksum above IP.
    #[inline]
    pub(super) fn set_checksum(&self, packet: &mut [u8], checksum: [u8; 2]) -> Option<()> {
        let at = self.upper_at.checked_add(self.checksum_offset())?;
        *packet.get_mut(at..)?.first_chunk_mut()? = checksum;
        Some(())
    }
}

/// The value of the field for this sum.
#[inline]
pub(super) fn finished(sum: Sum, upper: Upper) -> u16 {
    match (sum.finish(), upper) {
        // RFC 768: a computed 0 is sent as its other representation.
        (0, Upper::Udp) => 0xffff,
        (checksum, _) => checksum,
    }
}
