//! IPv4 (RFC 791): a view of a packet, its options, and the header without options that tunnels emit.
//!
//! [`Ipv4::parse`] validates the lengths once; the getters then read plain bytes. It validates neither the
//! checksum nor the meaning of options and addresses.

use core::net::Ipv4Addr;

use crate::{Malformed, checksum::Sum, invariant::OrBroken};

pub use super::v4_options::{Ipv4Option, Options};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Maximum length of a header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

/// Offset of the protocol field.
pub const PROTOCOL_AT: usize = 9;

/// "Don't fragment", in the first byte of the fragment field.
pub const DF: u8 = 0x40;
const MF: u8 = 0x20;

/// What [`Ipv4::parse_quoted`] has checked, for [`crate::invariant`].
const HEADER_FIRST: &str = "the IPv4 header ends within the packet";

/// An IPv4 packet in the bytes of `T`. Bytes after its total length do not belong to the packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Parses the packet at the start of `bytes`, which must be complete.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::parse_quoted(bytes)?;
        if usize::from(packet.total_len()) > packet.bytes.as_ref().len() {
            return Err(Malformed::new("IPv4 total length", "must not exceed the bytes at hand"));
        }
        Ok(packet)
    }

    /// Parses a packet with a complete header and a possibly truncated payload, as ICMP errors quote it.
    #[inline]
    pub fn parse_quoted(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        let h: &[u8; HEADER_LEN] =
            b.first_chunk().ok_or(Malformed::new("IPv4 header", "must have at least 20 bytes"))?;
        if h[0] >> 4 != 4 {
            return Err(Malformed::new("IPv4 version", "must be 4"));
        }
        let header_len = usize::from(h[0] & 0x0f) << 2;
        if header_len < HEADER_LEN {
            return Err(Malformed::new("IPv4 header length", "must be at least 20 bytes"));
        }
        if header_len > b.len() {
            return Err(Malformed::new("IPv4 header length", "must not exceed the bytes at hand"));
        }
        if usize::from(u16::from_be_bytes([h[2], h[3]])) < header_len {
            return Err(Malformed::new("IPv4 total length", "must cover the header"));
        }
        Ok(Self { bytes })
    }

    /// Returns the underlying bytes, including bytes after the packet.
    #[inline]
    pub fn into_inner(self) -> T {
        self.bytes
    }

    // `parse` has checked that the bytes exist; the zeros are never returned.
    #[inline]
    fn fixed(&self) -> &[u8; HEADER_LEN] {
        self.bytes.as_ref().first_chunk().unwrap_or(&[0; HEADER_LEN])
    }

    /// Length of the header with options, in bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.fixed()[0] & 0x0f) << 2
    }

    /// Length of header and payload, in bytes.
    #[inline]
    pub fn total_len(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[2], h[3]])
    }

    /// The type-of-service octet: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.fixed()[1]
    }

    /// Differentiated services code point (RFC 2474).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos() >> 2
    }

    /// Explicit congestion notification (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos() & 3
    }

    /// Identification.
    #[inline]
    pub fn ident(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[4], h[5]])
    }

    /// The "don't fragment" flag.
    #[inline]
    pub fn df(&self) -> bool {
        self.fixed()[6] & DF != 0
    }

    /// The "more fragments" flag.
    #[inline]
    pub fn mf(&self) -> bool {
        self.fixed()[6] & MF != 0
    }

    /// Offset of the payload in the payload of the original packet, in bytes.
    #[inline]
    pub fn frag_offset(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[6], h[7]]) << 3
    }

    /// Whether the packet is a fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        let h = self.fixed();
        u16::from_be_bytes([h[6], h[7]]) & 0x3fff != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.fixed()[8]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.fixed()[9]
    }

    /// Checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[10], h[11]])
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        let h = self.fixed();
        Ipv4Addr::new(h[12], h[13], h[14], h[15])
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        let h = self.fixed();
        Ipv4Addr::new(h[16], h[17], h[18], h[19])
    }

    /// Bytes of the header with options.
    #[inline]
    pub fn header(&self) -> &[u8] {
        self.bytes.as_ref().get(..self.header_len()).unwrap_or_default()
    }

    /// Bytes of the options; empty for most packets.
    #[inline]
    pub fn options(&self) -> &[u8] {
        self.header().get(HEADER_LEN..).unwrap_or_default()
    }

    /// Iterator over the options.
    #[inline]
    pub fn options_iter(&self) -> Options<'_> {
        Options::new(self.options(), HEADER_LEN)
    }

    /// Payload, up to the total length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let b = self.bytes.as_ref();
        let end = usize::from(self.total_len()).min(b.len());
        b.get(self.header_len()..end).unwrap_or_default()
    }

    /// Whether the header checksum is valid.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        Sum::of(self.header()).is_valid()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    // No effect if the bytes do not exist, which `parse` rules out.
    #[inline]
    fn change(&mut self, write: impl FnOnce(&mut [u8; HEADER_LEN])) {
        if let Some(h) = self.bytes.as_mut().first_chunk_mut() {
            write(h);
        }
    }

    /// Sets the length of header and payload, at least the length of the header. The buffer must be long
    /// enough; otherwise the getters clamp.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        self.change(|h| [h[2], h[3]] = len.to_be_bytes());
    }

    /// Sets the type-of-service byte.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.change(|h| h[1] = tos);
    }

    /// Sets the ECN bits; the DSCP stays unchanged.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.change(|h| h[1] = h[1] & !3 | ecn & 3);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        self.change(|h| [h[4], h[5]] = ident.to_be_bytes());
    }

    /// Sets or clears the "don't fragment" flag.
    #[inline]
    pub fn set_df(&mut self, df: bool) {
        self.change(|h| h[6] = h[6] & !DF | if df { DF } else { 0 });
    }

    /// Sets the fragment offset (in bytes, rounded down to a multiple of 8) and the "more fragments" flag.
    /// "Don't fragment" stays unchanged.
    #[inline]
    pub fn set_fragment(&mut self, offset: u16, more: bool) {
        self.change(|h| {
            let [high, low] = (offset >> 3).to_be_bytes();
            [h[6], h[7]] = [h[6] & DF | if more { MF } else { 0 } | high, low];
        });
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.change(|h| h[8] = ttl);
    }

    /// Sets the protocol of the payload.
    #[inline]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.change(|h| h[9] = protocol);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Ipv4Addr) {
        self.change(|h| [h[12], h[13], h[14], h[15]] = src.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        self.change(|h| [h[16], h[17], h[18], h[19]] = dst.octets());
    }

    /// Sets the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.change(|h| [h[10], h[11]] = checksum.to_be_bytes());
    }

    /// Computes and sets the header checksum. Call it after the last change.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = Sum::of(self.header()).finish();
        self.set_checksum(sum);
    }

    /// Payload, up to the total length.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_len(), usize::from(self.total_len()));
        let b = self.bytes.as_mut();
        let end = end.min(b.len());
        b.get_mut(start..end).or_broken_default(HEADER_FIRST)
    }
}

/// Header of an unfragmented packet without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub ident: u16,
    /// The "don't fragment" flag.
    pub df: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Length of the payload, at most 65,515 bytes.
    pub payload_len: u16,
}

impl Ipv4Header {
    /// Parses the header of the packet in `bytes`. Rejects fragments and headers with options.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let ip = Ipv4::parse(bytes)?;
        if ip.is_fragment() {
            return Err(Malformed::new("IPv4 fragment offset", "must be 0 in a whole packet, as must MF"));
        }
        // The header length exceeds the fixed part if there are options.
        if ip.header_len() != HEADER_LEN {
            return Err(Malformed::new("IPv4 options", "must be absent"));
        }
        Ok(Self {
            tos: ip.tos(),
            ident: ip.ident(),
            df: ip.df(),
            ttl: ip.ttl(),
            protocol: ip.protocol(),
            src: ip.src(),
            dst: ip.dst(),
            payload_len: ip.total_len().saturating_sub(HEADER_LEN as u16),
        })
    }

    /// Writes the header with its checksum.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) -> Result<(), Malformed> {
        let total_len = self
            .payload_len
            .checked_add(HEADER_LEN as u16)
            .ok_or(Malformed::new("IPv4 total length", "must be at most 65,535"))?;
        // Summed from the values: loading words from bytes that were just stored would stall.
        let words = [
            0x4500_0000 | u32::from(self.tos) << 16 | u32::from(total_len),
            u32::from(self.ident) << 16 | u32::from(self.df) << 14,
            u32::from_be_bytes([self.ttl, self.protocol, 0, 0]),
            self.src.to_bits(),
            self.dst.to_bits(),
        ];
        let checksum = words.into_iter().fold(Sum::ZERO, Sum::add_u32).finish();
        let (out, _) = out.as_chunks_mut();
        for (to, word) in out.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        if let Some([_, _, checksum_field @ ..]) = out.get_mut(2) {
            *checksum_field = checksum.to_be_bytes();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // An ICMP echo from 192.168.0.1 to 192.168.0.199; header from the Wikipedia article on the IPv4 checksum.
    const PACKET: [u8; 20] =
        [0x45, 0, 0, 0x14, 0, 0, 0x40, 0, 0x40, 0x11, 0xb9, 0xc0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

    fn field(bytes: &[u8]) -> &'static str {
        Ipv4::parse(bytes).unwrap_err().field
    }

    #[test]
    fn getters_read_their_fields() {
        let mut bytes = [0u8; 30];
        bytes[..28].copy_from_slice(&[
            0x46, 0xb9, 0, 28, 0x12, 0x34, 0x20, 0x03, 64, 17, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2, //
            1, 1, 1, 0, 0xde, 0xad, 0xbe, 0xef,
        ]);
        let ip = Ipv4::parse(&bytes[..]).unwrap();
        assert_eq!((ip.header_len(), ip.total_len(), ip.tos()), (24, 28, 0xb9));
        assert_eq!((ip.dscp(), ip.ecn(), ip.ident()), (46, 1, 0x1234));
        assert_eq!((ip.df(), ip.mf(), ip.frag_offset(), ip.is_fragment()), (false, true, 24, true));
        assert_eq!((ip.ttl(), ip.protocol(), ip.checksum()), (64, 17, 0xabcd));
        assert_eq!(ip.src(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(ip.dst(), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(ip.options(), [1, 1, 1, 0]);
        assert_eq!(ip.payload(), [0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        assert_eq!(field(&PACKET[..19]), "IPv4 header");
        let with = |at: usize, byte| {
            let mut bytes = PACKET;
            bytes[at] = byte;
            bytes
        };
        assert_eq!(field(&with(0, 0x65)), "IPv4 version");
        assert_eq!(field(&with(0, 0x44)), "IPv4 header length");
        assert_eq!(field(&with(0, 0x46)), "IPv4 header length");
        assert_eq!(field(&with(3, 19)), "IPv4 total length");
        assert_eq!(field(&with(3, 21)), "IPv4 total length");
        assert_eq!(Ipv4::parse_quoted(with(3, 21)).unwrap().payload(), []);
    }

    #[test]
    fn a_known_checksum_is_verified_and_filled() {
        // The known checksum belongs to a total length of 0x73.
        let mut bytes = PACKET;
        bytes[3] = 0x73;
        bytes[10..12].copy_from_slice(&[0xb8, 0x61]);
        let mut ip = Ipv4::parse_quoted(bytes).unwrap();
        assert!(ip.verify_checksum());
        ip.set_ttl(63);
        assert!(!ip.verify_checksum());
        ip.fill_checksum();
        assert_eq!(ip.checksum(), 0xb961);
        assert!(ip.verify_checksum());
    }

    #[test]
    fn an_invalid_option_ends_the_iteration() {
        let list = |options: &'static [u8]| Options::new(options, 20);
        let mut it = list(&[1, 0x94, 4, 5, 6, 0, 9, 9]);
        assert_eq!(it.next(), Some(Ok(Ipv4Option { kind: 1, at: 20, len: 1, data: &[] })));
        let alert = it.next().unwrap().unwrap();
        assert_eq!(alert, Ipv4Option { kind: 0x94, at: 21, len: 4, data: &[5, 6] });
        assert!(alert.copied());
        assert_eq!(it.next(), None);
        let shortest = list(&[7, 2]).next().unwrap().unwrap();
        assert_eq!((shortest.len, shortest.copied()), (2, false));
        for bad in [&[7u8, 0, 0, 0][..], &[7, 1, 0, 0], &[7, 5, 0, 0], &[1, 1, 1, 7]] {
            let mut it = list(bad);
            assert!(it.by_ref().any(|o| o.is_err()), "{bad:?}");
            assert_eq!(it.next(), None);
        }
    }

    #[test]
    fn fragments_and_options_are_rejected_by_the_header() {
        let mut bytes = PACKET;
        bytes[6] = 0x20;
        assert_eq!(Ipv4Header::parse(&bytes).unwrap_err().field, "IPv4 fragment offset");
        let mut bytes = [0; 24];
        bytes[..20].copy_from_slice(&PACKET);
        (bytes[0], bytes[3]) = (0x46, 24);
        assert_eq!(Ipv4Header::parse(&bytes).unwrap_err().field, "IPv4 options");
        let long = Ipv4Header { payload_len: 65_516, ..Ipv4Header::parse(&PACKET).unwrap() };
        assert_eq!(long.emit(&mut [0; 20]).unwrap_err().field, "IPv4 total length");
    }

    fn headers() -> impl Strategy<Value = Ipv4Header> {
        let addresses = (any::<Ipv4Addr>(), any::<Ipv4Addr>());
        (any::<(u8, u16, bool, u8, u8)>(), addresses, 0u16..2000).prop_map(|(a, (src, dst), payload_len)| {
            Ipv4Header { tos: a.0, ident: a.1, df: a.2, ttl: a.3, protocol: a.4, src, dst, payload_len }
        })
    }

    proptest! {
        #[test]
        fn round_trip(header in headers()) {
            let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
            header.emit(bytes.first_chunk_mut().unwrap()).unwrap();
            prop_assert!(Ipv4::parse(&bytes).unwrap().verify_checksum());
            prop_assert_eq!(Ipv4Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn setters_write_what_getters_read(header in headers(), offset in 0u16..8192, more: bool) {
            let mut ip = Ipv4::parse_quoted(PACKET).unwrap();
            ip.set_tos(header.tos);
            ip.set_ident(header.ident);
            ip.set_fragment(offset << 3, more);
            ip.set_df(header.df);
            ip.set_ttl(header.ttl);
            ip.set_protocol(header.protocol);
            ip.set_src(header.src);
            ip.set_dst(header.dst);
            ip.set_total_len(header.payload_len + 20);
            ip.set_checksum(header.ident);
            prop_assert_eq!((ip.frag_offset(), ip.mf(), ip.checksum()), (offset << 3, more, header.ident));
            ip.set_fragment(0, false);
            prop_assert_eq!(ip.df(), header.df);
            ip.set_ecn(!header.tos);
            prop_assert_eq!(ip.tos(), header.tos ^ 3);
            ip.set_ecn(header.tos);
            let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
            bytes[..20].copy_from_slice(&ip.into_inner());
            prop_assert_eq!(Ipv4Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), force: bool) {
            if force && bytes.len() >= 4 {
                bytes[0] = 0x40 | bytes[0] & 15;
                bytes[2] = 0;
            }
            if let Ok(mut ip) = Ipv4::parse_quoted(&mut bytes[..]) {
                prop_assert!(ip.options_iter().count() <= 40);
                ip.fill_checksum();
                prop_assert!(ip.verify_checksum());
                prop_assert_eq!(ip.payload().len(), ip.payload_mut().len());
            }
            if let Ok(ip) = Ipv4::parse(&bytes) {
                prop_assert_eq!(ip.header().len() + ip.payload().len(), usize::from(ip.total_len()));
            }
            let _ = Ipv4Header::parse(&bytes);
        }
    }
}
