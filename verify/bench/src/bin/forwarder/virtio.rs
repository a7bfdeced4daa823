//! The header in front of each packet of a TUN interface with IFF_VNET_HDR (VIRTIO 1.2 section 5.1.6, `struct
//! virtio_net_hdr`), in the byte order of the machine.

/// Its length.
pub(crate) const LEN: usize = 10;

/// The checksum has to be completed: its field holds the sum over the pseudo header.
const NEEDS_CSUM: u8 = 1;

/// What a packet stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One packet.
    Single,
    /// TCP segments over IPv4, with this many bytes each.
    Tcp(usize),
    /// UDP datagrams over IPv4 or IPv6, with this many bytes each.
    Udp(usize),
}

/// The part of the header that is not derived from the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Where the bytes begin that an incomplete checksum covers, and where it stands behind that.
    pub(crate) checksum: Option<(usize, usize)>,
}

impl Header {
    /// One packet, complete.
    pub(crate) const PLAIN: Self = Self { kind: Kind::Single, checksum: None };

    /// The header and the packet behind it.
    pub(crate) fn split(bytes: &[u8]) -> (Self, &[u8]) {
        let (header, packet) = bytes.split_at(LEN);
        let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        // The upper bit says that the first segment carries an ECN signal.
        let kind = match header[1] & 0x7f {
            1 => Kind::Tcp(word(4)),
            5 => Kind::Udp(word(4)),
            _ => Kind::Single,
        };
        let checksum = (header[0] & NEEDS_CSUM != 0).then(|| (word(6), word(8)));
        (Self { kind, checksum }, packet)
    }

    /// As it stands in front of a packet whose headers are `headers` bytes long.
    pub(crate) fn bytes(self, headers: usize) -> [u8; LEN] {
        let (kind, size) = match self.kind {
            Kind::Single => (0, 0),
            Kind::Tcp(size) => (1, size),
            Kind::Udp(size) => (5, size),
        };
        let (start, offset) = self.checksum.unwrap_or_default();
        let mut bytes = [0; LEN];
        bytes[0] = if self.checksum.is_some() { NEEDS_CSUM } else { 0 };
        bytes[1] = kind;
        for (at, value) in [(2, headers), (4, size), (6, start), (8, offset)] {
            bytes[at..at + 2]
                .copy_from_slice(&u16::try_from(value).expect("lengths of packets").to_ne_bytes());
        }
        bytes
    }
}
