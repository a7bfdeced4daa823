//! Notices of an endpoint to its caller.

use crate::children::InstallFailure;
use alloc::sync::Arc;
use casemate_datapath::spd::{InsertError, Policy, PolicyId};
use casemate_datapath::{AddSaError, Direction, SaCounters, SaId};
use casemate_ike::config::{ChildConfig, Connection};
use casemate_ike::{Event, IkeSaId};
use casemate_sa::SpdId;
use core::fmt;

/// An event that the caller may log or act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event of IKE. SAs and policies are already updated.
    Ike(Event),
    /// An event of the data path.
    Datapath(casemate_datapath::Event),
    /// A change of the SPD, for callers that keep routes in step. Sent before the event that caused it.
    Policy(PolicyChange),
    /// Counters of an SA whose Child SA ends or does not send on it any more. Sent before the event that
    /// caused it, and only if the caller has requested such notices (`Endpoint::report_sa_counters`).
    SaCounters {
        /// Origin of the IKE SA of the Child SA.
        origin: IkeSaId,
        /// The SA.
        sa: SaId,
        /// What it has carried.
        counters: SaCounters,
        /// Whether it is removed. If not, it receives for a while, and another notice follows.
        is_removed: bool,
    },
    /// A peer sends on an SA that this host does not know, and this host starts the connection.
    PeerUsesUnknownSpi {
        /// The connection.
        connection: Arc<Connection>,
    },
    /// No trap was installed for the traffic of a child.
    TrapNotInstalled {
        /// The connection.
        connection: Arc<Connection>,
        /// The child.
        child: Arc<ChildConfig>,
        /// The cause.
        error: TrapError,
    },
    /// A Child SA could not be installed, and is closed.
    ChildNotInstalled {
        /// The connection.
        connection: Arc<Connection>,
        /// The child.
        child: Arc<ChildConfig>,
        /// The cause.
        error: InstallError,
    },
}

/// A change of the SPD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// A policy was added, after all others of its direction and priority.
    Added {
        /// Direction of the policy.
        direction: Direction,
        /// ID of the policy.
        id: PolicyId,
        /// The policy.
        policy: Policy,
    },
    /// A policy was removed.
    Removed {
        /// Direction of the policy.
        direction: Direction,
        /// ID of the policy.
        id: PolicyId,
    },
    /// A Child SA or an IKE SA gets an SPD of its own
    /// ([`SpdRule::Own`](casemate_sa::SpdRule), with the Cargo feature `spds`). It has no policies yet.
    SpdAdded {
        /// The SPD.
        spd: SpdId,
    },
    /// Such an SPD is not used any more. Its policies are removed.
    SpdRemoved {
        /// The SPD.
        spd: SpdId,
    },
}

/// Why a trap was not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrapError {
    /// The SPD rejected a policy.
    Spd(InsertError),
    /// No packet matches both the local and the remote traffic of the child: their IP versions or protocols
    /// differ.
    NoTraffic,
    /// The addresses of the peer's name are not known yet.
    UnknownHost,
    /// Each Child SA has an SPD of its own, so there is none before the first one.
    OwnSpd,
}

impl fmt::Display for TrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spd(error) => error.fmt(f),
            Self::NoTraffic => f.write_str(
                "no packet fits both `local_ts` and `remote_ts`: their IP versions or protocols differ",
            ),
            Self::OwnSpd => f.write_str("with `%unique` there is no interface before the Child SA"),
            Self::UnknownHost => f.write_str("no address is known yet for the name of the peer"),
        }
    }
}

impl From<InsertError> for TrapError {
    fn from(error: InsertError) -> Self {
        Self::Spd(error)
    }
}

/// Why a Child SA could not be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallError {
    /// The data path rejected an SA.
    Sa(AddSaError),
    /// The SPD is full.
    Policies,
    /// All numbers for SPDs that belong to one SA are in use.
    SpdNumbers,
    /// The peer has as many numbers for SPDs that belong to one SA as one peer may have.
    SpdNumbersOfPeer,
    /// The caller has no interface for its SPD (`Endpoint::reject_spd`).
    Interface,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sa(error) => error.fmt(f),
            Self::Policies => f.write_str("the SPD is full"),
            Self::SpdNumbers => f.write_str("all numbers of `%unique` are in use"),
            Self::SpdNumbersOfPeer => {
                f.write_str("the identity of the peer has 128 numbers of `%unique`, and may have no more")
            }
            Self::Interface => f.write_str("there is no interface for its `%unique`"),
        }
    }
}

impl From<InstallFailure> for InstallError {
    fn from(error: InstallFailure) -> Self {
        match error {
            InstallFailure::Sa(error) => Self::Sa(error),
            InstallFailure::Policies => Self::Policies,
        }
    }
}
