//! Names of SAs, and what commands are answered.

use alloc::vec::Vec;
use casemate_tables::Key;
use core::fmt;

/// Names one IKE SA; never another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeSaId(pub(crate) u64);

/// Names one Child SA; never another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(pub(crate) u64);

impl Key for IkeSaId {
    fn words(self) -> [u64; 2] {
        self.0.words()
    }
}

impl Key for ChildId {
    fn words(self) -> [u64; 2] {
        self.0.words()
    }
}

impl fmt::Display for IkeSaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SAs for which there is no configuration any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unconfigured {
    /// IKE SAs.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs of other IKE SAs.
    pub children: Vec<ChildId>,
}

/// Why an IKE SA was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBegun {
    /// The connection names no single address of the peer.
    NoRemoteAddress,
    /// There is no way to the peer.
    NoRoute,
    /// There are as many IKE SAs as there may be.
    Full,
    /// The provider failed, or has no algorithm that is configured.
    Provider,
}

impl fmt::Display for NotBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRemoteAddress => "the connection has no single remote address to call",
            Self::NoRoute => "there is no route to the peer",
            Self::Full => "there are as many IKE SAs as there may be",
            Self::Provider => "no provider has the algorithms",
        })
    }
}

impl core::error::Error for NotBegun {}
