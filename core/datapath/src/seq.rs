//! Sequence numbers of an outbound SA (RFC 4303 section 3.3.3, RFC 4302 section 3.3.2; ESN: RFC 4303 section
//! 2.2.1).
//!
//! A number is reserved before a packet is sealed, and sealing consumes the reservation. [`Reserved`] has no
//! public constructor and is neither `Copy` nor `Clone`, so code that uses an unreserved number, or one
//! number twice, does not compile. Reserving happens in order and is cheap; sealing may happen on any core.

/// The highest number without extended sequence numbers.
const LAST_32: u64 = u32::MAX as u64;

/// Allocates the sequence numbers of one SA.
#[derive(Debug)]
pub(crate) struct SeqCounter {
    /// The last allocated number.
    last: u64,
    /// The highest number that may be allocated.
    ceiling: u64,
    /// The highest number that is known to be stored, for keys that survive a restart.
    durable: u64,
}

/// A sequence number that was reserved for one packet.
#[derive(Debug)]
pub(crate) struct Reserved(u64);

/// Why there is no sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// All numbers are used: the counter MUST NOT cycle.
    Exhausted,
    /// The next block of numbers is not stored yet.
    NotDurable,
}

impl SeqCounter {
    /// Allocates the numbers after `last`, of 32 or 64 bits.
    pub(crate) const fn new(last: u64, esn: bool) -> Self {
        Self { last, ceiling: if esn { u64::MAX } else { LAST_32 }, durable: u64::MAX }
    }

    /// Limits allocation to numbers up to `durable`. A higher value allows more numbers; a lower value does
    /// not take back allocated numbers.
    pub(crate) const fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
    }

    /// The last allocated number; 0 if there is none.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Sets the last allocated number. The caller knows that no number above it was used.
    #[cfg(feature = "records")]
    pub(crate) const fn set_last(&mut self, last: u64) {
        self.last = last;
    }

    /// Leaves out the next `count` numbers, or all that are left. Returns whether less than a quarter of all
    /// numbers is left now.
    #[cfg(feature = "records")]
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        self.last = self.last.saturating_add(count).min(self.ceiling);
        self.ceiling.saturating_sub(self.last) < self.ceiling / 4
    }

    /// Allocates the next number.
    #[inline]
    pub(crate) fn reserve(&mut self) -> Result<Reserved, NoNumber> {
        let next = self.last.checked_add(1).filter(|&n| n <= self.ceiling).ok_or(NoNumber::Exhausted)?;
        if next > self.durable {
            return Err(NoNumber::NotDurable);
        }
        self.last = next;
        Ok(Reserved(next))
    }
}

impl Reserved {
    /// The full 64-bit number.
    #[inline]
    pub(crate) const fn number(&self) -> u64 {
        self.0
    }

    /// The lower half, which the packet carries.
    #[inline]
    pub(crate) const fn low(&self) -> u32 {
        self.0 as u32
    }

    /// The upper half, which only the ICV covers, with extended sequence numbers.
    #[inline]
    pub(crate) const fn high(&self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_starts_at_one_and_never_cycles() {
        let mut seq = SeqCounter::new(0, false);
        assert_eq!(seq.reserve().unwrap().number(), 1);
        let mut seq = SeqCounter::new(LAST_32 - 1, false);
        assert_eq!(seq.reserve().unwrap().low(), u32::MAX);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::Exhausted);
        assert_eq!(seq.last(), LAST_32);
        let mut seq = SeqCounter::new(LAST_32, true);
        let after_wrap = seq.reserve().unwrap();
        assert_eq!((after_wrap.high(), after_wrap.low()), (1, 0));
        let mut seq = SeqCounter::new(u64::MAX, true);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::Exhausted);
    }

    #[cfg(feature = "records")]
    #[test]
    fn skipped_numbers_are_never_allocated() {
        let mut seq = SeqCounter::new(10, false);
        assert!(!seq.skip(100));
        assert_eq!(seq.reserve().unwrap().number(), 111);
        assert!(!seq.skip(LAST_32 / 4 * 3 - 110));
        assert!(seq.skip(3));
        // A skip beyond the end leaves no number, and does not begin again.
        for count in [LAST_32, u64::MAX] {
            assert!(seq.skip(count));
            assert_eq!((seq.reserve().unwrap_err(), seq.last()), (NoNumber::Exhausted, LAST_32));
        }
        let mut seq = SeqCounter::new(5, true);
        assert!(!seq.skip(1 << 33));
        assert_eq!(seq.reserve().unwrap().number(), (1 << 33) + 6);
        assert!(seq.skip(u64::MAX));
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::Exhausted);
    }

    #[test]
    fn numbers_that_are_not_durable_are_not_allocated() {
        let mut seq = SeqCounter::new(10, true);
        seq.set_durable(11);
        assert_eq!(seq.reserve().unwrap().number(), 11);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::NotDurable);
        seq.set_durable(12);
        assert_eq!(seq.reserve().unwrap().number(), 12);
    }
}
