//! Why a negotiation failed, as far as an event says it.

use casemate::Notice;
use casemate_ike::{DownReason, Event, InitiateError, PeerFault, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType};
use std::net::SocketAddr;

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer does not respond to a request.
    NoResponse { exchange: ExchangeType, remote: SocketAddr },
    /// The peer does not respond any more.
    DeadPeer,
    /// The peer refused the IKE SA.
    IkeRefused(NotifyType),
    /// The peer refused a Child SA.
    ChildRefused(NotifyType),
    /// This host refused what the peer sent.
    Fault(StateFault),
    /// The peer sent a malformed message.
    Malformed,
    /// This host could not start.
    NotInitiated(InitiateError),
    /// This host could not install an SA or a trap.
    NotInstalled,
}

impl Cause {
    /// The cause that a notice names.
    pub(super) fn of(notice: &Notice) -> Option<Self> {
        Some(match notice {
            Notice::Ike(Event::Retransmitted { exchange, path, .. }) => {
                Self::NoResponse { exchange: *exchange, remote: path.remote }
            }
            Notice::Ike(Event::IkeDown { reason: DownReason::DeadPeer, .. }) => Self::DeadPeer,
            Notice::Ike(Event::IkeDown { reason: DownReason::Refused(notify), .. }) => {
                Self::IkeRefused(*notify)
            }
            Notice::Ike(Event::ChildFailed { reason: DownReason::Refused(notify), .. }) => {
                Self::ChildRefused(*notify)
            }
            Notice::Ike(Event::Fault { fault: PeerFault::State(fault), .. }) => Self::Fault(*fault),
            Notice::Ike(Event::Fault { fault: PeerFault::Wire(_), .. }) => Self::Malformed,
            Notice::Ike(Event::InitiateFailed { error, .. }) => Self::NotInitiated(*error),
            Notice::ChildNotInstalled { .. } | Notice::TrapNotInstalled { .. } => Self::NotInstalled,
            _ => return None,
        })
    }
}
