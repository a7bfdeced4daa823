//! TCP (RFC 9293), as much of it as IPsec touches: the largest segment that a SYN announces.
//!
//! Whoever adds headers below TCP has to see to it that segments still fit the path. Where the sender of a segment cannot be
//! told by ICMP, the option in the SYN is the place to say it.

use crate::checksum::{Sum, adjust};

/// Length of the header without options.
pub const HEADER_LEN: usize = 20;

const SYN: u8 = 0x02;
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;

/// Kinds of options (RFC 9293 section 3.2).
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: usize = 4;

/// Whether the segment begins a connection or answers one that does.
pub fn is_syn(segment: &[u8]) -> bool {
    segment.len() >= HEADER_LEN && segment.get(FLAGS_AT).is_some_and(|flags| flags & SYN != 0)
}

/// Lowers the Maximum Segment Size option of a SYN to `most` bytes and mends the checksum; `true` if that changed anything.
///
/// A SYN without the option is left alone: it means 536 bytes, or 1,220 over IPv6 (RFC 9293 section 3.7.1). So is what is no
/// SYN, or malformed.
pub fn lower_mss(segment: &mut [u8], most: u16) -> bool {
    let Some(at) = find_mss(segment) else { return false };
    let Some(field) = segment.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) else {
        return false;
    };
    let old = *field;
    if u16::from_be_bytes(old) <= most {
        return false;
    }
    *field = most.to_be_bytes();
    let new = *field;
    // The checksum sums words from the segment's start: an option at an odd place counts with its bytes swapped.
    let word = |[high, low]: [u8; 2]| if at % 2 == 0 { [high, low] } else { [low, high] };
    if let Some(sum) = segment.get_mut(CHECKSUM_AT..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        let changed = adjust(u16::from_be_bytes(*sum), Sum::of(&word(old)), Sum::of(&word(new)));
        *sum = changed.to_be_bytes();
    }
    true
}

/// Where the value of the option stands.
fn find_mss(segment: &[u8]) -> Option<usize> {
    if !is_syn(segment) {
        return None;
    }
    let header = usize::from(segment.get(12)? >> 4).checked_mul(4)?;
    let header = segment.get(..header)?;
    let mut at = HEADER_LEN;
    // Each round passes a byte at least, and there are 40 at most.
    while let Some(kind) = header.get(at) {
        let len = match *kind {
            END => return None,
            NO_OPERATION => 1,
            _ => usize::from(*header.get(at.checked_add(1)?)?),
        };
        if *kind == MSS && len == MSS_LEN {
            // The whole option lies inside the header.
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

    /// A segment with these flags and options, and a right checksum.
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
    fn a_syn_is_lowered_wherever_its_option_stands() {
        for before in
            [&[][..], &[1], &[1, 1], &[1, 1, 1], &[3, 3, 7], &[8, 10, 0, 0, 0, 1, 0, 0, 0, 0], &[4, 2]]
        {
            for flags in [0x02, 0x12, 0xC2] {
                let mut syn = segment(flags, &[before, &[2, 4, 0x05, 0xB4]].concat());
                assert!(lower_mss(&mut syn, 1300), "{before:?}");
                let at = HEADER_LEN + before.len() + 2;
                assert_eq!(syn[at..at + 2], 1300u16.to_be_bytes());
                assert!(sum(&syn).is_valid(), "{before:?}");
                assert!(!lower_mss(&mut syn, 1300) && !lower_mss(&mut syn, 1400), "it is never raised");
            }
        }
    }

    #[test]
    fn what_is_no_syn_with_the_option_stays_as_it_is() {
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
            assert!(!lower_mss(&mut same, 100), "{other:?}");
            assert_eq!(same, other);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), most: u16) {
            if let Some(flags) = bytes.get_mut(FLAGS_AT) {
                *flags |= SYN;
            }
            let before = bytes.clone();
            let changed = lower_mss(&mut bytes, most);
            prop_assert_eq!(changed, bytes != before);
        }
    }
}
