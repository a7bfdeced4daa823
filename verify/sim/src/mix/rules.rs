//! What must hold during a mix and at its end.

use super::Operation;
use crate::node::Node;
use crate::plan::{Plan, Shape};
use crate::watch::{Checked, Watch, violated};
use casemate::Notice;
use casemate_ike::{Down, Event};
use std::ops::RangeInclusive;

/// What must hold.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// IKE SAs before the first operation.
    pub(super) at_first: usize,
    /// IKE SAs at the end.
    pub(super) ikes: RangeInclusive<usize>,
    /// Child SAs at the end.
    pub(super) children: RangeInclusive<usize>,
    /// Every packet arrives.
    pub(super) lossless: bool,
    /// Why SAs may end.
    pub(super) ends: Ends,
}

/// Why SAs may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// They are replaced or deleted.
    Orderly,
    /// The same; or an administrator closes the IKE SA, or it is reauthenticated, or a new one takes its place.
    Intended,
    /// The same; or a peer does not respond.
    Outage,
}

impl Rules {
    /// One IKE SA with one Child SA at the end.
    pub(super) const fn one(lossless: bool, ends: Ends) -> Self {
        Self { at_first: 1, ikes: 1..=1, children: 1..=1, lossless, ends }
    }

    /// Of a mix that only rekeys, creates and deletes.
    pub(super) fn of_rekeyings(plan: &Plan, operations: &[(usize, Operation)]) -> Self {
        let parallel = if plan.shape == Shape::Sites { 2 } else { 1 };
        let count = |wanted| operations.iter().filter(|(_, operation)| *operation == wanted).count();
        let (created, deleted) = (count(Operation::CreateChild), count(Operation::DeleteChild));
        Self {
            at_first: parallel,
            ikes: parallel..=parallel,
            children: (parallel + created).saturating_sub(deleted)..=parallel + created,
            // Without a Delete, the new SA is always there before the old one goes.
            lossless: deleted == 0,
            ends: Ends::Orderly,
        }
    }

    /// No endpoint gives up a peer that lives, or finds fault with a peer that follows the rules.
    pub(crate) fn check_notice(&self, watch: &Watch, node: &Node, notice: &Notice) -> Checked {
        let Notice::Ike(event) = notice else { return Ok(()) };
        match event {
            Event::IkeDown { ike, why, .. } if !self.allows_ike(*why) && watch.was_up(node, *ike) => {
                violated(format!("node {}: an IKE SA ended: {why}", node.index))
            }
            Event::ChildDown { why, .. } if !self.allows_child(*why) => {
                violated(format!("node {}: a Child SA ended: {why}", node.index))
            }
            _ => Ok(()),
        }
    }

    fn allows_ike(&self, why: Down) -> bool {
        match why {
            Down::Replaced | Down::Unconfigured | Down::Peer => true,
            Down::Local | Down::Reauth | Down::NotUnique => self.ends != Ends::Orderly,
            Down::Dead => self.ends == Ends::Outage,
            Down::Expired | Down::Refused(_) | Down::Fault(_) => false,
        }
    }

    fn allows_child(&self, why: Down) -> bool {
        !matches!(why, Down::Fault(_) | Down::Expired) && (why != Down::Dead || self.ends == Ends::Outage)
    }
}
