//! IPv6 (RFC 8200): a view over a packet and the fixed header that tunnels emit.
//!
//! [`Ipv6::parse`] checks the lengths once; every getter then reads plain bytes. Extension headers are [`super::ext`].
//! Limit: jumbograms (RFC 2675) are refused.

use core::net::Ipv6Addr;

use super::{ext, proto};
use crate::Malformed;

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Offset of the fixed header's next header field.
pub const NEXT_HEADER_AT: usize = 6;
/// The least MTU of a link that carries IPv6 (RFC 8200 section 5).
pub const MIN_MTU: usize = 1280;

/// An IPv6 packet in `T`'s bytes; bytes behind its payload do not belong to it.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// The packet at the start of `bytes`, all of it.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::parse_quoted(bytes)?;
        if packet.total_len() > packet.bytes.as_ref().len() {
            return Err(Malformed::new("IPv6 payload length", "must not exceed the bytes at hand"));
        }
        Ok(packet)
    }

    /// A packet of which the end may be missing, as ICMPv6 errors quote it; the fixed header must be whole.
    #[inline]
    pub fn parse_quoted(bytes: T) -> Result<Self, Malformed> {
        let h: &[u8; HEADER_LEN] =
            bytes.as_ref().first_chunk().ok_or(Malformed::new("IPv6 header", "must have 40 bytes"))?;
        if h[0] >> 4 != 6 {
            return Err(Malformed::new("IPv6 version", "must be 6"));
        }
        // RFC 2675 section 3: length 0 with a hop-by-hop header means that an option holds the length.
        if h[4] == 0 && h[5] == 0 && h[NEXT_HEADER_AT] == proto::HOP_BY_HOP {
            return Err(Malformed::new("IPv6 payload length", "must not be 0: jumbograms are not supported"));
        }
        Ok(Self { bytes })
    }

    /// The bytes under the view, with any that lie behind the packet.
    #[inline]
    pub fn into_inner(self) -> T {
        self.bytes
    }

    // `parse` made sure that the bytes are there; the zeros are never read.
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

    /// Length of what follows the fixed header.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[4], h[5]])
    }

    /// Length of fixed header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.payload_len().into())
    }

    /// What follows the fixed header: an extension header or the upper-layer protocol.
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

    /// The packet, no further than the payload length says.
    #[inline]
    pub fn packet(&self) -> &[u8] {
        let b = self.bytes.as_ref();
        b.get(..self.total_len()).unwrap_or(b)
    }

    /// What follows the fixed header, extension headers included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.packet().get(HEADER_LEN..).unwrap_or_default()
    }

    /// The extension headers one by one.
    #[inline]
    pub fn headers(&self) -> ext::Headers<'_> {
        ext::Headers::new(self.packet(), self.next_header())
    }

    /// Walks over the extension headers to the upper-layer protocol.
    #[inline]
    pub fn chain(&self) -> Result<ext::Chain, Malformed> {
        // Most packets have none.
        match ext::Kind::of(self.next_header()) {
            None => Ok(ext::Chain::bare(self.next_header())),
            Some(_) => self.headers().walk(),
        }
    }
}

#[inline]
fn address(h: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = h.get(at..).and_then(|a| a.first_chunk()).copied().unwrap_or_default();
    Ipv6Addr::from(octets)
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    // Writes go nowhere if the bytes are not there, which `parse` rules out.
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

    /// Sets the ECN bits and leaves the DSCP.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.change(|h| h[1] = h[1] & !0x30 | (ecn & 3) << 4);
    }

    /// Sets the flow label; bits beyond the lower 20 are ignored.
    #[inline]
    pub fn set_flow_label(&mut self, label: u32) {
        let [_, a, b, c] = label.to_be_bytes();
        self.change(|h| [h[1], h[2], h[3]] = [h[1] & 0xf0 | a & 0x0f, b, c]);
    }

    /// Sets the length of the payload. The caller has room for as many bytes; getters clamp if not.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        self.change(|h| [h[4], h[5]] = len.to_be_bytes());
    }

    /// Sets what follows the fixed header.
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

    /// What follows the fixed header, extension headers included.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.total_len();
        let b = self.bytes.as_mut();
        let end = end.min(b.len());
        b.get_mut(HEADER_LEN..end).unwrap_or_default()
    }
}

/// The fixed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; only the lower 20 bits are emitted.
    pub flow_label: u32,
    /// Length of what follows; 0 only if nothing does.
    pub payload_len: u16,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// The fixed header of the packet in `bytes`.
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
mod tests;
