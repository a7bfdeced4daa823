//! Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queueing Using Deficit Round Robin", 1995).
//!
//! Each member has credit in bytes. A turn adds a quantum to the credit. A member is served while its credit
//! is positive, and the last item may put it into debt, which later turns repay. An item may thus be larger
//! than a quantum, and an item is not inspected before its turn. Debt remains when a member leaves;
//! otherwise, a member that always has a single large item would get that item for one quantum.
//!
//! For two members that always have work, the bytes served per unit of quantum differ over any time by at
//! most three quanta and two items. The work per served quantum is constant.

use alloc::boxed::Box;
use casemate_wire::invariant::OrBroken;

/// The active members in the order of their turns. A member without work stays active until its next turn.
#[derive(Debug)]
pub(crate) struct DeficitRoundRobin {
    members: Box<[Member]>,
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Debug)]
struct Member {
    quantum: u32,
    /// In bytes; negative credit is debt.
    credit: i64,
    /// Whether the member is in the list of active members.
    is_active: bool,
    next: Option<u32>,
}

impl DeficitRoundRobin {
    /// Creates members numbered from 0 with these quanta. A quantum of 0 counts as 1, so that every member
    /// gets a turn.
    pub(crate) fn new(quanta: impl Iterator<Item = u32>) -> Self {
        let member =
            |quantum: u32| Member { quantum: quantum.max(1), credit: 0, is_active: false, next: None };
        Self { members: quanta.map(member).collect(), first: None, last: None }
    }

    /// Appends member `number`, which now has work, to the active members unless it is already active.
    #[inline]
    pub(crate) fn enter(&mut self, number: u32) {
        let Some(member) = self.members.get_mut(number as usize).filter(|member| !member.is_active) else {
            return;
        };
        member.is_active = true;
        member.credit = member.credit.min(0).saturating_add(member.quantum.into());
        self.append(number);
    }

    /// Returns the member to serve now; `None` if no member has work. Removes members without work.
    #[inline]
    pub(crate) fn next(&mut self, has_work: impl Fn(u32) -> bool) -> Option<u32> {
        loop {
            let first = self.first?;
            let member = self.members.get_mut(first as usize).or_report("active members exist")?;
            let has_work = has_work(first);
            if has_work && member.credit > 0 {
                return Some(first);
            }
            self.first = member.next.take();
            if has_work {
                member.credit = member.credit.saturating_add(member.quantum.into());
                self.append(first);
            } else {
                member.is_active = false;
            }
        }
    }

    /// Deducts the bytes that member `number` was served from its credit.
    #[inline]
    pub(crate) fn charge(&mut self, number: u32, bytes: u32) {
        if let Some(member) = self.members.get_mut(number as usize).or_report("the served member exists") {
            member.credit = member.credit.saturating_sub(bytes.into());
        }
    }

    #[inline]
    fn append(&mut self, member: u32) {
        let last = self.last.filter(|_| self.first.is_some());
        match last.and_then(|last| self.members.get_mut(last as usize)) {
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
    fn only_members_with_work_are_served() {
        let mut drr = DeficitRoundRobin::new([100, 100].into_iter());
        assert_eq!(drr.next(|_| true), None);
        drr.enter(1);
        assert_eq!(drr.next(|_| false), None);
        assert_eq!(drr.next(|_| true), None, "the member became inactive");
        drr.enter(1);
        drr.enter(1);
        assert_eq!(drr.next(|_| true), Some(1));
        assert_eq!(drr.next(|member| member == 0), None);
    }

    #[test]
    fn a_member_that_leaves_keeps_debt_and_loses_credit() {
        let mut drr = DeficitRoundRobin::new([100, 100].into_iter());
        // Member 0 always has one item of 1000 bytes, member 1 always has small items.
        let mut served = [0u32; 2];
        for _ in 0..10_000 {
            drr.enter(0);
            drr.enter(1);
            let member = drr.next(|_| true).unwrap();
            let bytes = [1000, 10][member as usize];
            drr.charge(member, bytes);
            served[member as usize] += bytes;
            if member == 0 {
                drr.next(|member| member != 0);
            }
        }
        assert!(served[0].abs_diff(served[1]) < 2_400, "{served:?}");
        // A member that joined often and took nothing has accumulated no credit.
        let mut drr = DeficitRoundRobin::new([100].into_iter());
        for _ in 0..10 {
            drr.enter(0);
            assert_eq!(drr.next(|_| false), None);
        }
        drr.enter(0);
        drr.charge(0, 100);
        assert_eq!(drr.members[0].credit, 0);
    }

    proptest! {
        /// The bound that the module promises, for any items and quanta, at any time.
        #[test]
        fn shares_are_proportional_to_the_quanta(
            quanta in prop::collection::vec(1u32..3_000, 2..6),
            lens in prop::collection::vec(1u32..70_000, 200),
        ) {
            let mut drr = DeficitRoundRobin::new(quanta.iter().copied());
            (0..quanta.len()).for_each(|member| drr.enter(member as u32));
            let mut served = vec![0u64; quanta.len()];
            for len in &lens {
                let member = drr.next(|_| true).unwrap();
                drr.charge(member, *len);
                served[member as usize] += u64::from(*len);
                let members: Vec<f64> = served
                    .iter()
                    .zip(&quanta)
                    .map(|(bytes, quantum)| *bytes as f64 / f64::from(*quantum))
                    .collect();
                let longest = f64::from(*lens.iter().max().unwrap());
                for (a, quantum_a) in members.iter().zip(&quanta) {
                    for (b, quantum_b) in members.iter().zip(&quanta) {
                        let items = longest / f64::from(*quantum_a) + longest / f64::from(*quantum_b);
                        prop_assert!((a - b).abs() <= 3.0 + items, "{} and {} turns", a, b);
                    }
                }
            }
        }
    }
}
