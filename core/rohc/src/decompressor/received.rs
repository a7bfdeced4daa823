//! Which packets of the SA have arrived.

/// Sequence numbers below the highest that are remembered one by one.
const REMEMBERED: u64 = 128;

/// When a packet has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveOrder {
    /// After all packets so far.
    InOrder,
    /// After a packet with a higher sequence number.
    Late,
    /// Not for the first time.
    Repeated,
}

/// The sequence numbers that have arrived.
#[derive(Debug)]
pub(super) struct ReceivedPackets {
    highest: Option<u64>,
    /// Bit `n` is set if the packet `n` below the highest has arrived. Numbers before the first packet count
    /// as arrived.
    bits: u128,
    /// Packets that have not arrived while they were remembered.
    lost: u64,
}

impl ReceivedPackets {
    pub(super) const fn new() -> Self {
        Self { highest: None, bits: u128::MAX, lost: 0 }
    }

    /// Packets that were lost so far, without those that are remembered.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Notes the arrival of a packet.
    pub(super) fn note(&mut self, sequence: u64) -> ReceiveOrder {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            return ReceiveOrder::InOrder;
        };
        match sequence.checked_sub(highest) {
            None | Some(0) => {
                let Some(bit) = bit(highest.saturating_sub(sequence)) else { return ReceiveOrder::Late };
                let was_set = self.bits & bit != 0;
                self.bits |= bit;
                if was_set { ReceiveOrder::Repeated } else { ReceiveOrder::Late }
            }
            Some(step) => {
                let forgotten = step.min(REMEMBERED);
                let oldest = self.bits & !range(0, REMEMBERED.saturating_sub(forgotten));
                let missing =
                    u64::from(oldest.count_zeros()).saturating_sub(REMEMBERED.saturating_sub(forgotten));
                let skipped = step.saturating_sub(forgotten);
                self.lost = self.lost.saturating_add(missing).saturating_add(skipped);
                let shift = u32::try_from(step).unwrap_or(u32::MAX);
                self.bits = self.bits.checked_shl(shift).unwrap_or(0) | 1;
                self.highest = Some(sequence);
                ReceiveOrder::InOrder
            }
        }
    }

    /// Packets between two others that have not arrived, at least. `lost` is the number of lost packets when
    /// the first of them arrived.
    pub(super) fn missing_between(&self, first: u64, last: u64, lost: u64) -> u64 {
        let highest = self.highest.unwrap_or(last);
        // Numbers below the highest: from the packet before `last` to the one behind `first`.
        let (from, to) = (highest.saturating_sub(last).saturating_add(1), highest.saturating_sub(first));
        let missing = range(from, to) & !self.bits;
        let forgotten = if to > REMEMBERED { self.lost.saturating_sub(lost) } else { 0 };
        u64::from(missing.count_ones()).saturating_add(forgotten)
    }
}

/// Bit of the packet `n` below the highest, if it is remembered.
fn bit(n: u64) -> Option<u128> {
    u32::try_from(n).ok().and_then(|n| 1u128.checked_shl(n))
}

/// Bits from `from` to below `to`.
fn range(from: u64, to: u64) -> u128 {
    let below = |n: u64| bit(n).map_or(u128::MAX, |bit| bit.wrapping_sub(1));
    below(to) & !below(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn packets_are_in_order_late_or_repeated() {
        let mut received = ReceivedPackets::new();
        let expected = [
            (10, ReceiveOrder::InOrder),
            (13, ReceiveOrder::InOrder),
            (11, ReceiveOrder::Late),
            (11, ReceiveOrder::Repeated),
            (13, ReceiveOrder::Repeated),
            (400, ReceiveOrder::InOrder),
            (12, ReceiveOrder::Late),
            (273, ReceiveOrder::Late),
            (273, ReceiveOrder::Repeated),
        ];
        for (sequence, order) in expected {
            assert_eq!(received.note(sequence), order, "{sequence}");
        }
    }

    #[test]
    fn missing_packets_are_never_undercounted_and_exact_while_remembered() {
        let mut state = 1u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for _ in 0..200 {
            let (mut received, mut seen, mut highest) = (ReceivedPackets::new(), BTreeSet::new(), 1_000);
            received.note(highest);
            seen.insert(highest);
            let (first, lost) = (highest, received.lost());
            for _ in 0..60 {
                let sequence = if random(4) == 0 { highest - random(20) } else { highest + random(9) };
                received.note(sequence);
                seen.insert(sequence);
                highest = highest.max(sequence);
                let missing = (first + 1..highest).filter(|number| !seen.contains(number)).count() as u64;
                let counted = received.missing_between(first, highest, lost);
                assert!(counted >= missing, "{counted} of {missing}");
                assert!(highest - first > REMEMBERED || counted == missing, "{counted} of {missing}");
            }
        }
    }
}
