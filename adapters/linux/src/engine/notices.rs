//! Notices of the endpoint: what they change in the system, and those that wait for it.

use super::shared::Shared;
use super::{EngineHandler, SystemProblem};
use crate::setup::SystemState;
use casemate::{Notice, NoticeSa};
use casemate_ike::Event;
use casemate_sa::Protocol;

/// Notices that wait for the system, at most. Further notices are counted and dropped.
const MAX_NOTICES: usize = 16_384;

/// Notes what has to change in the system, and accepts packets for new Child SAs.
pub(super) fn apply_notice(
    system: &mut SystemState,
    notice: &Notice,
    shared: &Shared,
    handler: &mut dyn EngineHandler,
) {
    match notice {
        Notice::Policy(change) => system.note_policy(change),
        Notice::Ike(event) => {
            if let Event::ChildUp(up) = event {
                shared.add_inbound_addr(up.inbound.dst);
                if up.outbound.transform.protocol() == Protocol::Ah && up.outbound.src.is_ipv4() {
                    shared.idents.assign_before_protection();
                }
            }
            if let Err(error) = system.note_event(event) {
                handler.on_problem(SystemProblem::Policies, error.to_string());
            }
        }
        Notice::Datapath(_)
        | Notice::SaCounters { .. }
        | Notice::PeerUsesUnknownSpi { .. }
        | Notice::TrapNotInstalled { .. }
        | Notice::ChildNotInstalled { .. } => {}
    }
}

/// Notices for the handler that wait until the system matches the policies, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingNotices {
    pub(super) waiting: Vec<(Notice, Option<NoticeSa>)>,
    /// Number of dropped notices.
    pub(super) lost: u64,
}

impl PendingNotices {
    /// Whether a notice has to wait. Notices of the data path do not depend on the system, and those of
    /// policies say nothing about it: with thousands of connections, they would displace the others.
    pub(super) const fn must_wait(notice: &Notice) -> bool {
        !matches!(notice, Notice::Datapath(_) | Notice::Policy(_))
    }

    /// Adds a notice, if there is room.
    pub(super) fn push(&mut self, notice: Notice, sa: Option<NoticeSa>) {
        if self.waiting.len() < MAX_NOTICES {
            self.waiting.push((notice, sa));
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate::PolicyChange;
    use casemate_datapath::spd::{Action, Policy, PolicyTable};
    use casemate_datapath::{Direction, Event as DatapathEvent};
    use casemate_ike::{Path, StateFault};
    use casemate_sa::{AddrRange, Selector, SpdId};
    use casemate_wire::flow::{FlowKey, FlowPorts};
    use std::net::Ipv4Addr;

    #[test]
    fn notices_about_sas_wait_in_bounded_memory_and_others_do_not_wait() {
        let any = Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4);
        let policy = Policy { spd: SpdId::MAIN, selector: any, action: Action::Discard, priority: 0 };
        let id = PolicyTable::new(1, 1).insert(policy).unwrap();
        let (host, ports) = (Ipv4Addr::LOCALHOST, FlowPorts::new(0, 0));
        let [policy, datapath] = [
            Notice::Policy(PolicyChange::Removed { direction: Direction::Outbound, id }),
            Notice::Datapath(DatapathEvent::Acquire { policy: id, flow: FlowKey::v4(host, host, 1, ports) }),
        ];
        let ike = Notice::Ike(Event::Fault {
            fault: StateFault::MessageId.into(),
            path: Path { local: (host, 500).into(), remote: (host, 500).into() },
            connection: None,
            explanation: None,
        });
        assert!(!PendingNotices::must_wait(&policy) && !PendingNotices::must_wait(&datapath));
        assert!(PendingNotices::must_wait(&ike));
        let mut notices = PendingNotices::default();
        (0..MAX_NOTICES + 3).for_each(|_| notices.push(ike.clone(), None));
        assert_eq!((notices.waiting.len(), notices.lost), (MAX_NOTICES, 3));
    }
}
