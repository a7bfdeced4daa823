//! IPv4 headers (RFC 791) with TCP (RFC 9293) or UDP (RFC 768), and the Internet checksum (RFC 1071).

/// Length of the longest packet.
pub(crate) const MAX_PACKET: usize = 65_535;
/// Length of an IPv4 header without options. Only such packets are coalesced.
pub(crate) const HEADER: usize = 20;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Protocol above IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upper {
    Tcp,
    Udp,
}

impl Upper {
    /// Offset of the checksum in the header.
    pub(crate) const fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

/// Offsets of the headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) upper: Upper,
    /// Length of the IPv4 header.
    pub(crate) ip: usize,
    /// Length of all headers.
    pub(crate) headers: usize,
}

impl Layout {
    /// Layout of a complete packet with TCP or UDP; `None` for all other packets.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let ip = match *packet.first()? {
            first if first >> 4 == 4 => usize::from(first & 15) * 4,
            _ => return None,
        };
        let is_fragment = word(packet, 6)? & 0x3fff != 0;
        if ip < HEADER || is_fragment || usize::from(word(packet, 2)?) != packet.len() {
            return None;
        }
        let (upper, headers) = match *packet.get(9)? {
            TCP => (Upper::Tcp, ip + usize::from(packet.get(ip + 12)? >> 4) * 4),
            UDP => (Upper::Udp, ip + 8),
            _ => return None,
        };
        let least = ip + if upper == Upper::Tcp { 20 } else { 8 };
        (least <= headers && headers <= packet.len()).then_some(Self { upper, ip, headers })
    }

    /// Writes the length and the checksum of the IPv4 header.
    pub(crate) fn write_ip_header(self, packet: &mut [u8], len: usize) {
        put_word(packet, 2, u16::try_from(len).expect("the length fits in 16 bits"));
        put_checksum(packet, 10, [0, 0]);
        let checksum = complement(add(0, &packet[..self.ip]));
        put_checksum(packet, 10, checksum);
    }

    /// Sum over the pseudo header.
    pub(crate) fn pseudo(self, packet: &[u8]) -> u64 {
        let len = u16::try_from(packet.len() - self.ip).expect("the length fits in 16 bits").to_be_bytes();
        add(add(0, &packet[12..20]), &[0, self.upper.number(), len[0], len[1]])
    }

    /// Writes the UDP length and the complete checksum.
    pub(crate) fn write_upper_checksum(self, packet: &mut [u8]) {
        let at = self.ip + self.upper.checksum_at();
        if self.upper == Upper::Udp {
            put_word(
                packet,
                self.ip + 4,
                u16::try_from(packet.len() - self.ip).expect("the length fits in 16 bits"),
            );
        }
        put_checksum(packet, at, [0, 0]);
        let checksum = complement(add(self.pseudo(packet), &packet[self.ip..]));
        put_checksum(packet, at, nonzero(checksum));
    }

    /// Whether the checksum of TCP or UDP is present and correct.
    pub(crate) fn is_intact(self, packet: &[u8]) -> bool {
        let at = self.ip + self.upper.checksum_at();
        packet[at..at + 2] != [0, 0] && complement(add(self.pseudo(packet), &packet[self.ip..])) == [0, 0]
    }
}

/// Adds bytes to a sum. All calls except the last one need an even number of bytes. The byte order of the
/// machine does not matter for the sum (RFC 1071 section 2), and words of four bytes are the fastest.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Folds a sum into the two bytes of a checksum field.
pub(crate) fn fold(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).expect("the folded sum fits in 16 bits").to_ne_bytes()
}

/// Checksum of a sum.
pub(crate) fn complement(sum: u64) -> [u8; 2] {
    fold(sum).map(|byte| !byte)
}

/// Replaces a checksum of zero, which means "none" for UDP (RFC 768). For TCP both values are equivalent.
pub(crate) const fn nonzero(checksum: [u8; 2]) -> [u8; 2] {
    if matches!(checksum, [0, 0]) { [0xff, 0xff] } else { checksum }
}

/// 16-bit number at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Writes a 16-bit number.
pub(crate) fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a checksum.
pub(crate) fn put_checksum(bytes: &mut [u8], at: usize, checksum: [u8; 2]) {
    bytes[at..at + 2].copy_from_slice(&checksum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_rfc() {
        // Example of a sum in RFC 1071 section 3.
        let sum = add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(fold(sum), [0xdd, 0xf2]);
        assert_eq!(complement(sum), [0x22, 0x0d]);
        assert_eq!(add(0, &[1, 2, 3]), add(0, &[1, 2, 3, 0]));
    }

    #[test]
    fn only_complete_tcp_and_udp_packets_have_a_layout() {
        let mut packet = vec![0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0, 1, 0, 2, 0, 10, 0, 0, 7, 8]);
        let layout = Layout::of(&packet).unwrap();
        assert_eq!(layout, Layout { upper: Upper::Udp, ip: 20, headers: 28 });
        layout.write_upper_checksum(&mut packet);
        assert!(layout.is_intact(&packet));
        packet[29] ^= 1;
        assert!(!layout.is_intact(&packet));
        for (at, value) in [(0, 0x65), (3, 31), (6, 0x20), (9, 50), (9, TCP)] {
            let mut other = packet.clone();
            other[at] = value;
            assert_eq!(Layout::of(&other), None, "byte {at}");
        }
        assert_eq!(Layout::of(&packet[..27]), None);
    }
}
