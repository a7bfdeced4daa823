//! Notices for the attendant that wait until the system has followed.

use casemate::Notice;

/// Notices that wait at most; while the system does not follow, what comes then is counted and dropped.
const MAX: usize = 16_384;

/// The notices, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Told {
    waiting: Vec<Notice>,
    lost: u64,
}

impl Told {
    /// Whether a notice waits: what the data path reports does not depend on the system.
    pub(super) const fn must_wait(notice: &Notice) -> bool {
        !matches!(notice, Notice::Datapath(_))
    }

    /// Keeps a notice, if there is room.
    pub(super) fn push(&mut self, notice: Notice) {
        if self.waiting.len() < MAX {
            self.waiting.push(notice);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Takes all of them, and how many were dropped.
    pub(super) fn take(&mut self) -> (Vec<Notice>, u64) {
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate::PolicyChange;
    use casemate_datapath::spd::{Action, Policy, PolicyTable};
    use casemate_datapath::{Audit, Direction, DropReason, Event};
    use casemate_sa::{AddrRange, Instant, Selector};

    #[test]
    fn policies_wait_in_bounded_room_and_audits_do_not() {
        let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
        let policy = Policy { selector: any, action: Action::Discard, priority: 0 };
        let id = PolicyTable::new(1, 1).insert(policy).unwrap();
        let removed = Notice::Policy(PolicyChange::Removed { direction: Direction::Outbound, id });
        let reason = DropReason::NoSa;
        let audit = Audit { at: Instant::ZERO, reason, src: None, dst: None, header: None, flow_label: None };
        assert!(Told::must_wait(&removed) && !Told::must_wait(&Notice::Datapath(Event::Audit(audit))));
        let mut told = Told::default();
        (0..MAX + 3).for_each(|_| told.push(removed.clone()));
        let (waiting, lost) = told.take();
        assert_eq!((waiting.len(), lost), (MAX, 3));
        assert_eq!(told.take(), (vec![], 0));
    }
}
