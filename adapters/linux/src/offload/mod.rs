//! Segmentation offload at the TUN interface: the kernel hands over and takes many TCP segments or UDP
//! datagrams as one packet, so one system call moves what would otherwise take dozens.
//!
//! [`VnetHeader`] is the header in front of each packet at a TUN interface (virtio 1.2 section 5.1.6, `struct
//! virtio_net_hdr`); its fields are in the byte order of the machine, the default of TUN. `split` makes
//! packets of a large packet, `coalesce` makes a large packet of packets. docs/decisions/0033-offload.md has
//! the reasons.

mod coalesce;
mod layout;
mod split;
#[cfg(test)]
mod tests;

pub(crate) use coalesce::{GroBatch, PacketList, coalesce};
pub(crate) use split::SegmentSplitter;

/// Length of the header, in bytes.
pub(crate) const VNET_HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
/// The type of segments, without the flag that says that TCP's CWR is set.
const TYPE_MASK: u8 = 0x7f;

/// Type of the segments of a large packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum GsoType {
    TcpV4 = 1,
    TcpV6 = 4,
    Udp = 5,
}

/// Segmentation of a large packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GsoInfo {
    pub(crate) kind: GsoType,
    /// Payload of each segment in bytes; the last one may be shorter.
    pub(crate) size: u16,
    /// Length of all headers in front of the payload, in bytes.
    pub(crate) header_len: u16,
}

/// A checksum that is still to be completed. Its field holds the sum of the pseudo header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialChecksum {
    /// Start of the bytes that the checksum covers, up to the end of the packet.
    pub(crate) start: u16,
    /// Offset of the checksum field from `start`.
    pub(crate) offset: u16,
}

/// The header, parsed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    pub(crate) checksum: Option<PartialChecksum>,
    pub(crate) gso: Option<GsoInfo>,
}

impl VnetHeader {
    /// Parses a header. Returns `None` for types of segments that the interface did not enable.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; VNET_HEADER_LEN]) -> Option<Self> {
        let [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1] = *bytes;
        let kind = match kind & TYPE_MASK {
            0 => None,
            1 => Some(GsoType::TcpV4),
            4 => Some(GsoType::TcpV6),
            5 => Some(GsoType::Udp),
            _ => return None,
        };
        let (header_len, size) = (u16::from_ne_bytes([h0, h1]), u16::from_ne_bytes([s0, s1]));
        let gso = kind.map(|kind| GsoInfo { kind, size, header_len });
        let (start, offset) = (u16::from_ne_bytes([c0, c1]), u16::from_ne_bytes([o0, o1]));
        let checksum = (flags & NEEDS_CHECKSUM != 0).then_some(PartialChecksum { start, offset });
        Some(Self { checksum, gso })
    }

    /// The bytes of the header.
    #[inline]
    pub(crate) fn emit(&self) -> [u8; VNET_HEADER_LEN] {
        let (kind, size, header_len) =
            self.gso.map_or((0, 0, 0), |gso| (gso.kind as u8, gso.size, gso.header_len));
        let (flags, start, offset) =
            self.checksum.map_or((0, 0, 0), |checksum| (NEEDS_CHECKSUM, checksum.start, checksum.offset));
        let ([h0, h1], [s0, s1]) = (header_len.to_ne_bytes(), size.to_ne_bytes());
        let ([c0, c1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}
