//! IPv6 (RFC 8200): a view of a packet, and the fixed header that tunnels emit.
//!
//! [`Ipv6::parse`] validates the lengths once; the getters then read plain bytes. [`super::ext`] parses
//! extension headers. Jumbograms (RFC 2675) are rejected.

use core::net::Ipv6Addr;

use super::{ext, proto};
use crate::{Malformed, invariant::OrBroken};

/// Length of the fixed header, in bytes.
pub const HEADER_LEN: usize = 40;
/// Offset of the next header field in the fixed header.
pub const NEXT_HEADER_AT: usize = 6;
/// Minimum MTU of links with IPv6 (RFC 8200 section 5).
pub const MIN_MTU: usize = 1280;

/// What [`Ipv6::parse_quoted`] has checked, for [`crate::invariant`].
const HEADER_FIRST: &str = "the fixed IPv6 header ends within the packet";

/// An IPv6 packet in the bytes of `T`. Bytes after its payload do not belong to the packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Parses the packet at the start of `bytes`, which must be complete.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::parse_quoted(bytes)?;
        if packet.total_len() > packet.bytes.as_ref().len() {
            return Err(Malformed::new("IPv6 payload length", "must not exceed the bytes at hand"));
        }
        Ok(packet)
    }

    /// Parses a packet with a complete fixed header and a possibly truncated payload, as ICMPv6 errors quote
    /// it.
    #[inline]
    pub fn parse_quoted(bytes: T) -> Result<Self, Malformed> {
        let h: &[u8; HEADER_LEN] =
            bytes.as_ref().first_chunk().ok_or(Malformed::new("IPv6 header", "must have 40 bytes"))?;
        if h[0] >> 4 != 6 {
            return Err(Malformed::new("IPv6 version", "must be 6"));
        }
        // RFC 2675 section 3: a length of 0 with a hop-by-hop header means that an option contains the
        // length.
        if h[4] == 0 && h[5] == 0 && h[NEXT_HEADER_AT] == proto::HOP_BY_HOP {
            return Err(Malformed::new("IPv6 payload length", "must not be 0: jumbograms are not supported"));
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

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        let h = self.fixed();
        h[0] << 4 | h[1] >> 4
    }

    /// Differentiated services code point (RFC 2474).
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Explicit congestion notification (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Flow label, 20 bits (RFC 6437).
    #[inline]
    pub fn flow_label(&self) -> u32 {
        let h = self.fixed();
        u32::from_be_bytes([0, h[1] & 0x0f, h[2], h[3]])
    }

    /// Length of the data after the fixed header, in bytes.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[4], h[5]])
    }

    /// Length of fixed header and payload, in bytes.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.payload_len().into())
    }

    /// Next header field: an extension header or the upper-layer protocol.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.fixed()[NEXT_HEADER_AT]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed()[7]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        address(self.fixed(), 8)
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        address(self.fixed(), 24)
    }

    /// The packet, up to the payload length.
    #[inline]
    pub fn packet(&self) -> &[u8] {
        let b = self.bytes.as_ref();
        b.get(..self.total_len()).unwrap_or(b)
    }

    /// Data after the fixed header, including extension headers.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.packet().get(HEADER_LEN..).unwrap_or_default()
    }

    /// Iterator over the extension headers.
    #[inline]
    pub fn headers(&self) -> ext::Headers<'_> {
        ext::Headers::new(self.packet(), self.next_header())
    }

    /// Parses the extension headers up to the upper-layer protocol.
    #[inline]
    pub fn chain(&self) -> Result<ext::Chain, Malformed> {
        // Fast path: most packets have no extension headers.
        match ext::ExtHeaderKind::of(self.next_header()) {
            None => Ok(ext::Chain::without_extensions(self.next_header())),
            Some(_) => self.headers().parse_chain(),
        }
    }
}

#[inline]
fn address(h: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = h.get(at..).and_then(|a| a.first_chunk()).copied().unwrap_or_default();
    Ipv6Addr::from(octets)
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    // No effect if the bytes do not exist, which `parse` rules out.
    #[inline]
    fn change(&mut self, write: impl FnOnce(&mut [u8; HEADER_LEN])) {
        if let Some(h) = self.bytes.as_mut().first_chunk_mut() {
            write(h);
        }
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.change(|h| [h[0], h[1]] = [0x60 | class >> 4, class << 4 | h[1] & 0x0f]);
    }

    /// Sets the ECN bits; the DSCP stays unchanged.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.change(|h| h[1] = h[1] & !0x30 | (ecn & 3) << 4);
    }

    /// Sets the flow label to the lower 20 bits of `label`.
    #[inline]
    pub fn set_flow_label(&mut self, label: u32) {
        let [_, a, b, c] = label.to_be_bytes();
        self.change(|h| [h[1], h[2], h[3]] = [h[1] & 0xf0 | a & 0x0f, b, c]);
    }

    /// Sets the length of the payload. The buffer must be long enough; otherwise the getters clamp.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        self.change(|h| [h[4], h[5]] = len.to_be_bytes());
    }

    /// Sets the next header field.
    #[inline]
    pub fn set_next_header(&mut self, next_header: u8) {
        self.change(|h| h[NEXT_HEADER_AT] = next_header);
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.change(|h| h[7] = hop_limit);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: Ipv6Addr) {
        self.set_address(8, src);
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        self.set_address(24, dst);
    }

    #[inline]
    fn set_address(&mut self, at: usize, address: Ipv6Addr) {
        self.change(|h| {
            if let Some(field) = h.get_mut(at..).and_then(|a| a.first_chunk_mut()) {
                *field = address.octets();
            }
        });
    }

    /// Data after the fixed header, including extension headers.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.total_len();
        let b = self.bytes.as_mut();
        let end = end.min(b.len());
        b.get_mut(HEADER_LEN..end).or_broken_default(HEADER_FIRST)
    }
}

/// The fixed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; only the lower 20 bits are emitted.
    pub flow_label: u32,
    /// Length of the data after the header; 0 only if there is none.
    pub payload_len: u16,
    /// Type of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// Parses the fixed header of the packet in `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let ip = Ipv6::parse(bytes)?;
        Ok(Self {
            traffic_class: ip.traffic_class(),
            flow_label: ip.flow_label(),
            payload_len: ip.payload_len(),
            next_header: ip.next_header(),
            hop_limit: ip.hop_limit(),
            src: ip.src(),
            dst: ip.dst(),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let ([v0, v1, v2, v3], [l0, l1]) = (first.to_be_bytes(), self.payload_len.to_be_bytes());
        let (fixed, addresses) = out.split_at_mut(8);
        fixed.copy_from_slice(&[v0, v1, v2, v3, l0, l1, self.next_header, self.hop_limit]);
        let (src, dst) = addresses.split_at_mut(16);
        src.copy_from_slice(&self.src.octets());
        dst.copy_from_slice(&self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> [u8; 44] {
        let mut bytes = [0; 44];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 3, 17, 64]);
        (bytes[8], bytes[23], bytes[24], bytes[39]) = (0x20, 1, 0xfe, 2);
        bytes[40..].copy_from_slice(&[1, 2, 3, 4]);
        bytes
    }

    #[test]
    fn getters_read_their_fields() {
        let bytes = sample();
        let ip = Ipv6::parse(&bytes[..]).unwrap();
        assert_eq!((ip.traffic_class(), ip.dscp(), ip.ecn(), ip.flow_label()), (0xab, 42, 3, 0x12345));
        assert_eq!((ip.payload_len(), ip.total_len(), ip.next_header(), ip.hop_limit()), (3, 43, 17, 64));
        assert_eq!(ip.src(), "2000::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(ip.dst(), "fe00::2".parse::<Ipv6Addr>().unwrap());
        assert_eq!(ip.payload(), [1, 2, 3]);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        let mut bytes = sample();
        assert_eq!(Ipv6::parse(&bytes[..39]).unwrap_err().field, "IPv6 header");
        assert_eq!(Ipv6::parse(&bytes[..42]).unwrap_err().field, "IPv6 payload length");
        assert_eq!(Ipv6::parse_quoted(&bytes[..42]).unwrap().payload(), [1, 2]);
        bytes[5] = 0;
        assert!(Ipv6::parse(bytes).unwrap().payload().is_empty());
        bytes[6] = 0;
        assert_eq!(Ipv6::parse(bytes).unwrap_err().field, "IPv6 payload length");
        bytes[0] = 0x40;
        assert_eq!(Ipv6::parse(bytes).unwrap_err().field, "IPv6 version");
    }

    fn headers() -> impl Strategy<Value = Ipv6Header> {
        let addresses = (any::<Ipv6Addr>(), any::<Ipv6Addr>());
        (any::<(u8, u8, u8)>(), 0u32..1 << 20, addresses, 1u16..2000).prop_map(
            |((traffic_class, next_header, hop_limit), flow_label, (src, dst), payload_len)| Ipv6Header {
                traffic_class,
                flow_label,
                payload_len,
                next_header,
                hop_limit,
                src,
                dst,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(header in headers()) {
            let mut bytes = std::vec![0; HEADER_LEN + usize::from(header.payload_len)];
            header.emit(bytes.first_chunk_mut().unwrap());
            prop_assert_eq!(Ipv6Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn setters_write_what_getters_read(header in headers(), ecn in 0u8..4) {
            let mut bytes = std::vec![0x6f; HEADER_LEN + usize::from(header.payload_len)];
            let mut ip = Ipv6::parse_quoted(&mut bytes[..]).unwrap();
            ip.set_traffic_class(header.traffic_class);
            ip.set_flow_label(header.flow_label);
            prop_assert_eq!(ip.traffic_class(), header.traffic_class);
            ip.set_traffic_class(!header.traffic_class);
            prop_assert_eq!(ip.flow_label(), header.flow_label);
            ip.set_traffic_class(header.traffic_class);
            ip.set_ecn(ecn);
            prop_assert_eq!((ip.ecn(), ip.dscp()), (ecn, header.traffic_class >> 2));
            ip.set_ecn(header.traffic_class);
            ip.set_payload_len(header.payload_len);
            ip.set_next_header(header.next_header);
            ip.set_hop_limit(header.hop_limit);
            ip.set_src(header.src);
            ip.set_dst(header.dst);
            prop_assert_eq!(ip.payload_mut().len(), usize::from(header.payload_len));
            prop_assert_eq!(Ipv6Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), force: bool) {
            if force && bytes.len() >= 6 {
                (bytes[0], bytes[4]) = (0x60, 0);
            }
            if let Ok(mut ip) = Ipv6::parse_quoted(&mut bytes[..]) {
                prop_assert_eq!(ip.payload().len(), ip.payload_mut().len());
            }
            if let Ok(ip) = Ipv6::parse(&bytes) {
                prop_assert_eq!(ip.payload().len(), usize::from(ip.payload_len()));
            }
            let _ = Ipv6Header::parse(&bytes);
        }
    }
}
