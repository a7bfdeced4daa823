//! Queue of the requests of an established IKE SA. One request is outstanding at a time; the others wait in
//! the queue.

use super::create_child::PendingChild;
use super::rekey::PendingRekey;
#[cfg(feature = "mobike")]
use crate::Path;
use crate::child_sa::ChildRequest;
#[cfg(feature = "mobike")]
use crate::mobike::Cookie2;
use crate::state::Established;
use crate::{ChildId, DownReason, IkeSaId};
use alloc::boxed::Box;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;

/// A request to send.
#[derive(Debug)]
pub(crate) enum Task {
    /// Create a Child SA.
    Child(Box<ChildRequest>),
    /// Rekey a Child SA.
    RekeyChild(ChildId),
    /// Delete a Child SA.
    DeleteChild(ChildId, DownReason),
    /// Rekey the IKE SA.
    RekeyIke,
    /// Delete the IKE SA.
    DeleteIke(DownReason),
    /// Close the IKE SA with this origin, which this IKE SA reauthenticates, once all its Child SAs have been
    /// requested here.
    DeletePredecessor(IkeSaId),
    /// Check the liveness of the peer.
    Liveness,
    /// Probe the path MTU.
    ProbePath,
    /// Send our token for this IKE SA to the peer (RFC 6290 section 4.3).
    SendCrashToken,
    /// Redirect the peer to another gateway (RFC 5685 section 5).
    #[cfg(feature = "redirect")]
    Redirect(crate::config::Gateway),
    /// Request a ticket (RFC 5723 section 4.1).
    #[cfg(feature = "resumption")]
    RequestTicket,
    /// Tell the peer that the SAs have moved to other addresses (RFC 4555 section 3.5).
    #[cfg(feature = "mobike")]
    UpdateAddresses,
    /// Tell the peer which addresses this host has besides that of the path (RFC 4555 section 3.6).
    #[cfg(feature = "mobike")]
    AnnounceAddresses,
    /// Check that the peer receives at its new address (RFC 4555 section 3.7).
    #[cfg(feature = "mobike")]
    CheckRoute,
}

impl Task {
    /// Whether the task creates a Child SA that did not exist before. A Child SA that ended may be requested
    /// again without end.
    fn requests_new_child(&self) -> bool {
        matches!(self, Self::Child(child_request) if !child_request.is_restart)
    }
}

impl Established {
    /// Earliest time to start a task; `None` while it waits for other tasks.
    pub(super) fn ready_at(&self, task: &Task) -> Option<Instant> {
        match task {
            Task::Child(child_request) => Some(child_request.postponed.until),
            // The peer may have postponed some of the Child SAs (RFC 7296 section 2.25). Until they are
            // requested again, the old IKE SA carries their traffic.
            Task::DeletePredecessor(_) if self.tasks.iter().any(Task::requests_new_child) => None,
            _ => Some(Instant::ZERO),
        }
    }

    /// Whether a task can start now.
    pub(super) fn is_ready(&self, task: &Task, now: Instant) -> bool {
        self.ready_at(task).is_some_and(|at| at <= now)
    }
}

/// What the outstanding request asked for.
pub(crate) enum Pending {
    Child(Box<PendingChild>),
    Rekey(Box<PendingRekey>),
    DeleteChild {
        id: ChildId,
        reason: DownReason,
    },
    DeleteIke(DownReason),
    Liveness,
    SendCrashToken,
    #[cfg(feature = "redirect")]
    Redirect,
    #[cfg(feature = "resumption")]
    Ticket,
    #[cfg(feature = "mobike")]
    UpdateAddresses {
        /// Where the request was sent first.
        path: Path,
        cookie: Cookie2,
    },
    #[cfg(feature = "mobike")]
    AnnounceAddresses {
        /// Where the request was sent first.
        path: Path,
    },
    #[cfg(feature = "mobike")]
    CheckRoute {
        /// Where the request was sent first.
        path: Path,
        cookie: Cookie2,
    },
    /// The request that a path MTU probe will repeat.
    PathProbe {
        sent_at: Instant,
    },
}

impl Pending {
    /// Exchange type of the response.
    pub(super) const fn exchange(&self) -> ExchangeType {
        match self {
            Self::Child(_) | Self::Rekey(_) => ExchangeType::CREATE_CHILD_SA,
            #[cfg(feature = "mobike")]
            Self::UpdateAddresses { .. } | Self::AnnounceAddresses { .. } | Self::CheckRoute { .. } => {
                ExchangeType::INFORMATIONAL
            }
            #[cfg(feature = "redirect")]
            Self::Redirect => ExchangeType::INFORMATIONAL,
            #[cfg(feature = "resumption")]
            Self::Ticket => ExchangeType::INFORMATIONAL,
            Self::DeleteChild { .. }
            | Self::DeleteIke(_)
            | Self::Liveness
            | Self::SendCrashToken
            | Self::PathProbe { .. } => ExchangeType::INFORMATIONAL,
        }
    }
}
