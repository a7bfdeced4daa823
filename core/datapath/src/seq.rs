//! Sequence numbers of an outbound SA (RFC 4303 section 3.3.3, RFC 4302 section 3.3.2; ESN: RFC 4303 section 2.2.1).
//!
//! A number is reserved before a packet is sealed, and sealing consumes the reservation: [`Reserved`] has no public
//! constructor and is neither `Copy` nor `Clone`, so a number that was not reserved, or one used twice, does not compile.
//! Reserving is in order and cheap; sealing may then happen on any core.

/// The highest number without extended sequence numbers.
const LAST_32: u64 = u32::MAX as u64;

/// Hands out the numbers of one SA.
#[derive(Debug)]
pub(crate) struct SeqCounter {
    /// The last number handed out.
    last: u64,
    /// The last number that may be handed out.
    ceiling: u64,
    /// The last number that is known to be written down, for keys that outlive a restart.
    durable: u64,
}

/// A sequence number that was reserved for one packet.
#[derive(Debug)]
pub(crate) struct Reserved(u64);

/// Why there is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoNumber {
    /// All are used: "MUST NOT" send with a number that has cycled.
    Exhausted,
    /// The next block has not been written down yet.
    NotDurable,
}

impl SeqCounter {
    /// The numbers after `last`, 32 or 64 bits of them.
    pub(crate) const fn new(last: u64, esn: bool) -> Self {
        Self { last, ceiling: if esn { u64::MAX } else { LAST_32 }, durable: u64::MAX }
    }

    /// From now on only numbers up to `durable` are handed out; a higher one releases more, a lower one changes nothing
    /// once numbers above it are out.
    pub(crate) const fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
    }

    /// The last number handed out; 0 if none was.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// The next number.
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

    /// What the packet carries.
    #[inline]
    pub(crate) const fn low(&self) -> u32 {
        self.0 as u32
    }

    /// What only the ICV covers with extended sequence numbers.
    #[inline]
    pub(crate) const fn high(&self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_one_and_stops_before_it_cycles() {
        let mut seq = SeqCounter::new(0, false);
        assert_eq!(seq.reserve().unwrap().number(), 1);
        let mut seq = SeqCounter::new(LAST_32 - 1, false);
        assert_eq!(seq.reserve().unwrap().low(), u32::MAX);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::Exhausted);
        assert_eq!(seq.last(), LAST_32);
        let mut seq = SeqCounter::new(LAST_32, true);
        let first_of_second_lap = seq.reserve().unwrap();
        assert_eq!((first_of_second_lap.high(), first_of_second_lap.low()), (1, 0));
        let mut seq = SeqCounter::new(u64::MAX, true);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::Exhausted);
    }

    #[test]
    fn numbers_that_are_not_durable_are_not_handed_out() {
        let mut seq = SeqCounter::new(10, true);
        seq.set_durable(11);
        assert_eq!(seq.reserve().unwrap().number(), 11);
        assert_eq!(seq.reserve().unwrap_err(), NoNumber::NotDurable);
        seq.set_durable(12);
        assert_eq!(seq.reserve().unwrap().number(), 12);
    }
}
