//! The Internet checksum (RFC 1071), and the pseudo headers of IPv4 (RFC 768, RFC 9293) and IPv6 (RFC 8200
//! section 8.1).
//!
//! A [`Sum`] is an intermediate result. Sums of parts can be combined if every part but the last has an even
//! length.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum before folding.
///
/// The sum does not depend on byte order (RFC 1071 section 2 (B)), so words are added as the machine loads
/// them. A u64 holds the sum of 2^32 words of 32 bits, far more than a packet has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Self = Self(0);

    /// Sum of `bytes`. An odd last byte counts as if a zero byte followed it.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::ZERO.add_bytes(bytes)
    }

    /// Copies `from` to `to` and returns its sum, in one pass over memory. `to` must be as long as `from`;
    /// otherwise only the shorter length is copied and summed.
    pub fn of_copied(to: &mut [u8], from: &[u8]) -> Self {
        let len = to.len().min(from.len());
        let (to, from) = (to.get_mut(..len).unwrap_or_default(), from.get(..len).unwrap_or_default());
        let ((to, to_rest), (from, rest)) = (to.as_chunks_mut(), from.as_chunks());
        to_rest.copy_from_slice(rest);
        Self(copy_and_sum_chunks(to, from)).add_bytes(rest)
    }

    /// Adds `bytes`, which start at an even offset of the summed data.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (chunks, rest) = bytes.as_chunks();
        let sum = if chunks.is_empty() { self.0 } else { self.0.wrapping_add(sum_of_chunks(chunks)) };
        let (words, rest) = rest.as_chunks::<4>();
        let sum = words.iter().fold(sum, |sum, w| sum.wrapping_add(u32::from_ne_bytes(*w).into()));
        let last = match *rest {
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c] => [a, b, c, 0],
            _ => return Self(sum),
        };
        Self(sum.wrapping_add(u32::from_ne_bytes(last).into()))
    }

    /// Adds a 16-bit field.
    #[inline]
    #[must_use]
    pub fn add_u16(self, value: u16) -> Self {
        Self(self.0.wrapping_add(value.to_be().into()))
    }

    /// Adds a 32-bit field.
    #[inline]
    #[must_use]
    pub fn add_u32(self, value: u32) -> Self {
        Self(self.0.wrapping_add(value.to_be().into()))
    }

    /// Sum of both parts.
    #[inline]
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns the checksum: the complement of the folded sum, as the value of the checksum field.
    #[inline]
    pub fn finish(self) -> u16 {
        u16::from_be(!self.fold())
    }

    /// Whether data with a checksum is intact; this sum must include the checksum field.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }

    // Folded sum, in the byte order of the machine.
    #[inline]
    fn fold(self) -> u16 {
        let s = (self.0 & 0xffff_ffff).wrapping_add(self.0 >> 32);
        let s = (s & 0xffff).wrapping_add(s >> 16);
        let s = (s & 0xffff).wrapping_add(s >> 16);
        let s = (s & 0xffff).wrapping_add(s >> 16);
        s as u16
    }
}

/// Sums that [`sum_of_chunks`] computes side by side: enough for vector instructions, or one where that many
/// would need more registers than the processor has.
const LANES: usize = if cfg!(target_pointer_width = "64") { 8 } else { 1 };

/// Sum of the 32-bit words of `chunks`.
// Not inlined, because headers are shorter than a chunk and need little code then.
#[inline(never)]
fn sum_of_chunks(chunks: &[[u8; LANES * 4]]) -> u64 {
    let mut lanes = [0; LANES];
    for chunk in chunks {
        add_chunk(&mut lanes, chunk);
    }
    lanes.into_iter().fold(0, u64::wrapping_add)
}

/// Copies `from` to `to`, which has as many chunks, and returns the sum.
fn copy_and_sum_chunks(to: &mut [[u8; LANES * 4]], from: &[[u8; LANES * 4]]) -> u64 {
    let mut lanes = [0; LANES];
    for (to, chunk) in to.iter_mut().zip(from) {
        *to = *chunk;
        add_chunk(&mut lanes, chunk);
    }
    lanes.into_iter().fold(0, u64::wrapping_add)
}

#[cfg_attr(target_pointer_width = "64", inline(always))]
fn add_chunk(lanes: &mut [u64; LANES], chunk: &[u8; LANES * 4]) {
    let (words, _) = chunk.as_chunks();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = lane.wrapping_add(u32::from_ne_bytes(*word).into());
    }
}

/// Sum of the pseudo header for an upper-layer protocol over IPv4; `len` is the length of upper-layer header
/// and data.
#[inline]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u16) -> Sum {
    Sum::of(&src.octets()).add_bytes(&dst.octets()).add_u16(protocol.into()).add_u16(len)
}

/// Sum of the pseudo header for an upper-layer protocol over IPv6; `len` is the length of upper-layer header
/// and data.
#[inline]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> Sum {
    Sum::of(&src.octets()).add_bytes(&dst.octets()).add_u32(len).add_u32(next_header.into())
}

/// Returns the checksum after a part of the summed data changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub fn adjust(checksum: u16, old: Sum, new: Sum) -> u16 {
    Sum::ZERO.add_u16(!checksum).add_u16(old.finish()).combine(new).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Literal implementation of the definition.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn rfc1071_example() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.finish(), !0xddf2);
        assert!(sum.add_u16(!0xddf2).is_valid());
        assert!(!sum.add_u16(!0xddf3).is_valid());
    }

    #[test]
    fn folds_the_largest_sums() {
        assert_eq!(Sum(u64::MAX).fold(), 0xffff);
        assert_eq!(Sum(u64::MAX - 1).fold(), 0xfffe);
        assert_eq!(Sum::of(&[0xff; 65_535]).finish(), naive(&[0xff; 65_535]));
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..100,
        ) {
            prop_assert_eq!(Sum::of(&bytes).finish(), naive(&bytes));
            let (a, b) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::of(a).combine(Sum::of(b)).finish(), naive(&bytes));
            let mut copy = std::vec![0; bytes.len()];
            prop_assert_eq!(Sum::of_copied(&mut copy, &bytes).finish(), naive(&bytes));
            prop_assert_eq!(&copy, &bytes);
            let mut shorter = [0; 50];
            let len = bytes.len().min(50);
            prop_assert_eq!(Sum::of_copied(&mut shorter, &bytes).finish(), naive(&bytes[..len]));
            prop_assert_eq!((&shorter[..len], &shorter[len..]), (&bytes[..len], &[0; 50][len..]));
        }

        #[test]
        fn fields_count_as_their_bytes(a: u16, b: u32) {
            let bytes = [a.to_be_bytes().as_slice(), &b.to_be_bytes()].concat();
            prop_assert_eq!(Sum::ZERO.add_u16(a).add_u32(b).finish(), naive(&bytes));
        }

        #[test]
        fn adjusts_as_if_summed_anew(mut bytes: [u8; 20], new: [u8; 4]) {
            // All-zero data has two representations of zero; real headers never are all zero.
            bytes[0] |= 0x40;
            let (before, old) = (naive(&bytes), Sum::of(&bytes[12..16]));
            bytes[12..16].copy_from_slice(&new);
            prop_assert_eq!(adjust(before, old, Sum::of(&new)), naive(&bytes));
        }
    }
}
