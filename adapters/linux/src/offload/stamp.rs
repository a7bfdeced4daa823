//! What makes packets of a super-packet: the headers of each, from those that the kernel wrote for all (RFC 9293 section 3.7 lets TCP
//! choose its segments; the cut is where the kernel would have made it).

use super::header::{Kind, VnetHeader};
use super::segment::{CWR, FIN, FLAGS_AT, Layout, PSH, SEQUENCE_AT, Upper, finished};
use casemate_wire::checksum::Sum;
use casemate_wire::ip::IpVersion;
use std::ops::Range;

/// A super-packet, as far as its packets have to know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    /// Of the super-packet.
    pub(super) layout: Layout,
    /// Payload of each packet; the last one may have less.
    pub(super) size: usize,
}

impl Stamp {
    /// Of a super-packet of `len` bytes, of which these are the first. `None` if it is none, or not one that is understood.
    #[inline]
    pub(super) fn of(header: &VnetHeader, packet: &[u8], len: usize) -> Option<Self> {
        let segments = header.segments?;
        let layout = Layout::of_beginning(packet, len)?;
        let is_right = matches!(
            (segments.kind, layout.upper, layout.version),
            (Kind::TcpV4, Upper::Tcp, IpVersion::V4)
                | (Kind::TcpV6, Upper::Tcp, IpVersion::V6)
                | (Kind::Udp, Upper::Udp, _)
        );
        (is_right && segments.size > 0).then_some(Self { layout, size: segments.size.into() })
    }

    /// How many packets there are; one at least.
    #[inline]
    pub(super) fn count(&self) -> usize {
        let Layout { payload_at, end, .. } = self.layout;
        end.saturating_sub(payload_at).div_ceil(self.size).max(1)
    }

    /// Where in the super-packet the payload of a packet stands.
    #[inline]
    pub(super) fn payload(&self, index: usize) -> Range<usize> {
        let Layout { payload_at, end, .. } = self.layout;
        let start = index.saturating_mul(self.size).saturating_add(payload_at).min(end);
        start..start.saturating_add(self.size).min(end)
    }

    /// The length of a packet, headers and all.
    #[inline]
    pub(super) fn len(&self, index: usize) -> usize {
        self.layout.payload_at.saturating_add(self.payload(index).len())
    }

    /// Gives a packet, which has its payload and the headers of all, its own.
    #[inline]
    pub(super) fn finish(&self, index: usize, packet: &mut [u8]) -> Option<()> {
        let Self { layout, size } = self;
        let is_last = index.checked_add(1)? >= self.count();
        if layout.upper == Upper::Tcp {
            let tcp = packet.get_mut(layout.upper_at..)?;
            let sequence = tcp.get_mut(SEQUENCE_AT..)?.first_chunk_mut::<4>()?;
            let offset = u32::try_from(index.checked_mul(*size)?).ok()?;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(offset).to_be_bytes();
            let flags = tcp.get_mut(FLAGS_AT)?;
            if !is_last {
                *flags &= !(FIN | PSH);
            }
            if index > 0 {
                // RFC 3168 section 6.1.2: once is enough.
                *flags &= !CWR;
            }
        }
        if layout.version == IpVersion::V4 {
            let ident = packet.get_mut(4..)?.first_chunk_mut()?;
            *ident = u16::from_be_bytes(*ident).wrapping_add(index as u16).to_be_bytes();
        }
        layout.settle(packet)
    }
}

/// Finishes the checksum of a packet that stands for itself alone, if the kernel left it open.
#[inline]
pub(super) fn finish_alone(header: &VnetHeader, packet: &mut [u8]) -> Option<()> {
    let Some(unfinished) = header.checksum else { return Some(()) };
    let offset = usize::from(unfinished.offset);
    let summed = packet.get_mut(usize::from(unfinished.start)..)?;
    // Where UDP has its field, and no other protocol whose checksum is left to us; only UDP's may not be 0.
    let upper = if offset == 6 { Upper::Udp } else { Upper::Tcp };
    // The field holds the sum of the pseudo header.
    let checksum = finished(Sum::of(summed), upper);
    *summed.get_mut(offset..)?.first_chunk_mut()? = checksum.to_be_bytes();
    Some(())
}
