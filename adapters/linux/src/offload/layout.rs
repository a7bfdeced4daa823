//! Layout of an IP packet with a TCP segment or a UDP datagram, as it is split and coalesced. IPv4 options
//! and IPv6 extension headers belong to the IP header: each segment has the same ones (`inet_gso_segment` and
//! `ipv6_gso_segment` of the kernel).

use casemate_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v6, version};
use casemate_wire::{tcp, udp};

/// Offsets of fields in the TCP header (RFC 9293 section 3.1).
pub(super) const SEQUENCE_OFFSET: usize = 4;
pub(super) const FLAGS_OFFSET: usize = 13;
const TCP_CHECKSUM_OFFSET: usize = 16;
/// Offsets of fields in the UDP header (RFC 768).
const LENGTH_OFFSET: usize = 4;
const UDP_CHECKSUM_OFFSET: usize = 6;

/// TCP flags.
pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const CWR: u8 = 0x80;

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// Offsets in a packet, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: IpVersion,
    pub(super) transport: Transport,
    /// Start of the transport header, behind IPv4 options and IPv6 extension headers.
    pub(super) transport_offset: usize,
    /// Start of the payload.
    pub(super) payload_offset: usize,
    /// End of the IP packet.
    pub(super) end: usize,
}

impl Layout {
    /// Layout of a packet; `None` if it is a fragment or has another transport protocol.
    #[inline]
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (version, protocol, transport_offset, end) = match version(packet).ok()? {
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
        let (transport, header_len) = match protocol {
            proto::TCP => {
                let words = packet.get(transport_offset.checked_add(12)?)? >> 4;
                (Transport::Tcp, usize::from(words).checked_mul(4).filter(|len| *len >= tcp::HEADER_LEN)?)
            }
            proto::UDP => (Transport::Udp, udp::HEADER_LEN),
            _ => return None,
        };
        let payload_offset =
            transport_offset.checked_add(header_len).filter(|at| *at <= end && end <= packet.len())?;
        Some(Self { version, transport, transport_offset, payload_offset, end })
    }

    pub(super) fn checksum_offset(&self) -> usize {
        match self.transport {
            Transport::Tcp => TCP_CHECKSUM_OFFSET,
            Transport::Udp => UDP_CHECKSUM_OFFSET,
        }
    }

    /// Sum of the pseudo header, for `len` bytes from the transport header on.
    #[inline]
    pub(super) fn pseudo(&self, packet: &[u8], len: usize) -> Option<Sum> {
        let protocol = match self.transport {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
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

    /// Sum of the pseudo header for a length of 0, from the field of a partial checksum, which holds the sum
    /// for the whole length. With a routing header or a source route, the sum covers the final destination
    /// and not the one in the IP header (RFC 8200 section 8.1); only the kernel knows which one that is.
    pub(super) fn partial_pseudo(&self, packet: &[u8]) -> Option<Sum> {
        let field =
            packet.get(self.transport_offset.checked_add(self.checksum_offset())?..)?.first_chunk()?;
        let len = u16::try_from(self.end.checked_sub(self.transport_offset)?).ok()?;
        Some(Sum::ZERO.add_u16(u16::from_be_bytes(*field)).add_u16(!len))
    }

    /// Whether the packet has a transport checksum, and the checksum is correct.
    #[inline]
    pub(super) fn has_valid_checksum(&self, packet: &[u8]) -> bool {
        let Some(segment) = packet.get(self.transport_offset..self.end) else { return false };
        // RFC 768: 0 means that the datagram has no checksum.
        if self.transport == Transport::Udp && matches!(segment.get(6..8), Some([0, 0])) {
            return false;
        }
        self.pseudo(packet, segment.len()).is_some_and(|pseudo| pseudo.add_bytes(segment).is_valid())
    }

    /// Whether a UDP datagram fills its IP packet; always true for TCP. Bytes behind a datagram, such as UDP
    /// options (RFC 9868), are not payload.
    #[inline]
    pub(super) fn fills_ip_packet(&self, packet: &[u8]) -> bool {
        let len = || packet.get(self.transport_offset.checked_add(LENGTH_OFFSET)?..)?.first_chunk().copied();
        self.transport == Transport::Tcp
            || len().is_some_and(|len| {
                self.transport_offset.checked_add(u16::from_be_bytes(len).into()) == Some(self.end)
            })
    }

    /// Writes the lengths and checksums of a packet of `len` bytes. `headers` are its bytes in front of the
    /// payload, and `sum` is the sum of its pseudo header for a length of 0 and of its payload.
    #[inline]
    pub(super) fn finish_headers(&self, headers: &mut [u8], len: usize, sum: Sum) -> Option<()> {
        self.write_lengths(headers, len)?;
        self.set_checksum(headers, [0; 2])?;
        let sum = sum.add_u16(u16::try_from(len.checked_sub(self.transport_offset)?).ok()?);
        let sum = sum.add_bytes(headers.get(self.transport_offset..)?);
        self.set_checksum(headers, checksum_field(sum, self.transport).to_be_bytes())
    }

    /// Writes the lengths of a packet of `len` bytes, and the checksum of its IPv4 header.
    #[inline]
    fn write_lengths(&self, packet: &mut [u8], len: usize) -> Option<()> {
        if self.transport == Transport::Udp {
            let field =
                packet.get_mut(self.transport_offset.checked_add(LENGTH_OFFSET)?..)?.first_chunk_mut()?;
            *field = u16::try_from(len.checked_sub(self.transport_offset)?).ok()?.to_be_bytes();
        }
        match self.version {
            IpVersion::V4 => {
                *packet.get_mut(2..)?.first_chunk_mut()? = u16::try_from(len).ok()?.to_be_bytes();
                *packet.get_mut(10..)?.first_chunk_mut()? = [0; 2];
                let sum = Sum::of(packet.get(..self.transport_offset)?).finish();
                *packet.get_mut(10..)?.first_chunk_mut()? = sum.to_be_bytes();
            }
            IpVersion::V6 => {
                let payload_len = u16::try_from(len.checked_sub(v6::HEADER_LEN)?).ok()?;
                *packet.get_mut(4..)?.first_chunk_mut()? = payload_len.to_be_bytes();
            }
        }
        Some(())
    }

    /// Writes lengths and partial checksum into the headers of a coalesced packet of `len` bytes; the kernel
    /// completes them.
    pub(super) fn finish_gso_headers(&self, headers: &mut [u8], len: usize) -> Option<()> {
        self.write_lengths(headers, len)?;
        let pseudo = self.pseudo(headers, len.checked_sub(self.transport_offset)?)?;
        self.set_checksum(headers, (!pseudo.finish()).to_be_bytes())
    }

    /// Writes the transport checksum.
    #[inline]
    pub(super) fn set_checksum(&self, packet: &mut [u8], checksum: [u8; 2]) -> Option<()> {
        let at = self.transport_offset.checked_add(self.checksum_offset())?;
        *packet.get_mut(at..)?.first_chunk_mut()? = checksum;
        Some(())
    }
}

/// Value of the checksum field for this sum.
#[inline]
pub(super) fn checksum_field(sum: Sum, transport: Transport) -> u16 {
    match (sum.finish(), transport) {
        // RFC 768: a computed 0 is sent as 0xffff.
        (0, Transport::Udp) => 0xffff,
        (checksum, _) => checksum,
    }
}
