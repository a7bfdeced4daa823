//! What an endpoint tells.

use crate::children::NotInstalled;
use alloc::sync::Arc;
use casemate_datapath::spd::{InsertError, Policy, PolicyId};
use casemate_datapath::{AddSaError, Direction};
use casemate_ike::Event;
use casemate_ike::config::{Child, Connection};
use core::fmt;

/// Something that happened, for whoever runs the endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Something that IKE tells; SAs and policies are as it says already.
    Ike(Event),
    /// Something that the data path tells.
    Datapath(casemate_datapath::Event),
    /// A policy: routes that lead packets here have to follow. Told before what it came or went with.
    Policy(PolicyChange),
    /// The traffic of a child was to be held until there is a Child SA, and is not held.
    NotHeld {
        /// The connection.
        connection: Arc<Connection>,
        /// The child.
        child: Arc<Child>,
        /// Why.
        why: HoldError,
    },
    /// A Child SA could not be installed, and is closed again.
    NotInstalled {
        /// The connection.
        connection: Arc<Connection>,
        /// The child.
        child: Arc<Child>,
        /// Why.
        why: InstallError,
    },
}

/// A policy that came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// It came, after all others of its direction and priority.
    Added {
        /// Whose SPD it is in.
        direction: Direction,
        /// Its name there.
        id: PolicyId,
        /// What it says.
        policy: Policy,
    },
    /// It went.
    Removed {
        /// Whose SPD it was in.
        direction: Direction,
        /// Its name there.
        id: PolicyId,
    },
}

/// Why traffic is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldError {
    /// The SPD took no policy.
    Spd(InsertError),
    /// No packet has both the local and the remote traffic of the child: their IP versions or protocols differ.
    NoTraffic,
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spd(error) => error.fmt(f),
            Self::NoTraffic => f.write_str(
                "no packet fits both `local_ts` and `remote_ts`: their IP versions or protocols differ",
            ),
        }
    }
}

impl From<InsertError> for HoldError {
    fn from(error: InsertError) -> Self {
        Self::Spd(error)
    }
}

/// Why a Child SA could not be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallError {
    /// The data path refused an SA.
    Sa(AddSaError),
    /// The SPD is full.
    Policies,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sa(error) => error.fmt(f),
            Self::Policies => f.write_str("the SPD is full"),
        }
    }
}

impl From<NotInstalled> for InstallError {
    fn from(error: NotInstalled) -> Self {
        match error {
            NotInstalled::Sa(error) => Self::Sa(error),
            NotInstalled::Policies => Self::Policies,
        }
    }
}
