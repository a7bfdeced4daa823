//! Sequence numbers SQN (3GPP TS 33.102 annex C): SEQ in the upper 43 bits, the index IND in the lower five.
//!
//! The home network counts with each vector. The USIM accepts a SEQ that is higher than the last one with the
//! same IND, so that vectors which several servers have requested may be used out of order.

use super::milenage::Sqn;

/// Number of bits of IND (annex C.3.2).
const IND_BITS: u32 = 5;
/// Number of values of IND.
const IND_COUNT: usize = 1 << IND_BITS;
/// Highest SQN.
const MAX_SQN: Sqn = (1 << 48) - 1;
/// Highest SEQ.
const MAX_SEQ: u64 = MAX_SQN >> IND_BITS;
/// How far SEQ may be ahead of the highest one (annex C.2.1, parameter delta), so that one wrong vector
/// cannot use the numbers up.
const MAX_STEP: u64 = 1 << 28;

/// Sequence number of the home network: that of the last vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkSequence(Sqn);

impl NetworkSequence {
    /// Continues behind a stored number. Its upper 16 bits are ignored.
    pub const fn new(sqn: u64) -> Self {
        Self(sqn & MAX_SQN)
    }

    /// The number to store.
    pub const fn sqn(self) -> u64 {
        self.0
    }

    /// Returns the number of a new vector: the next SEQ with the next IND (annex C.1.1.1 and C.1.2); `None`
    /// if all are used.
    pub(super) fn advance(&mut self) -> Option<Sqn> {
        let seq = (self.0 >> IND_BITS).checked_add(1).filter(|seq| *seq <= MAX_SEQ)?;
        let index = self.0.wrapping_add(1) & IND_MASK;
        self.0 = seq << IND_BITS | index;
        Some(self.0)
    }

    /// Continues behind the number of the USIM, which it has proved (annex C.1.1 and section 6.3.5).
    pub(super) const fn resynchronise(&mut self, sqn: Sqn) {
        self.0 = sqn & MAX_SQN;
    }
}

const IND_MASK: Sqn = IND_COUNT as Sqn - 1;

/// Sequence numbers of the USIM: the highest accepted SEQ for each IND (annex C.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsimSequence([u64; IND_COUNT]);

impl UsimSequence {
    /// No vector was accepted.
    pub const NEW: Self = Self([0; IND_COUNT]);

    /// Continues with stored numbers; `None` if one is no SEQ.
    pub fn new(seqs: [u64; IND_COUNT]) -> Option<Self> {
        seqs.iter().all(|seq| *seq <= MAX_SEQ).then_some(Self(seqs))
    }

    /// The numbers to store, in the order of IND.
    pub const fn seqs(&self) -> &[u64; IND_COUNT] {
        &self.0
    }

    /// Accepts the number of a vector whose proof was verified, or returns the number for resynchronisation:
    /// the highest accepted one (annex C.2.1).
    pub(super) fn accept(&mut self, sqn: Sqn) -> Result<(), Sqn> {
        let highest = self.highest();
        let (seq, index) = (sqn >> IND_BITS, usize::try_from(sqn & IND_MASK).unwrap_or_default());
        let is_near = seq.saturating_sub(highest >> IND_BITS) <= MAX_STEP;
        match self.0.get_mut(index).filter(|last| seq > **last && is_near) {
            Some(last) => {
                *last = seq;
                Ok(())
            }
            None => Err(highest),
        }
    }

    /// The highest accepted SEQ with its IND.
    fn highest(&self) -> Sqn {
        let numbers = self.0.iter().zip(0..).map(|(seq, index)| seq << IND_BITS | index);
        // While no vector was accepted, the number is 0.
        numbers.max().filter(|sqn| *sqn > IND_MASK).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// SQN of SEQ and IND.
    fn sqn(seq: u64, index: u64) -> Sqn {
        seq << IND_BITS | index
    }

    #[test]
    fn a_home_network_counts_both_parts() {
        let mut network = NetworkSequence::default();
        assert_eq!(network.advance(), Some(sqn(1, 1)));
        assert_eq!(network.advance(), Some(sqn(2, 2)));
        network = NetworkSequence::new(sqn(9, 31));
        assert_eq!(network.advance(), Some(sqn(10, 0)));
        network = NetworkSequence::new(MAX_SQN);
        assert_eq!(network.advance(), None);
    }

    #[test]
    fn a_number_is_accepted_once_and_an_older_one_by_its_index() {
        let mut usim = UsimSequence::NEW;
        assert_eq!(usim.accept(sqn(5, 1)), Ok(()));
        assert_eq!(usim.accept(sqn(5, 1)), Err(sqn(5, 1)));
        assert_eq!(usim.accept(sqn(4, 1)), Err(sqn(5, 1)));
        assert_eq!(usim.accept(sqn(4, 2)), Ok(()), "older, but with an index of its own");
        assert_eq!(usim.accept(sqn(6, 2)), Ok(()));
        assert_eq!(usim.accept(0), Err(sqn(6, 2)));
    }

    #[test]
    fn a_number_far_ahead_is_not_accepted() {
        let mut usim = UsimSequence::NEW;
        assert_eq!(usim.accept(sqn(MAX_STEP + 1, 3)), Err(0));
        assert_eq!(usim.accept(sqn(MAX_STEP, 3)), Ok(()));
        assert_eq!(usim.accept(MAX_SQN), Err(sqn(MAX_STEP, 3)));
    }

    proptest! {
        /// Whatever both sides have stored, one resynchronisation is enough.
        #[test]
        fn a_resynchronised_home_network_is_accepted(
            network in 0..=MAX_SQN,
            seqs in proptest::collection::vec(0..MAX_SEQ - 1, IND_COUNT),
        ) {
            let mut network = NetworkSequence::new(network);
            let mut usim = UsimSequence::new(seqs.try_into().unwrap()).unwrap();
            if let Some(Err(sqn)) = network.advance().map(|sqn| usim.accept(sqn)) {
                network.resynchronise(sqn);
                prop_assert_eq!(usim.accept(network.advance().unwrap()), Ok(()));
            }
        }
    }
}
