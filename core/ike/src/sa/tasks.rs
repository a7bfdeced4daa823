//! What an established IKE SA has to ask of its peer. One request is on its way at a time; the others wait here.

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
    /// The time before which it is not to be asked for.
    pub(super) fn ready_at(&self) -> Instant {
        match self {
            Self::Child(wish) => wish.postponed.until,
            _ => Instant::ZERO,
        }
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
