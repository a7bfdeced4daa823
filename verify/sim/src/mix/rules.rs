//! Conditions that must hold during a mix and at its end.

use super::Operation;
use crate::invariants::{Checked, Monitor, violated};
use crate::node::Node;
use crate::plan::{Plan, Topology};
use casemate::Notice;
use casemate_ike::{DownReason, Event};
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
        Self { initial_ike_sas: 1, ikes: 1..=1, children: 1..=1, lossless, allowed_ends }
    }

    /// Rules of a mix that only rekeys, creates and deletes SAs.
    pub(super) fn for_rekeyings(plan: &Plan, operations: &[(usize, Operation)]) -> Self {
        let parallel = if plan.topology == Topology::Sites { 2 } else { 1 };
        let count = |wanted| operations.iter().filter(|(_, operation)| *operation == wanted).count();
        let (created, deleted) = (count(Operation::CreateChild), count(Operation::DeleteChild));
        Self {
            initial_ike_sas: parallel,
            ikes: parallel..=parallel,
            children: (parallel + created).saturating_sub(deleted)..=parallel + created,
            // Without a Delete payload, the new SA always exists before the old one is removed.
            lossless: deleted == 0,
            allowed_ends: AllowedEnds::Orderly,
        }
    }

    /// Checks that no endpoint declares a live peer dead or reports a fault of a conforming peer.
    pub(crate) fn check_notice(&self, monitor: &Monitor, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(event) = notice else { return Ok(()) };
        match event {
            Event::IkeDown { ike, reason: why, .. }
                if !self.allows_ike(*why) && monitor.was_up(node, *ike) =>
            {
                violated(format!("node {}: an IKE SA ended: {why}", node.index))
            }
            Event::ChildDown { reason: why, .. } if !self.allows_child(*why) => {
                violated(format!("node {}: a Child SA ended: {why}", node.index))
            }
            _ => Ok(()),
        }
    }

    fn allows_ike(&self, why: DownReason) -> bool {
        match why {
            DownReason::Replaced | DownReason::Unconfigured | DownReason::Peer => true,
            DownReason::Local | DownReason::Reauth | DownReason::NotUnique => {
                self.allowed_ends != AllowedEnds::Orderly
            }
            DownReason::DeadPeer => self.allowed_ends == AllowedEnds::Outage,
            DownReason::Expired | DownReason::Refused(_) | DownReason::Fault(_) => false,
        }
    }

    fn allows_child(&self, why: DownReason) -> bool {
        !matches!(why, DownReason::Fault(_) | DownReason::Expired)
            && (why != DownReason::DeadPeer || self.allowed_ends == AllowedEnds::Outage)
    }
}
