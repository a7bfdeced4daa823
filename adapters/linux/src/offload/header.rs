//! The header in front of packets at a TUN interface (virtio 1.2 section 5.1.6, `struct virtio_net_hdr`).
//!
//! Its fields have the machine's byte order, as TUN wants them unless it is told otherwise.

/// Length of the header.
pub(crate) const HEADER_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
/// What remains of a kind without the flag that says that TCP's CWR is set.
const KIND: u8 = 0x7f;

/// What kind of segments a packet consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    TcpV4 = 1,
    TcpV6 = 4,
    Udp = 5,
}

/// A packet that stands for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) kind: Kind,
    /// Payload of each in bytes; the last one may have less.
    pub(crate) size: u16,
    /// Length of all headers in front of the payload.
    pub(crate) header_len: u16,
}

/// A checksum that is not there yet. Its field holds the sum of the pseudo header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Where in the packet that begins which is summed, up to its end.
    pub(crate) start: u16,
    /// Where behind `start` the checksum belongs.
    pub(crate) offset: u16,
}

/// The header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    pub(crate) checksum: Option<Unfinished>,
    pub(crate) segments: Option<Segments>,
}

impl VnetHeader {
    /// Reads it; `None` for kinds of segments that were not asked for.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1] = *bytes;
        let kind = match kind & KIND {
            0 => None,
            1 => Some(Kind::TcpV4),
            4 => Some(Kind::TcpV6),
            5 => Some(Kind::Udp),
            _ => return None,
        };
        let (header_len, size) = (u16::from_ne_bytes([h0, h1]), u16::from_ne_bytes([s0, s1]));
        let segments = kind.map(|kind| Segments { kind, size, header_len });
        let (start, offset) = (u16::from_ne_bytes([c0, c1]), u16::from_ne_bytes([o0, o1]));
        let checksum = (flags & NEEDS_CHECKSUM != 0).then_some(Unfinished { start, offset });
        Some(Self { checksum, segments })
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn emit(&self) -> [u8; HEADER_LEN] {
        let (kind, size, header_len) = self
            .segments
            .map_or((0, 0, 0), |segments| (segments.kind as u8, segments.size, segments.header_len));
        let (flags, start, offset) =
            self.checksum.map_or((0, 0, 0), |checksum| (NEEDS_CHECKSUM, checksum.start, checksum.offset));
        let ([h0, h1], [s0, s1]) = (header_len.to_ne_bytes(), size.to_ne_bytes());
        let ([c0, c1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let segments = Segments { kind: Kind::Udp, size: 1_372, header_len: 28 };
        let header =
            VnetHeader { checksum: Some(Unfinished { start: 20, offset: 6 }), segments: Some(segments) };
        assert_eq!(VnetHeader::parse(&header.emit()), Some(header));
        assert_eq!(VnetHeader::parse(&[0; HEADER_LEN]), Some(VnetHeader::default()));
        // VIRTIO_NET_HDR_GSO_UDP, which cuts datagrams into fragments of IP; and TCP with CWR.
        assert_eq!(VnetHeader::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let cwr = VnetHeader::parse(&[0, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cwr.and_then(|header| header.segments).map(|segments| segments.kind), Some(Kind::TcpV4));
    }
}
