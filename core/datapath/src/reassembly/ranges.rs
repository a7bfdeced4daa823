//! Which bytes of a datagram have arrived: one range for each fragment, in order.

use arrayvec::ArrayVec;

/// More fragments of one datagram are refused. 64 carry the longest datagram over links of 1,050 bytes and more.
pub const MAX_FRAGMENTS: usize = 64;

/// The ranges never touch the same byte; they are not merged, so that a copy can be told from an overlap.
#[derive(Debug)]
pub(super) struct Ranges(ArrayVec<(u16, u16), MAX_FRAGMENTS>);

/// How a new range stands to those already there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// All its bytes are new.
    New,
    /// Exactly this range is there already.
    Known,
    /// Some of its bytes are there already.
    Overlap,
    /// There is no room for one more.
    Full,
}

impl Ranges {
    pub(super) const fn new() -> Self {
        Self(ArrayVec::new_const())
    }

    /// Adds the bytes from `start` up to, but not including, `end`.
    pub(super) fn add(&mut self, start: u16, end: u16) -> Added {
        let index = self.0.partition_point(|range| range.0 < start);
        let (before, after) = self.0.split_at_checked(index).unwrap_or_default();
        if after.first() == Some(&(start, end)) {
            return Added::Known;
        }
        if before.last().is_some_and(|range| range.1 > start)
            || after.first().is_some_and(|range| range.0 < end)
        {
            return Added::Overlap;
        }
        match self.0.try_insert(index, (start, end)) {
            Ok(()) => Added::New,
            Err(_) => Added::Full,
        }
    }

    /// Where the last range ends.
    pub(super) fn end(&self) -> u16 {
        self.0.last().map_or(0, |range| range.1)
    }

    /// Whether every byte up to the end is there.
    pub(super) fn have_no_hole(&self) -> bool {
        let mut reached = 0;
        self.0.iter().all(|range| core::mem::replace(&mut reached, range.1) == range.0)
    }
}
