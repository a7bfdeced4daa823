//! Reserves of sequence numbers: which numbers an owner of an SA may use.
//!
//! A record names the last number of a reserve, and the owner that has written it, by its takeover count. A
//! later owner has the next block of numbers behind the reserve, one more block for each owner in between.
//! So two owners never have the same numbers, and no owner has to write anything before it uses its own.

use core::time::Duration;

/// Numbers to send with that an owner has at first, and the smallest extension of a reserve.
pub const SENT_BLOCK: u64 = 1 << 17;
/// The same for numbers to receive. The rate of a peer is not known in advance, and unused numbers cost
/// nothing: the next owner rekeys the SA.
pub const RECEIVED_BLOCK: u64 = 1 << 20;
/// An extension lasts for this long at the present rate.
const AHEAD: u64 = 4;
/// The highest number without extended sequence numbers.
const LAST_32: u64 = u32::MAX as u64;

/// Whose numbers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberUse {
    Sent,
    Received,
}

impl NumberUse {
    const fn block(self) -> u64 {
        match self {
            Self::Sent => SENT_BLOCK,
            Self::Received => RECEIVED_BLOCK,
        }
    }
}

/// Numbers that an owner may use: those above `after`, up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) after: u64,
    pub(crate) until: u64,
}

impl Reserve {
    /// The numbers of an SA whose keys are new: no other owner knows them before its record is written.
    pub(crate) const fn first(used_as: NumberUse) -> Self {
        Self { after: 0, until: used_as.block() }
    }

    /// The numbers of owner `owner` of an SA whose record, with the end `until` of the reserve, was written
    /// by `writer`. `None` unless the writer was an earlier owner.
    pub(crate) fn of_owner(
        used_as: NumberUse,
        until: u64,
        writer: u64,
        owner: u64,
        esn: bool,
    ) -> Option<Self> {
        let between = owner.checked_sub(writer)?.checked_sub(1)?;
        let highest = if esn { u64::MAX } else { LAST_32 };
        let after = until.saturating_add(between.saturating_mul(used_as.block())).min(highest);
        Some(Self { after, until: after.saturating_add(used_as.block()).min(highest) })
    }
}

/// A reserve that grows ahead of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowingReserve {
    used_as: NumberUse,
    /// Last number whose record is written, or that belongs to this owner without one.
    written: u64,
    /// Last number that the next record names.
    requested: u64,
    /// Last number that was used at the last call of [`Self::grow`].
    used: u64,
    /// Whether the next change of `used` says nothing about the rate: the peer has used other numbers before.
    has_unknown_start: bool,
    esn: bool,
}

impl GrowingReserve {
    pub(crate) const fn new(used_as: NumberUse, reserve: Reserve, esn: bool) -> Self {
        let Reserve { after, until } = reserve;
        Self { used_as, written: until, requested: until, used: after, has_unknown_start: false, esn }
    }

    /// The reserve of received numbers of an SA whose peer leaves out up to `skip` numbers.
    pub(crate) const fn restored(received: Reserve, skip: u64, esn: bool) -> Self {
        let mut reserve = Self::new(NumberUse::Received, received, esn);
        reserve.requested = reserve.limited(received.until.saturating_add(skip));
        reserve.has_unknown_start = true;
        reserve
    }

    const fn limited(&self, number: u64) -> u64 {
        if self.esn || number < LAST_32 { number } else { LAST_32 }
    }

    /// Last number that may be used.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Whether less than a quarter of a block is left, although more was requested.
    pub(crate) fn is_low(&self) -> bool {
        self.written < self.requested && self.written.saturating_sub(self.used) < self.used_as.block() / 4
    }

    /// Last number that a record has to name.
    pub(crate) const fn requested(&self) -> u64 {
        self.requested
    }

    /// Notes the last used number, `elapsed` after the last call. Returns whether the reserve has grown and
    /// its record is to be written.
    pub(crate) fn grow(&mut self, used: u64, elapsed: Duration) -> bool {
        let has_jumped = used > self.used && core::mem::take(&mut self.has_unknown_start);
        let count = if has_jumped { 0 } else { used.saturating_sub(self.used) };
        self.used = used.max(self.used);
        let ahead = rate(count, elapsed).saturating_mul(AHEAD).max(self.used_as.block());
        let is_low = self.requested.saturating_sub(self.used) <= ahead / 2;
        let wanted = self.limited(self.used.saturating_add(ahead));
        let grows = is_low && wanted > self.requested;
        if grows {
            self.requested = wanted;
        }
        grows
    }

    /// Notes that numbers up to `used` were left out. The next record names at least these and one block.
    pub(crate) fn skip_to(&mut self, used: u64) {
        if used > self.requested {
            self.used = used;
            self.requested = self.limited(used.saturating_add(self.used_as.block()));
        }
    }

    /// Notes that a record with this last number is written.
    pub(crate) fn note_written(&mut self, until: u64) {
        self.written = self.written.max(until);
    }
}

/// Numbers per second, rounded up.
fn rate(count: u64, elapsed: Duration) -> u64 {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000).div_ceil(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use NumberUse::{Received, Sent};

    #[test]
    fn no_two_owners_have_the_same_numbers() {
        // Owner 3 has written. Owners 4 to 9 take over one after another, and each has used all its numbers.
        for used_as in [Sent, Received] {
            let of_owner = |owner| Reserve::of_owner(used_as, 1_000, 3, owner, true);
            let reserves: Vec<Reserve> = (4..10).map(|owner| of_owner(owner).unwrap()).collect();
            assert_eq!(reserves[0], Reserve { after: 1_000, until: 1_000 + used_as.block() });
            for pair in reserves.windows(2) {
                assert_eq!(pair[0].until, pair[1].after);
            }
            assert_eq!((of_owner(3), of_owner(2)), (None, None));
        }
    }

    #[test]
    fn numbers_without_esn_end_at_32_bits() {
        let end = u64::from(u32::MAX);
        let last = Reserve::of_owner(Sent, end - 5, 1, 2, false).unwrap();
        assert_eq!(last, Reserve { after: end - 5, until: end });
        assert_eq!(Reserve::of_owner(Sent, end, 1, 2, false), Some(Reserve { after: end, until: end }));
        assert_eq!(Reserve::of_owner(Sent, u64::MAX, 1, u64::MAX, true).unwrap().until, u64::MAX);
        let mut reserve = GrowingReserve::new(Sent, last, false);
        assert!(!reserve.grow(end - 1, Duration::from_secs(1)));
        assert_eq!(reserve.requested(), end);
    }

    #[test]
    fn numbers_that_a_peer_leaves_out_are_reserved_and_are_no_rate() {
        let received = Reserve { after: 500, until: 500 + RECEIVED_BLOCK };
        let mut reserve = GrowingReserve::restored(received, 7 * RECEIVED_BLOCK, true);
        let wanted = received.until + 7 * RECEIVED_BLOCK;
        assert_eq!((reserve.written(), reserve.requested()), (received.until, wanted));
        // The first packet has a much higher number than the last one of the former owner.
        let jumped = 500 + 7 * RECEIVED_BLOCK;
        for used in [500, jumped, jumped + 10] {
            assert!(!reserve.grow(used, Duration::from_millis(250)));
        }
        assert_eq!(reserve.requested(), wanted);
        // From then on, numbers are a rate.
        assert!(reserve.grow(jumped + RECEIVED_BLOCK, Duration::from_millis(250)));
        assert!(reserve.requested() > jumped + 10 * RECEIVED_BLOCK);
        let near_end = GrowingReserve::restored(received, LAST_32, false);
        assert_eq!(near_end.requested(), LAST_32);
    }

    #[test]
    fn the_next_record_names_numbers_that_were_left_out() {
        let mut reserve = GrowingReserve::new(Sent, Reserve::first(Sent), false);
        reserve.skip_to(SENT_BLOCK);
        assert_eq!(reserve.requested(), SENT_BLOCK);
        reserve.skip_to(5 * SENT_BLOCK);
        assert_eq!((reserve.written(), reserve.requested()), (SENT_BLOCK, 6 * SENT_BLOCK));
        assert!(!reserve.grow(5 * SENT_BLOCK, Duration::from_millis(1)), "no rate");
        reserve.skip_to(LAST_32);
        assert_eq!(reserve.requested(), LAST_32);
    }

    #[test]
    fn a_reserve_grows_before_it_is_used_up() {
        let mut reserve = GrowingReserve::new(Sent, Reserve::first(Sent), true);
        let second = Duration::from_secs(1);
        assert!(!reserve.grow(100, second));
        assert!(reserve.grow(SENT_BLOCK / 2, 10 * second));
        let slow = reserve.requested();
        assert_eq!(slow, SENT_BLOCK / 2 + SENT_BLOCK);
        // Until the record is written, only the former numbers may be used.
        assert_eq!(reserve.written(), SENT_BLOCK);
        reserve.note_written(slow);
        assert_eq!(reserve.written(), slow);
        // A million packets in a second: the next numbers last for four seconds.
        assert!(reserve.grow(1_000_000, second));
        assert!(reserve.requested() >= 4_700_000);
    }
}
