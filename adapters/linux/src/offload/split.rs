//! Splits a large packet from the kernel into packets. RFC 9293 section 3.7 lets TCP choose its segments; the
//! boundaries are those that the kernel would have chosen.

use super::layout::{CWR, FIN, FLAGS_OFFSET, Layout, PSH, SEQUENCE_OFFSET, Transport, checksum_field};
use super::{GsoType, PartialChecksum, VNET_HEADER_LEN, VnetHeader};
use crate::buffers::MAX_PACKET;
use casemate_wire::checksum::Sum;
use casemate_wire::ip::IpVersion;

/// Buffer for a packet from the kernel, and the part of the packet that was not returned yet.
#[derive(Debug)]
pub(crate) struct SegmentSplitter {
    bytes: Box<[u8]>,
    remaining: Option<Remaining>,
}

/// The remaining part of a large packet.
#[derive(Debug, Clone, Copy)]
struct Remaining {
    layout: Layout,
    /// Sum of the pseudo header for a length of 0.
    pseudo: Sum,
    /// Payload of each packet, in bytes.
    size: usize,
    /// Where the payload of the next packet begins.
    offset: usize,
    /// Number of packets returned before.
    index: u16,
}

impl SegmentSplitter {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; VNET_HEADER_LEN + MAX_PACKET].into_boxed_slice(), remaining: None }
    }

    /// Buffer into which the kernel writes. Discards what remains of the last packet.
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8] {
        self.remaining = None;
        &mut self.bytes
    }

    /// The packet of `len` bytes that the kernel wrote into [`buffer_mut`](Self::buffer_mut), unsplit and
    /// without the header in front.
    pub(crate) fn unsplit(&self, len: usize) -> Option<&[u8]> {
        self.bytes.get(VNET_HEADER_LEN..len)
    }

    /// Whether a part of the last packet remains.
    pub(crate) fn has_more(&self) -> bool {
        self.remaining.is_some()
    }

    /// Writes the first packet of the `len` bytes that the kernel wrote into
    /// [`buffer_mut`](Self::buffer_mut), and returns its length. Returns `None` if the bytes cannot be
    /// parsed.
    pub(crate) fn split_first(&mut self, len: usize, out: &mut [u8]) -> Option<usize> {
        let (header, packet) = self.bytes.get_mut(..len)?.split_first_chunk_mut::<VNET_HEADER_LEN>()?;
        let header = VnetHeader::parse(header)?;
        let Some(gso) = header.gso else {
            if let Some(partial) = header.checksum {
                complete_checksum(packet, partial.start.into(), partial.offset.into())?;
            }
            let out = out.get_mut(..packet.len())?;
            out.copy_from_slice(packet);
            return Some(out.len());
        };
        let layout = Layout::of(packet)?;
        let is_consistent = matches!(
            (gso.kind, layout.transport, layout.version),
            (GsoType::TcpV4, Transport::Tcp, IpVersion::V4)
                | (GsoType::TcpV6, Transport::Tcp, IpVersion::V6)
                | (GsoType::Udp, Transport::Udp, _)
        );
        if !is_consistent || gso.size == 0 {
            return None;
        }
        let pseudo = match header.checksum {
            Some(PartialChecksum { start, .. }) if usize::from(start) == layout.transport_offset => {
                layout.partial_pseudo(packet)?
            }
            _ => layout.pseudo(packet, 0)?,
        };
        let (size, offset) = (gso.size.into(), layout.payload_offset);
        self.remaining = Some(Remaining { layout, pseudo, size, offset, index: 0 });
        self.split_next(out)
    }

    /// Writes the next packet and returns its length. Returns `None` if no packet remains.
    pub(crate) fn split_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let remaining = self.remaining.take()?;
        let packet = self.bytes.get(VNET_HEADER_LEN..)?;
        let Remaining { layout, pseudo, size, offset, index } = remaining;
        let end = offset.checked_add(size)?.min(layout.end);
        let (headers, payload) = (packet.get(..layout.payload_offset)?, packet.get(offset..end)?);
        let len = headers.len().checked_add(payload.len())?;
        let (out_headers, out_payload) = out.get_mut(..len)?.split_at_mut_checked(headers.len())?;
        out_headers.copy_from_slice(headers);
        let payload_sum = Sum::of_copied(out_payload, payload);
        if layout.transport == Transport::Tcp {
            let tcp = out_headers.get_mut(layout.transport_offset..)?;
            let sequence = tcp.get_mut(SEQUENCE_OFFSET..)?.first_chunk_mut::<4>()?;
            let advance = u32::try_from(offset.checked_sub(layout.payload_offset)?).ok()?;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(advance).to_be_bytes();
            let flags = tcp.get_mut(FLAGS_OFFSET)?;
            if end < layout.end {
                *flags &= !(FIN | PSH);
            }
            if index > 0 {
                // RFC 3168 section 6.1.2: only the first segment carries CWR.
                *flags &= !CWR;
            }
        }
        if layout.version == IpVersion::V4 {
            let ident = out_headers.get_mut(4..)?.first_chunk_mut()?;
            *ident = u16::from_be_bytes(*ident).wrapping_add(index).to_be_bytes();
        }
        layout.finish_headers(out_headers, len, pseudo.combine(payload_sum))?;
        if end < layout.end {
            self.remaining = Some(Remaining { offset: end, index: index.wrapping_add(1), ..remaining });
        }
        Some(len)
    }
}

/// Completes the checksum over the bytes from `start` on. Its field, at `offset` from `start`, holds the sum
/// of the pseudo header.
fn complete_checksum(packet: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let summed = packet.get_mut(start..)?;
    // The offset of the field in UDP, and in no other protocol whose checksum the kernel leaves to us; only
    // that of UDP must not be 0.
    let transport = if offset == 6 { Transport::Udp } else { Transport::Tcp };
    let checksum = checksum_field(Sum::of(summed), transport);
    *summed.get_mut(offset..)?.first_chunk_mut()? = checksum.to_be_bytes();
    Some(())
}
