//! An event of the past, and why it failed, as far as it says so.

use crate::log::level::Level;
use crate::log::message::Message;
use casemate::{InstallError, Notice};
use casemate_eap::EapFault;
use casemate_ike::diagnosis::Explanation;
use casemate_ike::{DownReason, Event, InitiateError, PeerFault, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType};
use std::net::SocketAddr;
use std::time::Instant;

/// Maximum number of lines of an event.
const MAX_LINES: usize = 24;

/// An event as it was logged.
#[derive(Debug, Clone)]
pub(crate) struct PastEvent {
    pub(crate) at: Instant,
    pub(crate) level: Level,
    /// The lines of the message, without the name of the connection.
    pub(crate) lines: Vec<String>,
    pub(crate) cause: Option<Cause>,
    /// The SA that has come up or ended, if one has.
    pub(crate) change: Option<SaChange>,
    /// Whether the event proves that the peer responds.
    pub(crate) is_from_peer: bool,
}

impl PastEvent {
    pub(super) fn of(notice: &Notice, message: &Message) -> Self {
        let lines = std::iter::once(&message.text).chain(&message.details).take(MAX_LINES);
        Self {
            at: Instant::now(),
            level: message.level,
            lines: lines.cloned().collect(),
            cause: Cause::of(notice),
            change: SaChange::of(notice),
            is_from_peer: is_from_peer(notice),
        }
    }
}

/// What has become of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaChange {
    /// An IKE SA is established.
    IkeUp,
    /// An IKE SA has ended, or was not established.
    IkeDown(DownReason),
    /// A Child SA is installed.
    ChildUp,
    /// A Child SA has ended.
    ChildDown(DownReason),
}

impl SaChange {
    /// Whether it is one of an IKE SA.
    pub(crate) const fn is_of_ike(self) -> bool {
        matches!(self, Self::IkeUp | Self::IkeDown(_))
    }

    /// The change that a notice reports.
    fn of(notice: &Notice) -> Option<Self> {
        match notice {
            Notice::Ike(Event::IkeUp { .. }) => Some(Self::IkeUp),
            Notice::Ike(Event::IkeDown { reason, half_open: false, .. }) => Some(Self::IkeDown(*reason)),
            Notice::Ike(Event::ChildUp(_)) => Some(Self::ChildUp),
            Notice::Ike(Event::ChildDown { reason, .. }) => Some(Self::ChildDown(*reason)),
            _ => None,
        }
    }
}

/// Whether the notice proves that the peer responds.
fn is_from_peer(notice: &Notice) -> bool {
    match notice {
        Notice::Ike(Event::IkeUp { .. } | Event::ChildUp(_) | Event::Fault { .. }) => true,
        Notice::Ike(
            Event::IkeDown { reason, .. }
            | Event::IkeRekeyFailed { reason, .. }
            | Event::ChildFailed { reason, .. },
        ) => {
            matches!(reason, DownReason::Refused(_) | DownReason::Peer)
        }
        _ => false,
    }
}

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer does not respond to a request.
    NoResponse { exchange: ExchangeType, remote: SocketAddr },
    /// The peer does not respond any more.
    DeadPeer,
    /// The peer refused the IKE SA.
    IkeRefused(NotifyType),
    /// The peer refused to replace the IKE SA.
    RekeyRefused(NotifyType),
    /// The peer refused a Child SA.
    ChildRefused(NotifyType),
    /// This host refused what the peer sent.
    Fault(StateFault),
    /// EAP has failed.
    Eap(EapFault),
    /// The peer sent a malformed message.
    Malformed,
    /// This host could not start.
    NotInitiated(InitiateError),
    /// This host could not install a Child SA.
    NotInstalled(InstallError),
    /// This host could not install a trap.
    NoTrap,
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
            Notice::Ike(
                Event::IkeDown { reason: DownReason::Fault(PeerFault::State(fault)), .. }
                | Event::ChildFailed { reason: DownReason::Fault(PeerFault::State(fault)), .. },
            ) => Self::Fault(*fault),
            Notice::Ike(Event::IkeRekeyFailed { reason: DownReason::Refused(notify), .. }) => {
                Self::RekeyRefused(*notify)
            }
            Notice::Ike(Event::ChildFailed { reason: DownReason::Refused(notify), .. }) => {
                Self::ChildRefused(*notify)
            }
            Notice::Ike(Event::Fault { explanation: Some(explanation), .. })
                if let Explanation::Eap { fault, .. } = &**explanation =>
            {
                Self::Eap(*fault)
            }
            Notice::Ike(Event::Fault { fault: PeerFault::State(fault), .. }) => Self::Fault(*fault),
            Notice::Ike(Event::Fault { fault: PeerFault::Wire(_), .. }) => Self::Malformed,
            Notice::Ike(Event::InitiateFailed { error, .. }) => Self::NotInitiated(*error),
            Notice::ChildNotInstalled { error, .. } => Self::NotInstalled(*error),
            Notice::TrapNotInstalled { .. } => Self::NoTrap,
            _ => return None,
        })
    }
}
