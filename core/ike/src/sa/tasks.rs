//! What an established IKE SA has to ask of its peer. One request is on its way at a time; the others wait here.

use super::Established;
use super::create_child::PendingChild;
use super::rekey::PendingRekey;
use crate::child::Wish;
use crate::{ChildId, Down, IkeSaId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;

/// Something to ask for.
#[derive(Debug)]
pub(crate) enum Task {
    /// A Child SA.
    Child(Box<Wish>),
    /// A Child SA in the place of this one.
    RekeyChild(ChildId),
    /// The end of a Child SA.
    DeleteChild(ChildId, Down),
    /// An IKE SA in the place of this one.
    RekeyIke,
    /// The end of the IKE SA.
    DeleteIke(Down),
    /// The end of what has this origin, which this IKE SA makes anew, once all its Child SAs have been asked for here.
    EndPredecessor(IkeSaId),
    /// A sign of life.
    Liveness,
}

impl Task {
    /// Whether it asks for a Child SA that was not there before. One that ended and is to be set up again may
    /// be asked for without end.
    fn asks_for_new(&self) -> bool {
        matches!(self, Self::Child(wish) if !wish.again)
    }
}

impl Established {
    /// The time before which a task is not to be begun; `None` while it has to wait for others.
    pub(super) fn ready_at(&self, task: &Task) -> Option<Instant> {
        match task {
            Task::Child(wish) => Some(wish.postponed.until),
            // The peer may have put off some of the Child SAs (RFC 7296 section 2.25). Until they are asked
            // for again, the old IKE SA carries their traffic.
            Task::EndPredecessor(_) if self.tasks.iter().any(Task::asks_for_new) => None,
            _ => Some(Instant::ZERO),
        }
    }

    /// Whether a task is to be begun.
    pub(super) fn is_ready(&self, task: &Task, now: Instant) -> bool {
        self.ready_at(task).is_some_and(|at| at <= now)
    }
}

/// What the outstanding request asked for.
pub(crate) enum Pending {
    Child(Box<PendingChild>),
    Rekey(Box<PendingRekey>),
    DeleteChildren(Vec<(ChildId, Down)>),
    DeleteIke(Down),
    Liveness,
}

impl Pending {
    /// The exchange that its answer belongs to.
    pub(super) const fn exchange(&self) -> ExchangeType {
        match self {
            Self::Child(_) | Self::Rekey(_) => ExchangeType::CREATE_CHILD_SA,
            Self::DeleteChildren(_) | Self::DeleteIke(_) | Self::Liveness => ExchangeType::INFORMATIONAL,
        }
    }
}
