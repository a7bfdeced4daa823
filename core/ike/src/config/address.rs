//! Addresses that one side of a connection may have, and look-ups of host names.

use super::Connection;
use crate::{Path, Routes};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use core::net::IpAddr;

/// Addresses that one side of a connection may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddrPattern {
    /// `%any`: every address.
    Any,
    /// `%any4` or `%any6`, a subnet, a range, or one address.
    Range(AddrRange),
    /// The addresses of a host with this name, which [`Routes::host_addrs`] looks up for each attempt.
    Host(Arc<str>),
}

impl AddrPattern {
    /// Whether `addr` matches. A host matches with the addresses that were last found.
    pub fn matches(&self, addr: IpAddr, routes: &dyn Routes) -> bool {
        match self {
            Self::Any => true,
            Self::Range(range) => range.contains(addr),
            Self::Host(name) => {
                matches!(routes.host_addrs(name, Lookup::Cached), HostAddrs::Known(addrs) if addrs.contains(&addr))
            }
        }
    }

    /// Whether this is one address or one host, to which this host can initiate.
    pub fn is_single(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Range(range) => range.first() == range.last(),
            Self::Host(_) => true,
        }
    }

    /// The addresses of a single address or host; empty for other patterns.
    pub fn single_addrs(&self, lookup: Lookup, routes: &dyn Routes) -> HostAddrs {
        match self {
            Self::Range(range) if range.first() == range.last() => HostAddrs::Known([range.first()].into()),
            Self::Any | Self::Range(_) => HostAddrs::Known(Vec::new()),
            Self::Host(name) => routes.host_addrs(name, lookup),
        }
    }
}

/// Whether the SAs of a connection with these patterns may move to an address. Ranges limit the addresses; a
/// list of single addresses only says where an IKE SA begins, as in strongSwan.
pub(crate) fn may_move_to(patterns: &[AddrPattern], addr: IpAddr, routes: &dyn Routes) -> bool {
    patterns.iter().all(AddrPattern::is_single) || patterns.iter().any(|one| one.matches(addr, routes))
}

impl Connection {
    /// Whether the SAs may move to both addresses of a path.
    pub(crate) fn may_move_to(&self, path: Path, routes: &dyn Routes) -> bool {
        may_move_to(&self.remote_addrs, path.remote.ip(), routes)
            && may_move_to(&self.local_addrs, path.local.ip(), routes)
    }
}

/// How current the addresses of a host must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// For an attempt that begins now: addresses that were looked up just before.
    Fresh,
    /// For comparisons: the addresses that were last found.
    Cached,
    /// For a comparison that matched no addresses: those that were looked up in the last seconds.
    Recheck,
}

/// Result of a look-up of a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAddrs {
    /// The addresses, the preferred first.
    Known(Vec<IpAddr>),
    /// The look-up has not ended.
    Pending,
    /// The host has no address, or the look-up failed.
    Unknown,
}
