//! Cuts what the kernel hands over in one piece into packets (RFC 9293 section 3.7 lets TCP choose its segments; the cut is where
//! the kernel would have made it).

use super::header::{HEADER_LEN, Kind, Unfinished, VnetHeader};
use super::segment::{CWR, FIN, FLAGS_AT, Layout, PSH, SEQUENCE_AT, Upper, finished};
use crate::buffers::MAX_PACKET;
use casemate_wire::checksum::Sum;
use casemate_wire::ip::IpVersion;

/// A place for what the kernel hands over, and what of it was not asked for yet.
#[derive(Debug)]
pub(crate) struct Cutter {
    bytes: Box<[u8]>,
    rest: Option<Rest>,
}

/// What is left of a packet that stands for many.
#[derive(Debug, Clone, Copy)]
struct Rest {
    layout: Layout,
    /// The sum of the pseudo header for a length of 0.
    pseudo: Sum,
    /// Payload of a packet.
    size: usize,
    /// Where the next packet's payload begins.
    at: usize,
    /// How many packets went before.
    index: u16,
}

impl Cutter {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEADER_LEN + MAX_PACKET].into_boxed_slice(), rest: None }
    }

    /// Where the kernel's bytes go. What was left is gone.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.rest = None;
        &mut self.bytes
    }

    /// The packet of the `len` bytes that the kernel wrote into [`space`](Self::space), uncut and without the header in front.
    pub(crate) fn whole(&self, len: usize) -> Option<&[u8]> {
        self.bytes.get(HEADER_LEN..len)
    }

    /// Whether there is more of the last packet.
    pub(crate) fn has_more(&self) -> bool {
        self.rest.is_some()
    }

    /// Writes the first packet of the `len` bytes that the kernel wrote into [`space`](Self::space); answers its length. `None` if they
    /// are no packet that can be understood.
    pub(crate) fn first(&mut self, len: usize, out: &mut [u8]) -> Option<usize> {
        let (header, packet) = self.bytes.get_mut(..len)?.split_first_chunk_mut::<HEADER_LEN>()?;
        let header = VnetHeader::parse(header)?;
        let Some(segments) = header.segments else {
            if let Some(unfinished) = header.checksum {
                finish(packet, unfinished.start.into(), unfinished.offset.into())?;
            }
            let out = out.get_mut(..packet.len())?;
            out.copy_from_slice(packet);
            return Some(out.len());
        };
        let layout = Layout::of(packet)?;
        let is_right = matches!(
            (segments.kind, layout.upper, layout.version),
            (Kind::TcpV4, Upper::Tcp, IpVersion::V4)
                | (Kind::TcpV6, Upper::Tcp, IpVersion::V6)
                | (Kind::Udp, Upper::Udp, _)
        );
        if !is_right || segments.size == 0 {
            return None;
        }
        let pseudo = match header.checksum {
            Some(Unfinished { start, .. }) if usize::from(start) == layout.upper_at => {
                layout.unfinished_pseudo(packet)?
            }
            _ => layout.pseudo(packet, 0)?,
        };
        self.rest =
            Some(Rest { layout, pseudo, size: segments.size.into(), at: layout.payload_at, index: 0 });
        self.next(out)
    }

    /// Writes the next packet; answers its length, or `None` if there is none.
    pub(crate) fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let rest = self.rest.take()?;
        let packet = self.bytes.get(HEADER_LEN..)?;
        let Rest { layout, pseudo, size, at, index } = rest;
        let end = at.checked_add(size)?.min(layout.end);
        let (head, payload) = (packet.get(..layout.payload_at)?, packet.get(at..end)?);
        let out = out.get_mut(..head.len().checked_add(payload.len())?)?;
        let (out_head, out_payload) = out.split_at_mut_checked(head.len())?;
        out_head.copy_from_slice(head);
        out_payload.copy_from_slice(payload);
        if layout.upper == Upper::Tcp {
            let tcp = out_head.get_mut(layout.upper_at..)?;
            let sequence = tcp.get_mut(SEQUENCE_AT..)?.first_chunk_mut::<4>()?;
            let offset = u32::try_from(at.checked_sub(layout.payload_at)?).ok()?;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(offset).to_be_bytes();
            let flags = tcp.get_mut(FLAGS_AT)?;
            if end < layout.end {
                *flags &= !(FIN | PSH);
            }
            if index > 0 {
                // RFC 3168 section 6.1.2: once is enough.
                *flags &= !CWR;
            }
        }
        if layout.version == IpVersion::V4 {
            let ident = out_head.get_mut(4..)?.first_chunk_mut()?;
            *ident = u16::from_be_bytes(*ident).wrapping_add(index).to_be_bytes();
        }
        layout.settle(out, pseudo)?;
        if end < layout.end {
            self.rest = Some(Rest { at: end, index: index.wrapping_add(1), ..rest });
        }
        Some(out.len())
    }
}

/// Finishes the checksum of what begins at `start`. Its field holds the sum of the pseudo header already.
fn finish(packet: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let summed = packet.get_mut(start..)?;
    // Where UDP has its field, and no other protocol whose checksum is left to us; only UDP's may not be 0.
    let upper = if offset == 6 { Upper::Udp } else { Upper::Tcp };
    let checksum = finished(Sum::of(summed), upper);
    *summed.get_mut(offset..)?.first_chunk_mut()? = checksum.to_be_bytes();
    Some(())
}
