//! TCP (RFC 9293), as far as IPsec changes it: the maximum segment size in SYN segments.
//!
//! A gateway that adds headers below TCP must keep segments within the path MTU. If ICMP cannot reach the
//! sender, the gateway lowers the option in the SYN.

use crate::checksum::{Sum, adjust};

/// Length of the header without options, in bytes.
pub const HEADER_LEN: usize = 20;

const SYN: u8 = 0x02;
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;

/// Option kinds (RFC 9293 section 3.2).
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: usize = 4;

/// Whether the segment is a SYN or SYN-ACK.
pub fn is_syn(segment: &[u8]) -> bool {
    segment.len() >= HEADER_LEN && segment.get(FLAGS_AT).is_some_and(|flags| flags & SYN != 0)
}

/// Lowers the Maximum Segment Size option of a SYN to `max_mss` bytes and updates the checksum. Returns
/// whether the segment changed.
///
/// A SYN without the option is left unchanged: it means 536 bytes, or 1,220 over IPv6 (RFC 9293 section
/// 3.7.1). Other segments and malformed ones are left unchanged as well.
pub fn clamp_mss(segment: &mut [u8], max_mss: u16) -> bool {
    let Some(at) = find_mss(segment) else { return false };
    let Some(field) = segment.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) else {
        return false;
    };
    let old = *field;
    if u16::from_be_bytes(old) <= max_mss {
        return false;
    }
    *field = max_mss.to_be_bytes();
    let new = *field;
    // The checksum sums words from the start of the segment: an option at an odd offset counts with its bytes
    // swapped.
    let word = |[high, low]: [u8; 2]| if at % 2 == 0 { [high, low] } else { [low, high] };
    if let Some(sum) = segment.get_mut(CHECKSUM_AT..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        let changed = adjust(u16::from_be_bytes(*sum), Sum::of(&word(old)), Sum::of(&word(new)));
        *sum = changed.to_be_bytes();
    }
    true
}

/// Returns the offset of the option's value.
fn find_mss(segment: &[u8]) -> Option<usize> {
    if !is_syn(segment) {
        return None;
    }
    let header = usize::from(segment.get(12)? >> 4).checked_mul(4)?;
    let header = segment.get(..header)?;
    let mut at = HEADER_LEN;
    // Each iteration advances by at least one byte, and options have at most 40 bytes.
    while let Some(kind) = header.get(at) {
        let len = match *kind {
            END => return None,
            NO_OPERATION => 1,
            _ => usize::from(*header.get(at.checked_add(1)?)?),
        };
        if *kind == MSS && len == MSS_LEN {
            // The whole option must be inside the header.
            return header.get(at..at.checked_add(MSS_LEN)?).and(at.checked_add(2));
        }
        if *kind != NO_OPERATION && len < 2 {
            return None;
        }
        at = at.checked_add(len)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_v4;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn sum(segment: &[u8]) -> Sum {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        pseudo_v4(a, b, 6, segment.len() as u16).add_bytes(segment)
    }

    /// Builds a segment with these flags and options, and a valid checksum.
    fn segment(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let header = (HEADER_LEN + options.len()) as u8 / 4;
        let mut segment =
            std::vec![0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, header << 4, flags, 0xFF, 0xFF, 0, 0, 0, 0];
        segment.extend(options);
        let checksum = sum(&segment).finish();
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        segment
    }

    #[test]
    fn the_mss_is_lowered_at_any_offset() {
        for before in
            [&[][..], &[1], &[1, 1], &[1, 1, 1], &[3, 3, 7], &[8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &[4, 2]]
        {
            for flags in [0x02, 0x12, 0xC2] {
                let mut syn = segment(flags, &[before, &[2, 4, 0x05, 0xB4]].concat());
                assert!(clamp_mss(&mut syn, 1300), "{before:?}");
                let at = HEADER_LEN + before.len() + 2;
                assert_eq!(syn[at..at + 2], 1300u16.to_be_bytes());
                assert!(sum(&syn).is_valid(), "{before:?}");
                assert!(!clamp_mss(&mut syn, 1300) && !clamp_mss(&mut syn, 1400), "the MSS must not rise");
            }
        }
    }

    #[test]
    fn other_segments_are_left_unchanged() {
        let option = [2, 4, 0x05, 0xB4];
        let others = [
            segment(0x10, &option),
            segment(0x04, &option),
            segment(0x02, &[]),
            segment(0x02, &[0, 2, 4, 5]),
            segment(0x02, &[2, 3, 5, 0]),
            segment(0x02, &[2, 6, 0x05, 0xB4, 0, 0]),
            segment(0x02, &[9, 0, 2, 4, 5, 0xB4]),
            segment(0x02, &[9, 1, 2, 4, 5, 0xB4]),
            segment(0x02, &[9, 200, 2, 4, 5, 0xB4]),
            segment(0x02, &option)[..22].to_vec(),
            std::vec![0; 19],
        ];
        for other in others {
            let mut same = other.clone();
            assert!(!clamp_mss(&mut same, 100), "{other:?}");
            assert_eq!(same, other);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), max_mss: u16) {
            if let Some(flags) = bytes.get_mut(FLAGS_AT) {
                *flags |= SYN;
            }
            let before = bytes.clone();
            let changed = clamp_mss(&mut bytes, max_mss);
            prop_assert_eq!(changed, bytes != before);
        }
    }
}
