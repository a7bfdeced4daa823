//! Conditions that must hold during a mix and at its end.

use super::{CellPlan, NodeOperation, Operation};
use crate::invariants::{Checked, Monitor, violated};
use crate::node::Node;
use crate::plan::{Plan, Topology};
use casemate::Notice;
use casemate_ike::{DownReason, Event};
use casemate_wire::ike::NotifyType;
use std::ops::RangeInclusive;

/// Conditions of a mix.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// IKE SAs before the first operation.
    pub(super) initial_ike_sas: usize,
    /// IKE SAs at the end.
    pub(super) ikes: RangeInclusive<usize>,
    /// Child SAs at the end.
    pub(super) children: RangeInclusive<usize>,
    /// Whether every packet has to arrive.
    pub(super) lossless: bool,
    /// Permitted reasons for the end of an SA.
    pub(super) allowed_ends: AllowedEnds,
    /// IKE SAs with a Child SA in addition, if a host has taken its peer for silent and set up a new IKE SA,
    /// while the peer repeats its own first requests.
    pub(super) after_silence: usize,
    /// An attacker replaces this notification in every IKE_SA_INIT message by an unknown one.
    pub(super) strips: Option<NotifyType>,
    /// Nodes that keep their state in a store.
    pub(super) stores: Vec<usize>,
    /// The cell to which the state of a node belongs.
    pub(super) cell: Option<CellPlan>,
}

/// Permitted reasons for the end of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedEnds {
    /// The SA is rekeyed or deleted.
    Orderly,
    /// As `Orderly`; or the IKE SA is terminated, reauthenticated, or replaced by a new one with the same
    /// peer.
    Intended,
    /// As `Intended`; or the peer does not respond.
    Outage,
}

impl Rules {
    /// One IKE SA with one Child SA at the end.
    pub(super) const fn one(lossless: bool, allowed_ends: AllowedEnds) -> Self {
        Self {
            initial_ike_sas: 1,
            ikes: 1..=1,
            children: 1..=1,
            lossless,
            allowed_ends,
            after_silence: 0,
            strips: None,
            stores: Vec::new(),
            cell: None,
        }
    }

    /// No IKE SA is ever established.
    pub(super) fn none() -> Self {
        Self { initial_ike_sas: 0, ikes: 0..=0, children: 0..=0, ..Self::one(false, AllowedEnds::Orderly) }
    }

    /// The rules after a host has taken its peer for silent.
    pub(super) fn with_silence(self) -> Self {
        let more = |range: RangeInclusive<usize>| *range.start()..=*range.end() + self.after_silence;
        let (ikes, children) = (more(self.ikes.clone()), more(self.children.clone()));
        Self { ikes, children, ..self }
    }

    /// Whether there may be no IKE SA at the end.
    pub(crate) fn may_end_without_ike_sa(&self) -> bool {
        *self.ikes.start() == 0 && !self.allows_no_ike_sa()
    }

    /// Whether no IKE SA may ever be established.
    pub(super) fn allows_no_ike_sa(&self) -> bool {
        *self.ikes.end() == 0
    }

    /// Rules of a mix that only rekeys, creates and deletes SAs.
    pub(super) fn for_rekeyings(plan: &Plan, operations: &[NodeOperation]) -> Self {
        let parallel = if plan.topology == Topology::Sites { 2 } else { 1 };
        let count = |wanted| operations.iter().filter(|planned| planned.operation == wanted).count();
        let (created, deleted) = (count(Operation::CreateChild), count(Operation::DeleteChild));
        Self {
            initial_ike_sas: parallel,
            ikes: parallel..=parallel,
            children: (parallel + created).saturating_sub(deleted)..=parallel + created,
            // Without a Delete payload, the new SA always exists before the old one is removed. A responder
            // may send through a new Child SA whose initiator never received the response.
            lossless: deleted == 0 && created == 0,
            allowed_ends: AllowedEnds::Orderly,
            after_silence: 0,
            strips: None,
            stores: Vec::new(),
            cell: None,
        }
    }

    /// Checks that no endpoint declares a live peer dead or reports a fault of a conforming peer.
    pub(crate) fn check_notice(&self, monitor: &Monitor, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(event) = notice else { return Ok(()) };
        // After 7 s without a response, a host sets up a new IKE SA and may drop the old one (decision 0080).
        let allowed = if monitor.was_silent() { AllowedEnds::Outage } else { self.allowed_ends };
        // The next process of the peer has authenticated this host again, because the keys of the successor
        // of an IKE SA were lost with the former process. It does not know that successor.
        let has_store = self.cell.is_some() || !self.stores.is_empty();
        let is_lost_successor = |why| has_store && matches!(why, DownReason::Forgotten { .. });
        match event {
            Event::IkeDown { reason: why, .. } | Event::ChildDown { reason: why, .. }
                if is_lost_successor(*why) =>
            {
                Ok(())
            }
            Event::IkeDown { ike, reason: why, .. }
                if !allowed.allows_ike(*why) && monitor.was_up(node, *ike) =>
            {
                violated(format!("node {}: an IKE SA ended: {why}", node.index))
            }
            Event::ChildDown { reason: why, .. } if !allowed.allows_child(*why) => {
                violated(format!("node {}: a Child SA ended: {why}", node.index))
            }
            _ => Ok(()),
        }
    }
}

impl AllowedEnds {
    fn allows_ike(self, why: DownReason) -> bool {
        match why {
            DownReason::Replaced | DownReason::Unconfigured | DownReason::Peer => true,
            DownReason::Local
            | DownReason::Reauth
            | DownReason::Forgotten { is_reauthenticated: true, .. }
            | DownReason::InitialContact
            | DownReason::NotUnique => self != Self::Orderly,
            DownReason::DeadPeer | DownReason::Forgotten { .. } => self == Self::Outage,
            DownReason::Expired | DownReason::Inactive | DownReason::Refused(_) | DownReason::Fault(_) => {
                false
            }
        }
    }

    fn allows_child(self, why: DownReason) -> bool {
        let is_outage =
            matches!(why, DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. });
        !matches!(why, DownReason::Fault(_) | DownReason::Expired) && (!is_outage || self == Self::Outage)
    }
}
