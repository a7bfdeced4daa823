//! Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queueing Using Deficit Round Robin", 1995).
//!
//! Each member has credit in bytes. A turn gives it its quantum; it is served while it has credit, and what it takes may put
//! it into debt, which the next turns pay. So an item may be larger than a quantum, and nobody looks at an item before its
//! turn. Debt stays when a member leaves: otherwise one that always has a single large item would get it for a quantum.
//!
//! Between two members that both always have work, the bytes served for each unit of quantum differ over any time by at most three
//! quanta and two items. The work is constant for each quantum of bytes served.

use alloc::boxed::Box;

/// The members that have work, or had some when they were last looked at, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Round {
    turns: Box<[Turn]>,
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Debug)]
struct Turn {
    quantum: u32,
    /// Bytes; below zero it is debt.
    credit: i64,
    /// Whether it has a place in the round.
    is_in: bool,
    next: Option<u32>,
}

impl Round {
    /// Members are numbered from 0. A quantum of 0 counts as 1: every member has a turn some time.
    pub(crate) fn new(quanta: impl Iterator<Item = u32>) -> Self {
        let turn = |quantum: u32| Turn { quantum: quantum.max(1), credit: 0, is_in: false, next: None };
        Self { turns: quanta.map(turn).collect(), first: None, last: None }
    }

    /// Gives `member`, which has work now, a place at the end, unless it has one.
    #[inline]
    pub(crate) fn enter(&mut self, member: u32) {
        let Some(turn) = self.turns.get_mut(member as usize).filter(|turn| !turn.is_in) else { return };
        turn.is_in = true;
        turn.credit = turn.credit.min(0).saturating_add(turn.quantum.into());
        self.append(member);
    }

    /// Who is to be served now; `None` if nobody has work. Members without work lose their place.
    #[inline]
    pub(crate) fn next(&mut self, has_work: impl Fn(u32) -> bool) -> Option<u32> {
        loop {
            let first = self.first?;
            let turn = self.turns.get_mut(first as usize)?;
            let has_work = has_work(first);
            if has_work && turn.credit > 0 {
                return Some(first);
            }
            self.first = turn.next.take();
            if has_work {
                turn.credit = turn.credit.saturating_add(turn.quantum.into());
                self.append(first);
            } else {
                turn.is_in = false;
            }
        }
    }

    /// Takes what `member` was served from its credit.
    #[inline]
    pub(crate) fn charge(&mut self, member: u32, bytes: u32) {
        if let Some(turn) = self.turns.get_mut(member as usize) {
            turn.credit = turn.credit.saturating_sub(bytes.into());
        }
    }

    #[inline]
    fn append(&mut self, member: u32) {
        let last = self.last.filter(|_| self.first.is_some());
        match last.and_then(|last| self.turns.get_mut(last as usize)) {
            Some(last) => last.next = Some(member),
            None => self.first = Some(member),
        }
        self.last = Some(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn nobody_without_work_is_served() {
        let mut round = Round::new([100, 100].into_iter());
        assert_eq!(round.next(|_| true), None);
        round.enter(1);
        assert_eq!(round.next(|_| false), None);
        assert_eq!(round.next(|_| true), None, "it lost its place");
        round.enter(1);
        round.enter(1);
        assert_eq!(round.next(|_| true), Some(1));
        assert_eq!(round.next(|member| member == 0), None);
    }

    #[test]
    fn debt_stays_when_a_member_leaves_and_credit_does_not() {
        let mut round = Round::new([100, 100].into_iter());
        // Always one item of 1000 bytes, against one that always has small ones.
        let mut served = [0u32; 2];
        for _ in 0..10_000 {
            round.enter(0);
            round.enter(1);
            let member = round.next(|_| true).unwrap();
            let bytes = [1000, 10][member as usize];
            round.charge(member, bytes);
            served[member as usize] += bytes;
            if member == 0 {
                round.next(|member| member != 0);
            }
        }
        assert!(served[0].abs_diff(served[1]) < 2_400, "{served:?}");
        // Who came often and took nothing has not saved up.
        let mut round = Round::new([100].into_iter());
        for _ in 0..10 {
            round.enter(0);
            assert_eq!(round.next(|_| false), None);
        }
        round.enter(0);
        round.charge(0, 100);
        assert_eq!(round.turns[0].credit, 0);
    }

    proptest! {
        /// The bound that the module promises, for any items and quanta, at every moment.
        #[test]
        fn shares_are_as_the_quanta(
            quanta in prop::collection::vec(1u32..3_000, 2..6),
            lens in prop::collection::vec(1u32..70_000, 200),
        ) {
            let mut round = Round::new(quanta.iter().copied());
            (0..quanta.len()).for_each(|member| round.enter(member as u32));
            let mut served = vec![0u64; quanta.len()];
            for len in &lens {
                let member = round.next(|_| true).unwrap();
                round.charge(member, *len);
                served[member as usize] += u64::from(*len);
                let turns: Vec<f64> =
                    served.iter().zip(&quanta).map(|(bytes, quantum)| *bytes as f64 / f64::from(*quantum)).collect();
                let most = f64::from(*lens.iter().max().unwrap());
                for (a, quantum_a) in turns.iter().zip(&quanta) {
                    for (b, quantum_b) in turns.iter().zip(&quanta) {
                        let items = most / f64::from(*quantum_a) + most / f64::from(*quantum_b);
                        prop_assert!((a - b).abs() <= 3.0 + items, "{} and {} turns", a, b);
                    }
                }
            }
        }
    }
}
