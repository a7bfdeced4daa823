//! Encapsulating Security Payload (RFC 4303 section 2): header, padding and trailer.
//!
//! The data path handles IV, ICV and key; in this module they are opaque bytes between header and trailer.

use crate::Malformed;

/// Length of the SPI and the sequence number, in bytes.
pub const HEADER_LEN: usize = 8;
/// Length of the pad length and next header fields, in bytes.
pub const TRAILER_LEN: usize = 2;
/// Maximum padding, given by the pad length field, in bytes.
pub const MAX_PAD_LEN: usize = 255;

/// Header of an ESP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspHeader {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number; for extended sequence numbers, the lower 32 bits.
    pub seq: u32,
}

impl EspHeader {
    /// Parses the header of the ESP packet in `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let &[a, b, c, d, e, f, g, h] =
            bytes.first_chunk().ok_or(Malformed::new("ESP header", "must have 8 bytes"))?;
        Ok(Self { spi: u32::from_be_bytes([a, b, c, d]), seq: u32::from_be_bytes([e, f, g, h]) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let ([a, b, c, d], [e, f, g, h]) = (self.spi.to_be_bytes(), self.seq.to_be_bytes());
        *out = [a, b, c, d, e, f, g, h];
    }
}

/// Parts of the decrypted text of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspPlaintext<'a> {
    /// Data of the protocol that the trailer names.
    pub payload: &'a [u8],
    /// Padding before the trailer.
    pub padding: &'a [u8],
    /// The trailer.
    pub trailer: EspTrailer,
}

impl<'a> EspPlaintext<'a> {
    /// Splits the decrypted text.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let (padded, &[pad_len, next_header]) =
            text.split_last_chunk().ok_or(Malformed::new("ESP trailer", "must have 2 bytes"))?;
        let (payload, padding) = padded
            .len()
            .checked_sub(pad_len.into())
            .and_then(|len| padded.split_at_checked(len))
            .ok_or(Malformed::new("ESP pad length", "must not exceed the payload"))?;
        Ok(Self { payload, padding, trailer: EspTrailer { pad_len, next_header } })
    }
}

/// Trailer: the last two bytes of the plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspTrailer {
    /// Number of padding bytes before the trailer.
    pub pad_len: u8,
    /// Protocol of the payload.
    pub next_header: u8,
}

impl EspTrailer {
    /// Writes the trailer.
    #[inline]
    pub fn emit(&self, out: &mut [u8; TRAILER_LEN]) {
        *out = [self.pad_len, self.next_header];
    }

    /// Writes default padding and the trailer to the start of `out`; returns `None` if `out` is shorter. Up
    /// to 16 bytes after the trailer, which belong to the ICV, may change.
    #[inline]
    pub fn emit_padded(&self, out: &mut [u8]) -> Option<()> {
        let pad_len = usize::from(self.pad_len);
        // Copied in one piece if there is space: most padding is short, and a loop would cost more.
        match out.first_chunk_mut() {
            Some(start) if pad_len <= SHORT_PADDING.len() => *start = SHORT_PADDING,
            _ => fill_padding(out.get_mut(..pad_len)?),
        }
        self.emit(out.get_mut(pad_len..)?.first_chunk_mut()?);
        Some(())
    }
}

/// Returns the padding length that aligns the end of `payload_len` bytes and the trailer to `align`, a power
/// of two up to 256.
///
/// RFC 4303 section 2.4: the trailer always ends on a 4-byte boundary, so `align` counts as at least 4.
#[inline]
pub fn pad_len(payload_len: usize, align: usize) -> u8 {
    let mask = align.clamp(4, 256).wrapping_sub(1);
    let end = payload_len.wrapping_add(TRAILER_LEN);
    (end.wrapping_neg() & mask) as u8
}

/// The default padding: 1, 2, 3, ... (RFC 4303 section 2.4).
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const PADDING: [u8; MAX_PAD_LEN] = {
    let mut padding = [0; MAX_PAD_LEN];
    let mut n = 0;
    while n < MAX_PAD_LEN {
        padding[n] = n as u8 + 1;
        n += 1;
    }
    padding
};

/// Start of the default padding.
const SHORT_PADDING: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// Fills padding with 1, 2, 3, ... (RFC 4303 section 2.4). Bytes beyond the [`MAX_PAD_LEN`] that padding may
/// have stay unchanged.
#[inline]
pub fn fill_padding(padding: &mut [u8]) {
    let len = padding.len().min(MAX_PAD_LEN);
    if let (Some(to), Some(from)) = (padding.get_mut(..len), PADDING.get(..len)) {
        to.copy_from_slice(from);
    }
}

/// Whether padding is 1, 2, 3, ..., as the default scheme requires (RFC 4303 section 2.4).
#[inline]
pub fn is_default_padding(padding: &[u8]) -> bool {
    // Alignment alone rarely needs more than three bytes, too few for a call.
    matches!(padding, [] | [1] | [1, 2] | [1, 2, 3]) || starts_default_padding(padding)
}

#[cold]
#[inline(never)]
fn starts_default_padding(padding: &[u8]) -> bool {
    PADDING.get(..padding.len()).is_some_and(|default| padding == default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_input_is_rejected() {
        assert_eq!(EspHeader::parse(&[0; 7]).unwrap_err().field, "ESP header");
        assert_eq!(EspPlaintext::parse(&[4]).unwrap_err().field, "ESP trailer");
        assert_eq!(EspPlaintext::parse(&[0, 1, 2, 4, 4]).unwrap_err().field, "ESP pad length");
        assert_eq!(
            EspPlaintext::parse(&[1, 2, 3, 3, 4]),
            Ok(EspPlaintext {
                payload: &[],
                padding: &[1, 2, 3],
                trailer: EspTrailer { pad_len: 3, next_header: 4 }
            })
        );
    }

    #[test]
    fn padding_of_all_255_bytes() {
        let mut padding = [0; MAX_PAD_LEN];
        fill_padding(&mut padding);
        assert_eq!((padding[0], padding[254]), (1, 255));
        assert!(is_default_padding(&padding));
        padding[200] ^= 1;
        assert!(!is_default_padding(&padding));
    }

    proptest! {
        #[test]
        fn header_round_trip(spi: u32, seq: u32) {
            let header = EspHeader { spi, seq };
            let mut out = [0; HEADER_LEN];
            header.emit(&mut out);
            prop_assert_eq!(&out[..4], spi.to_be_bytes());
            prop_assert_eq!(EspHeader::parse(&out), Ok(header));
        }

        #[test]
        fn trailer_round_trip(
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            shift in 0u32..=8,
            next_header: u8,
        ) {
            let align = 1usize << shift;
            let pad = pad_len(payload.len(), align);
            prop_assert!(usize::from(pad) < align.max(4));
            let mut bytes = payload.clone();
            bytes.resize(payload.len() + usize::from(pad), 0);
            fill_padding(&mut bytes[payload.len()..]);
            let trailer = EspTrailer { pad_len: pad, next_header };
            let mut end = [0; TRAILER_LEN];
            trailer.emit(&mut end);
            bytes.extend(end);
            prop_assert_eq!(bytes.len() % align.max(4), 0);
            let parsed = EspPlaintext::parse(&bytes).unwrap();
            prop_assert_eq!((parsed.payload, parsed.trailer), (&payload[..], trailer));
            prop_assert!(is_default_padding(parsed.padding));
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = EspHeader::parse(&bytes);
            if let Ok(EspPlaintext { payload, padding, trailer }) = EspPlaintext::parse(&bytes) {
                prop_assert_eq!(payload.len() + padding.len() + TRAILER_LEN, bytes.len());
                prop_assert_eq!(padding.len(), usize::from(trailer.pad_len));
            }
        }
    }
}
