//! How many packets may be missing in front of a compressed header.
//!
//! Each header is relative to all of the last 14 headers of its flow. It decompresses correctly if the
//! decompressor knows one of them, that is, if at most [`MAX_MISSING`] headers of the flow are missing since
//! the last one that it knows. The sequence numbers of the SA show how many packets are missing, but not to
//! which flows they belong. If there are more than that, the MSN decides: it shows how many headers of the
//! flow are missing, provided that its bits cannot stand for a larger number as well.

use crate::Profile;

/// Most headers of a flow that may be missing between two others.
pub const MAX_MISSING: u64 = 13;

/// Headers after which it does not matter what the MSN did before them: the largest interval of MSNs that
/// counts here.
const INTERVAL: u32 = 1 << MAX_BITS;
const MAX_BITS: u32 = 8;

/// Most packets of the SA that may be missing between a header of a flow and a later one with `bits` bits of
/// the MSN and this interpretation interval offset.
///
/// The MSN grows by one with each header, and by up to [`most_skipped`] more in [`INTERVAL`] headers. So the
/// interval of the bits contains it, if it is that long.
pub(crate) const fn most_missing(profile: Profile, bits: u32, offset: u32) -> u64 {
    let bits = if bits < MAX_BITS { bits } else { MAX_BITS };
    let forward = (1u32 << bits).saturating_sub(2).saturating_sub(offset);
    let most = forward.saturating_sub(most_skipped(profile)) as u64;
    if most < MAX_MISSING { MAX_MISSING } else { most }
}

/// Sequence numbers that a flow may skip within [`INTERVAL`] headers. Those of RTP and ESP come from the
/// sender of the flow, whose packets may be lost before they are compressed.
const fn most_skipped(profile: Profile) -> u32 {
    match profile {
        Profile::Rtp | Profile::Esp => 32,
        Profile::Udp | Profile::Ip | Profile::Uncompressed => 0,
    }
}

/// Whether at most [`MAX_MISSING`] headers are missing before one that is this step behind the last one.
pub(crate) fn is_within_window(step: Option<u32>) -> bool {
    step.is_some_and(|step| (1..=MAX_MISSING.saturating_add(1)).contains(&step.into()))
}

/// By how much the MSN of a flow grew beyond one for each of the last headers: at least [`INTERVAL`], at most
/// twice as many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// Numbers that were skipped in the current group of headers, and in the one before.
    skipped: [u32; 2],
    /// Headers of the current group.
    headers: u32,
}

impl Steps {
    /// No headers before the next one.
    pub(crate) const NONE: Self = Self { skipped: [0; 2], headers: 0 };

    /// Headers of another flow.
    pub(crate) const UNKNOWN: Self = Self { skipped: [u32::MAX; 2], headers: 0 };

    /// Notes a header that is this step behind the one before it; `None` if its MSN is smaller.
    pub(crate) const fn note(&mut self, step: Option<u32>) {
        if self.headers == INTERVAL {
            let [current, _] = self.skipped;
            *self = Self { skipped: [0, current], headers: 0 };
        }
        self.headers = self.headers.saturating_add(1);
        // A smaller number than before, or the same, does not count the headers.
        let skipped = match step {
            None | Some(0) => u32::MAX,
            Some(step) => step.saturating_sub(1),
        };
        let [current, former] = self.skipped;
        self.skipped = [current.saturating_add(skipped), former];
    }

    /// Whether the MSN counts the headers, but for the numbers that a flow may skip.
    pub(crate) const fn count_headers(&self, profile: Profile) -> bool {
        let [current, former] = self.skipped;
        current.saturating_add(former) <= most_skipped(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bits_tolerate_more_missing_packets() {
        for (profile, expected) in [
            (Profile::Udp, [13, 29, 61, 125, 253, 253]),
            (Profile::Rtp, [13, 13, 29, 93, 221, 221]),
            (Profile::Esp, [13, 13, 29, 93, 221, 221]),
        ] {
            let most = [4, 5, 6, 7, 8, 16].map(|bits| most_missing(profile, bits, 1));
            assert_eq!(most, expected, "{profile:?}");
        }
        // The offset for much reordering leaves less.
        assert_eq!(most_missing(Profile::Udp, 4, 11), MAX_MISSING);
        assert_eq!(most_missing(Profile::Udp, 6, 47), 15);
    }

    fn run(steps: &mut Steps, headers: u32) {
        (0..headers).for_each(|_| steps.note(Some(1)));
    }

    #[test]
    fn skipped_numbers_count_for_an_interval() {
        let mut steps = Steps::NONE;
        run(&mut steps, 100);
        assert!(steps.count_headers(Profile::Udp) && steps.count_headers(Profile::Rtp));
        steps.note(Some(33));
        assert!(!steps.count_headers(Profile::Udp) && steps.count_headers(Profile::Rtp));
        steps.note(Some(2));
        assert!(!steps.count_headers(Profile::Rtp));
        run(&mut steps, INTERVAL);
        assert!(!steps.count_headers(Profile::Rtp));
        run(&mut steps, INTERVAL);
        assert!(steps.count_headers(Profile::Udp));
    }

    #[test]
    fn numbers_that_do_not_grow_and_other_flows_are_not_counted() {
        for step in [None, Some(0), Some(60_000)] {
            let mut steps = Steps::NONE;
            steps.note(step);
            assert!(!steps.count_headers(Profile::Rtp), "{step:?}");
        }
        let mut steps = Steps::UNKNOWN;
        run(&mut steps, INTERVAL);
        assert!(!steps.count_headers(Profile::Rtp));
        run(&mut steps, INTERVAL + 1);
        assert!(steps.count_headers(Profile::Rtp));
    }
}
