//! IPv4 (RFC 791): a view over a packet, its options, and the option-less header that tunnels emit.
//!
//! [`Ipv4::parse`] checks the lengths once; every getter then reads plain bytes. It does not check the checksum, nor
//! what an option means. Limit: addresses and options are not judged here.

use core::net::Ipv4Addr;

use crate::{Malformed, checksum::Sum};

mod options;

pub use options::{Ipv4Option, Options};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// Length of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Offset of the protocol field.
pub const PROTOCOL_AT: usize = 9;

/// "Don't fragment", in the first byte of the fragment field.
pub const DF: u8 = 0x40;
const MF: u8 = 0x20;

/// An IPv4 packet in `T`'s bytes; bytes behind its total length do not belong to it.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// The packet at the start of `bytes`, all of it.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::parse_quoted(bytes)?;
        if usize::from(packet.total_len()) > packet.bytes.as_ref().len() {
            return Err(Malformed::new("IPv4 total length", "must not exceed the bytes at hand"));
        }
        Ok(packet)
    }

    /// A packet of which the end may be missing, as ICMP errors quote it; the header must be whole.
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

    /// Length of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.fixed()[0] & 0x0f) << 2
    }

    /// Length of header and payload.
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

    /// Don't fragment.
    #[inline]
    pub fn df(&self) -> bool {
        self.fixed()[6] & DF != 0
    }

    /// More fragments follow.
    #[inline]
    pub fn mf(&self) -> bool {
        self.fixed()[6] & MF != 0
    }

    /// Where the payload of this fragment stands in the whole, in bytes.
    #[inline]
    pub fn frag_offset(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[6], h[7]]) << 3
    }

    /// Whether this is a fragment, first or later.
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

    /// The checksum field.
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

    /// Header with its options.
    #[inline]
    pub fn header(&self) -> &[u8] {
        self.bytes.as_ref().get(..self.header_len()).unwrap_or_default()
    }

    /// The options' bytes; empty for most packets.
    #[inline]
    pub fn options(&self) -> &[u8] {
        self.header().get(HEADER_LEN..).unwrap_or_default()
    }

    /// The options one by one.
    #[inline]
    pub fn options_iter(&self) -> Options<'_> {
        Options::new(self.options(), HEADER_LEN)
    }

    /// The payload, no further than the total length says.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let b = self.bytes.as_ref();
        let end = usize::from(self.total_len()).min(b.len());
        b.get(self.header_len()..end).unwrap_or_default()
    }

    /// Whether the header's checksum is right.
    #[inline]
    pub fn verify_checksum(&self) -> bool {
        Sum::of(self.header()).is_valid()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    // Writes go nowhere if the bytes are not there, which `parse` rules out.
    #[inline]
    fn change(&mut self, write: impl FnOnce(&mut [u8; HEADER_LEN])) {
        if let Some(h) = self.bytes.as_mut().first_chunk_mut() {
            write(h);
        }
    }

    /// Sets the length of header and payload. The caller has room for as many bytes; getters clamp if not.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        self.change(|h| [h[2], h[3]] = len.to_be_bytes());
    }

    /// Sets the type-of-service octet.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.change(|h| h[1] = tos);
    }

    /// Sets the ECN bits and leaves the DSCP.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        self.change(|h| h[1] = h[1] & !3 | ecn & 3);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        self.change(|h| [h[4], h[5]] = ident.to_be_bytes());
    }

    /// Sets or clears "don't fragment".
    #[inline]
    pub fn set_df(&mut self, df: bool) {
        self.change(|h| h[6] = h[6] & !DF | if df { DF } else { 0 });
    }

    /// Sets offset (in bytes, rounded down to a multiple of 8) and "more fragments"; leaves "don't fragment".
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

    /// Sets the payload's protocol.
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

    /// Computes the header's checksum; to be called after the last change.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = Sum::of(self.header()).finish();
        self.set_checksum(sum);
    }

    /// The payload, no further than the total length says.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_len(), usize::from(self.total_len()));
        let b = self.bytes.as_mut();
        let end = end.min(b.len());
        b.get_mut(start..end).unwrap_or_default()
    }
}

/// The header of a whole packet without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub ident: u16,
    /// Don't fragment.
    pub df: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Length of the payload, at most 65,515.
    pub payload_len: u16,
}

impl Ipv4Header {
    /// The header of the packet in `bytes`; a fragment or a header with options is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let ip = Ipv4::parse(bytes)?;
        if ip.is_fragment() {
            return Err(Malformed::new("IPv4 fragment offset", "must be 0 in a whole packet, as must MF"));
        }
        // The options' length is what the header holds beyond its fixed part.
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
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) -> Result<(), Malformed> {
        let total_len = self
            .payload_len
            .checked_add(HEADER_LEN as u16)
            .ok_or(Malformed::new("IPv4 total length", "must be at most 65,535"))?;
        // Summed from the values: loading words from bytes just stored would stall.
        let flags = u16::from(self.df) << 14;
        let checksum = Sum::ZERO
            .add_u16(0x4500 | u16::from(self.tos))
            .add_u16(total_len)
            .add_u16(self.ident)
            .add_u16(flags)
            .add_u16(u16::from_be_bytes([self.ttl, self.protocol]))
            .add_u32(self.src.to_bits())
            .add_u32(self.dst.to_bits())
            .finish();
        let ([len_hi, len_lo], [id_hi, id_lo]) = (total_len.to_be_bytes(), self.ident.to_be_bytes());
        let ([flags, _], [sum_hi, sum_lo]) = (flags.to_be_bytes(), checksum.to_be_bytes());
        let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (self.src.octets(), self.dst.octets());
        *out = [
            0x45,
            self.tos,
            len_hi,
            len_lo,
            id_hi,
            id_lo,
            flags,
            0,
            self.ttl,
            self.protocol, //
            sum_hi,
            sum_lo,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ];
        Ok(())
    }
}

#[cfg(test)]
mod tests;
