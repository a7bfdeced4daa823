//! Authentication Header (RFC 4302 section 2).
//!
//! The data path computes the ICV; in this module the ICV is opaque bytes.

use crate::invariant::OrBroken;
use crate::{Malformed, ip::IpVersion};

/// Length of the header without its ICV, in bytes.
pub const FIXED_LEN: usize = 12;
/// Maximum length of the header, given by the payload length field.
pub const MAX_LEN: usize = 1028;
/// Offset of the ICV in the header.
pub const ICV_AT: usize = FIXED_LEN;

/// Alignment of the header's end. Padding after the ICV produces the alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// 4 bytes, for IPv4.
    Four,
    /// 8 bytes, for IPv6. Linux also uses it for IPv4, unless the state has the flag `align4`.
    Eight,
}

impl Align {
    /// Returns the alignment that RFC 4302 section 3.3.3.2.1 requires.
    #[inline]
    pub const fn of(version: IpVersion) -> Self {
        match version {
            IpVersion::V4 => Self::Four,
            IpVersion::V6 => Self::Eight,
        }
    }
}

/// Length of a header with an ICV of `icv_len` bytes and the padding that RFC 4302 section 3.3.3.2.1
/// requires.
#[inline]
pub const fn header_len(icv_len: usize, version: IpVersion) -> usize {
    header_len_aligned(icv_len, Align::of(version))
}

/// Length of a header with an ICV of `icv_len` bytes and padding to `align`.
#[inline]
pub const fn header_len_aligned(icv_len: usize, align: Align) -> usize {
    let mask = match align {
        Align::Four => 3,
        Align::Eight => 7,
    };
    FIXED_LEN.saturating_add(icv_len).saturating_add(mask) & !mask
}

/// Fixed fields of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AhHeader {
    /// Protocol of the data after the header.
    pub next_header: u8,
    /// Length of the header in bytes with ICV and padding: a multiple of 4 from 12 to [`MAX_LEN`].
    pub len: usize,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number; for extended sequence numbers, the lower 32 bits.
    pub seq: u32,
}

impl AhHeader {
    /// Writes the fixed fields. The ICV and its padding follow them.
    #[inline]
    pub fn emit(&self, out: &mut [u8; FIXED_LEN]) -> Result<(), Malformed> {
        // RFC 4302 section 2.2: 32-bit words minus 2.
        let words = u8::try_from((self.len >> 2).wrapping_sub(2)).ok().filter(|&words| words > 0);
        let payload_len = words
            .filter(|_| self.len & 3 == 0)
            .ok_or(Malformed::new("AH length", "must be a multiple of 4 from 12 to 1,028"))?;
        let ([a, b, c, d], [e, f, g, h]) = (self.spi.to_be_bytes(), self.seq.to_be_bytes());
        *out = [self.next_header, payload_len, 0, 0, a, b, c, d, e, f, g, h];
        Ok(())
    }
}

/// Parts of a packet from the AH header on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AhPacket<'a> {
    /// Fixed fields of the header.
    pub header: AhHeader,
    /// ICV with its padding.
    pub icv: &'a [u8],
    /// Data after the header.
    pub data: &'a [u8],
}

impl<'a> AhPacket<'a> {
    /// Splits `bytes`, which begin with the AH header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let &[next_header, payload_len, _, _, a, b, c, d, e, f, g, h] =
            bytes.first_chunk().ok_or(Malformed::new("AH header", "must have at least 12 bytes"))?;
        if payload_len == 0 {
            return Err(Malformed::new("AH payload length", "must cover the fixed fields"));
        }
        let len = usize::from(payload_len).saturating_add(2) << 2;
        let (whole, data) = bytes
            .split_at_checked(len)
            .ok_or(Malformed::new("AH payload length", "must not exceed the bytes at hand"))?;
        let (spi, seq) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let icv = whole.get(ICV_AT..).or_broken_default("the header is longer than its fixed fields");
        Ok(Self { header: AhHeader { next_header, len, spi, seq }, icv, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_match_the_rfc() {
        // RFC 4302 section 2.2: a 96-bit ICV gives payload length 4 for both IP versions.
        assert_eq!(header_len(12, IpVersion::V4), 24);
        assert_eq!(header_len(12, IpVersion::V6), 24);
        assert_eq!(header_len(16, IpVersion::V4), 28);
        assert_eq!(header_len(16, IpVersion::V6), 32);
        let mut out = [0; FIXED_LEN];
        AhHeader { next_header: 6, len: 24, spi: 1, seq: 2 }.emit(&mut out).unwrap();
        assert_eq!(out, [6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn invalid_payload_lengths_are_rejected() {
        let mut bytes = [0; 16];
        assert_eq!(AhPacket::parse(&bytes).unwrap_err().field, "AH payload length");
        bytes[1] = 3;
        assert_eq!(AhPacket::parse(&bytes).unwrap_err().field, "AH payload length");
        bytes[1] = 2;
        assert!(AhPacket::parse(&bytes).is_ok());
        assert_eq!(AhPacket::parse(&bytes[..11]).unwrap_err().field, "AH header");
        for len in [0, 8, 13, 14, 1032, usize::MAX] {
            let header = AhHeader { next_header: 6, len, spi: 1, seq: 2 };
            assert!(header.emit(&mut [0; FIXED_LEN]).is_err(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(next_header: u8, words in 3usize..=257, spi: u32, seq: u32, tail in 0usize..40) {
            let header = AhHeader { next_header, len: words * 4, spi, seq };
            let mut bytes = [0; MAX_LEN + 40];
            header.emit(bytes.first_chunk_mut().unwrap()).unwrap();
            let parsed = AhPacket::parse(&bytes[..header.len + tail]).unwrap();
            prop_assert_eq!(parsed.header, header);
            prop_assert_eq!((parsed.icv.len(), parsed.data.len()), (header.len - FIXED_LEN, tail));
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(AhPacket { header, icv, data }) = AhPacket::parse(&bytes) {
                prop_assert_eq!(FIXED_LEN + icv.len() + data.len(), bytes.len());
                prop_assert!(header.len >= FIXED_LEN);
            }
        }
    }
}
